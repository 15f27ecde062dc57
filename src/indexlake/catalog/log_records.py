"""What the catalog knows of a redo log: the lake's owner, the log's files in order, and how much the catalog holds.

The list of files is the root of the log: a file that is not listed holds nothing; one that is listed must exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexlake.catalog.dialect import Dialect
from indexlake.catalog.driver import Query, ReadTransaction, Transaction


def create_statements(d: Dialect) -> list[str]:
    i, t = d.int_type, d.text_type
    return [
        f"""create table indexlake_log_owner (
            epoch {i} not null, owner {t} not null, host {t} not null, folder {t} not null, place {t} not null,
            since {i} not null, is_open {i} not null, bound {i} not null, told {i} not null)""",
        f"""create table indexlake_log_segment (
            epoch {i} not null, number {i} not null, last_commit {i}, size {i}, primary key (epoch, number))""",
    ]


@dataclass(frozen=True, slots=True)
class LogOwner:
    """The process that numbers the commits of a lake.

    ``place`` identifies the log's folder wherever it is mounted. The catalog and blocks hold all commits up to
    ``bound``. ``told`` is the newest commit of the log known to the catalog: a log that ends earlier has lost commits.
    """

    epoch: int
    owner: str
    host: str
    folder: str
    place: str
    since: int
    is_open: bool
    bound: int
    told: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the log; ``last_commit`` and ``size`` are set once it is sealed."""

    epoch: int
    number: int
    last_commit: int | None
    size: int | None


def read_owner(r: ReadTransaction | Transaction) -> LogOwner | None:
    rows = r.rows("select epoch, owner, host, folder, place, since, is_open, bound, told from indexlake_log_owner")
    return LogOwner(*rows[0]) if rows else None


EPOCH: Query = ("select epoch from indexlake_log_owner", ())


def read_epoch(r: ReadTransaction | Transaction) -> int:
    rows = r.rows(*EPOCH)
    return int(rows[0][0]) if rows else 0


def take_over(
    tx: Transaction, owner: str, host: str, folder: str, place: str, since: int, bound: int, above: int
) -> int:
    """Become the owner, so that the previous one can commit nothing; return the new epoch, greater than ``above``."""
    known = read_owner(tx)
    epoch, bound, told = (0, bound, 0) if known is None else (known.epoch, known.bound, known.told)
    epoch = max(epoch, above) + 1
    tx.execute("delete from indexlake_log_owner")
    tx.execute(
        "insert into indexlake_log_owner values (?, ?, ?, ?, ?, ?, 1, ?, ?)",
        (epoch, owner, host, folder, place, since, bound, told),
    )
    return epoch


EVERYTHING = 2**62
"""The bound of a lake without a log."""


def convert(tx: Transaction, bound: int) -> int:
    """Change the hot store, so that processes with the lake open can commit nothing more; return the new epoch.

    The lake then has no owner and no log; ``bound`` is ``EVERYTHING``, or the commit from which on it gets a log.
    """
    epoch = read_epoch(tx) + 1
    tx.execute("delete from indexlake_log_owner")
    tx.execute("insert into indexlake_log_owner values (?, '', '', '', '', 0, 0, ?, 0)", (epoch, bound))
    tx.execute("delete from indexlake_log_segment")
    if bound != EVERYTHING:
        tx.execute("update indexlake_table set log_bound = ?", (bound,))
    return epoch


def move(tx: Transaction, segments: Sequence[Segment], owner: str, host: str, folder: str) -> None:
    """Record, in a copy of a catalog, that its log is in another folder, where a process has closed it."""
    tx.execute(
        "update indexlake_log_owner set epoch = ?, owner = ?, host = ?, folder = ?, place = '', is_open = 0",
        (segments[0].epoch, owner, host, folder),
    )
    tx.execute("delete from indexlake_log_segment")
    for segment in segments:
        list_segment(tx, segment)


def leave(tx: Transaction, epoch: int) -> None:
    """Record that the owner closed the lake, if it still is the owner."""
    tx.execute("update indexlake_log_owner set is_open = 0 where epoch = ?", (epoch,))


def set_bound(tx: Transaction, bound: int) -> None:
    tx.execute("update indexlake_log_owner set bound = ? where bound < ?", (bound, bound))


def set_told(tx: Transaction, number: int) -> None:
    tx.execute("update indexlake_log_owner set told = ?", (number,))


def read_segments(r: ReadTransaction | Transaction) -> list[Segment]:
    rows = r.rows("select epoch, number, last_commit, size from indexlake_log_segment order by epoch, number")
    return [Segment(*row) for row in rows]


def seal(tx: Transaction, epoch: int, number: int, last_commit: int, size: int) -> None:
    tx.execute(
        "update indexlake_log_segment set last_commit = ?, size = ? where epoch = ? and number = ?",
        (last_commit, size, epoch, number),
    )


def list_segment(tx: Transaction, segment: Segment) -> None:
    tx.execute(
        "insert into indexlake_log_segment values (?, ?, ?, ?)",
        (segment.epoch, segment.number, segment.last_commit, segment.size),
    )


def unlist(tx: Transaction, epoch: int, number: int) -> None:
    tx.execute("delete from indexlake_log_segment where epoch = ? and number = ?", (epoch, number))


def unlist_up_to(tx: Transaction, bound: int) -> int:
    """Take sealed files whose commits are all in the catalog off the list."""
    return tx.execute("delete from indexlake_log_segment where last_commit is not null and last_commit <= ?", (bound,))


def read_bounds(r: ReadTransaction | Transaction) -> dict[int, int]:
    """Return, for each table, the commit up to which the catalog and blocks hold it."""
    return dict(r.rows("select table_id, log_bound from indexlake_table"))


def move_bound(tx: Transaction, table_id: int, before: int, bound: int, snapshot: int) -> bool:
    """Move a table's bound by compare-and-swap; False: another checkpoint moved it, or the table was dropped.

    All rows up to the bound are in blocks, so the floor that inline rows are above moves as well.
    """
    return bool(
        tx.execute(
            """update indexlake_table set log_bound = ?, hot_floor = ?, hot_floor_row_id = ?, changed_in = ?
            where table_id = ? and log_bound = ? and end_snapshot is null""",
            (bound, bound, EVERYTHING, snapshot, table_id, before),
        )
    )


def move_idle_bound(tx: Transaction, table_id: int, bound: int) -> None:
    """Move the bound of a table all of whose versions are in the catalog."""
    tx.execute("update indexlake_table set log_bound = ? where table_id = ?", (bound, table_id))
