"""Random tables and predicates for the parity tests: many types, and the values that break naive code."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

NAN, INF = math.nan, math.inf
D = decimal.Decimal
UTC = dt.UTC


def ints(bits: int, signed: bool) -> list[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    pool = [0, 1, 2, 3, 5, 7, 100, low, low + 1, high, high - 1]
    pool += [-1, -2, -7] if signed else [high // 2, high // 2 + 1]
    if bits == 64:
        pool += [2**53, 2**53 + 1, 2**24 + 1, 10**18]
    return [value for value in pool if low <= value <= high]


FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, 2.0, 2.5, NAN, -NAN, INF, -INF, 0.1, 1e-300, 1e300, 2.0**53, 16777217.0, 3.0]
FLOATS32 = [0.0, -0.0, 1.0, -1.0, 1.5, 2.0, 2.5, NAN, INF, -INF, 0.1, 16777216.0, 3.4e38, 1e-40]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "aB",
    "abc",
    "b",
    "%",
    "_",
    "a%",
    "a_b",
    "a\nb",
    "a\0b",
    "é",
    "É",
    "ß",
    "İ",
    "😀",
    "'",
    "\\",
]
TEXTS += ["e\u0301", "👩‍👧x", "  a ", "ǅ", "ﬁ"]  # combining, joined, padded, titlecase, ligature
TEXTS += ["1", "01", "2.5", "-3", "x'y", "zzz", "a\\%c", "a%c"]
DAYS = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(2024, 1, 1), dt.date(1, 1, 1)]
DAYS += [dt.date(9999, 12, 31), dt.date(2020, 3, 1), dt.date(2000, 1, 31), dt.date(1900, 2, 28)]
MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(2020, 2, 29, 12, 30, 15, 123456),
    dt.datetime(2020, 2, 29),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2024, 1, 1, 0, 0, 0, 1),
    dt.datetime(2020, 3, 1, 0, 0, 0, 500000),
    dt.datetime(2023, 3, 31, 8, 30),
    dt.datetime(1883, 11, 18, 12, 3, 58),
]
SMALL = [
    D("0.00"),
    D("1.50"),
    D("-1.50"),
    D("2.00"),
    D("9999999.99"),
    D("-9999999.99"),
    D("0.01"),
    D("3.00"),
    D("0.10"),
]
MIDDLE = [
    D("0.0000"),
    D("1.5000"),
    D("99999999999999.9999"),
    D("-99999999999999.9999"),
    D("0.0001"),
    D("2.5000"),
    D("7.0000"),
]
LARGE = [D("0"), D("1.5"), D("-2.5"), D("12345678901234567890123456789012.123456"), D("9007199254740993"), D("3")]
TIMES = [dt.time(0, 0), dt.time(12, 30, 15, 5), dt.time(23, 59, 59, 999999)]
BYTES = [b"", b"a", b"ab", b"\0", b"\xff\xfe", b"b"]


def whole_seconds(moments: list[dt.datetime], unit: str) -> list[dt.datetime]:
    return [moment.replace(microsecond=0 if unit == "s" else moment.microsecond // 1000 * 1000) for moment in moments]


COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), ints(8, True)),
    "i16": (pa.int16(), ints(16, True)),
    "i32": (pa.int32(), ints(32, True)),
    "i64": (pa.int64(), ints(64, True)),
    "u8": (pa.uint8(), ints(8, False)),
    "u16": (pa.uint16(), ints(16, False)),
    "u32": (pa.uint32(), ints(32, False)),
    "u64": (pa.uint64(), ints(64, False)),
    "f32": (pa.float32(), FLOATS32),
    "f64": (pa.float64(), FLOATS),
    "m9": (pa.decimal128(9, 2), SMALL),
    "m18": (pa.decimal128(18, 4), MIDDLE),
    "m38": (pa.decimal128(38, 6), LARGE),
    "s": (pa.string(), TEXTS),
    "ls": (pa.large_string(), TEXTS),
    "sv": (pa.string_view(), TEXTS),
    "sd": (pa.dictionary(pa.int16(), pa.string()), TEXTS),
    "b": (pa.bool_(), [True, False]),
    "d": (pa.date32(), DAYS),
    "ts": (pa.timestamp("us"), MOMENTS),
    "tss": (pa.timestamp("s"), whole_seconds(MOMENTS, "s")),
    "tsm": (pa.timestamp("ms"), whole_seconds(MOMENTS, "ms")),
    "tsn": (pa.timestamp("ns"), [*MOMENTS, 1582979415123456789, -1]),
    "tz": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "tzp": (pa.timestamp("us", "Europe/Paris"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "t": (pa.time64("us"), TIMES),
    "bin": (pa.binary(), BYTES),
    "du": (pa.duration("us"), [dt.timedelta(0), dt.timedelta(days=1, hours=2), -dt.timedelta(seconds=5)]),
    "li": (pa.list_(pa.int64()), [[1, 2, 3], [], [None], [7, None, 7], [2**40]]),
    "lt": (pa.list_(pa.string()), [["a", "b"], [], [None, "é"], ["abc", "", "ß"]]),
    "st": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": -7, "b": None}, {"a": 2**40, "b": "é"}],
    ),
    "mp": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], [], [("é", 7)], [("a", -1)]]),
}
SCHEMA = pa.schema([(name, type) for name, (type, _) in COLUMNS.items()])


def table(seed: int, rows: int, columns: list[str] | None = None, nul: bool = True) -> pa.RecordBatch:
    """Rows of pool values and nulls; some columns are all null.  `nul`: whether text may hold NUL characters."""
    rng = random.Random(seed)
    names = columns or list(COLUMNS)
    arrays = []
    for name in names:
        type, pool = COLUMNS[name]
        if not nul and name in STRINGS:
            pool = [text for text in pool if "\0" not in text]
        nulls = rng.choice([0.0, 0.15, 0.15, 0.15, 1.0 if rows < 40 else 0.5])
        values = [None if rng.random() < nulls else rng.choice(pool) for _ in range(rows)]
        arrays.append(pa.array(values, type))
    return pa.RecordBatch.from_arrays(arrays, names)


INTS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
NUMBERS = [*INTS, "f32", "f64", "m9", "m18", "m38"]
STRINGS = ["s", "ls", "sv", "sd"]
MOMENT_COLUMNS = ["d", "ts", "tss", "tsm", "tsn", "tz", "tzp"]


# Calls by the family of their result.  {n} a number, {x} a double, {i} an integer, {k} a small integer constant,
# {s} text, {m} a date or timestamp, {l} a list, {t} a truth, {u} a unit of time.
def calls(text: str) -> list[str]:
    return [call.strip() for call in text.split(";") if call.strip()]


CALLS: dict[str, list[str]] = {
    "number": calls(
        """
        length({s}) ; strlen({s}) ; strpos({s}, {s}) ; ascii({s}) ; unicode({s}) ; abs({n}) ; round({n}) ;
        round({x}, {k}) ; round(m18, {k}) ; floor({n}) ; ceil({n}) ; trunc({n}) ; sqrt({n}) ;
        sqrt(abs({x})) ; power({n}, {k}) ; ln({x}) ; ln(abs({n}) + 1) ; log(abs({i})) ; log2({u8}) ;
        exp({n}) ; sign({n}) ; greatest({n}, {n}) ; least({n}, {n}, {n}) ; mod({n}, {n}) ; ({i} & {k}) ;
        ({i} | {i}) ; xor({i}, {k}) ; (~{i}) ; ({i} >> {k}) ; ({u8} << {k}) ; bit_count(i32) ; year({m}) ;
        month({m}) ; day({m}) ; hour({m}) ; minute({m}) ; second({m}) ; quarter({m}) ; week({m}) ;
        dayofweek({m}) ; isodow({m}) ; dayofyear({m}) ; date_diff('{u}', {m}, {m}) ;
        date_sub('{u}', {m}, {m}) ; epoch({m}) ; extract({u} from {m}) ; yearweek({m}) ; epoch_ms({m}) ;
        extract({u} from ({m} - {m})) ; extract(hour from du) ; hour(t) ; len({l}) ; li[{k}] ; st.a ;
        mp['a'] ; mp[{s}] ; list_position(li, {i}) ; if({t}, {n}, {n}) ; nullif({n}, {n}) ;
        ifnull({n}, {n}) ; cardinality(mp) ; (li || [{k}])[1] ; microsecond({m}) ; cbrt({x}) ;
        atan2({x}, {x}) ; st['a'] + {k} ;
        """
    ),
    "string": calls(
        """
        trim({s}) ; ltrim({s}, {s}) ; rtrim({s}, 'ac') ; trim({s}, 'a') ; substr({s}, {k}) ;
        substr({s}, {k}, {k}) ; left({s}, {k}) ; right({s}, {k}) ; replace({s}, {s}, {s}) ;
        replace({s}, 'a', 'é') ; concat({s}, {i}, {s}) ; concat_ws({s}, {s}, {s}) ; lpad({s}, {k}, 'xy') ;
        rpad({s}, 4, {s}) ; reverse({s}) ; repeat({s}, {k}) ; split_part({s}, {s}, {k}) ;
        split_part({s}, 'b', -1) ; regexp_replace({s}, '[a-c]', 'é', 'g') ; md5({s}) ;
        regexp_extract({s}, '(.)b', 1) ; translate({s}, 'ab', 'é') ; chr({u8}) ;
        strftime({m}, '%Y-%m %d') ; lt[{k}] ; st.b ; ({s})[{k}:{k}] ; array_to_string(lt, '-') ;
        greatest({s}, {s}) ; least({s}, {s}) ; monthname({m}) ; dayname({m}) ; if({t}, {s}, {s}) ;
        lcase({s}) ; (lt || ['z'])[{k}] ; cast(du as varchar) ;
        """
    ),
    "moment": calls(
        """
        date_trunc('{u}', {m}) ; ({m} + interval {p} {u}) ; ({m} - interval '{p} {u}') ;
        ({m} + to_months({k})) ; ({m} + du) ; last_day({m}) ; greatest({m}, {m}) ; least({m}, {m}) ;
        coalesce({m}, {m}) ; (d + {k}) ; make_date(2020, 2, {p}) ; time_bucket(interval '2 weeks', {m}) ;
        ({m} + ({m} - {m})) ; epoch_ms({i}) ; strptime(strftime({m}, '%Y-%m-%d'), '%Y-%m-%d') ;
        ({m} - interval (i8) day) ;
        """
    ),
    "truth": calls(
        """
        starts_with({s}, {s}) ; ends_with({s}, 'b') ; contains({s}, {s}) ; regexp_matches({s}, 'a.?b') ;
        ({s} ~ 'a.*') ; regexp_matches({s}, 'A', 'i') ; list_contains(li, {i}) ; ({i} in li) ;
        ({s} in lt) ; (li = [1, 2, 3]) ; (li < [2]) ; (li is distinct from [7, null, 7]) ;
        (st = {{'a': 1, 'b': 'x'}}) ; (mp['a'] is null) ; (mp = mp) ; isnan({x}) ;
        (({m} - {m}) > interval '{p} {u}') ; (du > interval '1 hour') ; (st.a is null) ; (st is not null) ;
        (age({m}, {m}) > interval '1 year') ; (interval '{p} {u}' = interval {p} {u}) ; ('a' in mp) ;
        (lt = ['a', 'b']) ; contains(lt, {s}) ; (lower({s}) = lower('AB')) ;
        ({m} >= date '2020-03-31' - interval {p} {u}) ; isfinite({x}) ;
        """
    ),
    "list": calls(
        """
        li ; lt ; li[{k}:{k}] ; lt[{k}:] ; [{i}, {k}] ; string_split({s}, 'b') ; (li || li) ;
        map_keys(mp) ;
        """
    ),
}
UNITS = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "decade", "century"]


@dataclass
class Predicate:
    """SQL text with the parameters it names."""

    text: str = ""
    params: dict[str, Any] = field(default_factory=dict)


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Generator:
    """Draws SQL text; every method returns text of one family of types."""

    def __init__(self, draw: Callable[[Any], Any], columns: list[str] | None = None, casts: bool = True) -> None:
        self.draw = draw
        self.params: dict[str, Any] = {}
        self.columns = set(columns or COLUMNS)
        self.casts = casts

    def pick(self, options: list[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def known(self, names: list[str]) -> list[str]:
        return [name for name in names if name in self.columns]

    def param(self, value: Any) -> str:
        name = f"p{len(self.params)}"
        self.params[name] = value
        return f"${name}"

    # -- constants -----------------------------------------------------------------------------------------

    def number_constant(self) -> str:
        kind = self.pick(["int", "int", "int", "decimal", "double", "param", "float_param", "decimal_param"])
        value = self.pick(
            [0, 1, 2, 3, 5, 7, 100, 127, 128, 300, 65535, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**64 - 1]
        )
        if kind == "int":
            return str(value) if self.pick([True, True, False]) else f"-{value}"
        if kind == "decimal":
            return self.pick(["1.5", "2.50", "0.1", "0.10", "-1.5", "3.0", "16777217.0", "0.0001", "99.999999"])
        if kind == "double":
            return self.pick(["1e0", "1.5e0", "0.1e0", "-0e0", "1e300", "2.5e0", "9007199254740993e0", "'nan'::double"])
        if kind == "param":
            return self.param(self.pick([0, 1, 2, -1, 127, 128, 2**31, 2**53 + 1, 2**63]))
        if kind == "float_param":
            return self.param(self.pick([0.0, -0.0, 1.5, 0.1, NAN, INF, -INF, 2.5, 3.0]))
        return self.param(self.pick([D("1.50"), D("0.1"), D("2"), D("-1.5")]))

    def string_constant(self) -> str:
        value = self.pick(TEXTS)
        if "\0" in value or self.pick([True, False]):
            return self.param(value)
        return quote(value)

    def moment_constant(self) -> str:
        moment = self.pick(MOMENTS)
        kind = self.pick(["text", "date text", "date", "timestamp", "tz", "ns", "param", "date param", "tz param"])
        if kind == "text":
            return quote(moment.isoformat(sep=" "))
        if kind == "date text":
            return quote(moment.date().isoformat())
        if kind == "date":
            return f"DATE '{moment.date().isoformat()}'"
        if kind == "timestamp":
            return f"TIMESTAMP '{moment.isoformat(sep=' ')}'"
        if kind == "tz":
            return f"TIMESTAMPTZ '{moment.isoformat(sep=' ')}+00:00'"
        if kind == "ns":
            return f"TIMESTAMP_NS '{moment.isoformat(sep=' ', timespec='microseconds')}789'"
        if kind == "param":
            return self.param(moment)
        return self.param(moment.date()) if kind == "date param" else self.param(moment.replace(tzinfo=UTC))

    # -- calls ---------------------------------------------------------------------------------------------

    def call(self, family: str, depth: int) -> str:
        """A call whose columns are all there."""
        usable = [text for text in CALLS[family] if self._usable(text)]
        text = self.pick(usable) if usable else "null"
        made = {
            "n": lambda: self.number(depth),
            "s": lambda: self.string(depth),
            "m": lambda: self.moment(depth),
            "t": lambda: self.truth(0),
            "x": lambda: self.pick([*self.known(["f64"]), "1.5e0", "'nan'::double"]),
            "i": lambda: self.pick([*self.known(["i8", "i32", "i64"]), "7", "-1"]),
            "p": lambda: self.pick("0123 29"),
            "k": lambda: self.pick(["0", "1", "2", "3", "-1", "-2", "5"]),
            "u": lambda: self.pick(UNITS),
            "u8": lambda: self.pick([*self.known(["u8"]), "3"]),
            "l": lambda: self.call("list", 0),
        }
        while found := re.search(r"(?<!\{)\{(\w+)\}(?!\})", text):
            text = text[: found.start()] + str(made[found.group(1)]()).strip() + text[found.end() :]
        return text.replace("{{", "{").replace("}}", "}")

    # -- values --------------------------------------------------------------------------------------------

    def number(self, depth: int) -> str:
        columns = self.known(NUMBERS)
        options = ["column", "column", "column", "constant"] + (
            ["arithmetic", "arithmetic", "negate", "case", "coalesce", *["call"] * 6] if depth > 0 else []
        )
        if depth > 0 and self.casts:
            options.append("cast")
        kind = self.pick(options)
        if kind == "column" and columns:
            return self.pick(columns)
        if kind == "arithmetic":
            op = self.pick(["+", "-", "*", "/", "//", "%"])
            return f"({self.number(depth - 1)} {op} {self.number(depth - 1)})"
        if kind == "negate":
            return f"(-{self.number(depth - 1)})"
        if kind == "cast":
            type = self.pick(
                [
                    *("tinyint", "smallint", "integer", "bigint", "utinyint", "uinteger", "ubigint", "hugeint"),
                    *("float", "double", "decimal(9,2)", "decimal(18,3)", "decimal(38,2)"),
                ]
            )
            word = self.pick(["cast", "cast", "try_cast"])
            return f"{word}({self.number(depth - 1)} as {type})"
        if kind == "case":
            return f"case when {self.truth(depth - 1)} then {self.number(depth - 1)} else {self.number(depth - 1)} end"
        if kind == "coalesce":
            return f"coalesce({self.number(depth - 1)}, {self.number(depth - 1)})"
        if kind == "call":
            return self.call("number", depth - 1)
        return self.number_constant()

    def string(self, depth: int) -> str:
        columns = self.known(STRINGS)
        options = ["column", "column", "column", "constant"] + (
            ["concat", "lower", "upper", "case", "coalesce", "nullif", *["call"] * 6] if depth > 0 else []
        )
        if depth > 0 and self.casts:
            options.append("cast")
        kind = self.pick(options)
        if kind == "column" and columns:
            return self.pick(columns)
        if kind == "call":
            return self.call("string", depth - 1)
        if kind == "concat":
            return f"({self.string(depth - 1)} || {self.string(depth - 1)})"
        if kind in ("lower", "upper"):
            return f"{kind}({self.string(depth - 1)})"
        if kind == "case":
            return f"case when {self.truth(depth - 1)} then {self.string(depth - 1)} else {self.string(depth - 1)} end"
        if kind == "coalesce":
            return f"coalesce({self.string(depth - 1)}, {self.string(depth - 1)})"
        if kind == "nullif":
            return f"nullif({self.string(depth - 1)}, {self.string(depth - 1)})"
        if kind == "cast":
            value = self.pick([self.number(depth - 1), self.moment(depth - 1)])
            return f"cast({value} as varchar)"
        return self.string_constant()

    def moment(self, depth: int) -> str:
        columns = self.known(MOMENT_COLUMNS)
        kind = self.pick(
            ["column", "column", "column", "constant"]
            + (["cast", "shift", "case", "call", "call"] if depth > 0 else [])
        )
        if kind == "column" and columns:
            return self.pick(columns)
        if kind == "call":
            return self.call("moment", depth - 1)
        if kind == "cast" and self.casts:
            type = self.pick(["date", "timestamp", "timestamptz", "timestamp_ns", "timestamp_s", "timestamp_ms"])
            return f"cast({self.moment(depth - 1)} as {type})"
        if kind == "shift" and "d" in self.columns:
            if self.pick([True, False]):
                return f"(d + {self.pick(['1', '-1', '365', 'i8'])})"
            step = self.param(self.pick([dt.timedelta(days=1), dt.timedelta(seconds=-5, microseconds=7)]))
            return f"({self.moment(depth - 1)} {self.pick(['+', '-'])} {step})"
        if kind == "case":
            return f"case when {self.truth(depth - 1)} then {self.moment(depth - 1)} else {self.moment(depth - 1)} end"
        return self.moment_constant()

    # -- predicates ----------------------------------------------------------------------------------------

    def truth(self, depth: int) -> str:
        kind = self.pick(
            ["compare"] * 6
            + ["in", "in", "between", "like", "null", "distinct", "column", "list", "mixed"]
            + (["and", "or", "not", "truth", "case", "call", "call"] * 2 if depth > 0 else [])
        )
        if kind == "call":
            return self.call("truth", depth - 1)
        if kind == "and" or kind == "or":
            return f"({self.truth(depth - 1)} {kind} {self.truth(depth - 1)})"
        if kind == "not":
            return f"(not {self.truth(depth - 1)})"
        if kind == "truth":
            test = self.pick(["is true", "is false", "is not true", "is not false", "is null", "is not null"])
            return f"({self.truth(depth - 1)}) {test}"
        if kind == "case":
            return f"case when {self.truth(depth - 1)} then {self.truth(depth - 1)} else {self.truth(depth - 1)} end"
        if kind == "column" and "b" in self.columns:
            return self.pick(["b", "(not b)", "(b = true)", "(b < true)", "true", "false", "null"])
        if kind == "mixed":
            return self.mixed()
        value, constant = self.pick(
            [(self.number, self.number_constant)] * 3
            + [(self.string, self.string_constant)] * 2
            + ([(self.moment, self.moment_constant)] * 2 if self.known(MOMENT_COLUMNS) else [])
        )
        inner = max(depth - 1, 0)
        if kind == "in":
            items = [constant() for _ in range(self.pick([1, 2, 3, 5]))]
            if self.pick([True, False, False]):
                items.append("null")
            return f"({value(inner)} {self.pick(['in', 'not in'])} ({', '.join(items)}))"
        if kind == "list":
            return self.list_parameter()
        if kind == "between":
            word = self.pick(["between", "not between"])
            return f"({value(inner)} {word} {constant()} and {constant()})"
        if kind == "like":
            return self.like(inner)
        if kind == "null":
            return f"({value(inner)} {self.pick(['is null', 'is not null'])})"
        if kind == "distinct":
            word = self.pick(["is distinct from", "is not distinct from"])
            return f"({value(inner)} {word} {self.pick([constant, lambda: value(inner), lambda: 'null'])()})"
        op = self.pick(["=", "<>", "<", "<=", ">", ">="])
        left, right = value(inner), self.pick([constant, constant, lambda: value(inner)])()
        if self.pick([True, True, True, False]):
            return f"({left} {op} {right})"
        return f"({right} {op} {left})"

    def list_parameter(self) -> str:
        pools = [("i64", [0, 1, 2, 7, 100, None]), ("u64", [0, 1, 2**63]), ("s", TEXTS), ("f64", [0.0, INF, 1.5, None])]
        pools += [("i8", [1, 2, 300]), ("d", DAYS), ("f32", [0.5, 1.5, 2.0])]
        known = [pool for pool in pools if pool[0] in self.columns]
        if not known:
            return "true"
        column, pool = self.pick(known)
        items = [self.pick(pool) for _ in range(self.pick([0, 1, 2, 6]))]
        return f"({column} {self.pick(['in', 'not in'])} {self.param(items)})"

    def like(self, depth: int) -> str:
        word = self.pick(["like", "not like", "ilike", "not ilike"])
        pattern = self.pick(
            ["a%", "%b", "%b%", "_", "a_b", "%", "", "a\\%c", "a$%c", "A%", "é%", "__", "a%b%", "%\n%", "İ"]
        )
        if self.pick([True, True, False]):
            shown = self.param(pattern) if self.pick([True, False]) else quote(pattern)
        else:
            shown = self.string(0)
        escape = self.pick(["", "", " escape '$'", " escape '\\'", " escape ''"])
        return f"({self.string(depth)} {word} {shown}{escape})"

    def mixed(self) -> str:
        """Operands of different families: text with numbers, booleans with integers."""
        options = [
            "i64 = '1'",
            "m9 = '1.5'",
            "f64 < '2.5'",
            "u8 >= '2'",
            "b = 1",
            "b = 'true'",
            "i8 = true",
            "f32 = '0.1'",
        ]
        options += [
            "bin = 'a'",
            "bin < 'b'",
            "t < '12:30:15'",
            "t = TIME '12:30:15.000005'",
            "i64 in ('1', 2)",
            "1 = 1",
        ]
        options += ["1 between '0' and i32", "null = i64", "i64 + null > 1", "'a' < 'b'", "s = 1::varchar", "u64 = '7'"]
        options += [
            "(ts - ts) = (tz - tz)",
            "(d - DATE '1970-01-01') > 5",
            "case i32 when 1 then true when '2' then false end",
        ]
        usable = [text for text in options if self._usable(text)]
        return f"({self.pick(usable)})"

    def _usable(self, text: str) -> bool:
        words = set("".join(char if char.isalnum() else " " for char in text).split())
        return not (words & set(COLUMNS)) - self.columns


@st.composite
def predicates(draw: Any, columns: list[str] | None = None, depth: int = 2, casts: bool = True) -> Predicate:
    generator = Generator(draw, columns, casts)
    text = generator.truth(depth)
    return Predicate(text, generator.params)


@st.composite
def values(draw: Any, depth: int = 2) -> Predicate:
    """A call of some family, with nothing that an engine may leave unevaluated."""
    generator = Generator(draw)
    text = generator.call(
        generator.pick(["number", "number", "string", "string", "moment", "truth", "list"]), depth - 1
    )
    return Predicate(text, generator.params)
