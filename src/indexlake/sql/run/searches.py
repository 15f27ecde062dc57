"""The searches in a query: each runs once, when the query is planned, and its rows become a table for the engine.

A search reads the snapshot of its query; in a transaction it also sees the transaction's own writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from indexlake.errors import ExpressionError
from indexlake.schema import ROW_ID
from indexlake.snapshots.reading import Reading
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.search_call import NAME
from indexlake.sql.parse.token_reader import TableName, TokenReader
from indexlake.sql.parse.tokens import Source, tokenize
from indexlake.sql.plan.query import SearchReference
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.types import for_duckdb

_POSITIONAL = {
    "table": "the first argument",
    "index": "the second argument",
    "column": "the second argument",
    "by": "the second argument",
    "query": "the third argument",
}


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of one search, as ``table.search`` returns them."""

    reference: SearchReference
    found: Reading  # the table that was searched
    rows: pa.Table
    explained: Callable[[], Any]

    @property
    def names(self) -> list[str]:
        """The names that a query may use of it."""
        return list(dict.fromkeys([*self.found.schema.names, *self.rows.schema.names]))

    def for_duckdb(self) -> pa.Table:
        return for_duckdb(self.rows)

    def describe(self) -> str:
        """Return the lines for ``explain``."""
        head, *rest = str(self.explained()).splitlines()
        lines = [
            head if self.reference.alias == NAME else f"{head}, as {self.reference.alias}",
            f"  columns: {', '.join(self.rows.schema.names)}",
            f"  rows: {self.rows.num_rows:,}",
            *rest,
        ]
        return "\n".join(lines)


class WantedSearch:
    """One search, with the values of its arguments."""

    def __init__(self, engine: Engine, reference: SearchReference, parameters: Parameters) -> None:
        self._engine = engine
        self._parameters = parameters
        self._reference = reference
        call = reference.call
        self.table = self._table_name(call.table)
        self._index = self._index_names(call.index)
        self._queries = self._query_values(call.index, call.query)
        self._options = {name: self._option(name, written) for name, written in call.options}

    def _table_name(self, written: Fragment) -> TableName:
        """Parse text that names a table as a query does: ``orders``, ``sales.orders``, ``"My table"``."""
        token, value = written.tokens[0], self._value(written)
        if not isinstance(value, str) or not value:
            written.source.fail("The first argument of search is the name of a table, as text.", written.start)
        exact = len(written.tokens) == 1 and token.kind == "string" and token.text == f"'{value}'"
        source = Source(value, (written.source, lambda place: written.start + (place + 1 if exact else 0)))
        r = TokenReader(source, tokenize(source), {})
        name = r.table_name()
        if not r.at_end:
            r.fail('This is not the name of a table; quote a name that is more than letters and digits: "my table".')
        return name

    def _index_names(self, written: Fragment) -> Any:
        """Return a name, or pairs of a name and a query."""
        value = self._value(written)
        if isinstance(value, Mapping):
            return list(value.items())
        if isinstance(value, list):
            if not value or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in value):
                written.source.fail("Several indexes are written {'index': query, 'other': query}.", written.start)
            return [(pair[0], pair[1]) for pair in value]
        if not isinstance(value, str):
            written.source.fail("The second argument of search names an index or a column, as text.", written.start)
        return value

    def _query_values(self, index: Fragment, query: Fragment | None) -> tuple[Any, ...]:
        """Return the query for a single index; nothing for several indexes, which come with a query each."""
        if isinstance(self._index, list):
            if query is not None:
                query.source.fail("With several indexes, each has its own query: leave this one out.", query.start)
            return ()
        if query is None:
            place = index.tokens[-1].end
            index.source.fail("A search needs a query after the index or column: text or a vector.", place)
        value = self._value(query)
        if value is None:
            query.source.fail("A search needs a query: this one is null.", query.start)
        return (value,)

    def _option(self, name: str, written: Fragment) -> Any:
        if name in _POSITIONAL:
            written.source.fail(
                f"{name!r} is {_POSITIONAL[name]} of search and is given without a name.", written.start
            )
        if name == "self":
            written.source.fail("A search has no argument 'self'.", written.start)
        return self._value(written)

    def _value(self, written: Fragment) -> Any:
        try:
            return _plain(constant_value(self._engine, written, self._parameters))
        except ExpressionError as error:
            raise ExpressionError(
                f"The arguments of search(…) must be constants or parameters. {error}", text=written.source.text
            ) from None

    def run(self, view: Viewpoint, found: Reading) -> FoundRows:
        """Run the search.  ``found`` is the table at the query's snapshot."""
        reference, tx = self._reference, view.transaction
        name = found.state.table.full_name
        if tx is not None and reference.at is None:
            table = tx._table(name)
        else:
            table = view.lake._table(name, snapshot=found.snapshot)
        options = dict(self._options)
        if "columns" not in options and reference.asked is not None:
            options["columns"] = [name for name in found.schema.names if name.lower() in reference.asked]
        if reference.row_id:
            given = options.get("columns")
            options["columns"] = [*(found.schema.names if given is None else given), ROW_ID]
        search = table.search(self._index, *self._queries, **options)
        return FoundRows(reference, found, search._table_of_all(), search.explain)


def _plain(value: Any) -> Any:
    """Convert decimals, which is what DuckDB makes of 1.5, including those in lists and rows."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return [_plain(item) for item in value] if value and isinstance(value[0], Decimal | list) else value
    return value
