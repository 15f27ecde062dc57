"""Files on an object store, which DuckDB reads and writes as local files.

The files that a query reads are copied to the lake's spill folder before it starts and stay there while the query can
run; files that a ``copy`` writes are sent when complete.  Only one piece of a file is in memory at a time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from indexlake.errors import StorageError
from indexlake.sources.remote import found_on_store
from indexlake.sql.parse.fragment import Edit, Fragment, edited
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.schema_mentions import is_alias
from indexlake.sql.parse.statement import Query
from indexlake.sql.parse.tokens import Token, quoted, text_literal
from indexlake.sql.plan.positions import is_table
from indexlake.sql.plan.query import FILE
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.storage.address import is_remote

READERS = frozenset({
    "read_parquet", "parquet_scan", "read_csv", "read_csv_auto", "sniff_csv", "read_json", "read_json_auto",
    "read_json_objects", "read_json_objects_auto", "read_ndjson", "read_ndjson_auto", "read_ndjson_objects",
    "parquet_metadata", "parquet_schema", "parquet_file_metadata", "parquet_kv_metadata", "read_text", "read_blob",
    "glob",
})  # fmt: skip
_PIECE = 4 << 20


class StagingFolder:
    """A folder that is removed together with the object."""

    def __init__(self, engine: Engine) -> None:
        self._exchange = engine.exchange
        self.path = tempfile.mkdtemp(prefix="files-", dir=engine.spill.folder())
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def fetch(self, address: str) -> str:
        """Copy the files that an address or a pattern matches, and return the corresponding local name or pattern."""
        storage, path = self._exchange.found(address)
        for file in found_on_store(address, storage.secrets, None):
            local = os.path.join(self.path, file.path)
            os.makedirs(os.path.dirname(local), exist_ok=True)
            with file.open() as source, open(local, "wb") as out:
                shutil.copyfileobj(source, out, _PIECE)
        return os.path.join(self.path, path)

    def target(self, address: str) -> str:
        """Return where to write a file, or a folder of files, before it is sent."""
        path = self._exchange.found(address, writing=True)[1]
        local = os.path.join(self.path, path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return local

    def send(self, address: str, *, into_full: bool, replacing: bool) -> None:
        """Send what was written.

        The destination folder has to be empty, unless files may be added to it (``into_full``) or are removed first
        (``replacing``).
        """
        storage, path = self._exchange.found(address)
        local = os.path.join(self.path, path)
        if os.path.isdir(local) and not into_full:
            there = next(iter(storage.list(path)), None)
            if there is not None and not replacing:
                raise StorageError(
                    f"{address!r} contains files already: use OVERWRITE, OVERWRITE_OR_IGNORE or APPEND.", path=address
                )
            if there is not None:
                storage.remove_dir_all(path)
        names = [path]
        if os.path.isdir(local):
            found = (os.path.join(folder, name) for folder, _, files in os.walk(local) for name in files)
            names = sorted(os.path.relpath(name, self.path) for name in found)
        for name in names:
            with open(os.path.join(self.path, name), "rb") as source, storage.create_file(name, overwrite=True) as out:
                while piece := source.read(_PIECE):
                    out.write(piece)


def with_local_files(engine: Engine, query: Query, parameters: Parameters) -> tuple[Query, StagingFolder | None]:
    """Return the query over copies of the remote files that it names, and the folder that keeps them."""
    text = query.text
    tokens = query.__dict__.get("files")
    if tokens is None:
        tokens = query.__dict__["files"] = [t for t in text.tokens if _is_file(text, t)]
    named = [(token, addresses) for token in tokens if (addresses := _addresses(text, token, parameters))]
    if not named:
        return query, None
    staged = StagingFolder(engine)
    edits: list[Edit] = []
    for token, addresses in named:
        if text.has_word("filename", "glob", "read_text", "read_blob"):
            text.source.fail("The names of files on an object store are not known to the query.", token.start)
        local = [text_literal(staged.fetch(a) if is_remote(a) else a) for a in addresses]
        listed = f"[{', '.join(local)}]" if token.kind == "parameter" and len(local) > 1 else local[0]
        edits.append((token.start, token.end, listed))
    return Query(edited(text, edits)), staged


def with_files_as_tables(engine: Engine, query: Query, parameters: Parameters) -> tuple[Query, dict[str, str]]:
    """Return the query for an engine that does not read files as DuckDB does, with tables in place of files.

    Also return where each table is: a Parquet file written by DuckDB, which stays until the lake is closed.
    """
    query, staged = with_local_files(engine, query, parameters)
    text, edits, tables = query.text, list[Edit](), dict[str, str]()
    mentions = _mentions(text)
    if not mentions:
        return query, {}
    kept = StagingFolder(engine)
    engine.kept += [kept, staged]
    for first, last in mentions:
        tokens = text.tokens[first : last + 1]
        name = f"{FILE}{uuid.uuid4().hex}"
        tables[name] = os.path.join(kept.path, f"{len(tables)}.parquet")  # Spark skips names that begin with _
        written = Fragment(text.source, tokens, text.question_marks)
        target = text_literal(tables[name])
        spliced = written.spliced(prefix="copy (from ", suffix=f") to {target} (format parquet)")
        with translating(text.source, spliced), engine.cursor() as cursor:
            cursor.execute(spliced.text, parameters.of(written.parameters) or None)
        after = text.tokens[last + 1] if last + 1 < len(text.tokens) else None
        named = after is not None and (after.is_word("as") or is_alias(after.kind, after.value))
        alias = PurePosixPath(tokens[0].value).stem if tokens[0].kind == "string" else tokens[0].value
        edits.append((tokens[0].start, tokens[-1].end, name if named else f"{name} as {quoted(alias)}"))
    return Query(edited(text, edits)), tables


def _mentions(text: Fragment) -> list[tuple[int, int]]:
    """Return where files are used as tables: the first and the last token of each."""
    found, tokens = [], text.tokens
    for n, token in enumerate(tokens[1:], 1):
        if not is_table(tokens, n):
            continue
        if token.kind == "string":
            found.append((n, n))
        elif token.is_word(*READERS) and n + 1 < len(tokens) and tokens[n + 1].is_symbol("("):
            depth = 0
            for last in range(n + 1, len(tokens)):
                depth += tokens[last].is_symbol("(") - tokens[last].is_symbol(")")
                if not depth:
                    found.append((n, last))
                    break
    return found


def _addresses(text: Fragment, token: Token, parameters: Parameters) -> Sequence[str]:
    value: Any = None
    if token.kind == "string":
        value = token.value
    elif token.kind == "parameter":
        value = parameters.values.get(text.key(token))
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(item, str) for item in found) or not any(map(is_remote, found)):
        return []
    return found


def _is_file(text: Fragment, token: Token) -> bool:
    """Return whether it is in the place of a table, or an argument of a function that reads files."""
    if token.kind not in ("string", "parameter"):
        return False
    n = next(i for i, t in enumerate(text.tokens) if t is token)
    if is_table(text.tokens, n) or (n and text.tokens[n - 1].is_word("table", "summarize", "describe")):
        return token.kind == "string"
    depth = 0
    for before in range(n - 1, 0, -1):
        depth += text.tokens[before].is_symbol(")") - text.tokens[before].is_symbol("(")
        if depth < 0:
            return text.tokens[before - 1].is_word(*READERS)
    return False
