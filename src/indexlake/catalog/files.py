"""The files known to the catalog, whether still reachable or garbage, and the writers that may add more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from indexlake.catalog.driver import ReadTransaction, Transaction


def reachable_paths(r: ReadTransaction | Transaction) -> Iterator[str]:
    """Yield the path of every data file and index file that has a record."""
    for kind in ("data_file", "index_file"):
        for (path,) in r.query(f"select relative_path from indexlake_{kind}"):
            yield path


def reachable_files(r: ReadTransaction | Transaction) -> Iterator[tuple[str, int, bytes]]:
    """Yield path, size and checksums of every data file and index file that has a record."""
    for kind in ("data_file", "index_file"):
        yield from r.query(f"select relative_path, file_size_bytes, checksum from indexlake_{kind}")


def garbage(r: ReadTransaction | Transaction) -> dict[str, int]:
    """Return the files whose records were dropped, with the time of that."""
    return dict(r.rows("select relative_path, unreachable_at from indexlake_garbage"))


def forget_garbage(tx: Transaction, paths: Sequence[str]) -> None:
    """Forget garbage files that were deleted."""
    tx.execute_many("delete from indexlake_garbage where relative_path = ?", [(p,) for p in paths])


def living_writers(r: ReadTransaction | Transaction) -> set[str]:
    """Return the writers that may still commit files."""
    return {writer for (writer,) in r.rows("select writer_id from indexlake_writer where reaped = 0")}


def reap_writers(tx: Transaction, now: int) -> int:
    """Declare writers with an expired lease dead: they can commit nothing any more, so their files are garbage."""
    return tx.execute("update indexlake_writer set reaped = ? where reaped = 0 and expires_at < ?", (now, now))


def reaped_writers(r: ReadTransaction | Transaction) -> dict[str, int]:
    """Return the writers that were declared dead, with the time of that."""
    return dict(r.rows("select writer_id, reaped from indexlake_writer where reaped <> 0"))


def lapsed_writers(r: ReadTransaction | Transaction, now: int) -> set[str]:
    """Return the writers that ``reap_writers`` would declare dead."""
    rows = r.rows("select writer_id from indexlake_writer where reaped = 0 and expires_at < ?", (now,))
    return {writer for (writer,) in rows}


def forget_writers(tx: Transaction, before: int) -> None:
    """Remove writers that died long ago; a process still using such an id fails anyway, because it finds no record."""
    tx.execute("delete from indexlake_writer where reaped <> 0 and reaped < ?", (before,))


def table_ids(r: ReadTransaction | Transaction) -> set[int]:
    """Return the ids of all tables that have a record, including dropped ones."""
    return {table_id for (table_id,) in r.rows("select table_id from indexlake_table")}


def clustered_table_ids(r: ReadTransaction | Transaction) -> set[int]:
    rows = r.rows("select table_id from indexlake_table where layout = 'clustered' and end_snapshot is null")
    return {table_id for (table_id,) in rows}
