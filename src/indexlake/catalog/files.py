"""The files that the catalog knows: reached by a retained snapshot, or no longer; and who may add more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from indexlake.catalog.driver import ReadTransaction, Transaction


def reachable_paths(r: ReadTransaction | Transaction) -> Iterator[str]:
    """Every data file and index file that has a record."""
    for kind in ("data_file", "index_file"):
        for (path,) in r.query(f"select relative_path from indexlake_{kind}"):
            yield path


def garbage(r: ReadTransaction | Transaction) -> dict[str, int]:
    """Files whose records were dropped, and when that was."""
    return dict(r.rows("select relative_path, unreachable_at from indexlake_garbage"))


def forget_garbage(tx: Transaction, paths: Sequence[str]) -> None:
    """The files are gone."""
    tx.execute_many("delete from indexlake_garbage where relative_path = ?", [(p,) for p in paths])


def living_writers(r: ReadTransaction | Transaction) -> set[str]:
    """Those who may still commit files of theirs."""
    return {writer for (writer,) in r.rows("select writer_id from indexlake_writer where reaped = 0")}


def reap_writers(tx: Transaction, now: int) -> int:
    """Whoever has not been heard of in time can commit nothing any more, so its files are nobody's."""
    return tx.execute("update indexlake_writer set reaped = ? where reaped = 0 and expires_at < ?", (now, now))


def reaped_writers(r: ReadTransaction | Transaction) -> dict[str, int]:
    """Those who can commit nothing any more, and since when."""
    return dict(r.rows("select writer_id, reaped from indexlake_writer where reaped <> 0"))


def lapsed_writers(r: ReadTransaction | Transaction, now: int) -> set[str]:
    """Writers that ``reap_writers`` would reap."""
    rows = r.rows("select writer_id from indexlake_writer where reaped = 0 and expires_at < ?", (now,))
    return {writer for (writer,) in rows}


def forget_writers(tx: Transaction, before: int) -> None:
    """Reaped writers from long ago; a process that still holds such an id finds no writer and fails all the same."""
    tx.execute("delete from indexlake_writer where reaped <> 0 and reaped < ?", (before,))


def table_ids(r: ReadTransaction | Transaction) -> set[int]:
    """Every table that has a record, the dropped ones included."""
    return {table_id for (table_id,) in r.rows("select table_id from indexlake_table")}


def clustered_table_ids(r: ReadTransaction | Transaction) -> set[int]:
    """The clustered tables that are there now."""
    rows = r.rows("select table_id from indexlake_table where layout = 'clustered' and end_snapshot is null")
    return {table_id for (table_id,) in rows}
