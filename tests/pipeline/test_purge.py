"""A purge removes the hot rows that a dump has moved, without reading the others again and again."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pyarrow as pa

import indexlake as il

ROWS = 100_000


def test_a_purge_on_postgres_reads_little_more_than_it_removes(postgres_dsn: str, tmp_path: Path) -> None:
    keep_inline = il.TableConfig(direct_write_row_count=10 * ROWS, inline_row_count_limit=10 * ROWS)
    with il.connect(postgres_dsn, storage=str(tmp_path), automatic=False) as lake:
        table = lake.create_table("t", {"id": "int64", "s": "string"}, primary_key="id", config=keep_inline)
        table.insert(pa.table({"id": range(ROWS), "s": ["x"] * ROWS}))
        inline = f"indexlake_inline_row_{table._table_id}"
        before = _entries_read(postgres_dsn, inline, deleted=0)
        lake.pipeline(runner="threads").dump("t")
        dumping = ROWS  # the dump reads each row once, in order
        assert _entries_read(postgres_dsn, inline, deleted=ROWS) - before - dumping < 4 * ROWS
        assert table.count() == ROWS


def _entries_read(dsn: str, table: str, deleted: int) -> int:
    """Return how many entries of the primary key and rows of scans were read, once the server has counted."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(100):
            found = connection.execute(
                "select n_tup_ins, n_tup_del, seq_tup_read, (select idx_tup_read from pg_stat_user_indexes i"
                " where i.relid = t.relid and indexrelname = %s) from pg_stat_user_tables t"
                " where relname = %s and schemaname = current_schema()",
                (f"{table}_pkey", table),
            ).fetchone()
            if found is not None and found[0] >= ROWS and found[1] >= deleted:
                return int(found[2] + found[3])
            time.sleep(0.1)
    raise AssertionError("the server counts nothing")
