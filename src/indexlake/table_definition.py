"""Changing the definition of a table: its columns, rules, name, settings and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from indexlake.commit.write_set import WriteResult
from indexlake.config import TableConfig

if TYPE_CHECKING:
    from indexlake.evolution.alter import Alter
    from indexlake.pipeline.index_info import IndexHandle, IndexInfo
    from indexlake.schema.field_path import Path
    from indexlake.table import Table


class TableDefinition:
    """The part of ``Table`` that changes its definition."""

    def _as_table(self) -> Table:
        from indexlake.table import Table

        assert isinstance(self, Table)
        return self

    def alter(self) -> Alter:
        """Make several changes in one commit: ``with t.alter() as a: a.add_column(…); a.rename_column(…)``."""
        from indexlake.evolution.alter import Alter

        return Alter(self._as_table())

    def add_column(self, name: Path, type: Any, default: Any = None, nullable: bool = True) -> WriteResult:
        """Add a column at the end, or a field to a struct (``"address.country"``).  Nothing is rewritten."""
        return self.alter().add_column(name, type, default, nullable).commit()

    def drop_column(self, name: Path) -> WriteResult:
        """Drop a column or a nested field.  Past snapshots still show it until they expire."""
        return self.alter().drop_column(name).commit()

    def rename_column(self, old: Path, new: str) -> WriteResult:
        """Rename a column or a nested field."""
        return self.alter().rename_column(old, new).commit()

    def widen_column(self, name: Path, type: Any) -> WriteResult:
        """Give a column or a nested field a wider type, one that holds every old value, such as int64 for int32."""
        return self.alter().widen_column(name, type).commit()

    def set_default(self, column: str, default: Any) -> WriteResult:
        """Set what new rows get that leave the column out: a value, ``il.expr("now()")``, or None for no default."""
        return self.alter().set_default(column, default).commit()

    def set_comment(self, comment: str | None, column: str | None = None) -> WriteResult:
        """Describe the table, or one of its columns; None removes the comment."""
        if column is None:
            return self.alter().set_config(comment=comment).commit()
        return self.alter().set_comment(column, comment).commit()

    def set_not_null(self, column: str) -> None:
        """Forbid nulls in the column.  If a row has one, the error shows the row and nothing changes."""
        from indexlake.pipeline.job import all_or_nothing
        from indexlake.pipeline.validate import set_not_null

        with all_or_nothing(table := self._as_table()):
            set_not_null(table, column)

    def drop_not_null(self, column: str) -> WriteResult:
        """Allow nulls in the column from now on."""
        return self.alter().drop_not_null(column).commit()

    def add_check(self, condition: str, name: str | None = None) -> None:
        """Add an SQL condition that every row must satisfy: existing rows as well as new ones.

        A job reads the existing rows; if one breaks the condition, the error shows it and the check is not added.

        Examples
        --------
        >>> t.add_check("total >= 0")
        """
        from indexlake.pipeline.job import all_or_nothing
        from indexlake.pipeline.validate import add_check

        with all_or_nothing(table := self._as_table()):
            add_check(table, condition, name)

    def drop_check(self, name: str) -> WriteResult:
        """Remove a check."""
        return self.alter().drop_check(name).commit()

    def checks(self) -> dict[str, str]:
        """The conditions that every row satisfies, by name."""
        from indexlake.expr.templates import shown

        schema = self._as_table()._schema_now()
        return {check.name: shown(check.condition, schema) for check in schema.checks}

    def rename(self, name: str) -> WriteResult:
        """Rename the table; a name with a dot moves it to that namespace."""
        return self.alter().rename(name).commit()

    def set_config(self, config: TableConfig | None = None, **changes: Any) -> WriteResult:
        """Change settings, by name or as a whole ``il.TableConfig``."""
        return self.alter().set_config(config, **changes).commit()

    # ------------------------------------------------------------ indexes

    def create_index(
        self,
        name: str,
        columns: str | Sequence[str],
        kind: str = "btree",
        unique: bool = False,
        include: str | Sequence[str] = (),
        *,
        progress: bool | None = None,
        **params: Any,
    ) -> IndexInfo:
        """Index some columns.  The index finds every row from the start, however long the build takes.

        ``kind``: ``"btree"``, ``"hash"``, ``"rtree"``, ``"bm25"``, ``"hnsw"``, or one that a package adds, with its
        ``params``.  ``include``: further columns that a btree stores, so that look-ups need not read blocks.  If an
        identical index exists, nothing happens.

        Examples
        --------
        >>> t.create_index("by_city", "city").state
        'ready'
        """
        from indexlake.pipeline.create_index import create_index

        create_index(self._as_table(), name, columns, kind, unique, include, params, progress)
        return self.index(name).info

    def drop_index(self, name: str, missing_ok: bool = False) -> None:
        """Remove an index at once.  Past snapshots still use it until they expire."""
        from indexlake.pipeline.create_index import drop_index

        drop_index(self._as_table(), name, missing_ok)

    def indexes(self) -> list[IndexInfo]:
        """All indexes except the primary key: kind, columns, size, coverage, and the last error."""
        from indexlake.pipeline.index_info import indexes

        return indexes(self._as_table())

    def index(self, name: str) -> IndexHandle:
        """One index: ``.info``, and ``.recall()`` of a vector index."""
        from indexlake.pipeline.index_info import IndexHandle

        return IndexHandle(self._as_table(), name)
