"""Find the rows for an update or a delete: one row by primary key or through an index, or any rows by a scan.

A predicate that names one primary key needs no scan: the row is found as in a point read, and the rest of the predicate
is evaluated in Python on that row. The same applies if an index finds a single row in a block. Expressions mean the
same in Python and in Arrow, so the outcome is the same. A scan is needed for transactions that have already written to
the table, reads of the past, predicates that find several rows, and columns whose values Python cannot hold exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

from indexlake.expr.test import ColumnTest
from indexlake.scan.execute import Piece, pieces
from indexlake.scan.plan import ScanPlan, plan_scan
from indexlake.scan.point import BlockRow, LiveRow, find_in_blocks, find_recent, key_in
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.schema.fitting import Values
from indexlake.snapshots.state import TableState
from indexlake.types import SqlValue
from indexlake.types.floats import is_float

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.expr import Bound
    from indexlake.snapshots.reading import Reading
    from indexlake.transaction import Transaction

_NONE: frozenset[str] = frozenset()

PredicateOf = Callable[[TableSchema], "Bound"]


class Target:
    """The only row that may satisfy a predicate (None: no row), at the state where it was found.

    ``key`` is its primary key if the predicate names it. If the predicate requires that key and nothing else, the row
    satisfies it without a test.
    """

    __slots__ = ("_is_decided", "key", "predicate", "row", "state", "tested")

    def __init__(self, state: TableState, predicate: Bound, key: list[SqlValue] | None, row: LiveRow | None) -> None:
        self.state = state
        self.predicate = predicate
        self.key = key
        self.row = row
        self._is_decided = key is not None and predicate.equal_alone == state.current.key_set
        self.tested: frozenset[str] = _NONE if self._is_decided else predicate.columns  # needed by ``is_met``

    def is_met(self, row: dict[str, Any]) -> bool:
        """Return whether the row satisfies the whole predicate; ``row`` has the columns that are ``tested``."""
        if self._is_decided:
            return True
        assert self.row is not None
        row[ROW_ID] = self.row.row_id
        return self.predicate.evaluate_row(row) is True

    def held_exactly(self, names: Set[str]) -> bool:
        """Return whether Python values of these columns are what Arrow computes with."""
        plain = self.state.current.plain_names
        return names <= plain or names - {ROW_ID} <= plain

    def key_row(self, names: Set[str]) -> dict[str, Any] | None:
        """Return the named columns if the key alone tells them; a float may differ from its key: -0.0 equals 0.0."""
        schema = self.state.current
        if self.key is None:
            return None
        row: dict[str, Any] = {}
        for f, codec, value in zip(schema.key_fields, schema.key_codecs, self.key, strict=True):
            if f.name in names and not is_float(codec):
                row[f.name] = codec.decode_one(value)
        return row if all(name in row or name == ROW_ID for name in names) else None

    def python_row(self, values: Values, names: Set[str]) -> dict[str, Any]:
        """Return the named columns of the row's encoded values."""
        schema = self.state.current
        return {
            f.name: codec.decode_one(value)
            for f, codec, value in zip(schema.fields, schema.codecs, values, strict=True)
            if f.name in names
        }


Scanned = tuple[TableState, Iterator[Piece]]
"""The state, and the rows that satisfy the predicate, with their row ids."""


def find(
    tx: Transaction, table_id: int, predicate_of: PredicateOf, columns: Sequence[Field] | None = None
) -> Target | Scanned:
    """Return the only row that may satisfy the predicate, or all that do, with some columns (None: all columns)."""
    files = tx._lake._files
    with tx.reading(table_id) as reading:
        schema = reading.schema
        predicate = predicate_of(schema)
        singly = reading.newest and reading.writes is None
        key = key_in(predicate, schema) if singly else None
        if key is not None:
            found = find_recent(reading, files, key)
        else:
            fields = schema.fields if columns is None else columns
            plan = _planned(reading, files, predicate, fields)
    if key is not None:
        row = found or find_in_blocks(reading, files, key)
        assert not isinstance(row, dict)  # neither the transaction's own nor of the past
        return Target(reading.state, predicate, key, row)
    only = _only_row(reading.state, files, plan) if singly else None
    return _scanned(tx, reading.state, plan, fields) if only is None else Target(reading.state, predicate, None, only)


def find_by_scan(
    tx: Transaction, table_id: int, predicate_of: PredicateOf, columns: Sequence[Field] | None = None
) -> Scanned:
    with tx.reading(table_id) as reading:
        fields = reading.schema.fields if columns is None else columns
        plan = _planned(reading, tx._lake._files, predicate_of(reading.schema), fields)
    return _scanned(tx, reading.state, plan, fields)


def _planned(reading: Reading, files: OpenFiles, predicate: Bound, fields: Sequence[Field]) -> ScanPlan:
    needed = dict.fromkeys((*fields, *(f for f in reading.schema.fields if f.name in predicate.columns)))
    return plan_scan(reading, files, predicate=predicate, columns=tuple(needed))


def _scanned(tx: Transaction, state: TableState, plan: ScanPlan, fields: Sequence[Field]) -> Scanned:
    return state, pieces(plan, tx._lake._files, tx._lake._scan_threads, fields, row_id=True)


def _only_row(state: TableState, files: OpenFiles, plan: ScanPlan) -> BlockRow | None:
    """Return the row that an index has found, if it is a single one in a block."""
    if plan.hot.count or len(plan.tasks) != 1:
        return None
    task = plan.tasks[0]
    if task.kind != "block" or task.versions_up_to is not None or task.only is None or len(task.only) != 1:
        return None
    block = state.blocks.record(task.file_id)
    assert block is not None
    return BlockRow(files, state, block, int(task.only[0]))


def with_row_ids(ids: Sequence[int]) -> PredicateOf:
    from indexlake.expr.compiler import satisfying

    return lambda schema: satisfying(schema.arrow_with_row_id, [ColumnTest(ROW_ID, "in", tuple(ids))])
