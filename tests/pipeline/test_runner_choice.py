"""Which runner a pipeline takes."""

from __future__ import annotations

import sys

import pytest

import indexlake as il
from indexlake.pipeline.runner import ChosenRunner
from tests.pipeline.job_tables import content, in_blocks, table


@pytest.fixture
def no_pyspark(monkeypatch):
    for name in [n for n in sys.modules if n == "pyspark" or n.startswith("pyspark.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)


def test_small_work_without_a_session_runs_in_threads(lake):
    t = in_blocks(table(lake), 20, 20)
    assert "1,073,741,824 bytes" in repr(lake.pipeline())
    assert "threads" in repr(ChosenRunner(lake.storage)._runner(1 << 30))
    assert lake.pipeline().compact("t")["main.t"].blocks_before == 2
    assert len(t) == 40


def test_an_unknown_runner_is_refused(lake):
    with pytest.raises(il.JobError, match=r"runner='dask' is not known\. Use 'threads' or 'spark', or leave it out"):
        lake.pipeline(runner="dask")


def test_work_above_the_limit_needs_spark_and_says_how_to_do_without(lake, no_pyspark):
    t = in_blocks(table(lake), 20, 20)
    before = content(t)
    with pytest.raises(il.MissingExtraError, match=r"indexlake\[spark\].*runner='threads'") as caught:
        lake.pipeline(local_limit=100).compact("t")
    assert caught.value.extra == "spark"
    assert content(t) == before
    assert lake.pipeline(runner="threads").compact("t")["main.t"].blocks_before == 2


def test_spark_that_is_asked_for_and_missing_is_named_at_once(lake, no_pyspark):
    with pytest.raises(il.MissingExtraError, match=r"indexlake\[spark\]"):
        lake.pipeline(runner="spark")


def test_what_is_no_session_is_refused(lake):
    with pytest.raises(il.JobError, match=r"Jobs need a Spark session of this process, not builtins\.str"):
        lake.pipeline(spark="local[2]")


def test_a_read_only_lake_has_no_pipeline(lake, tmp_path):
    table(lake)
    with (
        il.connect(tmp_path / "lake", read_only=True) as reader,
        pytest.raises(il.OwnershipError, match="read_only=True"),
    ):
        reader.pipeline()
