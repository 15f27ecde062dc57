"""The hash kind: sorted hashes of keys, small and for equality only."""
