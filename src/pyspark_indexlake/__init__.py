"""Where Spark looks for the data source ``indexlake``: it imports every module named ``pyspark_…`` that it finds."""

from indexlake.spark.source import IndexLakeSource as DefaultSource

__all__ = ["DefaultSource"]
