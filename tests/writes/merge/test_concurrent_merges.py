"""Threads and processes merge the same values at the same time, and rows move to blocks meanwhile."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any

import pytest

import indexlake as il
from tests.support.one_owner import other_processes
from tests.writes.merge import counting


@pytest.mark.parametrize("how", ["by value", "by key", "upsert"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_concurrent_merges_add_each_value_once_and_lose_no_change(new_address: Any, database: str, how: str) -> None:
    address = new_address(database)
    names = [f"n{n}" for n in range(8)]
    batch, upsert = 2, how == "upsert"
    stop = threading.Event()
    with address.connect(automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=5, block_row_count=40)
        key = None if how == "by value" else "name"
        t = lake.create_table(counting.TABLE, counting.SCHEMA, primary_key=key, config=config)

        def dump() -> None:
            while not stop.is_set():
                lake.pipeline().dump(counting.TABLE)
                stop.wait(0.05)

        dumper = threading.Thread(target=dump)
        dumper.start()
        try:
            with other_processes(1) as pool:
                other = pool.submit(counting.count, asdict(address), 2, names, batch, upsert)
                threads = counting.run(lake, 2, names, batch, upsert)
                threads += other.result(timeout=200)
        finally:
            stop.set()
            dumper.join()
        expected = dict.fromkeys(names, 1 if upsert else threads)
        found = [(row["name"], row["v"]) for row in t.scan().to_pylist()]
        assert sorted(found) == sorted(expected.items()), "each name once, with every count"
        lake.pipeline().dump()
        found = [(row["name"], row["v"]) for row in t.scan().to_pylist()]
        assert sorted(found) == sorted(expected.items())
