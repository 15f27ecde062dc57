"""Points: a window through an rtree and by reading everything, and the nearest places."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.indexes import data
from benchmarks.outcome import Outcome, at_most, below, in_turn, spread


def windows(folder: Path, rows: int) -> Iterator[Outcome]:
    rows = rows // 10
    lake = data.open_lake(folder, "space")
    schema = pa.schema([("id", pa.int64()), ("lon", pa.float64()), ("lat", pa.float64())])
    table = data.table_of(lake, rows, 10, schema=schema)
    places = np.random.default_rng(1)
    table.insert(
        pa.table([np.arange(rows), places.uniform(-180, 180, rows), places.uniform(-90, 90, rows)], schema=schema)
    )
    table.create_index("places", ["lon", "lat"], kind="rtree")
    pick = random.Random(1)
    side = 360 * (100 / rows) ** 0.5  # about a hundred rows
    corners = [(pick.uniform(-180, 180 - side), pick.uniform(-90, 90 - side / 2)) for _ in range(500)]

    def window(n: int, way: str) -> int:
        lake._files.use_indexes = way
        x, y = corners[n]
        where = f"lon between {x} and {x + side} and lat between {y} and {y + side / 2}"
        return len(table.scan(where).to_arrow())

    assert window(0, "auto") == window(0, "never") > 0
    times = in_turn({"rtree": lambda n: window(n, "auto"), "scan": lambda n: window(n, "never")}, 60, together=5)
    lake._files.use_indexes = "auto"
    ours, scan = (statistics.median(times[who]) for who in ("rtree", "scan"))
    detail = f"rtree {spread(times['rtree'])}; scan {spread(times['scan'])}"
    yield at_most(f"rtree window of about 100 of {rows:,} points, and a scan", ours, scan, 1, detail=detail)
    near = in_turn({"ours": lambda n: table.search("places", corners[n], k=10).to_arrow()}, 200)["ours"]
    yield below(f"nearest 10 of {rows:,} points", statistics.median(near) / 1000, 5, "ms", spread(near))
    lake.close()
