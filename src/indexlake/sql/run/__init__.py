"""Running statements: DuckDB or a scan alone answers queries; the lake's own operations make all changes."""
