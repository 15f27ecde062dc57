"""Which Arrow types Vortex stores as they are, changes, or refuses; and whether floats keep every bit.

Also: which temporal values make the writer panic, and whether equal tables give equal bytes.
"""

from __future__ import annotations

import decimal
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import vortex as vx
import xxhash
from measure import print_table

ONES = [1, None, 2]
PRIMITIVE = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms")),
    *(pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ns", "Europe/Berlin")),
    *(pa.duration("s"), pa.duration("ns")),
]
DECIMAL = [
    *(pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(9, 2), pa.decimal128(38, 2)),
    *(pa.decimal256(20, 2), pa.decimal256(38, 2), pa.decimal256(39, 2), pa.decimal256(76, 2)),
    pa.decimal128(10, -2),
]
NESTED = {
    pa.list_(pa.int32()): [[1, None], None, []],
    pa.list_(pa.field("element", pa.int32(), nullable=False)): [[1], None, []],
    pa.list_(pa.field("item", pa.int32(), metadata={"k": "v"})): [[1], None, []],
    pa.large_list(pa.int32()): [[1], None, []],
    pa.list_(pa.int32(), 2): [[1, 2], None, [3, None]],
    pa.list_view(pa.int32()): [[1], None, []],
    pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())]): [{"a": 1, "b": ""}, None],
    pa.struct([pa.field("a", pa.int64(), metadata={"k": "v"})]): [{"a": 1}, None],
    pa.struct([]): [{}, None],
    pa.struct([("a", pa.binary(4))]): [{"a": b"abcd"}, None],
    pa.map_(pa.string(), pa.int32()): [[("a", 1)], None, []],
    pa.map_(pa.string(), pa.int32(), keys_sorted=True): [[("a", 1)], None, []],
    pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)): [[("a", 1)], None, []],
    pa.list_(pa.float16()): [[np.float16(1)], None],
    pa.list_(pa.string()): [["a", None], None],
}


def cases() -> list[pa.Array]:
    arrays = [pa.nulls(3), pa.array([True, None, False])]
    arrays += [pa.array(ONES, kind) for kind in PRIMITIVE]
    arrays += [pa.array(np.array([1.5, -0.0, np.nan], np.float16))]
    arrays += [pa.array([decimal.Decimal("100"), None], kind) for kind in DECIMAL]
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        arrays.append(pa.array(["a", None, "", "x" * 40], kind))
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        arrays.append(pa.array([b"a\0", None, b"", b"x" * 40], kind))
    arrays.append(pa.array([b"abcd", None], pa.binary(4)))
    arrays.append(pa.array(["a", None, "a"]).dictionary_encode())
    arrays += [pa.array(values, kind) for kind, values in NESTED.items()]
    arrays.append(pa.array([pa.MonthDayNano([1, 2, 3])]))
    arrays.append(pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1, 2])))
    return arrays


def round_trip(path: Path, array: pa.Array, nullable: bool = True) -> pa.Table:
    schema = pa.schema([pa.field("c", array.type, nullable=nullable)])
    vx.io.write(pa.table([array], schema=schema), str(path))
    return vx.open(str(path)).to_arrow().read_all()


def verdict(path: Path, array: pa.Array) -> tuple[str, str]:
    try:
        column = round_trip(path, array).column("c")
    except Exception as error:
        return "refused", type(error).__name__
    same_values = repr(column.to_pylist()) == repr(array.to_pylist())
    if column.type.equals(array.type, check_metadata=True):
        changed = "as it is"
    elif column.type.equals(array.type):
        changed = "metadata of nested fields lost"
    else:
        changed = f"comes back as {column.type}"
    return changed, "equal" if same_values else "VALUES DIFFER"


LIMIT = 2**63
TEMPORAL = [
    (pa.timestamp("s"), 253_402_300_800, "year 10000"),
    (pa.timestamp("us"), LIMIT - 1, "int64 maximum"),
    (pa.timestamp("ns"), LIMIT - 1, "int64 maximum"),
    (pa.timestamp("ns"), -LIMIT, "int64 minimum"),
    (pa.timestamp("us", "Not/AZone"), 1, "unknown time zone"),
    (pa.time32("s"), 86_400, "24:00:00"),
    (pa.time64("ns"), -1, "-1"),
    (pa.date32(), 2**31 - 1, "int32 maximum"),
    (pa.date64(), LIMIT - 1, "int64 maximum"),
    (pa.int64(), LIMIT - 1, "int64 maximum"),
]


def temporal_verdict(path: Path, kind: pa.DataType, value: int) -> str:
    integers = pa.int32() if kind.bit_width == 32 else pa.int64()
    try:
        back = round_trip(path, pa.array([value], kind)).column("c").combine_chunks()
    except BaseException as error:  # a Rust panic is not an Exception
        return f"{type(error).__name__}, an Exception: {isinstance(error, Exception)}"
    return "equal" if back.view(integers)[0].as_py() == value else "VALUES DIFFER"


def float_patterns() -> dict[str, np.ndarray]:
    """Values whose bits a float codec could plausibly lose: signs of zero and NaN payloads."""
    rng = np.random.default_rng(0)
    payload = np.array([0x7FF8000000000123, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64).view(float)
    odd = np.concatenate([payload, [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324]])
    prices = np.round(rng.random(200_000) * 100, 2)
    prices[::97] = rng.choice(odd, len(prices[::97]))
    constant = np.zeros(100_000)
    constant[7] = -0.0
    return {
        "random bits": rng.integers(0, 2**64, 200_000, dtype=np.uint64).view(float),
        "prices with odd values": prices,
        "few distinct odd values": rng.choice(odd, 200_000),
        "runs of odd values": np.repeat(rng.choice(odd, 2_000), 100),
        "one -0.0 among 0.0": constant,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.vortex"
        rows = [(str(array.type)[:60], *verdict(path, array)) for array in cases()]
        print_table("Arrow types through a Vortex file", ["type", "result", "values"], rows)

        temporal = [(str(kind), what, temporal_verdict(path, kind, value)) for kind, value, what in TEMPORAL]
        print_table("Temporal values at the edge", ["type", "value", "result"], temporal)

        exact = []
        for name, values in float_patterns().items():
            back = round_trip(path, pa.array(values)).column("c").to_numpy()
            with np.errstate(all="ignore"):
                single = values.astype(np.float32)
            back32 = round_trip(path, pa.array(single)).column("c").to_numpy()
            exact.append(
                (
                    name,
                    bool((back.view(np.uint64) == values.view(np.uint64)).all()),
                    bool((back32.view(np.uint32) == single.view(np.uint32)).all()),
                )
            )
        print_table("Bit-exact?", ["values", "64 bit", "32 bit"], exact)

        field = round_trip(path, pa.array([1, 2]), nullable=False).schema.field("c")
        table = pa.table({"c": [1]}).replace_schema_metadata({"k": "v"})
        vx.io.write(table, str(path))
        kept = vx.open(str(path)).to_arrow().schema.metadata
        digests = set()
        numbers = np.arange(10_000)
        golden = pa.table({"id": numbers, "f": numbers * 0.25, "s": [f"v{i % 97}" for i in numbers]})
        for attempt in range(3):
            other = Path(folder) / f"golden{attempt}.vortex"
            vx.io.write(golden, str(other))
            digests.add(f"{xxhash.xxh3_64_hexdigest(other.read_bytes())} ({other.stat().st_size} bytes)")
        print_table(
            "File",
            ["question", "answer"],
            [
                ("not null kept", not field.nullable),
                ("schema metadata kept", kept == {b"k": b"v"}),
                ("same table written three times", f"{len(digests)} distinct: {', '.join(sorted(digests))}"),
                ("magic bytes", f"{other.read_bytes()[:4]!r} … {other.read_bytes()[-8:]!r}"),
            ],
        )


if __name__ == "__main__":
    main()
