"""The rtree kind: packed Hilbert R-trees over points and geometries in immutable files."""
