"""Give a column another type: its values are recomputed, while the table is read and written.

First, a second column is added that is generated from it, so that every write fills it; then an update fills it for the
existing rows; last, in one commit, it takes the column's name and place. What a change that has died left behind is
dropped by the next one. Past snapshots show the column as it was.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import IndexLakeError, SchemaError
from indexlake.evolution.alter import Alter
from indexlake.evolution.alterations import DropColumn, SetDefault
from indexlake.evolution.replacing import AddGenerated, TakePlace
from indexlake.expr.expression import expr
from indexlake.expr.sqltype import quoted
from indexlake.pipeline.job import job_on
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.table import Table

KIND = "change type"


def change_type(table: Table, new: pa.Field, text: str, default: Any = None) -> None:
    """Change a column's type; ``new`` is the column with its new type, ``text`` computes its values."""
    schema = table._schema_now()
    f = schema.field(new.name)
    beside = f"{f.name}__new_type"
    _refuse_needed(table, f.field_id, f.name)
    add = AddGenerated(beside, new.type, text, new.metadata)
    with job_on(table, KIND, str(f.field_id)) as job:
        if (left := schema.by_name.get(beside.lower())) is not None:
            if left.generated is None:
                raise SchemaError(
                    f"Column {f.name!r} cannot take this type: it temporarily needs the name {left.name!r}, "
                    "which another column has. Rename that column first.",
                    column=left.name,
                )
            Alter(table)._add(DropColumn(beside)).commit()
        try:
            Alter(table)._add(add)._add(TakePlace(beside, f))._definition.check()
            Alter(table)._add(add).commit()
            faults.step("retype.beside")
            job.check()
            table.update({f.name: expr(quoted(f.name))}, where=f"{quoted(beside)} is null")
            if not f.nullable:
                table.set_not_null(beside)
            faults.step("retype.filled")
            job.check()
            Alter(table)._add(TakePlace(beside, f))._add(SetDefault(f.name, default)).commit()
        except BaseException as error:
            with suppress(IndexLakeError):  # it may not exist yet
                Alter(table)._add(DropColumn(beside)).commit()
            if not isinstance(error, IndexLakeError) or beside not in str(error):
                raise
            problem = str(error).replace(beside, f.name).replace("Generated column", "Column")
            raise type(error)(problem, **{**error.details, "column": f.name}) from None


def _refuse_needed(table: Table, field_id: int, name: str) -> None:
    state = table._state()
    for index in state.live_indexes:
        if index.fits(state.current) and any(f.field_id == field_id for f in index.all_fields(state.current)):
            raise SchemaError(
                f"Column {name!r} cannot take this type: index {index.name!r} needs it. Drop the index first with "
                f"t.drop_index({index.name!r}).",
                column=name,
            )
