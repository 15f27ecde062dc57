"""What a transaction defines is its own until it commits: tables, columns, indexes, schemas and the like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.crash.failing import failing, picture
from tests.support.lakes import connect

Pair = tuple[il.Lake, il.Lake]
T = {"id": "int64", "v": "string"}


def rows(table: il.Table) -> list[dict[str, Any]]:
    return table.scan(order_by=["id"]).to_pylist()


@pytest.fixture
def pair(any_two_handles: Pair) -> Pair:
    """A lake with a table of two rows, opened twice."""
    one, _ = any_two_handles
    one.create_table("t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], primary_key="id")
    return any_two_handles


# ---------------------------------------------------------------- what it sees, and what others see


def test_a_new_table_is_written_and_read_before_anyone_else_sees_it(pair: Pair) -> None:
    lake, other = pair
    before = lake.snapshot_id
    with lake.transaction() as tx:
        n = tx.create_table("s.n", T, primary_key="id")
        n.insert([{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
        n.update({"v": "z"}, "id = 2")
        n.upsert({"id": 3, "v": "new"})
        n.delete("id = 1")
        assert rows(n) == [{"id": 2, "v": "z"}, {"id": 3, "v": "new"}]
        assert n.get(2) == {"id": 2, "v": "z"}
        assert n.get_many([1, 2]).to_pylist() == [{"id": 2, "v": "z"}]
        assert tx.tables() == ["main.t", "s.n"]
        assert tx.namespaces() == ["main", "s"]
        for someone in pair:
            assert (someone.tables(), someone.namespaces()) == (["main.t"], ["main"])
        assert other.snapshot_id == before
    assert lake.snapshot_id == before + 1
    for someone in pair:
        assert someone.tables() == ["main.t", "s.n"]
        assert rows(someone.table("s.n")) == [{"id": 2, "v": "z"}, {"id": 3, "v": "new"}]
        assert someone.at(before).tables() == ["main.t"]
    other.table("s.n").insert({"id": 4, "v": "later"})
    ids = lake.table("s.n").scan(with_row_id=True).to_arrow().column("_indexlake_row_id").to_pylist()
    assert len(set(ids)) == 3
    assert [c["_change_type"] for c in lake.table("s.n").changes(since=before).to_pylist()] == ["insert"] * 3


def test_altered_columns_are_its_own_until_it_commits(pair: Pair) -> None:
    lake, other = pair
    before = lake.snapshot_id
    with lake.transaction() as tx:
        t = tx.table("t")
        t.insert({"id": 3, "v": "c"})
        t.add_column("w", "int64", default=7)
        t.update({"w": 8}, "id = 1")
        t.insert({"id": 4, "v": "d", "w": 9})
        t.rename_column("v", "name")
        t.set_default("name", "none")
        t.insert({"id": 5})
        seen = rows(t)
        assert [r["w"] for r in seen] == [8, 7, 7, 9, 7]
        assert [r["name"] for r in seen] == ["a", "b", "c", "d", "none"]
        assert t.get(2) == {"id": 2, "name": "b", "w": 7}
        assert t.scan("w = 7 and name <> 'b'", columns=["id"]).to_pylist() == [{"id": 3}, {"id": 5}]
        for someone in pair:
            assert rows(someone.table("t")) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert rows(lake.table("t")) == rows(other.table("t")) == seen
    assert rows(other.table("t").at(before)) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    kinds = [c["_change_type"] for c in other.table("t").changes(since=before).to_pylist()]
    assert sorted(kinds) == ["insert"] * 3 + ["update_postimage", "update_preimage"]


def test_it_sees_the_definitions_of_its_snapshot_and_its_own(pair: Pair) -> None:
    """Whatever others have defined since, even if they have swapped names."""
    lake, other = pair
    for name in ("a", "b", "dropped"):
        lake.create_table(name, [{"id": 1, "v": name}])
    lake.sql("create view seen as select 1 as one")
    with lake.transaction() as tx:
        other.table("a").rename("x")
        other.table("b").rename("a")
        other.table("x").rename("b")
        other.drop_table("dropped")
        other.create_table("later", T)
        other.sql("drop view seen; create schema later; create view later.w as select 2 as two")
        tx.create_table("own", T)
        assert tx.tables() == ["main.a", "main.b", "main.dropped", "main.own", "main.t"]
        assert tx.namespaces() == ["main"]
        assert [rows(tx.table(n))[0]["v"] for n in ("a", "b", "dropped")] == ["a", "b", "dropped"]
        assert tx.sql("select one from seen").scalar() == 1
        with pytest.raises(il.NotFoundError):
            tx.table("later")
    assert lake.tables() == ["main.a", "main.b", "main.later", "main.own", "main.t"]
    assert rows(lake.table("a"))[0]["v"] == "b"


def test_rows_that_others_commit_meanwhile_stay_out_of_sight_and_are_kept(pair: Pair) -> None:
    lake, other = pair
    with lake.transaction() as tx:
        t = tx.table("t")
        t.add_column("w", "int64", default=7)
        other.table("t").insert({"id": 3, "v": "theirs"})
        assert [r["id"] for r in rows(t)] == [1, 2]
        t.insert({"id": 4, "v": "mine", "w": 1})
    assert [(r["id"], r["w"]) for r in rows(other.table("t"))] == [(1, 7), (2, 7), (3, 7), (4, 1)]


def test_rows_in_files_are_read_with_the_columns_it_has_defined(pair: Pair) -> None:
    lake, _ = pair
    lake.pipeline("threads").dump("t")
    with lake.transaction() as tx:
        t = tx.table("t")
        t.add_column("w", "int32", default=7)
        t.widen_column("w", "float64")
        t.update({"w": 0.5}, "id = 2")
        t.rename("renamed")
        assert rows(tx.table("renamed")) == [{"id": 1, "v": "a", "w": 7.0}, {"id": 2, "v": "b", "w": 0.5}]
    assert rows(lake.table("renamed")) == [{"id": 1, "v": "a", "w": 7.0}, {"id": 2, "v": "b", "w": 0.5}]
    lake.pipeline("threads").dump("renamed")
    assert rows(lake.table("renamed")) == [{"id": 1, "v": "a", "w": 7.0}, {"id": 2, "v": "b", "w": 0.5}]
    assert not lake.pipeline("threads").verify().problems


@pytest.mark.parametrize("layout", ["heap", "clustered"])
def test_many_rows_of_a_new_table_go_to_files(pair: Pair, layout: str) -> None:
    lake, other = pair
    with lake.transaction() as tx:
        n = tx.create_table("n", {"id": "int64"}, primary_key="id", layout=layout)
        n.insert([{"id": n} for n in range(20_000)])
        n.insert({"id": 20_000})
        n.delete("id < 10")
        assert len(n) == 19_991
    assert other.table("n").count("id >= 10") == 19_991
    other.table("n").add_column("w", "int64", default=1)
    assert other.sql("select sum(id * w) from n").scalar() == sum(range(10, 20_001))
    other.table("n").insert({"id": 5, "w": 2})
    with pytest.raises(il.DuplicateKeyError):
        lake.table("n").insert({"id": 15_000})
    assert not lake.pipeline("threads").verify().problems


def test_a_table_that_it_drops_takes_its_writes_along(pair: Pair) -> None:
    lake, other = pair
    with lake.transaction() as tx:
        tx.table("t").insert({"id": 3, "v": "lost"})
        tx.drop_table("t")
        with pytest.raises(il.NotFoundError, match=r"no table 'main\.t'"):
            tx.table("t")
        tx.create_table("t", [{"other": 1.5}])
        tx.create_table("gone", T).insert({"id": 1})
        tx.drop_table("gone")
    assert other.tables() == ["main.t"]
    assert other.table("t").scan().to_pylist() == [{"other": 1.5}]


def test_an_index_is_built_after_the_commit_and_a_unique_one_holds_from_the_start(pair: Pair) -> None:
    lake, other = pair
    lake.pipeline("threads").dump("t")
    with lake.transaction() as tx:
        tx.table("t").create_index("by_v", "v")
        assert tx.table("t").scan("v = 'b'", columns=["id"]).to_pylist() == [{"id": 2}]
        n = tx.create_table("n", T)
        n.create_index("once", "v", unique=True)
        n.insert([{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
        assert other.table("t").indexes() == []
        with pytest.raises(il.OwnershipError, match="cannot be created inside a transaction: all rows have to be"):
            tx.table("t").create_index("unique_v", "v", unique=True)
    (info,) = other.table("t").indexes()
    assert (info.name, info.state, info.rows_uncovered) == ("by_v", "ready", 0)
    with pytest.raises(il.DuplicateKeyError, match="unique index 'once'"):
        other.table("n").insert({"id": 3, "v": "x"})
    with lake.transaction() as tx:
        tx.table("t").drop_index("by_v")
        assert len(other.table("t").indexes()) == 1
    assert other.table("t").indexes() == []


def test_keys_of_a_new_table_are_compared_when_it_commits(pair: Pair) -> None:
    lake, _ = pair
    tx = lake.transaction()
    n = tx.create_table("n", T, primary_key="id")
    n.insert({"id": 1})
    n.insert({"id": 1})
    with pytest.raises(il.DuplicateKeyError, match="given twice"):
        tx.commit()
    assert lake.tables() == ["main.t"]


# ---------------------------------------------------------------- nothing is left behind


def define_everything(tx: il.Transaction) -> None:
    tx.create_namespace("s")
    tx.create_table("s.n", T, primary_key="id").insert({"id": 1, "v": "x"})
    t = tx.table("t")
    t.add_column("w", "int64", default=1)
    t.insert({"id": 9, "v": "i", "w": 2})
    t.create_index("by_w", "w")
    t.rename("s.moved")
    tx.sql("create view s.v as select * from s.moved; create macro s.m(a) as a + 1; create type s.e as enum ('a')")
    tx.create_table("big", [{"id": n} for n in range(12_000)])


def check_everything(lake: il.Lake) -> None:
    assert lake.tables() == ["main.big", "s.moved", "s.n"]
    assert [r["id"] for r in rows(lake.table("s.moved"))] == [1, 2, 9]
    assert lake.sql("select sum(w), s.m(1) from s.v").fetchall() == [(4, 2)]
    assert lake.table("big").count() == 12_000
    assert lake.table("s.n").get(1) == {"id": 1, "v": "x"}


def test_a_rollback_leaves_nothing(pair: Pair) -> None:
    lake, other = pair
    before = picture(lake), lake.snapshot_id
    tx = lake.transaction()
    define_everything(tx)
    tx.rollback()
    with lake.transaction() as tx:
        define_everything(tx)
        tx.rollback()
    for someone in pair:
        assert (picture(someone), someone.snapshot_id) == before
    with other.transaction() as tx:
        define_everything(tx)
    for someone in pair:
        check_everything(someone)


def test_a_definition_that_is_refused_leaves_the_transaction_as_it_was(pair: Pair) -> None:
    lake, _ = pair
    with lake.transaction() as tx:
        tx.create_table("n", T)
        for wrong in (
            lambda: tx.create_table("n", T),
            lambda: tx.create_table("t", T),
            lambda: tx.table("t").add_column("v", "int64"),
            lambda: tx.drop_namespace("main"),
            lambda: tx.table("n").rename("t"),
            lambda: tx.table("t").add_check("id > 1", "more"),
            lambda: tx.sql("create view n as select 1"),
        ):
            with pytest.raises(il.IndexLakeError):
                wrong()
        tx.table("n").insert({"id": 1, "v": "kept"})
        tx.table("t").insert({"id": 0, "v": "kept"})
    assert lake.tables() == ["main.n", "main.t"]
    assert lake.table("t").checks() == {}
    assert (len(lake.table("n")), len(lake.table("t"))) == (1, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tx: tx.create_table("n", pa.table({"id": range(70_000)}), replace=True, checks=["id < 69999"]),
        lambda tx: tx.create_table("m", pa.table({"id": range(9)}), checks=["id < 8"]),
        lambda tx: tx.sql("create or replace table n as select cast(v as bigint) as x from t"),
        lambda tx: tx.sql("alter table big alter v type bigint using length(v)"),
        lambda tx: tx.sql("alter table t alter v type bigint using cast(v as bigint)"),
        lambda tx: tx.table("t").add_check("id < 3"),
        lambda tx: tx.sql("alter table t alter v set not null"),
        lambda tx: tx.sql("alter table n alter v type bigint using cast(v as bigint)"),
    ],
)
def test_a_definition_of_several_steps_that_fails_leaves_the_transaction_as_it_was(
    pair: Pair, wrong: Callable[[il.Transaction], object]
) -> None:
    """Whichever of its steps is refused; all its writes are kept, and it can go on."""
    lake, other = pair
    lake.table("t").set_config(direct_write_row_count=2)
    lake.create_table("big", rows(lake.table("t")), config=il.TableConfig(direct_write_row_count=2))
    with lake.transaction() as tx:
        tx.create_table("n", T, primary_key="id").insert({"id": 1, "v": "kept"})
        tx.table("t").insert([{"id": 3, "v": None}, {"id": 4, "v": "kept"}])
        tx.table("t").update({"v": "changed"}, "id = 1")
        with pytest.raises(il.IndexLakeError):
            wrong(tx)
        assert tx.table("n").get(1) == {"id": 1, "v": "kept"}
        assert [r["v"] for r in rows(tx.table("t"))] == ["changed", "b", None, "kept"]
        tx.table("n").insert({"id": 2, "v": "also"})
        tx.table("t").delete("id = 2")
    assert [r["v"] for r in rows(other.table("n"))] == ["kept", "also"]
    assert rows(other.table("t")) == [{"id": 1, "v": "changed"}, {"id": 3, "v": None}, {"id": 4, "v": "kept"}]
    assert other.tables() == ["main.big", "main.n", "main.t"]
    assert rows(other.table("big")) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert other.table("t").checks() == {}
    assert not lake.pipeline("threads").verify().problems


def test_a_column_of_a_new_table_gets_another_type_whatever_others_commit(pair: Pair) -> None:
    lake, other = pair
    with lake.transaction() as tx:
        tx.create_table("n", [{"id": 1, "v": "12"}])
        tx.sql("alter table n alter v type bigint")
        other.create_table("m", T)
        assert rows(tx.table("n")) == [{"id": 1, "v": 12}]
        tx.sql("alter table t rename v to w; alter table t alter w type bigint using length(w)")
    assert rows(lake.table("n")) == [{"id": 1, "v": 12}]


@pytest.mark.parametrize("prefix", ["sql.", "commit.", "file."])
def test_whichever_call_fails_everything_is_there_or_nothing(any_lake: il.Lake, prefix: str) -> None:
    any_lake.create_table("t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], primary_key="id")
    before = picture(any_lake)
    with failing(prefix, nth=1 << 30) as calls, any_lake.transaction() as tx:
        define_everything(tx)
        tx.rollback()
    at = {*range(1, calls.count, max(1, calls.count // 30)), *range(max(1, calls.count - 10), calls.count + 60)}
    for nth in sorted(at):
        with failing(prefix, nth=nth) as failure:
            try:
                with any_lake.transaction() as tx:
                    define_everything(tx)
            except (il.IndexLakeError, OSError):
                assert failure.fired is not None
                assert picture(any_lake) == before
                continue
        break
    else:
        with any_lake.transaction() as tx:
            define_everything(tx)
    check_everything(any_lake)
    assert not any_lake.pipeline("threads").verify().problems


SCRIPT = """
import sys
import indexlake as il
from tests.evolution.test_definitions_in_transactions import define_everything
with il.connect(sys.argv[1], automatic=False, hot=sys.argv[2]) as lake:
    with lake.transaction() as tx:
        define_everything(tx)
"""


@pytest.mark.parametrize("hot", ["inline", "memory"])
@pytest.mark.parametrize("step", ["sql.commit.after", "commit.begin", "commit.validated", "commit.applied"])
def test_a_kill_before_the_commit_leaves_nothing(tmp_path: Path, hot: str, step: str) -> None:
    with connect(tmp_path, hot=hot) as lake:
        lake.create_table("t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], primary_key="id")
        lake.table("t").update({"v": "c"}, "id = 2")
        before = picture(lake)
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), hot], check=False, capture_output=True,
        env={**os.environ, "INDEXLAKE_FAULTS": f"{step}=kill"},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with connect(tmp_path) as lake:
        assert picture(lake) == before
        with lake.transaction() as tx:
            define_everything(tx)
        check_everything(lake)
    with connect(tmp_path) as lake:
        check_everything(lake)
        assert not lake.pipeline("threads").verify().problems


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_what_was_committed_survives_a_kill(tmp_path: Path, hot: str) -> None:
    with connect(tmp_path, hot=hot) as lake:
        lake.create_table("t", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], primary_key="id")
    after = """
    lake.table("s.n").update({"v": "later"}, "id = 1")
    lake.table("s.n").insert({"id": 2})
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT.rstrip() + after, str(tmp_path), hot], check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with connect(tmp_path) as lake:
        assert rows(lake.table("s.n")) == [{"id": 1, "v": "later"}, {"id": 2, "v": None}]
        lake.table("s.n").update({"v": "x"}, "id = 1")
        lake.table("s.n").delete("id = 2")
        check_everything(lake)
        assert not lake.pipeline("threads").verify().problems


# ---------------------------------------------------------------- conflicts


def alter(lake: il.Lake | il.Transaction) -> None:
    lake.table("t").add_column("w", "int64")


def drop(lake: il.Lake | il.Transaction) -> None:
    lake.drop_table("t")


def rename(lake: il.Lake | il.Transaction) -> None:
    lake.table("t").rename("renamed")


@pytest.mark.parametrize("mine", [alter, drop, rename])
@pytest.mark.parametrize("theirs", [alter, drop, rename])
def test_the_first_to_change_a_definition_wins(
    pair: Pair, mine: Callable[[Any], None], theirs: Callable[[Any], None]
) -> None:
    lake, other = pair
    tx = lake.transaction()
    mine(tx)
    theirs(other)
    after = picture(other)
    with pytest.raises(il.ConflictError, match="was changed by another commit after it began"):
        tx.commit()
    assert picture(lake) == after


def test_a_conflict_shows_as_soon_as_the_transaction_looks(pair: Pair) -> None:
    lake, other = pair
    with lake.transaction() as tx:
        other.table("t").add_column("w", "int64")
        with pytest.raises(il.ConflictError, match=r"'main\.t'.*was changed by another commit"):
            tx.table("t").add_column("x", "int64")
        with pytest.raises(il.ConflictError, match=r"'main\.t'.*was changed by another commit"):
            tx.table("t").rename_column("v", "w")  # a name that only the other one has given
        tx.create_table("n", T)
        assert tx.table("t").schema.names == ["id", "v"]
        other.drop_table("t")
        with pytest.raises(il.ConflictError, match=r"'main\.t'.*was changed by another commit"):
            tx.table("t").drop_column("v")
    assert lake.tables() == ["main.n"]


@pytest.mark.parametrize("name", ["n", "s.n"])
def test_a_name_that_another_commit_has_taken_is_refused(pair: Pair, name: str) -> None:
    lake, other = pair
    tx = lake.transaction()
    tx.create_table(name, T).insert({"id": 1})
    other.create_table(name, T).insert({"id": 2})
    with pytest.raises(il.AlreadyExistsError, match="already exists"):
        tx.commit()
    assert rows(lake.table(name)) == [{"id": 2, "v": None}]


def test_a_table_to_create_if_there_is_none_is_a_conflict_if_there_is_one_by_then(pair: Pair) -> None:
    lake, other = pair

    def fill(tx: il.Transaction) -> None:
        tx.create_table("n", T, exist_ok=True).insert({"id": 1})
        if not other.table("t").count("id = 77"):
            other.table("t").insert({"id": 77})
            other.create_table("n", T).insert({"id": 2})

    lake.run(fill)  # runs again
    assert [r["id"] for r in rows(lake.table("n"))] == [1, 2]
    tx = lake.transaction()
    tx.create_table("m", T, exist_ok=True)
    other.create_table("m", T)
    with pytest.raises(il.ConflictError, match="has created or dropped what this transaction defines"):
        tx.commit()


def test_what_others_have_built_on_a_column_that_it_drops_is_a_conflict(pair: Pair) -> None:
    lake, other = pair
    tx = lake.transaction()
    tx.table("t").drop_column("v")
    other.table("t").create_index("by_v", "v")
    with pytest.raises(il.ConflictError, match=r"Another commit has changed what .* index 'by_v' needs it"):
        tx.table("t")
    with pytest.raises(il.ConflictError, match=r"Another commit has changed what .* index 'by_v' needs it"):
        tx.commit()
    assert rows(lake.table("t")) == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def test_a_table_that_it_has_not_seen_is_not_replaced(pair: Pair) -> None:
    lake, other = pair
    tx = lake.transaction()
    tx.create_table("n", T, replace=True)
    other.create_table("n", T).insert({"id": 2})
    with pytest.raises(il.ConflictError, match="has created or dropped what this transaction defines"):
        tx.commit()
    assert rows(lake.table("n")) == [{"id": 2, "v": None}]


def test_schemas_and_views_that_two_create_are_refused(pair: Pair) -> None:
    lake, other = pair
    for text in ("create schema s", "create view v as select 1", "create macro m() as 1", "create type e as integer"):
        tx = lake.transaction()
        tx.sql(text)
        other.sql(text)
        with pytest.raises(il.AlreadyExistsError):
            tx.commit()


def test_both_may_create_tables_in_a_schema_that_neither_has_seen(pair: Pair) -> None:
    lake, other = pair
    with lake.transaction() as tx:
        tx.create_table("s.one", T).insert({"id": 1})
        other.create_table("s.two", T).insert({"id": 2})
    assert lake.tables() == ["main.t", "s.one", "s.two"]
    assert (rows(lake.table("s.one"))[0]["id"], rows(lake.table("s.two"))[0]["id"]) == (1, 2)


def test_a_rule_for_all_rows_conflicts_with_rows_that_it_did_not_see(pair: Pair) -> None:
    lake, other = pair
    for text in (
        "alter table t add check (id < 3)",
        "alter table t alter v set not null",
        "alter table t alter id set not null; alter table t alter v type blob",
    ):
        tx = lake.transaction()
        tx.sql(text)
        other.sql("insert into t values ((select max(id) + 1 from t), null)")
        with pytest.raises(il.ConflictError, match=r"depends on all rows of 'main\.t'"):
            tx.commit()
        other.table("t").delete("id > 2")
    with lake.transaction() as tx:
        tx.sql("alter table t add check (id < 3)")
    with pytest.raises(il.ConstraintError):
        other.table("t").insert({"id": 3, "v": "c"})


def test_rows_of_a_transaction_that_began_before_are_adapted_or_refused(pair: Pair) -> None:
    lake, other = pair
    adds, checks = other.transaction(), other.transaction()
    adds.table("t").insert({"id": 10, "v": "x"})
    with lake.transaction() as tx:
        tx.table("t").add_column("w", "int64", default=7)
        tx.table("t").rename_column("v", "name")
    adds.commit()
    assert lake.table("t").get(10) == {"id": 10, "name": "x", "w": 7}
    checks.table("t").insert({"id": 11, "v": "y"})
    with lake.transaction() as tx:
        tx.table("t").add_check("id < 11")
    with pytest.raises(il.ConflictError, match="got a new rule"):
        checks.commit()


def test_a_commit_looks_again_at_rows_that_came_meanwhile(
    pair: Pair, on_step: Callable[[Callable[[str], None] | None], object]
) -> None:
    lake, other = pair
    added: list[int] = []

    def add(step: str) -> None:
        if step == "commit.begin" and not added:
            added.append(1)
            other.table("t").insert([{"id": n} for n in range(100, 20_100)])

    tx = lake.transaction()
    tx.table("t").insert([{"id": n} for n in range(30_000, 30_100)])
    tx.table("t").add_column("w", "int64")
    tx.create_table("n", T, primary_key="id").insert([{"id": n} for n in range(100)])
    on_step(add)
    tx.commit()
    assert added
    assert (lake.table("t").count(), lake.table("n").count()) == (20_102, 100)
    tx = lake.transaction()
    tx.table("t").insert({"id": 50_000})
    tx.create_table("m", T, primary_key="id").insert({"id": 1})
    other.table("t").insert([{"id": n} for n in range(40_000, 60_000)])
    with pytest.raises(il.DuplicateKeyError, match="50000 already exists"):
        tx.commit()
    assert lake.tables() == ["main.n", "main.t"]


def test_definitions_are_committed_among_writes_of_other_threads(any_lake: il.Lake) -> None:
    from concurrent.futures import ThreadPoolExecutor

    any_lake.create_table("t", T)

    def work(n: int) -> None:
        def apply(tx: il.Transaction) -> None:
            tx.create_table(f"n{n}", T).insert({"id": n})
            tx.table("t").insert({"id": n})

        any_lake.run(apply)
        for _ in range(5):
            any_lake.table("t").insert({"id": 100})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert [rows(any_lake.table(f"n{n}"))[0]["id"] for n in range(8)] == list(range(8))
    assert any_lake.table("t").count() == 48


def test_a_token_names_a_transaction_with_definitions(pair: Pair) -> None:
    lake, other = pair
    for someone in (lake, other):
        someone.sql("begin; create table n (a int); insert into n values (1); commit", token="once")
    assert lake.table("n").count() == 1


def test_temporary_definitions_are_undone_with_their_transaction_and_no_others(lake: il.Lake) -> None:
    lake.sql("create temp view a as select 1 as x; create temp macro m() as 1")
    tx = lake.transaction()
    tx.sql("create or replace temp view a as select 2 as x; create temp view b as select 3; drop macro m")
    lake.sql("create temp view meanwhile as select 9")
    assert tx.sql("select a.x + (select * from b) from a").scalar() == 5
    tx.rollback()
    assert lake.sql("select x + m() from a").scalar() == 2
    assert lake.sql("select * from meanwhile").scalar() == 9
    with pytest.raises(il.NotFoundError):
        lake.sql("select * from b")
