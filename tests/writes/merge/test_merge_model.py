"""Random merges and upserts against a few lines of Python that say what they mean.

Rows lie in Vortex blocks, Parquet blocks and the hot store; the statement runs by itself or in a transaction that has
written to the table before.  `INDEXLAKE_HYPOTHESIS=<examples>` runs a longer campaign.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indexlake as il

EXAMPLES = int((os.environ.get("INDEXLAKE_HYPOTHESIS") or "40").partition("x")[0])
SETTINGS = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
NAN = float("nan")

Row = dict[str, Any]
COLUMNS = ("k", "g", "v", "f")
TYPES = {"k": pa.int64(), "g": pa.string(), "v": pa.int32(), "f": pa.float64()}
KEYS: dict[str, tuple[str, ...]] = {"none": (), "k": ("k",), "g, k": ("g", "k")}
DEFAULTS = {"g": "d", "v": None, "f": 0.5}


def plain(value: Any) -> Any:
    """NaN equals itself."""
    return "NaN" if isinstance(value, float) and value != value else value


def multiset(rows: Sequence[Row]) -> Counter[Any]:
    return Counter(tuple(plain(row[c]) for c in COLUMNS) for row in rows)


def equal(a: Any, b: Any) -> bool:
    return a is not None and b is not None and plain(a) == plain(b)


def less(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a < b


@dataclass(frozen=True)
class Condition:
    text: str | None
    holds: Callable[[Row, Row], bool]

    def __repr__(self) -> str:
        return str(self.text)


@dataclass(frozen=True)
class Values:
    given: dict[str, Any] | None
    new: Callable[[Row, Row], Row]
    shown: str

    def __repr__(self) -> str:
        return self.shown


def plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


ON: list[tuple[Any, Callable[[Row, Row], bool]]] = [
    ("k", lambda t, s: equal(t["k"], s["k"])),
    (["k", "G"], lambda t, s: equal(t["k"], s["k"]) and equal(t["g"], s["g"])),
    ("g", lambda t, s: equal(t["g"], s["g"])),
    ("f", lambda t, s: equal(t["f"], s["f"])),
    ("t.k = s.k and t.v < s.v", lambda t, s: equal(t["k"], s["k"]) and less(t["v"], s["v"])),
    ("t.v = s.k and s.g is not null", lambda t, s: equal(t["v"], s["k"]) and s["g"] is not None),
    ("s.g = t.g and t.k = s.k", lambda t, s: equal(t["k"], s["k"]) and equal(t["g"], s["g"])),
]
MATCHED = [
    Condition(None, lambda t, s: True),
    Condition("s.v > 0", lambda t, s: less(0, s["v"])),
    Condition("t.v < s.v", lambda t, s: less(t["v"], s["v"])),
    Condition("t.g = 'a' or s.g is null", lambda t, s: t["g"] == "a" or s["g"] is None),
]
OF_SOURCE = [
    Condition(None, lambda t, s: True),
    Condition("v > 0", lambda t, s: less(0, s["v"])),
    Condition("s.k is not null and s.g <> 'a'", lambda t, s: s["k"] is not None and s["g"] not in (None, "a")),
]
OF_TABLE = [
    Condition(None, lambda t, s: True),
    Condition("t.v > 0", lambda t, s: less(0, t["v"])),
    Condition("g is null or f > 1", lambda t, s: t["g"] is None or plain(t["f"]) == "NaN" or less(1, t["f"])),
]
SETS = [
    Values(None, lambda t, s: t | s, "all"),
    Values({"v": il.expr("t.v + s.v")}, lambda t, s: t | {"v": plus(t["v"], s["v"])}, "v = t.v + s.v"),
    Values({"V": 5, "g": il.expr("s.g")}, lambda t, s: t | {"v": 5, "g": s["g"]}, "v = 5, g = s.g"),
    Values({"k": il.expr("s.v")}, lambda t, s: t | {"k": s["v"]}, "k = s.v"),
    Values({"f": None}, lambda t, s: t | {"f": None}, "f = null"),
]
INSERTS = [
    Values(None, lambda t, s: {"k": None, **DEFAULTS} | s, "all"),
    Values({"k": il.expr("s.k"), "v": 1}, lambda t, s: {**DEFAULTS, "k": s["k"], "v": 1}, "k = s.k, v = 1"),
    Values(
        {"k": il.expr("s.k + 1"), "g": "n"}, lambda t, s: {**DEFAULTS, "k": plus(s["k"], 1), "g": "n"}, "k = s.k + 1"
    ),
]
ALONE_SETS = [
    Values({"v": il.expr("v + 1")}, lambda t, s: t | {"v": plus(t["v"], 1)}, "v = v + 1"),
    Values({"g": "alone"}, lambda t, s: t | {"g": "alone"}, "g = 'alone'"),
]

rows = st.fixed_dictionaries(
    {
        "k": st.one_of(st.integers(0, 9), st.integers(0, 9), st.none()),
        "g": st.sampled_from(["a", "b", "c", None]),
        "v": st.one_of(st.integers(-3, 9), st.none()),
        "f": st.sampled_from([0.0, -0.0, 1.5, NAN, None]),
    }
)
clauses = st.lists(
    st.one_of(
        st.tuples(st.just("matched update"), st.sampled_from(SETS), st.sampled_from(MATCHED)),
        st.tuples(st.just("matched delete"), st.none(), st.sampled_from(MATCHED)),
        st.tuples(st.just("insert"), st.sampled_from(INSERTS), st.sampled_from(OF_SOURCE)),
        st.tuples(st.just("alone update"), st.sampled_from(ALONE_SETS), st.sampled_from(OF_TABLE)),
        st.tuples(st.just("alone delete"), st.none(), st.sampled_from(OF_TABLE)),
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class Outcome:
    rows: list[Row] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])
    errors: set[type[Exception]] = field(default_factory=set)


def key_of(row: Row, key: tuple[str, ...]) -> Any:
    return tuple(row[c] for c in key)


def check_keys(result: Outcome, key: tuple[str, ...]) -> Outcome:
    if key:
        keys = [key_of(row, key) for row in result.rows]
        if any(None in k for k in keys):
            result.errors.add(il.ConstraintError)
        if len(set(keys)) < len(keys):
            result.errors.add(il.DuplicateKeyError)
    return result


def model_merge(table: list[Row], source: list[Row], on: Any, given: Any, key: tuple[str, ...]) -> Outcome:
    """What a merge means."""
    result = Outcome()
    matched = [c for c in given if c[0].startswith("matched")]
    inserts = [c for c in given if c[0] == "insert"]
    alone = [c for c in given if c[0].startswith("alone")]
    for t in table:
        partners = [s for s in source if on(t, s)]
        acts = [act for s in partners if (act := first(matched, t, s))] if partners else [first(alone, t, {})]
        acts = [act for act in acts if act]
        if len(acts) > 1:
            result.errors.add(il.DuplicateKeyError)
        if not acts:
            result.rows.append(t)
        elif acts[0][0].endswith("update"):
            result.counts[1] += 1
            result.rows.append(acts[0][1])
        else:
            result.counts[2] += 1
    for s in source:
        if not any(on(t, s) for t in table) and (act := first(inserts, {}, s)):
            result.counts[0] += 1
            result.rows.append(act[1])
    return check_keys(result, key)


def first(given: Any, t: Row, s: Row) -> tuple[str, Row] | None:
    for kind, values, condition in given:
        if condition.holds(t, s):
            return kind, values.new(t, s) if values is not None else {}
    return None


def build(merge: Any, given: Any) -> Any:
    for kind, values, condition in given:
        if kind == "matched update":
            merge = merge.when_matched_update(values.given, condition.text)
        elif kind == "matched delete":
            merge = merge.when_matched_delete(condition.text)
        elif kind == "insert":
            merge = merge.when_not_matched_insert(values.given, condition.text)
        elif kind == "alone update":
            merge = merge.when_not_matched_by_source_update(values.given, condition.text)
        else:
            merge = merge.when_not_matched_by_source_delete(condition.text)
    return merge


def distinct(given: list[Row], key: tuple[str, ...]) -> list[Row]:
    """Rows that the table can hold."""
    if not key:
        return given
    kept = {key_of(row, key): row for row in given if None not in key_of(row, key)}
    return list(kept.values())


class Setting:
    """A table with the same rows as a list, which a statement changes in both."""

    def __init__(
        self, lake: il.Lake, key: tuple[str, ...], tiers: list[list[Row]], own: list[Row], direct: int
    ) -> None:
        schema = pa.schema([pa.field(c, TYPES[c]) for c in COLUMNS])
        config = il.TableConfig(direct_write_row_count=direct, block_row_count=4)
        self.lake, self.key = lake, key
        name = f"m.t{uuid.uuid4().hex[:12]}"
        defaults = {c: value for c, value in DEFAULTS.items() if value is not None}
        self.table = lake.create_table(name, schema, list(key) or None, config=config, defaults=defaults)
        together = distinct([{**row, "tier": n} for n, tier in enumerate(tiers) for row in tier], key)
        self.rows = [{c: row[c] for c in COLUMNS} for row in together]
        for n, format in enumerate(("vortex", "parquet", None)):
            if some := [{c: row[c] for c in COLUMNS} for row in together if row["tier"] == n]:
                self.table.insert(some)
                if format is not None:
                    self.table.set_config(dump_format=format)
                    lake.pipeline().dump(name)
        self.own = own

    def run(
        self, statement: Callable[[il.Table], il.WriteResult], expected: Callable[[list[Row]], Outcome], tx: bool
    ) -> None:
        if not tx:
            self.judge(lambda: statement(self.table), expected(self.rows), self.rows)
            return
        before = list(self.rows)
        transaction = self.lake.transaction()
        mine = transaction.table(self.table.name)
        mine.delete("v = 2")
        mine.update({"f": 9.0}, "v = 3")
        view = [row | ({"f": 9.0} if row["v"] == 3 else {}) for row in self.rows if row["v"] != 2]
        held = {key_of(row, self.key) for row in view}
        added = [row for row in distinct(self.own, self.key) if not self.key or key_of(row, self.key) not in held]
        if added:
            mine.insert(added)
        view += added
        outcome = expected(view)
        counted: list[Any] = []

        def execute() -> il.WriteResult:
            counted.append(statement(mine))
            assert multiset(mine.scan().to_pylist()) == multiset(outcome.rows)
            transaction.commit()
            return counted[0]

        self.judge(execute, outcome, before)

    def judge(self, execute: Callable[[], il.WriteResult], outcome: Outcome, before: list[Row]) -> None:
        try:
            result = execute()
        except tuple(outcome.errors):
            assert multiset(self.table.scan().to_pylist()) == multiset(before), "an error changes nothing"
            return
        assert not outcome.errors, f"it was not refused: {outcome.errors}"
        assert [result.inserted, result.updated, result.deleted] == outcome.counts
        assert result.rows == sum(outcome.counts)
        assert multiset(self.table.scan().to_pylist()) == multiset(outcome.rows)
        self.lake.pipeline().dump(self.table.name)
        assert multiset(self.table.scan().to_pylist()) == multiset(outcome.rows)
        if self.key:
            for row in outcome.rows[:3]:
                found = self.table.get(key_of(row, self.key) if len(self.key) > 1 else row[self.key[0]])
                assert found is not None
                assert multiset([found]) == multiset([row])


tiers = st.tuples(*[st.lists(rows, max_size=5)] * 3).map(list)
common = {
    "key": st.sampled_from(sorted(KEYS)),
    "tiers": tiers,
    "own": st.lists(rows, max_size=4),
    "direct": st.sampled_from([3, 100]),
    "tx": st.booleans(),
}


@SETTINGS
@given(
    source=st.lists(rows, max_size=6),
    on=st.sampled_from(ON),
    given_clauses=clauses,
    columns=st.sampled_from([COLUMNS, COLUMNS, ("g", "v", "k")]),
    stream=st.booleans(),
    **common,
)
def test_a_merge_does_what_it_means(
    module_lake: il.Lake, key: str, tiers: Any, own: Any, direct: int, tx: bool,
    source: list[Row], on: Any, given_clauses: Any, columns: tuple[str, ...], stream: bool,
) -> None:  # fmt: skip
    text, holds = on
    if text == "f":
        columns = COLUMNS
    source = [{c: row[c] for c in columns} for row in source]
    setting = Setting(module_lake, KEYS[key], tiers, own, direct)

    def statement(t: il.Table) -> il.WriteResult:
        data = pa.Table.from_pylist(source, schema=pa.schema([(c, TYPES[c]) for c in columns]))
        result: il.WriteResult = build(t.merge(data.to_reader(2) if stream else data, text), given_clauses).execute()
        return result

    setting.run(statement, lambda now: model_merge(now, source, holds, given_clauses, KEYS[key]), tx)


@SETTINGS
@given(
    source=st.lists(rows, max_size=6),
    columns=st.lists(st.lists(st.sampled_from(["v", "f", "g"]), unique=True), min_size=1, max_size=3),
    form=st.sampled_from(["dicts", "generator", "arrow"]),
    padding=st.sampled_from([0, 0, 70]),
    **common,
)
def test_an_upsert_does_what_it_means(
    module_lake: il.Lake, key: str, tiers: Any, own: Any, direct: int, tx: bool,
    source: list[Row], columns: list[list[str]], form: str, padding: int,
) -> None:  # fmt: skip
    names = KEYS[key] or ("k",)
    if form == "arrow":
        columns = columns[:1]
    given_rows = [
        {c: row[c] for c in dict.fromkeys([*names, *columns[n % len(columns)]])} for n, row in enumerate(source)
    ]
    given_rows += [{**dict.fromkeys(names, "p"), "k": 1000 + n} for n in range(padding if form != "arrow" else 0)]
    setting = Setting(module_lake, KEYS[key], tiers, own, direct)

    def statement(t: il.Table) -> il.WriteResult:
        if form != "arrow":
            return t.upsert(given_rows if form == "dicts" else iter(given_rows))
        shape = pa.schema([(c, TYPES[c]) for c in dict.fromkeys([*names, *columns[0]])])
        return t.upsert(pa.Table.from_pylist(given_rows, schema=shape))

    def expected(now: list[Row]) -> Outcome:
        result = Outcome(list(now))
        if not KEYS[key]:
            result.errors.add(il.SchemaError)
            return result
        wanted = [key_of(row, names) for row in given_rows]
        if any(None in k for k in wanted):
            result.errors.add(il.ConstraintError)
        if len(set(wanted)) < len(wanted):
            result.errors.add(il.DuplicateKeyError)
        for row in given_rows:
            place = next((n for n, t in enumerate(result.rows) if key_of(t, names) == key_of(row, names)), None)
            if place is None:
                result.rows.append({"k": None, **DEFAULTS} | row)
                result.counts[0] += 1
            else:
                result.rows[place] = result.rows[place] | row
                result.counts[1] += 1
        return result

    setting.run(statement, expected, tx)
