"""Full pages are decoded once: every snapshot shows its own rows of them, before and after changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.hot.memory import view
from indexlake.hot.memory.page import PAGE_ROWS

ROWS = 2 * PAGE_ROWS + 100
PLAIN = {"id": pa.int64(), "text": pa.string(), "part": pa.float64(), "day": pa.date32(), "yes": pa.bool_()}
OTHER = {"kind": pa.dictionary(pa.int32(), pa.string()), "list": pa.list_(pa.int64()), "view": pa.string_view()}


def _row(n: int) -> dict[str, Any]:
    kind = None if n % 5 == 0 else f"k{n % 3}"
    plain = {"id": n, "text": None if n % 7 == 0 else f"row {n}", "part": n / 8, "day": None, "yes": n % 2 == 0}
    return {**plain, "kind": kind, "list": [n, None], "view": f"view {n}"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("full")
    with il.connect(folder / "lake", hot="memory", durability="none", automatic=False) as lake:
        yield lake


@pytest.mark.parametrize("columns", [PLAIN, {**PLAIN, **OTHER}], ids=["plain", "all"])
def test_each_snapshot_shows_its_own_rows(lake: il.Lake, columns: dict[str, Any]) -> None:
    config = il.TableConfig(direct_write_row_count=1 << 30)
    t = lake.create_table(f"t{len(columns)}", pa.schema(columns), primary_key="id", config=config)
    rows = {n: {name: _row(n)[name] for name in columns} for n in range(ROWS)}
    t.insert(list(rows.values()))
    states = {lake.snapshot_id: dict(rows)}

    def shown(view: il.Table) -> dict[int, Any]:
        return {row["id"]: row for row in view.scan().to_arrow().to_pylist()}

    assert shown(t) == rows
    t.delete("id % 10 = 3")
    t.update({"text": "new", "part": 0.5}, "id % 1000 = 7")
    for n in list(rows):
        if n % 10 == 3:
            del rows[n]
        elif n % 1000 == 7:
            rows[n] = {**rows[n], "text": "new", "part": 0.5}
    states[lake.snapshot_id] = dict(rows)
    for snapshot, expected in states.items():
        assert shown(t.at(snapshot)) == expected
    assert t.scan("part = 0.5 and id > 100").count() == sum(r["part"] == 0.5 and n > 100 for n, r in rows.items())
    lake.pipeline(runner="threads").dump(t.name)
    assert t.stats().hot_rows == 0
    for snapshot, expected in states.items():
        assert shown(t.at(snapshot)) == expected


def test_a_commit_that_is_given_up_leaves_nothing_in_a_full_page(lake: il.Lake) -> None:
    config = il.TableConfig(direct_write_row_count=1 << 30)
    t = lake.create_table("given_up", {"id": "int64", "v": "int64"}, primary_key="id", config=config)
    t.insert([{"id": n, "v": n} for n in range(PAGE_ROWS - 10)])
    with pytest.raises(il.DuplicateKeyError):
        t.insert([{"id": n, "v": -n} for n in range(PAGE_ROWS - 11, PAGE_ROWS + 50)])
    with lake.transaction() as tx:
        tx.table("given_up").insert([{"id": n, "v": n} for n in range(PAGE_ROWS - 10, PAGE_ROWS + 50)])
    assert sorted(t.scan().to_arrow().column("v").to_pylist()) == list(range(PAGE_ROWS + 50))


@pytest.mark.parametrize("superseded", ["none", "some", "all"])
def test_a_page_of_more_bytes_than_a_batch_moves_to_blocks(
    lake: il.Lake, superseded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "BATCH_BYTES", 10_000)
    t = lake.create_table(f"large_{superseded}", {"id": "int64", "text": "string"}, primary_key="id")
    for n in range(20):
        t.insert({"id": n, "text": str(n) * 1_000})
    before = lake.snapshot_id
    if superseded == "some":
        t.update({"text": "short"}, "id = 7")
    elif superseded == "all":
        t.delete("true")
    rows = t.to_pylist()
    moved = lake.pipeline(runner="threads").dump(t.name)[t.name]
    assert (moved.rows, moved.history_rows) == {"none": (20, 0), "some": (20, 1), "all": (0, 20)}[superseded]
    assert sorted(t.to_pylist(), key=lambda row: row["id"]) == sorted(rows, key=lambda row: row["id"])
    assert [t.at(before).get(n)["text"] for n in range(20)] == [str(n) * 1_000 for n in range(20)]
