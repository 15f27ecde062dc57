"""Rtree segments made from rows, in memory, and what they should find by looking at every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.expr import compile
from indexlake.indexes.index import Index
from indexlake.indexes.kind import Content
from indexlake.indexes.rtree.kind import RTree
from indexlake.indexes.rtree.segment import RTreeSegment
from indexlake.schema.table_schema import Field
from indexlake.storage.input_file import in_memory

KIND = RTree()


def fields(*types: pa.DataType) -> list[Field]:
    """Columns x and y, or one column g."""
    return [
        Field(n + 1, name, type, True)
        for n, (name, type) in enumerate(zip("xy" if len(types) == 2 else "g", types, strict=True))
    ]


def index_of(count: int) -> Index:
    return Index(1, "places", "rtree", tuple(range(1, count + 1)), (), False, {}, 0, None, None, 0)


def opened(content: Content, count: int = 2) -> RTreeSegment:
    return KIND.open(index_of(count), in_memory(content.pieces))


def segment(blocks: Sequence[Sequence[pa.Array]], *, lasting: bool = True) -> RTreeSegment:
    """A segment of blocks, each a list of columns."""
    count = len(blocks[0])
    builder = KIND.builder(index_of(count), fields(*(c.type for c in blocks[0])), lasting=lasting)
    for columns in blocks:
        half = len(columns[0]) // 2
        builder.add([c[:half] for c in columns])
        builder.add([c[half:] for c in columns])
        builder.end_block()
    return opened(builder.content(), count)


def probe(text: str, *types: pa.DataType, params: Any = None) -> Any:
    """The probe for a predicate over the columns x and y, or g."""
    columns = fields(*types)
    bound = compile(text, pa.schema([f.arrow() for f in columns]), params)
    bound = bound.renamed({f.name: f.column for f in columns})
    return KIND.probe(index_of(len(columns)), columns, bound.test())


def matching(text: str, columns: Sequence[pa.Array], params: Any = None) -> list[int]:
    """The rows that satisfy a predicate, by looking at all."""
    names = "xy" if len(columns) == 2 else "g"
    batch = pa.record_batch(list(columns), list(names))
    return np.flatnonzero(compile(text, batch.schema, params).mask(batch).to_numpy(zero_copy_only=False)).tolist()
