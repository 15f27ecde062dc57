"""What a benchmark found: figures of the contenders, their ratio, and whether the goal is met.

Contenders alternate, call by call or round by round, so that a disturbance of the machine hits all of them alike;
medians are reported.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the table.  ``value`` is what the goal speaks of; ``met`` None: there is no goal."""

    name: str
    ours: str
    floor: str
    value: float
    goal: str
    met: bool | None
    detail: str = ""


def at_most(name: str, ours: float, floor: float, limit: float, unit: str = "µs", detail: str = "") -> Outcome:
    """Ours costs at most ``limit`` times the floor."""
    ratio = ours / floor
    return Outcome(
        name, shown(ours, unit), shown(floor, unit), round(ratio, 3), f"≤ {limit:g}×", ratio <= limit, detail
    )


def at_least(name: str, ours: float, floor: float, share: float, unit: str, detail: str = "") -> Outcome:
    """Ours reaches at least that share of the floor."""
    ratio = ours / floor
    return Outcome(
        name, shown(ours, unit), shown(floor, unit), round(ratio, 3), f"≥ {share:.0%}", ratio >= share, detail
    )


def below(name: str, ours: float, limit: float, unit: str, detail: str = "") -> Outcome:
    """Ours is below an absolute figure."""
    return Outcome(name, shown(ours, unit), "", round(ours, 4), f"≤ {limit:g} {unit}", ours <= limit, detail)


def shown(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.3g} {unit}"


def in_turn(
    contenders: Mapping[str, Callable[[int], object]],
    calls: int,
    warm_up: int = 20,
    together: int = 1,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, list[float]]:
    """Microseconds of each call by a clock of nanoseconds.  Contenders take turns after ``together`` calls: 1 where the
    disk decides, more where the processor does, so that none runs in the caches of another."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for n in range(warm_up):
        for name in names:
            contenders[name](n)
    gc.collect()
    for first in range(warm_up, warm_up + calls, together):
        names.append(names.pop(0))  # nobody is always the one after a given other
        for name in names:
            call = contenders[name]
            for n in range(first, min(first + together, warm_up + calls)):
                start = clock()
                call(n)
                times[name].append((clock() - start) / 1000)
    return times


def spread(values: Sequence[float], unit: str = "µs") -> str:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"p50 {statistics.median(ordered):,.0f}, p99 {p99:,.0f} {unit}, n={len(ordered)}"


def report(
    outcomes: Iterable[Outcome],
    path: Path | None,
    facts: Mapping[str, Any],
    title: str = "IndexLake engine",
    other: str = "floor",
) -> None:
    """A table for people; JSON on the path, or on the screen."""
    from rich.console import Console
    from rich.table import Table

    found = list(outcomes)
    table = Table(title=title, title_justify="left")
    for column in ("benchmark", "ours", other, "ratio", "goal", "", "detail"):
        table.add_column(column, overflow="fold")
    for o in found:
        mark = "" if o.met is None else "[green]met[/]" if o.met else "[red]missed[/]"
        table.add_row(o.name, o.ours, o.floor, f"{o.value:g}", o.goal, mark, o.detail)
    Console(width=160).print(table)
    text = json.dumps({"facts": dict(facts), "outcomes": [asdict(o) for o in found]}, indent=2, ensure_ascii=False)
    if path is None:
        print(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")
