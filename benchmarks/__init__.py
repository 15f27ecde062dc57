"""Benchmarks: each runs by one command and compares the engine with the floor it stands on."""
