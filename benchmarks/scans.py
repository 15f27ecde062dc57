"""Many rows: full scans against bare Vortex, planning among many blocks, and what the catalog costs per row."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa

import indexlake as il
from benchmarks.orders import SCHEMA, open_lake, stream
from benchmarks.outcome import Outcome, at_most, below, in_turn
from benchmarks.points import block_files, file_columns

ROUNDS = 9


class BareVortex:
    """The same files to the same table: types, names and row order as ours."""

    def __init__(self, paths: list[Path], columns: list[str], live: list[np.ndarray] | None = None) -> None:
        import vortex

        self._files = [vortex.open(str(path)) for path in paths]
        self._stored = pa.schema([f.with_name(name) for f, name in zip(SCHEMA, columns, strict=True)])
        self._live = live
        self._columns = columns

    def _one(self, n: int) -> pa.Table:
        import vortex

        indices = None if self._live is None else vortex.array(pa.array(self._live[n]))
        reader = self._files[n].to_arrow(self._columns, indices=indices, batch_size=65_536, schema=self._stored)
        return reader.read_all()

    def one_by_one(self) -> pa.Table:
        return self._joined([self._one(n) for n in range(len(self._files))])

    def in_parallel(self) -> pa.Table:
        with ThreadPoolExecutor(2) as pool:
            return self._joined(list(pool.map(self._one, range(len(self._files)))))

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables).rename_columns(SCHEMA.names)


def full_scan(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = open_lake(folder, "scan")
    table.insert(stream(rows))
    paths, columns = block_files(lake, table), file_columns(table)
    yield _compared(f"full scan of {rows:,} warm rows", table, BareVortex(paths, columns), 1.3, rows)
    gone = random.Random(5).sample(range(rows), rows // 100)
    table.delete("id in $ids", params={"ids": gone})
    live = []
    for block in table._state().blocks.records:
        ids = np.arange(block.min_row_id, block.max_row_id + 1)
        keep = ~np.isin(ids - table._state().blocks.records[0].min_row_id, gone)
        live.append(np.flatnonzero(keep).astype(np.uint64))
    yield _compared("  with 1 % deleted, against all rows", table, BareVortex(paths, columns), 1.6, rows)
    masked = _compared(
        "  with 1 % deleted, against the same rows",
        table,
        BareVortex(paths, columns, live),
        1.6,
        rows - len(gone),
    )
    yield masked
    lake.close()


def _compared(name: str, table: il.Table, bare: BareVortex, limit: float, rows: int) -> Outcome:
    expected = bare.in_parallel()
    ours = table.scan().to_arrow()
    assert expected.num_rows == rows
    assert ours.schema == SCHEMA
    assert expected.schema.types == SCHEMA.types
    if ours.num_rows == rows:
        assert ours.column("id").equals(expected.column("id"))
    del expected, ours
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda _: table.scan().to_arrow(),
        "one by one": lambda _: bare.one_by_one(),
        "in parallel": lambda _: bare.in_parallel(),
    }
    times = {key: statistics.median(found) / 1000 for key, found in in_turn(contenders, ROUNDS, warm_up=1).items()}
    floor = min(times["one by one"], times["in parallel"])
    detail = f"bare one by one {times['one by one']:.0f} ms, in parallel {times['in parallel']:.0f} ms"
    return at_most(name, times["ours"], floor, limit, "ms", detail)


def planning(folder: Path, rows: int) -> Iterator[Outcome]:
    """One block among many, by statistics and by key; the records are copies of a real one with other bounds."""
    medians: dict[int, float] = {}
    lines: list[Outcome] = []
    for count in (1_000, 10_000):
        lake, table = open_lake(folder, f"plan-{count}", direct_write_row_count=1)
        _fake_blocks(lake, table, count)
        start = time.perf_counter()
        table._state()
        cold = (time.perf_counter() - start) * 1000
        start = time.perf_counter()
        found = table.scan("quantity = $n", params={"n": 500}).explain()
        first = (time.perf_counter() - start) * 1000
        assert (found.blocks_total, found.blocks_read) == (count, 1)
        contenders = _plans(table)
        for name, call in contenders.items():
            assert call(123).blocks_read == 1, name
        times = {key: statistics.median(t) / 1000 for key, t in in_turn(contenders, 200).items()}
        medians[count] = max(times.values())
        detail = ", ".join(f"by {k} {v:.2f} ms" for k, v in times.items())
        detail += f"; cold load of the state {cold:.0f} ms, first plan {first:.1f} ms"
        lines.append(below(f"planning: one block among {count:,}", medians[count], 5, "ms", detail))
        lake.close()
    yield from lines
    yield at_most(
        "  among 10,000 against among 1,000", medians[10_000], medians[1_000], 2, "ms", "goal: about the same"
    )


def _plans(table: il.Table) -> dict[str, Callable[[int], Any]]:
    """Predicates that one block satisfies."""
    return {
        "range": lambda n: table.scan("total between $a and $b", params={"a": n + 0.2, "b": n + 0.4}).explain(),
        "string": lambda n: table.scan("customer = $c", params={"c": f"customer-{n:09}"}).explain(),
        "int": lambda n: table.scan("quantity = $q", params={"q": n}).explain(),
    }


def _fake_blocks(lake: il.Lake, table: il.Table, count: int) -> None:
    """Catalog records of blocks that have no files: only planning looks at them."""
    from benchmarks.orders import batches
    from indexlake.blocks.row_ids import RowIds
    from indexlake.blocks.statistics import StatisticsBuilder, stats_to_bytes
    from indexlake.catalog import data_files
    from indexlake.commit.section import Section

    table.insert(next(batches(1)))
    state = table._state()
    real = state.blocks.records[0]
    schema = pa.schema([f.arrow(f.column) for f in state.current.fields])
    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        section.sequencer.record("insert", job=False, summary="{}")
        for n in range(count - 1):
            builder = StatisticsBuilder(schema)
            columns = [
                [n * 100, n * 100 + 99],
                [f"customer-{n:09}"] * 2,
                ["a", "b"],
                [n, n],
                [n + 0.1, n + 0.9],
            ]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            builder.add(pa.RecordBatch.from_arrays(arrays, schema=schema))
            first = 1 + n * 100
            record = real._replace(
                path=f"{real.path}-{n}", row_ids=RowIds.from_range(first, first + 100).to_bytes(),
                min_row_id=first, max_row_id=first + 99, record_count=100,
                column_stats=stats_to_bytes(builder.finish()), begin_snapshot=s, changed_in=s,
            )  # fmt: skip
            data_files.add_block(tx, record)
        section.commit()
    lake._readings.states.forget(table._table_id)


def catalog_bytes(folder: Path, rows: int) -> Iterator[Outcome]:
    """The catalog with its block index against one address-book row per data row, as the first design had it."""
    lake, table = open_lake(folder, "bytes")
    table.insert(stream(rows))
    blocks = table._state().blocks.records
    ours = _payload(lake) / rows
    table.delete("id in $ids", params={"ids": random.Random(6).sample(range(rows), rows // 100)})
    with_deletes = _payload(lake) / rows
    path = blocks[0].path
    book = folder / "book.db"
    connection = apsw.Connection(str(book))
    connection.execute("create table row_metadata (row_id integer primary key, location text, deleted integer)")
    sample = min(rows, 1_000_000)
    with connection:
        connection.executemany(
            "insert into row_metadata values (?, ?, 0)", ((n, f"vortex:{path}:0:{n}") for n in range(sample))
        )
    connection.close()
    floor = book.stat().st_size / sample
    lake.close()
    yield Outcome(
        "catalog bytes per row", f"{ours:.4f} B", f"{floor:.1f} B", round(ours / floor, 6), "", None,
        f"{len(blocks)} blocks of {rows:,} rows; {with_deletes:.4f} B after deleting 1 % at random; "
        f"floor: an address-book row per row, {sample:,} rows in SQLite",
    )  # fmt: skip


def _payload(lake: il.Lake) -> int:
    """Bytes of the records that say where rows lie and which are gone, with their indexes."""
    with lake.catalog.read() as r:
        (found,) = r.rows(
            """select sum(payload) from dbstat where name like '%indexlake_data_file%'
            or name like '%indexlake_index_file%' or name like '%indexlake_delete%'"""
        )
    return int(found[0])
