"""One row at a time: insert, select, update and delete by key in a table of many rows."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.orders import row, stream
from benchmarks.outcome import Outcome, shown, spread
from benchmarks.peers.contenders import Contender, contender
from benchmarks.peers.expected import Expected

CALLS, LEAST_CALLS, SECONDS, WARM_UP = 200, 3, 20.0, 2
Step = Callable[[int], None]


def one_row(folder: Path, names: Sequence[str], rows: int) -> Iterator[Outcome]:
    """All contenders in one process, call by call in turn, each operation on fresh tables of so many rows.

    A contender that is slow stops after ``SECONDS``, but not before ``LEAST_CALLS``.
    """
    calls = min(CALLS, rows - WARM_UP)
    keys = random.Random(5).sample(range(rows), calls + WARM_UP)
    operations: dict[str, Callable[[Contender, Expected], Step]] = {
        "one-row insert": lambda c, e: _insert(c, e, rows),
        "point select by key": lambda c, e: _get(c, keys),
        "one-row update": lambda c, e: _update(c, e, keys),
        "one-row delete": lambda c, e: _delete(c, e, keys),
    }
    for number, (title, step) in enumerate(operations.items()):
        place = folder / str(number)
        place.mkdir()
        opened = [(name, contender(name)(place), Expected(rows)) for name in names]
        for _, made, _ in opened:
            made.create(stream(rows))
        times = _in_turn({name: step(made, expected) for name, made, expected in opened}, calls)
        for _, made, expected in opened:
            expected.check(made)
            made.close()
        yield from _outcomes(f"{title}, {rows:,} rows", times, {name: made.name for name, made, _ in opened})


def _insert(contender: Contender, expected: Expected, rows: int) -> Step:
    def step(n: int) -> None:
        new = row(rows + n)
        contender.insert([new])
        expected.put(new)

    return step


def _get(contender: Contender, keys: list[int]) -> Step:
    def step(n: int) -> None:
        found = contender.get(keys[n])
        assert found == row(keys[n]), found

    return step


def _update(contender: Contender, expected: Expected, keys: list[int]) -> Step:
    def step(n: int) -> None:
        contender.update(keys[n], 3.25)
        expected.update(keys[n], 3.25)

    return step


def _delete(contender: Contender, expected: Expected, keys: list[int]) -> Step:
    def step(n: int) -> None:
        contender.delete(keys[n])
        expected.delete(keys[n])

    return step


def _in_turn(steps: dict[str, Step], calls: int) -> dict[str, list[float]]:
    """Microseconds of each call of each contender."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for n in range(WARM_UP):
            step(n)
    gc.collect()
    names = list(steps)
    for n in range(WARM_UP, WARM_UP + calls):
        names.append(names.pop(0))
        for name in names:
            found = times[name]
            if len(found) >= LEAST_CALLS and sum(found) > SECONDS * 1e6:
                continue
            start = time.perf_counter_ns()
            steps[name](n)
            found.append((time.perf_counter_ns() - start) / 1000)
    return times


def _outcomes(title: str, times: dict[str, list[float]], shown_names: dict[str, str]) -> Iterator[Outcome]:
    medians = {name: statistics.median(found) for name, found in times.items()}
    ours = medians.pop("indexlake")
    for name, theirs in medians.items():
        detail = f"ours {spread(times['indexlake'])}; {shown_names[name]} {spread(times[name])}"
        yield Outcome(
            f"{title}: {shown_names[name]}", shown(ours, "µs"), shown(theirs, "µs"), round(theirs / ours, 2),
            "> 1×", theirs > ours, detail,
        )  # fmt: skip
