"""One real local Spark session for all tests in this folder: starting one costs more than most tests do.

It ends with the last of them.  Where a session is active jobs run on it, and the other tests are about threads.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """A session as ``il.spark.session`` makes it, with two cores and little memory."""
    from indexlake.spark import session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, of modules it imports
        found = session(
            **{
                "spark.master": "local[2,3]",  # two cores; a worker that dies is replaced twice
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "4",
            }
        )
    yield found
    found.stop()
