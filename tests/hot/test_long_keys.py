"""Keys of one column may have any length in the hot store, whatever the database can index."""

from __future__ import annotations

import random
from typing import Any

import pytest

import indexlake as il

LONG = random.Random(1).randbytes(9_000)  # no database makes it shorter


@pytest.mark.parametrize(
    ("type", "keys"),
    [
        ("binary", [LONG, LONG + b"1", b""]),
        ("string", [LONG.hex(), LONG.hex() + "1", ""]),
        ("fixed_size_binary[9000]", [LONG, LONG[::-1], bytes(9_000)]),
    ],
)
def test_long_keys_are_found_changed_and_refused_twice(any_lake: il.Lake, type: str, keys: list[Any]) -> None:
    t = any_lake.create_table("t", {"k": type, "v": "int64"}, primary_key="k")
    rows = [{"k": key, "v": n} for n, key in enumerate(keys)]
    t.insert(rows)
    for row in rows:
        assert t.get(row["k"]) == row
        with pytest.raises(il.DuplicateKeyError):
            t.insert(row)
    t.upsert([row | {"v": row["v"] + 10} for row in rows])
    assert sorted(t.get_many(keys).column("v").to_pylist()) == [10, 11, 12]


@pytest.mark.inline_only("the limit is that of the database")
def test_postgresql_says_how_long_keys_of_several_columns_may_be(new_address: Any) -> None:
    for catalog in ("sqlite", "postgres"):
        with new_address(catalog).connect() as lake:
            t = lake.create_table("t", {"k": "binary", "n": "int64"}, primary_key=["k", "n"])
            if catalog == "sqlite":
                t.insert({"k": LONG, "n": 1})
                continue
            with pytest.raises(il.IndexLakeError, match=r"several columns with more than about 2,700 .*one column"):
                t.insert({"k": LONG, "n": 1})
            t.insert({"k": LONG[:2_600], "n": 1})
            assert len(t) == 1
