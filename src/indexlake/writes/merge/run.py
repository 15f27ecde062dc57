"""One run of a merge: finds the rows, computes what happens to them, then changes the write-set.

Memory is bounded by batches of rows, by what goes to the hot store or into one block, and by a few bytes for each row
of the source and each row that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.batch_size import rows_of
from indexlake.commit.write_set import AbsentValues
from indexlake.display import short
from indexlake.errors import DuplicateKeyError
from indexlake.scan.execute import Piece
from indexlake.schema import Field
from indexlake.sources.rules import default_array
from indexlake.types.selection import take
from indexlake.writes.edit import Edit
from indexlake.writes.merge.clauses import BoundClause, Clause, Scope, bind_clause, keeps_key, scope_of, takes_key
from indexlake.writes.merge.keys import SourceKeys
from indexlake.writes.merge.match import Found, Matching, only
from indexlake.writes.merge.on import On
from indexlake.writes.merge.source import Source

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.transaction import Transaction

Indices = npt.NDArray[np.int64]


class MergeRun:
    """A merge, computed when constructed inside a transaction; ``edit`` is the outcome, ready to be applied."""

    def __init__(
        self, tx: Transaction, table_id: int, source: Source, on: On, clauses: Sequence[Clause],
        keys: SourceKeys | None = None,
    ) -> None:  # fmt: skip
        self._source, self._on = source, on
        self._keys = keys = SourceKeys(source, on) if keys is None else keys
        with tx.reading(table_id) as reading:
            self._state = reading.state
            self._schema = reading.schema
            bound = [(clause.when, bind_clause(clause, self._schema, source.schema)) for clause in clauses]
            matched = [clause for when, clause in bound if when == "matched"]
            inserts = [clause for when, clause in bound if when == "not matched"]
            alone = [clause for when, clause in bound if when == "not matched by source"]
            matching = Matching(reading, tx._lake, on, keys)
            if matched or inserts:
                matching.plan(self._fields(matched, on.rest))
            if alone:
                matching.plan_all(self._fields(alone, on.rest), _common_condition(alone))
        tx.pin()
        self.edit = Edit(tx, self._state)
        if matched or inserts:
            has_partner = np.zeros(len(source), np.bool_)
            for found in matching.rows():
                self._match(found, matched, has_partner)
            if inserts:
                self._insert(inserts, has_partner)
        for found in matching.all_rows() if alone else ():
            self._act(alone, found.piece, np.flatnonzero(~self._partners(found)), None, _no_rows(found.piece))
        self.edit.finish()

    # ------------------------------------------------------------ rows that match

    def _fields(self, clauses: Sequence[BoundClause], rest: Bound | None) -> tuple[Field, ...]:
        """Return the table's columns that must be read."""
        names = {name for clause in clauses for name in clause.scope.columns("t", clause.all_names)}
        if rest is not None:
            names.update(scope_of("matched", self._schema, self._source.schema).columns("t", rest.columns))
        return tuple(f for f in self._schema.fields if f.name in names)

    def _match(self, found: Found, clauses: Sequence[BoundClause], has_partner: npt.NDArray[np.bool_]) -> None:
        taken = _no_rows(found.piece)
        for indices, rows in self._keys.pairs(found.indices, found.numbers):
            indices, rows = self._satisfying(found.piece, indices, rows)
            has_partner[rows] = True
            if clauses:
                self._act(clauses, found.piece, indices, rows, taken)

    def _satisfying(self, piece: Piece, indices: Indices, rows: Indices) -> tuple[Indices, Indices]:
        """Return the pairs for which the whole condition of ``on`` is true."""
        rest = self._on.rest
        if rest is None or not len(indices):
            return indices, rows
        scope = scope_of("matched", self._schema, self._source.schema)
        mask = np.asarray(rest.mask(self._joined(scope, rest.columns, piece, indices, rows)))
        return indices[mask], rows[mask]

    def _partners(self, found: Found) -> npt.NDArray[np.bool_]:
        """Return which rows of a piece have a partner."""
        partners = _no_rows(found.piece)
        if self._on.rest is None:
            partners[found.indices] = True
            return partners
        for indices, rows in self._keys.pairs(found.indices, found.numbers):
            partners[self._satisfying(found.piece, indices, rows)[0]] = True
        return partners

    def _act(
        self,
        clauses: Sequence[BoundClause],
        piece: Piece,
        indices: Indices,
        rows: Indices | None,
        taken: npt.NDArray[np.bool_],
    ) -> None:
        """Apply to each pair the first clause whose condition is true. ``taken`` marks rows changed before."""
        left = np.arange(len(indices))
        for clause in clauses:
            if not len(left):
                return
            chosen, left = left, left[:0]
            if clause.condition is not None:
                pairs = self._joined(clause.scope, clause.condition.columns, piece, *_at(chosen, indices, rows))
                chosen, left = _split(chosen, clause.condition.mask(pairs))
            if not len(chosen) or clause.action == "nothing":
                continue
            these, partners = _at(chosen, indices, rows)
            self._take_once(taken, these, partners)
            chosen_rows = only(piece, these)
            if clause.setter is None:
                self.edit.delete(chosen_rows)
                continue
            same_key = keeps_key(clause.setter, self._schema, self._on.equal)
            self.edit.update(chosen_rows, self._versions(clause, piece, these, partners), same_key=same_key)

    def _versions(
        self, clause: BoundClause, piece: Piece, indices: Indices, rows: Indices | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the new versions of rows of a piece, some at a time."""
        assert clause.setter is not None
        step = rows_of(self._source.row_bytes + clause.setter.constant_bytes)
        for start in range(0, len(indices), step):
            pairs = None if rows is None else rows[start : start + step]
            batch = self._joined(clause.scope, clause.names, piece, indices[start : start + step], pairs)
            yield clause.setter.apply(batch, _old_values(batch))

    def _take_once(self, taken: npt.NDArray[np.bool_], indices: Indices, rows: Indices | None) -> None:
        """Refuse to change a row twice: it would be unclear which of its partners decides."""
        unique, first = np.unique(indices, return_index=True)
        again = taken[indices]
        if len(unique) < len(indices):
            again = again.copy()
            again[np.setdiff1d(np.arange(len(indices)), first)] = True
        if again.any():
            assert rows is not None
            raise self._matched_twice(int(rows[np.flatnonzero(again)[0]]))
        taken[unique] = True

    def _matched_twice(self, row: int) -> DuplicateKeyError:
        columns = [column for _, column in self._on.pairs]
        found = self._source.take(np.array([row]), list(dict.fromkeys(columns))).to_pylist()[0]
        values = tuple(found[column] for column in columns)
        shown = values[0] if len(values) == 1 else values
        name = self._state.table.full_name
        return DuplicateKeyError(
            f"Several rows of the source match one row of {name!r}, where {', '.join(f.name for f in self._on.fields)} "
            f"= {short(shown)}, and would change it more than once. Keep only one of them, or narrow the conditions.",
            table=name,
            key=shown,
        )

    def _joined(self, scope: Scope, names: Any, piece: Piece, indices: Indices, rows: Indices | None) -> pa.RecordBatch:
        """Return pairs of rows with these columns, named as in the scope."""
        arrays: dict[str, Any] = {"": pa.nulls(len(indices))}  # a batch without columns would have no rows
        at = pa.array(indices)
        whole = len(indices) == piece.batch.num_rows and bool((indices == np.arange(len(indices))).all())
        partners = scope.columns("s", names)
        source = self._source.take(rows, partners) if partners and rows is not None else None
        for name in names:
            side, column = scope.origin[name]
            if side == "s":
                assert source is not None
                arrays[name] = source.column(column)
            else:
                array = piece.batch.column(column)
                arrays[name] = array if whole else take(array, at)
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    # ------------------------------------------------------------ rows that are added

    def _insert(self, clauses: Sequence[BoundClause], has_partner: npt.NDArray[np.bool_]) -> None:
        added: list[Indices] = []
        for start, batch in self._source.batches():
            left = np.flatnonzero(~has_partner[start : start + batch.num_rows])
            for clause in clauses:
                if not len(left):
                    break
                chosen, left = left, left[:0]
                if clause.condition is not None:
                    rows = _named(clause.scope, clause.condition.columns, batch, chosen)
                    chosen, left = _split(chosen, clause.condition.mask(rows))
                if not len(chosen) or clause.setter is None:
                    continue
                rows = _named(clause.scope, clause.names, batch, chosen)
                self.edit.insert(clause.setter.apply(rows, _defaults(rows.num_rows)))
                added.append(start + chosen)
        if added:
            self._guard(np.concatenate(added), clauses)

    def _guard(self, rows: Indices, clauses: Sequence[BoundClause]) -> None:
        """Make the commit check that what was absent still is; primary keys are checked anyway."""
        numbers = self._keys.rows  # of the rows without NULL, ascending
        places = np.searchsorted(numbers, rows[np.isin(rows, numbers)])
        if not len(places):
            return
        keys = self._keys.column.take(places)
        setters = [clause.setter for clause in clauses if clause.setter is not None]  # of the clauses that add rows
        if (
            self._on.is_key(self._schema)
            and self._on.rest is None
            and all(takes_key(setter, self._schema, self._on.equal) for setter in setters)
        ):
            self.edit.claimed = keys
        else:
            self.edit.absent.append(AbsentValues(self._on.fields, keys))


def _no_rows(piece: Piece) -> npt.NDArray[np.bool_]:
    return np.zeros(piece.batch.num_rows, np.bool_)


def _split(places: Indices, mask: pa.BooleanArray) -> tuple[Indices, Indices]:
    """Split places into those for which the mask is true, and the others."""
    chosen = np.asarray(mask)
    return places[chosen], places[~chosen]


def _old_values(batch: pa.RecordBatch) -> Callable[[Field], pa.Array]:
    return lambda f: batch.column(f"t.{f.name}")


def _defaults(count: int) -> Callable[[Field], pa.Array]:
    return lambda f: default_array(f, count)


def _at(places: Indices, indices: Indices, rows: Indices | None) -> tuple[Indices, Indices | None]:
    return indices[places], None if rows is None else rows[places]


def _named(scope: Scope, names: Any, batch: pa.RecordBatch, rows: Indices) -> pa.RecordBatch:
    """Return rows of the source with these columns, named as in the scope."""
    columns = scope.columns("s", names)
    found = batch.select(columns)
    if len(rows) < batch.num_rows:
        found = found.take(pa.array(rows))
    arrays = [pa.nulls(len(rows)), *(found.column(scope.origin[name][1]) for name in names)]
    return pa.RecordBatch.from_arrays(arrays, ["", *names])


def _common_condition(clauses: Sequence[BoundClause]) -> Bound | None:
    """Return what a row without a partner must satisfy to be changed, in the table's own names; None: unknown."""
    if len(clauses) > 1 or clauses[0].condition is None:
        return None
    scope, condition = clauses[0].scope, clauses[0].condition
    return condition.renamed({name: scope.origin[name][1] for name in condition.columns})
