"""Estimated costs of searches in nanoseconds, as measured by `benchmarks/risks/vector_search.py`.

Only the proportions matter.  They change with the dimension: exact distances to consecutive rows run as fast as memory
can be read, while a graph search waits for memory at every step.
"""

from __future__ import annotations


def in_order(rows: int, dimension: int) -> float:
    """Return the cost of the distances to all rows."""
    return rows * (2 + dimension / 6)


def copied(rows: int, dimension: int) -> float:
    """Return the cost of the distances to copies in half precision."""
    return in_order(rows, dimension) / 2


def chosen(rows: int, dimension: int) -> float:
    """Return the cost of the distances to some of many rows."""
    return rows * (8 + dimension / 3)


def by_graph(breadth: int, dimension: int) -> float:
    """Return the cost of searching a graph."""
    return breadth * (1800 + 6 * dimension)
