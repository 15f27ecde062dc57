"""Finds what snapshot isolation forbids in a history of lists, from nothing but what clients saw.

Transactions append values, each of which is used once, to lists under keys, and read lists.  A list shows the order of
its appends, so a history tells which transaction wrote after which (ww), read from which (wr), and read what another
one has overwritten (rw).  With the order of real time (a transaction that began after another had been acknowledged
comes after it) these are edges of a graph.  Snapshot isolation is broken exactly when the graph has a cycle in which no
two rw edges follow each other:

    G0        ww only: dirty writes                  G1a  a value of a transaction that was not committed was read
    G1c       ww and wr: circular information flow   G1b  a value that its transaction appended on to was read last
    G-single  one rw: read skew, lost update         G-nonadjacent  several rw, none after another

Where real time takes part in a cycle, it is named in brackets.  Cycles with two rw edges in a row are write skew
(G2-item), which snapshot isolation allows.  Elle, by Kingsbury and Alvaro, is where the idea comes from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Key = Any
Edges = dict[int, dict[int, str]]
"""From a transaction to another, and why."""


@dataclass
class Op:
    key: Key
    value: int | None = None
    """What was appended; None: it was a read."""
    found: tuple[int, ...] = ()
    """What was read."""

    def __repr__(self) -> str:
        return f"append {self.key} {self.value}" if self.value is not None else f"read {self.key} {list(self.found)}"


def append(key: Key, value: int) -> Op:
    return Op(key, value)


def read(key: Key, *found: int) -> Op:
    return Op(key, None, tuple(found))


@dataclass
class Done:
    """One transaction as its client saw it."""

    name: str
    ops: list[Op]
    committed: bool = True
    begun: float = 0.0
    ended: float = float("inf")

    def last_append(self, key: Key) -> int | None:
        return next((op.value for op in reversed(self.ops) if op.key == key and op.value is not None), None)


@dataclass
class Graph:
    """Edges by kind.  ww, wr and time are dependencies; rw is an anti-dependency."""

    ww: Edges = field(default_factory=dict)
    wr: Edges = field(default_factory=dict)
    rw: Edges = field(default_factory=dict)
    time: Edges = field(default_factory=dict)

    def add(self, kind: str, before: int | None, after: int | None, why: str) -> None:
        if before is not None and after is not None and before != after:
            getattr(self, kind).setdefault(before, {}).setdefault(after, why)


def anomalies(history: Iterable[Done]) -> list[str]:
    """Everything that snapshot isolation forbids; of cycles only the worst kind, by a shortest one."""
    done = list(history)
    found = [*_wrong_values(done)]
    orders, wrong = _orders(done)
    found += wrong
    graph = _graph(done, orders)
    for name, kinds, rw in (
        ("G0", ("ww",), 0), ("G1c", ("ww", "wr"), 0), ("G-single", ("ww", "wr"), 1), ("G-nonadjacent", ("ww", "wr"), 2),
        ("G0", ("ww", "time"), 0), ("G1c", ("ww", "wr", "time"), 0), ("G-single", ("ww", "wr", "time"), 1),
        ("G-nonadjacent", ("ww", "wr", "time"), 2),
    ):  # fmt: skip
        cycle = _cycle(graph, kinds, rw)
        if cycle is not None:
            timed = " (real time)" if "time" in kinds else ""
            found.append(f"{name}{timed}: " + _shown(done, cycle))
            if rw == 1 and (lost := _lost_update(done, cycle)):
                found.append(f"lost update: {lost}")
            break  # a history that is broken in one way has many cycles
    return found


def write_skews(history: Iterable[Done]) -> int:
    """How many pairs of transactions read what the other one overwrote: allowed, and a sign that they did meet."""
    done = list(history)
    rw = _graph(done, _orders(done)[0]).rw
    return sum(1 for a in rw for b in rw[a] if a < b and a in rw.get(b, {}))


# ---------------------------------------------------------------- values and orders


def _wrong_values(done: list[Done]) -> Iterator[str]:
    """What needs no graph: dirty and intermediate reads, values from nowhere, own writes that are not seen."""
    writers = {(op.key, op.value): d for d in done for op in d.ops if op.value is not None}
    for d in done:
        own: dict[Key, list[int]] = {}
        first: dict[Key, tuple[int, ...]] = {}
        for op in d.ops:
            if op.value is not None:
                own.setdefault(op.key, []).append(op.value)
                continue
            mine = own.get(op.key, [])
            others = op.found[: len(op.found) - len(mine)]
            if list(op.found[len(others) :]) != mine:
                yield f"internal: {d.name} appended {mine} to {op.key} and read {list(op.found)}"
                continue
            if first.setdefault(op.key, others) != others:
                yield f"internal: {d.name} read {op.key} as {list(first[op.key])}, then as {list(others)}"
            if len(set(op.found)) < len(op.found):
                yield f"twice: {d.name} read {op.key} as {list(op.found)}"
            for value in others:
                writer = writers.get((op.key, value))
                if writer is None or writer is d:
                    yield f"from nowhere: {d.name} read {value} in {op.key}"
                elif not writer.committed:
                    yield f"G1a: {d.name} read {value} in {op.key}, which {writer.name} did not commit"
            if others and (writer := writers.get((op.key, others[-1]))) is not None:
                last = writer.last_append(op.key)
                if writer.committed and writer is not d and last != others[-1]:
                    yield f"G1b: {d.name} read {op.key} up to {others[-1]}; {writer.name} went on to append {last}"


def _orders(done: list[Done]) -> tuple[dict[Key, tuple[int, ...]], list[str]]:
    """Of each key the longest list that was read; every other one must be a beginning of it, and miss no append."""
    longest: dict[Key, tuple[int, ...]] = {}
    wrong = []
    for d in done:
        if d.committed:
            for op in d.ops:
                if op.value is None and len(op.found) > len(longest.get(op.key, ())):
                    longest[op.key] = op.found
    for d in done:
        for op in d.ops:
            order = longest.get(op.key, ())
            if op.value is None and d.committed and op.found != order[: len(op.found)]:
                wrong.append(
                    f"incompatible order: {d.name} read {op.key} as {list(op.found)}, another as {list(order)}"
                )
    last_read = {op.key: d.begun for d in sorted(done, key=lambda d: d.begun) for op in d.ops if op.value is None}
    for d in done:
        for op in d.ops if d.committed else ():
            if op.value is not None and last_read.get(op.key, 0) >= d.ended and op.value not in longest.get(op.key, ()):
                wrong.append(f"lost update: {d.name} appended {op.value} to {op.key}, and it is gone")
    return longest, wrong


def _graph(done: list[Done], orders: dict[Key, tuple[int, ...]]) -> Graph:
    graph = Graph()
    committed = {n: d for n, d in enumerate(done) if d.committed}
    writers = {(op.key, op.value): n for n, d in committed.items() for op in d.ops if op.value is not None}
    for key, order in orders.items():
        for a, b in pairwise(order):
            graph.add("ww", writers.get((key, a)), writers.get((key, b)), f"{key}: {a}, then {b}")
    for n, d in committed.items():
        for op in d.ops:
            if op.value is not None:
                continue
            order = orders.get(op.key, ())
            others = [v for v in op.found if writers.get((op.key, v)) != n]
            if others:
                graph.add("wr", writers.get((op.key, others[-1])), n, f"{op.key}: {others[-1]}")
            if len(others) < len(order):
                graph.add("rw", n, writers.get((op.key, order[len(others)])), f"{op.key}: before {order[len(others)]}")
    _add_time(graph, committed)
    return graph


def _add_time(graph: Graph, committed: dict[int, Done]) -> None:
    """Edges from those that ended last before each began; the others follow from them."""
    by_end = sorted(committed, key=lambda n: committed[n].ended)
    ends = [committed[n].ended for n in by_end]
    for n, d in committed.items():
        latest = float("-inf")
        for before in reversed(by_end[: bisect_left(ends, d.begun)]):
            if committed[before].ended < latest:
                break
            latest = max(latest, committed[before].begun)
            graph.add("time", before, n, "real time")


# ---------------------------------------------------------------- cycles

Step = tuple[int, str, str]
"""To a transaction, by an edge of a kind, for a reason."""


def _cycle(graph: Graph, kinds: tuple[str, ...], rw: int) -> list[Step] | None:
    """A shortest cycle of those dependencies and no, one, or (2) any number of rw edges, none right after another.

    A walk is at (transaction, how it came there); a cycle that may hold rw edges begins with one that it needs.
    """
    edges: list[tuple[str, Edges]] = [(kind, getattr(graph, kind)) for kind in kinds]
    best: list[Step] | None = None
    if rw == 0:
        for start in sorted({n for _, e in edges for n in e}):
            best = _shorter(best, _way(start, start, edges, graph, False, False))
        return best
    for before, afters in graph.rw.items():
        for after, why in afters.items():
            rest = _way(after, before, edges, graph, rw > 1, True)
            if rest is not None:
                best = _shorter(best, [*rest, (after, "rw", why)])
    return best


def _shorter(one: list[Step] | None, other: list[Step] | None) -> list[Step] | None:
    return other if one is None or (other is not None and len(other) < len(one)) else one


def _way(
    start: int, goal: int, edges: list[tuple[str, Edges]], graph: Graph, rw: bool, came_by_rw: bool
) -> list[Step] | None:
    """The shortest way of at least one edge, ending with a dependency; rw edges on it follow dependencies only."""
    first = (start, came_by_rw)
    came: dict[tuple[int, bool], tuple[tuple[int, bool], Step]] = {}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        at, by_rw = state
        steps = [(n, kind, why, False) for kind, e in edges for n, why in e.get(at, {}).items()]
        if rw and not by_rw:
            steps += [(n, "rw", why, True) for n, why in graph.rw.get(at, {}).items()]
        for n, kind, why, now_by_rw in steps:
            following = (n, now_by_rw)
            if following in came:
                continue
            came[following] = (state, (n, kind, why))
            if n == goal and not now_by_rw:
                way = [came[following][1]]
                while state != first:
                    state, step = came[state]
                    way.append(step)
                return way[::-1]
            waiting.append(following)
    return None


def _shown(done: list[Done], cycle: list[Step]) -> str:
    names = [done[n].name for n, _, _ in cycle]
    text = names[-1] + "".join(f" -{kind}[{why}]-> {done[n].name}" for n, kind, why in cycle)
    return "\n  ".join([text, *(f"{done[n].name}: {done[n].ops}" for n in dict.fromkeys(n for n, _, _ in cycle))])


def _lost_update(done: list[Done], cycle: list[Step]) -> str | None:
    """Two transactions of the cycle that read one key alike and both appended to it."""
    members = [done[n] for n in dict.fromkeys(n for n, _, _ in cycle)]
    for a in members:
        for b in members:
            for op in a.ops if a is not b else ():
                if op.value is None and op in b.ops and a.last_append(op.key) and b.last_append(op.key):
                    return f"{a.name} and {b.name} both read {op.key} as {list(op.found)} and appended to it"
    return None
