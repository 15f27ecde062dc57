"""Where Spark looks for the data source ``indexlake``: it imports every module named ``pyspark_…`` that it finds."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexlake.spark.source import IndexLakeSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: the daemon beside it must not import what starts threads."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from indexlake.spark.source import IndexLakeSource

    return IndexLakeSource
