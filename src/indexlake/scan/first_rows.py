"""``order_by`` with ``limit`` through an index in that order: only the rows that are returned are read.

The first n rows of the table are among the first n visible rows of each segment and the rows that no segment covers, so
the plan keeps only those rows of each covered block.  If the predicate is so selective that much of a segment would
have to be searched, the plan is left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.blocks.delete_vector import is_among
from indexlake.indexes.registry import kind_if_known
from indexlake.scan.execute import read_task
from indexlake.scan.lookup import Offer
from indexlake.scan.plan import ScanPlan, block_task
from indexlake.schema import ROW_ID

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.expr.test import Test
    from indexlake.indexes.coverage import Coverage, Group
    from indexlake.snapshots.reading import Reading

WORTH = 0.02
"""The share of a segment's rows to look through before giving up and sorting all rows."""

_NOTHING = np.zeros(0, np.int64)

Positions = dict[int, list[npt.NDArray[np.int64]]]


def with_first_rows(
    reading: Reading, files: OpenFiles, plan: ScanPlan, test: Test, order: Sequence[tuple[str, str]], count: int
) -> ScanPlan:
    """Return a plan that reads only rows that can be among the first ``count``, if an index has this order."""
    if files.use_indexes == "never" or reading.truncated or not plan.tasks:
        return plan
    found = _ordering_index(reading, test, order)
    if found is None:
        return plan
    coverage, probe = found
    chosen: Positions = {}
    groups = coverage.groups(reading.state, reading.snapshot)
    planned = {task.file_id for task in plan.tasks if task.kind == "block"}
    segments = 0
    for group in groups:
        segment = files.segment(group.segment, coverage.index.open)
        if not any(block.data_file_id in planned for block, _ in group.blocks):
            continue
        descending = order[0][1] == "desc"
        segments += 1
        if not _first_of(reading, files, plan, group, segment, segment.in_order(probe, descending), count, chosen):
            return plan
    tasks = []
    for task in plan.tasks:
        if task.kind != "block" or task.file_id not in chosen:
            tasks.append(task)
        elif len(positions := np.unique(np.concatenate([_NOTHING, *chosen[task.file_id]]))):
            tasks.append(replace(task, only=positions.astype(np.uint64), covered=None))
    text = ", ".join(f"{column} {direction}" for column, direction in order)
    offer = Offer(coverage.index.name, f"the first {count:,} by {text}", count * max(1, segments), True)
    notes = {**plan.notes, "found by": coverage.index.name, "offers": (offer,), "segments": segments}
    return replace(plan, tasks=tuple(tasks), notes=notes)


def _ordering_index(reading: Reading, test: Test, order: Sequence[tuple[str, str]]) -> tuple[Coverage, Any] | None:
    """Return an index that has the rows in this order, with the probe it can answer for the predicate, if any."""
    schema = reading.schema
    if any(column == ROW_ID for column, _ in order):
        return None
    wanted = [(schema.field(column).column, direction == "desc") for column, direction in order]
    for coverage in reading.state.indexes.values():
        index, kind = coverage.index, kind_if_known(coverage.index.kind)
        orders = getattr(kind, "orders", None)
        if kind is None or orders is None or not index.serves(reading.snapshot, schema):
            continue
        fields = index.fields(schema)
        probe = kind.probe(index, fields, test)
        for some in (probe, None) if probe is not None else (None,):
            if orders(index, fields, wanted, some):
                return coverage, some
    return None


def _first_of(
    reading: Reading,
    files: OpenFiles,
    plan: ScanPlan,
    group: Group,
    segment: Any,
    chunks: Any,
    count: int,
    chosen: Positions,
) -> bool:
    """Add the first matching rows of a segment to ``chosen``.  Return False if they are too far apart."""
    rows = sum(block.record_count for block, _ in group.blocks)
    seen = kept = 0
    for block, _ in group.blocks:
        chosen.setdefault(block.data_file_id, [])
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            slots = chunk[at : at + max(count - kept, seen)]  # as many as are missing, then more and more
            found = np.zeros(len(slots), np.bool_)
            for block, ordinal in group.blocks:
                start, end = segment.starts[ordinal], segment.starts[ordinal + 1]
                here = (slots >= start) & (slots < end)
                if here.any():
                    positions = slots[here] - start
                    found[here] = np.isin(positions, _visible(reading, files, plan, block, positions))
            found &= np.cumsum(found) <= count - kept
            for block, ordinal in group.blocks:
                start, end = segment.starts[ordinal], segment.starts[ordinal + 1]
                chosen[block.data_file_id].append(slots[found & (slots >= start) & (slots < end)] - start)
            kept += int(found.sum())
            seen += len(slots)
            at += len(slots)
            if kept >= count:
                return True
            if seen > max(4 * count, WORTH * rows) and files.use_indexes != "always":
                return False
    return True


def _visible(
    reading: Reading, files: OpenFiles, plan: ScanPlan, block: BlockRecord, positions: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return those of the positions whose rows the plan would return."""
    log = reading.state.deletes.get(block.data_file_id)
    gone = log.at(reading.snapshot) if log is not None else None
    if gone:
        positions = positions[~is_among(positions, gone)]
    if (plan.predicate is None and plan.hidden_rows is None and block.max_snapshot <= reading.snapshot) or not len(
        positions
    ):
        return positions
    task = block_task(reading.state, block, reading.snapshot, np.sort(positions).astype(np.uint64))
    batches = read_task(task, files, (), plan.predicate, row_id=True, hidden=plan.hidden_rows)
    ids = [batch.column(ROW_ID).to_numpy() for batch in batches]
    if not ids:
        return positions[:0]
    return reading.state.addresses(block, files).positions_of(np.concatenate(ids))
