"""Columns without nulls at a snapshot: what Spark is told about them, and what users see.

Spark checks each value of each nullable column for null, which takes a tenth of a scan's time.  If the statistics of
all blocks and the hot rows show that there are no nulls, the rows handed over by Python are declared not null, and
tasks still refuse to hand over a null.  The DataFrame's schema does not show this: a column that is nullable in the
table is nullable there, whatever the rows are today.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.errors import CorruptionError
from indexlake.schema import ROW_ID, Field
from indexlake.types import holds_null

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from indexlake.blocks.block_index import BlockIndex
    from indexlake.scan.plan import BlockTask, ScanPlan


def filled_columns(
    blocks: BlockIndex, plan: ScanPlan, tasks: Sequence[BlockTask], fields: Sequence[Field]
) -> frozenset[str]:
    """Return the names of columns without nulls in these blocks and in the hot rows, including the row id's."""
    among = blocks.indices_of([task.file_id for task in tasks])
    if among is None:
        return frozenset({ROW_ID})
    found = {f.column: f.name for f in fields if not blocks.may_hold_null(f.column, among)}
    hot = {column for batch in plan.hot.batches() for column in found if holds_null(batch.column(column))}
    return frozenset({name for column, name in found.items() if column not in hot} | {ROW_ID})


def declared(schema: StructType, filled: Collection[str]) -> StructType:
    """Return the schema with the columns in ``filled`` declared not null."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, f.name not in filled) for f in schema])


def check_filled(batch: pa.RecordBatch, names: Collection[str], path: str) -> None:
    """Refuse a batch of a file with a null in one of the named columns."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count and name in names:
            raise CorruptionError(
                f"Column {name!r} holds a null in {path!r}; the catalog's statistics of that file say that there is "
                "none. lake.pipeline().verify() lists all such files.",
                path=path,
            )


def may_be_null(frame: DataFrame, names: Sequence[str], filled: Collection[str]) -> DataFrame:
    """Return the rows with these names, and with the columns in ``filled`` nullable for users.

    Spark's optimizer sees through it, unless a column had another name before: then Spark copies every row.
    """
    places = [(f"c{n}", name in filled) for n, name in enumerate(names)]  # names may be anything, even SQL
    shown = (f"if(true, {c}, null) AS {c}" if known else c for c, known in places)
    return frame.toDF(*(c for c, _ in places)).selectExpr(*shown).toDF(*names)
