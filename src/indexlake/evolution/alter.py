"""``Alter``: several changes to one table, in one commit.

Each method checks its change immediately against the current table; the commit checks all of them again against the
table as it is by then, and applies all or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from indexlake.catalog.alter_table import AlterTable
from indexlake.commit.write_set import WriteResult
from indexlake.config import TableConfig
from indexlake.errors import NotFoundError, OwnershipError, SchemaError
from indexlake.evolution.alterations import (
    AddCheck,
    AddColumn,
    Alteration,
    Definition,
    DropCheck,
    DropColumn,
    MarkValidated,
    RenameColumn,
    RenameTable,
    SetComment,
    SetConfig,
    SetDefault,
    SetNullable,
    WidenColumn,
)
from indexlake.schema.field_path import Path
from indexlake.types.names import as_type

if TYPE_CHECKING:
    from indexlake.table import Table


class Alter:
    """Returned by ``table.alter()``.  As a context manager it commits at the end, or does nothing on an error.

    Examples
    --------
    >>> with t.alter() as a:
    ...     a.add_column("country", pa.string(), default="DE")
    ...     a.rename_column("total", "amount")
    """

    def __init__(self, table: Table) -> None:
        if table._snapshot is not None:
            raise OwnershipError(
                f"{table._name} at snapshot {table._snapshot} is a view of the past: it cannot be altered."
            )
        table._lake._check(writing=True)
        self._table = table
        self._alterations: list[Alteration] = []
        self._done = False
        self.result: WriteResult | None = None
        state = table._state()
        record = state.table
        if record.end_snapshot is not None and table._tx is None:  # to a transaction it is still there: a conflict
            raise NotFoundError(f"Table {record.full_name!r} was dropped.", name=record.full_name)
        self._definition = Definition.of(record.namespace, record.name, record.config, state.current)

    def __repr__(self) -> str:
        return f"<Alter {self._table._name}: {len(self._alterations)} alterations>"

    def has_column(self, name: Path) -> bool:
        """Whether there is such a column, or field inside one."""
        try:
            self._definition.resolve(name)
        except SchemaError:
            return False
        return True

    def add_column(
        self,
        name: Path,
        type: Any,
        default: Any = None,
        nullable: bool = True,
        *,
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> Alter:
        """Add a column at the end, or a field to a struct: ``"address.country"``.

        Existing rows take the default; nothing is rewritten.
        """
        return self._add(AddColumn(name, as_type(type), default, nullable, metadata))

    def drop_column(self, name: Path) -> Alter:
        """Drop a column, or a field of a struct.  Past snapshots still show it until they expire."""
        return self._add(DropColumn(name))

    def rename_column(self, old: Path, new: str) -> Alter:
        """Rename a column, or a field of a struct."""
        return self._add(RenameColumn(old, new))

    def widen_column(self, name: Path, type: Any, *, metadata: Mapping[bytes, bytes] | None = None) -> Alter:
        """Give a column, or a field inside it, a wider type that holds every old value."""
        return self._add(WidenColumn(name, as_type(type), metadata))

    def set_default(self, column: str, default: Any) -> Alter:
        """Set what new rows get that leave the column out: a value, ``il.expr("now()")``, or None for no default."""
        return self._add(SetDefault(column, default))

    def set_comment(self, column: str, comment: str | None) -> Alter:
        """Describe a column; None removes the comment."""
        return self._add(SetComment(column, comment))

    def drop_not_null(self, column: str) -> Alter:
        """Allow nulls in the column from now on."""
        return self._add(SetNullable(column, True))

    def drop_check(self, name: str) -> Alter:
        """Remove a check."""
        return self._add(DropCheck(name))

    def rename(self, name: str) -> Alter:
        """Rename the table; a name with a dot moves it to that namespace."""
        return self._add(RenameTable(name))

    def set_config(self, config: TableConfig | None = None, **changes: Any) -> Alter:
        """Change settings: a whole ``TableConfig``, or some of its values by name."""
        if config is not None:
            if not isinstance(config, TableConfig) or changes:
                raise SchemaError("set_config takes either an il.TableConfig(…) or settings by name.")
            changes = {name: getattr(config, name) for name in TableConfig.__dataclass_fields__}
        if not changes:
            raise SchemaError("set_config needs a setting to change, for example retention=3600.")
        return self._add(SetConfig(tuple(changes.items())))

    def _add(self, alteration: Alteration) -> Alter:
        if self._done:
            raise OwnershipError("This alteration is finished. Call table.alter() again.")
        self._definition = alteration.on(self._definition)
        self._alterations.append(alteration)
        return self

    def commit(self) -> WriteResult:
        """Apply all alterations, or none."""
        if self._done:
            raise OwnershipError("This alteration is finished. Call table.alter() again.")
        self._done = True
        lake, table = self._table._lake, self._table
        self._definition.check()
        if not self._alterations:
            self.result = WriteResult(0)
            return self.result
        single = len(self._alterations) == 1
        operation = _OPERATIONS.get(type(self._alterations[0]), "alter table") if single else "alter table"
        change = AlterTable(table._table_id, table._name, tuple(self._alterations))
        try:
            self.result = (table._tx or lake)._define(change, operation)
        finally:
            lake._readings.states.forget(table._table_id)
        return self.result

    def __enter__(self) -> Alter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and not self._done:
            self.commit()
        self._done = True


_OPERATIONS = {
    AddColumn: "add column",
    DropColumn: "drop column",
    RenameColumn: "rename column",
    WidenColumn: "widen column",
    RenameTable: "rename table",
    SetConfig: "set config",
    SetDefault: "set default",
    SetComment: "set comment",
    SetNullable: "set nullable",
    AddCheck: "add check",
    DropCheck: "drop check",
    MarkValidated: "validate check",
}
