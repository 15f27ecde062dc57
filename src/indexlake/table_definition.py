"""The definition of a table: its columns, name and settings, and its indexes, and how they are changed."""

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
    """What ``Table`` has of it."""

    def _as_table(self) -> Table:
        from indexlake.table import Table

        assert isinstance(self, Table)
        return self

    def alter(self) -> Alter:
        """Several alterations in one commit: ``with t.alter() as a: a.add_column(…); a.rename_column(…)``."""
        from indexlake.evolution.alter import Alter

        return Alter(self._as_table())

    def add_column(self, name: Path, type: Any, default: Any = None, nullable: bool = True) -> WriteResult:
        """Add a column at the end, or a field to a struct (``"address.country"``).  Nothing is rewritten."""
        return self.alter().add_column(name, type, default, nullable).commit()

    def drop_column(self, name: Path) -> WriteResult:
        """Drop a column or a nested field.  Past snapshots show it until they expire."""
        return self.alter().drop_column(name).commit()

    def rename_column(self, old: Path, new: str) -> WriteResult:
        """Give a column or a nested field another name."""
        return self.alter().rename_column(old, new).commit()

    def widen_column(self, name: Path, type: Any) -> WriteResult:
        """Give a column or a nested field a type that holds every value it held, such as int64 for int32."""
        return self.alter().widen_column(name, type).commit()

    def set_default(self, column: str, default: Any) -> WriteResult:
        """What new rows take that do not name the column: a value, None for none, or ``il.expr("now()")``."""
        return self.alter().set_default(column, default).commit()

    def set_comment(self, comment: str | None, column: str | None = None) -> WriteResult:
        """Say what the table is about, or one of its columns; None: nothing is said any more."""
        if column is None:
            return self.alter().set_config(comment=comment).commit()
        return self.alter().set_comment(column, comment).commit()

    def set_not_null(self, column: str) -> None:
        """The column may not be null any more: refused, with a row that is, where there is one."""
        from indexlake.pipeline.validate import set_not_null

        set_not_null(self._as_table(), column)

    def drop_not_null(self, column: str) -> WriteResult:
        """The column may be null from now on."""
        return self.alter().drop_not_null(column).commit()

    def add_check(self, condition: str, name: str | None = None) -> None:
        """Demand a condition of every row, in SQL: of those that are there, and of all that are written.

        Rows that are there are read by a job; where one breaks the condition, it is named and the check is not added.

        Examples
        --------
        >>> t.add_check("total >= 0")
        """
        from indexlake.pipeline.validate import add_check

        add_check(self._as_table(), condition, name)

    def drop_check(self, name: str) -> WriteResult:
        """Demand a condition no longer."""
        return self.alter().drop_check(name).commit()

    def checks(self) -> dict[str, str]:
        """The conditions that every row satisfies, by their names."""
        from indexlake.expr.templates import shown

        schema = self._as_table()._schema_now()
        return {check.name: shown(check.condition, schema) for check in schema.checks}

    def rename(self, name: str) -> WriteResult:
        """Give the table another name; with a dot in it also another namespace."""
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
        """Index some columns; every row is found through it from the first moment, however long the build takes.

        ``kind``: ``"btree"``, ``"hash"``, ``"rtree"``, ``"bm25"``, ``"hnsw"``, or one that a package adds; ``params``
        are those of the kind.  ``include``: further columns that a btree keeps, so that look-ups need no block.  An
        identical index is left as it is.

        Examples
        --------
        >>> t.create_index("by_city", "city").state
        'ready'
        """
        from indexlake.pipeline.create_index import create_index

        create_index(self._as_table(), name, columns, kind, unique, include, params, progress)
        return self.index(name).info

    def drop_index(self, name: str, missing_ok: bool = False) -> None:
        """Remove an index, at once.  Past snapshots use it until they expire."""
        from indexlake.pipeline.create_index import drop_index

        drop_index(self._as_table(), name, missing_ok)

    def indexes(self) -> list[IndexInfo]:
        """The indexes besides the primary key: kind, columns, size, how much they cover, and the last error."""
        from indexlake.pipeline.index_info import indexes

        return indexes(self._as_table())

    def index(self, name: str) -> IndexHandle:
        """One index: ``.info``, and ``.recall()`` of a vector index."""
        from indexlake.pipeline.index_info import IndexHandle

        return IndexHandle(self._as_table(), name)
