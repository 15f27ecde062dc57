"""Snapshots: what one process knows of a table, and what a reader sees of it at one commit."""
