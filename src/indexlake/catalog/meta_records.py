"""The records of a clustered table as in its meta files: read from a catalog, and written into a new one.

A restored table has no past: everything in it was written by the commit that restored it. Its columns, indexes,
partitions and files keep their ids, because files are named after them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from indexlake.catalog import data_files
from indexlake.catalog.definitions import read_table
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.fields import read_schema
from indexlake.catalog.released_columns import GONE
from indexlake.indexes.index import Index
from indexlake.indexes.registry import kind_if_known
from indexlake.partitions.meta import Record, TableMeta

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore

_TABLE = (
    *("table_id", "table_name", "namespace_id", "layout", "config", "primary_key", "schema_version"),
    *("begin_snapshot", "named_in", "bytes_given", "bytes_written"),
)
_FIELD = (
    *("field_id", "field_name", "data_type", "nullable", "default_value", "metadata", "position", "source_field_id"),
    *("steps", "begin_snapshot", "end_snapshot", "default_sql", "generated", "initial_value"),
)
_CHECK = ("check_id", "check_name", "condition", "begin_snapshot", "end_snapshot", "validated_in")


def table_record(r: ReadTransaction | Transaction, table_id: int) -> tuple[Record, int]:
    """Return the record of a table and its namespace, and the next row id to reserve."""
    rows = r.rows(
        f"""select n.namespace_name, t.next_row_id, {", ".join(f"t.{name}" for name in _TABLE)} from indexlake_table t
        join indexlake_namespace n on n.namespace_id = t.namespace_id where t.table_id = ?""",
        (table_id,),
    )
    namespace, next_row_id, *values = rows[0]
    checks = r.rows(
        f"select {', '.join(_CHECK)} from indexlake_check where table_id = ? order by check_id", (table_id,)
    )
    record = {"namespace_name": namespace, **dict(zip(_TABLE, values, strict=True))}
    if checks:
        record["checks"] = [dict(zip(_CHECK, row, strict=True)) for row in checks]
    return record, int(next_row_id)


def field_records(r: ReadTransaction | Transaction, table_id: int) -> tuple[Record, ...]:
    """Return every column that the table ever had."""
    rows = r.rows(
        f"select {', '.join(_FIELD)} from indexlake_field where table_id = ? order by field_id, begin_snapshot",
        (table_id,),
    )
    return tuple(dict(zip(_FIELD, row, strict=True)) for row in rows)


def sequences(r: ReadTransaction | Transaction) -> dict[str, int]:
    """Return the next value of each counter."""
    return dict(r.rows("select name, next_value from indexlake_sequence order by name"))


def namespace_ids(r: ReadTransaction | Transaction) -> dict[int, bool]:
    """Return every namespace that ever existed, and whether it was dropped."""
    rows = r.rows("select namespace_id, end_snapshot from indexlake_namespace order by namespace_id")
    return {number: end is not None for number, end in rows}


# ---------------------------------------------------------------- into a new catalog, in one transaction


def restore_snapshot(tx: Transaction, snapshot: int) -> None:
    """Make the snapshot that restores everything the first of the new catalog."""
    tx.execute("update indexlake_snapshot set snapshot_id = ?, operation = 'restore'", (snapshot,))


def restore_table(tx: Transaction, hot: HotStore, meta: TableMeta, next_row_id: int, snapshot: int) -> None:
    """Write everything that a meta file says about a table."""
    table, table_id = meta.table, meta.table_id
    _restore_namespace(tx, int(table["namespace_id"]), table["namespace_name"], snapshot)
    values = {
        **{name: table[name] for name in _TABLE},
        "folded_name": table["table_name"].lower(), "next_row_id": next_row_id, "horizon": snapshot,
        **dict.fromkeys(("hot_floor", "hot_floor_row_id", "history_floor", "history_floor_row_id", "purge_number"), 0),
        "changed_in": snapshot,
    }  # fmt: skip
    _insert(tx, "table", [values])
    # The hot store of this catalog never had the dropped columns.
    _insert(
        tx, "field",
        [{**f, "table_id": table_id, "released_in": None if f["end_snapshot"] is None else GONE} for f in meta.fields],
    )  # fmt: skip
    _insert(tx, "check", [{**check, "table_id": table_id} for check in table.get("checks", ())])
    _insert(tx, "index", [_index_row(table_id, index, snapshot) for index in meta.indexes])
    _insert(tx, "partition", [asdict(replace(p, changed_in=snapshot)) for p in meta.partitions])
    data_files.insert_blocks(tx, [block._replace(changed_in=snapshot) for block in meta.blocks])
    _insert(
        tx, "delete",
        [{"data_file_id": file_id, "snapshot_id": 0, "table_id": table_id, "positions": data, "changed_in": snapshot}
         for file_id, data in meta.deletes.items()],
    )  # fmt: skip
    _insert(
        tx, "index_file",
        [
            {"index_file_id": number, "index_id": s.index_id, "table_id": table_id, "relative_path": s.path,
             "file_size_bytes": s.size, "checksum": bytes(s.checksum), "key_types": json.dumps(s.key_types),
             "min_key": s.min_key, "max_key": s.max_key, "changed_in": snapshot}
            for number, s in meta.segments.items()
        ],
    )  # fmt: skip
    _insert(
        tx, "index_file_block",
        [
            {"index_id": link.segment.index_id, "data_file_id": link.data_file_id, "index_file_id": link.index_file_id,
             "ordinal": link.ordinal, "begin_snapshot": link.begin_snapshot, "changed_in": snapshot}
            for link in meta.links
        ],
    )  # fmt: skip
    record = read_table(tx, table_id)
    assert record is not None
    current = read_schema(tx, record).current
    hot.create(tx, table_id, current.fields, record.primary_key)
    for index in meta.indexes:
        kind = None if index.is_primary else kind_if_known(index.kind)
        if kind is not None and (kept := kind.hot_fields(index.fields(current))):
            hot.add_index(tx, table_id, index.index_id, kept)


def _index_row(table_id: int, index: Index, snapshot: int) -> dict[str, Any]:
    keys, included = (",".join(map(str, ids)) for ids in (index.key_field_ids, index.include_field_ids))
    params = {"unique": True, **index.params} if index.unique else dict(index.params)
    return {
        "index_id": index.index_id, "index_name": index.name, "index_kind": index.kind, "table_id": table_id,
        "key_field_ids": keys, "include_field_ids": included, "params": json.dumps(params),
        "begin_snapshot": index.begin_snapshot, "enforced_snapshot": index.enforced_snapshot, "changed_in": snapshot,
    }  # fmt: skip


def _restore_namespace(tx: Transaction, number: int, name: str, snapshot: int) -> None:
    if not tx.rows("select 1 from indexlake_namespace where namespace_id = ?", (number,)):
        _insert(
            tx, "namespace",
            [{"namespace_id": number, "namespace_name": name, "folded_name": name.lower(), "begin_snapshot": snapshot}],
        )  # fmt: skip


def set_sequences(tx: Transaction, numbers: Mapping[str, int]) -> None:
    """Set the next value of each counter."""
    _insert(tx, "sequence", [{"name": name, "next_value": number} for name, number in sorted(numbers.items())])


def add_garbage(tx: Transaction, found: Iterable[tuple[str, int]], since: int) -> None:
    """Add files (path, table id) that no record names, so that vacuum deletes them after its grace period."""
    _insert(
        tx, "garbage",
        [{"relative_path": path, "table_id": table_id, "unreachable_at": since} for path, table_id in found],
    )  # fmt: skip


def _insert(tx: Transaction, name: str, records: Sequence[Mapping[str, Any]]) -> None:
    if records:
        columns = list(records[0])
        tx.insert_rows(f"indexlake_{name}", columns, (tuple(record[c] for c in columns) for record in records))
