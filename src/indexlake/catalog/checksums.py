"""The checksums of files in the catalog, read when a file is opened.

They are most of what the catalog keeps of a block, and of a large table few blocks are ever read by one process.  So
records carry a ``Kept`` in their place.  The catalog keeps checksums for as long as the file is there: first in its
record, then beside its path among the files that vacuum has yet to delete.  Whoever has seen the record of a file can
therefore read the file, whatever jobs do meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, SupportsBytes

from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.storage.failure import missing

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog

_AT_ONCE = 300


class Kept:
    """The checksums of a file, which are in the catalog: ``bytes`` reads them.  Pickles as these bytes."""

    __slots__ = ("_catalog", "_path")

    def __init__(self, catalog: Catalog, path: str) -> None:
        self._catalog = catalog
        self._path = path

    def __bytes__(self) -> bytes:
        return bytes_of([self])[0]

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kept) and self._path == other._path  # no two files have one name

    def __hash__(self) -> int:
        return hash(self._path)

    def __repr__(self) -> str:
        return f"Kept({self._path!r})"


def bytes_of(checksums: Sequence[SupportsBytes]) -> list[bytes]:
    """The stored form of each; those in the catalog are read together."""
    kept = [each for each in checksums if isinstance(each, Kept)]
    if not kept:
        return list(map(bytes, checksums))
    with kept[0]._catalog.read() as r:
        found = read_checksums(r, [each._path for each in kept])
    return [found[each._path] if isinstance(each, Kept) else bytes(each) for each in checksums]


def read_checksums(r: ReadTransaction | Transaction, paths: Iterable[str]) -> dict[str, bytes]:
    """The checksums of each of these files."""
    wanted = list(paths)
    found: dict[str, bytes] = {}
    for kind in ("data_file", "index_file", "garbage"):
        for n in range(0, len(wanted), _AT_ONCE):
            some = wanted[n : n + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            found.update(
                r.rows(f"select relative_path, checksum from indexlake_{kind} where relative_path in ({marks})", some)
            )
        wanted = [path for path in wanted if found.get(path) is None]
    if wanted:
        raise missing(wanted[0])
    return found
