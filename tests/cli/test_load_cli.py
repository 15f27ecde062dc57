"""``indexlake load``."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import indexlake as il
from indexlake.cli.main import app, main
from tests.sources.test_load_files import ROWS, written


def test_load_makes_the_lake_and_the_table_and_then_adds_to_it(tmp_path: Path):
    lake, run = str(tmp_path / "new"), CliRunner().invoke
    path = str(written(tmp_path, ROWS, "parquet"))
    done = run(app, ["load", lake, "sales.parts", path, "--primary-key", "id", "--json"])
    assert json.loads(done.stdout) == [{"table": "sales.parts", "rows": 3, "snapshot_id": 1, "created": True}]
    more = str(written(tmp_path, pa.table({"id": [9, 10]}), "csv", "more"))
    done = run(app, ["load", lake, "sales.parts", more, "--primary-key", "ID", "--json"])
    assert json.loads(done.stdout) == [{"table": "sales.parts", "rows": 2, "snapshot_id": 2, "created": False}]
    with il.connect(lake, create=False) as opened:
        assert opened.table("sales.parts").primary_key == ("id",)
        assert len(opened.table("sales.parts")) == 5


def test_load_replaces_rows_or_upserts_them(tmp_path: Path, write):
    lake, run = str(tmp_path / "new"), CliRunner().invoke
    path = str(write("rows.csv", "id,city\n1,Oslo\n2,Lima\n"))
    for mode in ("append", "upsert"):
        done = run(app, ["load", lake, "t", path, "--primary-key", "id", "--mode", mode])
        assert done.exit_code == 0, done.output
    run(app, ["load", lake, "t", str(write("more.csv", "id,city\n2,Rome\n3,Bonn\n")), "--mode", "upsert"])
    with il.connect(lake) as opened:
        assert [tuple(row.values()) for row in opened.table("t")] == [(1, "Oslo"), (2, "Rome"), (3, "Bonn")]
    run(app, ["load", lake, "t", path, "--mode", "overwrite"])
    with il.connect(lake) as opened:
        assert [tuple(row.values()) for row in opened.table("t")] == [(1, "Oslo"), (2, "Lima")]
    assert run(app, ["load", str(tmp_path / "none"), "t", path, "--mode", "replace"]).exit_code == 2
    assert not (tmp_path / "none").exists()


def test_load_takes_patterns_and_csv_options(tmp_path: Path, write):
    write("in/a.txt", "1;x\n")
    write("in/b.txt", "2;-\n")
    lake = str(tmp_path / "new")
    options = ["--format", "csv", "--delimiter", ";", "--no-header", "--null", "-"]
    done = CliRunner().invoke(app, ["load", lake, "t", str(tmp_path / "in" / "*.txt"), *options])
    assert done.exit_code == 0, done.output
    with il.connect(lake) as opened:
        assert opened.table("t").scan().to_pylist() == [{"column1": 1, "column2": "x"}, {"column1": 2, "column2": None}]


def test_an_error_is_one_line_with_every_character_of_it(tmp_path: Path, write, monkeypatch, capsys):
    path = write("[day].csv", "id\nx\n")
    lake = tmp_path / "lake"
    with il.connect(lake) as opened:
        opened.create_table("t", pa.schema({"id": pa.date32()}))
    monkeypatch.setattr("sys.argv", ["indexlake", "load", str(lake), "t", str(path)])
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "[day].csv: row 2, column 'id': the value does not fit into date32[day]" in shown


def test_load_of_nothing_makes_no_lake(tmp_path: Path):
    done = CliRunner().invoke(app, ["load", str(tmp_path / "new"), "t", str(tmp_path / "*.csv")])
    assert isinstance(done.exception, il.NotFoundError)
    assert not (tmp_path / "new").exists()


def test_load_refuses_another_key_for_a_table_that_exists(tmp_path: Path):
    with il.connect(tmp_path / "lake") as opened:
        opened.create_table("t", pa.schema({"id": pa.int64()}), primary_key="id")
    path = str(written(tmp_path, ROWS, "parquet"))
    done = CliRunner().invoke(app, ["load", str(tmp_path / "lake"), "t", path, "--primary-key", "code"])
    assert isinstance(done.exception, il.SchemaError)
    assert "Leave out --primary-key" in str(done.exception)


def test_values_in_brackets_are_shown_as_they_are(tmp_path: Path, monkeypatch):
    with il.connect(tmp_path / "lake") as opened:
        opened.create_table("t", pa.table({"a": ["[red]x[/red]", "[/]"]}))
    done = CliRunner().invoke(app, ["scan", str(tmp_path / "lake"), "t"])
    assert "[red]x[/red]" in done.stdout
    assert "[/]" in done.stdout
