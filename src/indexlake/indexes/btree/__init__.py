"""The btree kind: sorted runs of keys in immutable files, with a Bloom filter in front."""
