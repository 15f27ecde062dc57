"""Statements at work: DuckDB or a scan alone answers queries; the lake's own operations do everything that changes."""
