"""What a search costs, in nanoseconds, as measured by `benchmarks/risks/vector_search.py`.

Only the proportions matter.  They change with the dimension: exact distances to rows in order run as fast as memory can
be read, while a graph waits for memory at every step.
"""

from __future__ import annotations


def in_order(rows: int, dimension: int) -> float:
    """The distances to all rows."""
    return rows * (2 + dimension / 6)


def chosen(rows: int, dimension: int) -> float:
    """The distances to some rows among many."""
    return rows * (8 + dimension / 3)


def by_graph(breadth: int, dimension: int) -> float:
    """A search of a graph."""
    return breadth * (1800 + 6 * dimension)
