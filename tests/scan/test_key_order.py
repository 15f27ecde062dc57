"""Clustered tables in key order: as their blocks lie, without a sort."""

from __future__ import annotations

import random
import tracemalloc
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.partitions.merging import Merge
from indexlake.scan import order, sorted_runs
from indexlake.scan.sorted_runs import SortedRuns
from indexlake.schema import ROW_ID

Row = dict[str, Any]
Order = list[tuple[str, str]]

TINY = il.TableConfig(
    block_row_count=60, direct_write_row_count=30, partition_row_count=80, merge_ratio=0.5, inline_row_count_limit=50
)

KEYS: dict[str, tuple[dict[str, Any], Callable[[random.Random], tuple[Any, ...]]]] = {
    "int": ({"id": pa.int64()}, lambda r: (r.randrange(-300, 300),)),
    "unsigned": ({"id": pa.uint64()}, lambda r: (r.choice((0, 2**64 - 1, r.randrange(2**64), r.randrange(200))),)),
    "string": ({"id": pa.string()}, lambda r: ("".join(r.choices("aäb\x00z", k=r.randrange(6))),)),
    "view": ({"id": pa.string_view()}, lambda r: (f"{'long ' * r.randrange(4)}{r.randrange(300)}",)),
    "uuid": ({"id": pa.uuid()}, lambda r: (uuid.UUID(int=r.choice((r.getrandbits(128), r.randrange(400)))),)),
    "decimal": ({"id": pa.decimal128(20, 3)}, lambda r: (Decimal(r.randrange(-9999, 9999)).scaleb(-3),)),
    "timestamp": (
        {"id": pa.timestamp("us", "UTC")},
        lambda r: (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=r.randrange(-500, 500)),),
    ),
    "composite": (
        {"a": pa.int32(), "b": pa.string(), "c": pa.date32()},
        lambda r: (
            r.randrange(-2, 3),
            "".join(r.choices("\x00aö", k=r.randrange(3))),
            datetime(2020, 1, 1).date() + timedelta(days=r.randrange(30)),
        ),
    ),
    "bytes and int": ({"a": pa.binary(), "b": pa.int64()}, lambda r: (r.randbytes(r.randrange(3)), r.randrange(-9, 9))),
}


def place(value: Any) -> Any:
    """By what the order of a value is decided."""
    return value.encode() if isinstance(value, str) else value.bytes if isinstance(value, uuid.UUID) else value


def plainly_sorted(rows: list[Row], by: Order) -> list[Row]:
    """By Python's own sort."""
    found = list(rows)
    for column, direction in reversed(by):
        found.sort(key=lambda row: place(row[column]), reverse=direction == "desc")
    return found


class Trial:
    """A clustered table, and the rows it should have at every snapshot that was noted."""

    def __init__(self, lake: il.Lake, kind: str, seed: int) -> None:
        types, self._key = KEYS[kind]
        self.chance = random.Random(f"{kind} {seed}")
        self.names = list(types)
        schema = pa.schema([*types.items(), ("v", pa.int64()), ("t", pa.string())])
        self.lake = lake
        self.table = lake.create_table("t", schema, primary_key=self.names, layout="clustered", config=TINY)
        self.schema = schema
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.past: list[tuple[int, list[Row]]] = []

    def new(self, count: int) -> list[Row]:
        keys = {self._key(self.chance) for _ in range(count)}
        return [
            {**dict(zip(self.names, key, strict=True)), "v": self.chance.randrange(100), "t": f"t{len(self.rows)}"}
            for key in sorted(keys, key=repr)
        ]

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.names)

    def step(self, t: Any) -> None:
        """Change some rows of the table, or of a transaction's."""
        what = self.chance.choice(("insert", "direct", "update", "delete", "upsert"))
        if what in ("insert", "direct", "upsert"):
            rows = self.new(50 if what == "direct" else 8)
            if what != "upsert":
                rows = [row for row in rows if self.key(row) not in self.rows]
            if rows:
                given = pa.Table.from_pylist(rows, self.schema)
                t.upsert(given) if what == "upsert" else t.insert(given)
            self.rows |= {self.key(row): row for row in rows}
        elif what == "update":
            v = self.chance.randrange(100)
            t.update({"t": "new"}, "v between $v and $v + 20", params={"v": v})
            for row in self.rows.values():
                row.update({"t": "new"} if v <= row["v"] <= v + 20 else {})
        else:
            v = self.chance.randrange(100)
            t.delete("v between $v and $v + 5", params={"v": v})
            self.rows = {key: row for key, row in self.rows.items() if not v <= row["v"] <= v + 5}

    def job(self) -> None:
        p = self.lake.pipeline()
        self.chance.choice((p.dump, p.merge, p.split, p.merge_index, p.freeze, p.thaw, p.run))("t")

    def now(self) -> list[Row]:
        return [dict(row) for row in self.rows.values()]

    def note(self) -> None:
        self.past.append((self.lake.snapshot_id, self.now()))

    def check(self, t: Any, rows: list[Row]) -> None:
        """Every kind of ordered scan, against Python's sort."""
        width = self.chance.randrange(1, len(self.names) + 1)
        for direction in ("asc", "desc"):
            by = [(name, direction) for name in self.names]
            expected = plainly_sorted(rows, by)
            scan = t.scan(order_by=by)
            assert "in block order, no sort" in str(scan.explain())
            assert scan.to_pylist() == expected
            most, start = self.chance.randrange(1, 40), self.chance.randrange(30)
            assert t.scan(order_by=by, limit=most, offset=start).to_pylist() == expected[start : start + most]
            some = t.scan("v < 50", order_by=by[:width], columns=["v"], limit=most)
            assert "no sort" in str(some.explain())
            assert some.to_pylist() == [{"v": row["v"]} for row in expected if row["v"] < 50][:most]
            if rows:
                self.check_ranges(t, expected, by)

    def check_ranges(self, t: Any, expected: list[Row], by: Order) -> None:
        low, high = self.chance.choice(expected), self.chance.choice(expected)
        first = self.names[0]
        where = f"{first} between $low and $high"
        params = {"low": low[first], "high": high[first]}
        bounds = place(low[first]), place(high[first])
        wanted = [row for row in expected if bounds[0] <= place(row[first]) <= bounds[1]]
        assert t.scan(where, params=params, order_by=by).to_pylist() == wanted
        if len(self.names) > 1:
            second = self.names[1]
            params = {"a": low[first], "b": low[second]}
            where = f"{first} = $a and {second} >= $b"
            wanted = [r for r in expected if r[first] == low[first] and place(r[second]) >= place(low[second])]
            scan = t.scan(where, params=params, order_by=[(name, d) for name, d in by[1:]])
            assert "no sort" in str(scan.explain())
            assert scan.to_pylist() == wanted


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(2))
def test_any_history_reads_in_key_order_at_every_snapshot(lake: il.Lake, kind: str, seed: int) -> None:
    trial = Trial(lake, kind, seed)
    for _ in range(10):
        trial.step(trial.table)
        if trial.chance.random() < 0.6:
            trial.job()
        trial.note()
        trial.check(trial.table, trial.now())
    for snapshot, rows in trial.chance.sample(trial.past, 5):
        trial.check(trial.table.at(snapshot), rows)
    with lake.transaction() as tx:
        t = tx.table("t")
        for _ in range(4):
            trial.step(t)
            trial.check(t, trial.now())
    trial.check(trial.table, trial.now())


@pytest.mark.parametrize("kind", ["int", "composite"])
def test_the_order_is_that_of_the_sorting_path(lake: il.Lake, kind: str) -> None:
    trial = Trial(lake, kind, 9)
    for _ in range(8):
        trial.step(trial.table)
        trial.job()
    heap = lake.create_table("heap", trial.schema, primary_key=trial.names)
    heap.insert(trial.table.scan().to_arrow())
    for direction in ("asc", "desc"):
        by = [(name, direction) for name in trial.names]
        assert "sorted" in str(heap.scan(order_by=by).explain())
        assert trial.table.scan(order_by=by).to_arrow() == heap.scan(order_by=by).to_arrow()


def test_floats_have_nan_last_and_one_zero(lake: il.Lake) -> None:
    schema = pa.schema([("f", pa.float64()), ("n", pa.int64())])
    t = lake.create_table("t", schema, primary_key=["f", "n"], layout="clustered", config=TINY)
    values = [float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 1.5, -1.5]
    rows = [{"f": values[n % 7], "n": n} for n in range(70)]
    random.Random(1).shuffle(rows)
    for start in range(0, 70, 35):
        t.insert(pa.Table.from_pylist(rows[start : start + 35], schema))
    t.insert([{"f": float("nan"), "n": 100}, {"f": -0.0, "n": 101}])
    found = t.scan(order_by=["f", "n"])
    assert "no sort" in str(found.explain())
    groups = [float("-inf"), -1.5, 0.0, 1.5, float("inf"), None]
    places = [(groups.index(None if r["f"] != r["f"] else r["f"]), r["n"]) for r in found]
    assert places == sorted(places)
    assert len(places) == 72
    assert [r["n"] for r in t.scan(order_by=[("f", "desc"), ("n", "desc")])] == [n for _, n in reversed(places)]


def orders(lake: il.Lake, rows: int = 1000, **config: Any) -> il.Table:
    settings = il.TableConfig(**{"direct_write_row_count": 10, "partition_row_count": 200, **config})
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    t = lake.create_table("t", schema, primary_key="id", layout="clustered", config=settings)
    t.insert(pa.table({"id": range(rows), "v": [n * 7919 % 1009 for n in range(rows)]}, schema=schema))
    return t


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("id", "id asc: in block order, no sort"),
        (("id", "desc"), "id desc: in block order, no sort"),
        (["id", "v"], "id asc: in block order, no sort"),
        ("v", "v asc: sorted"),
        (["v", "id"], "v asc, id asc: sorted"),
        (ROW_ID, f"{ROW_ID} asc: sorted"),
    ],
)
def test_explain_says_where_the_order_comes_from(lake: il.Lake, by: Any, text: str) -> None:
    assert orders(lake).scan(order_by=by).explain().order == text


def test_explain_names_what_is_sorted_first(lake: il.Lake) -> None:
    t = orders(lake)
    t.insert([{"id": -n, "v": 0} for n in range(1, 4)])
    assert t.scan(order_by="id").explain().order == "id asc: in block order, no sort except of 3 hot rows, merged in"
    assert t.scan().explain().order is None


def test_mixed_directions_are_sorted(lake: il.Lake) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    t = lake.create_table("t", schema, primary_key=["a", "b"], layout="clustered", config=TINY)
    t.insert(pa.table({"a": [n % 3 for n in range(60)], "b": range(60)}, schema=schema))
    by = [("a", "asc"), ("b", "desc")]
    assert t.scan(order_by=by).explain().order == "a asc, b desc: sorted"
    assert t.scan(order_by=by).to_pylist() == plainly_sorted(t.scan().to_pylist(), by)
    assert t.scan("a = 1", order_by=by).explain().order == "a desc, b desc: in block order, no sort"
    assert t.scan("a = 1", order_by=by).to_pylist() == plainly_sorted(t.scan("a = 1").to_pylist(), by)


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_a_limit_opens_only_the_blocks_it_needs(lake: il.Lake, direction: str) -> None:
    t = orders(lake)
    for bound in (200, 400, 600, 800):
        lake.pipeline().split("t", at=bound)
    assert len(t.scan(order_by="id").explain().tasks) == 5
    lake._files.clear()
    ids = [row["id"] for row in t.scan(order_by=("id", direction), limit=150)]
    assert ids == (list(range(150)) if direction == "asc" else list(range(999, 849, -1)))
    paths = [block.path for block in lake._readings.latest(t._table_id).blocks.records if block.end_snapshot is None]
    assert sum(lake._files.open_reader(path) is not None for path in paths) == 1


def test_a_scan_for_update_locks_what_it_gave(lake: il.Lake) -> None:
    orders(lake)
    with lake.transaction() as tx:
        given = tx.table("t").scan(order_by=("id", "desc"), limit=2, for_update=True).to_pylist()
        assert [row["id"] for row in given] == [999, 998]
        lake.table("t").update({"v": 1}, "id = 5")
        tx.table("t").update({"v": 3}, "id = 6")
    tx = lake.transaction()
    tx.table("t").scan(order_by=("id", "desc"), limit=2, for_update=True).to_pylist()
    lake.table("t").update({"v": 2}, "id = 998")
    tx.table("t").update({"v": 4}, "id = 6")
    with pytest.raises(il.ConflictError):
        tx.commit()


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_no_block_is_sorted_and_memory_holds_a_few_batches(
    lake: il.Lake, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 1_000_000
    t = orders(lake, rows, partition_row_count=250_000)
    t.update({"v": -1}, "id % 100 = 7")
    lake.pipeline().dump("t")
    assert len(t.scan().explain().tasks) == 5
    sorts: list[int] = []
    monkeypatch.setattr(order, "sort_indices", lambda *_: sorts.append(1))
    base, peak = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    try:
        seen, before = 0, None
        for batch in t.scan(order_by=("id", direction)).to_batches():
            ids = batch.column("id").to_numpy()
            ids = ids if direction == "asc" else ids[::-1]
            assert (ids[1:] > ids[:-1]).all()
            edge, following = (ids[0], ids[-1]) if direction == "asc" else (ids[-1], ids[0])
            assert before is None or (edge > before if direction == "asc" else edge < before)
            seen, before = seen + batch.num_rows, following
            peak = max(peak, pa.total_allocated_bytes() - base)
        python_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == rows
    assert not sorts
    chunk = 65_536 * 16
    assert peak < 12 * chunk < rows * 16, "all rows take 16 MB"
    assert python_peak < 12 * chunk


def test_many_hot_rows_are_sorted_in_a_temporary_file(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    t = orders(lake, 2000, direct_write_row_count=10_000)
    lake.pipeline().dump("t")
    t.update({"v": 0}, "id % 2 = 0")
    monkeypatch.setattr(sorted_runs, "RUN_BYTES", 2_000)
    runs: list[int] = []
    end_run = SortedRuns._end_run
    monkeypatch.setattr(SortedRuns, "_end_run", lambda self: (runs.append(1), end_run(self))[1])
    assert [row["id"] for row in t.scan(order_by="id")] == list(range(2000))
    assert [row["id"] for row in t.scan(order_by=("id", "desc"))] == list(range(1999, -1, -1))
    assert runs


def test_a_stream_that_is_left_early_ends_its_threads(lake: il.Lake) -> None:
    from indexlake.scan.prefetch import _reading

    t = orders(lake, 200_000, partition_row_count=20_000)
    before = len(_reading)
    stream = t.scan(order_by="id").to_batches()
    assert next(stream).column("id")[0].as_py() == 0
    stream.close()  # type: ignore[attr-defined]
    from time import monotonic, sleep

    deadline = monotonic() + 5
    while len(_reading) > before and monotonic() < deadline:
        sleep(0.01)
    assert len(_reading) == before
    assert lake._pins is not None


def test_sources_that_do_not_overlap_are_passed_on_one_after_the_other() -> None:
    """The batches are the very ones that were read: nothing is copied, and no key is made."""
    from indexlake.partitions.merging import Stream

    batches = [pa.RecordBatch.from_pydict({"k": list(range(n, n + 10))}) for n in (0, 10, 20)]
    sources = [Stream(iter([batch])) for batch in batches]
    for n, source in enumerate(sources):
        source.first, source.last = bytes([n * 10]), bytes([n * 10 + 9])

    def no_keys(_: pa.RecordBatch) -> Any:
        raise AssertionError("a key was made")

    assert [part.rows for part in Merge(reversed(sources), no_keys)] == batches


def test_sql_takes_the_order_of_the_key_from_the_scan(lake: il.Lake) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    t = lake.create_table("t", schema, primary_key=["a", "b"], layout="clustered", config=TINY)
    rows = [{"a": n * 7 % 20, "b": f"b{n}", "v": n} for n in range(200)]
    for start in range(0, 200, 40):
        t.insert(pa.Table.from_pylist(rows[start : start + 40], schema))
    t.insert({"a": 3, "b": "hot", "v": -1})
    rows.append({"a": 3, "b": "hot", "v": -1})
    for query, by, where in (
        ("select v from t order by a, b", [("a", "asc"), ("b", "asc")], lambda r: True),
        ("select v from t order by a desc, b desc", [("a", "desc"), ("b", "desc")], lambda r: True),
        ("select v as w from t where v > 20 order by t.a, b", [("a", "asc"), ("b", "asc")], lambda r: r["v"] > 20),
        ("select v from t where a = 3 order by b desc", [("b", "desc")], lambda r: r["a"] == 3),
    ):
        answer = [next(iter(row.values())) for row in lake.sql(query)]
        assert answer == [row["v"] for row in plainly_sorted(rows, by) if where(row)]
        assert "answered by the scan alone" in str(lake.sql("explain " + query).to_pylist())
    for query in (
        "select v from t order by v",
        "select v from t order by a, b desc",
        "select a + 1 as a from t order by a",
    ):
        assert "answered by the scan alone" not in str(lake.sql("explain " + query).to_pylist())
    assert [r["a"] for r in lake.sql("select a from t order by a, b limit 3 offset 2")] == [0, 0, 0]


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_blocks_from_before_the_table_was_clustered_are_sorted_and_merged_in(lake: il.Lake, direction: str) -> None:
    config = il.TableConfig(direct_write_row_count=10, partition_row_count=100)
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    t = lake.create_table("t", schema, primary_key="id", config=config)
    ids = random.Random(1).sample(range(500), 500)
    t.insert(pa.table({"id": ids, "v": ids}))
    before = lake.snapshot_id
    lake.cluster_table("t")
    t = lake.table("t")
    t.delete("id < 100")
    for view, expected in ((t, range(100, 500)), (t.at(before), range(500))):
        scan = view.scan(order_by=("id", direction))
        assert scan.explain().order.startswith(f"id {direction}: in block order, no sort")
        assert [row["id"] for row in scan] == sorted(expected, reverse=direction == "desc")
    assert scan.explain().order.endswith("except of 1 block, merged in")
