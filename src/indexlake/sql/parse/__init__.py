"""Text to statements: split by keywords, with every expression and query kept as it was written."""
