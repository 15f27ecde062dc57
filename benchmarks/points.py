"""One row by its key: get from the hot store, from Vortex and from Parquet; update and delete in a block."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import indexlake as il
from benchmarks.orders import INSERT, bare_sqlite, open_lake, row, stream
from benchmarks.outcome import Outcome, at_most, below, in_turn, spread

FILE_ROWS = 1_000_000


def block_files(lake: il.Lake, table: il.Table) -> list[Path]:
    """The data files of a table in the order of their rows."""
    return [Path(lake.storage.root) / b.path for b in table._state().blocks.records]


def file_columns(table: il.Table) -> list[str]:
    return list(table._state().current.columns)


def hot_get(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = open_lake(folder, "hot", direct_write_row_count=1_000_000)
    table.insert([row(n) for n in range(20_000)])
    pick = random.Random(1)
    keys = [pick.randrange(20_000) for _ in range(5000)]
    times = in_turn({"ours": lambda n: table.get(keys[n])}, 4000, warm_up=200)["ours"]
    assert table.get(7) == row(7)
    lake.close()
    yield below("get of a hot row", statistics.median(times), 150, "µs", spread(times))


def warm_get(folder: Path, rows: int) -> Iterator[Outcome]:
    import vortex

    lake, table = open_lake(folder, "warm", block_row_count=FILE_ROWS)
    table.insert(stream(FILE_ROWS))
    pick = random.Random(2)
    keys = [pick.randrange(FILE_ROWS) for _ in range(5000)]
    (path,) = block_files(lake, table)
    scan = vortex.open(str(path)).to_repeated_scan(file_columns(table))

    def bare(n: int) -> dict[str, Any]:
        return scan.scalar_at(keys[n]).as_py()  # type: ignore[no-any-return]

    assert list(bare(0).values()) == list((table.get(keys[0]) or {}).values()) == list(row(keys[0]).values())
    times = in_turn({"ours": lambda n: table.get(keys[n]), "bare": bare}, 4000, warm_up=200, together=200)
    lake.close()
    ours, floor = (statistics.median(times[name]) for name in ("ours", "bare"))
    detail = f"ours {spread(times['ours'])}; bare {spread(times['bare'])}"
    yield at_most("get of a row in a warm Vortex block", ours, floor, 3, detail=detail)


def parquet_get(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = open_lake(folder, "parquet", block_row_count=FILE_ROWS, dump_format="parquet")
    table.insert(stream(FILE_ROWS))
    pick = random.Random(3)
    keys = [pick.randrange(FILE_ROWS) for _ in range(500)]
    (path,) = block_files(lake, table)
    file = pq.ParquetFile(path, memory_map=True)
    columns = file_columns(table)
    sizes = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
    assert len(set(sizes[:-1])) == 1

    def bare(n: int) -> dict[str, Any]:
        group, offset = divmod(keys[n], sizes[0])
        found = file.read_row_group(group, columns=columns, use_threads=False)
        return found.slice(offset, 1).to_pylist()[0]  # type: ignore[no-any-return]

    assert list(bare(0).values()) == list((table.get(keys[0]) or {}).values())
    times = in_turn({"ours": lambda n: table.get(keys[n]), "bare": bare}, 240, warm_up=20, together=10)
    lake.close()
    ours, floor = (statistics.median(times[name]) for name in ("ours", "bare"))
    detail = f"ours {spread(times['ours'])}; bare {spread(times['bare'])}"
    yield at_most("get of a Parquet row", ours, floor, 1.3, detail=detail)


def change_by_key(folder: Path, rows: int) -> Iterator[Outcome]:
    """Update and delete of rows that lie in a warm block, each once."""
    lake, table = open_lake(folder, "change", block_row_count=FILE_ROWS)
    table.insert(stream(FILE_ROWS))
    cursor = bare_sqlite(folder / "change.db").cursor()
    pick = random.Random(4)
    keys = pick.sample(range(FILE_ROWS), 8000)
    half = len(keys) // 2

    def update(n: int) -> None:
        assert table.update({"total": 3.0}, "id = $id", params={"id": keys[n]}).rows == 1

    def compute(n: int) -> None:
        done = table.update({"total": il.expr("total + 1")}, "id = $id", params={"id": keys[half + n]})
        assert done.rows == 1

    def delete(n: int) -> None:
        assert table.delete("id = $id", params={"id": keys[half + half // 2 + n]}).rows == 1

    def bare(n: int) -> None:
        cursor.execute(INSERT, tuple(row(n).values()))

    contenders: dict[str, Callable[[int], object]] = {
        "update": update, "update by expression": compute, "delete": delete, "bare": bare,
    }  # fmt: skip
    times = in_turn(contenders, 1500, warm_up=100)
    assert table.get(keys[0]) == row(keys[0]) | {"total": 3.0}
    assert table.get(keys[half + half // 2]) is None
    lake.close()
    floor = statistics.median(times.pop("bare"))
    for name, found in times.items():
        yield at_most(f"{name} by key, row in a warm block", statistics.median(found), floor, 3, detail=spread(found))
