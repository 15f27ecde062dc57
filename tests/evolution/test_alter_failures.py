"""The Nth SQL statement of an alteration fails: all of it happened, or nothing, and the lake works on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.crash.failing import failing, picture
from tests.evolution.conftest import Fill, rows
from tests.support.lakes import clock_of

MANY = 200


def definition(lake: il.Lake) -> dict[str, Any]:
    tables = {name: lake.table(name) for name in lake.tables()}
    return {name: (str(t.schema), t.config, t.primary_key) for name, t in tables.items()} | picture(lake)


def everything(t: il.Table) -> None:
    with t.alter() as a:
        a.add_column("kind", pa.string(), default="old")
        a.widen_column("v", pa.int64())
        a.add_column("address.country", pa.string(), default="DE")
        a.drop_column("note")
        a.set_config(block_row_count=9)
        a.rename("shop.things")


def test_an_alteration_failed_at_each_statement_happens_whole_or_not_at_all(any_lake: il.Lake, fill: Fill) -> None:
    lake = any_lake
    fill(lake, "other")
    t = fill(lake)
    before, past = definition(lake), {s.snapshot_id: rows(t.at(s.snapshot_id)) for s in t.history()[1:]}
    failed = 0
    for nth in range(1, MANY):
        with failing("sql.", nth=nth) as failure:
            try:
                everything(lake.table("t"))
                error = None
            except il.IndexLakeError as raised:
                error = raised
        if error is None:
            break
        failed += 1
        assert failure.fired is not None
        assert definition(lake) == before, f"{nth} at {failure.fired}"
        assert t.insert({"id": 9000 + nth, "note": "still works"}).rows == 1
        t.delete(f"id = {9000 + nth}")
        before = definition(lake)
    assert failed >= 10
    assert lake.tables() == ["main.other", "shop.things"]
    assert t.schema.names == ["id", "v", "address", "kind"]
    assert t.config.block_row_count == 9
    assert t.get(11) == {"id": 11, "v": 11, "address": {"city": "city 2", "zip": 10011, "country": "DE"}, "kind": "old"}
    assert {s: rows(t.at(s)) for s in past} == past


def test_an_answer_to_commit_that_is_lost_is_looked_up(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    with failing("sql.commit.after", nth=1) as failure:
        t.add_column("kind", pa.string(), default="old")
    assert failure.fired is not None
    assert t.schema.names[-1] == "kind"
    assert [s.operation for s in t.history()].count("add column") == 1


@pytest.mark.parametrize("what", ["expire", "dump"])
def test_a_job_on_an_altered_table_failed_at_each_statement_changes_no_answer(
    lake: il.Lake, fill: Fill, what: str
) -> None:
    t = fill(lake)
    everything(t)
    t.insert({"id": 60, "v": 2**40})
    expected = rows(t)
    clock_of(lake).advance(days=8)
    for nth in range(1, MANY):
        clock_of(lake).advance(seconds=1)
        t.update({"v": il.expr("v + 1")}, where="id = 60")
        expected[-1]["v"] += 1
        with failing("sql.", nth=nth) as failure:
            try:
                lake.pipeline().expire(t.name) if what == "expire" else lake.pipeline().dump(t.name)
            except il.IndexLakeError:
                assert failure.fired is not None
        assert rows(t) == expected
        if failure.fired is None:
            break
    assert nth > 5
