"""What verify checks about meta files: the newest one of a clustered table agrees with the catalog.

A meta file may be older than the newest commits. Only if nothing has changed since must it agree in every point;
otherwise, the files that both know must agree. A missing meta file is no problem: the next job writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import table_heads
from indexlake.errors import IndexLakeError
from indexlake.partitions.meta import Header, TableMeta, meta_to_bytes
from indexlake.pipeline.meta import MetaFile, meta_files, metas_in, read_meta, table_meta
from indexlake.snapshots.reading import Reading
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage
from indexlake.storage.names import clustered_folder


@dataclass(frozen=True, slots=True)
class MetaNow:
    """The header of a meta file written now, and the snapshot in which the table last changed."""

    header: Header
    changed: int


def meta_now(reading: Reading) -> MetaNow | None:
    """Return the current header inside the read transaction; None: there is nothing to compare."""
    table = reading.state.table
    head = table_heads.read_head(reading.transaction, table.table_id)
    if head is None or not table.is_clustered or table.end_snapshot is not None:
        return None
    changed = max(head.changed_in, head.blocks_changed_in, head.deletes_changed_in)
    return MetaNow(meta_to_bytes(table_meta(reading))[0], changed)


def metas_of(storage: Storage, namespace_id: int, table_id: int) -> Sequence[MetaFile]:
    """Return the meta files of a table, the newest first; to be called before the catalog is read."""
    return meta_files(storage, metas_in(storage, clustered_folder(namespace_id, table_id))).get(table_id, [])


def wrong_metas(
    storage: Storage, metas: Sequence[MetaFile], state: TableState, now: MetaNow | None
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, each with the path of the meta file."""
    for each in metas:
        if each.header is None:
            yield each.file.path, "is damaged: it does not start like a meta file"
    newest = metas[0] if metas else None
    if newest is None or newest.header is None or now is None or newest.header.incarnation != now.header.incarnation:
        return
    path = newest.file.path
    if newest.header.snapshot > state.at:
        yield path, f"describes snapshot {newest.header.snapshot}; the newest is {state.at}"
        return
    try:
        meta = read_meta(storage, path)
    except IndexLakeError as error:
        yield path, str(error)
        return
    if now.changed <= meta.snapshot and newest.header.state != now.header.state:
        yield path, f"differs from the catalog, in which nothing has changed since snapshot {meta.snapshot}"
    else:
        yield from ((path, wrong) for wrong in _other_files(meta, state))


def _other_files(meta: TableMeta, state: TableState) -> Iterator[str]:
    for block in meta.blocks:
        known = state.blocks.record(block.data_file_id)
        if known is not None and not _is_of_same_file(known, block):
            yield f"knows block {block.data_file_id} as another file than the catalog, which has {known.path}"


def _is_of_same_file(one: BlockRecord, other: BlockRecord) -> bool:
    return (one.path, one.size, bytes(one.checksum)) == (other.path, other.size, bytes(other.checksum))
