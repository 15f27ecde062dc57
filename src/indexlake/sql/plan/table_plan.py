"""The scans of a query: which conditions each of them gets, and how it is planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import ExpressionError, IndexLakeError
from indexlake.expr import compile
from indexlake.scan.access import file_test
from indexlake.scan.key_order import as_key_order, with_key_bounds
from indexlake.scan.plan import ScanPlan, plan_scan
from indexlake.schema import ROW_ID, Field
from indexlake.snapshots.reading import Reading
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.plan.plain_select import MOST_SORTED, PlainSelect
from indexlake.sql.plan.point_select import Row, point_read
from indexlake.sql.plan.query import Reference
from indexlake.sql.plan.table_references import Pushed

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.lake import Lake


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One reference of the query: what was pushed into its scan, and the scan."""

    reference: Reference
    found: Reading
    scan: ScanPlan
    fields: tuple[Field, ...]
    row_id: bool
    predicate: str | None
    limit: int | None

    def describe(self) -> str:
        """Return the lines for ``explain``."""
        alias = f" as {self.reference.alias}" if self.reference.alias != self.reference.table.name else ""
        columns = ", ".join([*(f.name for f in self.fields), *([ROW_ID] if self.row_id else [])])
        read = sum(len(t.only) if t.only is not None else t.record_count for t in self.scan.tasks)
        lines = [
            f"scan {self.scan.table}{alias} at snapshot {self.scan.snapshot}",
            f"  columns: {columns or '(none: rows are counted)'}",
            f"  where: {self.predicate or '(all rows)'}",
            *([f"  limit: {self.limit}"] if self.limit is not None else []),
            f"  blocks: {len(self.scan.tasks)} of {self.scan.notes.get('blocks', 0)} read, "
            f"{read:,} candidate rows, found by {self.scan.notes.get('found by', 'statistics')}",
            *(f"    index {offer}" for offer in self.scan.notes.get("offers", ())),
            f"  hot rows: {self.scan.hot.count:,}",
        ]
        return "\n".join(lines)


class Choice:
    """What is pushed into one scan, and which conditions are known to compile with which parameter types."""

    def __init__(self, pushed: Pushed) -> None:
        self.pushed = pushed
        self._usable: dict[Any, tuple[int, ...]] = {}

    def predicate(self, table: Reading, parameters: Parameters) -> tuple[Bound | None, bool]:
        """Return the applicable conditions as one predicate, and whether these are all of them."""
        conjuncts = self.pushed.conjuncts
        if not conjuncts:
            return None, True
        schema = table.schema.sql_arrow
        names = tuple(dict.fromkeys(name for c in conjuncts for name in c.parameters))
        key = (table.schema, tuple(type(parameters.values[name]) for name in names))
        usable = self._usable.get(key)
        if usable is None:
            usable = tuple(n for n, c in enumerate(conjuncts) if _compiles(c, schema, parameters))
            self._usable[key] = usable
        chosen = []
        for n in usable:
            if conjuncts[n].rejects_nulls:
                try:
                    bound = compile(conjuncts[n].text, schema, parameters.of(conjuncts[n].parameters))
                    if bound.evaluate_row(dict.fromkeys(bound.columns)) is True:
                        continue
                except IndexLakeError:
                    continue
            chosen.append(conjuncts[n])
        if not chosen:
            return None, False
        text = chosen[0].text if len(chosen) == 1 else " and ".join(f"({c.text})" for c in chosen)
        used = dict.fromkeys(name for c in chosen for name in c.parameters)
        try:
            return compile(text, schema, parameters.of(used) or None), len(chosen) == len(conjuncts)
        except ExpressionError:
            return None, False  # a value that fits no column: DuckDB decides what it means


def _compiles(conjunct: Any, schema: pa.Schema, parameters: Parameters) -> bool:
    try:
        bound = compile(conjunct.text, schema, parameters.of(conjunct.parameters) or None)
    except IndexLakeError:
        return False
    return bool(pa.types.is_boolean(bound.type) or pa.types.is_null(bound.type))


def plan_point(
    lake: Lake, table: Reading, choice: Choice, plain: PlainSelect, parameters: Parameters
) -> Callable[[], Row | None] | None:
    """Return how to read one row by its primary key, if the query asks for nothing more."""
    predicate, complete = choice.predicate(table, parameters)
    return point_read(lake, table, predicate, plain) if complete else None


def plan_tables(
    lake: Lake,
    references: Sequence[Reference],
    tables: Sequence[Reading],
    choices: Sequence[Choice],
    plain: PlainSelect | None,
    parameters: Parameters,
    *,
    counting: bool = True,
) -> tuple[tuple[TablePlan, ...], PlainSelect | None]:
    """Plan every scan inside one read transaction.  Also return the select that the scan alone answers, if it does."""
    direct: PlainSelect | None = None
    plans = []
    for reference, table, choice in zip(references, tables, choices, strict=True):
        predicate, complete = choice.predicate(table, parameters)
        pushed = choice.pushed
        columns: Sequence[str] = pushed.columns
        limit = None
        by_key = None if plain is None else as_key_order(table, plain.order or (), file_test(predicate, table.schema))
        if plain is not None and _answers(plain, complete, parameters, sorts=by_key is None):
            plain = direct = replace(plain, order=tuple(by_key)) if by_key is not None else plain
            columns = list(dict.fromkeys([*(c for c, _ in plain.columns or ()), *(c for c, _ in plain.order or ())]))
        elif plain is not None and complete and plain.order == ():
            limit = _rows_needed(plain, parameters)
        fields = tuple(table.schema.field(name) for name in columns)
        needed = {f.name: f for f in fields}
        for name in predicate.columns if predicate is not None else ():
            if name != ROW_ID:
                needed.setdefault(name, table.schema.field(name))
        scan = plan_scan(
            table, lake._files, predicate=predicate, columns=tuple(needed.values()),
            counting=counting and not needed and predicate is None and not pushed.row_id,
        )  # fmt: skip
        if direct is not None and by_key is not None:
            scan = with_key_bounds(table, scan)
        where = None if predicate is None else predicate.text
        plans.append(TablePlan(reference, table, scan, fields, pushed.row_id, where, limit))
    return tuple(plans), direct


def _answers(plain: PlainSelect, complete: bool, parameters: Parameters, *, sorts: bool) -> bool:
    """Return whether the scan alone gives the answer; ``sorts``: whether it would have to sort the rows."""
    if plain.columns is None or plain.order is None or not complete:
        return False
    for amount in (plain.limit, plain.offset):
        if amount is not None and amount.value(parameters.values) is None:
            return False
    if not plain.order or not sorts:
        return True
    needed = _rows_needed(plain, parameters)
    return needed is not None and needed <= MOST_SORTED


def _rows_needed(plain: PlainSelect, parameters: Parameters) -> int | None:
    if plain.limit is None:
        return None
    limit = plain.limit.value(parameters.values)
    offset = 0 if plain.offset is None else plain.offset.value(parameters.values)
    return None if limit is None or offset is None else limit + offset
