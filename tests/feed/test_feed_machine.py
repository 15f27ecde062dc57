"""The feed against its definition: after random statements, transactions and jobs, for pairs of retained snapshots.

The versions that each snapshot shows are noted when it is new.  Later, whatever jobs have done since, the feed of a
range must be the difference of those notes, commit by commit, to the last column and in order.  So must be the parts of
a range, and replaying them must turn the first table into the last.  `INDEXLAKE_HYPOTHESIS=<examples>x<steps>` runs a
longer campaign.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

import indexlake as il
from indexlake.feed import active, windows
from tests.feed.versions import Versions, difference, replayed, versions_at
from tests.model.test_state_machine import LakeMachine, campaign

CAMPAIGN = bool(os.environ.get("INDEXLAKE_HYPOTHESIS"))
PAIRS = 4 if CAMPAIGN else 2


class FeedMachine(LakeMachine):
    """Everything that the lake's own machine does; what is compared are feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[int, Versions] = {}
        self.changes: dict[int, list[dict[str, Any]]] = {}
        self.room = windows.FIRST_ROWS, windows.MOST_ROWS, active.MOST_LISTED

    def teardown(self) -> None:
        windows.FIRST_ROWS, windows.MOST_ROWS, active.MOST_LISTED = self.room
        super().teardown()

    @invariant()
    def every_snapshot_reads_as_the_model_says(self) -> None:
        """That is for the lake's own machine to see; here the new snapshots are noted, and feeds compared."""
        if not self.lakes:
            return
        self.step += 1
        chance = random.Random(self.step)
        windows.FIRST_ROWS = windows.MOST_ROWS = chance.choice([1, 3, 10_000, 10_000, 10_000])
        active.MOST_LISTED = chance.choice([1, 4, 10_000])
        table = self.table(chance.randrange(2))
        self._note(table)
        kept = list(self.model.retained())
        for _ in range(PAIRS):
            since, middle, until = sorted(chance.choices(kept, k=3))
            whole = self._feed(table, since, until)
            parts = self._feed(table, since, middle) + self._feed(table, middle, until)
            assert whole == parts == self._expected(since, until), (since, middle, until)
            before, after = ({i: row for i, (_, row) in self.versions[s].items()} for s in (since, until))
            assert replayed(before, whole) == after
            assert table.changes(since, until).count() == len(whole)
        if self.model.horizon > self.model.created_in:
            with pytest.raises(il.SnapshotExpiredError):
                table.changes(self.model.horizon - 1)

    def _note(self, table: il.Table) -> None:
        last = table._lake.snapshot_id
        if not self.versions:
            self.versions[self.model.created_in] = {}
        for snapshot in range(max(self.versions) + 1, last + 1):
            before = self.versions[snapshot - 1]
            after = self.versions[snapshot] = versions_at(table, snapshot)
            self.changes[snapshot] = difference(before, after, snapshot)
            summary = self.model.commits.get(snapshot)
            kinds = [c["_change_type"] for c in self.changes[snapshot]]
            if summary is None:
                assert not kinds, "a job changes nothing"

    def _feed(self, table: il.Table, since: int, until: int) -> list[dict[str, Any]]:
        return table.changes(since, until, with_row_id=True).to_pylist()

    def _expected(self, since: int, until: int) -> list[dict[str, Any]]:
        return [change for s in range(since + 1, until + 1) for change in self.changes[s]]


@pytest.mark.timeout(0 if CAMPAIGN else 300)
def test_feeds_are_the_difference_of_snapshots_whatever_jobs_do() -> None:
    run_state_machine_as_test(FeedMachine, settings=_settings(5, 25))


@pytest.mark.timeout(0 if CAMPAIGN else 300)
def test_feeds_on_postgresql_are_the_difference_of_snapshots_too(new_address: Any) -> None:
    class PostgresMachine(FeedMachine):
        def __init__(self) -> None:
            super().__init__()
            self.address = new_address("postgres")

        def connect(self) -> None:
            self.lakes = [self.address.connect(automatic=False) for _ in range(2)]
            self.lakes[0]._scan_threads = 1

    run_state_machine_as_test(PostgresMachine, settings=_settings(2, 15))


def _settings(examples: int, steps: int) -> settings:
    return campaign() if CAMPAIGN else settings(campaign(), max_examples=examples, stateful_step_count=steps)
