"""What single-bit flips do to a Vortex file read unverified, and to one read through the checking reader.

Every flip is read in a subprocess of its own batch, because some abort the process. A batch that dies
is resumed after the flip that killed it.
"""

from __future__ import annotations

import collections
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import vortex as vx
from measure import print_table
from vortex_verify import MappedReader, digests_of

FLIPS = 400
ROWS = 3_000
CHUNK = 1 << 12


def table() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "price": np.round(rng.random(ROWS) * 100, 2),
            "name": [f"customer-{i % 211}" for i in range(ROWS)],
            "count": rng.integers(0, 5000, ROWS),
        }
    )


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def child(mode: str, original: Path, bits: list[int]) -> None:
    expected, data = table(), original.read_bytes()
    digests = digests_of(data, CHUNK)
    path = original.with_suffix(".flipped")
    for bit in bits:
        print(f"start {bit}", flush=True)
        path.write_bytes(flipped(data, bit))
        try:
            if mode == "unverified":
                file = vx.open(str(path))
            else:
                file = vx.open_readable(MappedReader(path, CHUNK, digests))
            rows = file.to_arrow(schema=expected.schema).read_all()
            rows.validate(full=True)
            result = "right rows" if rows.equals(expected) else "WRONG ROWS"
        except BaseException as error:
            if "is damaged" in str(error):
                result = "damage reported"
            else:
                result = "error" if isinstance(error, Exception) else "panic"
        print(f"done {bit} {result}", flush=True)


def campaign(mode: str, original: Path, bits: list[int]) -> collections.Counter[str]:
    results: collections.Counter[str] = collections.Counter()
    left = bits
    while left:
        command = [sys.executable, __file__, mode, str(original), *map(str, left)]
        seen, running = 0, False
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30 + len(left) * 0.5)
            output, ending = done.stdout, f"PROCESS DIED ({done.returncode})"
        except subprocess.TimeoutExpired as late:
            output, ending = (late.stdout or b"").decode(), "HANG"
        for line in output.splitlines():
            if line.startswith("start "):
                seen, running = seen + 1, True
            elif line.startswith("done "):
                running = False
                results[line.split(" ", 2)[2]] += 1
        if running:
            results[ending] += 1
        if seen == 0:
            raise RuntimeError(f"the child did not start: {ending}")
        left = left[seen:]
    return results


def main() -> None:
    if len(sys.argv) > 1:
        child(sys.argv[1], Path(sys.argv[2]), [int(bit) for bit in sys.argv[3:]])
        return
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "t.vortex"
        vx.io.write(table(), str(original))
        size = original.stat().st_size
        bits = random.Random(5).sample(range(size * 8), FLIPS)
        rows = []
        for mode in ("unverified", "verified"):
            results = campaign(mode, original, bits)
            rows += [(mode, result, count) for result, count in results.most_common()]
        print_table(f"{FLIPS} single-bit flips of a {size:,}-byte file", ["reader", "outcome", "flips"], rows)


if __name__ == "__main__":
    main()
