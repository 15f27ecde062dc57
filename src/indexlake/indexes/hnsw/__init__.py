"""The hnsw kind: nearest vectors, by a graph over large segments and exactly over small ones and narrow filters."""
