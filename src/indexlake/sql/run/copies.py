"""``copy``: rows of a query into files, and rows of files into a table.

DuckDB writes the files from our scans, and reads them as its own ``copy`` would: the table's columns determine what is
in a CSV or JSON file; those of a Parquet file are taken in order.  The rows then go through the normal insert.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.errors import StorageError
from indexlake.schema import TableSchema
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import Source, quoted, text_literal, tokenize
from indexlake.sql.plan.query import SOURCE
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.planned_query import PlannedQuery
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.result import SqlChange, SqlResult, table_result
from indexlake.sql.run.staged_files import StagingFolder
from indexlake.sql.run.type_names import sql_names
from indexlake.storage.address import is_remote
from indexlake.storage.exchange import refusal

_SUFFIXES = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_READ = {"csv": "read_csv", "parquet": "read_parquet", "json": "read_json"}
_RENAMED = {"null": "nullstr", "array": "format", "delimiter": "delim"}
_OF_THE_TABLE = frozenset({
    "columns", "types", "dtypes", "column_types", "names", "column_names", "all_varchar", "union_by_name", "filename",
    "normalize_names", "hive_partitioning", "hive_types", "hive_types_autocast", "auto_type_candidates",
})  # fmt: skip
"""Options of DuckDB's file readers that ``copy`` does not have, because the table decides."""


def copy_to(
    engine: Engine,
    view: Viewpoint,
    statement: st.CopyTo,
    parameters: Parameters,
    elsewhere: Callable[[st.Query], SqlResult] | None = None,
) -> SqlResult:
    """Write the rows of a query to files.  ``elsewhere`` computes the rows if DuckDB does not."""
    path = _path(engine, statement.file, parameters)
    options = statement.options
    if options is not None and options.parameters:
        options.source.fail("Options of COPY must be constants.", options.start)
    if options is not None:
        _check_names(options)
    staged = StagingFolder(engine) if is_remote(path) else None
    local = path if staged is None else staged.target(path)
    if staged is None:
        engine.exchange.check_target(path, view.lake._own_places)
    if staged is None and os.path.realpath(path).startswith(os.path.realpath(engine.spill.folder()) + os.sep):
        raise StorageError(refusal(path), path=path)  # DuckDB spills there, so it could write
    engine.exchange.make_folder(local)
    target = f" to {text_literal(local)} {'' if options is None else options.text}"
    if elsewhere is None:
        found = _written(plan_query(engine, view, statement.query, parameters, points=False, scans_only=True), target)
    else:
        computed = elsewhere(statement.query)
        rows = pa.RecordBatchReader.from_batches(*computed._run())
        with translating(statement.file.source, statement.file.spliced()):
            found = engine.begin({SOURCE: rows}, f"copy (from {SOURCE}){target}", {}, 0).table()
    if staged is not None:
        into_full = options is not None and options.has_word("append", "overwrite_or_ignore")
        replacing = options is not None and options.has_word("overwrite")
        staged.send(path, into_full=into_full, replacing=replacing)
        found = _with_addresses(found, staged.path, path)
    if found.num_columns == 1 and found.num_rows == 1:
        return SqlChange("copy", WriteResult(int(found.column(0)[0].as_py())))
    return table_result(found, None)


def _check_names(options: Fragment) -> None:
    """Refuse names of files that would lead out of the folder."""
    for n, token in enumerate(options.tokens):
        if token.is_word("filename_pattern", "file_extension"):
            value = next((t for t in options.tokens[n + 1 :] if t.kind != "symbol"), None)
            if value is not None and ("/" in value.value or "\\" in value.value):
                options.source.fail("A file name cannot contain a slash: COPY … TO names the folder.", value.start)


def _written(planned: PlannedQuery, target: str) -> pa.Table:
    """Write the rows of a query with its own column names, and return DuckDB's answer."""
    names = [str(name) for name in planned.describe().column("column_name").to_pylist()]
    shown = [planned.query.shown(name) for name in names]
    if shown == names:
        return planned.execute("copy (", f"){target}")
    renamed = ", ".join(map(quoted, shown))
    return planned.execute("copy (select * from (", f") as _({renamed})){target}")


def _with_addresses(found: pa.Table, folder: str, address: str) -> pa.Table:
    """Return DuckDB's answer with the files' names on the object store."""
    bucket = "/".join(address.split("/")[:3])

    def renamed(value: object) -> object:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return value.replace(folder, bucket) if isinstance(value, str) else value

    columns = [pa.array([renamed(v) for v in c.to_pylist()], c.type) for c in found.columns]
    return pa.Table.from_arrays(columns, schema=found.schema)


def copied_insert(engine: Engine, statement: st.CopyFrom, schema: TableSchema, parameters: Parameters) -> st.Insert:
    """Return the insert that has the effect of a ``copy … from``."""
    path = _path(engine, statement.file, parameters)
    columns = statement.columns
    fields = [f for f in schema.fields if f.generated is None] if columns is None else schema.project(columns)
    source = statement.file.source
    format = "csv"
    for suffix, found in _SUFFIXES.items():
        if path.lower().removesuffix(".gz").removesuffix(".zst").endswith(suffix):
            format = found
    written = next((o for o in statement.options if o.name == "format"), None)
    if written is not None:
        format = written.value.strip("'").lower()
    if format not in _READ:
        place = statement.file.start if written is None else written.place
        source.fail(f"Files of the format {format!r} cannot be copied; csv, json and parquet can.", place)
    arguments = [text_literal(path)]
    for option in statement.options:
        if option is not written:
            arguments.append(_argument(engine, option, _READ[format], source))
    if format != "parquet":
        types = zip(fields, sql_names(engine, fields), strict=True)
        given = ", ".join(f"{text_literal(f.name)}: {text_literal(type)}" for f, type in types)
        arguments.append(f"columns = {{{given}}}")
    query = _at(statement.file, f"from {_READ[format]}({', '.join(arguments)})")
    return st.Insert(statement.table, None, columns, False, st.Query(query), None, None)


def _argument(engine: Engine, option: st.CopyOption, reader: str, source: Source) -> str:
    name, value = _RENAMED.get(option.name, option.name), option.value
    if option.name == "array":
        value = "'array'" if value.lower() in ("true", "1") else "'auto'"
    known = engine.table(
        "select unnest(parameters) from duckdb_functions() where function_name = $name limit 500", {"name": reader}
    )
    if option.name in _OF_THE_TABLE or name not in known.column(0).to_pylist():
        source.fail(
            f"{option.name.upper()} is not an option of COPY … FROM. {reader} may have it: use INSERT … SELECT … FROM "
            f"{reader}(…).",
            option.place,
        )
    return f"{name} = {value}"


def copy_into_temporary(engine: Engine, statement: st.CopyFrom, text: Fragment, parameters: Parameters) -> SqlChange:
    """Run ``copy`` into a temporary table in DuckDB, which owns the table."""
    path = _path(engine, statement.file, parameters)
    staged = StagingFolder(engine) if is_remote(path) else None
    local = path if staged is None else staged.fetch(path)
    edits = [(statement.file.start, statement.file.end, text_literal(local))]
    if statement.table.namespace is not None:
        behind = next(t.start for t in text.tokens if t.start > statement.table.place) + 1
        edits.append((statement.table.place, behind, ""))
    spliced = text.spliced(edits)
    with translating(text.source, spliced), engine.cursor() as cursor:
        count = int(cursor.execute(spliced.text).fetchall()[0][0])
    return SqlChange("copy", WriteResult(count, None, count))


def _path(engine: Engine, written: Fragment, parameters: Parameters) -> str:
    found = constant_value(engine, written, parameters)
    if not isinstance(found, str) or not found:
        written.source.fail(f"The name of a file must be text, not {found!r}.", written.start)
    if "\0" in found:
        written.source.fail("The name of a file cannot contain a NUL character.", written.start)
    return found


def _at(place: Fragment, text: str) -> Fragment:
    """Return a text whose errors are located at a place in another one."""
    whole = Source(text, (place.source, lambda _: place.start))
    return Fragment(whole, tokenize(whole), {})
