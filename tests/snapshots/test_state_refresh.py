"""A table's cached state, brought up to date step by step, is the state that a new process would read."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.indexes.keys import encode_key
from indexlake.snapshots import state as state_module
from indexlake.snapshots.state import TableState
from tests.support.lakes import clock_of, connect

KEYS = {"int": pa.int64(), "text": pa.string()}


def key(kind: str, n: int) -> Any:
    return n if kind == "int" else f"key {n:05}"


def seen(t: il.Table, state: TableState, snapshot: int, keys: list[Any]) -> dict[str, Any]:
    """All that plans and look-ups ask a state for."""
    codecs = state.current.key_codecs
    found = {}
    for k in keys:
        wanted = encode_key(codecs, [codecs[0].encode_one(k)])
        hits = state.primary.find(wanted, state, snapshot, t._lake._files)
        found[k] = sorted((block.data_file_id, position) for block, position in hits)
    visible = state.blocks.visible_at(snapshot)
    return {
        "table": state.table,
        "blocks": sorted(state.blocks.records, key=lambda b: b.data_file_id),
        "visible": sorted(b.data_file_id for b, there in zip(state.blocks.records, visible, strict=True) if there),
        "indexes": {i: (c.index, c.links, c.gaps) for i, c in state.indexes.items()},
        "deletes": {f: sorted(log.at(snapshot) or ()) for f, log in state.deletes.items()},
        "keys": found,
    }


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_was_refreshed_is_one_that_was_loaded(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    config = il.TableConfig(block_row_count=40, direct_write_row_count=5, retention=timedelta(0))
    schema = pa.schema([pa.field("id", KEYS[kind], False), ("v", pa.int64())])
    fresh = 0
    with connect(tmp_path) as lake:
        t = lake.create_table("t", schema, primary_key="id", config=config)
        pipeline = lake.pipeline(runner="threads")
        clock_of(lake).stop()
        for step in range(60):
            what = chance.choices(["block", "row", "update", "delete", "compact", "dump", "expire", "column"],
                                  [12, 3, 3, 3, 1, 2, 2, 0.5])[0]  # fmt: skip
            if what in ("block", "row"):
                count = chance.randrange(5, 12) if what == "block" else 1
                t.insert(pa.table({"id": [key(kind, fresh + n) for n in range(count)], "v": [step] * count}))
                fresh += count
            elif what == "update":
                t.update({"v": -step}, "v % 7 = $r", {"r": chance.randrange(7)})
            elif what == "delete":
                t.delete("v % 11 = $r", {"r": chance.randrange(11)})
            elif what == "column":
                t.add_column(f"c{step}", pa.int32(), default=step)
            else:
                getattr(pipeline, what)("t")
            if chance.random() < 0.3:
                continue  # several commits are caught up with at once
            with lake._readings.open(t._table_id) as reading:
                refreshed, last = reading.state, reading.snapshot
                loaded = state_module.load(reading.transaction, t._table_id, last)
            keys = [key(kind, n) for n in chance.sample(range(fresh + 5), min(fresh, 25))]
            assert seen(t, refreshed, last, keys) == seen(t, loaded, last, keys), what
        assert len(refreshed.blocks) > 16, "more than are compared one by one"


def test_the_state_of_many_blocks_is_not_read_again_for_a_purge(tmp_path: Path, monkeypatch: Any) -> None:
    """Records that were removed are taken out of what is known."""
    config = il.TableConfig(direct_write_row_count=2, retention=timedelta(0), block_row_count=4)
    with connect(tmp_path) as lake:
        t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), primary_key="id", config=config)
        for n in range(20):
            t.insert(pa.table({"id": [2 * n, 2 * n + 1]}))
        t.delete("id < 2")
        lake.pipeline(runner="threads").compact("t")
        assert t.get(7) == {"id": 7}
        before = t._state()
        monkeypatch.setattr(state_module, "load", None)
        clock_of(lake).stop()
        assert lake.pipeline(runner="threads").expire("t")["main.t"].blocks_dropped > 0
        after = t._state()
        assert len(after.blocks) < len(before.blocks)
        assert after.table.purge_number > before.table.purge_number
        assert [t.get(n) for n in range(40)] == [None, None, *({"id": n} for n in range(2, 40))]
