"""What a vector index refuses: columns, parameters and queries that are wrong, and files that are damaged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import CorruptionError, ExpressionError, IndexLakeError, MissingExtraError, SchemaError
from indexlake.indexes.hnsw.kind import Hnsw
from indexlake.indexes.kind import Part
from indexlake.schema.table_schema import Field
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from tests.indexes.test_hnsw import KIND, Built

pytest.importorskip("faiss")

VECTOR = Field(1, "v", pa.list_(pa.float32(), 3), nullable=True)


def define(*fields: Field, include: Any = (), unique: bool = False, **params: Any) -> dict[str, Any]:
    return KIND.define(fields, include, unique, params)


def test_a_definition_has_defaults() -> None:
    assert define(VECTOR) == {"metric": "l2", "m": 16, "ef_construction": 100, "ef_search": None}
    assert define(VECTOR, metric="cosine", ef_search=40)["ef_search"] == 40


@pytest.mark.parametrize(
    "type",
    [
        pa.float32(),
        pa.string(),
        pa.list_(pa.float32()),
        pa.list_(pa.float64(), 3),
        pa.list_(pa.int8(), 3),
        pa.list_(pa.float32(), 0),
    ],
    ids=str,
)
def test_only_fixed_size_lists_of_small_floats_can_be_indexed(type: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"Column 'c' is .*fixed-size lists of float32 or float16, for example pa"):
        define(Field(1, "c", type, nullable=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": True}, "cannot be unique"),
        ({"include": [VECTOR]}, "cannot include further columns"),
        ({"metric": "hamming"}, "There is no metric 'hamming'; there are l2, cosine, ip."),
        ({"metric": ["l2"]}, "There is no metric"),
        ({"m": 3}, "The parameter 'm' is a whole number from 4 to 128, not 3."),
        ({"m": True}, "The parameter 'm' is a whole number"),
        ({"ef_construction": None}, "The parameter 'ef_construction' is a whole number from 8 to 4096, not None."),
        ({"ef_search": 1.5}, "The parameter 'ef_search' is a whole number"),
        ({"lists": 3}, "An index of kind hnsw has no parameter 'lists'; it has ef_construction, ef_search, m, metric."),
    ],
)
def test_wrong_definitions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        define(VECTOR, **options)


def test_numbers_may_be_of_numpy(storage: Storage) -> None:
    kept = define(VECTOR, m=np.int32(8), ef_construction=np.int64(40), ef_search=np.uint8(20))
    assert kept == {"metric": "l2", "m": 8, "ef_construction": 40, "ef_search": 20}
    assert {type(kept[name]) for name in ("m", "ef_construction", "ef_search")} == {int}
    built = Built(storage, 3)
    assert KIND.query(built.index, [built.field], [1, 0, 0], {"ef": np.int64(9)}).ef == 9


def test_two_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"covers one column of vectors, not 2\. Create an index for each"):
        define(VECTOR, VECTOR)


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'indexlake\[vector\]'") as raised:
        define(VECTOR)
    assert raised.value.extra == "vector"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


@pytest.mark.parametrize(
    "query",
    [
        [1, 2.5, 3],
        (1, 2.5, 3),
        np.array([1, 2.5, 3]),
        np.array([1, 2.5, 3], np.float16),
        pa.array([1, 2.5, 3]),
        pa.chunked_array([[1, 2.5], [3.0]]),
        pa.scalar([1, 2.5, 3], pa.list_(pa.float32(), 3)),
        pa.scalar([1, 2.5, 3], pa.list_(pa.float64())),
        [np.float32(1), 2.5, np.int8(3)],
    ],
    ids=lambda q: type(q).__name__,
)
def test_a_query_may_be_a_list_an_array_or_an_arrow_value(storage: Storage, query: Any) -> None:
    built = Built(storage, 3)
    assert KIND.query(built.index, [built.field], query, {}).vector.tolist() == [1, 2.5, 3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (None, "Column 'v' is searched with a list, .* of 3 numbers, not with null."),
        (pa.scalar(None, pa.list_(pa.float32(), 3)), "not with null"),
        ("1,2,3", "of 3 numbers, not with str."),
        (b"123", "not with bytes."),
        ({1, 2, 3}, "not with set."),
        (5, "not with int."),
        (np.float32(5), "has 0 dimensions"),
        ([1, 2], "The query vector has 2 numbers, but the vectors of column 'v' have 3."),
        ([], "has 0 numbers"),
        ([[1, 2, 3]], "has 2 dimensions. Search for one vector at a time."),
        ([[1, 2], [3]], "not a flat list of numbers"),
        ([1, None, 3], "contains null"),
        (["1", "2", "3"], "something that is not a number"),
        ([True, False, True], "something that is not a number"),
        ([1, 2j, 3], "something that is not a number"),
        ([1, float("nan"), 3], "NaN, infinity or a number too large for float32. Give finite numbers."),
        ([1, float("inf"), 3], "NaN, infinity"),
        ([1, 1e39, 3], "too large for float32"),
        ([1, 10**400, 3], "something that is not a number"),
    ],
)
def test_wrong_queries_are_refused(storage: Storage, query: Any, message: str) -> None:
    built = Built(storage, 3)
    with pytest.raises(ExpressionError, match=message):
        KIND.query(built.index, [built.field], query, {})


def test_a_zero_query_has_no_cosine(storage: Storage) -> None:
    built = Built(storage, 3, metric="cosine")
    with pytest.raises(ExpressionError, match=r"all zeros. It has no direction.*Give another vector"):
        KIND.query(built.index, [built.field], [0, 0, 0], {})
    plain = Built(storage, 3)
    assert KIND.query(plain.index, [plain.field], [0, 0, 0], {}).vector.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nprobe": 3}, r"has no option 'nprobe'; it has ef .* and exact=True."),
        ({"ef": 0}, "The option 'ef' is a whole number from 1 to 65536, not 0."),
        ({"ef": "9"}, "The option 'ef' is a whole number"),
        ({"exact": 1}, "The option 'exact' is True or False, not 1."),
    ],
)
def test_wrong_options_are_refused(storage: Storage, options: dict[str, Any], message: str) -> None:
    built = Built(storage, 3)
    with pytest.raises(ExpressionError, match=message):
        KIND.query(built.index, [built.field], [1, 2, 3], options)


def test_damage_anywhere_in_a_file_is_reported_and_never_searched(storage: Storage, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    built = Built(storage, 8, ef_search=10)
    vectors = rng.standard_normal((12_000, 8)).astype(np.float32)
    vectors[7] = np.nan
    builder = KIND.builder(built.index, [built.field], lasting=True)
    builder.add([built.array(vectors)])
    builder.end_block()
    path, checksums = built.write(builder.content())
    good = (tmp_path / path).read_bytes()
    for place in [0, 9, 40, *rng.integers(0, len(good), 12).tolist(), len(good) - 1]:
        bad = bytearray(good)
        bad[place] ^= 0x10
        (tmp_path / path).write_bytes(bad)
        with pytest.raises(CorruptionError):
            built.search(vectors[0], [Part(KIND.open(built.index, storage.open_file(path, checksums)), None)], 10)
    (tmp_path / path).write_bytes(good[:-1])
    with pytest.raises(CorruptionError):
        KIND.open(built.index, storage.open_file(path, checksums))


def test_a_file_that_contradicts_itself_is_refused_even_if_its_checksums_fit(storage: Storage, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    built = Built(storage, 4, ef_search=8)
    builder = KIND.builder(built.index, [built.field], lasting=True)
    builder.add([built.array(rng.standard_normal((10_000, 4)).astype(np.float32))])
    builder.end_block()
    path, _ = built.write(builder.content())
    good = (tmp_path / path).read_bytes()
    segment = KIND.open(built.index, storage.open_file(path, Checksums.of(good)))
    header = segment._header
    wrong = {
        0: b"PAR1",  # another file
        8: b"\x09",  # a newer version
        10: b"\x02",  # of another metric
        11: b"\x03",  # of no known width
        12: b"\x05",  # the dimension
        32: b"\xff\xff",  # more vectors than slots
        40: b"\xff\xff",  # more vectors than slots that have one
        48: b"\xff\xff\xff",  # the entry is not in the graph
        header.starts.start: b"\x01",
        header.starts.start + 8: b"\x01",
        header.levels.start + 3: b"\x00",
        header.levels.start + 4: b"\x60",
        header.links.start + 4: b"\xff\xff\xff\x7f",
        header.links.start + 8: b"\xfe\xff\xff\xff",
    }
    for place, content in wrong.items():
        bad = good[:place] + content + good[place + len(content) :]
        (tmp_path / path).write_bytes(bad)
        with pytest.raises(CorruptionError, match=r"cannot be read: .*; restore the file or rebuild the index"):
            KIND.open(built.index, storage.open_file(path, Checksums.of(bad))).graph()
    for size in (0, 20, 100):
        (tmp_path / path).write_bytes(good[:size])
        with pytest.raises(CorruptionError):
            KIND.open(built.index, storage.open_file(path, Checksums.of(good[:size])))


def test_a_segment_of_another_dimension_is_not_searched(storage: Storage) -> None:
    three, four = Built(storage, 3), Built(storage, 4)
    with pytest.raises(CorruptionError, match="its vectors have 3 numbers and not 4"):
        four.search([1, 2, 3, 4], [Part(three.segment([[1, 2, 3]]), None)], 1)


def test_opening_reads_little_and_a_search_is_needed_to_read_the_vectors(storage: Storage) -> None:
    built = Built(storage, 64)
    vectors = np.ones((9000, 64), np.float32)
    builder = KIND.builder(built.index, [built.field], lasting=True)
    builder.add([built.array(vectors)])
    builder.end_block()
    path, checksums = built.write(builder.content())
    file = storage.open_file(path, checksums)
    segment = KIND.open(built.index, file)
    assert segment.starts == [0, 9000]
    assert file.bytes_read <= 256 * 1024 < file.size()


def test_every_error_of_the_kind_is_one_of_ours() -> None:
    for given in (object(), [object()], {"a": 1}, np.array(["x"]), [[[]]]):
        built_index = define(VECTOR)
        with pytest.raises(IndexLakeError):
            Hnsw().query(_index(built_index), [VECTOR], given, {})


def _index(params: dict[str, Any]) -> Any:
    from indexlake.indexes.index import Index

    return Index(1, "near", "hnsw", (1,), (), False, params, 1, None, None, 1)
