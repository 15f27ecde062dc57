"""A SQL aggregate over many rows: IndexLake's embedded SQL against DuckDB on one Parquet file of the same rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

import indexlake as il
from benchmarks.orders import SCHEMA, stream
from benchmarks.outcome import Outcome, at_most, in_turn, spread
from benchmarks.peers.expected import Expected, same

QUERY = "select city, count(*) n, sum(quantity) q, sum(total) t from {} group by city"


def aggregate(folder: Path, rows: int) -> Iterator[Outcome]:
    path = folder / "orders.parquet"
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for batch in stream(rows):
            writer.write_batch(batch)
    with il.connect(folder / "query") as lake, duckdb.connect() as bare:
        lake.create_table("orders", SCHEMA, primary_key="id").insert(stream(rows))

        def ours(n: int) -> list[tuple[str, int, int, float]]:
            found = lake.sql(QUERY.format("orders")).to_arrow().to_pylist()
            return [(r["city"], int(r["n"]), int(r["q"]), r["t"]) for r in found]

        def theirs(n: int) -> list[tuple[str, int, int, float]]:
            found = bare.execute(QUERY.format(f"'{path}'")).fetchall()
            return [(city, n, int(q), t) for city, n, q, t in found]

        for name, call in (("IndexLake", ours), ("DuckDB", theirs)):
            same(name, call(0), Expected(rows).by_city())
        times = in_turn({"ours": ours, "bare": theirs}, 15, warm_up=3)
    mine, floor = (statistics.median(times[name]) for name in ("ours", "bare"))
    detail = f"ours {spread(times['ours'])}; DuckDB on Parquet {spread(times['bare'])}"
    yield at_most(f"SQL aggregate over {rows:,} rows: DuckDB on Parquet", mine, floor, 1.3, detail=detail)
