"""Blocks: immutable columnar files, their catalog records, and how to find rows in them."""
