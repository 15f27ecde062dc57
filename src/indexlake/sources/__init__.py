"""Sources of rows: files (Parquet, CSV, JSON lines, Arrow) and objects of other libraries.

A source is read once, from its first row to its last, in bounded memory.  If something is wrong with it, the error
names the file, and nothing of it has been written.
"""
