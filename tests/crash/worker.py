"""The process that gets killed: it writes without pause and says what it is about to do and what was acknowledged.

Several *lanes* (threads) write to four tables at once, one of them clustered.  Each owns the rows whose ``lane`` is its
own, and the columns that it has added, so what one lane left behind can be judged by itself.  Before each operation a
lane logs its effect, after the acknowledgement that it is done.  The log is a file: what was written to it outlives the
process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import indexlake as il
from indexlake.hot.memory import redo
from indexlake.pipeline import load as load_job
from indexlake.pipeline import merge_index
from indexlake.pipeline.job import JobBusy, LeaseLost
from indexlake.pipeline.pipeline import Pipeline
from indexlake.storage import faults
from tests.support.lakes import clock_of, connect

KEYS: dict[str, Any] = {"a": "id", "b": ("lane", "id"), "c": None, "d": "id"}
CLUSTERED = "d"
TABLES = tuple(KEYS)
BLOCK_ROWS = 120
SEGMENT_BYTES = 10_000
"""Of the redo log, where there is one: it goes on in another file all the time."""
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("lane", pa.int64(), False),
        pa.field("value", pa.int64()),
        pa.field("twice", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
State = dict[str, dict[Any, Any]]
"""Of one lane: rows of each table (id -> value), its own tables ("tables": name -> 1) and the columns that it has added
("columns": table.name -> type).  The name of such a column says what its default is: all its rows have that."""
WIDTHS = ("int8", "int16", "int32", "int64")

WEIGHTS = {
    "one": 6, "few": 3, "block": 1, "update": 4, "update_many": 1, "delete": 3, "both": 4, "dump": 1, "define": 1,
    "compact": 0.7, "cluster": 0.3, "freeze": 0.3, "thaw": 0.2, "vacuum": 0.3, "index": 0.5, "build": 0.2, "fold": 0.3,
    "reshape": 0.7, "convert": 0.2,
}  # fmt: skip
STORM = {**WEIGHTS, "alter": 3, "load": 2, "upsert": 2}
"""What comes on top where definitions change and files are loaded."""


INDEXES: dict[str, dict[str, Any]] = {
    "by_value": {"columns": "value", "include": ["twice"]},
    "by_note": {"columns": "note", "kind": "bm25"},
    "by_both": {"columns": ["value", "twice"], "kind": "hash"},
    "one_each": {"columns": ["lane", "id"], "unique": True},
}
"""What lanes create and drop; rows are the same with and without them."""


@dataclass
class Request:
    """What a worker does, as its parent asks for it."""

    address: str
    log: str
    seed: int
    storage: str | None = None
    catalog_schema: str | None = None
    first_lane: int = 0
    lanes: int = 2
    seconds: float = 20.0
    format: str = "vortex"
    faults: str = ""
    inline_limit: int = 60
    hot: str = "inline"
    log_dir: str | None = None
    weights: dict[str, float] = field(default_factory=dict)

    def connect(self, **options: Any) -> il.Lake:
        if self.hot == "memory":
            redo.SEGMENT_BYTES = SEGMENT_BYTES
            options = {"log_dir": self.log_dir, **options}
        return connect(self.address, storage=self.storage, catalog_schema=self.catalog_schema, hot=self.hot, **options)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def make_tables(lake: il.Lake, request: Request) -> None:
    """Unless they are there."""
    config = il.TableConfig(
        inline_row_count_limit=request.inline_limit,
        direct_write_row_count=BLOCK_ROWS,
        block_row_count=BLOCK_ROWS,
        dump_format=request.format,
        partition_row_count=BLOCK_ROWS,
    )
    for name, key in KEYS.items():
        layout = "clustered" if name == CLUSTERED else "heap"
        lake.create_table(name, SCHEMA, primary_key=key, config=config, exist_ok=True, layout=layout)


def nothing() -> State:
    """Of a lane without rows, which the lake does not show."""
    return {part: {} for part in (*TABLES, "tables", "columns")}


def row(lane: int, key: int, value: int) -> dict[str, Any]:
    return {"id": key, "lane": lane, "value": value, "twice": 2 * value, "note": f"n{key}"}


def read_lanes(lake: il.Lake, snapshot: int | None = None) -> dict[int, State]:
    """The whole lake by lane; every row is checked for being whole and there once."""
    view: Any = lake if snapshot is None else lake.at(snapshot)
    names = set(view.tables())
    found: dict[int, State] = {}

    def state_of(lane: int) -> State:
        return found.setdefault(lane, nothing())

    for name in names:
        if name.startswith("main.x"):
            state_of(int(name.split("_")[1]))["tables"][name] = 1
    for name in TABLES:
        if f"main.{name}" not in names:
            continue
        table = view.table(name)
        added = {f.name: int(f.name.split("_")[1]) for f in table.schema if f.name not in SCHEMA.names}
        for column in added:
            columns = state_of(int(column[1:].split("_")[0]))["columns"]
            columns[f"{name}.{column}"] = str(table.schema.field(column).type)
        rows = table.scan(with_row_id=True).to_arrow()
        assert table.scan().count() == rows.num_rows, f"count of {name} at {snapshot}"
        ids = rows.column("_indexlake_row_id").to_pylist()
        assert len(set(ids)) == len(ids), f"a row id twice in {name} at {snapshot}"
        for r in rows.to_pylist():
            whole = {**row(r["lane"], r["id"], r["value"]), **added, "_indexlake_row_id": r["_indexlake_row_id"]}
            assert r == whole, "half a row"
            lane = state_of(r["lane"])[name]
            assert r["id"] not in lane, f"key {r['id']} twice in {name} at {snapshot}"
            lane[r["id"]] = r["value"]
    return found


class Lane:
    def __init__(self, lake: il.Lake, request: Request, number: int, log: int, state: State) -> None:
        self.lake = lake
        self.request = request
        self.number = number
        self.random = random.Random(request.seed * 1000 + number)
        self.state = state
        self.count = 0
        self._log = log
        self._gone: list[tuple[str, int]] = []
        self._weights = request.weights or WEIGHTS

    def run(self) -> None:
        deadline = time.monotonic() + self.request.seconds
        try:
            while time.monotonic() < deadline:
                (kind,) = self.random.choices(list(self._weights), list(self._weights.values()))
                getattr(self, f"_{kind}")()
        except BaseException:
            write(self._log, {"error": traceback.format_exc()})
            os._exit(1)

    # ------------------------------------------------------------ saying it

    def _do(self, kind: str, effect: dict[str, dict[Any, Any]], act: Any, token: str | None = None) -> None:
        """Log the effect, act, check the count, log the acknowledgement; with a token perhaps act again."""
        self.count += 1
        here = {"lane": self.number, "n": self.count}
        write(self._log, {**here, "kind": kind, "effect": effect, "token": token})
        result = act()
        write(self._log, {**here, "snapshot": getattr(result, "snapshot_id", None)})
        if token is not None and self.random.random() < 0.2:
            assert act() == result, f"{kind} again with its token"
        rows = sum(len(keys) for table, keys in effect.items() if table in TABLES)
        if isinstance(result, il.WriteResult):
            assert result.rows == rows, f"{kind} of {rows} rows answered {result}"
        for table, keys in effect.items():
            for key, value in keys.items():
                if value is None:
                    del self.state[table][key]
                    self._gone.append((table, key))
                else:
                    self.state[table][key] = value

    def _fresh(self, table: str, count: int) -> dict[int, int]:
        """Keys that are not there: most of them new, some deleted before."""
        found: dict[int, int] = {}
        while len(found) < count:
            key = self.random.getrandbits(44) * 16 + self.number
            if self._gone and self.random.random() < 0.2:
                where, old = self._gone.pop(self.random.randrange(len(self._gone)))
                key = old if where == table else key
            if key not in self.state[table]:
                found[key] = self.random.randrange(1_000_000)
        return found

    def _present(self, table: str) -> int | None:
        keys = self.state[table]
        return self.random.choice(list(keys)) if keys else None

    # ------------------------------------------------------------ the operations

    def _insert(self, kind: str, count: int) -> None:
        name = self.random.choice(TABLES)
        rows = self._fresh(name, count)
        data: Any = [row(self.number, key, value) for key, value in rows.items()]
        if count >= BLOCK_ROWS:
            data = pa.Table.from_pylist(data, SCHEMA)
        elif count == 1:
            (data,) = data
        self._do(kind, {name: rows}, lambda: self.lake.table(name).insert(data))  # type: ignore[dict-item]

    def _one(self) -> None:
        self._insert("one", 1)

    def _few(self) -> None:
        self._insert("few", self.random.randrange(2, 30))

    def _block(self) -> None:
        self._insert("block", self.random.randrange(BLOCK_ROWS, 3 * BLOCK_ROWS))

    def _update(self) -> None:
        name = self.random.choice(TABLES)
        key = self._present(name)
        if key is None:
            return
        value = self.random.randrange(1_000_000)
        new = {"value": value, "twice": 2 * value}
        self._do("update", {name: {key: value}}, lambda: self.lake.table(name).update(new, "id = $id", {"id": key}))

    def _update_many(self) -> None:
        name = self.random.choice(TABLES)
        limit = self.random.randrange(1_000_000)
        hit = {key: value + 7 for key, value in self.state[name].items() if value < limit}
        new = {"value": il.expr("value + 7"), "twice": il.expr("twice + 14")}
        params = {"lane": self.number, "limit": limit}
        self._do(
            "update many", {name: hit},  # type: ignore[dict-item]
            lambda: self.lake.table(name).update(new, "lane = $lane and value < $limit", params),
        )  # fmt: skip

    def _delete(self) -> None:
        name = self.random.choice(TABLES)
        keys = self.state[name]
        gone = self.random.sample(sorted(keys), min(len(keys), self.random.choice((1, 1, 5))))
        if len(keys) > 600:  # keep the tables small
            gone = self.random.sample(sorted(keys), 400)
        if gone:
            self._do(
                "delete", {name: dict.fromkeys(gone)},
                lambda: self.lake.table(name).delete("id in $ids", {"ids": gone}),
            )  # fmt: skip

    def _both(self) -> None:
        """One transaction over both tables: a new row here, a changed one there, and one moved across."""
        fresh = self._fresh("a", 1)
        ((new, value),) = fresh.items()
        effect: dict[str, dict[Any, Any]] = {"a": {new: value}, "b": {}}
        changed, moved = self._present("b"), self._present("a")
        if changed is not None:
            effect["b"][changed] = value
        if moved is not None and moved not in self.state["b"] and moved != new:
            effect["a"][moved] = None
            effect["b"][moved] = self.state["a"][moved]
        else:
            moved = None

        def act(tx: il.Transaction) -> il.Transaction:
            tx.table("a").insert(row(self.number, new, value))
            if changed is not None:
                tx.table("b").update({"value": value, "twice": 2 * value}, "id = $id", {"id": changed})
            if moved is not None:
                tx.table("a").delete("id = $id", {"id": moved})
                tx.table("b").insert(row(self.number, moved, self.state["a"][moved]))
            return tx

        token = self._token()
        self._do("both", effect, lambda: self.lake.run(act, token=token).result, token)

    def _token(self) -> str:
        return f"{self.number}-{self.random.getrandbits(60)}"

    def _load(self) -> None:
        """Files, by the tasks of a job."""
        name = self.random.choice(TABLES)
        rows = self._fresh(name, self.random.randrange(1, 2 * BLOCK_ROWS))
        self._from_file("load", name, rows, "append")

    def _upsert(self) -> None:
        """Of rows that are there and of new ones: by statement, or as a load of a file."""
        name = self.random.choice([name for name in TABLES if KEYS[name]])
        there = self.random.sample(sorted(self.state[name]), min(len(self.state[name]), self.random.randrange(20)))
        rows = self._fresh(name, self.random.randrange(1, 20)) | {k: self.random.randrange(1000) for k in there}
        if self.random.random() < 0.5:
            self._from_file("load upsert", name, rows, "upsert")
            return
        data, token = [row(self.number, key, value) for key, value in rows.items()], self._token()
        self._do("upsert", {name: rows}, lambda: self.lake.table(name).upsert(data, token=token), token)

    def _from_file(self, kind: str, name: str, rows: dict[int, int], mode: str) -> None:
        path, token = f"{self.request.log}.{self.number}.parquet", self._token()
        pq.write_table(pa.Table.from_pylist([row(self.number, k, v) for k, v in rows.items()], SCHEMA), path)
        pipeline = self.lake.pipeline(runner="threads")
        self._do(kind, {name: rows}, lambda: pipeline.load(path, name, mode, token=token), token)

    def _alter(self) -> None:
        """Add a column of this lane's own, or drop, rename or widen one."""
        name, mine = self.random.choice(TABLES), self.state["columns"]
        there = sorted(column for column in mine if column.startswith(f"{name}."))
        free = [letter for letter in "pqr" if not any(column.endswith(letter) for column in there)]
        table, kind = self.lake.table(name), self.random.choice(("add", "drop", "rename", "widen"))
        if not there or (kind == "add" and free):
            default, type = self.random.randrange(100), self.random.choice(WIDTHS[:3])
            new = f"x{self.number}_{default}_{self.random.choice(free)}"
            effect: dict[str, Any] = {f"{name}.{new}": type}
            self._do("add column", {"columns": effect}, lambda: table.add_column(new, pa.type_for_alias(type), default))
            return
        column = self.random.choice(there)
        old, type = column.partition(".")[2], mine[column]
        if kind == "widen" and type != WIDTHS[-1]:
            wider = self.random.choice(WIDTHS[WIDTHS.index(type) + 1 :])
            self._do(
                "widen column", {"columns": {column: wider}}, lambda: table.widen_column(old, pa.type_for_alias(wider))
            )
        elif kind == "rename" and free:
            new = old[:-1] + self.random.choice(free)
            effect = {column: None, f"{name}.{new}": type}
            self._do("rename column", {"columns": effect}, lambda: table.rename_column(old, new))
        else:
            self._do("drop column", {"columns": {column: None}}, lambda: table.drop_column(old))

    def _define(self) -> None:
        mine = self.state["tables"]
        if len(mine) < 2:
            name = f"main.x_{self.number}_{self.random.getrandbits(40)}"
            self._do(
                "create",
                {"tables": {name: 1}},
                lambda: self.lake.create_table(name, SCHEMA, primary_key="id"),
            )
        else:
            name = self.random.choice(sorted(mine))
            self._do("drop", {"tables": {name: None}}, lambda: self.lake.drop_table(name))

    def _job(self, act: Callable[[Pipeline, str], object]) -> None:
        with contextlib.suppress(JobBusy, LeaseLost):
            act(self.lake.pipeline(runner="threads"), self.random.choice(TABLES))

    def _dump(self) -> None:
        self._job(lambda p, table: p.dump(table))

    def _expire(self) -> None:
        self._job(lambda p, table: p.expire(table))

    def _compact(self) -> None:
        self._job(lambda p, table: p.compact(table))

    def _cluster(self) -> None:
        with contextlib.suppress(il.SchemaError):  # a table may be clustered
            self._job(lambda p, table: p.compact(table, cluster_by=["value"]))

    def _reshape(self) -> None:
        """Merge the clustered table, or give it a bound more, also where there is no row."""
        at = self._present(CLUSTERED) or self.random.getrandbits(44) * 16
        with contextlib.suppress(il.SchemaError):  # it may be a heap at the moment
            if self.random.random() < 0.5:
                self._job(lambda p, _: p.split(CLUSTERED, at=at))
            else:
                self._job(lambda p, _: p.merge(CLUSTERED))

    def _convert(self) -> None:
        """The other layout for a table, which has the same rows in either."""
        layout = self.random.choice(("heap", "clustered"))
        with contextlib.suppress(il.SchemaError):  # of a table without a primary key
            self._job(lambda p, table: self.lake.cluster_table(table, layout))

    def _freeze(self) -> None:
        self._job(lambda p, table: p.freeze(table))

    def _thaw(self) -> None:
        self._job(lambda p, table: p.thaw(table))

    def _build(self) -> None:
        self._job(lambda p, table: p.build_index(table))

    def _fold(self) -> None:
        self._job(lambda p, table: p.merge_index(table))

    def _index(self) -> None:
        """Create an index or drop it; another lane may do the same at the same time."""
        table, name = self.lake.table(self.random.choice(TABLES)), self.random.choice(list(INDEXES))
        if any(info.name == name for info in table.indexes()) and self.random.random() < 0.6:
            table.drop_index(name, missing_ok=True)
        else:
            with contextlib.suppress(il.NotFoundError, il.ConflictError, LeaseLost):  # the other lane has dropped it
                table.create_index(name, **INDEXES[name])

    def _vacuum(self) -> None:
        self._job(lambda p, table: p.vacuum(dry_run=False, grace=timedelta(0)))


def write(log: int, line: dict[str, Any]) -> None:
    os.write(log, json.dumps(line).encode() + b"\n")


def main(request: Request) -> None:
    """Work until killed, or until the time is up."""
    log = os.open(request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if request.faults:
            faults.install(faults.from_text(request.faults))
        lake = request.connect(automatic=True)
        make_tables(lake, request)
        load_job.FEW_BYTES = 1  # files are worth tasks, small as they are
        merge_index.FOLD = 2
        states = read_lanes(lake, lake.snapshot_id)  # other processes may be writing already
        numbers = range(request.first_lane, request.first_lane + request.lanes)
        lanes = [Lane(lake, request, n, log, states.get(n, nothing())) for n in numbers]
        if "expire" in request.weights:
            clock_of(lake).advance(days=8)
        write(log, {"ready": os.getpid()})
        threads = [threading.Thread(target=lane.run) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lake.close()
        write(log, {"ended": True})
    except BaseException:
        write(log, {"error": traceback.format_exc()})
        os._exit(1)
