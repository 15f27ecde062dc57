"""Prepared statements, settings and variables: what a lake's engine remembers from one text to the next."""

from __future__ import annotations

import re

from indexlake.commit.write_set import WriteResult
from indexlake.errors import NotFoundError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import Source, quoted, text_literal
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.result import SqlChange

SETTINGS = frozenset({
    "threads", "worker_threads", "external_threads", "memory_limit", "max_memory", "max_temp_directory_size",
    "explain_output", "enable_progress_bar",
    "perfect_ht_threshold", "prefer_range_joins",
    "ordered_aggregate_threshold", "merge_join_threshold", "nested_loop_join_threshold", "pivot_filter_threshold",
    "scheduler_process_partial", "dynamic_or_filter_threshold", "late_materialization_max_rows",
    "enable_external_file_cache", "enable_object_cache", "parquet_metadata_cache",
    "asof_loop_join_threshold", "checkpoint_threshold", "wal_autocheckpoint", "immediate_transaction_mode",
    "disabled_optimizers", "enable_fsst_vectors", "index_scan_percentage",
    "index_scan_max_count", "partitioned_write_flush_threshold", "partitioned_write_max_open_files",
    "write_buffer_row_group_count", "enable_http_metadata_cache", "lambda_syntax", "storage_compatibility_version",
    "force_compression", "disabled_compression_methods", "force_bitpacking_mode", "max_vacuum_tasks",
})  # fmt: skip
"""Settings that affect how fast a query is answered, what is reported about it, or how DuckDB keeps a database of its
own, never its rows.  Only ``lambda_syntax`` decides what runs: whether ``x -> …`` is a lambda."""

_OTHER_NAMES = {"max_memory": "memory_limit", "worker_threads": "threads", "wal_autocheckpoint": "checkpoint_threshold"}
_LEAST_MEMORY = 16_000_000
"""With less, DuckDB could not even be given more again."""
_MEMORY = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([bkmgt])\w*\s*", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}

_FIXED = {
    "timezone": "Times are in UTC: convert with AT TIME ZONE.",
    "search_path": "Name the namespace of the call instead: lake.sql(…, namespace='…').",
    "schema": "Name the namespace of the call instead: lake.sql(…, namespace='…').",
    "default_null_order": "Say NULLS FIRST or NULLS LAST in ORDER BY.",
    "null_order": "Say NULLS FIRST or NULLS LAST in ORDER BY.",
    "default_order": "Say ASC or DESC in ORDER BY.",
    "integer_division": "Divide integers with //.",
    "default_collation": "Use COLLATE in the query.",
}
VARIABLES = "__il_variable_"


def meant(engine: Engine, statement: st.Execute, source: Source) -> st.Prepare:
    """Return the prepared statement to be executed."""
    found = engine.prepared.get(statement.name.lower())
    if found is None:
        raise NotFoundError(
            str(source.error(f"There is no prepared statement {statement.name!r}: PREPARE it first.", statement.place)),
            name=statement.name,
        )
    return found


def arguments(
    engine: Engine, prepared: st.Prepare, statement: st.Execute, given: Parameters, source: Source
) -> Parameters:
    """Return the values of a prepared statement's parameters."""
    values = {
        str(n) if argument.name is None else argument.name: _value(engine, argument.value, given)
        for n, argument in enumerate(statement.arguments, 1)
    }
    wanted = set(prepared.parameters)
    if values.keys() != wanted:
        names = ", ".join(f"${name}" for name in prepared.parameters) or "none"
        source.fail(
            f"{prepared.name!r} has the parameters {names}; {len(values)} given: {', '.join(values) or 'none'}.",
            statement.place,
        )
    return Parameters.of_values(values)


def _value(engine: Engine, written: Fragment, given: Parameters) -> object:
    token = written.tokens[-1]
    if len(written.tokens) == 1 and token.kind == "number" and token.text.isdigit():
        return int(token.text)
    return constant_value(engine, written, given)


def around(engine: Engine, view: Viewpoint, statement: st.Around, given: Parameters, source: Source) -> SqlChange:
    if isinstance(statement, st.Prepare):
        engine.prepared[statement.name.lower()] = statement
    elif isinstance(statement, st.Deallocate) and statement.name is None:
        engine.prepared.clear()
    elif isinstance(statement, st.Deallocate):
        assert statement.name is not None
        engine.prepared.pop(statement.name.lower(), None)
    elif isinstance(statement, st.Setting):
        _set(engine, view, statement, given, source)
    elif isinstance(statement, st.Variable):
        _set_variable(engine, view, statement, given)
    return SqlChange(type(statement).__name__.lower(), WriteResult(0))


def _set(engine: Engine, view: Viewpoint, statement: st.Setting, given: Parameters, source: Source) -> None:
    name, written = _OTHER_NAMES.get(statement.name, statement.name), statement.value
    found: object = None
    if written is not None:
        plain = all(t.kind in ("word", "name") or t.is_symbol(".") for t in written.tokens)
        found = "".join(t.value for t in written.tokens) if plain else _value(engine, written, given)
    if name not in SETTINGS:
        if _is_so(engine, view, name, found):
            return
        why = _FIXED.get(name, "It may change the results of queries, or this engine does not have it.")
        source.fail(
            f"The setting {name!r} cannot be changed. {why} Settings such as threads and memory_limit can.",
            statement.place,
        )
    if written is None:
        engine.set(name, None)
        return
    size = _MEMORY.fullmatch(str(found)) if name == "memory_limit" else None
    if size is not None and float(size[1]) * _UNITS[size[2].lower()] < _LEAST_MEMORY:
        source.fail("The engine needs a memory_limit of at least 16MB.", written.start)
    value = str(found) if isinstance(found, int) else text_literal(str(found))
    with translating(source, written.spliced()):
        engine.set(name, value)


def _is_so(engine: Engine, view: Viewpoint, name: str, value: object) -> bool:
    """Return whether a setting already has the value it is to be set to; the namespace is that of the call."""
    if name in ("schema", "search_path"):
        return value is not None and str(value).lower() in (view.namespace.lower(), f"memory.{view.namespace}".lower())
    known = engine.table("select value from duckdb_settings() where name ilike $name", {"name": name}).column(0)
    if value is None:
        return bool(len(known))
    return bool(len(known)) and known[0].as_py() is not None and known[0].as_py().lower() == str(value).lower()


def _set_variable(engine: Engine, view: Viewpoint, statement: st.Variable, given: Parameters) -> None:
    """Set a variable.  Its value is kept in one of DuckDB's own tables, with its type."""
    table = quoted(f"{VARIABLES}{statement.name}")
    if statement.value is None:
        engine.set_variable(statement.name, None)
        with engine.cursor() as cursor:
            cursor.execute(f"drop table if exists {table}")
        return
    planned = plan_query(engine, view, statement.value, given, points=False, scans_only=True)
    planned.execute(f"create or replace table {table} as ")
    engine.set_variable(statement.name, f"(select value from {table})")
