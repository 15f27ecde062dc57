"""What Arrow charges for one row: a two-term filter as kernels, as a filter expression and in Python."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from measure import alternate, per_call, print_table

SCHEMA = pa.schema([("id", pa.int64()), ("total", pa.float64()), ("status", pa.string())])
EXPRESSION = (pc.field("total") > 10.0) & (pc.field("status") == "open")


def kernels(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.and_kleene(pc.greater(batch.column(1), pa.scalar(10.0)), pc.equal(batch.column(2), pa.scalar("open")))


LOW, OPEN = pa.scalar(10.0), pa.scalar("open")


def kernels_bound(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.and_kleene(pc.greater(batch.column(1), LOW), pc.equal(batch.column(2), OPEN))


def scalar(row: dict[str, object]) -> bool | None:
    """SQL's three-valued logic on Python values, as composed closures would run it."""
    total, status = row["total"], row["status"]
    left = None if total is None else total > 10.0  # type: ignore[operator]
    if left is False:
        return False
    right = None if status is None else status == "open"
    if right is False:
        return False
    return None if left is None or right is None else True


def column(name: str) -> Callable[[dict[str, object]], object]:
    return lambda row: row[name]


def closures() -> Callable[[dict[str, object]], object]:
    def compare(left: Callable[..., object], test: Callable[[object], bool]) -> Callable[..., object]:
        def run(row: dict[str, object]) -> object:
            value = left(row)
            return None if value is None else test(value)

        return run

    def both(left: Callable[..., object], right: Callable[..., object]) -> Callable[..., object]:
        def run(row: dict[str, object]) -> object:
            first = left(row)
            if first is False:
                return False
            second = right(row)
            if second is False:
                return False
            return None if first is None or second is None else True

        return run

    terms = compare(column("total"), lambda v: v > 10.0), compare(column("status"), lambda v: v == "open")  # type: ignore[operator]
    return both(*terms)


def main() -> None:
    row = {"id": 1, "total": 11.0, "status": "open"}
    compiled = closures()
    rows = []
    for size in (1, 10, 100, 1000, 10_000):
        data = [row] * size
        batch = pa.RecordBatch.from_pylist(data, SCHEMA)
        calls = max(3, 1000 // size)
        contenders: dict[str, Callable[[], object]] = {
            "build": lambda d=data: pa.RecordBatch.from_pylist(d, SCHEMA),
            "filter": lambda b=batch: b.filter(EXPRESSION),
            "kernels": lambda b=batch: kernels(b),
            "bound": lambda b=batch: kernels_bound(b),
            "pylist": lambda b=batch: b.to_pylist(),
            "closures": lambda d=data: [compiled(r) for r in d],
            "python": lambda d=data: [scalar(r) for r in d],
        }
        seconds = alternate({name: per_call(call, calls) for name, call in contenders.items()})
        rows.append((size, *(f"{seconds[name] / calls * 1e6:,.1f}" for name in contenders)))
    header = [
        *("rows", "build batch", "batch.filter(expression)", "kernels", "kernels, scalars kept"),
        *("to_pylist", "closures on dicts", "written-out Python"),
    ]
    print_table("total > 10 and status = 'open' (µs for all rows)", header, rows)


if __name__ == "__main__":
    main()
