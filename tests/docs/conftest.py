"""What the pages ask of the world around them: servers, named by the environment, and one Spark session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import S3Server, local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with local_spark() as session:
        yield session


@pytest.fixture
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new database and a new bucket, under the names by which pages find them."""
    s3: S3Server = request.getfixturevalue("s3")
    found = {
        "DATABASE_URL": request.getfixturevalue("postgres").database(),
        "S3_BUCKET": s3.bucket(),
        "S3_ENDPOINT": s3.endpoint,
        "AWS_ACCESS_KEY_ID": s3.key,
        "AWS_SECRET_ACCESS_KEY": s3.secret,
        "INDEXLAKE_STORAGE_OPTIONS": json.dumps(s3.options),
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
