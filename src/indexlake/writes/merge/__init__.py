"""Merge and upsert: rows of a source are matched with rows of a table, and something is done with each."""
