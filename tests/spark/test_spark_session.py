"""``il.spark.session``: one session for a process, whoever made it, and one clear sentence where there can be none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.spark.session import SETTINGS, active, java_version


def run(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """A process of its own, with these variables set or, where None, removed."""
    kept = {name: value for name, value in os.environ.items() if name not in environment}
    given = {name: value for name, value in environment.items() if value is not None}
    program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    return subprocess.run(program, capture_output=True, text=True, timeout=250, env=kept | given)


REFUSED = """
    import indexlake as il
    try:
        il.spark.session()
    except il.JobError as error:
        print(error)
"""


def fake_java(folder: Path, said: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    return java


def test_importing_the_package_does_not_import_spark() -> None:
    done = run("import sys, indexlake as il; il.spark.session; print('pyspark' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sparkle'"):
        il.sparkle  # noqa: B018


def test_an_old_java_is_named_with_what_to_install(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "1.8.0_392"')
    said = run(REFUSED, JAVA_HOME=str(tmp_path)).stdout
    assert said.startswith(f'Spark needs Java 17 or newer; {java} is 8 (openjdk version "1.8.0_392").')
    assert "Install a JDK, for example openjdk-17-jre-headless, or use lake.pipeline(runner='threads')" in said


def test_a_missing_java_is_said_so(tmp_path: Path) -> None:
    said = run(REFUSED, JAVA_HOME=None, PATH=str(tmp_path)).stdout
    assert said.startswith("Spark needs Java 17 or newer; no java was found on the PATH. Install a JDK")
    said = run(REFUSED, JAVA_HOME=str(tmp_path / "none")).stdout
    assert said.startswith(f"Spark needs Java 17 or newer; JAVA_HOME is '{tmp_path / 'none'}' and has no bin/java.")


def test_something_else_that_is_called_java_is_said_so(tmp_path: Path) -> None:
    fake_java(tmp_path, "coffee")
    assert "is of an unknown version (coffee)" in run(REFUSED, JAVA_HOME=None, PATH=f"{tmp_path}/bin:/bin").stdout


def test_a_missing_spark_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('not here')")
    done = run(REFUSED.replace("il.JobError", "il.MissingExtraError"), PYTHONPATH=str(tmp_path))
    assert "pip install 'indexlake[spark]'" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea"', 25),
        ("", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(text: str, version: int | None) -> None:
    assert java_version(text) == version


def test_the_active_session_is_reused_and_left_as_it_is(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert il.spark.session(spark_sql_shuffle_partitions="99") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_another_thread_finds_the_session_too(spark: Any) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(il.spark.session()))
    thread.start()
    thread.join()
    assert found == [spark]


def test_a_session_of_ours_has_our_settings(spark: Any) -> None:
    for name in ("spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType"):
        assert spark.conf.get(name) == SETTINGS[name]
    assert active() is spark


OWN_SESSION = """
    import sys, warnings
    from pyspark.sql import SparkSession
    import indexlake as il
    own = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m").config("spark.sql.session.timeZone", "Asia/Tokyo")
        .config("spark.sql.caseSensitive", "true").config("spark.sql.ansi.enabled", "false")
        .config("spark.sql.files.ignoreCorruptFiles", "true").config("spark.sql.files.ignoreMissingFiles", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "3").getOrCreate()
    )
    own.sparkContext.setLogLevel("OFF")
    folder = FOLDER
    with il.connect(folder, automatic=False) as lake:
        t = lake.table("t")
        frame = t.to_spark()
        assert il.spark.session() is own
        found = frame.collect()
        rows = sorted((r.id, r.text, r.at.isoformat()) for r in found)
        print(rows == sorted((r["id"], r["text"], r["at"].astimezone().replace(tzinfo=None).isoformat())
                             for r in t.scan().to_pylist()), len(rows))
        read = own.read.format("indexlake").option("table", "t").load(folder)
        print(sorted(map(tuple, read.collect())) == sorted(map(tuple, found)))
        import pathlib
        (file,) = pathlib.Path(lake.storage.root).glob("tables/*/data/*.parquet")
        file.unlink()
        try:
            frame.collect()
        except Exception as error:
            print("missing" if "FILE_NOT_EXIST" in str(error) or "does not exist" in str(error) else error)
    own.stop()
    from indexlake.spark.session import active
    print(active())
"""


@pytest.mark.inline_only("the data source reads the last checkpoint beside an owner")
def test_a_session_of_the_users_own_without_our_settings_works(tmp_path: Path) -> None:
    """In its own process, since there is one session in each; a setting that hides missing files hides none of ours."""
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    with il.connect(tmp_path, automatic=False) as lake:
        t = lake.create_table("t", schema, config=il.TableConfig(dump_format="parquet"))
        t.insert(pa.table({"id": range(20), "text": map(str, range(20)), "at": range(20)}).cast(schema))
        lake.pipeline(runner="threads").dump("t")
        t.insert(pa.table({"id": [20], "text": ["hot"], "at": [10**15]}).cast(schema))
    done = run(OWN_SESSION.replace("FOLDER", repr(str(tmp_path))), TZ="Asia/Tokyo")
    assert done.stdout.split("\n") == ["True 21", "True", "missing", "None", ""], done.stdout + done.stderr
