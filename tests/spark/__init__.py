"""Reads, writes and jobs on a real Spark session."""
