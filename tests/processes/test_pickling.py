"""Handles stay where they are; plans and tasks travel, without secrets."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.open_files import OpenFiles
from indexlake.scan.execute import pieces
from indexlake.storage import Storage


@pytest.mark.parametrize("what", ["lake", "table", "scan", "transaction", "catalog", "storage"])
def test_a_handle_is_not_pickled_and_says_what_to_do(filled_lake: il.Lake, what: str) -> None:
    table = filled_lake.table("t")
    handle: Any = {
        "lake": filled_lake, "table": table, "scan": table.scan(), "transaction": filled_lake.transaction(),
        "catalog": filled_lake.catalog, "storage": filled_lake.storage,
    }[what]  # fmt: skip
    with pytest.raises((TypeError, il.OwnershipError), match=r"pickle") as raised:
        pickle.dumps(handle)
    text = str(raised.value)
    assert any(
        advice in text for advice in ("Connect again", "Send its name", "Pickle its result", "began it", "spec()")
    )


def test_a_scan_plan_is_pickled_and_gives_the_same_rows_elsewhere(filled_lake: il.Lake) -> None:
    filled_lake.table("t").delete("id in (7, 8, 2001)")
    scan = filled_lake.table("t").scan("id % 2 = 0 and id > 3", columns=["id"])
    plan, fields, *_ = scan._plan()
    assert plan.tasks
    copy = pickle.loads(pickle.dumps(plan))
    storage = pickle.loads(pickle.dumps(filled_lake.storage.spec())).open()
    batches = [p.batch for p in pieces(copy, OpenFiles(storage), 2, fields, row_id=False)]
    assert pa.Table.from_batches(batches).sort_by("id") == scan.to_arrow().sort_by("id")
    assert str(filled_lake.storage.root) not in repr(plan.tasks), "a task names its file relative to the storage root"


def test_what_travels_holds_no_secret() -> None:
    secrets = {"access_key_id": "AKIDSECRET1", "secret_access_key": "SECRET2", "session_token": "SECRET3"}
    storage = Storage.open("s3://bucket/prefix", {"endpoint": "http://127.0.0.1:9", "region": "x", **secrets})
    data = pickle.dumps(storage.spec())
    assert b"127.0.0.1:9" in data
    for secret in secrets.values():
        assert secret.encode() not in data
        assert secret not in repr(storage)


def test_errors_keep_their_details_when_they_are_pickled(filled_lake: il.Lake) -> None:
    with pytest.raises(il.DuplicateKeyError) as raised:
        filled_lake.table("t").insert({"id": 1, "name": "again"})
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (type(copy), str(copy), copy.key, copy.table) == (
        il.DuplicateKeyError,
        str(raised.value),
        1,
        "main.t",
    )
