"""Statistics in Arrow blocks: in front of every batch, right for every type, and no reason to miss a row."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from indexlake.blocks.formats import BlockReader, WrittenFile
from indexlake.blocks.formats.ipc import BATCH_ROWS, STATISTICS
from indexlake.blocks.statistics import StatisticsBuilder, stats_from_bytes
from indexlake.errors import CorruptionError
from indexlake.expr import compile
from indexlake.storage import Storage
from tests.blocks.formats.block_files import (
    arrays_of_every_type,
    block,
    everything,
    reopen,
    same_values,
    sample,
    write,
)

ROWS = 40_000
BYTES_READ_AT_MOST = 4 * 262_144  # of checksums: what one read widens to


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return Storage.open(str(tmp_path_factory.mktemp("statistics")))


def statistics_of(rows: Any) -> Any:
    builder = StatisticsBuilder(rows.schema)
    builder.add(rows)
    return builder.finish()


def run_of(value: Any, length: int) -> Any:
    while len(value) < length:
        value = pa.concat_arrays([value, value])
    return value[:length]


@pytest.mark.parametrize("rows", [20_000, 40_000])
def test_every_batch_has_the_statistics_of_its_rows_in_front_of_it(storage: Storage, rows: int) -> None:
    for name, values in arrays_of_every_type():
        length = rows // len(values) + 1
        array = pa.concat_arrays([run_of(values.slice(n, 1), length) for n in range(len(values))])[:rows]
        table = pa.table([array], schema=pa.schema([("f1", array.type)]))
        written = write(storage, f"{rows}/{name}", "ipc", table)
        with pa.memory_map(str(Path(storage.root) / written.path)) as source:
            file = pa.ipc.open_file(source)
            found = [file.get_batch_with_custom_metadata(index) for index in range(file.num_record_batches)]
        at = 0
        for batch, metadata in found[:-1]:
            assert batch.num_rows, name
            expected = statistics_of(table.slice(at, batch.num_rows))
            assert stats_from_bytes(metadata[STATISTICS]) == expected, name
            at += batch.num_rows
        assert (at, found[-1].batch.num_rows) == (rows, 0), name


def awkward(seed: int) -> pa.Table:
    """Sorted by `f1` and `f2`; runs of nulls, of one value and of values that are hard to order."""
    random = np.random.default_rng(seed)
    long = "the same beginning of many values, longer than a bound: "
    run = np.arange(ROWS) // 700
    floats = [float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 1.5, -2.25, None]
    texts = ["", "\0", "a", long, long + "a", long + "b", "\U0010ffff" * 9, "ü", None]
    octets = [b"", b"\xff" * 31, b"\xff" * 32, b"\xff" * 33, b"\xff" * 40 + b"a", None]
    picks = random.integers(0, 1000, run[-1] + 1)
    begin = datetime(2020, 1, 1)
    columns: dict[str, Any] = {
        "f1": pa.array(np.sort(random.integers(-(10**9), 10**9, ROWS))),
        "f2": pa.array(sorted(str(UUID(bytes=random.bytes(16))) for _ in range(ROWS))),
        "f3": pa.array([floats[picks[i] % len(floats)] for i in run], pa.float64()),
        "f4": pa.array([texts[picks[i] % len(texts)] for i in run], pa.string()),
        "f5": pa.array([octets[picks[i] % len(octets)] for i in run], pa.binary()),
        "f6": pa.array([texts[picks[i] % len(texts)] for i in run]).dictionary_encode(),
        "f7": pa.array([Decimal(int(picks[i])) / 100 for i in run], pa.decimal128(20, 2)),
        "f8": pa.array([begin + timedelta(hours=int(picks[i])) for i in run], pa.timestamp("us")),
        "f9": pa.array([[int(picks[i])] if picks[i] % 3 else None for i in run], pa.list_(pa.int32())),
        "f10": pa.array([{"a": int(picks[i])} if picks[i] % 3 else None for i in run]),
        "f11": pa.array([UUID(int=int(picks[i])) if picks[i] % 4 else None for i in run], pa.uuid()),
        "f12": pa.array([bool(picks[i] % 2) if picks[i] % 5 else None for i in run]),
        "f13": pa.array(texts * (ROWS // len(texts) + 1), pa.string_view())[:ROWS],
        "f14": pa.array((picks[run] << 54).astype(np.uint64)),
        "f15": pa.array(picks[run] - random.integers(0, 2, ROWS)),
    }
    return pa.table(columns)


def predicates(random: np.random.Generator, table: pa.Table) -> str:
    """A predicate of one to three comparisons, mostly with values that are there."""
    parts = []
    for _ in range(random.integers(1, 4)):
        name = str(random.choice(table.column_names))
        compared = str(random.choice(["=", "<", "<=", ">", ">=", "<>"]))
        value = table[name][int(random.integers(len(table)))].as_py()
        if random.random() < 0.2 or value is None:
            parts.append(f"{name} is {random.choice(['', 'not '])}null")
        elif name == "f9":
            parts.append(f"list_contains(f9, {value[0]})")
        elif name == "f10":
            parts.append(f"f10.a {compared} {value['a']}")
        elif name == "f12":
            parts.append(f"{random.choice(['', 'not '])}f12")
        else:
            others = [table[name][int(n)].as_py() for n in random.integers(0, len(table), 6)]
            among = ", ".join(literal(each) for each in others if each is not None)
            listed = random.random() < 0.3 and among
            parts.append(f"{name} in ({among})" if listed else f"{name} {compared} {literal(value)}")
    return f" {random.choice(['and', 'or'])} ".join(parts)


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::blob"
    if isinstance(value, float):
        return f"'{value}'::double"
    if isinstance(value, datetime):
        return f"timestamp '{value}'"
    if isinstance(value, UUID):
        return f"'{value}'::uuid"
    if isinstance(value, str):
        return "chr(0)" if value == "\0" else f"'{value}'"
    return str(value)


def times_pruned(reader: BlockReader, table: pa.Table, seed: int) -> int:
    """Check that random predicates give the right rows, and return how many of 120 dropped a part of the block."""
    random = np.random.default_rng(seed)
    pruned = 0
    for _ in range(120):
        text = predicates(random, table)
        predicate = compile(text, table.schema)
        expected = table.select(["f1", "f2"]).filter(predicate.mask(table))
        assert everything(reader, ["f1", "f2"], predicate=predicate).equals(expected), text
        survivors = reader.surviving(predicate)
        pruned += survivors is not None and not survivors.all()
    return pruned


@pytest.mark.parametrize("rows", [ROWS, 30_000], ids=["compressed", "mapped"])
@pytest.mark.parametrize("seed", range(3))
def test_a_predicate_never_loses_a_row(storage: Storage, rows: int, seed: int) -> None:
    part = awkward(seed).slice(0, rows)
    reader = block(storage, "ipc", part, f"random/{rows}/{seed}")
    pruned = times_pruned(reader, part, seed)
    assert pruned > 10  # of a mapped file, which has four batches only


@pytest.mark.parametrize("column", ["f1", "f2"])
def test_a_key_reads_only_the_batch_that_may_hold_it(storage: Storage, column: str) -> None:
    table = awkward(1)
    reader: Any = block(storage, "ipc", table, f"keys/{column}")
    for at in (0, 1, BATCH_ROWS - 1, BATCH_ROWS, 20_000, ROWS - 1):
        key = table[column][at].as_py()
        predicate = compile(f"{column} = ?", table.schema, [key])
        assert np.flatnonzero(reader._chunks.surviving(predicate)).tolist() == [at // BATCH_ROWS]
        assert everything(reader, [column], predicate=predicate)[column].to_pylist() == [key]
        ranged = compile(f"{column} >= ?", table.schema, [key])
        assert reader._chunks.surviving(ranged).sum() == -(-ROWS // BATCH_ROWS) - at // BATCH_ROWS


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_key_or_a_run_of_positions_fetches_little_of_the_file(tmp_path: Path, place: str) -> None:
    storage = Storage.open("memory://" if place == "memory" else str(tmp_path))
    table = sample(300_000)
    written = write(storage, "block", "ipc", table)
    assert written.size > 8 * BYTES_READ_AT_MOST

    def fetched(**wanted: Any) -> tuple[pa.Table, int]:
        reader = reopen(storage, written, "ipc", table.schema)
        before = reader.bytes_read
        return everything(reader, table.column_names, **wanted), reader.bytes_read - before

    rows, size = fetched(predicate=compile("_indexlake_row_id = 123456", table.schema))
    assert rows.equals(table.slice(123_456, 1))
    assert size <= BYTES_READ_AT_MOST
    rows, size = fetched(positions=np.arange(200_000, 201_000, dtype=np.uint64))
    assert rows.equals(table.slice(200_000, 1000))
    assert size <= BYTES_READ_AT_MOST


def without_statistics(storage: Storage, path: str, table: pa.Table, small: bool) -> BlockReader:
    marks = {"indexlake.batch_rows": "8192" if small else "65536"} | ({"indexlake.small": "true"} if small else {})
    options = pa.ipc.IpcWriteOptions(compression=None if small else "lz4")
    schema = table.schema.with_metadata(marks)
    with storage.create_file(path) as out:
        with pa.ipc.new_file(pa.PythonFile(out, mode="w"), schema, options=options) as writer:
            for batch in table.combine_chunks().to_batches(8192 if small else 65536):
                writer.write_batch(batch)
        out.close()
    written = WrittenFile(path, out.checksums.size, out.checksums, table.num_rows)
    return reopen(storage, written, "ipc", table.schema)


@pytest.mark.parametrize("rows", [1, 8192, 20_000, 65_536, 150_000])
@pytest.mark.parametrize("small", [True, False])
def test_a_file_without_statistics_is_read_as_well(storage: Storage, rows: int, small: bool) -> None:
    table = sample(rows)
    reader = without_statistics(storage, f"old/{rows}/{small}", table, small)
    assert reader.row_count == rows
    assert everything(reader, table.column_names).equals(table)
    assert reader.row(rows - 1, ["f3", "f1"]) == table.select(["f3", "f1"]).slice(rows - 1).to_pylist()[0]
    predicate = compile(f"_indexlake_row_id = {rows - 1}", table.schema)
    assert everything(reader, ["f3"], predicate=predicate).equals(table.select(["f3"]).slice(rows - 1))


def test_damage_is_found_by_whoever_reads_the_batch_and_by_nobody_else(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    table = sample(200_000)
    written = write(storage, "block", "ipc", table)
    random = np.random.default_rng(3)
    refused = 0
    with open(tmp_path / "block", "r+b", buffering=0) as file:
        data = file.read()
        for at in random.integers(1000, len(data) - 600_000, 20).tolist():
            os.pwrite(file.fileno(), bytes([data[at] ^ (1 << int(random.integers(8)))]), at)
            reader = reopen(storage, written, "ipc", table.schema)
            for row in range(0, table.num_rows, 9_000):
                predicate = compile(f"_indexlake_row_id = {row}", table.schema)
                try:
                    one = reader.row(row, ["f3"])
                    found = everything(reader, table.column_names, predicate=predicate)
                except CorruptionError:
                    refused += 1
                    continue
                assert found.equals(table.slice(row, 1))
                assert one == {"f3": table["f3"][row].as_py()}
            with pytest.raises(CorruptionError):
                everything(reader, ["f3", "f1", "f2", "f4", "f5", "_indexlake_row_id"])
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert 0 < refused < 20 * 23 / 4


def test_rows_of_many_batches_come_joined_and_in_the_order_of_the_columns(storage: Storage) -> None:
    table = awkward(2)
    reader = block(storage, "ipc", table, "joined")
    batches = list(reader.read(["f4", "f1", "f13"], batch_rows=10_000))
    assert [batch.num_rows for batch in batches[:-1]] == [10_000 // BATCH_ROWS * BATCH_ROWS] * (len(batches) - 1)
    for name in ("f4", "f1", "f13"):
        assert same_values(pa.Table.from_batches(batches)[name].combine_chunks(), table[name].combine_chunks())
    spread = np.arange(5, ROWS, 997, dtype=np.uint64)
    (found,) = reader.read(["f2", "f1"], positions=spread)
    assert found.column("f1").equals(table["f1"].combine_chunks().take(pa.array(spread)))
