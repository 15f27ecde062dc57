"""The bm25 kind: full-text search over its own postings files, ranked by the statistics of the visible rows."""
