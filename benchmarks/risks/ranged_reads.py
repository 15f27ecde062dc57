"""OpenDAL ranged reads against pread and a memory map, and parallel ranges of an S3 server on localhost.

The S3 part ends with the real thing: a Vortex scan whose reader fetches chunk-aligned ranges in
parallel, verifies them and hands out slices. Every contender produces the same bytes, hashed.
"""

from __future__ import annotations

import concurrent.futures
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import opendal
import vortex as vx
import xxhash
from measure import alternate, per_call, print_table
from vortex_verify import MappedReader, digests_of, make_table

KEY = SECRET = "indexlake-risk"
CHUNK = 1 << 18


def local(folder: Path, data: bytes) -> None:
    path = folder / "t.vortex"
    operator = opendal.Operator("fs", root=str(folder))
    descriptor = os.open(path, os.O_RDONLY)
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    digest = xxhash.xxh3_64_intdigest
    offset = 1 << 20
    rows = []
    for size in (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 24):
        calls = max(1, min(100, (1 << 25) // size))
        contenders: dict[str, Callable[[], object]] = {
            "opendal": lambda s=size: digest(operator.read("t.vortex", offset=offset, size=s)),
            "pread": lambda s=size: digest(os.pread(descriptor, s, offset)),
            "mmap": lambda s=size: digest(view[offset : offset + s]),
        }
        seconds = alternate({name: per_call(call, calls) for name, call in contenders.items()})
        rows.append((f"{size >> 10} KiB", *(f"{seconds[name] / calls * 1e6:,.1f}" for name in contenders)))
    print_table("Local: µs per ranged read, hashed", ["size", "opendal", "pread", "mmap"], rows)
    os.close(descriptor)


class Server:
    """`rclone serve s3` on a free port of 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        command = [
            shutil.which("rclone", path=beside) or "rclone",
            "serve",
            "s3",
            "--auth-key",
            f"{KEY},{SECRET}",
        ]
        self._process = subprocess.Popen(
            [*command, "--addr", f"127.0.0.1:{self.port}", str(folder)], stderr=subprocess.DEVNULL
        )
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the S3 server did not start")

    def operator(self) -> opendal.Operator:
        return opendal.Operator(
            "s3",
            bucket="bucket",
            endpoint=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            access_key_id=KEY,
            secret_access_key=SECRET,
            disable_config_load="true",
            disable_ec2_metadata="true",
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


class VerifiedRemote:
    """Ranged reads for Vortex: whole chunks, verified, sliced. `options` say how OpenDAL splits a range."""

    def __init__(self, operator: opendal.Operator, size: int, digests: list[int], options: dict[str, int]) -> None:
        self._operator, self._size, self._digests, self._options = operator, size, digests, options

    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, length: int) -> memoryview:
        start, end = offset // CHUNK * CHUNK, min(-(-(offset + length) // CHUNK) * CHUNK, self._size)
        data = memoryview(self._operator.read("t.vortex", offset=start, size=end - start, **self._options))
        for index, begin in enumerate(range(0, len(data), CHUNK), start // CHUNK):
            if xxhash.xxh3_64_intdigest(data[begin : begin + CHUNK]) != self._digests[index]:
                raise OSError(f"chunk {index} is damaged")
        return data[offset - start : offset - start + length]


def remote(folder: Path, data: bytes) -> None:
    server = Server(folder)
    try:
        operator = server.operator()
        digest, size = xxhash.xxh3_64_intdigest, len(data)
        latency = alternate(
            {
                f"{s >> 10} KiB": per_call(lambda s=s: operator.read("t.vortex", offset=CHUNK, size=s), 20)
                for s in (1 << 12, 1 << 16, 1 << 18, 1 << 20)
            }
        )
        rows = [(name, f"{seconds / 20 * 1e3:.2f}") for name, seconds in latency.items()]
        print_table("S3 on localhost: one ranged read", ["size", "ms"], rows)

        def ranges(piece: int, pool: concurrent.futures.Executor) -> int:
            pieces = pool.map(
                lambda start: operator.read("t.vortex", offset=start, size=min(piece, size - start)),
                range(0, size, piece),
            )
            return digest(b"".join(pieces))

        pools = {n: concurrent.futures.ThreadPoolExecutor(n) for n in (1, 4, 8)}
        contenders: dict[str, Callable[[], object]] = {
            "one read": lambda: digest(operator.read("t.vortex")),
            "opendal concurrent=8, chunk=4 MiB": lambda: digest(operator.read("t.vortex", concurrent=8, chunk=4 << 20)),
        }
        for n, pool in pools.items():
            for piece in (1 << 20, 4 << 20):
                contenders[f"{piece >> 20} MiB ranges, {n} threads"] = lambda p=piece, q=pool: ranges(p, q)
        seconds = alternate(contenders)
        print_table(
            f"S3: all {size / 1e6:.0f} MB",
            ["how", "ms", "MB/s"],
            [(name, f"{s * 1e3:.0f}", f"{size / s / 1e6:.0f}") for name, s in seconds.items()],
        )

        digests = digests_of(data, CHUNK)

        def verified(options: dict[str, int], columns: list[str] | None = None) -> object:
            reader = VerifiedRemote(operator, size, digests, options)
            return vx.open_readable(reader, without_segment_cache=True).to_arrow(columns).read_all()

        path = folder / "bucket" / "t.vortex"
        parallel = {"concurrent": 8, "chunk": 4 << 20}
        scans: dict[str, Callable[[], object]] = {
            "local map, verified": lambda: vx.open_readable(MappedReader(path, CHUNK, digests)).to_arrow().read_all(),
            "ranges as Vortex asks": lambda: verified({}),
            "concurrent=8, chunk=4 MiB": lambda: verified(parallel),
            "concurrent=8, chunk=2 MiB": lambda: verified({"concurrent": 8, "chunk": 2 << 20}),
            "concurrent=8, chunk=4 MiB, one column of five": lambda: verified(parallel, ["price"]),
        }
        seconds = alternate(scans)
        rows = [(name, f"{s * 1e3:.0f}") for name, s in seconds.items()]
        print_table("Verified Vortex scan of the same file", ["reader", "ms"], rows)
    finally:
        server.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        bucket = Path(name) / "bucket"
        bucket.mkdir()
        vx.io.write(make_table(), str(bucket / "t.vortex"))
        data = (bucket / "t.vortex").read_bytes()
        local(bucket, data)
        remote(Path(name), data)


if __name__ == "__main__":
    main()
