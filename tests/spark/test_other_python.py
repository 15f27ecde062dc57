"""A session of the user's own whose workers run another Python than this process does."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.spark.failure import reason_of

PROGRAM = """
    import json, os, sys
    os.environ["PYSPARK_PYTHON"] = sys.argv[2]
    import indexlake as il
    from pyspark.sql import SparkSession
    conf = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[1]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    lake = il.connect(sys.argv[1], automatic=False)
    lake.create_table("t", [{"id": 1}], primary_key="id")
    pipeline = lake.pipeline(spark=spark)
    calls = {
        "dump": lambda: pipeline.dump("t"),
        "load": lambda: pipeline.load(spark.range(5), "t"),
        "sql": lambda: lake.sql("select count(*) n from t", engine="spark").to_pylist(),
    }
    found = {}
    for name, call in calls.items():
        try:
            found[name] = ["nothing", str(call())]
        except il.IndexLakeError as error:
            found[name] = [type(error).__name__, str(error)]
    found["rows"] = lake.table("t").scan().to_pylist()
    print("found", json.dumps(found), flush=True)
    os._exit(0)
    """


def run(folder: Path, python: Path) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder / "lake"), str(python)],
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    line = next((line for line in done.stdout.splitlines() if line.startswith("found ")), None)
    assert line is not None, done.stdout + done.stderr
    found: dict[str, list[str]] = json.loads(line.removeprefix("found "))
    return found


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python without any packages."""
    python = tmp_path / "python-without-packages"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def check(text: str) -> None:
    assert "ModuleNotFoundError: No module named " in text, text
    assert "The workers run Python 3." in text
    assert "pyarrow, numpy, vortex-data, " in text
    assert f"this process runs {sys.executable}" in text
    assert f"Set PYSPARK_PYTHON={sys.executable}" in text
    assert "\n" not in text


def test_workers_without_our_packages_are_named_with_what_they_lack(
    tmp_path: Path, spark: Any, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = lake.create_table("t", [{"id": 1}], primary_key="id")
        with monkeypatch.context() as patch:
            patch.setattr(spark.sparkContext, "pythonExec", str(bare))
            pipeline = lake.pipeline(spark=spark)
            with pytest.raises(il.JobError) as dumped:
                pipeline.dump("t")
            check(str(dumped.value))
            with pytest.raises(il.JobError) as queried:
                lake.sql("select count(*) n from t", engine="spark").to_pylist()
            check(str(queried.value))
        assert lake.pipeline(spark=spark).dump("t")["main.t"].rows == 1
        assert t.scan().to_pylist() == [{"id": 1}]


@pytest.mark.long
def test_a_session_of_the_users_own_with_another_python(tmp_path: Path, bare: Path) -> None:
    found = run(tmp_path, bare)
    for name in ("dump", "load", "sql"):
        kind, text = found[name]
        assert kind == "JobError"
        check(text)
    assert found["rows"] == [{"id": 1}]


@pytest.mark.long
def test_workers_that_cannot_start_are_named(tmp_path: Path) -> None:
    found = run(tmp_path, tmp_path / "no-such-python")
    for name in ("dump", "load", "sql"):
        kind, text = found[name]
        assert kind == "JobError"
        assert f"The workers run {tmp_path / 'no-such-python'}" in text
        assert f"Set PYSPARK_PYTHON={sys.executable}" in text


WORKER = """
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "somewhere.py", line 3, in work
    first()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/spark/worker.py", line 1834, in main
    process()
indexlake.errors.CorruptionError: file 'x' is damaged: bytes 0 to 7 do not match
  and more about it
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Caused by: java.io.IOException: something else
"""


def test_the_first_line_of_a_workers_exception_is_what_is_said() -> None:
    assert reason_of(RuntimeError(WORKER)) == "CorruptionError: file 'x' is damaged: bytes 0 to 7 do not match"
    java = "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job aborted due to stage failure"
    assert reason_of(RuntimeError(java)) == "Job aborted due to stage failure"
    assert reason_of(RuntimeError("")) == "RuntimeError"
