"""The bm25 kind: full-text search over postings of our own, ranked by the statistics of the rows that are visible."""
