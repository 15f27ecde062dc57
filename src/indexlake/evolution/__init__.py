"""Schema evolution: alterations of a definition, and where values come from in rows older than their column."""
