"""A table with every kind of index as plain dictionaries, and questions that an index answers, by looking at each
row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

Row = dict[str, Any]
State = Mapping[int, Row]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("a", pa.int16()),
        pa.field("s", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("x", pa.float32()),
        pa.field("y", pa.float64()),
        pa.field("note", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 3)),
        pa.field("u", pa.int64()),
    ]
)
COLUMNS = tuple(SCHEMA.names)
WORDS = ("late", "parcel", "lost", "rain", "night", "train", "van")
TEXTS = ("", "b", "ba", "bab", "c", "ca", "é", None)


@dataclass(frozen=True)
class Definition:
    """An index as a test creates it."""

    name: str
    columns: tuple[str, ...]
    kind: str = "btree"
    unique: bool = False
    include: tuple[str, ...] = ()


DEFINITIONS = {
    d.name: d
    for d in (
        Definition("by_a", ("a",), include=("s",)),
        Definition("by_s_a", ("s", "a")),
        Definition("by_tag", ("tags",)),
        Definition("hash_s", ("s",), "hash"),
        Definition("hash_a_s", ("a", "s"), "hash"),
        Definition("place", ("x", "y"), "rtree"),
        Definition("text", ("note",), "bm25"),
        Definition("near", ("vec",), "hnsw"),
        Definition("uniq", ("u",), unique=True),
    )
}


LARGE = (30_000, 2_000_000_000, 2**62)
"""Of each type that the column `a` may have."""


def random_row(random: Random, number: int, width: int = 0) -> Row:
    """Few values, so that most of them are in several rows; `width`: how often the column `a` was widened."""

    def perhaps(value: Any) -> Any:
        return None if random.random() < 0.12 else value

    return {
        "id": number,
        "a": perhaps(LARGE[width] if random.random() < 0.1 else random.randint(-4, 12)),
        "s": random.choice(TEXTS),
        "tags": perhaps([random.choice(("p", "q", "r", None)) for _ in range(random.randint(0, 3))]),
        "x": perhaps(float(random.randint(-3, 3))),
        "y": perhaps(float(random.randint(-3, 3))),
        "note": perhaps(" ".join(random.choice(WORDS) for _ in range(random.randint(0, 6)))),
        "vec": perhaps([float(random.randint(-5, 5)) for _ in range(3)]),
        "u": perhaps(random.randint(0, 400)),
    }


# ---------------------------------------------------------------- predicates


@dataclass(frozen=True)
class Question:
    """A condition in SQL, with columns in braces; what it means; and the indexes of which each can answer it."""

    text: str
    holds: Callable[[Row], bool]
    indexes: tuple[str, ...]

    def sql(self, names: Mapping[str, str]) -> str:
        return self.text.format(**names)


def _between(low: Any, value: Any, high: Any) -> bool:
    return value is not None and low <= value <= high


def questions(random: Random) -> list[Question]:
    """One of each form, with random constants."""
    n, m = sorted((random.randint(-4, 12), random.randint(-4, 12)))
    some = sorted({random.randint(-6, 14) for _ in range(3)})
    s, t = (random.choice([text for text in TEXTS if text]) for _ in range(2))
    tag = random.choice(("p", "q", "r", "z"))
    left, low = (float(random.randint(-4, 3)) for _ in range(2))
    u = random.randint(0, 400)
    return [
        Question(f"{{a}} = {n}", lambda r: r["a"] == n, ("by_a",)),
        Question(f"{{a}} between {n} and {m}", lambda r: _between(n, r["a"], m), ("by_a",)),
        Question(f"{{a}} in ({', '.join(map(str, some))})", lambda r: r["a"] in some, ("by_a",)),
        Question("{a} is null", lambda r: r["a"] is None, ("by_a",)),
        Question("{a} > 20000", lambda r: r["a"] is not None and r["a"] > 20000, ("by_a",)),
        Question("{a} > 100000", lambda r: r["a"] is not None and r["a"] > 100000, ()),
        Question(f"{{a}} = {LARGE[2]}", lambda r: r["a"] == LARGE[2], ()),
        Question(f"{{s}} = '{s}'", lambda r: r["s"] == s, ("hash_s", "by_s_a")),
        Question(f"{{s}} in ('{s}', '{t}')", lambda r: r["s"] in (s, t), ("hash_s", "by_s_a")),
        Question("{s} like 'b%'", lambda r: r["s"] is not None and r["s"].startswith("b"), ("by_s_a",)),
        Question(
            f"{{s}} = '{s}' and {{a}} >= {n}",
            lambda r: r["s"] == s and r["a"] is not None and r["a"] >= n,
            ("by_s_a", "by_a", "hash_s"),
        ),
        Question(f"{{s}} = '{s}' and {{a}} is null", lambda r: r["s"] == s and r["a"] is None, ("by_s_a",)),
        Question(f"{{a}} = {n} and {{s}} = '{t}'", lambda r: r["a"] == n and r["s"] == t, ("hash_a_s", "by_s_a")),
        Question(
            f"{{a}} = {n} or {{s}} = '{t}'",
            lambda r: r["a"] == n or r["s"] == t,
            ("by_a or hash_s", "by_a or by_s_a"),
        ),
        Question(
            f"list_contains({{tags}}, '{tag}')", lambda r: r["tags"] is not None and tag in r["tags"], ("by_tag",)
        ),
        Question(
            f"{{x}} between {left} and {left + 2} and {{y}} between {low} and {low + 2}",
            lambda r: _between(left, r["x"], left + 2) and _between(low, r["y"], low + 2),
            ("place",),
        ),
        Question(f"{{u}} = {u}", lambda r: r["u"] == u, ("uniq",)),
    ]


# ---------------------------------------------------------------- searches


Measured = list[tuple[int, float]]
"""Row numbers with score or distance, best first."""


def nearest_places(rows: State, place: Sequence[float]) -> Measured:
    found = [
        (number, math.hypot(r["x"] - place[0], r["y"] - place[1]))
        for number, r in rows.items()
        if r["x"] is not None and r["y"] is not None
    ]
    return sorted(found, key=lambda each: each[1])


def nearest_vectors(rows: State, vector: Sequence[float]) -> Measured:
    found = [
        (number, float(sum((p - q) ** 2 for p, q in zip(r["vec"], vector, strict=True))))
        for number, r in rows.items()
        if r["vec"] is not None
    ]
    return sorted(found, key=lambda each: each[1])


def ranked_texts(rows: State, query: str, visible: State) -> Measured:
    """BM25 of the rows that satisfy a condition, by the statistics of all that are visible."""
    texts = {number: re.findall(r"\w+", r["note"].lower()) for number, r in visible.items() if r["note"] is not None}
    count = len(texts)
    average = sum(map(len, texts.values())) / count if count else 1.0
    scores: dict[int, float] = {}
    for term in set(query.split()):
        having = sum(term in words for words in texts.values())
        idf = math.log1p((count - having + 0.5) / (having + 0.5))
        for number, words in texts.items():
            frequency = words.count(term)
            if frequency and number in rows:
                norm = 1.2 * (1 - 0.75 + 0.75 * len(words) / average)
                scores[number] = scores.get(number, 0.0) + idf * 2.2 * frequency / (frequency + norm)
    return sorted(scores.items(), key=lambda each: -each[1])


def same_ranking(found: Sequence[Mapping[str, Any]], measure: str, expected: Measured, k: int) -> None:
    """The k best; rows that are equally good may come in any order."""
    best = expected[:k]
    assert len(found) == len(best), f"{len(found)} rows and not {len(best)}"
    given = [row[measure] for row in found]
    assert np.allclose(given, [value for _, value in best], rtol=1e-5, atol=1e-5), (given, best)
    truth = dict(expected)
    for row in found:
        assert abs(truth[row["id"]] - row[measure]) <= 1e-5 * max(1.0, abs(row[measure])), row
    assert len({row["id"] for row in found}) == len(found)
