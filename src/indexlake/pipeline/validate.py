"""New rules for existing rows: adding a check, or making a column not null, while others read and write the table.

The check is committed first and applies to everything written from then on; then a job reads all rows at a snapshot
after it. If one breaks the check, the check is dropped again and the error shows the row. A check whose job has died
applies to new rows only; adding it again validates it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from indexlake.errors import ConflictError, ConstraintError, IndexLakeError
from indexlake.evolution.alter import Alter
from indexlake.evolution.alterations import AddCheck, DropCheck, MarkValidated, SetNullable
from indexlake.expr.sqltype import quoted
from indexlake.expr.templates import template_of, written
from indexlake.pipeline.job import job_on
from indexlake.schema.rules import Check
from indexlake.sources.rules import violated
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.table import Table

KIND = "validate"


def add_check(table: Table, condition: str, name: str | None = None) -> None:
    """Add a check; return when all rows satisfy the condition, and none can be written that does not."""
    check = _unfinished(table, condition, name)
    if check is None:
        before = {c.check_id for c in table._schema_now().checks}
        Alter(table)._add(AddCheck(name, condition)).commit()
        check = next(c for c in table._schema_now().checks if c.check_id not in before)
    try:
        _validate(table, check)
    except ConstraintError:
        with suppress(IndexLakeError):  # somebody else has dropped it
            Alter(table)._add(DropCheck(check.name)).commit()
        raise
    Alter(table)._add(MarkValidated(check.check_id)).commit()


def _unfinished(table: Table, condition: str, name: str | None) -> Check | None:
    """Return the same check if it was added before but never validated."""
    if name is None or not isinstance(condition, str):
        return None
    schema = table._schema_now()
    found = next((c for c in schema.checks if not c.validated and c.name.lower() == name.lower()), None)
    return found if found is not None and found.condition == template_of(condition, schema.fields) else None


def _validate(table: Table, check: Check) -> None:
    """Raise ``ConstraintError`` with a row that breaks the check, if there is one."""
    with job_on(table, KIND, str(check.check_id)) as job:
        faults.step("validate.begun")
        schema = table._schema_now()
        if all(c.check_id != check.check_id for c in schema.checks):
            raise ConflictError(f"Check {check.name!r} was dropped while it was validated.", table=table.name)
        condition = written(check.condition, schema)
        job.check()
        for row in table.scan(f"({condition}) is false")._limited(1, for_update=False)._run()[1]:
            if row.num_rows:
                raise violated(schema, check, row)


def set_not_null(table: Table, column: str) -> None:
    """Forbid nulls in the column; return when no row has one, and none can be written."""
    schema = table._schema_now()
    f = schema.field(column)
    if not f.nullable:
        return
    name = f"{f.name}_not_null"
    add_check(table, f"{quoted(f.name)} is not null", name)
    Alter(table)._add(DropCheck(name))._add(SetNullable(f.name, False)).commit()
