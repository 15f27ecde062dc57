"""IndexLake and its peers in one run: ``python -m benchmarks.peers``."""
