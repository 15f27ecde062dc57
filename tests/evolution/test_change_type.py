"""A column takes another type while others read and write, and where the change dies half way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import indexlake as il
from indexlake.storage import faults


@pytest.fixture
def between() -> Iterator[dict[str, list[object]]]:
    """What happens at the steps of a change: callables by the names of steps, each called once."""
    wanted: dict[str, list[object]] = {}

    def at(name: str) -> None:
        for call in wanted.pop(name, []):
            call()  # type: ignore[operator]

    before = faults.install(at)
    yield wanted
    faults.install(before)


def test_rows_that_others_write_meanwhile_have_their_values(tmp_path: Path, between: dict[str, list[object]]) -> None:
    with il.connect(tmp_path, automatic=False) as lake, il.connect(tmp_path, automatic=False) as other:
        t = lake.create_table("t", [{"id": n, "v": n} for n in range(5)], primary_key="id")
        lake.pipeline().dump("t")
        start = lake.snapshot_id
        theirs = other.table("t")
        between["retype.beside"] = [
            lambda: theirs.insert({"id": 10, "v": 10}),
            lambda: theirs.update({"v": 20}, where="id = 1"),
            lambda: theirs.delete("id = 2"),
        ]
        between["retype.filled"] = [
            lambda: theirs.insert({"id": 11, "v": 11}),
            lambda: theirs.update({"v": 30}, where="id = 3"),
        ]
        lake.sql("alter table t alter v type varchar using 'v' || v")
        assert not between
        found = {r["id"]: r["v"] for r in t.scan().to_pylist()}
        assert found == {0: "v0", 1: "v20", 3: "v30", 4: "v4", 10: "v10", 11: "v11"}
        assert theirs.scan("v = 'v30'").to_pylist() == [{"id": 3, "v": "v30"}]
        assert lake.at(start).table("t").scan("v = 3").to_pylist() == [{"id": 3, "v": 3}]
        assert t.schema.names == ["id", "v"]


def test_a_value_that_others_write_and_that_has_no_such_type_is_refused(
    tmp_path: Path, between: dict[str, list[object]]
) -> None:
    with il.connect(tmp_path, automatic=False) as lake, il.connect(tmp_path, automatic=False) as other:
        t = lake.create_table("t", [{"id": 1, "v": "1"}])

        def wrong() -> None:
            with pytest.raises(il.IndexLakeError, match="Could not convert"):
                other.table("t").insert({"id": 2, "v": "two"})

        between["retype.beside"] = [wrong]
        lake.sql("alter table t alter v type int")
        assert not between
        assert t.scan().to_pylist() == [{"id": 1, "v": 1}]


def test_a_change_that_was_killed_is_begun_anew(tmp_path: Path) -> None:
    with il.connect(tmp_path) as lake:
        lake.create_table("t", [{"x": 1, "y": 5}, {"x": 2, "y": 6}])
    script = "import indexlake as il, sys; il.connect(sys.argv[1]).sql('alter table t alter x type varchar')"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "INDEXLAKE_FAULTS": "retype.filled=kill"}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    with il.connect(tmp_path) as lake:
        lake.sql("insert into t (x, y) values (3, 7)")
        lake.sql("alter table t alter x type varchar")
        assert lake.sql("select * from t order by y").fetchall() == [("1", 5), ("2", 6), ("3", 7)]
        assert [c["column_name"] for c in lake.sql("describe t").to_pylist()] == ["x", "y"]


@pytest.mark.parametrize("renamed", [False, True])
def test_a_transaction_that_began_before_is_run_again(tmp_path: Path, *, renamed: bool) -> None:
    with il.connect(tmp_path, automatic=False) as lake, il.connect(tmp_path, automatic=False) as other:
        t = lake.create_table("t", [{"id": 1, "v": 1}])
        tx = other.transaction()
        tx.table("t").insert({"id": 2, "v": 2})
        lake.sql("alter table t alter v type varchar")
        if renamed:
            t.rename_column("v", "w")
        with pytest.raises(il.ConflictError, match="got a new rule after this transaction began"):
            tx.commit()
        assert t.scan(columns=["id"]).to_pylist() == [{"id": 1}]


def test_a_column_of_the_users_is_not_taken_for_what_a_change_left_behind(tmp_path: Path) -> None:
    with il.connect(tmp_path, automatic=False) as lake:
        t = lake.create_table("t", [{"v": 1, "v__new_type": 7}])
        with pytest.raises(il.SchemaError, match="'v__new_type'"):
            lake.sql("alter table t alter v type varchar")
        assert t.scan().to_pylist() == [{"v": 1, "v__new_type": 7}]


@pytest.mark.parametrize(
    "meanwhile",
    [
        ["alter table t rename column v to x", "alter table t rename column u to v"],
        ["alter table t alter v set default 9"],
        ["alter table t alter v set not null"],
    ],
)
def test_a_column_that_others_alter_meanwhile_stays_theirs(
    tmp_path: Path, between: dict[str, list[object]], meanwhile: list[str]
) -> None:
    with il.connect(tmp_path, automatic=False) as lake, il.connect(tmp_path, automatic=False) as other:
        t = lake.create_table("t", [{"v": 1, "u": 3}])
        found: list[object] = []
        between["retype.filled"] = [
            *(lambda text=text: other.sql(text) for text in meanwhile),
            lambda: found.append(other.sql("describe t").fetchall()[:2]),
        ]
        with pytest.raises(il.SchemaError, match="was altered meanwhile"):
            lake.sql("alter table t alter v type varchar")
        assert found == [lake.sql("describe t").fetchall()]
        assert [tuple(row.values()) for row in t.scan().to_pylist()] == [(1, 3)]
