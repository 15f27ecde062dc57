"""Sequences: no number is given out twice, whoever asks, whatever becomes of the one who asked."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import indexlake as il


def _take(location: str, count: int, into: Any) -> None:
    with il.connect(location, automatic=False) as lake:
        into.put([lake.sql("select nextval('s')").scalar() for _ in range(count)])


@pytest.mark.inline_only("another process opens the lake")
def test_threads_and_processes_get_numbers_of_their_own(tmp_path: Path) -> None:
    location = str(tmp_path / "lake")
    with il.connect(location, automatic=False) as lake:
        lake.sql("create sequence s; create table t (id bigint primary key default nextval('s'), v int)")
        spawn = multiprocessing.get_context("spawn")
        queue = spawn.Queue()
        other = spawn.Process(target=_take, args=(location, 40, queue))
        other.start()
        table = lake.table("t")

        def insert(n: int) -> None:
            table.insert([{"v": n}, {"v": n}] if n % 2 else {"v": n})

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(insert, range(40)))
            taken = list(threads.map(lambda n: lake.sql("select nextval('s')").scalar(), range(40)))
        taken += queue.get(timeout=60)
        other.join(60)
        stored = table.scan().to_arrow().column("id").to_pylist()
        assert len(stored) == 60
        assert sorted(stored + taken) == list(range(1, 141))
    with il.connect(location, automatic=False) as lake:
        assert lake.sql("select nextval('s')").scalar() == 141
        with pytest.raises(il.ConstraintError, match="currval"):
            lake.sql("create sequence other; select currval('other')")


def test_what_was_taken_and_not_used_is_a_gap(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("create sequence s; create table t (id int primary key default nextval('s'), v int check (v > 0))")
        with pytest.raises(il.ConstraintError):
            lake.sql("insert into t (v) values (-1)")
        with lake.transaction() as tx:
            tx.sql("insert into t (v) values (1), (2)")
            assert tx.sql("select max(id) from t").scalar() == 3
            tx.rollback()
        lake.sql("begin; insert into t (v) values (1); rollback")
        lake.sql("begin; insert into t (v) values (1), (2); commit")
        assert lake.sql("select id from t order by id").fetchall() == [(5,), (6,)]
        result = lake.sql("select nextval('s')")
        assert result.scalar() == result.scalar() == 7  # it is not asked again when the rows are read again
        lake.sql("explain select nextval('s')")
        lake.sql("describe select nextval('s')")
        assert lake.sql("select nextval('s')").scalar() == 8
        past = lake.snapshot_id
        with pytest.raises(il.OwnershipError, match="its sequences give no numbers"):
            lake.sql("select nextval('s')", at=past)


def test_a_default_counts_for_every_way_of_writing(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("""
            create sequence s start 10;
            create table t (id bigint primary key default nextval('s'), v int, k uuid default uuid())
        """)
        t = lake.table("t")
        t.insert({"v": 1})
        t.insert([{"v": 2}, {"v": 3}])
        t.insert({"v": 4, "id": 1})
        t.upsert([{"id": 1, "v": 5}, {"id": 2, "v": 6}])
        merge = t.merge([{"v": 7}, {"v": 8}], on="t.v = s.v").when_not_matched_insert({"v": il.expr("s.v")})
        merge.execute()
        (tmp_path / "rows.csv").write_text("v\n9\n10\n")
        lake.pipeline().load(str(tmp_path / "rows.csv"), "t")
        lake.sql("update t set k = default, v = v + 100")
        lake.sql("""
            merge into t using (select id from t where id < 5) q on t.id = q.id
                when matched then update set k = default;
            insert into t (id, v) values (1, 0), (2, 0) on conflict (id) do update set k = default, v = 1
        """)
        rows = t.scan().to_arrow()
        assert sorted(rows.column("id").to_pylist()) == [1, 2, 10, 11, 12, 13, 14, 15, 16]
        assert len(set(rows.column("k").to_pylist())) == 9
        assert lake.sql('select "default" from (describe t)').fetchall()[0] == ("nextval('main.s')",)
        before = lake.sql("select currval('s')").scalar()
        lake.sql("insert into t (v) values (11), (12) on conflict (id) do update set v = 0")
        assert lake.sql("select min(id), max(id) from t where v in (11, 12)").fetchone() == (before + 1, before + 2)
        sequences = pickle.loads(pickle.dumps(lake._readings.sequences))
        with pytest.raises(il.OwnershipError, match="Name the column in the rows that you load"):
            sequences.take("main.s", 1)


def test_a_sequence_at_the_end_of_bigint_is_shown(lake: il.Lake) -> None:
    lake.sql(
        f"create sequence up start {2**63 - 1}; create sequence wide start {2**63 - 5} increment 9; "
        f'create sequence down start {-(2**63)} increment -1 minvalue {-(2**63)} maxvalue 5; create sequence "It\'s"; '
        "create table t (a int)"
    )
    last = {"It's": 1, "down": -(2**63), "up": 2**63 - 1, "wide": 2**63 - 5}
    for name, number in last.items():
        asked = f'"{name}"'.replace("'", "''")
        assert lake.sql(f"select nextval('{asked}')").scalar() == number
    shown = lake.sql("select sequence_name, last_value, cycle from duckdb_sequences() order by all").fetchall()
    assert shown == [(name, number, False) for name, number in last.items()]
    shown = lake.sql("select sequencename, last_value from pg_catalog.pg_sequences order by all").fetchall()
    assert shown == list(last.items())
    assert lake.sql("select table_name from duckdb_tables()").fetchall() == [("t",)]
    assert lake.sql("select column_name from duckdb_columns() where table_name = 't'").fetchall() == [("a",)]
