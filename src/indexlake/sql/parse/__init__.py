"""Text to statements: taken apart by keyword, with every expression and query kept as it was written."""
