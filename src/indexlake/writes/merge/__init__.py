"""Merge and upsert: rows of a source matched with rows of a table, and what becomes of each."""
