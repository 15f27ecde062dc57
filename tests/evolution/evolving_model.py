"""A table that is altered at random, beside a model of it in plain Python: every retained snapshot must agree.

The model holds rows as dicts of what a reader would see; an alteration changes all of them at once, and all that the
change feed would show.  Scans, keys, SQL and the feed are compared.  Two handles to the lake take turns, so that each
meets alterations that its cache does not know.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.lakes import clock_of

WIDER: dict[Any, list[Any]] = {
    pa.int8(): [pa.int16(), pa.int32(), pa.float32()],
    pa.int16(): [pa.int32(), pa.int64(), pa.decimal128(9, 2)],
    pa.int32(): [pa.int64(), pa.float64(), pa.decimal128(12, 1)],
    pa.int64(): [pa.decimal128(22, 0), pa.decimal256(40, 3)],
    pa.float32(): [pa.float64()],
    pa.string(): [pa.large_string()],
    pa.dictionary(pa.int8(), pa.string()): [pa.string()],
}
POINT = pa.struct([pa.field("x", pa.int8()), pa.field("y", pa.string())])
LEAVES = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.string(),
    pa.dictionary(pa.int8(), pa.string()),
]
TYPES = [*LEAVES, POINT, pa.list_(POINT)]
COMPARED = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
)


@dataclass
class Picture:
    name: str
    schema: pa.Schema
    rows: dict[int, dict[str, Any]]


@dataclass
class Model:
    name: str
    columns: dict[str, pa.Field]  # by name, in order
    defaults: dict[str, Any]
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)  # rows that the step under way has inserted or updated
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)  # the rows before that step
    feed: list[tuple[int, str, int, dict[str, Any]]] = field(default_factory=list)  # snapshot, change, id, row

    def images(self) -> Iterator[dict[str, Any]]:
        """Every row that the model knows, present and past: an alteration changes how all of them are shown."""
        yield from self.rows.values()
        yield from self.seen.values()
        yield from (row for *_, row in self.feed)

    def write(self, number: int, row: dict[str, Any]) -> None:
        self.rows[number] = row
        self.written.add(number)

    def committed(self, snapshot: int) -> None:
        """What the step did becomes part of the feed."""
        for n, row in self.seen.items():
            if n not in self.rows:
                self.feed.append((snapshot, "delete", n, row))
            elif n in self.written:
                self.feed.append((snapshot, "update_preimage", n, row))
        for n in sorted(self.written & self.rows.keys()):
            kind = "update_postimage" if n in self.seen else "insert"
            self.feed.append((snapshot, kind, n, deepcopy(self.rows[n])))
        self.seen, self.written = deepcopy(self.rows), set()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(self.columns.values()))

    def picture(self) -> Picture:
        return Picture(self.name, self.schema, deepcopy({k: self.rows[k] for k in sorted(self.rows)}))


class Evolution:
    """One random life of one table."""

    def __init__(self, seed: int, connect: Callable[[], il.Lake]) -> None:
        self.rng = random.Random(seed)
        self.connect = connect
        self.lakes = [connect(), connect()]
        config = il.TableConfig(
            dump_format=self.rng.choice(["vortex", "parquet", "ipc"]), direct_write_row_count=6, block_row_count=9
        )
        self.keyed = self.rng.random() < 0.7
        columns = [pa.field("id", pa.int64(), False), pa.field("a", pa.int32()), pa.field("p", POINT)]
        self.model = Model("main.t", {f.name: f for f in columns}, {})
        self.numbers = iter(range(10**6))
        self.names = iter(range(10**6))
        self.log: list[str] = []
        self.pictures: dict[int, Picture] = {}
        self.horizon = 0
        self.lakes[0].create_table("t", self.model.schema, primary_key="id" if self.keyed else None, config=config)
        self.remember()

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()

    def lake(self) -> il.Lake:
        return self.rng.choice(self.lakes)

    def table(self) -> il.Table:
        return self.lake().table(self.model.name)

    def remember(self) -> None:
        snapshot = self.lakes[0].snapshot_id
        self.model.committed(snapshot)
        self.pictures[snapshot] = self.model.picture()

    # ------------------------------------------------------------ values

    def value(self, type: pa.DataType, *, null: bool = True) -> Any:
        t, rng = pa.types, self.rng
        if null and rng.random() < 0.2:
            return None
        if t.is_integer(type):
            return rng.choice([0, 1, 2, -5, 100, 2 ** (type.bit_width - 1) - 1])
        if t.is_floating(type):
            return rng.choice([0.0, -1.5, 2.0, 100.0])
        if t.is_decimal(type):
            return Decimal(rng.choice([0, 1, 2, 100, 9_999_999]))
        if t.is_struct(type):
            return {type.field(n).name: self.value(type.field(n).type, null=type.field(n).nullable)
                    for n in range(type.num_fields)}  # fmt: skip
        if t.is_list(type):
            return [self.value(type.value_type) for _ in range(rng.randrange(3))]
        return rng.choice(["", "x", "y y", "ümlaut"])

    def row(self) -> dict[str, Any]:
        """A new row as it is given: columns that may be left out sometimes are."""
        given = {"id": next(self.numbers)}
        for name, f in self.columns_but_id():
            may_miss = f.nullable or self.model.defaults.get(name) is not None
            if not may_miss or self.rng.random() < 0.8:
                given[name] = self.value(f.type, null=f.nullable)
        return given

    def columns_but_id(self) -> list[tuple[str, pa.Field]]:
        return [(name, f) for name, f in self.model.columns.items() if name != self.key]

    @property
    def key(self) -> str:
        return next(iter(self.model.columns))

    def stored(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: deepcopy(given.get(name, self.model.defaults.get(name)) if name not in given else given[name])
                for name in self.model.columns}  # fmt: skip

    # ------------------------------------------------------------ changes of rows

    def insert(self) -> None:
        given = [self.row() for _ in range(self.rng.choice([1, 1, 2, 4, 8, 20]))]
        given = [{self.key if k == "id" else k: v for k, v in r.items()} for r in given]
        if self.rng.random() < 0.3:
            self.table().insert(dict(r) for r in given)
        else:
            self.table().insert(given)
        for r in given:
            self.model.write(r[self.key], self.stored(r))

    def some_ids(self) -> list[int]:
        known = sorted(self.model.rows)
        return self.rng.sample(known, min(len(known), self.rng.choice([1, 1, 3, 9]))) if known else []

    def update(self) -> None:
        ids = self.some_ids()
        name, f = self.rng.choice(self.columns_but_id())
        new = self.value(f.type, null=f.nullable)
        where = f"{quoted(self.key)} in $ids" if len(ids) != 1 else f"{quoted(self.key)} = $id"
        params = {"ids": ids} if len(ids) != 1 else {"id": ids[0]}
        if not ids:
            return
        assert self.table().update({name: new}, where=where, params=params).rows == len(ids)
        for n in ids:
            self.model.write(n, self.model.rows[n] | {name: deepcopy(new)})

    def update_by_value(self) -> None:
        found = self.predicate()
        if found is None:
            return
        where, params, holds = found
        name, f = self.rng.choice(self.columns_but_id())
        new = self.value(f.type, null=f.nullable)
        chosen = {n: r for n, r in self.model.rows.items() if holds(r)}
        assert self.table().update({name: new}, where=where, params=params).rows == len(chosen)
        for n, r in chosen.items():
            self.model.write(n, r | {name: deepcopy(new)})

    def delete(self) -> None:
        ids = self.some_ids()
        if self.rng.random() < 0.05:
            self.table().truncate()
            self.model.rows.clear()
        elif ids:
            assert self.table().delete(f"{quoted(self.key)} in $ids", {"ids": ids}).rows == len(ids)
            for n in ids:
                del self.model.rows[n]

    def predicate(
        self, schema: pa.Schema | None = None
    ) -> tuple[str, dict[str, Any], Callable[[dict[str, Any]], bool]] | None:
        """SQL, parameters, and the same in Python."""
        possible = [f for f in list(schema or self.model.schema)[1:] if any(kind(f.type) for kind in COMPARED)]
        if not possible:
            return None
        f = self.rng.choice(possible)
        name = f.name
        column = quoted(name)
        if self.rng.random() < 0.3:
            return f"{column} is null", {}, lambda r: r[name] is None
        value = self.value(f.type, null=False)
        if self.rng.random() < 0.5:
            return f"{column} = $v", {"v": value}, lambda r: r[name] == value
        return f"{column} > $v", {"v": value}, lambda r: r[name] is not None and r[name] > value

    # ------------------------------------------------------------ alterations

    def alter(self) -> None:
        changes = self.rng.choice([1, 1, 1, 2, 4])
        with self.table().alter() as a:
            for _ in range(changes):
                self.one_alteration(a)

    def one_alteration(self, a: Any) -> None:
        kind = self.rng.choice(["add", "add", "drop", "rename", "widen", "widen", "widen", "nested", "nested", "swap"])
        {"add": self.add, "drop": self.drop, "rename": self.rename, "widen": self.widen, "nested": self.nested,
         "swap": self.swap}[kind](a)  # fmt: skip

    def new_name(self) -> str:
        return self.rng.choice(["c{}", "C {}", 'q"{}', "d.{}"]).format(next(self.names))

    def add(self, a: Any) -> None:
        free = [n for n in ("a", "b", "p") if n not in {c.lower() for c in self.model.columns}]
        name = self.rng.choice([*free, self.new_name()])
        type = self.rng.choice(TYPES)
        nullable = self.rng.random() < 0.7
        default = self.value(type, null=nullable)
        a.add_column((name,), type, default=default, nullable=nullable)
        self.log.append(f"add {name} {type} {default!r}")
        self.model.columns[name] = pa.field(name, type, nullable)
        self.model.defaults[name] = default
        for r in self.model.images():
            r[name] = deepcopy(default)

    def drop(self, a: Any) -> None:
        if len(self.model.columns) < 3:
            return
        name, _ = self.rng.choice(self.columns_but_id())
        a.drop_column((name,))
        self.log.append(f"drop {name}")
        del self.model.columns[name]
        self.model.defaults.pop(name, None)
        for r in self.model.images():
            del r[name]

    def rename(self, a: Any) -> None:
        name, new = self.rng.choice([*self.model.columns]), self.new_name()
        a.rename_column((name,), new)
        self.renamed({name: new})

    def renamed(self, names: dict[str, str]) -> None:
        self.log.append(f"rename {names}")
        now = lambda n: names.get(n, n)  # noqa: E731
        self.model.columns = {now(n): f.with_name(now(n)) for n, f in self.model.columns.items()}
        self.model.defaults = {now(n): v for n, v in self.model.defaults.items()}
        for r in self.model.images():
            shown = {now(n): v for n, v in r.items()}
            r.clear()
            r.update(shown)

    def swap(self, a: Any) -> None:
        if len(self.model.columns) < 3 or a._alterations:
            return  # a name that was given in the same commit may mean another column
        (one, _), (other, _) = self.rng.sample(self.columns_but_id(), 2)
        a.rename_column((one,), other)
        a.rename_column((other,), one)
        self.renamed({one: other, other: one})

    def widen(self, a: Any) -> None:
        possible = [(n, f) for n, f in self.columns_but_id() if f.type in WIDER]
        if not possible:
            return
        name, f = self.rng.choice(possible)
        type = self.rng.choice(WIDER[f.type])
        a.widen_column((name,), type)
        self.log.append(f"widen {name} {type}")
        self.model.columns[name] = f.with_type(type)
        self.changed(name, lambda v: widened(v, type))

    def changed(self, name: str, change: Callable[[Any], Any]) -> None:
        for r in self.model.images():
            r[name] = change(r[name])
        if name in self.model.defaults:
            self.model.defaults[name] = change(self.model.defaults[name])

    def nested(self, a: Any) -> None:
        possible = [(n, f) for n, f in self.columns_but_id() if pa.types.is_nested(f.type)]
        if not possible:
            return
        name, f = self.rng.choice(possible)
        listed = pa.types.is_list(f.type)
        struct = f.type.value_type if listed else f.type
        path = (name, "element") if listed else (name,)
        fields = [struct.field(n) for n in range(struct.num_fields)]
        place = self.rng.randrange(len(fields))
        inner = fields[place]
        each: Callable[[dict[str, Any]], Any]
        if inner.type in WIDER and self.rng.random() < 0.5:
            type = self.rng.choice(WIDER[inner.type])
            a.widen_column((*path, inner.name), type)
            fields[place] = inner.with_type(type)
            each = lambda v: {k: widened(x, type) if k == inner.name else x for k, x in v.items()}  # noqa: E731
        elif len(fields) > 1 and self.rng.random() < 0.3:
            a.drop_column((*path, inner.name))
            del fields[place]
            each = lambda v: {k: x for k, x in v.items() if k != inner.name}  # noqa: E731
        elif self.rng.random() < 0.5:
            new = self.new_name()
            a.rename_column((*path, inner.name), new)
            fields[place] = inner.with_name(new)
            each = lambda v: {new if k == inner.name else k: x for k, x in v.items()}  # noqa: E731
        else:
            new, type = self.new_name(), self.rng.choice(LEAVES)
            default = self.value(type)
            a.add_column((*path, new), type, default=default)
            fields.append(pa.field(new, type))
            each = lambda v: v | {new: default}  # noqa: E731
        changed = pa.struct(fields)
        self.log.append(f"nested {path} {changed}")
        self.model.columns[name] = f.with_type(pa.list_(f.type.value_field.with_type(changed)) if listed else changed)

        def all_of(value: Any) -> Any:
            if value is None:
                return None
            return [None if v is None else each(v) for v in value] if listed else each(value)

        self.changed(name, all_of)

    def rename_table(self) -> None:
        name = self.rng.choice(["main.t", "main.u", "other.t"])
        self.table().rename(name)
        self.model.name = name

    def transaction_across_an_alteration(self) -> None:
        """Rows of a transaction that began before a column was added take its default."""
        one, other = self.rng.sample(self.lakes, 2)
        with one.transaction() as tx:
            given = [{self.key if k == "id" else k: v for k, v in self.row().items()}
                     for _ in range(self.rng.choice([1, 3, 8]))]  # fmt: skip
            tx.table(self.model.name).insert(given)
            rows = {r[self.key]: self.stored(r) for r in given}
            before = set(self.model.columns)
            seen = self.model.picture()
            seen.rows |= rows
            with other.table(self.model.name).alter() as a:
                self.add(a)
            self.remember()
            with self._explained():
                self.compare(tx.table(self.model.name), seen)
            (name,) = set(self.model.columns) - before
        for n, r in rows.items():
            self.model.write(n, r | {name: deepcopy(self.model.defaults[name])})

    # ------------------------------------------------------------ jobs

    def dump(self) -> None:
        self.lake().pipeline().dump(self.model.name)

    def compact(self) -> None:
        self.lake().pipeline().compact(self.model.name)

    def freeze(self) -> None:
        self.lake().pipeline().freeze(self.model.name)

    def thaw(self) -> None:
        self.lake().pipeline().thaw(self.model.name)

    def vacuum(self) -> None:
        self.lake().pipeline().vacuum(dry_run=False, grace=timedelta(0))

    def expire(self) -> None:
        lake = self.lake()
        times = dict(lake.catalog.query("select snapshot_id, committed_at from indexlake_snapshot"))
        limit = times[self.rng.choice(sorted(times))]
        clock_of(lake).stop(limit + 7 * 24 * 3600 * 1_000_000)
        (done,) = lake.pipeline().expire(self.model.name).values()
        self.horizon = max(self.horizon, done.horizon)
        self.pictures = {s: p for s, p in self.pictures.items() if s >= self.horizon}

    def reopen(self) -> None:
        number = self.rng.randrange(2)
        self.lakes[number].close()
        self.lakes[number] = self.connect()

    # ------------------------------------------------------------ running and checking

    def step(self) -> None:
        choices: list[tuple[float, Callable[[], None]]] = [
            (5, self.insert), (4, self.update), (2, self.update_by_value), (2, self.delete), (6, self.alter),
            (1, self.rename_table), (2, self.transaction_across_an_alteration), (3, self.dump), (1, self.compact),
            (1, self.freeze), (0.5, self.thaw), (0.5, self.vacuum), (2, self.expire), (1, self.reopen),
        ]  # fmt: skip
        weights, actions = zip(*choices, strict=True)
        action = self.rng.choices(actions, weights)[0]
        self.log.append(action.__name__)
        action()
        self.remember()
        self.check()

    def check(self) -> None:
        with self._explained():
            t = self.table()
            self.compare(t, self.model.picture())
            if self.rng.random() < 0.5:
                self.compare_feed(self.rng.choice(sorted(self.pictures)))
            for snapshot in self.rng.sample(sorted(self.pictures), min(2, len(self.pictures))):
                self.check_snapshot(snapshot)

    def check_all(self) -> None:
        with self._explained():
            for snapshot in self.pictures:
                self.check_snapshot(snapshot)

    def check_snapshot(self, snapshot: int) -> None:
        picture = self.pictures[snapshot]
        view = self.lake().at(snapshot).table(picture.name)
        assert view.name == picture.name
        self.compare(view, picture)
        assert self.table().at(snapshot).name == picture.name
        if self.rng.random() < 0.5:
            self.compare_sql(snapshot, picture)

    def compare_sql(self, snapshot: int, picture: Picture) -> None:
        """By DuckDB, which a window function makes necessary, and without it."""
        key, place = picture.schema.names[0], ".".join(map(quoted, picture.name.split(".")))
        where, params, holds = self.predicate(picture.schema) or ("true", {}, lambda r: True)
        extra = self.rng.choice(["", ", count(*) over () as found"])
        rows = self.lake().sql(f"select *{extra} from {place} where {where}", params, at=snapshot).to_pylist()
        wanted = {n: r for n, r in picture.rows.items() if holds(r)}
        if extra:
            assert all(r.pop("found") == len(rows) for r in rows)
        found = {r[key]: r for r in rows}
        assert len(found) == len(rows)
        assert {n: found[n] for n in sorted(found)} == wanted, (where, params)

    def compare_feed(self, since: int) -> None:
        """All changes since, as rows of the newest columns."""
        feed = self.table().changes(since)
        assert feed.schema.names[:-2] == self.model.schema.names
        found = {}
        for row in feed.to_pylist():
            named = row.pop("_snapshot_id"), row.pop("_change_type"), row[self.key]
            assert named not in found, "a change twice"
            found[named] = row
        wanted = {(s, kind, n): row for s, kind, n, row in self.model.feed if s > since}
        assert found.keys() == wanted.keys(), f"changes since {since}"
        assert found == wanted, f"changes since {since}"

    def compare(self, t: il.Table, picture: Picture) -> None:
        assert t.schema.equals(picture.schema), (t.schema, picture.schema)
        key = picture.schema.names[0]
        found = {r[key]: r for r in t.scan().to_pylist()}
        assert {k: found[k] for k in sorted(found)} == picture.rows
        if self.keyed:
            for n in self.rng.sample(sorted(picture.rows), min(3, len(picture.rows))):
                assert t.get(n) == t.get({key: n}) == picture.rows[n]
        chosen = self.predicate(picture.schema)
        if chosen is not None:
            where, params, holds = chosen
            wanted = {i for i, r in picture.rows.items() if holds(r)}
            assert {r[key] for r in t.scan(where, params=params).to_pylist()} == wanted, (where, params)
            assert t.scan(where, params=params).count() == len(wanted)

    @contextmanager
    def _explained(self) -> Any:
        try:
            yield
        except Exception as error:
            error.add_note("\n".join(self.log))
            raise


def widened(value: Any, type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_decimal(type):
        return Decimal(value)
    return float(value) if pa.types.is_floating(type) else value


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
