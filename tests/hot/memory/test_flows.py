"""The six flows of the memory store: what docs/memory.md says is called is called, in that order."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

PAGE = Path(__file__).parents[3] / "docs" / "memory.md"
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("total", pa.float64())])


def many(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 2_000), "total": [2.5] * 2_000}, schema=SCHEMA)


FLOWS: dict[str, Callable[[il.Table], object]] = {
    "Point select": lambda t: t.get(150),
    "Point select in a block": lambda t: t.get(3),
    "Analytical scan": lambda t: t.scan("total > 1").to_arrow(),
    "Point insert": lambda t: t.insert({"id": 900, "total": 1.0}),
    "Update of a hot row": lambda t: t.update({"total": 2.0}, "id = $id", params={"id": 150}),
    "Update of a cold row": lambda t: t.update({"total": 2.0}, "id = $id", params={"id": 3}),
    "Batch insert": lambda t: t.insert(many(5_000)),
}


def documented() -> dict[str, list[str]]:
    """The functions that each flow of the page lists."""
    part = PAGE.read_text().split("## The six flows")[1]
    sections = re.split(r"^### (.+)$", part, flags=re.MULTILINE)[1:]
    return {
        name: re.findall(r"^\d+\. `([\w.]+)`$", text, re.MULTILINE)
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }


def called(function: Callable[[], object]) -> list[str]:
    """The functions of the package that a call goes through, as they begin."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("indexlake."):
            names.append(f"{module.removeprefix('indexlake.')}.{frame.f_code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return names


@pytest.fixture
def table(tmp_path: Path) -> Iterator[il.Table]:
    """Rows 0 to 99 in a block, 100 to 199 in memory."""
    with il.connect(tmp_path / "lake", hot="memory", automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=1_000)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        t.insert([{"id": n, "total": n * 0.5} for n in range(100)])
        lake.pipeline(runner="threads", progress=False).dump("t")
        t.insert([{"id": n, "total": n * 0.5} for n in range(100, 200)])
        yield t


def test_the_page_describes_every_flow() -> None:
    assert list(documented()) == list(FLOWS)


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_goes_through_the_code_as_the_page_says(table: il.Table, name: str) -> None:
    steps, trace = documented()[name], called(lambda: FLOWS[name](table))
    place = -1
    for number, step in enumerate(steps, 1):
        later = [n for n, found in enumerate(trace) if n > place and found == step]
        assert later, f"step {number}, {step}, does not come after {steps[: number - 1]}"
        place = later[0]


READS = ("Point select", "Point select in a block", "Analytical scan")


@pytest.mark.parametrize("name", READS)
def test_a_read_asks_no_catalog(table: il.Table, name: str) -> None:
    FLOWS[name](table)  # what it reads of the catalog at all it has read then
    assert [step for step in called(lambda: FLOWS[name](table)) if step.startswith("catalog.sqlite")] == []


@pytest.mark.parametrize("name", ["Point insert", "Update of a hot row", "Update of a cold row"])
def test_a_change_of_one_row_waits_for_one_sync_and_no_catalog(table: il.Table, name: str) -> None:
    table.insert({"id": 901, "total": 1.0})  # row ids are reserved
    table.get(3)  # the checksums of a file are read when it is opened
    trace = called(lambda: FLOWS[name](table))
    assert trace.count("hot.memory.redo.RedoLog.sync") == 1
    assert [step for step in trace if step.startswith("catalog.sqlite_")] == []


@pytest.mark.parametrize(("name", "most"), [("Point select", 60), ("Point insert", 160), ("Update of a hot row", 190)])
def test_few_functions_run_for_one_row(table: il.Table, name: str, most: int) -> None:
    """The time of a call for one row is that of its functions; what tables or many rows need is not done for each."""
    table.insert({"id": 901, "total": 1.0})
    table.update({"total": 3.0}, "id = $id", params={"id": 150})
    assert len(called(lambda: FLOWS[name](table))) <= most


def test_a_scan_says_how_many_hot_rows_and_blocks_it_reads(table: il.Table) -> None:
    told = str(table.scan("total > 1").explain())
    assert "hot rows: 100" in told
    assert "blocks: 1 of 1 read" in told
