"""Concurrent inserts of one key: exactly one wins, whatever moves to blocks meanwhile."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import pytest

import indexlake as il
from tests.commit import rivals
from tests.support.one_owner import other_processes


@pytest.mark.parametrize("batch", [1, 5, 100], ids=["rows", "batches", "blocks"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_of_concurrent_inserts_of_one_key_exactly_one_wins(new_address: Any, database: str, batch: int) -> None:
    address = new_address(database)
    keys = [f"{n * 7919 % 1000:03}" for n in range(30 if batch == 1 else 60 if batch == 5 else 600)]
    stop = threading.Event()
    with address.connect(automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=50, block_row_count=40)
        t = lake.create_table(rivals.TABLE, rivals.SCHEMA, primary_key="k", config=config)

        def dump() -> None:
            while not stop.is_set():
                lake.pipeline().dump(rivals.TABLE)
                stop.wait(0.02)

        dumper = threading.Thread(target=dump)
        dumper.start()
        try:
            with other_processes(1) as pool:
                other = pool.submit(rivals.race, asdict(address), "other", 2, keys, batch)
                won = rivals.run(lake, "main", 3, keys, batch)
                won |= other.result(timeout=200)
        finally:
            stop.set()
            dumper.join()
        claimed = sorted((k, me) for me, mine in won.items() for k in mine)
        assert [k for k, _ in claimed] == sorted(keys), "each key was won by exactly one"
        assert sorted((r["k"], r["winner"]) for r in t.scan().to_pylist()) == claimed
        lake.pipeline().dump()
        assert sorted((r["k"], r["winner"]) for r in t.scan().to_pylist()) == claimed
        assert all(t.get(k) == {"k": k, "winner": me} for k, me in claimed[:40])
