"""Clustered tables beside heap tables, Lance, Parquet, DuckDB and Spark."""
