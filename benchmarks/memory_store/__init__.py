"""The hot store in memory beside bare appends to a file, ``inline``, SQLite and DuckDB."""
