"""Columns that hold no nulls at a snapshot: what Spark is told about them, and what users see.

Spark looks for a null in each row of each column that may have one, which takes a tenth of a scan's time.  If the
statistics of all blocks and the hot rows say that there is none, the rows handed over by Python are declared not null,
and a task still refuses to hand over a null.  The DataFrame's schema does not show this: whatever may be null in the
table may be null there, whatever the rows are today.
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
    """The names of columns, the row id's among them, that have no null in these blocks and in the hot rows."""
    among = blocks.indices_of([task.file_id for task in tasks])
    if among is None:
        return frozenset({ROW_ID})
    found = {f.column: f.name for f in fields if not blocks.may_hold_null(f.column, among)}
    hot = {column for batch in plan.hot.batches() for column in found if holds_null(batch.column(column))}
    return frozenset({name for column, name in found.items() if column not in hot} | {ROW_ID})


def declared(schema: StructType, names: Collection[str]) -> StructType:
    """The columns of a DataFrame; those of these names without nulls."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, f.dataType, f.name not in names) for f in schema])


def check_filled(batch: pa.RecordBatch, names: Collection[str], path: str) -> None:
    """Refuse a batch of a file that has a null in a column of these names."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count and name in names:
            raise CorruptionError(
                f"Column {name!r} holds a null in {path!r}; the catalog's statistics of that file say that there is "
                "none. lake.pipeline().verify() lists all such files.",
                path=path,
            )


def may_be_null(frame: DataFrame, names: Collection[str]) -> DataFrame:
    """The same rows, of columns that may be null as far as anyone can see; Spark's optimizer sees through it."""
    places = [f"c{n}" for n in range(len(frame.columns))]  # a name may be anything, and mean something else in SQL
    shown = [f"if(true, {p}, null) AS {p}" if n in names else p for p, n in zip(places, frame.columns, strict=True)]
    return frame.toDF(*places).selectExpr(*shown).toDF(*frame.columns)
