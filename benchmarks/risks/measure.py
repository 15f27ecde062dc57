"""Timing and printing shared by the risk programs: contenders alternate, medians are reported."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Median seconds of each contender, run in turn so that drift of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        call()
    for _ in range(rounds):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def per_call(call: Callable[[], object], calls: int) -> Callable[[], None]:
    """The call repeated, for things too short to time alone."""

    def repeated() -> None:
        for _ in range(calls):
            call()

    return repeated


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
