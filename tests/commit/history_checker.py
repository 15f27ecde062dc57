"""Finds what snapshot isolation forbids in a recorded history.

Snapshot numbers are known, so the definition can be checked as it stands: every read gives the version that was
newest at the transaction's begin (no dirty, intermediate or fuzzy read, no read skew, no cycle of them), and of
two committed transactions that write one key, one began after the other had committed (no lost update).  Write
skew is allowed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

from tests.commit.bank import INITIAL, Record


def anomalies(records: Iterable[Record], first: int = 0) -> list[str]:
    """What is wrong with a history; `first` is the snapshot of the initial rows."""
    records = list(records)
    committed = {r.tag: r for r in records if r.commit is not None and r.writes}
    aborted = {r.tag for r in records if r.commit is None}
    found: list[str] = []
    versions: dict[int, list[tuple[int, str]]] = {}
    for record in sorted(committed.values(), key=lambda r: r.commit or 0):
        for key in record.writes:
            assert record.commit is not None
            versions.setdefault(key, [(first, INITIAL)]).append((record.commit, record.tag))
    commits = [r.commit for r in committed.values()]
    if len(set(commits)) < len(commits):
        found.append("two transactions have one commit number")
    for record in records:
        for key, tag in record.reads.items():
            if tag in aborted:
                found.append(f"dirty read: {record.tag} read {key} from {tag}, which was not committed")
                continue
            if tag != INITIAL and tag not in committed:
                found.append(f"intermediate read: {record.tag} read {key} as {tag!r}")
                continue
            order = versions.get(key, [(first, INITIAL)])
            assert record.begin is not None
            at = bisect_right(order, record.begin, key=lambda v: v[0]) - 1
            if order[at][1] != tag:
                found.append(
                    f"stale or skewed read: {record.tag} at {record.begin} read {key} from {tag}, "
                    f"but {order[at][1]} was the newest then"
                )
    for key, order in versions.items():
        for (before, _), (after, tag) in pairwise(order):
            begin = committed[tag].begin
            if begin is not None and before > begin:
                found.append(f"lost update: {tag} ({begin}…{after}) overwrote {key}, which was written in {before}")
    return found
