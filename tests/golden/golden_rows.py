"""The rows of the golden files, and how the files were made.

`python -m tests.golden.golden_rows NAME` writes a new set into `tests/golden/NAME`.  Old sets stay: they stand for
files that users have, and every later version must read them.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats import write_file
from indexlake.indexes.btree.writer import Entries, segment_content
from indexlake.indexes.keys import KeyColumn
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from indexlake.types import codec_for

ROWS = 500
FOLDER = Path(__file__).parent


def golden_table() -> pa.Table:
    numbers = np.arange(ROWS, dtype=np.int64)
    columns = {
        "f1": pa.array(numbers * 7 - 1000),
        "f2": pa.array([None if n % 11 == 0 else f"word-{n % 40}-é" for n in range(ROWS)], pa.string()),
        "f3": pa.array([float("nan") if n % 50 == 0 else n / 3 for n in range(ROWS)], pa.float64()),
        "f4": pa.array(
            [datetime(2024, 1, 1, tzinfo=UTC).replace(microsecond=n) for n in range(ROWS)], pa.timestamp("us", "UTC")
        ),
        "f5": pa.array([Decimal(n) / 100 for n in range(ROWS)], pa.decimal128(12, 2)),
        "f6": pa.array([date(2020, 1, 1 + n % 28) for n in range(ROWS)], pa.date32()),
        "f7": pa.array([[n, None] if n % 3 else None for n in range(ROWS)], pa.list_(pa.int32())),
        "f8": pa.array([bytes([n % 256]) * 4 for n in range(ROWS)], pa.binary(4)),
        "f9": pa.array([n % 2 == 0 for n in range(ROWS)], pa.bool_()),
        "_indexlake_row_id": pa.array(numbers + 17),
        "_indexlake_snapshot": pa.array(numbers // 100 + 3),
    }
    return pa.table(columns)


def write_golden(name: str) -> None:
    storage = Storage.open(str(FOLDER / name))
    table = golden_table()
    index = {}
    for format in ("vortex", "parquet", "ipc"):
        made = write_file(storage, f"block.{format}", format, table.schema, table.to_batches(100), {"f1": "id"})
        index[f"block.{format}"] = made.checksums.to_bytes().hex()
    keys = KeyColumn.from_arrays([codec_for(pa.int64())], [table.column("f1")])
    index["ints.keys"] = write_keys(storage, "ints.keys", keys)
    words = pa.array([f"key-{n:05}" for n in range(ROWS)])
    keys = KeyColumn.from_arrays([codec_for(pa.string())], [words])
    index["words.keys"] = write_keys(storage, "words.keys", keys)
    (FOLDER / name / "checksums.json").write_text(json.dumps(index, indent=1) + "\n")


def write_keys(storage: Storage, path: str, keys: KeyColumn) -> str:
    with storage.create_file(path) as file:
        for piece in segment_content(Entries(keys, np.arange(ROWS), (0, ROWS))).pieces:
            file.write(piece)
    return file.checksums.to_bytes().hex()


def golden_checksums(name: str) -> dict[str, Checksums]:
    index = json.loads((FOLDER / name / "checksums.json").read_text())
    return {file: Checksums.from_bytes(bytes.fromhex(text)) for file, text in index.items()}


if __name__ == "__main__":
    write_golden(sys.argv[1])
