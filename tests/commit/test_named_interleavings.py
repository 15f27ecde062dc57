"""One test for each interleaving that a rule of the commit exists for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.inline import inline_table
from indexlake.commit.group import ROUNDS_OUTSIDE, _Ticket
from indexlake.hot import registry
from indexlake.pipeline import rewrite
from indexlake.pipeline.compact import live_blocks
from indexlake.pipeline.dump import commit_chunk, dump, plan_chunk, purge, run_task
from indexlake.pipeline.job import Job
from indexlake.storage import faults
from tests.support import lakes

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
MINUTE = 60_000_000


@pytest.fixture(autouse=True)
def empty_table(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=100, direct_write_row_count=3, dump_format="ipc", retention=0)  # type: ignore[arg-type]
    lake.create_table("t", SCHEMA, "id", config=config)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], il.Lake]]:
    """Other handles of the lake, with caches of their own, as other processes have them."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(lakes.connect(tmp_path / "lake"))


def rows(lake: il.Lake, snapshot: int | None = None) -> dict[int, int]:
    table = lake.table("t") if snapshot is None else lake.table("t").at(snapshot)
    found = table.scan().to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"a key is there twice: {found}"
    return {row["id"]: row["v"] for row in found}


def table_id(lake: il.Lake) -> int:
    return lake.table("t")._table_id


def plan(lake: il.Lake, *, history: bool = False) -> Callable[[], bool]:
    """A dump up to its written file; the call commits it."""
    task = plan_chunk(lake, table_id(lake), history=history)
    assert task is not None
    blocks = run_task(lake.storage, task, lambda: None)

    def commit() -> bool:
        with Job(lake, "dump", table_id(lake), scope=blocks[0].file.path) as job:
            return commit_chunk(lake, job, task, blocks)

    return commit


def expire_all(lake: il.Lake) -> int:
    with lake.catalog.read() as r:
        newest = r.rows("select max(committed_at) from indexlake_snapshot")[0][0]
    lakes.clock_of(lake).stop(newest + MINUTE)
    return lake.pipeline().expire("t")["main.t"].horizon


# ---------------------------------------------------------------- readers and dumps


def test_a_stale_cache_sees_each_row_once_after_a_dump_in_another_process(
    lake: il.Lake, connect: Callable[[], il.Lake]
) -> None:
    other = connect()
    lake.table("t").insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    assert rows(other) == {1: 1, 2: 2}  # its cache knows no block
    before = lake.snapshot_id
    assert plan(lake)()  # committed, and the inline copies not yet purged
    assert rows(other) == {1: 1, 2: 2} == rows(other, before)
    assert other.table("t").get(1) == {"id": 1, "v": 1}
    purge(lake, table_id(lake))
    assert rows(other) == {1: 1, 2: 2} == rows(other, before)


def test_a_reader_that_planned_before_a_dump_and_its_purge_reads_what_it_planned(lake: il.Lake) -> None:
    lake.table("t").insert([{"id": n, "v": n} for n in range(2)])
    batches = lake.table("t").scan().to_batches()
    dump(lake, table_id(lake))
    lake.table("t").delete("true")
    assert sum(batch.num_rows for batch in batches) == 2


def test_a_cache_newer_than_the_read_transaction_is_not_used_with_it(lake: il.Lake) -> None:
    from indexlake.snapshots.state import Stale, refresh

    lake.table("t").insert({"id": 1, "v": 1})
    with lake.catalog.read() as r:
        r.rows("select max(snapshot_id) from indexlake_snapshot")
        lake.table("t").update({"v": 2}, "id = 1")
        dump(lake, table_id(lake))
        assert rows(lake) == {1: 2}  # another thread brings the cache up to date
        with pytest.raises(Stale):
            refresh(r, table_id(lake), lake._readings.states.get(table_id(lake)))


def test_an_update_during_a_dump_is_read_right_at_the_old_and_the_new_snapshot(
    lake: il.Lake, connect: Callable[[], il.Lake]
) -> None:
    other = connect()
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    before = lake.snapshot_id
    commit = plan(lake)
    table.update({"v": 10}, "id = 1")
    table.delete("id = 2")
    after = lake.snapshot_id
    assert commit()
    for tidy in (False, True):
        if tidy:
            purge(lake, table_id(lake))
        for handle in (lake, other):
            assert rows(handle, before) == {1: 1, 2: 2}
            assert rows(handle, after) == {1: 10} == rows(handle)
            assert handle.table("t").at(before).get(2) == {"id": 2, "v": 2}
            assert handle.table("t").get(2) is None


def test_a_version_superseded_during_a_dump_and_gone_from_the_hot_store_stays_dead(lake: il.Lake) -> None:
    """Judged by the touched rows, not by what is still inline: the history was moved before the dump commits."""
    table = lake.table("t")
    table.insert({"id": 1, "v": 1})
    commit = plan(lake)
    table.update({"v": 2}, "id = 1")
    dump(lake, table_id(lake), live=False)  # moves and purges the superseded version
    before = lake.snapshot_id
    assert commit()
    assert rows(lake) == {1: 2} == rows(lake, before)


def test_an_update_of_a_row_that_a_dump_has_moved_meanwhile_commits(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    for tidy in (False, True):
        with lake.transaction() as tx:
            tx.table("t").update({"v": il.expr("v + 10")}, "id = 1")
            assert plan(lake)()
            if tidy:
                purge(lake, table_id(lake))
            before = lake.snapshot_id
        assert tx.state == "committed"
        assert rows(lake)[1] == rows(lake, before)[1] + 10
        assert len(table) == 2


def test_a_row_that_moved_is_closed_where_it_lives_and_not_in_a_newer_block_with_a_dead_copy(lake: il.Lake) -> None:
    """A compaction that was planned before an update commits after the dump of the new version."""
    table = lake.table("t")
    table.insert({"id": 1, "v": 1})
    dump(lake, table_id(lake))
    tasks = rewrite.plan(lake, table_id(lake), lambda state, snapshot: [(live_blocks(state, snapshot), "ipc")])
    written = [(task, rewrite.run_task(lake.storage, task, lambda: None)) for task in tasks]
    table.update({"v": 2}, "id = 1")
    with lake.transaction() as tx:
        tx.table("t").delete("id = 1")
        dump(lake, table_id(lake))
        with Job(lake, "compact", table_id(lake)) as job:
            assert len(rewrite.commit(job, written)) == 1
    assert rows(lake) == {}


def test_a_delete_under_an_open_transaction_survives_the_dump_of_its_row(lake: il.Lake) -> None:
    lake.table("t").insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    tx = lake.transaction()
    tx.table("t").delete("id = 1")
    dump(lake, table_id(lake))
    assert tx.commit().deleted == 1
    assert rows(lake) == {2: 2}


def test_an_open_transaction_reads_its_snapshot_after_its_history_was_moved(
    lake: il.Lake, connect: Callable[[], il.Lake]
) -> None:
    other = connect()
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    tx = other.transaction()
    assert tx.table("t").get(1) == {"id": 1, "v": 1}
    table.update({"v": 10}, "id = 1")
    table.delete("id = 2")
    assert plan(lake, history=registry.DEFAULT != registry.MEMORY)()  # there, a chunk holds both
    for _ in range(2):  # before and after the purge
        view = tx.table("t")
        assert sorted(row["v"] for row in view.scan().to_pylist()) == [1, 2]
        assert view.get(1) == {"id": 1, "v": 1}
        assert view.get(2) == {"id": 2, "v": 2}
        assert len(view) == 2
        purge(lake, table_id(lake))
    tx.table("t").update({"v": 99}, "id = 1")  # a row that lies in a history block for this transaction
    with pytest.raises(il.ConflictError):
        tx.commit()
    assert rows(lake) == {1: 10}


def test_a_double_dump_is_harmless(lake: il.Lake, connect: Callable[[], il.Lake]) -> None:
    other = connect()
    lake.table("t").insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    first, second = plan(lake), plan(other)
    assert first()
    assert not second(), "the floor has moved: the second is planned again"
    assert rows(lake) == rows(other) == {1: 1, 2: 2}


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_a_dump_planned_below_the_horizon_is_dropped(lake: il.Lake) -> None:
    """The touched sets that say what was superseded meanwhile are gone."""
    table = lake.table("t")
    table.insert({"id": 1, "v": 1})
    commit = plan(lake)
    table.update({"v": 2}, "id = 1")
    expire_all(lake)
    assert not commit()
    assert rows(lake) == {1: 2}


def test_a_stale_cache_forgets_what_expire_removed(lake: il.Lake, connect: Callable[[], il.Lake]) -> None:
    other = connect()
    table = lake.table("t")
    table.insert([{"id": n, "v": n} for n in range(5)])
    table.delete("id < 2")
    assert len(other.table("t")) == 3
    table.truncate()
    table.insert({"id": 1, "v": 7})
    horizon = expire_all(lake)
    assert rows(other) == {1: 7}
    with pytest.raises(il.SnapshotExpiredError):
        other.table("t").at(horizon - 1)
    assert other.table("t").stats().blocks == 0


# ---------------------------------------------------------------- group commit


def tickets(lake: il.Lake, *transactions: il.Transaction) -> list[_Ticket]:
    committer = lake._committer
    made = []
    for tx in transactions:
        made.append(_Ticket(tx.write_set, committer._first_looks(tx.write_set), None, False))
    return made


def test_of_two_combined_write_sets_on_one_row_the_first_wins(lake: il.Lake) -> None:
    lake.table("t").insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    members = [lake.transaction() for _ in range(3)]
    members[0].table("t").update({"v": 10}, "id = 1")
    members[1].table("t").update({"v": 20}, "true")
    members[2].table("t").update({"v": 30}, "id = 2")
    made = tickets(lake, *members)
    before = lake.snapshot_id
    lake._committer._commit_group(made, made[0])
    assert made[0].result is not None
    assert made[0].result.snapshot_id == before + 1
    assert isinstance(made[1].error, il.ConflictError)
    assert made[1].result is None
    assert made[2].result is not None, "the other fails alone"
    assert made[2].result.snapshot_id == before + 2
    assert rows(lake) == {1: 10, 2: 30}
    assert rows(lake, before + 1) == {1: 10, 2: 2}


def test_of_two_combined_inserts_of_one_key_the_first_wins(lake: il.Lake) -> None:
    for kind in ("hot", "block"):
        base = 0 if kind == "hot" else 100
        members = [lake.transaction() for _ in range(2)]
        for n, tx in enumerate(members):
            count = 1 if kind == "hot" else 4
            tx.table("t").insert([{"id": base + i, "v": n} for i in range(count)])
        made = tickets(lake, *members)
        lake._committer._commit_group(made, made[0])
        assert made[0].result is not None
        if made[1].error is None:  # the first one's block must be looked at
            assert kind == "block"
            assert made[1].look
            with pytest.raises(il.DuplicateKeyError):
                members[1].commit()
        else:
            assert isinstance(made[1].error, il.DuplicateKeyError)
        assert rows(lake)[base] == 0


def test_combined_write_sets_see_a_truncate_among_them(lake: il.Lake) -> None:
    lake.table("t").insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    members = [lake.transaction() for _ in range(3)]
    members[0].table("t").truncate()
    members[1].table("t").update({"v": 5}, "id = 1")
    members[2].table("t").insert({"id": 1, "v": 9})
    made = tickets(lake, *members)
    lake._committer._commit_group(made, made[0])
    assert made[0].result is not None
    assert made[0].result.deleted == 2
    assert isinstance(made[1].error, il.ConflictError)
    assert made[2].result is not None
    assert rows(lake) == {1: 9}


def test_threads_that_commit_together_each_get_their_own_outcome(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert({"id": 0, "v": 0})
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def add(n: int) -> None:
        start.wait()
        for i in range(10):
            try:
                table.insert({"id": 1 + i, "v": n})
                outcomes.append("inserted")
            except il.DuplicateKeyError:
                outcomes.append("duplicate")
            lake.run(lambda tx: tx.table("t").update({"v": il.expr("v + 1")}, "id = 0"), retries=1000)

    threads = [threading.Thread(target=add, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("inserted") == 10
    assert len(outcomes) == 80
    assert rows(lake)[0] == 80
    assert lake._committer.groups <= lake._committer.commits


# ---------------------------------------------------------------- unknown outcomes


@pytest.mark.parametrize("step", ["sql.commit.before", "sql.commit.after"])
def test_a_commit_whose_answer_is_lost_happens_exactly_once_on_postgresql(
    step: str, tmp_path: Path, postgres: Any
) -> None:
    address = postgres.database()
    with il.connect(address, storage=str(tmp_path / "files"), automatic=False) as lake:
        table = lake.create_table("t", SCHEMA, "id")
        table.insert({"id": 1, "v": 1})

        def lose(name: str) -> None:
            if name == step:
                faults.install(previous)
                if step == "sql.commit.before":
                    _end_other_connections(address)
                else:
                    raise OSError("the answer got lost")

        previous = faults.install(lose)
        try:
            result = table.insert({"id": 2, "v": 2})
        finally:
            faults.install(previous)
        assert result.inserted == 1
        assert result.snapshot_id == lake.snapshot_id
        assert rows(lake) == {1: 1, 2: 2}
        assert [s.snapshot_id for s in table.history()][-1] == result.snapshot_id


def _end_other_connections(address: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            "and datname = current_database()"
        )


def test_a_commit_whose_answer_is_lost_happens_exactly_once_on_sqlite(lake: il.Lake) -> None:
    table = lake.table("t")

    def lose(name: str) -> None:
        if name == "sql.commit.after":
            faults.install(previous)
            raise OSError("the answer got lost")

    table.insert({"id": 1, "v": 1})
    previous = faults.install(lose)
    try:
        result = table.insert({"id": 2, "v": 2})
    finally:
        faults.install(previous)
    assert result.inserted == 1
    assert result.snapshot_id == lake.snapshot_id
    assert rows(lake) == {1: 1, 2: 2}


@pytest.mark.parametrize("step", ["sql.commit.before", "sql.commit.after"])
def test_every_member_of_a_group_whose_answer_is_lost_is_settled(lake: il.Lake, step: str) -> None:
    lake.table("t").insert({"id": 1, "v": 1})
    members = [lake.transaction() for _ in range(3)]
    members[0].table("t").insert({"id": 2, "v": 2})
    members[1].table("t").insert({"id": 1, "v": 9})
    members[2].table("t").update({"v": 3}, "id = 1")
    made = tickets(lake, *members)

    def lose(name: str) -> None:
        if name == step:
            faults.install(previous)
            raise OSError("the answer got lost")

    previous = faults.install(lose)
    try:
        lake._committer._commit_group(made, made[0])
    finally:
        faults.install(previous)
    assert isinstance(made[1].error, il.DuplicateKeyError)
    if step == "sql.commit.after":  # it happened
        assert made[0].result is not None
        assert made[2].result is not None
        assert rows(lake) == {1: 3, 2: 2}
    else:
        assert made[0].result is None
        assert made[2].result is None
        assert rows(lake) == {1: 1}


def test_a_token_that_is_sent_again_is_done_once_even_after_its_snapshot_expired(lake: il.Lake) -> None:
    table = lake.table("t")
    first = table.insert({"id": 1, "v": 1}, token="order-1")
    table.delete("id = 1")
    expire_all(lake)
    assert table.insert({"id": 1, "v": 1}, token="order-1") == first
    assert rows(lake) == {}


# ---------------------------------------------------------------- keys


def test_a_key_that_a_dump_moves_between_look_and_commit_is_found(
    lake: il.Lake, connect: Callable[[], il.Lake]
) -> None:
    other = connect()
    lake.table("t").insert({"id": 1, "v": 1})
    tx = other.transaction()
    tx.table("t").insert({"id": 1, "v": 2})
    (ticket,) = tickets(other, tx)  # looked: no block holds the key
    dump(lake, table_id(lake))  # now a block does, and no hot row
    other._committer._commit_group([ticket], ticket)
    assert ticket.look
    assert ticket.result is None
    assert ticket.error is None
    with pytest.raises(il.DuplicateKeyError, match="already exists"):
        tx.commit()
    assert rows(other) == {1: 1}


@pytest.mark.inline_only("counts the rounds; one more goes to the log")
def test_a_free_key_commits_although_jobs_force_more_looks_than_are_made_outside(
    lake: il.Lake, connect: Callable[[], il.Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is followed by a dump; after a few rounds the look is made inside the critical section."""
    other = connect()
    looks, inside = 0, 0
    committer = other._committer
    submit, look_inside = committer._relay.submit, committer._look_inside

    def dump_first(ticket: _Ticket) -> None:
        nonlocal looks
        looks += 1
        lake.table("t").insert({"id": 100 + looks, "v": 0})
        dump(lake, table_id(lake))
        submit(ticket)

    def count(*args: Any) -> Any:
        nonlocal inside
        inside += 1
        return look_inside(*args)

    monkeypatch.setattr(committer._relay, "submit", dump_first)
    monkeypatch.setattr(committer, "_look_inside", count)
    other.table("t").insert({"id": 1, "v": 1})
    assert (looks, inside) == (ROUNDS_OUTSIDE + 1, 1)
    assert rows(lake)[1] == 1
    with pytest.raises(il.DuplicateKeyError):
        other.table("t").insert({"id": 101, "v": 1})
    assert inside == 2, "found inside as well"


@pytest.mark.inline_only("looks into the inline table")
def test_a_hot_copy_of_a_dumped_row_is_no_holder_of_its_key(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert({"id": 1, "v": 1})
    assert plan(lake)()  # not purged
    table.delete("id = 1")
    table.insert({"id": 1, "v": 2})
    assert rows(lake) == {1: 2}
    with lake.catalog.read() as r:
        copies = r.rows(f"select _end from {inline_table(table_id(lake))} where _indexlake_row_id = 1")
    assert copies == [(None,)], "the unpurged copy was left alone"


def test_a_row_given_a_key_and_then_changed_again_keeps_its_key_unique(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    tx = lake.transaction()
    tx.table("t").insert({"id": 2, "v": 5})
    tx.table("t").update({"v": 6}, "v = 5")
    with pytest.raises(il.DuplicateKeyError):
        tx.commit()
    tx = lake.transaction()
    tx.table("t").update({"id": 2}, "id = 1")
    tx.table("t").update({"v": 9}, "v = 1")
    with pytest.raises(il.DuplicateKeyError):
        tx.commit()
    assert rows(lake) == {1: 1, 2: 2}


@pytest.mark.parametrize("dumped", [False, True])
def test_keys_can_be_swapped_and_shifted(lake: il.Lake, dumped: bool) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    if dumped:
        dump(lake, table_id(lake))
    table.update({"id": il.expr("case when id = 1 then 2 else 1 end")}, "id in (1, 2)")
    assert rows(lake) == {2: 1, 1: 2}
    table.update({"id": il.expr("id + 1")}, "true")
    assert rows(lake) == {3: 1, 2: 2}
    with pytest.raises(il.DuplicateKeyError):
        table.update({"id": il.expr("id + 1")}, "id = 2")
    with lake.transaction() as tx:  # one statement at a time, free only at the end
        tx.table("t").update({"id": 3}, "id = 2")
        tx.table("t").update({"id": 2}, "v = 1")
    assert rows(lake) == {2: 1, 3: 2}


@pytest.mark.parametrize("dumped", [False, True])
def test_a_key_can_be_deleted_and_inserted_again_in_one_transaction(lake: il.Lake, dumped: bool) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    if dumped:
        dump(lake, table_id(lake))
    before = lake.snapshot_id
    with lake.transaction() as tx:
        view = tx.table("t")
        view.delete("id = 1")
        view.insert({"id": 1, "v": 10})
        assert view.get(1) == {"id": 1, "v": 10}
        dump(lake, table_id(lake))
    assert rows(lake) == {1: 10, 2: 2}
    assert rows(lake, before) == {1: 1, 2: 2}


def test_of_two_transactions_that_replace_one_key_the_second_conflicts(lake: il.Lake) -> None:
    lake.table("t").insert({"id": 1, "v": 1})
    both = [lake.transaction(), lake.transaction()]
    for n, tx in enumerate(both):
        tx.table("t").delete("id = 1")
        tx.table("t").insert({"id": 1, "v": 10 + n})
    both[0].commit()
    with pytest.raises(il.ConflictError):
        both[1].commit()
    assert rows(lake) == {1: 10}


# ---------------------------------------------------------------- truncate


CHANGES: dict[str, Callable[[il.Lake], Any]] = {
    "insert": lambda lake: lake.table("t").insert({"id": 2, "v": 2}),
    "insert into a block": lambda lake: lake.table("t").insert([{"id": n, "v": n} for n in range(10, 15)]),
    "update": lambda lake: lake.table("t").update({"v": 9}, "id = 1"),
    "delete": lambda lake: lake.table("t").delete("id = 1"),
    "truncate": lambda lake: lake.table("t").truncate(),
    "insert and delete": lambda lake: (lake.table("t").insert({"id": 2, "v": 2}), lake.table("t").delete("id = 2")),
    "merge": lambda lake: lake.table("t").upsert([{"id": 1, "v": 5}, {"id": 2, "v": 5}]),
    "overwrite": lambda lake: lake.pipeline("threads").load([{"id": 3, "v": 3}], "t", mode="overwrite"),
}


@pytest.mark.parametrize("dumped", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_truncate_in_a_transaction_conflicts_with_every_change_since_it_began(
    lake: il.Lake, connect: Callable[[], il.Lake], change: str, dumped: bool
) -> None:
    lake.table("t").insert({"id": 1, "v": 1})
    other = connect()
    tx = other.transaction()
    total = sum(row["v"] for row in tx.table("t").scan().to_pylist())
    tx.table("t").truncate()
    tx.table("t").insert({"id": 0, "v": total})
    CHANGES[change](lake)
    if dumped:
        dump(lake, table_id(lake))
    before = rows(lake)
    with pytest.raises(il.ConflictError, match=r"truncates 'main\.t', whose rows were changed by another commit after"):
        tx.commit()
    assert rows(lake) == before


def test_a_truncate_in_a_transaction_conflicts_with_a_row_that_was_locked_since(lake: il.Lake) -> None:
    lake.table("t").insert({"id": 1, "v": 1})
    truncating, locking = lake.transaction(), lake.transaction()
    truncating.table("t").truncate()
    locking.table("t").scan("id = 1", for_update=True).to_arrow()
    locking.commit()
    with pytest.raises(il.ConflictError):
        truncating.commit()


def test_jobs_and_changes_of_other_tables_and_columns_never_make_a_truncate_fail(lake: il.Lake) -> None:
    table, other = lake.table("t"), lake.create_table("u", SCHEMA, "id")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    table.update({"v": 3}, "id = 2")
    tx = lake.transaction()
    tx.table("t").truncate()
    dump(lake, table_id(lake))
    dump(lake, table_id(lake), history=True)
    lake.pipeline("threads").compact("t")
    lake.pipeline("threads").freeze("t")
    table.add_column("w", pa.int64())
    other.insert({"id": 1, "v": 1})
    assert tx.commit().deleted == 2
    assert rows(lake) == {}


def test_a_sum_that_is_taken_before_a_truncate_misses_no_row(lake: il.Lake) -> None:
    """The lost update that the rule is about, by each way to run a transaction."""
    table, sums = lake.table("t"), lake.create_table("sums", SCHEMA, "id")
    table.insert({"id": 1, "v": 1})
    tries = 0

    def settle(tx: il.Transaction) -> None:
        nonlocal tries
        total = sum(row["v"] for row in tx.table("t").scan().to_pylist())
        if tries < 3:  # another commit comes in between
            table.insert({"id": 2 + tries, "v": 1})
        tx.table("sums").insert({"id": tries, "v": total})
        if tries == 1:
            tx.sql("truncate t")
        else:
            tx.table("t").truncate()
        tries += 1

    for _ in range(2):
        with pytest.raises(il.ConflictError), lake.transaction() as tx:
            settle(tx)
    lake.run(settle)
    assert rows(lake) == {}
    assert sums.scan().to_pylist() == [{"id": 3, "v": 4}]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("dumped", [False, True])
def test_a_truncate_of_its_own_removes_rows_that_come_while_it_runs(
    lake: il.Lake, monkeypatch: pytest.MonkeyPatch, dumped: bool, overwrite: bool
) -> None:
    table = lake.table("t")
    table.insert({"id": 1, "v": 1})
    submit, tries = lake._committer._relay.submit, 0

    def others_first(ticket: _Ticket) -> None:
        nonlocal tries
        tries += 1
        monkeypatch.undo()
        table.insert([{"id": n, "v": n} for n in range(10, 15)])
        table.update({"v": 7}, "id = 1")
        if dumped:
            dump(lake, table_id(lake))
        submit(ticket)

    monkeypatch.setattr(lake._committer._relay, "submit", others_first)
    if overwrite:
        lake.pipeline("threads").load(({"id": n, "v": n} for n in [5]), "t", mode="overwrite")
    else:
        assert table.truncate().deleted == 6
    assert tries == 1
    assert rows(lake) == ({5: 5} if overwrite else {})
    assert len(rows(lake, lake.snapshot_id - 1)) == 6


def test_a_change_of_a_row_conflicts_with_a_truncate_and_an_insert_does_not(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    update, delete, insert, lock = (lake.transaction() for _ in range(4))
    update.table("t").update({"v": 9}, "id = 1")
    delete.table("t").delete("id = 2")
    insert.table("t").insert({"id": 1, "v": 100})
    lock.table("t").scan("id = 1", for_update=True).to_arrow()
    table.truncate()
    for tx in (update, delete, lock):
        with pytest.raises(il.ConflictError):
            tx.commit()
    insert.commit()
    assert rows(lake) == {1: 100}


def test_a_truncate_during_a_dump_leaves_nothing_of_its_rows(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    commit = plan(lake)
    before = lake.snapshot_id
    table.truncate()
    assert commit()
    assert rows(lake) == {}
    purge(lake, table_id(lake))
    assert rows(lake) == {}
    assert rows(lake, before) == {1: 1, 2: 2}
    table.insert({"id": 1, "v": 3})
    assert rows(lake) == {1: 3}


def test_a_truncate_leaves_unpurged_copies_of_dumped_rows_alone(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    assert plan(lake)()  # not purged
    before = lake.snapshot_id
    assert table.truncate().deleted == 2
    assert rows(lake, before) == {1: 1, 2: 2}
    assert rows(lake) == {}


def test_rows_a_transaction_deletes_before_it_truncates_are_counted_once(lake: il.Lake) -> None:
    lake.table("t").insert([{"id": n, "v": n} for n in range(5)])
    tx = lake.transaction()
    tx.table("t").delete("id < 3")
    tx.table("t").insert({"id": 9, "v": 9})
    tx.table("t").truncate()
    result = tx.commit()
    assert (result.inserted, result.updated, result.deleted) == (0, 0, 5)
    assert rows(lake) == {}


# ---------------------------------------------------------------- locks, horizons, statements


def test_a_lock_conflicts_with_a_change_committed_before_and_after_it(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    locks, changes = lake.transaction(), lake.transaction()
    locks.table("t").scan("id = 1", for_update=True).to_arrow()
    locks.table("t").update({"v": 20}, "id = 2")
    changes.table("t").update({"v": 10}, "id = 1")
    locks.commit()
    with pytest.raises(il.ConflictError):
        changes.commit()  # write skew is refused
    assert rows(lake) == {1: 1, 2: 20}


def test_a_lock_does_not_make_a_dump_kill_its_row(lake: il.Lake) -> None:
    lake.table("t").insert({"id": 1, "v": 1})
    commit = plan(lake)
    with lake.transaction() as tx:
        tx.table("t").scan("id = 1", for_update=True).to_arrow()
        tx.table("t").insert({"id": 2, "v": 2})
    assert commit()
    assert rows(lake) == {1: 1, 2: 2}


def test_a_row_of_its_own_needs_no_lock_against_a_truncate(lake: il.Lake) -> None:
    tx = lake.transaction()
    tx.table("t").insert({"id": 1, "v": 1})
    tx.table("t").scan(for_update=True).to_arrow()
    lake.table("t").truncate()
    tx.commit()
    assert rows(lake) == {1: 1}


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_a_transaction_below_the_horizon_is_refused_also_when_it_truncates(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    update, insert, truncate, lock = (lake.transaction() for _ in range(4))
    update.table("t").update({"v": 9}, "id = 1")
    insert.table("t").insert({"id": 3, "v": 3})
    truncate.table("t").truncate()
    lock.table("t").scan("id = 1", for_update=True).to_arrow()
    lock.table("t").truncate()
    table.update({"v": 10}, "id = 1")
    expire_all(lake)
    for tx in (update, insert, truncate, lock):
        with pytest.raises(il.SnapshotExpiredError):
            tx.commit()
    assert table.truncate().deleted == 2


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_an_expired_transaction_that_stays_open_does_not_hold_history_back(lake: il.Lake) -> None:
    table = lake.table("t")
    table.insert({"id": 1, "v": 1})
    forgotten = lake.transaction()
    table.update({"v": 2}, "id = 1")
    first = expire_all(lake)
    assert forgotten.snapshot_id is not None
    assert forgotten.snapshot_id < first
    forgotten._pin.started -= 31  # it would be pinned now, too late
    pinned = lake.transaction()
    pinned._pin.started -= 31
    lake._maintenance._beat_once()
    table.update({"v": 3}, "id = 1")
    assert expire_all(lake) == pinned.snapshot_id, "a transaction that is not expired is pinned"
    pinned.rollback()
    lake._maintenance._beat_once()
    assert expire_all(lake) > first + 1
    with pytest.raises(il.SnapshotExpiredError):
        forgotten.table("t").get(1)


@pytest.mark.parametrize("large", [False, True])
def test_a_statement_that_fails_half_way_leaves_its_transaction_as_it_was(lake: il.Lake, large: bool) -> None:
    config = il.TableConfig(block_row_count=2, direct_write_row_count=3 if large else 100, dump_format="ipc")
    table = lake.create_table("narrow", pa.schema([("id", pa.int64()), ("v", pa.int8())]), "id", config=config)
    table.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    dump(lake, table._table_id)
    table.insert([{"id": 3, "v": 3}, {"id": 4, "v": 4}])
    dump(lake, table._table_id)
    table.insert([{"id": 5, "v": 120}])
    expected = {1: 1, 2: 2, 3: 3, 4: 4, 5: 120, 6: 6}
    with lake.transaction() as tx:
        view = tx.table("narrow")
        view.insert({"id": 6, "v": 6})
        with pytest.raises(il.ExpressionError, match="out of range"):
            view.update({"v": il.expr("v + 50")}, "true")
        assert {row["id"]: row["v"] for row in view.scan().to_pylist()} == expected
    assert {row["id"]: row["v"] for row in table.scan().to_pylist()} == expected


def test_a_transaction_over_two_tables_commits_both_or_none(lake: il.Lake) -> None:
    lake.create_table("u", SCHEMA, "id")
    lake.table("t").insert({"id": 1, "v": 1})
    lake.table("u").insert({"id": 1, "v": 1})
    tx = lake.transaction()
    tx.table("t").update({"v": 2}, "id = 1")
    tx.table("u").update({"v": 2}, "id = 1")
    lake.table("u").update({"v": 3}, "id = 1")
    with pytest.raises(il.ConflictError):
        tx.commit()
    assert rows(lake) == {1: 1}
    tx = lake.transaction()
    tx.table("t").insert({"id": 2, "v": 2})
    tx.table("u").insert({"id": 1, "v": 2})
    with pytest.raises(il.DuplicateKeyError):
        tx.commit()
    assert rows(lake) == {1: 1}
    with lake.transaction() as tx:
        tx.table("t").insert({"id": 2, "v": 2})
        tx.table("u").truncate()
    assert rows(lake) == {1: 1, 2: 2}
    assert len(lake.table("u")) == 0


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_one_table_may_keep_its_history_longer_than_another(lake: il.Lake) -> None:
    keeper = lake.create_table("u", SCHEMA, "id")
    lake.table("t").insert({"id": 1, "v": 1})
    keeper.insert({"id": 1, "v": 1})
    before = lake.snapshot_id
    lake.table("t").update({"v": 2}, "id = 1")
    keeper.update({"v": 2}, "id = 1")
    assert expire_all(lake) > before
    with pytest.raises(il.SnapshotExpiredError):
        lake.table("t").at(before)
    assert keeper.at(before).get(1) == {"id": 1, "v": 1}
    assert [s.snapshot_id for s in keeper.history()][-2:] == [before, before + 2]
