"""The planner on a grid: conditions from one row to all, along the order of the rows and across it.

Each is asked with indexes forced, with indexes forbidden, and as it comes; what comes must never cost more than 1.5
times the better of the two others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import indexlake as il
from benchmarks.indexes import data
from benchmarks.outcome import Outcome, in_turn, shown

LIMIT = 1.5
WAYS = ("always", "never", "auto")
_ABOUT = 0.15  # seconds for each way and query


def grid(folder: Path, rows: int) -> Iterator[Outcome]:
    rows = rows // 5
    lake = data.open_lake(folder, "planner")
    table = data.table_of(lake, rows, 20)
    table.insert(data.stream(rows))
    for column in ("n", "k"):
        table.create_index(f"by_{column}", column)
    counts = sorted({round(rows ** (n / 19)) for n in range(20)})
    worst: tuple[float, str] = (0.0, "")
    for column, what in (("n", "along the order"), ("k", "across the order")):
        for count in counts:
            medians = _measured(lake, table, f"{column} between {rows // 7} and {rows // 7 + count - 1}", count, rows)
            best = min(medians["always"], medians["never"])
            ratio = medians["auto"] / best
            worst = max(worst, (ratio, f"{count:,} rows {what}"))
            yield Outcome(
                f"{count:,} rows {what}", shown(medians["auto"], "ms"), shown(best, "ms"), round(ratio, 3),
                f"≤ {LIMIT:g}×", ratio <= LIMIT, f"index {medians['always']:.3g} ms, scan {medians['never']:.3g} ms",
            )  # fmt: skip
    lake.close()
    yield Outcome("the worst of the planner", worst[1], "", round(worst[0], 3), f"≤ {LIMIT:g}×", worst[0] <= LIMIT)


def _measured(lake: il.Lake, table: il.Table, where: str, count: int, rows: int) -> dict[str, float]:
    """Milliseconds of each way, the median; the ways take turns, a few calls each."""

    def ask(_: int, way: str) -> None:
        lake._files.use_indexes = way
        found = table.scan(where).to_arrow().num_rows
        assert found == min(count, rows - rows // 7), (where, found)

    calls = {way: partial(ask, way=way) for way in WAYS}
    try:
        start = time.perf_counter()
        in_turn(calls, 1, warm_up=2)
        each = (time.perf_counter() - start) / 9
        times = in_turn(calls, max(6, min(60, int(_ABOUT / each))), warm_up=0, together=3)
    finally:
        lake._files.use_indexes = "auto"
    return {way: statistics.median(t) / 1000 for way, t in times.items()}
