"""Indexes of a table, their segments, and the links between segments and blocks, in the catalog.

A commit that writes links or definitions but no block record must touch the table's record
(``table_heads.touch_table``): readers look for changes when that record or the blocks have changed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from indexlake.catalog.checksums import Kept
from indexlake.catalog.driver import ReadTransaction, Transaction, all_rows
from indexlake.catalog.tables import next_values
from indexlake.indexes.index import PRIMARY, Index, Link
from indexlake.indexes.kind import SegmentFile

_OF_TABLE = "index_id in (select index_id from indexlake_index where table_id = ?)"


def read_indexes(r: ReadTransaction | Transaction, table_id: int) -> list[Index]:
    """Return every index that has a record, including dropped ones."""
    rows = r.rows(
        """select index_id, index_name, index_kind, key_field_ids, include_field_ids, params, begin_snapshot,
        end_snapshot, enforced_snapshot, changed_in from indexlake_index where table_id = ? order by index_id""",
        (table_id,),
    )
    found = []
    for index_id, name, kind, keys, included, text, begin, end, enforced, changed in rows:
        params = json.loads(text)
        unique, comment = params.pop("unique", False), params.pop("comment", None)
        key_ids, included_ids = _ids(keys), _ids(included)
        found.append(
            Index(index_id, name, kind, key_ids, included_ids, unique, params, begin, end, enforced, changed, comment)
        )
    return found


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def read_links(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> dict[int, list[Link]]:
    """Return the links written after ``since``, with their segments, by index id."""
    newer, params = ("", (table_id,)) if since < 0 else ("and l.changed_in > ?", (table_id, since))
    rows = all_rows(r, since)(
        f"""select l.index_id, l.data_file_id, l.index_file_id, l.ordinal, l.begin_snapshot, l.end_snapshot,
        l.changed_in, s.key_types, s.relative_path, s.file_size_bytes, s.min_key, s.max_key
        from indexlake_index_file_block l join indexlake_index_file s on s.index_file_id = l.index_file_id
        where l.index_id in (select index_id from indexlake_index where table_id = ?) {newer}""",
        params,
    )
    catalog, make_link, make_segment = r.catalog, Link._make, SegmentFile._make
    types: dict[str, tuple[str, ...]] = {}
    segments: dict[int, SegmentFile] = {}  # many links may lead to one segment
    links: dict[int, list[Link]] = defaultdict(list)
    for index_id, file_id, number, ordinal, begin, end, changed, text, path, size, low, high in rows:
        segment = segments.get(number)
        if segment is None:
            if text not in types:
                types[text] = tuple(json.loads(text))
            segment = make_segment((index_id, path, size, Kept(catalog, path), types[text], low, high))
            segments[number] = segment
        links[index_id].append(make_link((file_id, number, segment, ordinal, begin, end, changed)))
    return links


def links_to_nothing(r: ReadTransaction | Transaction, table_id: int) -> list[tuple[int, int]]:
    """Return (data file id, index file id) of links whose segment has no record; there should be none."""
    return r.rows(
        f"""select data_file_id, index_file_id from indexlake_index_file_block where {_OF_TABLE}
        and index_file_id not in (select index_file_id from indexlake_index_file)""",
        (table_id,),
    )


# ---------------------------------------------------------------- writing, inside the critical section


def add_primary_index(tx: Transaction, table_id: int, key_field_ids: Sequence[int], snapshot: int) -> None:
    add_index(tx, table_id, PRIMARY, "btree", key_field_ids, (), {"unique": True}, snapshot, enforced=snapshot)


def add_index(
    tx: Transaction,
    table_id: int,
    name: str,
    kind: str,
    key_field_ids: Sequence[int],
    include_field_ids: Sequence[int],
    params: Mapping[str, Any],
    snapshot: int,
    enforced: int | None = None,
) -> int:
    """Add a definition and return its id; ``params`` are those of the index kind, and ``unique``."""
    index_id = next_values(tx, "index")
    keys, included = (",".join(map(str, ids)) for ids in (key_field_ids, include_field_ids))
    tx.execute(
        """insert into indexlake_index (index_id, index_name, index_kind, table_id, key_field_ids, include_field_ids,
        params, begin_snapshot, enforced_snapshot, changed_in) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (index_id, name, kind, table_id, keys, included, json.dumps(dict(params)), snapshot, enforced, snapshot),
    )
    return index_id


def end_index(tx: Transaction, index_id: int, snapshot: int) -> None:
    """End an index and its links."""
    tx.execute(
        "update indexlake_index set end_snapshot = ?, changed_in = ? where index_id = ?", (snapshot, snapshot, index_id)
    )
    tx.execute(
        """update indexlake_index_file_block set end_snapshot = ?, changed_in = ?
        where index_id = ? and end_snapshot is null""",
        (snapshot, snapshot, index_id),
    )


def enforce_index(tx: Transaction, index_id: int, snapshot: int) -> None:
    """Enforce a unique index: from this commit on no two rows may have the same key."""
    tx.execute(
        "update indexlake_index set enforced_snapshot = ?, changed_in = ? where index_id = ?",
        (snapshot, snapshot, index_id),
    )


def set_comment(tx: Transaction, index_id: int, comment: str | None, snapshot: int) -> None:
    """Keep a comment with the parameters of an index."""
    ((text,),) = tx.rows("select params from indexlake_index where index_id = ?", (index_id,))
    params = {name: value for name, value in json.loads(text).items() if name != "comment"}
    if comment is not None:
        params["comment"] = comment
    tx.execute(
        "update indexlake_index set params = ?, changed_in = ? where index_id = ?",
        (json.dumps(params), snapshot, index_id),
    )


def live_links(tx: Transaction, index_id: int, file_ids: Sequence[int]) -> dict[int, int]:
    """Return those of the blocks that the index covers now, each with its segment."""
    found: dict[int, int] = {}
    for n in range(0, len(file_ids), 500):
        some = file_ids[n : n + 500]
        found |= dict(
            tx.rows(
                f"""select data_file_id, index_file_id from indexlake_index_file_block where index_id = ?
                and end_snapshot is null and data_file_id in ({", ".join("?" * len(some))})""",
                (index_id, *some),
            )
        )
    return found


def end_links(tx: Transaction, index_id: int, file_ids: Iterable[int], snapshot: int) -> None:
    """End the links of blocks that other segments take over."""
    tx.execute_many(
        """update indexlake_index_file_block set end_snapshot = ?, changed_in = ?
        where index_id = ? and data_file_id = ? and end_snapshot is null""",
        [(snapshot, snapshot, index_id, file_id) for file_id in file_ids],
    )


def live_index_ids(tx: Transaction, table_id: int) -> set[int]:
    rows = tx.rows("select index_id from indexlake_index where table_id = ? and end_snapshot is null", (table_id,))
    return {index_id for (index_id,) in rows}


def enforced_index_ids(tx: Transaction, table_id: int) -> set[int]:
    rows = tx.rows(
        """select index_id from indexlake_index where table_id = ? and end_snapshot is null
        and enforced_snapshot is not null""",
        (table_id,),
    )
    return {index_id for (index_id,) in rows}


def add_segment(
    tx: Transaction, table_id: int, segment: SegmentFile, file_ids: Sequence[int | None], snapshot: int
) -> None:
    """Add a segment with links to the blocks it covers, in the order of their ordinals; None stands for no link."""
    segment_id = next_values(tx, "index_file")
    key_types = json.dumps(segment.key_types)
    tx.send(
        """insert into indexlake_index_file (index_file_id, index_id, table_id, relative_path, file_size_bytes,
        checksum, key_types, min_key, max_key, changed_in) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (segment_id, segment.index_id, table_id, segment.path, segment.size, bytes(segment.checksum), key_types,
         segment.min_key, segment.max_key, snapshot),
    )  # fmt: skip
    tx.execute_many(
        """insert into indexlake_index_file_block (index_id, data_file_id, index_file_id, ordinal, begin_snapshot,
        changed_in) values (?, ?, ?, ?, ?, ?)""",
        [
            (segment.index_id, file_id, segment_id, n, snapshot, snapshot)
            for n, file_id in enumerate(file_ids)
            if file_id is not None
        ],
    )


# ---------------------------------------------------------------- expire, inside the critical section


def drop_links_of(tx: Transaction, table_id: int, file_ids: Sequence[int], now: int) -> None:
    """Remove the links of some blocks, and segments left without any link."""
    links = tx.rows(
        f"""delete from indexlake_index_file_block where {_OF_TABLE}
        and data_file_id in ({", ".join("?" * len(file_ids))}) returning index_file_id""",
        (table_id, *file_ids),
    )
    _drop_segments(tx, links, now)


def drop_ended_links(tx: Transaction, table_id: int, horizon: int, now: int, limit: int) -> int:
    """Remove up to ``limit`` links that no snapshot needs, and segments left without any; return how many links."""
    ended = tx.rows(
        f"""select index_id, data_file_id, index_file_id from indexlake_index_file_block
        where {_OF_TABLE} and end_snapshot <= ? limit ?""",
        (table_id, horizon, limit),
    )
    tx.execute_many(
        "delete from indexlake_index_file_block where index_id = ? and data_file_id = ? and index_file_id = ?", ended
    )
    _drop_segments(tx, [(segment_id,) for _, _, segment_id in ended], now)
    return len(ended)


def _drop_segments(tx: Transaction, segments: Iterable[tuple[int]], now: int) -> None:
    """Remove those of the segments that have no links, and remember their files as garbage."""
    alone = """index_file_id = ? and not exists (select 1 from indexlake_index_file_block l
        where l.index_file_id = indexlake_index_file.index_file_id)"""
    some = sorted(set(segments))
    tx.execute_many(
        f"""insert into indexlake_garbage (relative_path, table_id, unreachable_at, checksum)
        select relative_path, table_id, {int(now)}, checksum from indexlake_index_file where {alone}
        on conflict (relative_path) do nothing""",
        some,
    )
    tx.execute_many(f"delete from indexlake_index_file where {alone}", some)


def drop_ended_indexes(tx: Transaction, table_id: int, horizon: int) -> None:
    """Remove definitions that no retained snapshot shows and that have no links left."""
    tx.execute(
        """delete from indexlake_index where table_id = ? and end_snapshot <= ? and not exists
        (select 1 from indexlake_index_file_block l where l.index_id = indexlake_index.index_id)""",
        (table_id, horizon),
    )
