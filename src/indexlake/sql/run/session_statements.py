"""Prepared statements and settings: what a lake's engine remembers from one text to the next."""

from __future__ import annotations

from indexlake.commit.write_set import WriteResult
from indexlake.errors import NotFoundError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import Source
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.result import SqlChange

SETTINGS = frozenset({
    "threads", "worker_threads", "external_threads", "memory_limit", "max_memory", "max_temp_directory_size",
    "explain_output", "enable_progress_bar", "progress_bar_time",
    "max_expression_depth", "perfect_ht_threshold", "prefer_range_joins",
    "ordered_aggregate_threshold", "merge_join_threshold", "nested_loop_join_threshold", "pivot_filter_threshold",
    "scheduler_process_partial", "dynamic_or_filter_threshold", "late_materialization_max_rows",
    "enable_external_file_cache", "enable_object_cache", "parquet_metadata_cache",
    "debug_window_mode", "debug_force_external", "debug_force_no_cross_product", "debug_asof_iejoin",
    "asof_loop_join_threshold", "checkpoint_threshold", "wal_autocheckpoint", "immediate_transaction_mode",
})  # fmt: skip
"""What changes how fast a query is answered or what is reported of it, and never its rows."""

_FIXED = {
    "timezone": "Times are in UTC: convert with AT TIME ZONE.",
    "search_path": "Name the namespace of the call instead: lake.sql(…, namespace='…').",
    "schema": "Name the namespace of the call instead: lake.sql(…, namespace='…').",
    "default_null_order": "Say NULLS FIRST or NULLS LAST in ORDER BY.",
    "null_order": "Say NULLS FIRST or NULLS LAST in ORDER BY.",
    "default_order": "Say ASC or DESC in ORDER BY.",
    "integer_division": "Divide integers with //.",
    "default_collation": "Say COLLATE in the query.",
}


def meant(engine: Engine, statement: st.Execute, source: Source) -> st.Prepare:
    """The prepared statement that is to be executed."""
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
    """The values of the parameters of a prepared statement."""
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


def around(engine: Engine, statement: st.Around, given: Parameters, source: Source) -> SqlChange:
    if isinstance(statement, st.Prepare):
        engine.prepared[statement.name.lower()] = statement
    elif isinstance(statement, st.Deallocate) and statement.name is None:
        engine.prepared.clear()
    elif isinstance(statement, st.Deallocate):
        assert statement.name is not None
        if engine.prepared.pop(statement.name.lower(), None) is None:
            raise NotFoundError(f"There is no prepared statement {statement.name!r}.", name=statement.name)
    elif isinstance(statement, st.Setting):
        _set(engine, statement, given, source)
    return SqlChange(type(statement).__name__.lower(), WriteResult(0))


def _set(engine: Engine, statement: st.Setting, given: Parameters, source: Source) -> None:
    name = statement.name
    if name not in SETTINGS:
        why = _FIXED.get(name, "It may change what a query answers, or is none of this engine.")
        source.fail(
            f"The setting {name!r} cannot be changed. {why} Settings such as threads and memory_limit can.",
            statement.place,
        )
    value = None
    if statement.value is not None:
        written = statement.value
        plain = len(written.tokens) == 1 and written.tokens[0].kind == "word"
        found = written.tokens[0].value if plain else constant_value(engine, written, given)
        value = str(found) if isinstance(found, int) else "'" + str(found).replace("'", "''") + "'"
        with translating(source, written.spliced()):
            engine.set(name, value)
        return
    engine.set(name, None)
