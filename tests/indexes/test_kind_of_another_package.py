"""A package adds an index kind by an entry point: the example of the documentation, installed and used."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.indexes.registry import KINDS, kind_named

EXAMPLE = Path(__file__).parents[2] / "examples" / "closest"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as pip would leave it: its module on the path, beside the metadata that its pyproject asks for."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    described = tmp_path / "site" / f"indexlake_closest-{project['version']}.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (described / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(described.parent)
    monkeypatch.syspath_prepend(EXAMPLE)
    yield
    KINDS.pop("closest", None)


def numbers(count: int, first: int = 0) -> pa.Table:
    return pa.table(
        {"id": range(first, first + count), "total": [float(n % 1000) for n in range(first, first + count)]}
    )


def closest(table: il.Table, query: float, k: int = 3, where: str | None = None) -> list[tuple[int, float]]:
    return [(row["id"], row["_distance"]) for row in table.search("total", query, k, where)]


def test_it_finds_rows_in_segments_hot_rows_and_the_past(lake: il.Lake) -> None:
    table = lake.create_table("t", {"id": "int64", "total": "float64"}, primary_key="id")
    for first in range(0, 3000, 100):
        table.insert(numbers(100, first))
        lake.pipeline(runner="threads").dump("t")
    info = table.create_index("by_total", "total", kind="closest")
    assert (info.state, info.rows_in_segments, info.rows_uncovered) == ("ready", 3000, 0)
    before = lake.snapshot_id
    table.insert([{"id": 5000, "total": 10.2}, {"id": 5001, "total": None}])
    table.delete("id = 1010")
    assert closest(table, 10.1) == [(10, pytest.approx(0.1)), (2010, pytest.approx(0.1)), (5000, pytest.approx(0.1))]
    assert [row for row, _ in closest(table.at(before), 10.1)] == [10, 1010, 2010]
    assert [row for row, _ in closest(table, 10.1, where="id > 1100")] == [2010, 5000, 2011]


def test_its_segments_are_folded_and_written_by_jobs(lake: il.Lake) -> None:
    table = lake.create_table("t", {"id": "int64", "total": "float64"}, primary_key="id")
    table.create_index("by_total", "total", kind="closest")
    pipeline = lake.pipeline(runner="threads")
    for first in range(0, 2000, 100):
        table.insert(numbers(100, first))
        pipeline.dump("t")
    written = table.index("by_total").info
    assert (written.rows_in_segments, written.rows_uncovered) == (2000, 0)
    pipeline.merge_index("t")
    assert table.index("by_total").info.segments < written.segments
    assert [row for row, _ in closest(table, 500.0, 2)] == [500, 1500]
    pipeline.compact("t")
    assert table.index("by_total").info.rows_uncovered == 0
    assert [row for row, _ in closest(table, 500.0, 2)] == [500, 1500]


def test_what_it_does_not_take_is_refused(lake: il.Lake) -> None:
    table = lake.create_table("t", {"id": "int64", "note": "string"})
    with pytest.raises(il.SchemaError, match="one column of numbers"):
        table.create_index("i", "note", kind="closest")
    table.create_index("i", "id", kind="closest")
    with pytest.raises(il.ExpressionError, match="a finite number, not 'x'"):
        table.search("i", "x").to_arrow()
    with pytest.raises(il.NotFoundError, match="there are bm25, btree, closest, hash"):
        table.create_index("j", "id", kind="nearby")


def test_whatever_it_raises_other_indexes_and_tables_have_their_turn(
    lake: il.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = {"id": "int64", "total": "float64", "vec": pa.list_(pa.float32(), 2)}
    config = il.TableConfig(direct_write_row_count=10)
    tables = [lake.create_table(name, vectors, primary_key="id", config=config) for name in ("first", "second")]
    for t in tables:
        t.create_index("by_total", "total", kind="closest")
        t.create_index("near", "vec", kind="hnsw")  # which an insert leaves to the background

    def fail(*_: object, **__: object) -> None:
        raise ValueError("a bug in the kind")

    def states(t: il.Table) -> dict[str, str]:
        return {info.name: info.state for info in t.indexes()}

    with monkeypatch.context() as patched:
        patched.setattr(kind_named("closest"), "builder", fail)
        for t in tables:
            t.insert([{"id": n, "total": float(n), "vec": [n, 1]} for n in range(20)])
        lake.pipeline("threads").run()
        assert [states(t) for t in tables] == [{"by_total": "failing", "near": "ready"}] * 2
        assert "a bug in the kind" in str(tables[0].index("by_total").info.last_error)
        for t in tables:
            t.insert([{"id": n, "total": float(n), "vec": [n, 1]} for n in range(20, 40)])
        with pytest.raises(ValueError, match="a bug in the kind"):
            lake.pipeline("threads").build_index()
        assert [states(t) for t in tables] == [{"by_total": "failing", "near": "ready"}] * 2
    lake.pipeline("threads").run()
    assert [states(t) for t in tables] == [{"by_total": "ready", "near": "ready"}] * 2
