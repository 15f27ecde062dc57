"""Sources of rows: files (Parquet, CSV, JSON lines, Arrow) and objects of other libraries.

A source is read once, from its first row to its last, in bounded memory.  What is wrong with it is an error that
names the file; nothing of it has been written then.
"""
