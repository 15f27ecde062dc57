"""Writes: insert, update, delete, upsert and merge fill the write-set of a transaction."""
