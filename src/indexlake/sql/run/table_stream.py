"""One table of a query as DuckDB reads it: a scan plan that can be run any number of times.

DuckDB may open a stream more than once (for a common table expression that it repeats), so each opening runs the plan
again.  An error in the scan passes through Arrow and DuckDB as text; the stream keeps the error itself.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import IndexLakeError, OwnershipError
from indexlake.scan.execute import dictionary_columns, pieces, read_task
from indexlake.scan.plan import ScanPlan, arrow_schema
from indexlake.schema import Field
from indexlake.sql.plan.text_groups import TextNumbers
from indexlake.sql.run.types import handed_over, taken_as
from indexlake.types.dictionaries import TEXT

if TYPE_CHECKING:
    from indexlake.lake import Lake

_COUNT_ROWS = 1 << 20
_NOTHING = "__il_rows"
"""The column of a stream of which only the number of rows is needed."""


class Openings:
    """The streams that Arrow and DuckDB are reading; only through these do their threads enter Python.

    A stream that was opened but never read is not included: DuckDB never releases one if it then refused the query.
    """

    def __init__(self) -> None:
        self._open: weakref.WeakSet[_Opening] = weakref.WeakSet()
        self._lock = threading.Lock()
        self.stopped = False

    def begin(self, opening: _Opening) -> None:
        with self._lock:
            self._open.add(opening)

    def stop(self) -> None:
        """Make every stream end at its next step."""
        self.stopped = True

    def wait(self, seconds: float) -> None:
        """Wait until all of them have been released, but no longer than ``seconds``."""
        deadline = time.monotonic() + seconds
        while self._open and time.monotonic() < deadline:
            time.sleep(0.002)


class _Opening:
    """One run of a stream's plan."""

    def __init__(self, stream: TableStream, openings: Openings) -> None:
        self._stream = stream
        self._openings = openings
        self._batches = stream.batches()
        self._begun = False

    def __iter__(self) -> _Opening:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self._begun:
            self._begun = True
            self._openings.begin(self)
        try:
            if self._openings.stopped:
                raise OwnershipError("The lake was closed while this result was being read.")
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._stream.error = error
            raise


class TableStream:
    """The rows of a plan, through Arrow's C stream interface."""

    def __init__(
        self,
        lake: Lake,
        openings: Openings,
        plan: ScanPlan,
        fields: Sequence[Field],
        *,
        row_id: bool,
        limit: int | None,
        groups: Collection[str] = (),
    ) -> None:
        """``groups``: columns, in lower case, whose texts may be replaced by numbers; see ``numbers``."""
        self._lake = lake
        self._openings = openings
        self.plan = plan
        self._fields = tuple(fields)
        self._row_id = row_id
        self.limit = limit
        self.error: BaseException | None = None
        inner = arrow_schema(self._fields, row_id=row_id)
        self._dictionaries = self._found_dictionaries()
        self.numbers = {name: TextNumbers() for name in self._dictionaries if name.lower() in groups}
        types = [
            pa.int32() if f.name in self.numbers else TEXT if f.name in self._dictionaries else taken_as(f)
            for f in inner
        ]
        self.schema = pa.schema(zip(inner.names, types, strict=True) if types else [(_NOTHING, pa.bool_())])

    def _found_dictionaries(self) -> frozenset[str]:
        """Return the text columns that DuckDB gets dictionary-encoded throughout, since a stream has a single type."""
        try:
            return frozenset(dictionary_columns(self.plan, self._lake._files, self._fields))
        except IndexLakeError:
            return frozenset()  # reading the rows will report what is wrong

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        opening = _Opening(self, self._openings)
        return pa.RecordBatchReader.from_batches(self.schema, opening).__arrow_c_stream__(requested_schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        left = self.limit
        if left == 0:
            return
        for batch in self._batches() if self._fields or self._row_id else self._counts():
            self._lake._check_process()
            if left is None:
                yield batch
                continue
            part = batch.slice(0, left)
            left -= part.num_rows
            yield part
            if not left:
                return

    def _batches(self) -> Iterator[pa.RecordBatch]:
        lake = self._lake
        plain = all(field.type == f.type for field, f in zip(self.schema, self._fields, strict=False))
        read = pieces(
            self.plan, lake._files, lake._scan_threads, self._fields, row_id=self._row_id,
            dictionaries=self._dictionaries,
        )  # fmt: skip
        for piece in read:
            if plain:
                yield pa.RecordBatch.from_arrays(piece.batch.columns, schema=self.schema)
                continue
            arrays = [
                self.numbers[f.name].encode(array) if f.name in self.numbers else handed_over(array, f.type, f.name)
                for array, f in zip(piece.batch.columns, self.schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _counts(self) -> Iterator[pa.RecordBatch]:
        """Yield batches with the right number of rows and no data."""
        for found in row_counts(self._lake, self.plan):
            count = found
            while count:
                part = min(count, _COUNT_ROWS)
                count -= part
                yield pa.RecordBatch.from_arrays([pa.nulls(part, pa.bool_())], schema=self.schema)


def row_counts(lake: Lake, plan: ScanPlan) -> Iterator[int]:
    """Yield numbers that add up to the plan's row count, without reading blocks that are wholly visible."""
    if plan.predicate is not None:
        for piece in pieces(plan, lake._files, lake._scan_threads, (), row_id=False):
            yield piece.batch.num_rows
        return
    from indexlake.scan.scan import _live_count

    for task in plan.tasks:
        if plan.hidden_rows is None and task.versions_up_to is None:
            yield _live_count(task)
        else:
            rows = read_task(task, lake._files, (), None, row_id=True, hidden=plan.hidden_rows)
            yield sum(batch.num_rows for batch in rows)
    yield plan.hot.count
