"""Columns nested as deep as a table may have them come back from every format; deeper ones are never made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indexlake as il
from indexlake.blocks.formats import open_reader, write_file
from indexlake.storage import Storage
from indexlake.types import check_supported, codec_for
from indexlake.types.support import MAX_LEVELS, MAX_LISTS
from tests.blocks.formats.block_files import FORMATS
from tests.types.arrow_exact import assert_same
from tests.types.arrow_strategies import arrays, deep_types


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("levels", "lists"), [(MAX_LEVELS, MAX_LISTS), (MAX_LEVELS, 0), (MAX_LISTS, MAX_LISTS)])
def test_the_deepest_columns_come_back(format: str, levels: int, lists: int) -> None:
    storage = Storage.open("memory://")
    paths = iter(range(1_000_000))

    @settings(max_examples=6, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: Any) -> None:
        type = data.draw(deep_types(levels, lists))
        check_supported(type, "doc")
        array = data.draw(arrays(type, max_size=4))
        schema = pa.schema([pa.field("f1", type)])
        path = str(next(paths))
        written = write_file(storage, path, format, schema, [pa.RecordBatch.from_arrays([array], schema=schema)], {})
        reader = open_reader(storage, path, format, written.size, written.checksums, schema)
        assert_same(pa.Table.from_batches(reader.read(["f1"]), schema).column("f1"), array)
        codec = codec_for(type)
        assert_same(codec.decode(codec.encode(array)), array)

    check()


@pytest.mark.parametrize("format", FORMATS)
def test_slices_of_structs_in_structs_come_back(tmp_path: Path, format: str) -> None:
    numbers = pa.array(range(1_000))

    def struct(inner: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays([inner], ["a"])

    def pairs(inner: pa.Array) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(inner, 1)

    offsets, keys = pa.array(range(1_001), pa.int32()), numbers.cast(pa.string())
    twice = struct(struct(numbers))
    shapes = {
        "structs": twice,
        "three structs": struct(twice),
        "lists": struct(struct(pa.ListArray.from_arrays(offsets, numbers))),
        "pairs": pairs(twice),
        "map": pa.MapArray.from_arrays(offsets, keys, twice),
        "struct of pairs": struct(pairs(struct(numbers))),
        "views": struct(struct(keys.cast(pa.string_view()))),
    }
    schema = pa.schema([(name, array.type) for name, array in shapes.items()])
    whole = pa.RecordBatch.from_arrays(list(shapes.values()), schema=schema)
    storage = Storage.open(str(tmp_path))
    parts = [whole.slice(10, 20), whole.slice(900)]
    written = write_file(storage, "block", format, schema, parts, {})
    reader = open_reader(storage, "block", format, written.size, written.checksums, schema)
    found = pa.Table.from_batches(reader.read(schema.names), schema)
    for name in schema.names:
        assert found.column(name).to_pylist() == [row for part in parts for row in part.column(name).to_pylist()], name


def chain(levels: int, *, lists: bool = False) -> pa.DataType:
    type: pa.DataType = pa.int64()
    for _ in range(levels):
        type = pa.list_(type) if lists else pa.struct([("a", type)])
    return type


def test_every_way_to_make_a_column_checks_how_deep_it_is(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = lake.create_table("t", pa.schema([("id", pa.int64()), ("doc", pa.struct([("x", chain(15))]))]))
        wide = pa.table({"id": [1], "doc": pa.array([None], chain(9, lists=True))})
        nine = "[" * 9 + "1" + "]" * 9
        attempts = {
            "create_table": lambda: lake.create_table("u", pa.schema([("doc", chain(21))])),
            "create_table from data": lambda: lake.create_table("u", wide),
            "create table": lambda: lake.sql("create table u (doc bigint" + "[]" * 9 + ")"),
            "create table as": lambda: lake.sql(f"create table u as select {nine} as doc"),
            "add_column": lambda: t.add_column("new", chain(21)),
            "add_column inside": lambda: t.add_column("doc.x.a.more", chain(18)),
            "alter table": lambda: lake.sql("alter table t add column new bigint" + "[]" * 9),
            "merge": lambda: t.merge(wide, on="id").when_matched_delete().execute(),
        }
        for attempt in attempts.values():
            with pytest.raises(il.SchemaError, match=r"Column '\w+' (nests 21 levels deep|has 9 lists or maps)"):
                attempt()
        assert lake.tables() == ["main.t"]
        assert t.schema.names == ["id", "doc"]
        t.add_column("doc.x.a.more", chain(17))
        lake.sql(f"create table v as select {nine[1:-1]} as doc")
        assert lake.sql("select doc from v").to_pylist() == [{"doc": [[[[[[[[1]]]]]]]]}]
        lake.pipeline().dump()
        assert lake.sql("select doc from v").to_pylist() == [{"doc": [[[[[[[[1]]]]]]]]}]
