"""Creating, finding and dropping the namespaces and tables of a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from indexlake.catalog import definitions
from indexlake.catalog.alter_table import AlterTable
from indexlake.catalog.definitions import (
    CreateNamespace,
    CreateTable,
    DropNamespace,
    DropTable,
    check_layout,
)
from indexlake.catalog.named import find_named
from indexlake.commit.write_set import WriteResult, WriteSet
from indexlake.config import TableConfig
from indexlake.errors import IndexLakeError, NotFoundError, SchemaError
from indexlake.evolution.alterations import RenameTable
from indexlake.evolution.table_rules import Checks, split_defaults, with_rules
from indexlake.pipeline.meta import publish_meta
from indexlake.schema import as_schema, new_fields
from indexlake.schema.names import full_name, split_name
from indexlake.sources.rows import schema_and_rows
from indexlake.storage.names import namespace_folder
from indexlake.table import Table

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.pipeline.rewrite import RewriteResult
    from indexlake.transaction import Transaction


class LakeDefinitions:
    """The part of ``Lake`` that deals with definitions."""

    def _as_lake(self) -> Lake:
        from indexlake.lake import Lake

        assert isinstance(self, Lake)
        return self

    def create_namespace(self, name: str, exist_ok: bool = False) -> None:
        """Create a namespace for tables; ``exist_ok`` accepts one that already exists."""
        lake = self._as_lake()
        _check_name(name, "namespace")
        change = CreateNamespace(name, exist_ok)
        self._define(change, "create namespace")
        for namespace_id in change.found:
            with suppress(IndexLakeError):  # it is also created with the first file
                lake.storage.make_dir(namespace_folder(namespace_id))

    def namespaces(self) -> list[str]:
        """Names of all namespaces."""
        lake = self._as_lake()
        lake._check()
        with lake.catalog.read() as r:
            return definitions.list_namespaces(r, lake._readings.seen(r, None))

    def drop_namespace(self, name: str, cascade: bool = False, missing_ok: bool = False) -> None:
        """Remove a namespace; ``cascade`` removes its tables too."""
        lake = self._as_lake()
        change = DropNamespace(name, cascade, missing_ok)
        self._define(change, "drop namespace")
        for table_id in change.found:
            publish_meta(lake, table_id)

    def create_table(
        self,
        name: str,
        schema_or_data: Any,
        primary_key: str | Sequence[str] | None = None,
        layout: str = "heap",
        exist_ok: bool = False,
        config: TableConfig | None = None,
        defaults: Mapping[str, Any] | None = None,
        progress: bool | None = None,
        *,
        replace: bool = False,
        checks: Checks = (),
        generated: Mapping[str, str] | None = None,
    ) -> Table:
        """Create a table from a schema, or from data, which is then inserted in a second commit.

        A schema is a ``pa.schema(…)``, or a dict of column names and types.  A type is one of pyarrow's or its name as
        pyarrow prints it: ``"int64"``, ``"timestamp[us, tz=UTC]"``, ``"list<string>"``, ``"decimal128(10, 2)"``.

        Data is anything that ``insert`` takes, including files, whose types are inferred from all of them.  If the data
        is refused, no table is left behind.  A dict whose values are all types or all strings is a schema; any other
        dict is one row.  Pass a row of strings as ``[row]``.

        ``defaults`` are values, or expressions such as ``il.expr("now()")``, computed for every row that leaves the
        column out.  ``checks`` are named SQL conditions that no row may break; ``generated`` maps columns to the SQL
        that computes them.  All of these apply to every kind of write.

        ``replace`` replaces an existing table of that name in one commit, rows included; past snapshots still show the
        old one.  ``exist_ok`` leaves an existing table as it is.

        ``layout="clustered"`` keeps the rows sorted by primary key, in partitions that are split as they grow: key
        ranges and ordered scans read little more than they return.

        Examples
        --------
        >>> t = lake.create_table("sales.customers", {"id": "int64", "name": "string"}, primary_key="id")
        >>> t = lake.create_table("sales.items", pa.schema({"order_id": pa.int64(), "sku": pa.string()}))
        """
        lake = self._as_lake()
        lake._check(writing=True)
        check_layout(layout)
        if config is not None and not isinstance(config, TableConfig):
            raise SchemaError(f"config is an il.TableConfig(…), not {config!r}.")
        try:
            namespace, table_name = split_name(name)
        except NotFoundError as error:
            raise SchemaError(str(error)) from None
        if replace and exist_ok:
            raise SchemaError("replace=True and exist_ok=True contradict each other: pass only one of them.")
        rows = None
        schema = as_schema(schema_or_data)
        if schema is None:
            from indexlake.sources.files import reaching

            schema, rows = schema_and_rows(reaching(schema_or_data, lake.storage))
        plain, changing = split_defaults(defaults or {})
        fields, key = new_fields(schema, primary_key, plain)
        fields, made_checks = with_rules(table_name, fields, key, changing, generated or {}, checks)
        if layout == "clustered" and not key:
            raise SchemaError("A clustered table is sorted by its primary key. Pass primary_key=….")
        made_as = f"{table_name}__{uuid4().hex}" if replace and rows is not None else table_name
        change = CreateTable(
            namespace,
            made_as,
            tuple(fields),
            tuple(key),
            config or TableConfig(),
            layout,
            exist_ok,
            replace,
            made_checks,
        )
        self._define(change, "create table")
        table_id, made, new = change.found[0]
        self._forget_tables(change.replaced)
        table = Table(lake, table_id, made)
        if new and layout == "clustered":
            publish_meta(lake, table_id)
        if rows is not None and new:
            try:
                table.insert(rows, progress=progress)
            except BaseException:
                with suppress(IndexLakeError):
                    if made_as != table_name or not len(table):
                        self.drop_table(made)
                raise
        return table if made_as == table_name else self._take_name(table, full_name(namespace, table_name))

    def _take_name(self, table: Table, name: str) -> Table:
        """Rename a table, ending any table that has the new name in the same commit."""
        lake = self._as_lake()
        change = AlterTable(table._table_id, table._name, (RenameTable(name),), replace=True)
        self._define(change, "create table")
        self._forget_tables([table._table_id, *change.replaced])
        return Table(lake, table._table_id, name)

    def _forget_tables(self, table_ids: Sequence[int]) -> None:
        """Forget everything cached about these tables."""
        lake = self._as_lake()
        for table_id in table_ids:
            publish_meta(lake, table_id)
            lake._readings.states.forget(table_id)

    def table(self, name: str) -> Table:
        """A handle to a table."""
        return self._table(name)

    def _table(self, name: str, transaction: Transaction | None = None, snapshot: int | None = None) -> Table:
        lake = self._as_lake()
        lake._check()
        namespace, table_name = split_name(name)
        with lake.catalog.read() as r:
            at = lake._readings.seen(r, snapshot if transaction is None else transaction.snapshot_id)
            record = definitions.find_table(r, namespace, table_name, at)
            if record is None:
                known = [t.full_name for t in definitions.list_tables(r, at)]
                view = find_named(r, "view", namespace, table_name, at)
        if record is None:
            full = full_name(namespace, table_name)
            near = definitions.near_name(full, known)
            hint = f" Did you mean {near!r}?" if near else ""
            if view is not None:
                hint = f" {full!r} is a view: read it with lake.sql, and change the tables that it reads."
            raise NotFoundError(f"There is no table {full!r}.{hint}", name=full)
        return Table(lake, record.table_id, record.full_name, transaction=transaction, snapshot=snapshot)

    def tables(self) -> list[str]:
        """Names of all tables, with their namespaces."""
        lake = self._as_lake()
        lake._check()
        with lake.catalog.read() as r:
            return [t.full_name for t in definitions.list_tables(r, lake._readings.seen(r, None))]

    def drop_table(self, name: str, missing_ok: bool = False) -> None:
        """Remove a table.  Past snapshots still show it until they expire."""
        lake = self._as_lake()
        lake._check(writing=True)
        try:
            table = self.table(name)
        except NotFoundError:
            if missing_ok:
                return
            raise
        self._define(DropTable(table._table_id, table.name), "drop table")
        self._forget_tables([table._table_id])

    def cluster_table(self, name: str, layout: str = "clustered", *, progress: bool | None = None) -> RewriteResult:
        """Change a table's layout to ``"clustered"`` or ``"heap"`` while others read and write it."""
        lake = self._as_lake()
        from indexlake.pipeline.convert import cluster_table

        return cluster_table(lake, name, layout, progress=progress)

    def _define(self, change: definitions.DefinitionChange, operation: str) -> WriteResult:
        lake = self._as_lake()
        lake._check(writing=True)
        ws = WriteSet(-1)
        ws.definitions.append(change)
        ws.operation = operation
        result = lake._committed(ws)
        state = None if change.table_id is None else lake._readings.states.get(change.table_id)
        if state is not None and state.table.is_clustered:
            lake._maintenance.unpublished(state.table.table_id)
        return result


def _check_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not name or "." in name or "\x00" in name:
        raise SchemaError(f"{name!r} is not a {what} name: it must be a non-empty string without dots.")
