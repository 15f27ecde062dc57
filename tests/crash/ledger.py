"""What must be in a lake after a kill, and the check that it is.

The ledger follows the workers' logs: acknowledged operations are there, the one that a lane had in flight is
there whole or not at all, nothing else is.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import indexlake as il
from tests.crash.nursery import Nursery
from tests.crash.worker import KEYS, TABLES, Request, State, make_tables, nothing, read_lanes, row
from tests.support.folders import new_folder

REMEMBERED = 6
"""Past states that are kept of each lane."""


@dataclass
class LakeUnderTest:
    """One lake, its workers one after the other, and what it must hold."""

    nursery: Nursery
    request: Request
    folder: Path
    random: random.Random
    expected: dict[int, State] = field(default_factory=dict)
    past: list[tuple[int, int, State]] = field(default_factory=list)
    kills: int = 0
    acknowledged: int = 0
    in_flight: int = 0
    kept_in_flight: int = 0
    repeated: int = 0
    light: bool = False
    """Rows are compared after each kill, indexes only at the end."""

    # ------------------------------------------------------------ killing

    def kill_at_random(self, most_lines: int = 60) -> None:
        """Start a worker, kill it at a random moment after it has said a random number of things, check the lake."""
        request = self._next()
        pid = self.nursery.start(request)
        self._wait_for_lines(request.log, 1 + int(self.random.random() ** 2 * most_lines))
        time.sleep(self.random.random() ** 2 * 0.03)
        _kill(pid)
        self.nursery.wait()
        self._ended(request)

    def storm(self, others: Sequence[Nursery], most_lines: int = 60, **changes: Any) -> None:
        """Several workers at once, each killed at a random moment; check the lake when the last one is dead."""
        running = []
        for n, nursery in enumerate((self.nursery, *others)):
            request = replace(self._next(), first_lane=n * self.request.lanes, seconds=600.0, **changes)
            running.append((nursery, request, nursery.start(request)))
        self.random.shuffle(running)
        try:
            for _, request, pid in running:
                self._wait_for_lines(request.log, 1 + int(self.random.random() ** 2 * most_lines))
                time.sleep(self.random.random() ** 2 * 0.03)
                _kill(pid)
        finally:
            for nursery, _, pid in running:
                _kill(pid)
                nursery.wait()
        self.check([line for _, request, _ in running for line in _lines(request.log)])

    def kill_at(self, faults: str, **changes: Any) -> None:
        """Start a worker that kills itself at a named step, check the lake."""
        request = replace(self._next(), faults=faults, **changes)
        self.nursery.start(request)
        status = self.nursery.wait()
        assert status == -signal.SIGKILL, f"{faults}: the worker ended with {status}: {_tail(request.log)}"
        self._ended(request)

    def _next(self) -> Request:
        self.kills += 1
        log = str(self.folder / f"log{self.kills}")
        return replace(self.request, log=log, seed=self.random.getrandbits(32))

    def _wait_for_lines(self, log: str, count: int) -> None:
        begun = time.monotonic()
        while not os.path.exists(log):
            assert time.monotonic() < begun + 60, "the worker does not begin to work: something stops it"
            time.sleep(0.002)
        with open(log, "rb") as file:
            while count > 0:
                said = file.read()
                count -= said.count(b"\n")
                assert b'{"error"' not in said, said.decode()
                begun = time.monotonic() if said else begun
                assert time.monotonic() < begun + 60, "the worker stands still"
                time.sleep(0.001)

    def _ended(self, request: Request) -> None:
        self.check(_lines(request.log))
        with suppress(FileNotFoundError):
            os.unlink(request.log)

    # ------------------------------------------------------------ checking

    def check(self, lines: list[dict[str, Any]]) -> None:
        """In a new handle: compare, write, dump, compare again."""
        pending = self._follow(lines)
        begun = time.monotonic()
        with self.request.connect(automatic=False) as lake:
            self._settle(read_lanes(lake), pending)
            self._repeat(lake, pending)
            make_tables(lake, self.request)
            self._check_keys(lake)
            if not self.light:
                self._check_indexes(lake)
            self._check_past(lake, 1 if self.light else 2)
            self._write_on(lake)
            self._compare(read_lanes(lake))
        assert time.monotonic() - begun < 45, "the next process was held up"

    def finish(self, most: int | None = None) -> None:
        """At the end of the lake's life: every retained snapshot (or so many of each table) can be read."""
        with self.request.connect(automatic=False) as lake:
            self._check_past(lake, len(self.past))
            for name in TABLES:
                history = [snapshot.snapshot_id for snapshot in lake.table(name).history()]
                for snapshot in history if most is None else self.random.sample(history, min(most, len(history))):
                    lake.table(name).at(snapshot).scan().to_arrow()
                self._check_feed(lake.table(name))
            for job in lake.jobs():
                assert job.state in ("done", "lost", "running"), job
            lake.pipeline(runner="threads").build_index()
            self._check_indexes(lake)
            for name in TABLES:
                for info in lake.table(name).indexes():
                    assert info.rows_uncovered == 0, f"a repeated build heals what a killed one left: {info}"
            self._check_files(lake)
        for path in self.folder.rglob("index/*"):
            assert path.stat().st_size, "a file that is published is whole"

    def _check_feed(self, table: il.Table) -> None:
        """The changes since the oldest snapshot lead from its rows to the present ones, each fitting what is there."""
        history = table.history()
        if not history:
            return  # it has expired
        first = history[0].snapshot_id
        columns = ["id", "lane", "value"]
        there = Counter(tuple(r.values()) for r in table.at(first).scan(columns=columns).to_pylist())
        for change in table.changes(first, columns=columns).to_pylist():
            kind, values = change["_change_type"], tuple(change[name] for name in columns)
            there[values] += 1 if kind in ("insert", "update_postimage") else -1
            assert there[values] in (0, 1), f"{kind} of {values} in {change['_snapshot_id']}"
        now = Counter(tuple(r.values()) for r in table.scan(columns=columns).to_pylist())
        assert +there == now, f"the feed of {table.name} leads elsewhere"

    def _check_files(self, lake: il.Lake) -> None:
        """Every file that the catalog names is whole; what the killed left behind, vacuum finds."""
        lake._maintenance.forget()
        with lake.catalog.transaction() as tx:
            tx.execute("update indexlake_writer set expires_at = 5")
            tx.commit()
        p = lake.pipeline(runner="threads")
        p.vacuum(dry_run=False, grace=timedelta(0))
        found = p.verify()
        assert found.ok, found
        assert not found.unreachable_files, "nothing leaks"

    def _follow(self, lines: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Apply what was acknowledged; the operations in flight by lane."""
        pending: dict[int, dict[str, Any]] = {}
        for line in lines:
            assert "error" not in line, line["error"]
            if "lane" not in line:
                continue
            lane = line["lane"]
            if "effect" in line:
                pending[lane] = line
                continue
            state = self._state(lane)
            _apply(state, pending.pop(lane)["effect"])
            self.acknowledged += 1
            if line["snapshot"] is not None:
                self._remember(line["snapshot"], lane, state)
        self.in_flight += len(pending)
        return pending

    def _state(self, lane: int) -> State:
        return self.expected.setdefault(lane, nothing())

    def _remember(self, snapshot: int, lane: int, state: State) -> None:
        if len(self.past) < REMEMBERED:
            self.past.append((snapshot, lane, _copy(state)))
        elif self.random.random() < 0.02:
            self.past[self.random.randrange(REMEMBERED)] = (snapshot, lane, _copy(state))

    def _settle(self, found: dict[int, State], pending: dict[int, dict[str, Any]]) -> None:
        """Operations in flight: there or not, as the lake says, but whole."""
        for lane, line in pending.items():
            after = _copy(self._state(lane))
            _apply(after, line["effect"])
            if found.get(lane, nothing()) == after:
                self.kept_in_flight += 1
                self.expected[lane] = after
                line["kept"] = True
        self._compare(found, pending)

    def _repeat(self, lake: il.Lake, pending: dict[int, dict[str, Any]]) -> None:
        """What had a token is done again with it, as a client would: then it is there, and there once."""
        for lane, line in pending.items():
            if line.get("token") is None:
                continue
            state, effect, kept = self._state(lane), line["effect"], line.get("kept", False)
            with lake.transaction(token=line["token"]) as tx:
                for name, rows in effect.items():
                    gone = [int(key) for key in rows if int(key) in state[name]]
                    new = {int(key): value for key, value in rows.items() if value is not None}
                    tx.table(name).delete("lane = $lane and id in $gone", {"lane": lane, "gone": gone})
                    # Of what is there already nothing is done, so that other values do not come in.
                    tx.table(name).insert([row(lane, key, value + kept) for key, value in new.items()])
            if not kept:
                _apply(state, effect)
            self.repeated += 1

    def _compare(self, found: dict[int, State], pending: dict[int, dict[str, Any]] | None = None) -> None:
        for lane in {*self.expected, *found}:
            wanted, there = self._state(lane), found.get(lane, nothing())
            if wanted != there:
                lines = [f"lane {lane} differs (in flight: {(pending or {}).get(lane)})"]
                for part in wanted:
                    lost = {k: v for k, v in wanted[part].items() if k not in there[part]}
                    more = {k: v for k, v in there[part].items() if k not in wanted[part]}
                    other = {k: (v, there[part][k]) for k, v in wanted[part].items() if there[part].get(k, v) != v}
                    lines.append(f"  {part}: lost {lost}, too much {more}, different (expected, found) {other}")
                raise AssertionError("\n".join(lines))

    def _check_keys(self, lake: il.Lake) -> None:
        """A few rows by key, and a few keys that nobody has."""
        for name in (name for name in TABLES if KEYS[name]):
            table = lake.table(name)
            everywhere = [(lane, key) for lane, state in self.expected.items() for key in state[name]]
            for lane, key in self.random.sample(everywhere, min(3, len(everywhere))):
                found = table.get({"lane": lane, "id": key} if len(table.primary_key) > 1 else key)
                assert found is not None, f"key {key} of {name} is gone"
                wanted = row(lane, key, self.expected[lane][name][key])
                assert found.items() >= wanted.items(), f"key {key} of {name} gives {found}, not {wanted}"
            absent = -self.random.getrandbits(40)
            assert table.get((0, absent) if len(table.primary_key) > 1 else absent) is None

    def _check_indexes(self, lake: il.Lake) -> None:
        """A few rows by what indexes know of them: with look-ups, and without."""
        for name in TABLES:
            table = lake.table(name)
            there = [row(lane, key, v) for lane, state in self.expected.items() for key, v in state[name].items()]
            indexes = {info.name for info in table.indexes()}
            for one in self.random.sample(there, min(3, len(there))):
                for columns in (("value",), ("lane", "id"), ("value", "twice")):
                    params = {c: one[c] for c in columns}
                    where = " and ".join(f"{c} = ${c}" for c in columns)
                    wanted = sorted(r["id"] for r in there if params.items() <= r.items())
                    for use in ("always", "never"):
                        lake._files.use_indexes = use
                        found = table.scan(where, params=params, columns=["id"]).to_pylist()
                        assert sorted(r["id"] for r in found) == wanted, f"{where} {params} of {name}, indexes {use}"
                if "by_note" in indexes:
                    found = table.search("by_note", one["note"], columns=["id", "lane"]).to_pylist()
                    wanted = sorted((r["id"], r["lane"]) for r in there if r["note"] == one["note"])
                    assert sorted((r["id"], r["lane"]) for r in found) == wanted, f"{one['note']} of {name}"
        lake._files.use_indexes = "auto"

    def _check_past(self, lake: il.Lake, count: int) -> None:
        for snapshot, lane, state in self.random.sample(self.past, min(count, len(self.past))):
            try:
                found = read_lanes(lake, snapshot)
            except il.SnapshotExpiredError:
                continue
            assert found.get(lane, nothing()) == state, f"lane {lane} at snapshot {snapshot}"

    def leave_a_tail(self) -> None:
        """The redo log has something to be brought back."""
        with self.request.connect(automatic=False) as lake:
            make_tables(lake, self.request)
            self._write(lake)

    def _write(self, lake: il.Lake) -> None:
        lane = 15
        for name in TABLES:
            key = self.random.getrandbits(44) * 16 + lane
            lake.table(name).insert(row(lane, key, self.kills))
            self._state(lane)[name][key] = self.kills

    def _write_on(self, lake: il.Lake) -> None:
        """The next process writes and dumps at once: nothing that the dead one left stands in its way."""
        self._write(lake)
        if self.random.random() < 0.5:
            lake.pipeline().dump()
            assert lake.table("a").stats().hot_rows == 0


def _apply(state: State, effect: dict[str, dict[str, Any]]) -> None:
    for table, keys in effect.items():
        for text, value in keys.items():
            key: Any = int(text) if table in TABLES else text
            if value is None:
                del state[table][key]
            else:
                state[table][key] = value


def _copy(state: State) -> State:
    return {part: dict(keys) for part, keys in state.items()}


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _lines(log: str) -> list[dict[str, Any]]:
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def _tail(log: str) -> str:
    return "\n".join(str(line.get("error", line)) for line in _lines(log)[-3:])


def new_lake(
    nursery: Nursery, seed: int, *, dsn: str | None = None, format: str = "vortex", hot: str = "inline"
) -> LakeUnderTest:
    """An empty lake, in a folder or with its catalog in PostgreSQL."""
    folder = new_folder("kill")
    chance = random.Random(seed)
    request = Request(str(folder / "lake"), "", seed, format=format, hot=hot)
    if dsn is not None:
        request = replace(
            request,
            address=dsn,
            storage=str(folder / "files"),
            log_dir=str(folder / "redo") if hot == "memory" else None,
            catalog_schema=f"lake_{seed}_{folder.name[-8:]}",
        )
    return LakeUnderTest(nursery, request, folder, chance)


def remove(lake: LakeUnderTest) -> None:
    shutil.rmtree(lake.folder, ignore_errors=True)
    if lake.request.catalog_schema is not None:
        import psycopg

        with psycopg.connect(lake.request.address, autocommit=True) as connection:
            connection.execute(f'drop schema if exists "{lake.request.catalog_schema}" cascade')
