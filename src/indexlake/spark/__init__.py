"""Everything that touches Spark: the session, DataFrames of tables, the data source, and the runner of jobs."""

from indexlake.spark.session import session

__all__ = ["session"]
