"""Reading blocks: exact types, positions, predicates, single rows; the same in every format."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexlake.blocks.formats import write_file
from indexlake.errors import ConstraintError, SchemaError, StorageError
from indexlake.expr import compile
from indexlake.storage import Storage, faults
from indexlake.types.outside import python_value
from tests.blocks.formats.block_files import (
    FORMATS,
    arrays_of_every_type,
    block,
    everything,
    reopen,
    same,
    same_values,
    sample,
    write,
)

ROWS = 150_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return sample(ROWS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return Storage.open(str(tmp_path_factory.mktemp("blocks")))


@pytest.fixture(scope="module", params=FORMATS)
def reader(request: pytest.FixtureRequest, shared: Storage, table: pa.Table):  # type: ignore[no-untyped-def]
    return block(shared, request.param, table, request.param)


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_comes_back_exactly(shared: Storage, format: str) -> None:
    for name, array in arrays_of_every_type():
        table = pa.table([array], schema=pa.schema([pa.field("f1", array.type)]))
        reader = block(shared, format, table, f"{format}-types/{name}")
        assert same(everything(reader, ["f1"])["f1"], array), name
        for order in ([0], [len(array) - 1, 0, 0]):
            taken = reader.take(np.array(order), ["f1"])["f1"]
            assert taken.type.equals(array.type, check_metadata=True), name
            for index, position in enumerate(order):
                assert same_values(taken.slice(index, 1), array.slice(position, 1)), name


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_equals_what_arrow_gives(shared: Storage, format: str) -> None:
    for name, array in arrays_of_every_type():
        table = pa.table([array, array], schema=pa.schema([(name, array.type) for name in ("f1", "f2")]))
        reader = block(shared, format, table, f"{format}-rows/{name}")
        for position in range(len(array)):
            try:
                expected = table.slice(position, 1).to_pylist()[0]
            except (ValueError, OverflowError, pa.ArrowException):
                continue  # a time that Python has no value for
            if isinstance(python_value(array[position]), pa.Scalar):  # Python would hold another value
                with pytest.raises(ConstraintError, match="a time that Python cannot represent"):
                    reader.row(position, ["f1", "f2"])
                continue
            row = reader.row(position, ["f1", "f2"])
            assert repr(row) == repr(expected), name
            assert [type(value) for value in row.values()] == [type(value) for value in expected.values()], name


def test_not_null_and_sliced_columns_come_back(shared: Storage, table: pa.Table) -> None:
    schema = pa.schema([pa.field("f1", pa.int64(), nullable=False), pa.field("f2", pa.list_(pa.string()))])
    whole = pa.record_batch([pa.array(range(100)), pa.array([[str(i)] * (i % 3) for i in range(100)])], schema=schema)
    for format in FORMATS:
        written = write_file(shared, f"sliced.{format}", format, schema, [whole.slice(10, 30), whole.slice(70, 5)], {})
        rows = everything(reopen(shared, written, format, schema), ["f2", "f1"])
        assert rows.schema == pa.schema([schema.field("f2"), schema.field("f1")])
        assert rows["f1"].to_pylist() == [*range(10, 40), *range(70, 75)]
        assert rows["f2"].to_pylist() == [[str(i)] * (i % 3) for i in [*range(10, 40), *range(70, 75)]]


def test_a_scan_gives_all_rows_in_order_in_batches_of_bounded_size(reader, table: pa.Table) -> None:  # type: ignore[no-untyped-def]
    assert reader.row_count == ROWS
    batches = list(reader.read(table.column_names, batch_rows=20_000))
    assert max(batch.num_rows for batch in batches) <= 20_000
    assert min(batch.num_rows for batch in batches) > 0
    assert pa.Table.from_batches(batches).equals(table)
    assert everything(reader, ["f3", "f1"]).equals(table.select(["f3", "f1"]))


def test_batches_without_columns_still_count_rows(reader) -> None:  # type: ignore[no-untyped-def]
    assert sum(batch.num_rows for batch in reader.read([])) == ROWS
    assert sum(batch.num_rows for batch in reader.read([], np.arange(5, 80_000, dtype=np.uint64))) == 79_995
    predicate = compile("f4 < 100", reader.schema)
    expected = everything(reader, ["f4"], predicate=predicate).num_rows
    assert 0 < expected < ROWS
    assert sum(batch.num_rows for batch in reader.read([], predicate=predicate)) == expected


@pytest.mark.parametrize("kind", ["none", "one", "few", "half", "most", "last", "all", "run"])
def test_positions_select_rows(reader, table: pa.Table, kind: str) -> None:  # type: ignore[no-untyped-def]
    random = np.random.default_rng(1)
    counts = {"none": 0, "one": 1, "few": 50, "half": ROWS // 2, "most": ROWS * 99 // 100, "all": ROWS}
    if kind in counts:
        positions = np.sort(random.choice(ROWS, counts[kind], replace=False)).astype(np.uint64)
    else:
        positions = (
            np.arange(ROWS - 1, ROWS, dtype=np.uint64) if kind == "last" else np.arange(7, 99_000, dtype=np.uint64)
        )
    expected = table.take(pa.array(positions))
    assert everything(reader, table.column_names, positions=positions).equals(expected)
    predicate = compile("f4 < 300 and f3 like 'name-1%'", table.schema)
    found = everything(reader, ["f1", "f2"], positions=positions, predicate=predicate)
    assert found.equals(expected.filter(predicate.mask(expected)).select(["f1", "f2"]))


@pytest.mark.parametrize("within", [ROWS, 1_000], ids=["scattered", "close together"])
@pytest.mark.parametrize("count", [16, 17, 24, 25, 60, 120, 400])
def test_some_rows_are_the_same_one_by_one_and_together(reader, table: pa.Table, count: int, within: int) -> None:  # type: ignore[no-untyped-def]
    random = np.random.default_rng(count)
    positions = np.sort(random.choice(within, count, replace=False)).astype(np.uint64)
    expected = table.take(pa.array(positions))
    for columns in (["f3", "f1", "f4"], table.column_names):  # times are never read one by one
        batches = list(reader.read(columns, positions))
        assert pa.Table.from_batches(batches).equals(expected.select(columns))
    predicate = compile("f4 < 500", table.schema)
    found = everything(reader, ["f3"], positions=positions, predicate=predicate)
    assert found.equals(expected.filter(predicate.mask(expected)).select(["f3"]))


def test_some_rows_of_a_vortex_block_come_in_one_batch(shared: Storage, table: pa.Table) -> None:
    reader = block(shared, "vortex", table, "one-batch")
    assert len(list(reader.read(table.column_names, np.arange(0, ROWS, 150, dtype=np.uint64)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "f4 = 5",
        "f4 in (1, 2, 3) or f1 is null",
        "f3 = 'name-77-77'",
        "f3 like '%99'",
        "f2 > 0.999 and f4 <> 4",
        "f5 >= timestamptz '1970-01-01 00:02:00+00'",
        "f1 + f4 < 1000000000",
        "f4 > 5000",
        "f1 is distinct from 3",
        "f4 < 10 is null",
    ],
)
def test_a_predicate_gives_exactly_its_rows(reader, table: pa.Table, text: str) -> None:  # type: ignore[no-untyped-def]
    predicate = compile(text, table.schema)
    expected = table.filter(predicate.mask(table))
    assert everything(reader, ["_indexlake_row_id", "f3"], predicate=predicate).equals(
        expected.select(["_indexlake_row_id", "f3"])
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "text", ["f1 > 5", "f1 >= 100", "f1 = 0", "f1 < 1", "f1 <= 'nan'::double", "f1 = 'nan'::double"]
)
def test_nan_and_zero_are_not_pruned_away(shared: Storage, format: str, text: str) -> None:
    values = [1.0] * 70_000 + [float("nan"), -0.0, 0.0, None, -float("inf")] + [2.0] * 70_000
    table = pa.table({"f1": pa.array(values, pa.float64())})
    predicate = compile(text, table.schema)
    reader = block(shared, format, table, f"nan/{format}/{abs(hash(text))}")
    found = everything(reader, ["f1"], predicate=predicate)["f1"]
    assert same(found, table["f1"].combine_chunks().filter(predicate.mask(table)))


def test_taking_keeps_order_and_repetition(reader, table: pa.Table) -> None:  # type: ignore[no-untyped-def]
    for positions in (
        [],
        [5],
        [149_999, 0, 0, 70_000, 5, 70_000],
        list(range(300)),
        np.array([3, 1], np.int64),
    ):
        taken = reader.take(positions, ["f3", "f1", "f5"])
        assert taken.equals(table.take(pa.array(positions, pa.int64())).select(["f3", "f1", "f5"]))
        assert reader.take(positions, []).num_rows == len(positions)


def test_a_position_outside_the_file_is_an_error(reader) -> None:  # type: ignore[no-untyped-def]
    for call in (
        lambda: list(reader.read(["f1"], np.array([ROWS], np.uint64))),
        lambda: reader.take([0, ROWS], ["f1"]),
        lambda: reader.take([ROWS], ["f1"]),
        lambda: reader.row(ROWS, ["f1"]),
    ):
        with pytest.raises(IndexError, match=f"has {ROWS} rows"):
            call()


def test_locations_lead_to_the_row(shared: Storage, table: pa.Table) -> None:
    written = {format: write(shared, f"located.{format}", format, table) for format in FORMATS}
    opened = {format: reopen(shared, written[format], format, table.schema) for format in FORMATS}
    folder = Path(shared.root)
    for position in (0, 65_535, 65_536, 149_999):
        assert opened["vortex"].location(position) == f"0:{position}"
        group, offset = map(int, opened["parquet"].location(position).split(":"))
        rows = pq.ParquetFile(folder / "located.parquet").read_row_group(group)
        assert rows["_indexlake_row_id"][offset].as_py() == position
        batch, offset = map(int, opened["ipc"].location(position).split(":"))
        with pa.memory_map(str(folder / "located.ipc")) as source:
            assert pa.ipc.open_file(source).get_batch(batch)["_indexlake_row_id"][offset].as_py() == position


def test_other_programs_read_the_files(shared: Storage, table: pa.Table) -> None:
    import vortex

    written = {format: write(shared, f"other.{format}", format, table) for format in FORMATS}
    assert {info.row_count for info in written.values()} == {ROWS}
    folder = Path(shared.root)
    parquet = pq.ParquetFile(folder / "other.parquet")
    assert parquet.read().equals(table)
    assert parquet.metadata.metadata[b"f1"] == b"one"
    assert max(parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)) <= 65_536
    column = parquet.metadata.row_group(0).column(0)
    assert (column.compression, column.is_stats_set, column.has_column_index) == ("ZSTD", True, True)
    with pa.memory_map(str(folder / "other.ipc")) as source:
        arrow = pa.ipc.open_file(source)
        assert arrow.schema.metadata[b"f1"] == b"one"
        assert arrow.read_all().replace_schema_metadata().equals(table)
    assert len(vortex.open(str(folder / "other.vortex"))) == ROWS


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["local", "memory", "s3"])
def test_a_block_reads_the_same_from_every_storage(
    tmp_path: Path, table: pa.Table, format: str, place: str, request: pytest.FixtureRequest
) -> None:
    storage = open_storage(place, tmp_path, request)
    reader = block(storage, format, table)
    assert everything(reader, table.column_names).equals(table)
    assert reader.row(70_000, table.column_names) == table.slice(70_000, 1).to_pylist()[0]
    for count in (10, 500):
        positions = np.linspace(0, ROWS - 1, count).astype(np.uint64)
        found = everything(reader, table.column_names, positions=positions)
        assert found.equals(table.take(pa.array(positions)))
    assert list(storage.list("nothing")) == []
    assert [info.path for info in storage.list()] == ["block"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["local", "memory", "s3"])
def test_position_reads_fetch_only_what_holds_them(
    tmp_path: Path, format: str, place: str, request: pytest.FixtureRequest
) -> None:
    wide = sample(300_000)
    random = np.random.default_rng(3)
    columns = {f"f{i}": pa.array(random.integers(0, 1 << 60, 300_000)) for i in range(6, 14)}
    wide = pa.table({**{name: wide[name] for name in wide.column_names}, **columns})
    storage = open_storage(place, tmp_path, request)
    written = write(storage, "block", format, wide)
    assert written.size > 16_000_000

    def fetched(read) -> int:  # type: ignore[no-untyped-def]
        reader = reopen(storage, written, format, wide.schema)
        before = reader.bytes_read
        read(reader)
        return int(reader.bytes_read - before)

    one_column = fetched(lambda reader: reader.take([150_000], ["f7"]))
    assert one_column < written.size / 13
    assert fetched(lambda reader: reader.row(150_000, ["f7"])) < written.size / 13
    one_row = fetched(lambda reader: list(reader.read(wide.column_names, np.array([150_000], np.uint64))))
    assert one_row < written.size * 0.6
    near = fetched(lambda reader: list(reader.read(["f7"], np.arange(150_000, 150_100, dtype=np.uint64))))
    assert near < written.size / 13
    everything_read = fetched(lambda reader: list(reader.read(wide.column_names)))
    assert written.size * 0.95 < everything_read + 600_000 < written.size * 1.2


def test_row_groups_that_cannot_match_are_not_fetched(shared: Storage, table: pa.Table) -> None:
    written = write(shared, "pruned", "parquet", table)
    reader = reopen(shared, written, "parquet", table.schema)
    before = reader.bytes_read
    predicate = compile("_indexlake_row_id = 149000", table.schema)
    assert everything(reader, table.column_names, predicate=predicate).num_rows == 1
    assert reader.bytes_read - before < written.size / 3


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_block_is_a_block(shared: Storage, table: pa.Table, format: str) -> None:
    reader = block(shared, format, table.slice(0, 0), f"empty/{format}")
    assert reader.row_count == 0
    assert everything(reader, ["f1"]).num_rows == 0
    assert reader.take([], ["f1"]).num_rows == 0


def test_one_reader_serves_many_threads(reader, table: pa.Table) -> None:  # type: ignore[no-untyped-def]
    random = np.random.default_rng(7)

    def work(seed: int) -> bool:
        positions = random.integers(0, ROWS, 20)
        if seed % 3 == 0:
            return bool(everything(reader, ["f1", "f3"]).equals(table.select(["f1", "f3"])))
        if seed % 3 == 1:
            return bool(
                reader.take(positions, ["f3", "f4"]).equals(table.select(["f3", "f4"]).take(pa.array(positions)))
            )
        at = int(positions[0])
        return bool(reader.row(at, ["f1", "f3"]) == table.select(["f1", "f3"]).slice(at, 1).to_pylist()[0])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(60)))


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_in_the_source_of_rows_leaves_no_file(shared: Storage, table: pa.Table, format: str) -> None:
    class Stop(Exception):
        pass

    def rows() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(50_000)
        raise Stop("the source failed")

    with pytest.raises(Stop, match="the source failed"):
        write_file(shared, f"failed/{format}", format, table.schema, rows(), {})
    assert list(shared.list("failed")) == []
    with pytest.raises(SchemaError, match="has the columns"):
        write_file(shared, f"failed/{format}", format, table.schema, table.select(["f1"]).to_batches(), {})
    assert list(shared.list("failed")) == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_while_writing_a_block_is_a_storage_error(tmp_path: Path, table: pa.Table, format: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        storage = Storage.open(str(small))
        with pytest.raises(StorageError, match="cannot write 'block': the disk is full"):
            write(storage, "block", format, table)
        assert list(storage.list()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("failing", range(1, 16))
@pytest.mark.parametrize("format", FORMATS)
def test_a_passing_read_error_does_not_stick(shared: Storage, table: pa.Table, format: str, failing: int) -> None:
    path = f"passing/{format}/{failing}"
    reader = block(shared, format, table, path)
    previous = faults.install(faults.from_text(f"storage.read:{failing}=error"))
    told = None
    try:
        everything(reader, table.column_names)
    except StorageError as error:
        told = str(error)
    finally:
        faults.install(previous)
    assert (failing > 1 and told is None) or f"cannot read {path!r}" in str(told)
    assert everything(reader, table.column_names).equals(table)
    assert reader.row(17, table.column_names) == table.slice(17, 1).to_pylist()[0]


def test_an_unknown_format_is_refused(shared: Storage, table: pa.Table) -> None:
    with pytest.raises(SchemaError, match="'orc' is not known; use one of vortex, parquet, ipc"):
        write(shared, "x", "orc", table)


ABANDON = """
import os, sys
import pyarrow as pa
from indexlake.storage import Storage
from indexlake.blocks.formats import open_reader, write_file
storage = Storage.open(sys.argv[1])
table = pa.table({f"f{i}": pa.array(range(500_000)) for i in range(4)})
written = write_file(storage, f"b{os.getpid()}", sys.argv[2], table.schema, table.to_batches(65536), {})
reader = open_reader(storage, written.path, sys.argv[2], written.size, written.checksums, table.schema)
rows = reader.read(table.column_names)
print(next(rows).num_rows > 0)
"""


@pytest.mark.parametrize("format", FORMATS)
def test_a_process_may_end_in_the_middle_of_a_scan(tmp_path: Path, format: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABANDON, str(tmp_path), format],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def open_storage(place: str, folder: Path, request: pytest.FixtureRequest) -> Storage:
    if place == "local":
        return Storage.open(str(folder / "lake"))
    if place == "memory":
        return Storage.open("memory://")
    server = request.getfixturevalue("s3")
    return Storage.open(f"s3://{server.bucket()}/prefix", server.options)
