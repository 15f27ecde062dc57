"""Beside the owner of a lake in memory others read what its last checkpoint holds, and nothing newer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from tests.support.lakes import Address, clock_of


@pytest.fixture
def owner(any_address: Address, tmp_path: Path) -> Iterator[il.Lake]:
    with any_address.connect(hot="memory", log_dir=tmp_path / "log") as lake:
        yield lake


@pytest.fixture
def replica(owner: il.Lake, any_address: Address) -> Iterator[il.Lake]:
    with any_address.connect(read_only=True) as lake:
        yield lake


def _table(owner: il.Lake) -> il.Table:
    return owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")


def _rows(table: Any) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.scan()}


def _checkpoint(owner: il.Lake, *names: str) -> None:
    for name in names:
        owner.pipeline(runner="threads").dump(name)


def test_a_replica_sees_the_last_checkpoint_and_nothing_newer(owner: il.Lake, replica: il.Lake) -> None:
    t = _table(owner)
    t.insert([{"id": n, "v": 0} for n in range(5)])
    _checkpoint(owner, "t")
    shown = replica.table("t")
    at = replica.snapshot_id
    assert _rows(shown) == dict.fromkeys(range(5), 0)
    t.update({"v": 1}, "id < 3")
    t.delete("id = 4")
    t.insert({"id": 9, "v": 9})
    owner.jobs()  # the catalog is told of all commits
    assert owner.snapshot_id > replica.snapshot_id == at
    assert _rows(shown) == dict.fromkeys(range(5), 0)
    assert shown.get(4) == {"id": 4, "v": 0}
    assert shown.get(9) is None
    assert len(shown) == 5
    assert replica.sql("select count(*) n, sum(v) s from t").to_pylist() == [{"n": 5, "s": 0}]
    assert [s.snapshot_id for s in shown.history() if s.snapshot_id > at] == []
    _checkpoint(owner, "t")
    assert _rows(shown) == {0: 1, 1: 1, 2: 1, 3: 0, 9: 9}
    assert replica.snapshot_id > at


def test_snapshots_after_the_checkpoint_cannot_be_travelled_to(owner: il.Lake, replica: il.Lake) -> None:
    t = _table(owner)
    t.insert({"id": 1, "v": 0})
    _checkpoint(owner, "t")
    at = replica.snapshot_id
    t.update({"v": 1}, "id = 1")
    t.update({"v": 2}, "id = 1")
    owner.jobs()
    shown = replica.table("t")
    later = datetime.now(UTC) + timedelta(hours=1)
    for refused in (
        lambda: replica.at(at + 1),
        lambda: shown.at(at + 1),
        lambda: shown.changes(since=at + 1),
        lambda: shown.changes(since=0, until=at + 1),
        lambda: replica.sql("select * from t", at=at + 1),
    ):
        with pytest.raises(il.NotFoundError, match="snapshot"):
            refused()
    assert _rows(replica.at(time=later).table("t")) == {1: 0}
    assert shown.changes(since=0, until=later).until == at
    assert shown.changes(since=0).until == at
    assert {change["v"] for change in shown.changes(since=0)} == {0}


def test_the_past_of_a_replica_is_that_of_the_owner(owner: il.Lake, replica: il.Lake) -> None:
    t = _table(owner)
    t.insert([{"id": n, "v": 0} for n in range(4)])
    for n in range(6):
        t.update({"v": n + 1}, f"id = {n % 3}")
        if n == 2:
            _checkpoint(owner, "t")
    t.delete("id = 3")
    _checkpoint(owner, "t")
    last = replica.snapshot_id
    assert last > 8
    shown = replica.table("t")
    for snapshot in range(2, last + 1):
        assert _rows(shown.at(snapshot)) == _rows(t.at(snapshot))
    asked = {"since": 1, "until": last}
    assert shown.changes(**asked).to_pylist() == t.changes(**asked).to_pylist()


def test_definitions_after_the_checkpoint_are_not_there_yet(owner: il.Lake, replica: il.Lake) -> None:
    t = _table(owner)
    owner.create_table("gone", {"id": "int64"})
    t.insert({"id": 1, "v": 1})
    _checkpoint(owner, "t")
    t.insert({"id": 2, "v": 2})  # so that the bound stays where it is
    owner.create_table("later.u", {"id": "int64"})
    owner.drop_table("gone")
    t.add_column("w", "string", default="x")
    t.rename("main.renamed")
    assert replica.tables() == ["main.gone", "main.t"]
    assert replica.namespaces() == ["main"]
    assert [row["name"] for row in replica.sql("show tables").to_pylist()] == ["gone", "t"]
    assert len(replica.table("gone")) == 0
    shown = replica.table("t")
    assert shown.name == "main.t"
    assert shown.schema.names == ["id", "v"]
    assert shown.scan().to_pylist() == [{"id": 1, "v": 1}]
    with pytest.raises(il.NotFoundError):
        replica.table("later.u")
    with pytest.raises(il.NotFoundError):
        replica.sql("select * from renamed")
    _checkpoint(owner, "renamed")
    assert replica.tables() == ["later.u", "main.renamed"]
    assert replica.table("renamed").get(2) == {"id": 2, "v": 2, "w": "x"}


def test_the_oldest_unsaved_row_of_any_table_holds_all_of_them_back(owner: il.Lake, replica: il.Lake) -> None:
    t, u = _table(owner), owner.create_table("u", {"id": "int64"})
    u.insert({"id": 1})
    t.insert({"id": 1, "v": 1})
    _checkpoint(owner, "t")
    assert (len(replica.table("t")), len(replica.table("u"))) == (0, 0)
    _checkpoint(owner, "u")
    assert (len(replica.table("t")), len(replica.table("u"))) == (1, 1)


def test_what_goes_straight_to_blocks_is_seen_at_once_where_nothing_is_in_memory(
    owner: il.Lake, replica: il.Lake
) -> None:
    t = owner.create_table("t", {"id": "int64"}, config=il.TableConfig(direct_write_row_count=10))
    t.insert([{"id": n} for n in range(100)])
    assert len(replica.table("t")) == 100


def test_the_horizon_leaves_a_replica_something_to_read(owner: il.Lake, replica: il.Lake) -> None:
    t = _table(owner)
    t.insert([{"id": n, "v": 0} for n in range(5)])
    _checkpoint(owner, "t")
    at = replica.snapshot_id
    for n in range(5):
        t.update({"v": n}, f"id = {n}")
    pipeline = owner.pipeline(runner="threads")
    with clock_of(owner).stopped():
        assert pipeline.expire("t")["main.t"].horizon == at
        assert _rows(replica.table("t")) == dict.fromkeys(range(5), 0)
        _checkpoint(owner, "t")
        assert pipeline.expire("t")["main.t"].horizon > at
    assert _rows(replica.table("t")) == {n: n for n in range(5)}


def test_a_replica_refuses_to_write_and_needs_no_owner(any_address: Address, tmp_path: Path) -> None:
    with any_address.connect(hot="memory", log_dir=tmp_path / "log") as owner:
        _table(owner).insert({"id": 1, "v": 1})
        _checkpoint(owner, "t")
        owner.table("t").insert({"id": 2, "v": 2})
    with any_address.connect(read_only=True) as replica:
        assert _rows(replica.table("t")) == {1: 1}
        with pytest.raises(il.OwnershipError, match="read_only=True"):
            replica.table("t").insert({"id": 3, "v": 3})
        with any_address.connect(log_dir=tmp_path / "log") as owner:
            assert _rows(owner.table("t")) == {1: 1, 2: 2}


def test_a_replica_goes_on_when_the_lake_becomes_inline(owner: il.Lake, replica: il.Lake) -> None:
    t = _table(owner)
    t.insert({"id": 1, "v": 1})
    assert _rows(replica.table("t")) == {}
    owner.convert(hot="inline")
    assert _rows(replica.table("t")) == {1: 1}
    t.insert({"id": 2, "v": 2})
    assert _rows(replica.table("t")) == {1: 1, 2: 2}
    assert replica.snapshot_id == owner.snapshot_id


def test_sparks_data_source_reads_the_last_checkpoint(owner: il.Lake, any_address: Address) -> None:
    pytest.importorskip("pyspark")
    from indexlake.spark.source import IndexLakeSource

    t = _table(owner)
    t.insert([{"id": n, "v": 0} for n in range(5)])
    _checkpoint(owner, "t")
    t.update({"v": 1}, "id = 3")

    options = {"catalog": any_address.catalog, "table": "t"}
    if any_address.catalog_schema is not None:
        options["catalog_schema"] = any_address.catalog_schema

    def read() -> dict[int, int]:
        source = IndexLakeSource(options)
        reader = source.reader(source.schema())
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return {row["id"]: row["v"] for batch in batches for row in batch.to_pylist()}

    assert read() == dict.fromkeys(range(5), 0)
    _checkpoint(owner, "t")
    assert read() == {0: 0, 1: 0, 2: 0, 3: 1, 4: 0}
    t.insert({"id": 7, "v": 7})
    assert t.get(7) == {"id": 7, "v": 7}, "the owner goes on"
