"""The price of verifying every byte before Vortex decodes it.

A reader object handed to `vortex.open_readable` serves read-only slices of a memory map and checks
each chunk the first time it is touched; Vortex takes such slices without a copy. Compared with the
same scan unverified, with one hash of the whole file at open, and with `pread` into fresh buffers.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import vortex as vx
import xxhash
from measure import alternate, per_call, print_table

ROWS = 2_000_000


class MappedReader:
    """Ranged reads over a map; a chunk is hashed on its first touch, or never when `digests` is None."""

    def __init__(self, path: Path, chunk: int, digests: list[int] | None) -> None:
        with path.open("rb") as file:
            self._view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        self._chunk = chunk
        self._digests = digests
        self._verified = bytearray(-(-len(self._view) // chunk))
        self.calls: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self._view)

    def read_at(self, offset: int, length: int) -> memoryview:
        self.calls.append((offset, length))
        if self._digests is not None:
            self.verify(offset, length)
        return self._view[offset : offset + length]

    def forget(self) -> None:
        self._verified[:] = bytes(len(self._verified))

    def verify(self, offset: int, length: int) -> None:
        first, last = offset // self._chunk, (offset + length - 1) // self._chunk
        for index in range(first, last + 1):
            if not self._verified[index]:
                piece = self._view[index * self._chunk : (index + 1) * self._chunk]
                if xxhash.xxh3_64_intdigest(piece) != self._digests[index]:
                    raise OSError(f"chunk {index} is damaged")
                self._verified[index] = 1


class PreadReader:
    """What an object store would do: every read fetches whole chunks, verifies them, returns a slice."""

    def __init__(self, path: Path, chunk: int, digests: list[int]) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._size = os.fstat(self._fd).st_size
        self._chunk, self._digests = chunk, digests
        self.calls: list[tuple[int, int]] = []

    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, length: int) -> memoryview:
        first = offset // self._chunk
        start = first * self._chunk
        end = min(-(-(offset + length) // self._chunk) * self._chunk, self._size)
        data = memoryview(os.pread(self._fd, end - start, start))
        self.calls.append((start, len(data)))
        for index, begin in enumerate(range(0, len(data), self._chunk), first):
            if xxhash.xxh3_64_intdigest(data[begin : begin + self._chunk]) != self._digests[index]:
                raise OSError(f"chunk {index} is damaged")
        return data[offset - start : offset - start + length]

    def __del__(self) -> None:
        os.close(self._fd)


def make_table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "customer": rng.integers(0, 50_000, ROWS),
            "price": np.round(rng.random(ROWS) * 100, 2),
            "noise": rng.random(ROWS),
            "name": [f"customer-{i % 5003}" for i in range(ROWS)],
        }
    )


def digests_of(data: bytes, chunk: int) -> list[int]:
    return [xxhash.xxh3_64_intdigest(data[i : i + chunk]) for i in range(0, len(data), chunk)]


def scan(file: vx.VortexFile) -> pa.Table:
    return file.to_arrow().read_all()


def full_scans(path: Path, data: bytes) -> None:
    def whole_then_map() -> pa.Table:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            xxhash.xxh3_64_intdigest(view)
        return scan(vx.open(str(path), memory_map=True))

    contenders: dict[str, Callable[[], object]] = {
        "memory_map, unverified": lambda: scan(vx.open(str(path), memory_map=True)),
        "path, unverified": lambda: scan(vx.open(str(path), without_segment_cache=True)),
        "mapped reader, unverified": lambda: scan(vx.open_readable(MappedReader(path, 1 << 18, None))),
        "memory_map + whole-file hash": whole_then_map,
    }
    for chunk in (1 << 16, 1 << 18, 1 << 20):
        digests = digests_of(data, chunk)
        contenders[f"mapped reader, {chunk >> 10} KiB chunks"] = lambda c=chunk, d=digests: scan(
            vx.open_readable(MappedReader(path, c, d))
        )
    digests = digests_of(data, 1 << 18)
    contenders["pread reader, 256 KiB chunks"] = lambda: scan(
        vx.open_readable(PreadReader(path, 1 << 18, digests), without_segment_cache=True)
    )
    reader = MappedReader(path, 1 << 18, digests)
    held = vx.open_readable(reader, without_segment_cache=True)

    def verify_again() -> pa.Table:
        reader.forget()
        return scan(held)

    contenders["mapped reader held open, chunks already verified"] = lambda: scan(held)
    contenders["mapped reader held open, verified again"] = verify_again
    held_map = vx.open(str(path), memory_map=True)
    contenders["memory_map held open, unverified"] = lambda: scan(held_map)
    seconds = alternate(contenders, rounds=15)
    base = seconds["memory_map, unverified"]
    rows = [(name, f"{value * 1e3:.1f}", f"{value / base:.2f}") for name, value in seconds.items()]
    print_table(
        f"Full scan of {ROWS:,} rows, {len(data) / 1e6:.0f} MB, page cache warm",
        ["reader", "ms", "ratio"],
        rows,
    )
    hashing = alternate(
        {
            "whole file": lambda: xxhash.xxh3_64_intdigest(data),
            "256 KiB chunks": lambda: digests_of(memoryview(data), 1 << 18),
            "64 KiB chunks": lambda: digests_of(memoryview(data), 1 << 16),
        }
    )
    rows = [(n, f"{s * 1e3:.2f}", f"{len(data) / s / 1e9:.1f}", f"{s / base:.1%}") for n, s in hashing.items()]
    print_table("Hashing alone (xxh3-64)", ["pieces", "ms", "GB/s", "of a scan"], rows)


def string_columns(path: Path) -> None:
    file = vx.open(str(path), memory_map=True)
    fields = [pa.field(f.name, pa.string() if f.name == "name" else f.type) for f in scan(file).schema]
    schema = pa.schema(fields)
    seconds = alternate(
        {
            "string_view, as Vortex yields": lambda: scan(file),
            "then cast to string": lambda: scan(file).cast(schema),
            "to_arrow(schema=…) asks for string": lambda: file.to_arrow(schema=schema).read_all(),
        },
        rounds=15,
    )
    rows = [(name, f"{value * 1e3:.1f}") for name, value in seconds.items()]
    print_table("Plain strings instead of views, file held open", ["how", "ms"], rows)


def point_reads(path: Path, data: bytes) -> None:
    digests = digests_of(data, 1 << 18)
    mapped = MappedReader(path, 1 << 18, digests)
    files = {
        "memory_map": vx.open(str(path), memory_map=True),
        "mapped reader": vx.open_readable(mapped),
        "mapped reader, no segment cache": vx.open_readable(mapped, without_segment_cache=True),
    }
    footer = files["mapped reader"].footer
    columns = ["id", "customer", "price", "name"]
    position = vx.array(pa.array([ROWS // 2], pa.uint64()))
    contenders: dict[str, Callable[[], object]] = {}
    for name, file in files.items():
        prepared = file.to_repeated_scan(columns)
        contenders[f"scalar_at, {name}"] = per_call(lambda p=prepared: p.scalar_at(ROWS // 2).as_py(), 50)
        contenders[f"indices=, {name}"] = per_call(
            lambda f=file: f.to_arrow(columns, indices=position).read_all().to_pylist(), 50
        )
    contenders["open (footer known) + scalar_at, memory_map"] = per_call(
        lambda: vx.open(str(path), footer=footer, memory_map=True).to_repeated_scan(columns).scalar_at(5).as_py(),
        50,
    )
    contenders["open (footer known) + verify + scalar_at, mapped reader"] = per_call(
        lambda: (
            vx.open_readable(MappedReader(path, 1 << 18, digests), footer=footer)
            .to_repeated_scan(columns)
            .scalar_at(5)
            .as_py()
        ),
        50,
    )
    contenders["open (footer known), mapped reader"] = per_call(
        lambda: vx.open_readable(MappedReader(path, 1 << 18, digests), footer=footer), 50
    )
    seconds = alternate(contenders, rounds=5)
    print_table(
        "One row of four columns as a dict",
        ["path", "µs"],
        [(n, f"{s / 50 * 1e6:.0f}") for n, s in seconds.items()],
    )


def ranges(path: Path, data: bytes) -> None:
    """What Vortex asks for: how many reads and how many bytes, exact and rounded out to chunks."""
    digests = digests_of(data, 1 << 18)
    rows = []
    for name, columns, positions in [
        ("open only", None, None),
        ("one row, four columns", ["id", "customer", "price", "name"], [ROWS // 2]),
        ("100 spread rows, one column", ["price"], list(range(0, ROWS, ROWS // 100))),
        ("one column of all rows", ["price"], None),
        ("everything", ["id", "customer", "price", "noise", "name"], None),
    ]:
        exact, rounded = MappedReader(path, 1 << 18, None), PreadReader(path, 1 << 18, digests)
        for reader in (exact, rounded):
            file = vx.open_readable(reader)
            if columns is not None:
                wanted = None if positions is None else vx.array(pa.array(positions, pa.uint64()))
                file.to_arrow(columns, indices=wanted).read_all()
        largest = max(length for _, length in exact.calls)
        total = [f"{sum(length for _, length in r.calls) / 1024:,.0f}" for r in (exact, rounded)]
        rows.append((name, len(exact.calls), *total, f"{largest / 1024:,.0f}"))
    print_table("Ranges asked for", ["read", "calls", "KiB exact", "KiB in 256 KiB chunks", "largest KiB"], rows)


def errors(path: Path) -> None:
    class Failing(MappedReader):
        def read_at(self, offset: int, length: int) -> memoryview:
            raise OSError("chunk 3 is damaged")

    try:
        vx.open_readable(Failing(path, 1 << 18, None))
    except Exception as error:
        text = str(error).splitlines()[0]
        rows = [("raised in read_at", "OSError"), ("arrives as", f"{type(error).__name__}: {text}")]
        rows.append(("__cause__", error.__cause__))
        print_table("An error inside the reader", ["", ""], rows)


def threads(path: Path, data: bytes) -> None:
    digests = digests_of(data, 1 << 18)
    seen: set[int] = set()
    reader = MappedReader(path, 1 << 18, digests)
    original = reader.verify

    def spy(offset: int, length: int) -> None:
        seen.add(threading.get_ident())
        original(offset, length)

    reader.verify = spy  # type: ignore[method-assign]
    scan(vx.open_readable(reader))
    rows = [("reads come from", f"{len(seen)} threads, main among them: {threading.get_ident() in seen}")]
    print_table("Threads", ["", ""], rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.vortex"
        vx.io.write(make_table(), str(path))
        data = path.read_bytes()
        full_scans(path, data)
        string_columns(path)
        point_reads(path, data)
        ranges(path, data)
        errors(path)
        threads(path, data)


if __name__ == "__main__":
    main()
