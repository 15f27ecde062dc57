"""Windows over two columns find what a scan finds, whatever the types and however odd the numbers."""

from __future__ import annotations

import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import CorruptionError, SchemaError
from indexlake.indexes.kind import Content
from indexlake.indexes.rtree import header
from indexlake.storage.input_file import in_memory
from tests.indexes.rtree_cases import KIND, fields, index_of, matching, opened, probe, segment

F8 = pa.float64()
RNG = np.random.default_rng(13)


def points(count: int) -> list[pa.Array]:
    return [pa.array(RNG.uniform(-180, 180, count)), pa.array(RNG.uniform(-90, 90, count))]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 4096, 4097, 9000])
@pytest.mark.parametrize("lasting", [True, False])
def test_a_window_finds_exactly_its_points(count: int, lasting: bool) -> None:
    columns = points(count)
    made = segment([columns], lasting=lasting)
    for _ in range(20):
        x, y = RNG.uniform(-180, 180, 2).tolist(), RNG.uniform(-90, 90, 2).tolist()
        text = f"x between {min(x)!r} and {max(x)!r} and y > {min(y)!r} and y < {max(y)!r}"
        asked = probe(text, F8, F8)
        assert asked.exact
        assert made.ask(asked).slots().tolist() == matching(text, columns)
        assert made.ask(asked).count >= len(made.ask(asked).slots())


def test_few_leaves_are_counted_exactly_and_many_about() -> None:
    columns = points(20_000)
    made = segment([columns])
    small, large = (probe(f"abs(x) >= 0 and x between 0 and {w} and y between 0 and {w}", F8, F8) for w in (5, 80))
    assert made.ask(small).count == len(made.ask(small).slots()) > 0
    assert len(made.ask(large).slots()) <= made.ask(large).count <= 2 * len(made.ask(large).slots())
    everything = probe("x >= -1000", F8, F8)
    assert made.ask(everything).count == 20_000


def test_only_what_a_window_touches_is_read() -> None:
    columns = points(60_000)
    made = segment([columns])
    made.ask(probe("x between 3 and 4 and y between 3 and 4", F8, F8)).slots()
    assert made._file.bytes_read < made._file.size() / 10


ODD = [0.0, -0.0, 1.0, 1.5, np.nextafter(1.0, 2), -1.0, float("nan"), float("inf"), float("-inf"), None, 5e-324, 1e308]


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", [0.0, 1.0, "'nan'::double", "'inf'::double", "'-inf'::double", 1e308, -1e308])
def test_nan_infinity_and_null_are_found_as_in_sql(op: str, value: object) -> None:
    pairs = [(a, b) for a in ODD for b in ODD]
    columns = [pa.array([pair[side] for pair in pairs], F8) for side in (0, 1)]
    made = segment([columns])
    for text in (
        f"x {op} {value}",
        f"y {op} {value}",
        f"x {op} {value} and y {op} {value}",
        f"x {op} {value} and y <= 1",
    ):
        asked = probe(text, F8, F8)
        if asked is None:  # always true of what is not null
            continue
        found = made.ask(asked).slots().tolist()
        assert found == matching(text, columns), text
        assert made.ask(asked).count >= len(found)


@pytest.mark.parametrize(
    ("type", "values", "bounds"),
    [
        (pa.int64(), [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63), 0, 7, None], [2**53 + 1, 2**63 - 1, 0, 7]),
        (pa.uint64(), [2**64 - 1, 2**64 - 2, 0, 2**53 + 1, None], [2**64 - 1, 2**53 + 1]),
        (pa.int16(), [-5, 0, 3, 4, None], [3, 4]),
        (pa.float32(), [0.1, 0.2, 1.5, float("nan"), None], [0.1, 1.5]),
        (
            pa.decimal128(38, 5),
            [
                Decimal("0.1"),
                Decimal("123456789012345678901234567890.12345"),
                Decimal("123456789012345678901234567890.12346"),
            ]
            + [Decimal(n) / 10**5 for n in range(9007199254740990, 9007199254741000)]
            + [None],
            ["0.1", "123456789012345678901234567890.12345", "90071992547.40995"],
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
def test_no_type_of_number_loses_a_row(type: pa.DataType, values: list[object], bounds: list[object], op: str) -> None:
    columns = [pa.array(values, type), pa.array([0] * len(values), pa.int8())]
    made = segment([columns])
    for bound in bounds:
        text = f"x {op} {bound}"
        asked = probe(text, type, pa.int8())
        found, wanted = made.ask(asked).slots().tolist(), matching(text, columns)
        assert set(wanted) <= set(found)
        if asked.exact:
            assert found == wanted


def test_slots_run_over_all_blocks_and_survive_a_merge() -> None:
    blocks = [points(n) for n in (100, 0, 250, 3)]
    made = segment(blocks)
    assert list(made.starts) == [0, 100, 100, 350, 353]
    other = segment([points(70), points(5)])
    text = "x between -100 and 50 and y >= 0"
    asked = probe(text, F8, F8)
    assert made.ask(asked).slots().tolist() == matching(
        text, [pa.concat_arrays([b[n] for b in blocks]) for n in (0, 1)]
    )
    merged = opened(KIND.merge(index_of(2), [(made, [3, 0]), (other, [1])]))
    assert list(merged.starts) == [0, 3, 103, 108]
    parts = [blocks[3], blocks[0]]
    both = [pa.concat_arrays([b[n] for b in parts]) for n in (0, 1)]
    found = merged.ask(asked).slots()
    assert found[found < 103].tolist() == matching(text, both)
    assert (found[found >= 103] - 103).tolist() == [s - 70 for s in other.ask(asked).slots().tolist() if s >= 70]


def test_odd_rows_survive_a_merge() -> None:
    columns = [pa.array(ODD, F8), pa.array([None, *ODD[1:]], F8)]
    made = segment([columns, points(3), columns])
    merged = opened(KIND.merge(index_of(2), [(made, [2])]))
    for text in ("x >= 1", "y < 5", "x > 0 and y > 0"):
        assert merged.ask(probe(text, F8, F8)).slots().tolist() == matching(text, columns)


def test_a_merge_of_nothing_is_an_empty_segment() -> None:
    merged = opened(KIND.merge(index_of(2), []))
    assert list(merged.starts) == [0]
    assert merged.ask(probe("x > 0", F8, F8)).slots().tolist() == []


def test_a_probe_takes_what_it_can_use_and_says_it() -> None:
    assert probe("x = 1 or y = 1", F8, F8) is None
    assert probe("x is not null", F8, F8) is None
    asked = probe("x between 3 and 5 and y >= 40 and abs(x) > 2", F8, F8)
    assert str(asked) == "x between 3 and 5 and y >= 40"
    assert str(probe("x = 4 and y <= 1.5", F8, F8)) == "x = 4 and y <= 1.5"
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert not probe("x > 3", pa.int64(), pa.int64()).exact


def test_definitions_that_make_no_sense_are_refused() -> None:
    number, text, binary = F8, pa.string(), pa.binary()

    def define(types: list[pa.DataType], **options: object) -> object:
        given = {"include": [], "unique": False, "params": {}, **options}
        return KIND.define(fields(*types), given["include"], given["unique"], given["params"])  # type: ignore[arg-type]

    assert define([number, pa.decimal128(9, 6)]) == {}
    assert define([binary]) == define([pa.large_binary()]) == {}
    with pytest.raises(
        SchemaError, match="needs numbers, but 'y' is of type string\\. It takes two columns of numbers, x and y"
    ):
        define([number, text])
    with pytest.raises(SchemaError, match="needs binary geometries, but 'g' is of type double"):
        define([number])
    with pytest.raises(SchemaError, match="needs numbers, but 'x' is of type binary"):
        define([binary, number])
    with pytest.raises(SchemaError, match="cannot be on 3 columns"):
        KIND.define([*fields(number, number), *fields(binary)], [], False, {})
    with pytest.raises(SchemaError, match="rtree cannot be unique"):
        define([number, number], unique=True)
    with pytest.raises(SchemaError, match="no parameter 'm'; it has none"):
        define([number, number], params={"m": 3})
    with pytest.raises(SchemaError, match="cannot include further columns"):
        define([number, number], include=fields(binary))


def test_damaged_headers_are_refused() -> None:
    content = b"".join(bytes(piece) for piece in _content().pieces)

    def open_(data: bytes) -> object:
        return KIND.open(index_of(2), in_memory([data]))

    for cut in (0, 5, header.HEADER_SIZE - 1, len(content) - 1):
        with pytest.raises(CorruptionError, match="rebuild the index"):
            open_(content[:cut])
    refused = 0
    for place in range(header.HEADER_SIZE):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        try:
            found = open_(bytes(damaged)).ask(probe("x > 0", F8, F8)).slots()  # type: ignore[attr-defined]
            assert len(found) <= 100
        except CorruptionError:
            refused += 1
    assert refused > header.HEADER_SIZE / 2
    with pytest.raises(CorruptionError, match="its version is 9"):
        open_(content[:8] + b"\x09\x00" + content[10:])


def _content() -> Content:
    builder = KIND.builder(index_of(2), fields(F8, F8), lasting=True)
    builder.add(points(100))
    builder.end_block()
    return builder.content()
