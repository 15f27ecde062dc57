"""Clustered tables: the key ranges that their rows are kept in."""
