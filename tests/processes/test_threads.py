"""One lake, many threads."""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.storage import faults
from tests.processes.scripts import run_script
from tests.support.threads import in_threads
from tests.support.waiting import wait_until


def test_threads_share_a_lake_for_reads_and_writes_while_dumps_run(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])
    config = il.TableConfig(inline_row_count_limit=50, direct_write_row_count=200, block_row_count=200)
    with il.connect(tmp_path) as lake:
        t = lake.create_table("t", schema, primary_key="id", config=config)

        def work(number: int) -> None:
            chance = random.Random(number)
            mine: dict[int, int] = {}
            for step in range(40):
                key = number * 1000 + step
                t.insert({"id": key, "n": step})
                mine[key] = step
                other = chance.choice(list(mine))
                assert t.update({"n": il.expr("n + 1")}, "id = $id", {"id": other}).rows == 1
                mine[other] += 1
                assert t.get(other) == {"id": other, "n": mine[other]}
                if step % 10 == 9:
                    gone = chance.choice(list(mine))
                    assert t.delete("id = $id", {"id": gone}).rows == 1
                    del mine[gone]
                    rows = t.scan("id >= $a and id < $b", params={"a": number * 1000, "b": number * 1000 + 1000})
                    assert {r["id"]: r["n"] for r in rows.to_pylist()} == mine

        in_threads(6, work)
        assert len(t) == 6 * 36


def test_a_transaction_used_from_another_thread_is_refused(filled_lake: il.Lake) -> None:
    tx = filled_lake.transaction()
    table = tx.table("t")

    def work(_: int) -> None:
        for use in (
            lambda: table.insert({"id": -1, "name": "x"}), lambda: table.get(1), lambda: table.scan().to_arrow(),
            lambda: tx.table("t"), tx.commit,
        ):  # fmt: skip
            with pytest.raises(il.OwnershipError, match="belongs to the thread that began it"):
                use()

    in_threads(1, work)
    table.insert({"id": -1, "name": "x"})
    assert tx.commit().rows == 1


def test_threads_that_parse_their_first_predicate_at_once_read_it_alike() -> None:
    """sqlglot registers a dialect before it is complete: a second thread saw it half-made and lost parameters."""
    ended = run_script(
        """
        import threading
        import sqlglot.dialects.dialect as dialect
        made = dialect.new_trie
        dialect.new_trie = lambda *given: (time.sleep(0.02), made(*given))[1]
        from indexlake.expr import compile
        schema = pa.schema([("x", pa.int64())])
        errors = []
        def work(n):
            time.sleep(n * 0.01)
            try:
                compile("x in $ids" + " " * n, schema, {"ids": [1, 2]})
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(30)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(errors)
        """
    )
    assert (ended.code, ended.out.strip()) == (0, "[]"), ended.err


def test_a_thread_that_is_interrupted_while_it_waits_to_commit_holds_up_nobody(tmp_path: Path) -> None:
    """Ctrl-C in the main thread must not leave a group commit without its leader."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    lake = il.connect(tmp_path, automatic=False)
    t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), primary_key="id")
    t.insert({"id": -1})
    acknowledged: list[int] = []
    stop = threading.Event()

    def write(first: int) -> None:
        n = first
        while not stop.is_set():
            t.insert({"id": n})
            acknowledged.append(n)
            n += 1

    before = signal.signal(signal.SIGALRM, interrupt)
    faults.install(lambda name: time.sleep(0.003) if name == "commit.applied" else None)
    threads = [threading.Thread(target=write, args=(10_000 * (i + 1),)) for i in range(3)]
    try:
        for thread in threads:
            thread.start()
        interrupted = 0
        chance = random.Random(5)
        for n in range(40):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.01 * chance.random())
                t.insert({"id": n})
                acknowledged.append(n)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
        so_far = len(acknowledged)
        wait_until(lambda: len(acknowledged) >= so_far + 10, "nobody commits any more")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faults.install(None)
        stop.set()
        for thread in threads:
            thread.join(20)
    assert interrupted > 0
    assert t.insert({"id": 99_999}).rows == 1
    found = t.scan().to_arrow().column("id").to_pylist()
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    lake.close()
