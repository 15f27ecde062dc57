"""Merge and upsert: rows of a source are matched with rows of a table, and clauses say what is done with each."""
