"""The Hermitage cases by name: what snapshot isolation with first committer wins prevents, and what it allows.

The cases are those of Martin Kleppmann's Hermitage.  Each runs on both catalogs, by methods and by SQL text, with rows
that are hot, in blocks, or moved to blocks before every commit.  The transactions belong to different handles.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("value", pa.int64())])
WAYS = ["methods, hot", "SQL, hot", "methods, blocks", "SQL, dumped meanwhile"]


@dataclass
class Session:
    """One transaction, by methods or by SQL."""

    case: Case
    tx: il.Transaction
    by_sql: bool

    @property
    def table(self) -> il.Table:
        return self.tx.table(self.case.name)

    def read(self, where: str = "true") -> dict[int, int]:
        if self.by_sql:
            rows = self.tx.sql(f"select id, value from {self.case.name} where {where}").fetchall()
            return dict(sorted(rows))
        return dict(sorted((r["id"], r["value"]) for r in self.table.scan(where).to_pylist()))

    def lock(self, where: str = "true") -> dict[int, int]:
        rows = self.table.scan(where, for_update=True).to_pylist()
        return dict(sorted((r["id"], r["value"]) for r in rows))

    def update(self, value: int | str, where: str) -> int:
        if self.by_sql:
            return int(self.tx.sql(f"update {self.case.name} set value = {value} where {where}").rows)
        return self.table.update({"value": il.expr(str(value)) if isinstance(value, str) else value}, where).rows

    def insert(self, id: int, value: int) -> None:
        if self.by_sql:
            self.tx.sql(f"insert into {self.case.name} values ({id}, {value})")
        else:
            self.table.insert({"id": id, "value": value})

    def delete(self, where: str) -> int:
        if self.by_sql:
            return int(self.tx.sql(f"delete from {self.case.name} where {where}").rows)
        return self.table.delete(where).rows

    def truncate(self) -> None:
        if self.by_sql:
            self.tx.sql(f"truncate {self.case.name}")
        else:
            self.table.truncate()

    def commit(self) -> None:
        if self.case.dumps:
            self.case.lakes[2].pipeline(runner="threads").dump(self.case.name)
        self.tx.commit()

    def loses(self) -> None:
        """The commit is refused because another one came first, and nothing of it is there."""
        before = self.case.now()
        with pytest.raises(il.ConflictError):
            self.commit()
        assert self.case.now() == before

    def rollback(self) -> None:
        self.tx.rollback()


@dataclass
class Case:
    """A table with the rows (1, 10) and (2, 20)."""

    lakes: list[il.Lake]
    name: str
    by_sql: bool
    dumps: bool
    begun: int = 0

    def begin(self) -> Session:
        self.begun += 1
        return Session(self, self.lakes[self.begun % 2].transaction(), self.by_sql)

    def now(self) -> dict[int, int]:
        return dict(sorted((r["id"], r["value"]) for r in self.lakes[2].table(self.name).scan().to_pylist()))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def lakes(request: pytest.FixtureRequest, new_address: Any) -> Iterator[list[il.Lake]]:
    address = new_address(request.param)
    opened = [address.connect(automatic=False) for _ in range(3)]
    yield opened
    for lake in opened:
        lake.close()


@pytest.fixture(params=WAYS)
def case(request: pytest.FixtureRequest, lakes: list[il.Lake]) -> Case:
    name = f"case_{uuid.uuid4().hex[:8]}"
    table = lakes[2].create_table(name, SCHEMA, primary_key="id", config=il.TableConfig(dump_format="ipc"))
    table.insert([{"id": 1, "value": 10}, {"id": 2, "value": 20}])
    if request.param.endswith("blocks"):
        lakes[2].pipeline(runner="threads").dump(name)
    return Case(lakes, name, request.param.startswith("SQL"), request.param.endswith("meanwhile"))


# ---------------------------------------------------------------- prevented


def test_g0_dirty_writes_are_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    one.update(11, "id = 1")
    two.update(12, "id = 1")
    one.update(21, "id = 2")
    one.commit()
    assert case.now() == {1: 11, 2: 21}
    two.update(22, "id = 2")
    two.loses()
    assert case.now() == {1: 11, 2: 21}


def test_g1a_aborted_reads_are_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    one.update(101, "id = 1")
    assert two.read() == {1: 10, 2: 20}
    one.rollback()
    assert two.read() == {1: 10, 2: 20}
    two.commit()
    assert case.now() == {1: 10, 2: 20}


def test_g1b_intermediate_reads_are_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    one.update(101, "id = 1")
    assert two.read() == {1: 10, 2: 20}
    one.update(11, "id = 1")
    one.commit()
    assert two.read() == {1: 10, 2: 20}
    two.commit()
    assert case.begin().read() == {1: 11, 2: 20}


def test_g1c_circular_information_flow_is_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    one.update(11, "id = 1")
    two.update(22, "id = 2")
    assert one.read("id = 2") == {2: 20}
    assert two.read("id = 1") == {1: 10}
    one.commit()
    two.commit()
    assert case.now() == {1: 11, 2: 22}


def test_otv_observed_transactions_do_not_vanish(case: Case) -> None:
    one, two, early = case.begin(), case.begin(), case.begin()
    one.update(11, "id = 1")
    one.update(19, "id = 2")
    two.update(12, "id = 1")
    one.commit()
    late = case.begin()
    assert late.read("id = 1") == {1: 11}
    two.update(18, "id = 2")
    assert late.read("id = 2") == {2: 19}
    two.loses()
    assert late.read() == {1: 11, 2: 19}
    assert early.read() == {1: 10, 2: 20}


def test_pmp_a_predicate_does_not_meet_rows_that_came_later(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("value = 30") == {}
    two.insert(3, 30)
    two.commit()
    assert one.read("value % 3 = 0") == {}
    one.commit()
    assert case.begin().read("value % 3 = 0") == {3: 30}


def test_pmp_for_write_predicates_the_second_writer_loses(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.update("value + 10", "true") == 2
    assert two.read("value = 20") == {2: 20}
    assert two.delete("value = 20") == 1
    one.commit()
    two.loses()
    assert case.now() == {1: 20, 2: 30}


def test_pmp_for_a_truncate_the_rows_that_came_later_are_not_lost(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read() == {1: 10, 2: 20}
    two.insert(3, 30)
    two.commit()
    one.truncate()
    one.loses()
    assert case.now() == {1: 10, 2: 20, 3: 30}


def test_p4_lost_updates_are_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("id = 1") == two.read("id = 1") == {1: 10}
    one.update(11, "id = 1")
    two.update(11, "id = 1")
    one.commit()
    two.loses()
    assert case.now() == {1: 11, 2: 20}


def test_g_single_read_skew_is_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("id = 1") == {1: 10}
    assert two.read() == {1: 10, 2: 20}
    two.update(12, "id = 1")
    two.update(18, "id = 2")
    two.commit()
    assert one.read("id = 2") == {2: 20}
    one.commit()
    assert case.now() == {1: 12, 2: 18}


def test_g_single_read_skew_by_a_predicate_is_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("value % 5 = 0") == {1: 10, 2: 20}
    assert two.update(12, "value = 10") == 1
    two.commit()
    assert one.read("value % 3 = 0") == {}
    one.commit()
    assert case.begin().read("value % 3 = 0") == {1: 12}


def test_g_single_read_skew_by_a_write_predicate_is_prevented(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("id = 1") == {1: 10}
    assert two.read() == {1: 10, 2: 20}
    two.update(12, "id = 1")
    two.update(18, "id = 2")
    two.commit()
    assert one.delete("value = 20") == 1, "it sees its snapshot"
    one.loses()
    assert case.now() == {1: 12, 2: 18}


def test_g_single_a_write_that_is_rolled_back_holds_nobody_up(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("id = 1") == {1: 10}
    assert two.read() == {1: 10, 2: 20}
    two.update(12, "id = 1")
    assert one.delete("value = 20") == 1
    two.update(18, "id = 2")
    one.rollback()
    two.commit()
    assert case.now() == {1: 12, 2: 18}


# ---------------------------------------------------------------- allowed, and prevented by for_update


def test_g2_item_write_skew_is_allowed(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read() == two.read() == {1: 10, 2: 20}
    one.update(11, "id = 1")
    two.update(21, "id = 2")
    one.commit()
    two.commit()
    assert case.now() == {1: 11, 2: 21}


def test_g2_item_write_skew_is_prevented_by_for_update(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.lock() == two.lock() == {1: 10, 2: 20}
    one.update(11, "id = 1")
    two.update(21, "id = 2")
    one.commit()
    two.loses()
    assert case.now() == {1: 11, 2: 20}


def test_g2_item_write_skew_is_prevented_when_only_one_reads_for_update(case: Case) -> None:
    one, two = case.begin(), case.begin()
    one.read()
    two.lock("id = 1")
    one.update(11, "id = 1")
    two.update(21, "id = 2")
    one.commit()
    two.loses()
    assert case.now() == {1: 11, 2: 20}


def test_g2_anti_dependencies_by_predicates_are_allowed(case: Case) -> None:
    one, two = case.begin(), case.begin()
    assert one.read("value % 3 = 0") == two.read("value % 3 = 0") == {}
    one.insert(3, 30)
    two.insert(4, 42)
    one.commit()
    two.commit()
    assert case.begin().read("value % 3 = 0") == {3: 30, 4: 42}


def test_g2_anti_dependencies_by_predicates_are_prevented_by_a_row_that_both_read_for_update(case: Case) -> None:
    one, two = case.begin(), case.begin()
    for session in (one, two):
        assert session.lock("id = 1") == {1: 10}
        assert session.read("value % 3 = 0") == {}
    one.insert(3, 30)
    two.insert(4, 42)
    one.commit()
    two.loses()
    assert case.begin().read("value % 3 = 0") == {3: 30}


def test_g2_the_anomaly_of_a_read_only_transaction_is_allowed(case: Case) -> None:
    one = case.begin()
    assert one.read() == {1: 10, 2: 20}
    two = case.begin()
    two.update("value + 5", "id = 2")
    two.commit()
    three = case.begin()
    assert three.read() == {1: 10, 2: 25}
    three.commit()
    one.update(0, "id = 1")
    one.commit()
    assert case.now() == {1: 0, 2: 25}
