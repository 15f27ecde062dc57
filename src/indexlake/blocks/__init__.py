"""Blocks: immutable columnar files, their catalog records, and what finds rows in them."""
