"""Consumers that go on from where they were: beside writers and jobs, nothing is lost and nothing comes twice."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.schema import ROW_ID
from tests.feed.versions import replayed, versions_at

WRITERS = 3
STATEMENTS = 12


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_polling_beside_writers_and_jobs_rebuilds_the_table(database: str, new_address: Any) -> None:
    address = new_address(database)
    with address.connect(automatic=False) as lake, address.connect(automatic=False) as other:
        schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
        config = il.TableConfig(direct_write_row_count=40, block_row_count=50)
        table = lake.create_table("t", schema, "id", config=config)
        since = first = lake.snapshot_id
        errors: list[BaseException] = []

        def write(number: int) -> None:
            chance, mine = random.Random(number), (lake if number % 2 else other).table("t")
            try:
                for step in range(STATEMENTS):
                    start = number * 100_000 + step * 100
                    mine.insert([{"id": start + n, "v": 0} for n in range(chance.choice([1, 5, 45]))])
                    mine.update({"v": step}, f"id % 10 = {chance.randrange(10)} and id / 100000 = {number}")
                    if chance.random() < 0.5:
                        mine.delete(f"id % 13 = {chance.randrange(13)} and id / 100000 = {number}")
                    if chance.random() < 0.1:
                        mine.truncate()
            except BaseException as error:
                errors.append(error)

        def dump(done: threading.Event) -> None:
            try:
                while not done.wait(0.02):
                    lake.pipeline().dump("t")
            except BaseException as error:
                errors.append(error)

        done = threading.Event()
        writers = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
        dumper = threading.Thread(target=dump, args=(done,))
        for thread in [*writers, dumper]:
            thread.start()
        consumer, rows, seen, polls = other.table("t"), {}, [], 0
        while any(thread.is_alive() for thread in writers):
            feed = consumer.changes(since, with_row_id=True)
            found = feed.to_pylist()
            assert all(since < change["_snapshot_id"] <= feed.until for change in found)
            rows, since, polls = replayed(rows, found), feed.until, polls + 1
            seen += found
        done.set()
        for thread in [*writers, dumper]:
            thread.join()
        assert not errors
        feed = consumer.changes(since, with_row_id=True)
        seen += feed.to_pylist()
        rows = replayed(rows, feed.to_pylist())
        assert polls > 3
        assert rows == {i: row for i, (_, row) in versions_at(table, feed.until).items()}
        assert seen == table.changes(first, feed.until, with_row_id=True).to_pylist()


def test_a_copy_in_another_table_follows_by_key(local_lake: il.Lake, new_table: Any) -> None:
    """As a reader would do it: inserts, updates and deletes applied by primary key with the public methods."""
    source, copy = new_table(local_lake, direct_write_row_count=20, block_row_count=15), new_table(local_lake)
    chance = random.Random(3)
    since = source.changes(0).since
    for step in range(8):
        for _ in range(chance.randrange(1, 4)):
            kind = chance.choice(["insert", "insert many", "update", "move", "delete", "dump", "truncate"])
            some = chance.randrange(50)
            if kind == "insert":
                source.insert({"id": 1000 + step * 100 + some, "v": some, "s": None} | _fresh(source))
            elif kind == "insert many":
                start = _fresh(source)["id"]
                source.insert([{"id": start + n, "v": n, "s": "x"} for n in range(25)])
            elif kind == "update":
                source.update({"v": il.expr("v + 1"), "s": f"{step}"}, f"id % 7 = {some % 7}")
            elif kind == "move":
                source.update({"id": il.expr("id + 100000")}, f"id % 11 = {some % 11} and id < 100000")
            elif kind == "delete":
                source.delete(f"id % 5 = {some % 5}")
            elif kind == "dump":
                local_lake.pipeline().dump(source.name)
            elif step % 4 == 3:
                source.truncate()
        feed = source.changes(since)
        for change in feed:
            row = {name: change[name] for name in ("id", "v", "s")}
            if change["_change_type"] in ("delete", "update_preimage"):
                assert copy.delete("id = $id", params={"id": row["id"]}).rows == 1
            else:
                copy.insert(row)
        since = feed.until
        assert _content(copy) == _content(source)


def _fresh(table: il.Table) -> dict[str, int]:
    """A key that was never used."""
    ids = [c["id"] for c in table.changes(0, columns=["id"])]
    return {"id": max(ids, default=0) % 100_000 + 1 + len(ids)} if ids else {"id": 1}


def _content(table: il.Table) -> list[dict[str, Any]]:
    rows = table.scan(with_row_id=True).to_pylist()
    for row in rows:
        del row[ROW_ID]
    return sorted(rows, key=lambda row: row["id"])
