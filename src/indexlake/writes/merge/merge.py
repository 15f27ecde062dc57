"""``merge``: rows of a source are matched with rows of the table, and clauses say what happens to each.

A ``Merge`` is an immutable description; every clause method returns a new one. ``execute`` runs it as one statement:
all rows are found and computed before the write-set changes, so an error leaves nothing behind. Rows that a merge adds
because nothing matched are guarded at the commit: if another commit has added a match by then, this one conflicts and
is run again (`commit.wanted`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from indexlake.commit.token import TokenLike
from indexlake.commit.write_set import WriteResult
from indexlake.errors import ExpressionError, SchemaError
from indexlake.expr.moment import as_statement
from indexlake.schema import TableSchema
from indexlake.storage.spill import Spill
from indexlake.writes.merge.clauses import Clause, Params, When
from indexlake.writes.merge.on import bind_on
from indexlake.writes.merge.run import MergeRun
from indexlake.writes.merge.source import Source, take_source

if TYPE_CHECKING:
    from indexlake.table import Table
    from indexlake.transaction import Transaction


class _GivenRows:
    """The rows given by the caller, read at the first execution."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._source: Source | None = None
        self._lock = threading.Lock()

    def source(self, schema: TableSchema, spill: Spill) -> Source:
        with self._lock:
            if self._source is None:
                given = self._given
                self._source = given if isinstance(given, Source) else take_source(self._given, schema, spill)
                self._given = None
            return self._source


class Merge:
    """Returned by ``table.merge``.  Among clauses of one kind, the first whose condition is true applies."""

    def __init__(
        self, table: Table, rows: _GivenRows, on: Any, params: Params, clauses: tuple[Clause, ...] = ()
    ) -> None:
        self._table = table
        self._rows = rows
        self._on = on
        self._params = params
        self._clauses = clauses

    def __repr__(self) -> str:
        on = self._on if isinstance(self._on, str) else ", ".join(map(str, self._on))
        lines = [f"<Merge into {self._table.name} on {on}", *(f"  {clause}" for clause in self._clauses)]
        return "\n".join(lines) + (">" if self._clauses else ": no clause yet>")

    def when_matched_update(
        self, set: Mapping[str, Any] | None = None, condition: str | None = None, params: Params = None
    ) -> Merge:
        """Change rows that match.  ``set=None``: all columns of the source, by name."""
        return self._and(Clause("matched", "update", set, condition, params))

    def when_matched_delete(self, condition: str | None = None, params: Params = None) -> Merge:
        """Remove rows that match."""
        return self._and(Clause("matched", "delete", None, condition, params))

    def when_not_matched_insert(
        self, values: Mapping[str, Any] | None = None, condition: str | None = None, params: Params = None
    ) -> Merge:
        """Add source rows that match nothing.  ``values=None``: all columns of the source, by name."""
        return self._and(Clause("not matched", "insert", values, condition, params))

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Any] | None = None, condition: str | None = None, params: Params = None
    ) -> Merge:
        """Change rows of the table that no source row matches."""
        if set is None:
            raise SchemaError("when_not_matched_by_source_update needs set={…}: there is no source row to take from.")
        return self._and(Clause("not matched by source", "update", set, condition, params))

    def when_not_matched_by_source_delete(self, condition: str | None = None, params: Params = None) -> Merge:
        """Remove rows of the table that no source row matches."""
        return self._and(Clause("not matched by source", "delete", None, condition, params))

    def when_do_nothing(self, when: When, condition: str | None = None, params: Params = None) -> Merge:
        """Leave some rows as they are, whatever later clauses say.

        ``when``: "matched", "not matched" or "not matched by source".
        """
        if when not in get_args(When):
            raise SchemaError(f"when_do_nothing takes one of {', '.join(map(repr, get_args(When)))}, not {when!r}.")
        return self._and(Clause(when, "nothing", None, condition, params))

    def _and(self, clause: Clause) -> Merge:
        if isinstance(clause.values, Mapping):
            clause = Clause(clause.when, clause.action, dict(clause.values), clause.condition, clause.params)
        return Merge(self._table, self._rows, self._on, self._params, (*self._clauses, clause))

    def execute(self, token: TokenLike | None = None) -> WriteResult:
        """Run the merge in one commit.  If it loses to another commit, it is retried automatically."""
        if not self._clauses:
            raise ExpressionError(
                "This merge has no clause, so it would do nothing. Add one, for example .when_matched_update()."
            )
        return self._table._write("merge", self._apply, token)

    @as_statement
    def _apply(self, tx: Transaction) -> int:
        # The source first: it may run arbitrary code for a long time, and a single statement should not read an old
        # state.
        source = self._rows.source(self._table._schema_now(), self._table._lake.storage.spill)
        with tx.reading(self._table._table_id) as reading:
            on = bind_on(self._on, reading.schema, source.schema, self._params)
        return MergeRun(tx, self._table._table_id, source, on, self._clauses).edit.apply()


def merge(table: Table, source: Any, on: Any, params: Params) -> Merge:
    if not isinstance(on, str | list | tuple) or not on:
        raise SchemaError(
            f"on= says which rows match: a column, a list of columns, or a condition such as 't.id = s.id', not {on!r}."
        )
    return Merge(table, _GivenRows(source), on if isinstance(on, str) else tuple(on), params)
