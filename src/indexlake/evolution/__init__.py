"""Schema evolution: alterations of a definition, and where rows older than a column get its values."""
