"""``Scan``: a lazy read of one table.

Nothing is read before the first batch is asked for.  The snapshot is fixed at the first execution and kept: reading
twice gives the same rows.  A scan is an Arrow stream, so DuckDB, polars, pandas and pyarrow accept it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.display import FIRST_ROWS, counted, html_rows, html_text, shown
from indexlake.errors import ExpressionError, SchemaError
from indexlake.scan.access import file_test
from indexlake.scan.execute import hot_pieces, is_covered, pieces, read_task
from indexlake.scan.first_rows import with_first_rows
from indexlake.scan.key_order import as_key_order, rows_in_key_order, with_key_bounds
from indexlake.scan.lookup import Offer
from indexlake.scan.order import check_order, ordered
from indexlake.scan.plan import BlockTask, ScanPlan, arrow_schema, plan_scan
from indexlake.scan.result import Result, check_count
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.snapshots.partition_info import partition_of
from indexlake.storage.checksum import Checksums

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.storage import Storage
    from indexlake.table import Table


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a scan will read, and why; prints as text."""

    table: str
    snapshot_id: int
    where: str | None
    blocks_total: int
    blocks_read: int
    rows_in_blocks: int
    hot_rows: int
    found_by: str
    tasks: tuple[str, ...]
    offers: tuple[Offer, ...] = ()
    """What each index offered, and whether it was used."""
    segments_read: int = 0
    """The number of index segments that were searched."""
    cache_hits: int | None = None
    """How many chunks of these blocks are in the local cache now; None: there is no cache."""
    cache_misses: int | None = None
    """How many are not.  A read that needs only some chunks of a block fetches only those."""
    order: str | None = None
    """How the rows get into the requested order."""
    partitions_total: int | None = None
    """The number of partitions at the snapshot; None: the table is a heap."""
    partitions_read: tuple[int, ...] = ()
    """The partitions that hold the blocks to read."""
    blocks_covered: int = 0
    """The number of blocks that are not opened, because an index holds all that is needed of their rows."""

    def __str__(self) -> str:
        asked = f" in {counted(self.segments_read, 'segment')}" if self.segments_read else ""
        covered = f"{self.blocks_covered} covered, " if self.blocks_covered else ""
        lines = [
            f"scan {self.table} at snapshot {self.snapshot_id}" + (f" where {self.where}" if self.where else ""),
            f"  blocks: {self.blocks_read} of {self.blocks_total} read, {covered}{self.rows_in_blocks:,} candidate "
            f"rows, found by {self.found_by}{asked}",
            *self._partitions(),
            *(f"    index {offer}" for offer in self.offers),
            *(f"    {task}" for task in self.tasks[:20]),
        ]
        if len(self.tasks) > 20:
            lines.append(f"    … {len(self.tasks) - 20} more")
        lines.append(f"  hot rows: {self.hot_rows:,}")
        if self.order is not None:
            lines.append(f"  order: {self.order}")
        if self.cache_hits is not None:
            lines.append(f"  local cache: {self.cache_hits:,} chunks of these blocks here, {self.cache_misses:,} not")
        return "\n".join(lines)

    def _partitions(self) -> list[str]:
        if self.partitions_total is None:
            return []
        some = ", ".join(map(str, self.partitions_read[:10])) + (", …" if len(self.partitions_read) > 10 else "")
        return [
            f"  partitions: {len(self.partitions_read)} of {self.partitions_total}" + (f" ({some})" if some else "")
        ]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


class Scan(Result):
    """Returned by ``table.scan``."""

    def __init__(
        self,
        table: Table,
        where: str | None,
        params: Mapping[str, Any] | Sequence[Any] | None,
        columns: Sequence[str] | None,
        order_by: object,
        limit: int | None,
        offset: int,
        with_row_id: bool,
        for_update: bool,
    ) -> None:
        for name, number in (("limit", limit), ("offset", offset)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
                raise ExpressionError(f"{name} must be a whole number, 0 or more; got {number!r}.")
        check_where(where, params)
        columns = checked_columns(columns)
        self._table = table
        self._where, self._params = where, params
        self._columns, self._order_by = columns, order_by
        self._limit, self._offset = limit, offset
        self._with_row_id, self._for_update = with_row_id, for_update
        self._snapshot: int | None = None

    def __repr__(self) -> str:
        parts = [f"Scan of {self._table.name}"]
        parts += [f"where {self._where}"] if self._where else []
        parts += [f"columns {', '.join(self._columns)}"] if self._columns is not None else []
        parts += [f"order by {self._order_by}"] if self._order_by else []
        parts += [f"limit {self._limit}"] if self._limit is not None else []
        parts += [f"offset {self._offset}"] if self._offset else []
        return f"<{', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Show the first rows, through another scan: displaying this one neither fixes its snapshot nor locks rows."""
        return html_text(repr(self)) if self._for_update else shown(self._first_rows)

    def _limited(self, n: int, *, for_update: bool) -> Scan:
        """Return a scan of the first ``n`` rows of this one, at its snapshot if it has one."""
        limit = n if self._limit is None else min(self._limit, n)
        first = Scan(
            self._table, self._where, self._params, self._columns, self._order_by, limit, self._offset,
            self._with_row_id, for_update,
        )  # fmt: skip
        first._snapshot = self._snapshot
        return first

    def head(self, n: int = 10) -> pa.Table:
        """The first rows.  Reads no more than it needs; a scan for update locks them."""
        check_count(n)
        return self._limited(n, for_update=self._for_update).to_arrow()

    def _own_storage(self) -> Storage:
        return self._table._lake.storage

    def _first_rows(self) -> str:
        rows = self._limited(FIRST_ROWS + 1, for_update=False)._table_of_all()
        note = f"The first {FIRST_ROWS} rows." if rows.num_rows > FIRST_ROWS else None
        return html_rows(rows.slice(0, FIRST_ROWS), caption=repr(self)[1:-1], note=note)

    def __reduce__(self) -> Any:
        raise TypeError("A Scan belongs to the process that made it and cannot be pickled. Pickle its result.")

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that the scan reads; None before it starts."""
        return self._snapshot

    # ------------------------------------------------------------ planning

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._output(self._table._schema_now())[1]

    def _output(self, schema: TableSchema) -> tuple[list[Field], pa.Schema, bool]:
        row_id = self._with_row_id
        if self._columns is None:
            fields = list(schema.fields)
            if not row_id:
                return fields, schema.arrow, False
        else:
            names = [c for c in self._columns if c != ROW_ID]
            row_id = row_id or len(names) < len(self._columns)
            fields = list(schema.project(names))
            if len({f.name for f in fields}) < len(fields):
                raise SchemaError("columns names a column twice.")
        return fields, arrow_schema(fields, row_id=row_id), row_id

    def _bind(self, schema: TableSchema) -> Bound | None:
        if self._where is None:
            return None
        return bind_predicate(self._where, schema, self._params)

    def _plan(
        self, *, counting: bool = False, ordering: bool = True
    ) -> tuple[ScanPlan, list[Field], pa.Schema, bool, list[tuple[str, str]]]:
        """Plan in one read transaction.  ``ordering``: rows that cannot be among the first ``limit`` may be left
        out."""
        table = self._table
        table._lake._check()
        with table._reading(self._snapshot) as reading:
            schema = reading.schema
            fields, shown, row_id = self._output(schema)
            predicate = self._bind(schema)
            order = check_order(self._order_by, schema)
            test = file_test(predicate, schema)
            by_key = as_key_order(reading, order, test) if ordering else None
            order = by_key or order
            needed = {} if counting else {f.name: f for f in fields}
            for name in [*(predicate.columns if predicate else ()), *(c for c, _ in order if not counting)]:
                if name != ROW_ID:
                    needed.setdefault(name, schema.field(name))
            plan = plan_scan(
                reading, table._lake._files, predicate=predicate, columns=tuple(needed.values()), counting=counting,
                test=test,
            )  # fmt: skip
        self._snapshot = reading.snapshot
        if by_key:
            plan = with_key_bounds(reading, plan)
        elif ordering and order and self._limit is not None:
            plan = with_first_rows(reading, table._lake._files, plan, test, order, self._limit + self._offset)
        return plan, fields, shown, row_id, order

    def _wanted(
        self, plan: ScanPlan, fields: list[Field], row_id: bool, order: list[tuple[str, str]]
    ) -> tuple[list[Field], bool]:
        """Return the columns to read, which may be more than those of the result, and whether to read row ids."""
        sorting = [column for column, _ in order]
        names = {f.name for f in fields}
        wanted = [*fields, *(plan.schema.field(c) for c in sorting if c != ROW_ID and c not in names)]
        return wanted, row_id or ROW_ID in sorting or self._for_update or not wanted

    # ------------------------------------------------------------ running

    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        plan, fields, shown, row_id, order = self._plan()
        wanted, with_id = self._wanted(plan, fields, row_id, order)
        lake = self._table._lake
        pin = lake._pins.pin(plan.snapshot)

        def stream() -> Iterator[pa.RecordBatch]:
            locked: list[int] = []
            try:
                most = None if self._limit is None else self._limit + self._offset
                if plan.key_bounds is not None:
                    rows = rows_in_key_order(plan, lake._files, lake._scan_threads, wanted, order, most, row_id=with_id)
                else:
                    rows = self._rows(plan, wanted, with_id)
                    if order:
                        inner = arrow_schema(wanted, row_id=with_id)
                        rows = ordered(rows, inner, order, most, lake.storage.spill)
                for batch in _window(rows, self._offset, self._limit):
                    if self._for_update:
                        locked += batch.column(ROW_ID).to_pylist()
                    yield batch.select(shown.names) if batch.schema.names != shown.names else batch
                    lake._check_process()  # a forked child has none of the threads that read ahead
            finally:
                pin.release()
                if locked:
                    self._table._lock_rows(locked)

        return shown, stream()

    def _rows(self, plan: ScanPlan, fields: list[Field], row_id: bool) -> Iterator[pa.RecordBatch]:
        lake = self._table._lake
        for piece in pieces(plan, lake._files, lake._scan_threads, fields, row_id=row_id):
            yield piece.batch

    def count(self) -> int:
        """The number of rows.  Blocks that are visible as a whole are counted without reading them."""
        if self._for_update:
            return sum(batch.num_rows for batch in self._run()[1])  # rows are locked as they are returned
        plan, *_ = self._plan(counting=True, ordering=False)
        lake = self._table._lake
        total = 0
        for task in plan.tasks:
            if plan.predicate is None and plan.hidden_rows is None and task.versions_up_to is None:
                total += _live_count(task)
            else:
                named = () if plan.predicate is None else [f for f in task.shown if f.name in plan.predicate.columns]
                covered = bool(named) and is_covered(task, named, plan.predicate, row_id=False, hidden=plan.hidden_rows)
                total += sum(
                    b.num_rows
                    for b in read_task(
                        task, lake._files, named if covered else (), plan.predicate, row_id=not covered,
                        hidden=plan.hidden_rows,
                    )
                )  # fmt: skip
        if plan.predicate is None:
            total += plan.hot.count
        else:
            total += sum(p.batch.num_rows for p in hot_pieces(plan, (), row_id=True))
        total = max(0, total - self._offset)
        return total if self._limit is None else min(total, self._limit)

    def explain(self) -> Explanation:
        """Which blocks would be read, and why.  Plans the scan but reads no block."""
        plan, fields, _, row_id, order = self._plan(counting=True)
        wanted, with_id = self._wanted(plan, fields, row_id, order)
        cache = self._table._lake.storage.cache
        tasks = []
        rows = here = chunks = covered = 0
        for task in plan.tasks:
            live = len(task.only) if task.only is not None else _live_count(task)
            rows += live
            text = f"{task.format} {task.path}: {live:,} of {task.record_count:,} rows"
            if is_covered(task, wanted, plan.predicate, row_id=with_id, hidden=plan.hidden_rows):
                covered += 1
                text += ", covered by an index"
            elif cache is not None:
                own, all_ = cache.chunks(task.path), len(Checksums.from_bytes(task.checksum).chunks)
                here, chunks = here + own, chunks + all_
                text += f", {own:,} of {all_:,} chunks in the local cache"
            tasks.append(text)
        hits, misses = (None, None) if cache is None else (here, chunks - here)
        total, touched = _partitions(plan)
        return Explanation(
            plan.table, plan.snapshot, self._where, plan.notes.get("blocks", 0), len(plan.tasks) - covered, rows,
            plan.hot.count, plan.notes.get("found by", "statistics"), tuple(tasks), plan.notes.get("offers", ()),
            plan.notes.get("segments", 0), hits, misses, _order_text(plan, order) if order else None, total, touched,
            covered,
        )  # fmt: skip


def _partitions(plan: ScanPlan) -> tuple[int | None, tuple[int, ...]]:
    """Return the number of partitions, and the ids of those that hold the plan's blocks."""
    if "partitions" not in plan.notes:
        return None, ()
    blocks, ranges = plan.notes["partitions"]
    partitions = ranges.at(plan.snapshot)
    if not partitions.live:  # the table was still a heap at this snapshot
        return None, ()
    found = {partition_of(block, partitions) for block in blocks}
    return len(partitions.live), tuple(p.partition_id for p in partitions.live if p.partition_id in found)


def checked_columns(columns: Any) -> list[str] | None:
    """Return column names as a list; a single name may be given as a string."""
    if columns is None or isinstance(columns, str):
        return None if columns is None else [columns]
    given: list[Any] = list(columns) if isinstance(columns, list | tuple | Iterable) else [None]
    for name in given:
        if not isinstance(name, str):
            raise SchemaError(f'columns is a list of names such as ["id", "total"]; got {columns!r}.')
    return given


def check_where(where: object, params: object) -> None:
    """Refuse a predicate that is not SQL text, and parameters without a predicate."""
    if where is not None:
        check_text(where)
    elif params:
        raise ExpressionError("params is given, but no where that uses it.")


def check_text(where: object) -> None:
    """Refuse a predicate that is not SQL text."""
    if not isinstance(where, str):
        raise ExpressionError(f'A predicate is SQL text such as "id = $id", not {type(where).__name__}.')


def bind_predicate(where: str, schema: TableSchema, params: Mapping[str, Any] | Sequence[Any] | None) -> Bound:
    return bind_condition(where, schema.arrow_with_row_id, params)


def bind_condition(where: str, schema: pa.Schema, params: Mapping[str, Any] | Sequence[Any] | None) -> Bound:
    """Bind a predicate over any columns."""
    check_text(where)
    bound = _compiler()(where, schema, params)
    if not bound.is_condition:
        raise ExpressionError(f"{where!r} is of type {bound.type}; a predicate must be true or false.", text=where)
    return bound


@cache
def _compiler() -> Callable[..., Bound]:
    """Return the compiler, which is only imported with the first expression."""
    from indexlake.expr import compile

    return compile


def _order_text(plan: ScanPlan, order: list[tuple[str, str]]) -> str:
    by = ", ".join(f"{column} {direction}" for column, direction in order)
    if plan.key_bounds is None:
        return f"{by}: sorted"
    unsorted = sum(task.file_id not in plan.key_bounds for task in plan.tasks)
    sorted_first = [counted(unsorted, "block")] if unsorted else []
    sorted_first += [counted(plan.hot.count, "hot row")] if plan.hot.count else []
    text = f"{by}: in block order, no sort"
    return text + (f" except of {' and '.join(sorted_first)}, merged in" if sorted_first else "")


def _live_count(task: BlockTask) -> int:
    from indexlake.blocks.delete_vector import positions_from_bytes

    dead = len(positions_from_bytes(task.deleted)) if task.deleted is not None else 0
    return task.record_count - dead


def _window(batches: Iterator[pa.RecordBatch], offset: int, limit: int | None) -> Iterator[pa.RecordBatch]:
    if limit == 0:
        return
    left = limit
    for found in batches:
        batch = found
        if offset:
            skipped = min(offset, batch.num_rows)
            batch = batch.slice(skipped)
            offset -= skipped
        if not batch.num_rows:
            continue
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        if left == 0:
            return
