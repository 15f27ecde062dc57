"""``il.restore``: recover a lake whose catalog is lost from what is in its storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from indexlake.catalog import tables
from indexlake.catalog.clock import now
from indexlake.connect import CATALOG_FILE, Opening, removed_after_failure, storage_address
from indexlake.display.progress import ProgressBar
from indexlake.errors import AlreadyExistsError, CorruptionError, IndexLakeError, SchemaError
from indexlake.hot import registry

if TYPE_CHECKING:
    from indexlake.pipeline.lost_catalog import LostCatalog
    from indexlake.pipeline.restore import RestoreResult
    from indexlake.storage import Storage


def restore(
    storage: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    catalog_schema: str | None = None,
    verify: bool = False,
    partial: bool = False,
    progress: bool | None = None,
) -> RestoreResult:
    """Make a new catalog for the files of a lake whose catalog is lost.

    Clustered tables are restored as of their newest meta files; the result says what could not be.  The new catalog
    owns the files from then on.

    Parameters
    ----------
    storage
        The storage root of the lake: a directory or ``s3://bucket/prefix``.
    into
        Where the new catalog goes: a folder or ``postgresql://…`` without a lake.
    verify
        Read every byte of the files, and compare it with its checksum.  Without it, only their sizes are compared.
    partial
        Restore the rest when blocks are missing or damaged; without it, that is an error.
    progress
        Whether to show a bar; by default shown for slow operations in a terminal or notebook.

    Examples
    --------
    >>> with il.connect("./before", storage="./shop-files") as before:
    ...     t = before.create_table("stock", {"id": "int64"}, primary_key="id", layout="clustered")
    >>> print(il.restore("./shop-files", into="./after"))
    """
    from indexlake.pipeline.lost_catalog import find
    from indexlake.pipeline.restore import write_catalog

    root = storage_address(storage)
    opening = Opening.of(into, storage_options, catalog_schema)
    if root is None or root.startswith("memory:"):
        raise SchemaError(f"storage is a directory or s3://bucket/prefix, not {storage!r}.")
    if not opening.persistent:
        raise SchemaError("A lake is restored into a folder or postgresql://…, not into memory.")
    with removed_after_failure([] if opening.folder is None else [opening.folder]):
        catalog = opening.existing_catalog(create=True)
        try:
            if catalog is not None and tables.read_lake(catalog) is not None:
                raise tables.there_is_a_lake(catalog.location)
            persisted = opening.persisted(root)
            files = opening.files(persisted)
            with ProgressBar("restore", progress) as bar:
                found = find(
                    files,
                    verify=verify,
                    progress=lambda done, tasks, rows, size: bar.show(done, tasks, rows=rows, size=size),
                )
            _check_lost(files, found)
            if found.lost_blocks and not partial:
                raise _incomplete(found)
            catalog = catalog or opening.open_catalog(True)
            properties = {"hot": registry.INLINE, "storage": persisted}
            return write_catalog(catalog, files, found.without_lost_blocks(), properties, now())
        finally:
            if catalog is not None:
                catalog.close()


def _check_lost(files: Storage, found: LostCatalog) -> None:
    """Refuse to restore if the catalog still exists at the usual place of a lake in a folder."""
    place = os.path.join(os.path.dirname(files.root), CATALOG_FILE)
    if not files.is_local or not os.path.exists(place):
        return
    from indexlake.catalog.sqlite import SqliteCatalog

    try:
        catalog = SqliteCatalog(place, read_only=True)
        try:
            record = tables.read_lake(catalog)
        finally:
            catalog.close()
    except IndexLakeError:
        return  # it cannot be read, so it is lost
    if record is not None and record.lake_id == found.lake_id:
        raise AlreadyExistsError(
            f"The catalog of these files is not lost: it is {place}. Two catalogs would destroy each other's files. "
            "Connect to it, or move it away first.",
            name=place,
        )


def _incomplete(found: LostCatalog) -> CorruptionError:
    rows = sum(block.rows for block in found.lost_blocks)
    named = "; ".join(map(str, found.lost_blocks[:5]))
    more = f"; and {len(found.lost_blocks) - 5:,} more" if len(found.lost_blocks) > 5 else ""
    return CorruptionError(
        f"Nothing was restored: {len(found.lost_blocks):,} of the blocks that hold the rows are missing or damaged, "
        f"with {rows:,} rows: {named}{more}. Bring the files back, or restore the rest with partial=True.",
        path=found.lost_blocks[0].path,
    )
