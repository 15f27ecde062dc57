"""Vortex under threads, after fork and in a Spark Python worker.

Each part compares every row it reads with what was written. Fork runs in a subprocess with a time
limit, because the failure to look for is a hang.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import vortex as vx
from measure import print_table
from vortex_verify import MappedReader, digests_of

ROWS = 200_000


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"id": np.arange(ROWS), "v": rng.integers(0, 1000, ROWS), "f": rng.random(ROWS)})


def write_scan_take(folder: Path, seed: int) -> None:
    expected = table(seed)
    path = folder / f"{seed}.vortex"
    vx.io.write(expected, str(path))
    reader = MappedReader(path, 1 << 18, digests_of(path.read_bytes(), 1 << 18))
    for file in (vx.open(str(path)), vx.open(str(path), memory_map=True), vx.open_readable(reader)):
        assert file.to_arrow().read_all().equals(expected)
        positions = np.unique(np.random.default_rng(seed).integers(0, ROWS, 500))
        taken = file.to_arrow(indices=vx.array(pa.array(positions, pa.uint64()))).read_all()
        assert taken.equals(expected.take(positions))


def with_threads(folder: Path) -> str:
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: write_scan_take(folder, seed), range(48)))
    shared = folder / "0.vortex"
    reader = MappedReader(shared, 1 << 18, digests_of(shared.read_bytes(), 1 << 18))
    file, expected = vx.open_readable(reader), table(0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        same = list(pool.map(lambda _: file.to_arrow().read_all().equals(expected), range(48)))
    return f"all equal: {all(same)} (48 files, one shared by 8 threads; {time.perf_counter() - start:.1f} s)"


def longest_stall(work: Callable[[], object]) -> str:
    """How long the main thread was kept from running while another thread did the work."""
    worker = threading.Thread(target=work)
    stall, start = 0.0, time.perf_counter()
    last = start
    worker.start()
    while worker.is_alive():
        time.sleep(0.0002)
        now = time.perf_counter()
        stall, last = max(stall, now - last), now
    return f"{stall * 1e3:.1f} ms of {(last - start) * 1e3:.0f} ms"


def in_child(work: Callable[[], None], seconds: float = 20) -> str:
    """Fork, run, report: ok, an error, or the hang."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print("   ", type(error).__name__, str(error).splitlines()[0][:100], flush=True)
            os._exit(1)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "works" if status == 0 else f"fails (status {status})"
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"HANGS (killed after {seconds:.0f} s)"


def after_fork(folder: Path) -> list[tuple[str, str]]:
    path = folder / "0.vortex"
    expected = table(0)
    held_map = vx.open(str(path), memory_map=True)
    held_path = vx.open(str(path))
    digests = digests_of(path.read_bytes(), 1 << 18)
    held_reader = vx.open_readable(MappedReader(path, 1 << 18, digests))

    def read(open_file: Callable[[], vx.VortexFile]) -> Callable[[], None]:
        def work() -> None:
            assert open_file().to_arrow().read_all().equals(expected)

        return work

    def one_row() -> None:
        assert held_map.to_repeated_scan().scalar_at(5).as_py()["id"] == 5

    def write() -> None:
        vx.io.write(expected, str(folder / f"child-{os.getpid()}.vortex"))

    cases: list[tuple[str, Callable[[], None]]] = [
        ("scan, file opened in the child (path)", read(lambda: vx.open(str(path)))),
        ("scan, file opened in the child (memory_map)", read(lambda: vx.open(str(path), memory_map=True))),
        (
            "scan, file opened in the child (mapped reader)",
            read(lambda: vx.open_readable(MappedReader(path, 1 << 18, digests))),
        ),
        ("scan of a file held by the parent (path)", read(lambda: held_path)),
        ("scan of a file held by the parent (memory_map)", read(lambda: held_map)),
        ("scan of a file held by the parent (mapped reader)", read(lambda: held_reader)),
        ("scalar_at of a file held by the parent (memory_map)", one_row),
        ("write", write),
    ]
    rows = [(name, in_child(work, 8)) for name, work in cases]
    busy = threading.Event()

    def keep_scanning() -> None:
        while not busy.is_set():
            vx.open(str(path)).to_arrow().read_all()

    scanners = [threading.Thread(target=keep_scanning) for _ in range(4)]
    for scanner in scanners:
        scanner.start()
    results = [in_child(cases[2][1], 8) for _ in range(40)]
    busy.set()
    for scanner in scanners:
        scanner.join()
    summary = ", ".join(f"{results.count(result)} × {result}" for result in sorted(set(results)))
    rows.append(("scan, opened in the child while 4 threads of the parent scan", summary))
    return rows


def in_spark(folder: Path) -> str:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").config("spark.driver.host", "127.0.0.1").getOrCreate()
    target = str(folder)

    def write_and_read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        import vortex

        for batch in batches:
            path = f"{target}/spark-{uuid.uuid4().hex}.vortex"
            vortex.io.write(pa.Table.from_batches([batch]), path)
            back = vortex.open(path, memory_map=True).to_arrow().read_all()
            assert back.equals(pa.Table.from_batches([batch]))
            yield from back.to_batches()

    start = time.perf_counter()
    counts = []
    for _ in range(3):
        frame = spark.range(0, 400_000, 1, 8).mapInArrow(write_and_read, "id long")
        counts.append((frame.count(), frame.selectExpr("sum(id)").first()[0]))
    spark.stop()
    right = set(counts) == {(400_000, sum(range(400_000)))}
    return f"{right} (6 jobs × 8 tasks, {time.perf_counter() - start:.0f} s)"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print_table("Threads", ["write, scan, take", ""], [("8 threads", with_threads(folder))])
        big = pa.concat_tables([table(seed) for seed in range(10)])
        path = str(folder / "big.vortex")
        stalls = [
            ("write", longest_stall(lambda: vx.io.write(big, path))),
            ("scan", longest_stall(lambda: vx.open(path).to_arrow().read_all())),
        ]
        print_table("Longest stall of the main thread meanwhile", ["", ""], stalls)
        rows = after_fork(folder)
        print_table("Child of a process that has used Vortex", ["what", "result"], rows)
        try:
            import pyspark

            rows = [(f"pyspark {pyspark.__version__}: rows right", in_spark(folder))]
        except ImportError:
            rows = [("pyspark", "not installed")]
        print_table("Spark Python worker", ["", ""], rows)


if __name__ == "__main__":
    main()
