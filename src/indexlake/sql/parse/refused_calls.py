"""DuckDB table functions that SQL may not call, because they change the engine that all queries of a lake share.

Text is checked whenever it is tokenised, so that no such call reaches the engine through a view, a macro, a constant or
the text inside ``query('…')``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexlake.sql.parse.tokens import Source, Token

_NO_LOG = "The engine keeps no log; EXPLAIN ANALYZE shows how a query runs."
_NO_PROFILE = "Queries are not profiled in general: EXPLAIN ANALYZE profiles a single one."
_NO_STORAGE = "It shows how DuckDB stores its own tables. t.stats() shows where the rows of a lake are."
_NO_MEMORY = "It reads the memory of this process. Give Arrow data to a table's insert instead."
REFUSED = {
    "enable_logging": _NO_LOG,
    "disable_logging": _NO_LOG,
    "truncate_duckdb_logs": _NO_LOG,
    "duckdb_logs": _NO_LOG,
    "duckdb_log_contexts": _NO_LOG,
    "duckdb_logs_parsed": _NO_LOG,
    "enable_profiling": _NO_PROFILE,
    "disable_profiling": _NO_PROFILE,
    "duckdb_profiling_settings": _NO_PROFILE,
    "checkpoint": "Every commit is durable when it returns; the statement CHECKPOINT does nothing.",
    "force_checkpoint": "Every commit is durable when it returns; the statement FORCE CHECKPOINT does nothing.",
    "json_execute_serialized_sql": "Give the text of the query itself.",
    "pragma_storage_info": _NO_STORAGE,
    "pragma_metadata_info": _NO_STORAGE,
    "arrow_scan": _NO_MEMORY,
    "arrow_scan_dumb": _NO_MEMORY,
    "pandas_scan": _NO_MEMORY,
    "python_map_function": _NO_MEMORY,
    "seq_scan": "Name the table.",
    "read_duckdb": "SQL runs on a single lake, but files of CSV, JSON and Parquet can be read.",
}
"""What to do instead, by the function's name in lower case."""

_NAMED = re.compile(rf"\b(?:query|{'|'.join(REFUSED)})\b", re.IGNORECASE)
_NAMES_A_TABLE = (
    "into", "table", "exists", "on", "references", "with", "recursive", "view", "macro", "function", "update", "copy",
    "prepare", "execute",
)  # fmt: skip
"""After these words, a name with parentheses is not a function call."""


def refuse_calls(source: Source, tokens: Sequence[Token], tokenize: Callable[[str, int], object]) -> None:
    """Refuse calls of these functions.  ``tokenize`` checks a text inside the text that starts at the given place."""
    if _NAMED.search(source.text) is None:
        return
    for n, (token, after) in enumerate(pairwise(tokens)):
        if not after.is_symbol("(") or token.kind not in ("word", "name"):
            continue
        name = token.value.lower()
        if name not in REFUSED and name != "query":
            continue
        if n and tokens[n - 1].is_word(*_NAMES_A_TABLE):
            continue
        if name in REFUSED:
            source.fail(f"{token.value} cannot be called here. {REFUSED[name]}", token.start)
        depth = 1
        while n + depth + 1 < len(tokens) and tokens[n + depth + 1].is_symbol("("):
            depth += 1
        first, behind = [*tokens[n + depth + 1 : n + depth + 3], token, token][:2]
        if first.kind == "string" and first.text[0] in "'$" and behind.is_symbol(")"):
            tokenize(first.value, first.start)
            behind = [*tokens[n + 2 * depth + 1 : n + 2 * depth + 2], token][0]
            if behind.is_symbol(")"):
                continue
        elif first.kind in ("word", "name") and behind.is_symbol(",", ")"):  # the column list of a table
            continue
        source.fail("query(…) takes the text of a query as one constant.", token.start)
