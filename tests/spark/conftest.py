"""One real local Spark session for all tests in this folder: starting one costs more than most tests do.

It ends with the last of them.  Where a session is active jobs run on it, and the other tests are about threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with local_spark() as session:
        yield session
