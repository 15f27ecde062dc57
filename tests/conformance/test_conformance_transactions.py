"""Transactions, tokens, lake.run, for_update and the results of writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, row, rows, tiered


def test_a_transaction_sees_its_own_writes_and_nobody_else_does(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    with lake.transaction() as tx:
        inside = tx.table(t.name)
        assert inside.insert(row(50)).snapshot_id is None
        inside.insert(pa.Table.from_pylist(rows(range(60, 80)), SCHEMA))
        assert inside.update({"city": "tx"}, "id in (2, 12, 25, 50, 61)").rows == 5
        assert inside.delete("id in (3, 13, 26, 62, 9)").rows == 5
        assert inside.get(50)["city"] == inside.get(2)["city"] == inside.get(61)["city"] == "tx"
        assert inside.get(3) is inside.get(13) is inside.get(62) is None
        expected = [
            {**row(n), "city": "tx"} if n in (2, 12, 25, 50, 61) else row(n)
            for n in [*range(1, 31), 50, *range(60, 80)]
            if n not in (3, 13, 26, 62, 9)
        ]
        assert content(inside) == expected
        assert len(inside) == len(expected)
        assert content(t) == EVERYTHING
        dump(t)
        assert content(inside) == expected
        assert content(t) == EVERYTHING
    assert content(t) == expected
    assert tx.result is not None
    assert tx.result.snapshot_id == lake.snapshot_id
    assert tx.state == "committed"


def test_a_transaction_reads_one_snapshot_throughout(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    tx = lake.transaction()
    inside = tx.table(t.name)
    t.insert(row(77))
    t.update({"city": "later"}, "true")
    t.delete("id < 10")
    assert content(inside) == EVERYTHING
    dump(t)
    assert content(inside) == EVERYTHING
    assert inside.get(5) == row(5)
    assert inside.get(77) is None
    t.truncate()
    assert content(inside) == EVERYTHING
    tx.rollback()


def test_a_transaction_that_only_reads_refuses_every_write(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    writes: list[Callable[[il.Transaction, il.Table], object]] = [
        lambda tx, inside: inside.insert(row(77)),
        lambda tx, inside: inside.insert(pa.Table.from_pylist(rows(range(60, 80)), SCHEMA)),
        lambda tx, inside: inside.update({"city": "x"}, "false"),
        lambda tx, inside: inside.delete("false"),
        lambda tx, inside: inside.truncate(),
        lambda tx, inside: inside.upsert(row(5)),
        lambda tx, inside: inside.scan(where="id = 5", for_update=True).to_arrow(),
        lambda tx, inside: inside.add_column("more", pa.int64()),
        lambda tx, inside: inside.create_index("cities", ["city"]),
        lambda tx, inside: tx.create_table("made", SCHEMA),
        lambda tx, inside: tx.create_namespace("made"),
        lambda tx, inside: tx.drop_table(t.name),
        lambda tx, inside: tx.sql("create view made as select 1"),
    ]
    with lake.transaction(read_only=True) as tx:
        inside = tx.table(t.name)
        t.delete("id < 10")
        for write in writes:
            with pytest.raises(il.OwnershipError, match="began READ ONLY"):
                write(tx, inside)
        assert content(inside) == EVERYTHING
    assert tx.result is not None
    assert tx.result.rows == 0
    assert content(t) == [row(n) for n in range(10, 31)]
    with pytest.raises(il.OwnershipError, match="leave it out"):
        lake.transaction("token", read_only=True)


def test_several_tables_change_together_or_not_at_all(lake: il.Lake, make: Any) -> None:
    a, b = tiered(make), tiered(make)
    before = lake.snapshot_id
    tx = lake.transaction()
    tx.table(a.name).delete("true")
    tx.table(b.name).insert(row(5))
    with pytest.raises(il.DuplicateKeyError):
        tx.commit()
    assert a.changes(before, lake.snapshot_id).count() == b.changes(before, lake.snapshot_id).count() == 0
    assert content(a) == content(b) == EVERYTHING
    with lake.transaction() as tx:
        tx.table(a.name).delete("id <= 10")
        tx.table(b.name).insert(row(99))
    assert tx.result is not None
    assert tx.result.snapshot_id == lake.snapshot_id
    assert (tx.result.inserted, tx.result.deleted, tx.result.rows) == (1, 10, 11)
    assert (len(a), len(b)) == (20, 31)


def test_an_error_in_the_block_rolls_everything_back(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id

    def fail(tx: il.Transaction) -> None:
        with tx:
            tx.table(t.name).delete("true")
            raise ZeroDivisionError

    tx = lake.transaction()
    with pytest.raises(ZeroDivisionError):
        fail(tx)
    assert tx.state == "rolled back"
    assert lake.snapshot_id == before
    assert content(t) == EVERYTHING
    with pytest.raises(il.OwnershipError, match="rolled back"):
        tx.table(t.name)


def test_a_failed_statement_leaves_the_transaction_as_it_was(lake: il.Lake, make: Any) -> None:
    t = make(pa.schema({"id": pa.int64(), "v": pa.int64()}), "id", direct_write_row_count=10)
    for start in (0, 20, 40):
        t.insert([{"id": n, "v": 0 if n == 45 else 1} for n in range(start, start + 20)])
    t.insert([{"id": 60, "v": 1}, {"id": 61, "v": 0}])
    with lake.transaction() as tx:
        inside = tx.table(t.name)
        inside.update({"v": 2}, "id = 5")
        with pytest.raises(il.IndexLakeError):
            inside.update({"v": il.expr("9223372036854775807 + v")}, "true")
        with pytest.raises(il.IndexLakeError):
            inside.update({"id": il.expr("case when v = 0 then null else id end")}, "true")
        with pytest.raises(il.IndexLakeError):
            inside.delete("cast(case when v = 0 then 'x' else '1' end as bigint) = 1")
        with pytest.raises(il.ConstraintError):
            inside.insert([{"id": 99, "v": 1}, {"id": None, "v": 1}])
        assert len(inside) == 62
        assert sorted(r["id"] for r in inside.scan().to_pylist()) == list(range(62))
    assert len(t) == 62
    assert t.get(5) == {"id": 5, "v": 2}
    assert t.get(45) == {"id": 45, "v": 0}


def test_first_committer_wins_and_the_loser_changes_nothing(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    for key in (2, 12, 25):
        for change in (
            lambda k, x: x.update({"city": "loser"}, "id = $k", params={"k": k}),
            lambda k, x: x.delete("id = $k", params={"k": k}),
            lambda k, x: x.scan("id = $k", params={"k": k}, for_update=True).to_pylist(),
        ):
            tx = lake.transaction()
            change(key, tx.table(t.name))
            tx.table(t.name).insert(row(key + 1000))
            t.update({"city": "winner"}, "id = $k", params={"k": key})
            with pytest.raises(il.ConflictError, match="Run it again") as caught:
                tx.commit()
            assert caught.value.retryable
            assert caught.value.table == t.name
            assert t.get(key)["city"] == "winner"
            assert t.get(key + 1000) is None
            assert tx.state == "failed"


def test_disjoint_rows_of_one_table_do_not_conflict(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    tx = lake.transaction()
    tx.table(t.name).update({"city": "a"}, "id in (2, 12, 25)")
    t.update({"city": "b"}, "id in (3, 13, 26)")
    t.delete("id in (4, 14, 27)")
    t.insert(row(40))
    tx.commit()
    found = {r["id"]: r["city"] for r in content(t)}
    assert [found[n] for n in (2, 12, 25, 3, 13, 26)] == ["a"] * 3 + ["b"] * 3
    assert len(found) == 28


def test_a_dump_between_read_and_commit_is_no_conflict(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    tx = lake.transaction()
    inside = tx.table(t.name)
    inside.update({"city": "x"}, "id in (2, 9, 12, 25)")
    inside.delete("id in (3, 13, 26)")
    inside.insert(row(41))
    dump(t)
    tx.commit()
    assert [r["id"] for r in content(t)] == [n for n in [*range(1, 31), 41] if n not in (3, 13, 26)]
    assert [t.get(n)["city"] for n in (2, 9, 12, 25)] == ["x"] * 4


def test_write_skew_is_possible_and_for_update_prevents_it(lake: il.Lake, make: Any) -> None:
    for locking in (False, True):
        t = make(pa.schema({"id": pa.int64(), "on_call": pa.bool_()}), "id")
        t.insert([{"id": 1, "on_call": True}, {"id": 2, "on_call": True}])
        transactions = [lake.transaction(), lake.transaction()]
        for me, tx in enumerate(transactions, 1):
            inside = tx.table(t.name)
            assert len(inside.scan("on_call", for_update=locking).to_pylist()) == 2
            inside.update({"on_call": False}, "id = $me", params={"me": me})
        transactions[0].commit()
        if locking:
            with pytest.raises(il.ConflictError):
                transactions[1].commit()
        else:
            transactions[1].commit()
        assert t.scan("on_call").count() == (1 if locking else 0)


def test_counting_for_update_locks_the_rows_too(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    tx = lake.transaction()
    assert tx.table(t.name).scan("id = 12", for_update=True).count() == 1
    tx.table(t.name).insert(row(90))
    t.update({"city": "x"}, "id = 12")
    with pytest.raises(il.ConflictError):
        tx.commit()


def test_a_key_inserted_by_another_commit_is_refused(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    for dumped in (False, True):
        key = 200 + dumped
        tx = lake.transaction()
        tx.table(t.name).insert(row(key))
        t.insert(row(key))
        if dumped:
            dump(t)
        with pytest.raises(il.DuplicateKeyError):
            tx.commit()
        assert t.scan("id = $k", params={"k": key}).count() == 1


@pytest.mark.parametrize("large", [False, True], ids=["row", "block"])
def test_a_new_row_that_is_updated_again_still_has_its_key_checked(lake: il.Lake, make: Any, large: bool) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=10)
    t.insert(rows(range(5)))
    for change in ({"city": "mine"}, {"id": 71, "city": "mine"}):
        tx = lake.transaction()
        inside = tx.table(t.name)
        inside.insert(rows(range(70, 90)) if large else row(70))
        inside.update(change, "id = 70")
        inside.delete("id > 71" if "id" in change else "id > 70") if large else None
        if "id" in change and large:
            tx.rollback()
            continue
        inside.update({"total": 0.0}, "city = 'mine'")
        taken = change.get("id", 70)
        t.insert({"id": taken, "city": "theirs"})
        with pytest.raises(il.DuplicateKeyError):
            tx.commit()
        assert t.scan("id = $k", params={"k": taken}).to_pylist() == [{"id": taken, "city": "theirs", "total": None}]
        t.delete("id >= 70")


def test_a_row_moved_to_a_new_key_and_updated_again_still_has_its_key_checked(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    tx = lake.transaction()
    inside = tx.table(t.name)
    inside.update({"id": 300}, "id = 2")
    inside.update({"city": "x"}, "id = 300")
    t.insert(row(300))
    with pytest.raises(il.DuplicateKeyError):
        tx.commit()
    assert len(t) == 31


def test_insert_delete_and_insert_of_one_key_in_one_transaction(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    with lake.transaction() as tx:
        inside = tx.table(t.name)
        for n in (2, 12, 25):
            inside.delete("id = $n", params={"n": n})
            inside.insert({"id": n, "city": "first"})
            inside.delete("id = $n", params={"n": n})
            inside.insert({"id": n, "city": "second"})
    assert [t.get(n)["city"] for n in (2, 12, 25)] == ["second"] * 3
    assert len(t) == 30


def test_truncate_in_a_transaction_counts_each_row_once(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    with lake.transaction() as tx:
        inside = tx.table(t.name)
        inside.delete("id <= 5")
        inside.update({"city": "x"}, "id <= 10")
        inside.truncate()
        assert len(inside) == 0
        assert inside.get(15) is None
        inside.insert(rows([1, 2]))
        assert content(inside) == rows([1, 2])
    assert tx.result is not None
    assert (tx.result.deleted, tx.result.inserted) == (30, 2)
    assert content(t) == rows([1, 2])


def test_a_truncate_of_its_own_is_blind_and_one_in_a_transaction_is_not(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    truncating, changing = lake.transaction(), lake.transaction()
    truncating.table(t.name).truncate()
    changing.table(t.name).update({"city": "x"}, "id = 12")
    t.insert(row(40))
    with pytest.raises(il.ConflictError, match="changed by another commit after it began"):
        truncating.commit()
    assert t.truncate().deleted == 31
    with pytest.raises(il.ConflictError):
        changing.commit()
    assert len(t) == 0


def test_a_transaction_belongs_to_its_thread(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    tx = lake.transaction()
    errors: list[BaseException] = []

    def use() -> None:
        try:
            tx.table(t.name).insert(row(1))
        except il.OwnershipError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "thread that began it" in str(errors[0])
    tx.rollback()


def test_a_table_made_after_the_transaction_began_is_not_seen_by_it(lake: il.Lake, make: Any) -> None:
    old = tiered(make)
    tx = lake.transaction()
    new = make(SCHEMA, "id")
    new.insert(row(1))
    with pytest.raises(il.NotFoundError):
        tx.table(new.name)
    lake.drop_table(old.name)
    assert content(tx.table(old.name)) == EVERYTHING
    tx.table(old.name).insert(row(99))
    with pytest.raises(il.NotFoundError, match="was dropped by another commit"):
        tx.commit()


def test_an_empty_transaction_commits_nothing(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id
    with lake.transaction() as tx:
        assert len(tx.table(t.name)) == 30
    assert lake.snapshot_id == before
    assert tx.result == il.WriteResult(0, before)


# ---------------------------------------------------------------- tokens


def test_a_write_repeated_with_its_token_returns_the_first_result(lake: il.Lake, make: Any, namespace: str) -> None:
    t = tiered(make)
    writes = {
        "insert": lambda token: t.insert([row(50), row(51)], token=token),
        "large": lambda token: t.insert(pa.Table.from_pylist(rows(range(60, 80)), SCHEMA), token=token),
        "update": lambda token: t.update({"total": il.expr("id + 1")}, "id in (2, 12, 25)", token=token),
        "delete": lambda token: t.delete("id in (3, 13, 26)", token=token),
        "nothing": lambda token: t.delete("id > 9999", token=token),
    }
    first = {name: write(f"{namespace}-{name}") for name, write in writes.items()}
    state, last = content(t), lake.snapshot_id
    assert [first[n].rows for n in writes] == [2, 20, 3, 3, 0]
    for name, write in writes.items():
        assert write(f"{namespace}-{name}") == first[name]
    dump(t)
    last = lake.snapshot_id
    for name, write in writes.items():
        assert write(f"{namespace}-{name}") == first[name]
    assert (content(t), lake.snapshot_id) == (state, last)
    truncated = t.truncate(token=f"{namespace}-truncate")
    t.insert(row(1))
    assert t.truncate(token=f"{namespace}-truncate") == truncated
    assert len(t) == 1


def test_a_transaction_repeated_with_its_token_returns_the_first_result(
    lake: il.Lake, make: Any, namespace: str
) -> None:
    t = tiered(make)
    results = []
    for _ in range(3):
        with lake.transaction(token=namespace) as tx:
            tx.table(t.name).insert(row(40))
            tx.table(t.name).update({"total": il.expr("total + 1")}, "id = 1")
        results.append(tx.result)
    assert results == [results[0]] * 3
    assert len(t) == 31
    assert t.get(1)["total"] == row(1)["total"] + 1


def test_a_run_repeated_with_its_token_happens_once(lake: il.Lake, make: Any, namespace: str) -> None:
    t = tiered(make)

    def work(tx: il.Transaction) -> str:
        tx.table(t.name).update({"total": il.expr("total + 1")}, "id = 1")
        return "done"

    assert [lake.run(work, token=namespace) for _ in range(3)] == ["done"] * 3
    assert t.get(1)["total"] == row(1)["total"] + 1


def test_a_token_inside_a_transaction_is_refused(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    with lake.transaction() as tx, pytest.raises(il.OwnershipError, match="token belongs to it"):
        tx.table(t.name).insert(row(1), token="x")


# ---------------------------------------------------------------- lake.run


def test_run_repeats_a_function_until_it_wins(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    seen: list[float] = []

    def add(tx: il.Transaction) -> float:
        inside = tx.table(t.name)
        total = inside.get(12)["total"]
        seen.append(total)
        if len(seen) < 4:
            t.update({"total": il.expr("total + 10")}, "id = 12")
        inside.update({"total": total + 1}, "id = 12")
        return float(total)

    assert lake.run(add) == row(12)["total"] + 30
    assert len(seen) == 4
    assert t.get(12)["total"] == row(12)["total"] + 31


def test_run_gives_up_after_its_retries_and_passes_other_errors_on(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    calls = 0

    def lose(tx: il.Transaction) -> None:
        nonlocal calls
        calls += 1
        tx.table(t.name).update({"city": "lost"}, "id = 12")
        t.update({"city": f"won {calls}"}, "id = 12")

    with pytest.raises(il.ConflictError):
        lake.run(lose, retries=2)
    assert calls == 3
    assert t.get(12)["city"] == "won 3"

    def fail(tx: il.Transaction) -> None:
        tx.table(t.name).delete("true")
        raise KeyError("mine")

    with pytest.raises(KeyError):
        lake.run(fail)
    assert len(t) == 30


def test_a_single_statement_that_loses_is_run_again_by_itself(lake: il.Lake, make: Any) -> None:
    t = make(pa.schema({"id": pa.int64(), "n": pa.int64()}), "id")
    t.insert({"id": 1, "n": 0})
    dump(t)

    def add() -> None:
        for _ in range(5):
            t.update({"n": il.expr("n + 1")}, "id = 1")

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert t.get(1) == {"id": 1, "n": 15}
