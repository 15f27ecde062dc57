"""What the catalog alone tells about a table's indexes, without opening a segment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.catalog import activity
from indexlake.catalog.index_definitions import no_index
from indexlake.display import Listing, html_facts
from indexlake.errors import ExpressionError, SchemaError
from indexlake.indexes.registry import kind_named
from indexlake.pipeline.build_index import KIND as BUILD
from indexlake.pipeline.merge_index import KIND as MERGE

if TYPE_CHECKING:
    from indexlake.indexes.coverage import Coverage
    from indexlake.snapshots.reading import Reading
    from indexlake.table import Table


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One index of a table.

    ``state``: ``"ready"``; ``"building"``: some blocks have no segment yet, or a unique index is not enforced yet;
    ``"failing"``: the same, and the last job for it failed.  Answers are complete in every state.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    include: tuple[str, ...]
    unique: bool
    params: Mapping[str, Any]
    state: str
    size_bytes: int
    segments: int
    rows_in_segments: int
    rows_hot: int
    rows_uncovered: int
    last_error: str | None

    def _repr_html_(self) -> str:
        return html_facts(f"index {self.name}", {name: getattr(self, name) for name in self.__slots__})


def indexes(table: Table) -> list[IndexInfo]:
    with table._reading() as reading:
        jobs = activity.list_jobs(reading.transaction)
        hot = reading.hot.count()
    errors: dict[str, str | None] = {}
    for job in jobs:  # newest first
        if job.table_id == table._table_id and job.kind in (BUILD, MERGE) and job.state in ("done", "failed"):
            errors.setdefault(job.scope, job.error if job.state == "failed" else None)
    found = [
        _info(coverage, reading, hot, errors.get(str(coverage.index.index_id)))
        for coverage in reading.state.indexes.values()
        if coverage.index.end_snapshot is None and not coverage.index.is_primary
    ]
    return Listing(sorted(found, key=lambda info: info.name))


def _info(coverage: Coverage, reading: Reading, hot: int, error: str | None) -> IndexInfo:
    index, schema = coverage.index, reading.schema
    groups = coverage.groups(reading.state, reading.snapshot)
    covered = sum(block.record_count for group in groups for block, _ in group.blocks)
    visible = [b for b in reading.state.blocks.records if b.role != "history" and b.visible_at(reading.snapshot)]
    uncovered = sum(block.record_count for block in visible) - covered
    waiting = uncovered > 0 or (index.unique and index.enforced_snapshot is None)
    fits = index.fits(schema)
    return IndexInfo(
        name=index.name,
        kind=index.kind,
        columns=tuple(f.name for f in index.fields(schema)) if fits else (),
        include=tuple(f.name for f in index.all_fields(schema)[len(index.key_field_ids) :]) if fits else (),
        unique=index.unique,
        params=dict(index.params),
        state="ready" if not waiting else "building" if error is None else "failing",
        size_bytes=sum(group.segment.size for group in groups),
        segments=len(groups),
        rows_in_segments=covered,
        rows_hot=hot,
        rows_uncovered=uncovered,
        last_error=error,
    )


class IndexHandle:
    """Returned by ``table.index(name)``."""

    def __init__(self, table: Table, name: str) -> None:
        if not isinstance(name, str):
            raise SchemaError(f"{name!r} is not the name of an index.")
        self._table = table
        self._name = name
        self.info  # noqa: B018 (an unknown name is an error at once)

    def __repr__(self) -> str:
        return repr(self.info)

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    @property
    def info(self) -> IndexInfo:
        """What ``t.indexes()`` says about it."""
        known = indexes(self._table)
        for info in known:
            if info.name.lower() == self._name.lower():
                return info
        raise no_index(self._table.name, self._name, [info.name for info in known])

    def recall(self, sample: int = 100, k: int = 10) -> float:
        """The share of the true k nearest rows that a search finds, measured with vectors of existing rows against
        an exact search.  1.0: all of them."""
        for what, number in (("sample", sample), ("k", k)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ExpressionError(f"{what} must be a whole number, 1 or more; got {number!r}.")
        info, table = self.info, self._table
        column = info.columns[0]
        of_vectors = pa.types.is_fixed_size_list(table.schema.field(column).type)
        if not of_vectors or kind_named(info.kind).measure != "_distance":
            raise SchemaError(f"Index {info.name!r} is a {info.kind}: its answers are exact. recall is for vectors.")
        vectors = table.scan(columns=[column]).to_arrow().column(0).drop_null()
        picked = np.random.default_rng(0).permutation(len(vectors))[:sample]
        found = true = 0
        for vector in vectors.take(picked).to_pylist():
            if None in vector or not np.isfinite(vector).all() or not np.any(vector):
                continue
            exact = table.search(info.name, vector, k, columns=["_indexlake_row_id"], exact=True).to_pylist()
            near = table.search(info.name, vector, k, columns=["_indexlake_row_id"]).to_pylist()
            farthest = exact[-1]["_distance"] if exact else 0.0
            true += len(exact)
            found += sum(row["_distance"] <= farthest + 1e-6 * abs(farthest) for row in near)
        return min(1.0, found / true) if true else 1.0
