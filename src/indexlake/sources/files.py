"""``il.files``: which files to read and how.

A frozen value; nothing is looked up before it is used.  Then paths, folders and patterns, local or on an object store,
become one list of files in a fixed order, each with the format given by its name or by the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from indexlake.errors import NotFoundError, SchemaError, StorageError
from indexlake.sources.remote import RemoteFile, found_on_store
from indexlake.storage import Storage
from indexlake.storage.address import is_remote

FORMATS = ("parquet", "csv", "json", "arrow")
SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "csv",
    ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".arrow": "arrow", ".arrows": "arrow", ".ipc": "arrow", ".feather": "arrow",
}  # fmt: skip
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
_SIGNATURES = {b"PAR1": "Parquet", b"ARROW1": "Arrow", b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip"}


@dataclass(frozen=True, slots=True)
class CsvOptions:
    delimiter: str | None = None
    header: bool | tuple[str, ...] = True
    null: tuple[str, ...] = ("",)


@dataclass(frozen=True, slots=True)
class Files:
    """Files to read rows from; returned by ``il.files``."""

    paths: tuple[str, ...]
    format: str | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    storage_options: Mapping[str, str] | None = field(default=None, hash=False)  # secrets, so not in the repr
    own_storage: Storage | None = None

    @property
    def are_remote(self) -> bool:
        """Whether any of them is on an object store."""
        return any(map(is_remote, self.paths))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.paths[:3])) + (", …" if len(self.paths) > 3 else "")
        return f"<Files {shown}{f', format {self.format}' if self.format else ''}>"

    def list(self) -> list[SourceFile]:
        """Return every file, found and described; an error says which path is wrong."""
        files = []
        for path in self.paths:
            if is_remote(path):
                found = found_on_store(path, self.storage_options, self.own_storage)
                files += [self._described(PurePosixPath(f.path).name, f.address, f.size, f.head(), f) for f in found]
            else:
                files += [self._local(found) for found in _found(path)]
        return files

    def _local(self, path: Path) -> SourceFile:
        if path.exists() and not path.is_file():
            raise SchemaError(f"{str(path)!r} is not a file that can be read twice.", path=str(path))
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                head = file.read(6)
        except OSError as error:
            raise StorageError(f"{str(path)!r} cannot be read: {error.strerror}.", path=str(path)) from None
        return self._described(path.name, str(path), size, head)

    def _described(self, name: str, path: str, size: int, head: bytes, remote: RemoteFile | None = None) -> SourceFile:
        name = name.lower()
        compression = next((c for suffix, c in COMPRESSIONS.items() if name.endswith(suffix)), None)
        suffix = Path(name).suffix if compression is None else Path(Path(name).stem).suffix
        format = self.format or SUFFIXES.get(suffix)
        if format is None:
            raise SchemaError(
                f"The format of {path!r} is not clear from its name. Known suffixes: {', '.join(SUFFIXES)}; "
                f"for others pass il.files(…, format={' | '.join(map(repr, FORMATS))}).",
                path=path,
            )
        if compression is not None and format not in ("csv", "json"):
            raise SchemaError(
                f"{path!r}: a {format} file cannot be read if it is compressed as a whole; decompress it first.",
                path=path,
            )
        if self.csv != CsvOptions() and format != "csv":
            raise SchemaError(f"delimiter, header and null are for CSV; {path!r} is read as {format}.", path=path)
        options = self.csv
        if format == "csv" and options.delimiter is None:
            options = CsvOptions("\t" if suffix == ".tsv" else ",", options.header, options.null)
        _check_head(path, format, compression, head)
        return SourceFile(path, format, compression, size, options, remote=remote)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file, with everything needed to read it."""

    path: str
    format: str
    compression: str | None
    size: int
    csv: CsvOptions
    groups: tuple[int, int] | None = None  # for a Parquet file: only these row groups, first and end
    remote: RemoteFile | None = None  # where it is, if on an object store

    def open(self) -> Any:
        """Open the file as it is."""
        return pa.OSFile(self.path) if self.remote is None else pa.PythonFile(self.remote.open(), mode="r")

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, Any]]:
        """Open the decompressed content, and the file itself, whose position shows the progress."""
        with self.open() as raw:
            if self.compression is None:
                yield raw, raw
            else:
                with pa.CompressedInputStream(raw, self.compression) as content:
                    yield content, raw


def files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str | None = None,
    *,
    delimiter: str | None = None,
    header: bool | Sequence[str] = True,
    null: str | Sequence[str] = "",
    storage_options: Mapping[str, str] | None = None,
) -> Files:
    """Files as rows for ``insert`` and ``create_table``, when their names alone do not say enough.

    Parameters
    ----------
    paths
        A path, a pattern such as ``"data/*.csv"``, a folder, or a list of those; also ``"s3://bucket/data/*.csv"``.
    format
        ``"parquet"``, ``"csv"``, ``"json"`` (one object on each line) or ``"arrow"`` (file, stream, Feather).  Left
        out, the suffix of each file decides.
    delimiter
        CSV: what separates values; a comma, or a tab in ``.tsv`` files, if left out.
    header
        CSV: True, the first row has the names; False, there is none and the columns stand in the table's order;
        or the names of the columns, for files without a header.
    null
        CSV: the values that mean null when they are not in quotes; by default nothing at all.
    storage_options
        How to reach ``s3://…``, as for ``il.connect``.  Not needed for the bucket that the lake itself is in.

    Examples
    --------
    >>> il.files("prices.txt", format="csv", delimiter=";", null=["", "NA"])
    """
    if format is not None and format not in FORMATS:
        raise SchemaError(f"format is one of {', '.join(map(repr, FORMATS))}, not {format!r}.")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\n'):
        raise SchemaError(f"delimiter is a single ASCII character, not {delimiter!r}.")
    if not isinstance(header, bool):
        header = _texts("header", header)
    nulls = (null,) if isinstance(null, str) else _texts("null", null)
    if not isinstance(storage_options, Mapping | None):
        raise SchemaError("storage_options is a dict of names and values, as for il.connect.")
    found = _as_paths(paths)
    if found is None:
        raise SchemaError(f"il.files takes a path, a pattern, or a list of them, not {paths!r}.")
    return Files(found, format, CsvOptions(delimiter, header, nulls), storage_options)


def reaching(source: Any, own: Storage) -> Any:
    """Return the source, with files in the lake's own bucket using the lake's options."""
    found = as_files(source)
    if found is None or not found.are_remote or found.storage_options is not None:
        return source
    return replace(found, own_storage=own)


def as_files(source: Any) -> Files | None:
    """Return the source as files if it is an ``il.files`` value, a path, or a list of paths; else None."""
    if isinstance(source, Files):
        return source
    found = _as_paths(source)
    return None if found is None else Files(found)


def _as_paths(source: Any) -> tuple[str, ...] | None:
    if isinstance(source, str | Path):
        return (str(source),)
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | Path) for item in source):
        return tuple(map(str, source))
    return None


def _texts(name: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise SchemaError(f"{name} takes strings, not {values!r}.")
    return tuple(values)


def _found(text: str) -> list[Path]:
    if "\x00" in text or not text:
        raise NotFoundError(f"{text!r} is not a path.", name=text)
    path = Path(text).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.exists():
        return [path]
    matching = [Path(name) for name in sorted(glob(str(path), recursive=True)) if not Path(name).is_dir()]
    if not matching or not has_magic(text):
        what = "No file matches" if has_magic(text) else "There is no file"
        raise NotFoundError(f"{what} {text!r} (looked in {str(Path.cwd())!r}).", name=text)
    return matching


def _in_folder(folder: Path) -> list[Path]:
    """Return the files of a folder, sorted by name, ignoring hidden files and markers such as ``_SUCCESS``."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise StorageError(f"{str(folder)!r} cannot be read: {error.strerror}.", path=str(folder)) from None
    inner = [entry for entry in entries if entry.is_dir()]
    if inner:
        raise SchemaError(
            f"{str(folder)!r} holds folders ({inner[0].name!r}), whose names may carry values that are not in the "
            f"files. Name the files by a pattern: {str(folder / '**' / '*.parquet')!r}.",
            path=str(folder),
        )
    if not entries:
        raise NotFoundError(f"The folder {str(folder)!r} holds no files.", name=str(folder))
    return entries


def _check_head(path: str, format: str, compression: str | None, head: bytes) -> None:
    """Refuse empty files, and text formats whose content is something else."""
    if not head:
        raise SchemaError(f"{path!r} is empty: it has no columns and no rows.", path=path)
    if format in ("csv", "json") and compression is None:
        for signature, name in _SIGNATURES.items():
            if head.startswith(signature):
                raise SchemaError(
                    f"{path!r} is to be read as {format}, but it begins as a {name} file. Give it the right "
                    "suffix, or pass il.files(…, format=…).",
                    path=path,
                )
