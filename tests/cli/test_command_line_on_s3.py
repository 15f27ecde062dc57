"""The command line opens lakes on object stores with what the environment says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import indexlake as il
from indexlake.cli.main import app
from tests.support.servers import S3Server


def test_options_and_the_cache_come_from_the_environment(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    storage = f"s3://{s3.bucket()}/cli"
    with il.connect(lake, storage=storage, storage_options=s3.options, automatic=False) as opened:
        opened.create_table("t", pa.schema({"id": pa.int64()})).insert([{"id": n} for n in range(3)])
        opened.pipeline(runner="threads").dump("t")
    command = ["sql", lake, "select sum(id) s from t", "--json"]
    monkeypatch.setenv("INDEXLAKE_STORAGE_OPTIONS", json.dumps(s3.options))
    monkeypatch.setenv("INDEXLAKE_CACHE_DIR", str(tmp_path / "cache"))
    done = CliRunner().invoke(app, command)
    assert json.loads(done.stdout) == [{"s": 3}]
    assert list((tmp_path / "cache").rglob("*.chunk"))
    monkeypatch.setenv("INDEXLAKE_STORAGE_OPTIONS", "no json")
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, il.SchemaError)
