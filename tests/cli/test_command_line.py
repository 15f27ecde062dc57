"""The ``indexlake`` command itself: how it is called, what it says, and what it advises."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import indexlake as il
from indexlake.cli import demo
from indexlake.cli.main import main


def command(*arguments: object, module: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own."""
    start = ["-m", "indexlake"] if module else ["-c", "from indexlake.cli.main import main; main()"]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **env},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        lake.create_table("t", pa.schema({"id": pa.int64()}), primary_key="id")
    return tmp_path / "lake"


def test_it_has_a_version_and_is_a_module() -> None:
    assert command("--version", module=True).stdout == f"indexlake {il.__version__}\n"
    shown = command("--help", module=True)
    assert shown.returncode == 0
    assert "Usage: indexlake [OPTIONS] COMMAND" in shown.stdout


def test_where_nothing_is_due_spark_is_not_started(folder: Path) -> None:
    done = command("pipeline", "run", folder, JAVA_HOME="/nowhere")  # Spark could not start
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("vacuum: deleted 0 files")
    jobs = ("dump", "compact", "merge", "split", "freeze", "thaw", "build-index", "merge-index", "expire", "vacuum")
    for job in (*jobs, "verify"):
        done = run("pipeline", job, str(folder), "--json")
        assert done[0] == 0, (job, done)
        assert "Starting Spark" not in done[2]
        json.loads(done[1])


def run(*arguments: str) -> tuple[int, str, str]:
    """The same in this process, where nothing has to be imported again."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["indexlake", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as caught:
            main()
    finally:
        sys.argv = argv
    return int(str(caught.value.code or 0)), out.getvalue(), err.getvalue()


def test_spark_says_that_it_starts_and_its_own_lines_are_shown_only_if_it_fails(folder: Path) -> None:
    with il.connect(folder) as opened:
        opened.table("t").insert({"id": 1})
    failed = command("pipeline", "dump", folder, JAVA_HOME="/nowhere", COLUMNS="60")
    assert failed.returncode == 1
    first, second = failed.stderr.splitlines()
    assert first == "Starting Spark, which takes a few seconds; --runner threads avoids it."
    assert second.startswith("JobError: Spark needs Java 17 or newer; JAVA_HOME is '/nowhere' and has no bin/java.")
    assert second.endswith("or use --runner threads.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scan", "nowhere", "t"], "There is no lake in 'nowhere'. `indexlake load` creates one from files."),
        (["pipeline", "dump", "LAKE", "--runner", "thread"], "JobError: --runner is threads or spark, not thread."),
        (
            ["pipeline", "compact", "LAKE", "--cluster-by", "id", "--runner", "threads"],
            "SchemaError: --cluster-by is about one table: give --table.",
        ),
        (
            ["pipeline", "compact", "LAKE", "--order", "zorder", "--runner", "threads"],
            "SchemaError: order='zorder' says how to cluster: give --cluster-by too.",
        ),
        (["sql", "LAKE", "select $x"], "Parameter $x has no value; the command line has no parameters, write the"),
        (["load", "LAKE", "t", "FILE"], "for others pass --format parquet, csv, json or arrow."),
    ],
)  # fmt: skip
def test_hints_are_things_that_can_be_typed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.foo").write_text("id\n1\n")
    words = {"LAKE": str(folder), "FILE": "rows.foo"}
    code, out, err = run(*[words.get(word, word) for word in arguments])
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    for python in ("il.", "lake.", "=True", "storage_options", "params="):
        assert python not in err.replace(str(folder), "")


def test_hints_about_the_store_name_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEXLAKE_STORAGE_OPTIONS", '{"endpont": "x"}')
    code, _, err = run("tables", str(folder))
    assert code == 1
    said = "Unknown storage option 'endpont' in INDEXLAKE_STORAGE_OPTIONS. Did you mean 'endpoint'?"
    assert err == f"StorageError: {said}\n"


def test_every_listing_prints_json(folder: Path) -> None:
    for arguments in (["tables"], ["scan", "t"], ["explain", "t"], ["history", "t"], ["jobs"], ["sql", "select 1 a"]):
        code, out, err = run(arguments[0], str(folder), *arguments[1:], "--json")
        assert (code, err) == (0, ""), arguments
        json.loads(out)


def test_listings_hide_nothing_on_a_narrow_screen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("pipeline", "dump", str(folder), "--runner", "threads")
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (["jobs"], ["indexes", "t"], ["history", "t"]):
        code, out, _ = run(arguments[0], str(folder), *arguments[1:])
        assert code == 0
        assert "…" not in out
        assert "{" not in out


def test_load_says_that_the_lake_is_new(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    for expected in (f"Created a new lake: {tmp_path}/new/catalog.sqlite, files in {tmp_path}/new/files\n", ""):
        code, out, err = run("load", str(tmp_path / "new"), "t", str(tmp_path / "rows.csv"), "--json")
        assert (code, err) == (0, expected)
        assert json.loads(out)[0]["rows"] == 1


def test_a_lake_that_cannot_be_written_to_can_be_looked_at(folder: Path) -> None:
    mounts = (["mount", "--bind", str(folder), str(folder)], ["mount", "-o", "remount,bind,ro", str(folder)])
    try:
        if any(subprocess.run(mount, capture_output=True, check=False).returncode for mount in mounts):
            pytest.skip("no right to mount a file system")
        assert run("sql", str(folder), "select count(*) n from t", "--json") == (0, '[\n  {"n": 0}\n]\n', "")
        code, _, err = run("sql", str(folder), "insert into t values (1)")
        assert code == 1
        assert "read_only" not in err
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def test_json_is_json_whatever_the_values_are(tmp_path: Path) -> None:
    row = {
        "id": 1, "nan": float("nan"), "up": float("inf"), "down": -float("inf"), "raw": b"\x00\xff",
        "took": dt.timedelta(days=-1, microseconds=5), "many": [{"x": float("nan")}], "day": dt.date(2024, 2, 29),
    }  # fmt: skip
    with il.connect(tmp_path / "lake", automatic=False) as opened:
        opened.create_table("t", [row])
    expected = {
        "id": 1, "nan": "NaN", "up": "Infinity", "down": "-Infinity", "raw": "AP8=",
        "took": "-PT86399.999995S", "many": [{"x": "NaN"}], "day": "2024-02-29",
    }  # fmt: skip
    for arguments in (["scan", "t"], ["sql", "select * from t"]):
        code, out, err = run(arguments[0], str(tmp_path / "lake"), *arguments[1:], "--json")
        assert (code, err) == (0, "")
        assert json.loads(out, parse_constant=pytest.fail) == [expected]
    _, out, _ = run("sql", str(tmp_path / "lake"), "select interval '14 months -3 days 1.5 seconds' i", "--json")
    assert json.loads(out) == [{"i": "P14M-3DT1.5S"}]


def test_a_scan_says_when_there_are_more_rows(folder: Path) -> None:
    with il.connect(folder) as opened:
        opened.table("t").insert([{"id": n} for n in range(21)])
    code, out, err = run("scan", str(folder), "t", "--json")
    assert (code, len(json.loads(out)), err) == (0, 20, "… the first 20 rows; --limit shows more\n")
    assert run("scan", str(folder), "t", "--limit", "21", "--json")[2] == ""


def test_null_is_shown_and_history_counts(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as opened:
        t = opened.create_table("t", {"id": "int64", "[red]name": "string"})
        t.insert([{"id": 1}, {"id": 2}])
    assert command("scan", tmp_path / "lake", "t").stdout.count("NULL") == 2
    shown = command("history", tmp_path / "lake", "t").stdout
    assert "2 inserted" in shown
    assert "{" not in shown
    assert "[red]name" in command("scan", tmp_path / "lake", "t").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pipeline", "freeze", "LAKE", "--older-than", "30"], "'30' is not a duration. Give a number and a unit:"),
        (["pipeline", "run", "LAKE", "--watch", "--every", "0s"], "'--every': the time between runs must be more than"),
        (["sql", "LAKE", "select 1", "--json", "--csv"], "choose one of --json and --csv."),
    ],
)  # fmt: skip
def test_wrong_options_are_usage_errors(folder: Path, arguments: list[str], said: str) -> None:
    code, out, err = run(*[str(folder) if word == "LAKE" else word for word in arguments])
    assert (code, out) == (2, "")
    assert said in " ".join(err.replace("│", "").split())


def test_an_empty_address(folder: Path) -> None:
    assert run("tables", "") == (1, "", "CatalogError: A lake is a folder or a PostgreSQL address, not ''.\n")


def test_what_is_missing_can_be_copied_from_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)  # not installed
    console = Console(file=io.StringIO(), width=200)
    with il.connect(tmp_path / "lake", automatic=False) as opened:
        schema = {"id": "int64", "city": "string", "total": "double"}
        demo._sql(console, opened, opened.create_table("sales.orders", schema))
    assert isinstance(console.file, io.StringIO)
    assert "pip install 'indexlake[sql]'" in console.file.getvalue()


def test_indexes_and_searches(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake") as lake:
        columns = {"id": "int64", "note": "string", "vec": pa.list_(pa.float32(), 2)}
        t = lake.create_table("t", columns, primary_key="id")
        t.insert([{"id": n, "note": f"parcel {n}", "vec": [n, 0.0]} for n in range(5)])
        t.create_index("text", "note", kind="bm25")
        t.create_index("near", "vec", kind="hnsw")
    at = str(tmp_path / "lake")
    listed = json.loads(run("indexes", at, "t", "--json")[1])
    assert [(i["name"], i["kind"], i["state"]) for i in listed] == [
        ("near", "hnsw", "ready"),
        ("text", "bm25", "ready"),
    ]
    assert "bm25" in run("indexes", at, "t")[1]
    found = json.loads(run("search", at, "t", "note", "3", "--json")[1])
    assert [row["id"] for row in found] == [3]
    near = json.loads(run("search", at, "t", "near", "[3.9, 0]", "-k", "2", "--where", "id < 4", "--json")[1])
    assert [row["id"] for row in near] == [3, 2]
    wrong = run("search", at, "t", "near", "[3.9,")
    assert wrong[0] == 2
    assert "[1.5, 2]" in wrong[2]
    shown = json.loads(run("search", at, "t", "note", "3", "--columns", "id, vec", "--snippet", "--json")[1])
    assert [list(row) for row in shown] == [["id", "vec", "_score", "_snippet"]]
    assert shown[0]["_snippet"] == "parcel <b>3</b>"
    assert json.loads(run("search", at, "t", "note", '"[3]"', "--columns", "id", "--json")[1])[0]["id"] == 3
    built = json.loads(run("pipeline", "build-index", at, "--runner", "threads", "--json")[1])
    assert {row["table"] for row in built} == {"main.t.near", "main.t.primary", "main.t.text"}
    folded = run("pipeline", "merge-index", at, "--table", "t", "--index", "text", "--runner", "threads")
    assert "main.t.text: 0 segments became 0" in folded[1]


def test_backup_copies_a_lake_and_says_what_was_copied(folder: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "monday")
    code, said, _ = run("backup", str(folder), target)
    assert (code, said) == (0, f"{target} is a backup as of snapshot 1: 0 files of 0 bytes copied, 0 there already\n")
    done = json.loads(run("backup", str(folder), target, "--json")[1])
    assert done == {"path": target, "snapshot_id": 1, "files": 0, "bytes": 0, "files_kept": 0}
    assert [row["table"] for row in json.loads(run("tables", target, "--json")[1])] == ["main.t"]
    code, _, error = run("backup", str(folder), str(folder))
    assert (code, "is where this lake itself is" in error) == (1, True)


def test_restore_rebuilds_a_lost_catalog_and_says_what_is_lost(tmp_path: Path) -> None:
    files, new = str(tmp_path / "files"), str(tmp_path / "new")
    with il.connect(tmp_path / "old", storage=files) as lake:
        t = lake.create_table("t", {"id": "int64"}, primary_key="id", layout="clustered")
        t.insert([{"id": n} for n in range(20_000)])
    code, said, _ = run("restore", files, "--into", new, "--verify")
    assert code == 0
    assert "main.t as of snapshot" in said
    assert "20,000 rows in 1 block" in said
    assert json.loads(run("tables", new, "--json")[1])[0]["rows"] == 20_000
    code, _, error = run("restore", files, "--into", new)
    assert (code, "There is a lake at" in error) == (1, True)
    next(Path(files).rglob("*.delta")).unlink()
    code, _, error = run("restore", files, "--into", str(tmp_path / "third"))
    assert (code, "restore the rest with --partial" in error) == (1, True)
    done = json.loads(run("restore", files, "--into", str(tmp_path / "third"), "--partial", "--json")[1])
    assert [block["rows"] for block in done["lost_blocks"]] == [20_000]


def test_a_clustered_table_tells_of_its_partitions(tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    with il.connect(folder, automatic=False) as lake:
        t = lake.create_table("main.c", {"id": "int64"}, primary_key="id", layout="clustered")
        before = lake.snapshot_id
        t.insert(pa.table({"id": range(20_000)}))
        lake.create_table("main.h", {"id": "int64"}, primary_key="id")
    code, out, _ = run("partitions", folder, "c", "--json")
    (found,) = json.loads(out)
    assert (code, found["begin_key"], found["end_key"], found["delta_rows"]) == (0, None, None, 20_000)
    assert "20,000" in run("partitions", folder, "c")[1]
    (then,) = json.loads(run("partitions", folder, "c", "--at", str(before), "--json")[1])
    assert then["files"] == []
    code, out, _ = run("pipeline", "merge", folder, "--runner", "threads")
    assert (code, out) == (0, "main.c: 1 move: 0 rows rewritten, 0 bytes\n")
    assert run("pipeline", "merge", folder, "--runner", "threads")[1] == "main.c: nothing to do\n"
    assert run("pipeline", "split", folder, "--table", "h", "--runner", "threads")[0] == 1
    assert "1 partition, the largest of 20,000 rows" in run("stats", folder, "c")[1]
    told = json.loads(run("stats", folder, "c", "--json")[1])
    assert (told["rows"], told["clustered"]["partitions"], told["clustered"]["written_per_given"]) == (20_000, 1, 1.0)
    assert json.loads(run("stats", folder, "h", "--json")[1])["clustered"] is None
    code, out, err = run("partitions", folder, "h")
    assert (code, out) == (1, "")
    assert "'main.h' is a heap: it has no partitions. A new table is clustered with `create table … with" in err
