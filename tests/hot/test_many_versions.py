"""A row with many versions is found at every snapshot, whatever its key, and reading it does not cost more for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import indexlake as il
from tests.peers.sql_log import statements

_KEYS: dict[str, tuple[dict[str, str], Any, str]] = {
    "int": ({"k": "int64"}, 5, "k = 5"),
    "text": ({"k": "string"}, "five", "k = 'five'"),
    "float": ({"k": "float64"}, -0.0, "k = 0.0"),
    "two": ({"k": "int64", "n": "string"}, (5, "a"), "k = 5 and n = 'a'"),
}


@pytest.mark.parametrize("kind", _KEYS)
def test_every_version_of_a_row_is_found(any_lake: il.Lake, kind: str) -> None:
    columns, key, where = _KEYS[kind]
    keep = il.TableConfig(retention=timedelta(days=1))
    t = any_lake.create_table("t", {**columns, "v": "int64"}, primary_key=list(columns), config=keep)
    row = dict(zip(columns, key if isinstance(key, tuple) else (key,), strict=True))
    expected: dict[int, int | None] = {any_lake.snapshot_id: None}
    for n in range(40):
        if n % 13 == 0:  # another row has the key from now on
            t.delete(where)
            expected[any_lake.snapshot_id] = None
            t.insert({**row, "v": n})
        else:
            assert t.update({"v": n}, where).rows == 1
        expected[any_lake.snapshot_id] = n
        if n == 25:
            any_lake.pipeline(runner="threads").dump("t")
        assert t.get(key) == {**row, "v": n}
    for snapshot, v in expected.items():
        assert t.at(snapshot).get(key) == (None if v is None else {**row, "v": v}), snapshot
    t.delete(where)
    assert t.get(key) is None


@pytest.mark.inline_only("looks at rows that come from the database")
def test_superseded_versions_are_not_fetched(new_address: Any) -> None:
    with new_address("sqlite").connect(automatic=False) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        t.insert({"id": 1, "v": 0})
        for n in range(30):
            t.update({"v": n}, "id = 1")
        with statements() as seen:
            assert t.get(1) == {"id": 1, "v": 29}
        last = [sql for sql in seen if "order by _begin desc limit 1" in sql]
        assert len(last) == 1
        with lake.catalog.read() as r:
            plan = str(r.rows(f"explain query plan {last[0]}", (1, 99)))
    assert "_key" in plan
    assert "TEMP B-TREE" not in plan
