"""Benchmarks of secondary indexes: ``python -m benchmarks.indexes``."""
