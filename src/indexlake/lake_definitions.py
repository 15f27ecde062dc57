"""Creating, finding and dropping the namespaces and tables of a lake."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from indexlake.catalog import definitions
from indexlake.catalog.definitions import (
    CreateNamespace,
    CreateTable,
    DropNamespace,
    DropTable,
    check_layout,
)
from indexlake.catalog.named import find_named
from indexlake.commit.write_set import WriteResult
from indexlake.config import TableConfig
from indexlake.errors import ConflictError, IndexLakeError, NotFoundError, SchemaError
from indexlake.evolution.table_rules import Checks, split_defaults, with_rules
from indexlake.pipeline.meta import publish_meta
from indexlake.schema import as_schema, new_fields
from indexlake.schema.names import full_name, split_name
from indexlake.sources.rows import schema_and_rows
from indexlake.storage.names import namespace_folder
from indexlake.table import Table
from indexlake.writes.insert import can_be_taken_again

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.snapshots.seen import Seen
    from indexlake.transaction import Transaction


class LakeDefinitions(ABC):
    """The part of ``Lake`` and of ``Transaction`` that deals with definitions.

    In a transaction, they are seen by nobody else before it commits.
    """

    _transaction: Transaction | None = None  # the transaction that this is

    def _as_lake(self) -> Lake:
        from indexlake.lake import Lake

        if self._transaction is not None:
            return self._transaction._lake
        assert isinstance(self, Lake)
        return self

    @abstractmethod
    def _check(self, *, writing: bool = False) -> None:
        """Raise an error if this is closed, or cannot be written to."""

    @abstractmethod
    def _define(self, change: definitions.DefinitionChange, operation: str) -> WriteResult:
        """Make a change of definitions: a commit, or a part of the transaction."""

    @abstractmethod
    def _seen(self, snapshot: int | None = None) -> Seen:
        """Return the definitions that this sees, or those of a snapshot."""

    def create_namespace(self, name: str, exist_ok: bool = False) -> None:
        """Create a namespace for tables; ``exist_ok`` accepts one that already exists."""
        lake = self._as_lake()
        _check_name(name, "namespace")
        change = CreateNamespace(name, exist_ok)
        self._define(change, "create namespace")
        for namespace_id in () if self._transaction is not None else change.found:
            with suppress(IndexLakeError):  # it is also created with the first file
                lake.storage.make_dir(namespace_folder(namespace_id))

    def namespaces(self) -> list[str]:
        """Names of all namespaces."""
        self._check()
        with self._seen() as seen:
            return definitions.list_namespaces(seen.r, seen.at)

    def drop_namespace(self, name: str, cascade: bool = False, missing_ok: bool = False) -> None:
        """Remove a namespace; ``cascade`` removes its tables too."""
        change = DropNamespace(name, cascade, missing_ok)
        self._define(change, "drop namespace")
        self._forget_tables(change.found)

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
        """Create a table from a schema, or from data, which is inserted in the same commit.

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
        self._check(writing=True)
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
        change = CreateTable(
            namespace,
            table_name,
            tuple(fields),
            tuple(key),
            config or TableConfig(),
            layout,
            exist_ok,
            replace,
            made_checks,
        )
        if rows is not None and self._transaction is None:

            def create(tx: Transaction) -> Table:
                tx.write_set.operation = "create table"
                return tx._create_table(change, rows, progress)

            try:
                made = lake.run(create, None if can_be_taken_again(rows) else 0)
            except ConflictError:
                if not exist_ok:
                    raise
                return self.table(name)  # somebody else has created it
            return Table(lake, made._table_id, made._name)
        if rows is None or self._transaction is None:
            return self._create_table(change, rows, progress)
        with self._transaction.all_or_nothing():
            return self._create_table(change, rows, progress)

    def _create_table(self, change: CreateTable, rows: Any, progress: bool | None) -> Table:
        lake = self._as_lake()
        self._define(change, "create table")
        table_id, made, new = change.found[0]
        self._forget_tables(change.replaced)
        table = Table(lake, table_id, made, transaction=self._transaction)
        if new and change.layout == "clustered" and self._transaction is None:
            publish_meta(lake, table_id)
        if rows is not None and new:
            table.insert(rows, progress=progress)
        return table

    def _forget_tables(self, table_ids: Sequence[int]) -> None:
        """Forget everything cached about these tables."""
        lake = self._as_lake()
        for table_id in () if self._transaction is not None else table_ids:
            publish_meta(lake, table_id)
            lake._readings.states.forget(table_id)

    def table(self, name: str) -> Table:
        """A handle to a table.  From a transaction, it is the table as the transaction sees it."""
        return self._table(name)

    def _table(self, name: str, snapshot: int | None = None) -> Table:
        self._check()
        namespace, table_name = split_name(name)
        with self._seen(snapshot) as seen:
            r, at = seen.r, seen.at
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
        return Table(
            self._as_lake(), record.table_id, record.full_name, transaction=self._transaction, snapshot=snapshot
        )

    def tables(self) -> list[str]:
        """Names of all tables, with their namespaces."""
        self._check()
        with self._seen() as seen:
            return [t.full_name for t in definitions.list_tables(seen.r, seen.at)]

    def drop_table(self, name: str, missing_ok: bool = False) -> None:
        """Remove a table.  Past snapshots still show it until they expire."""
        self._check(writing=True)
        try:
            table = self.table(name)
        except NotFoundError:
            if missing_ok:
                return
            raise
        self._define(DropTable(table._table_id, table.name), "drop table")
        self._forget_tables([table._table_id])


def _check_name(name: str, what: str) -> None:
    if not isinstance(name, str) or not name or "\x00" in name:
        raise SchemaError(f"{name!r} is not a {what} name: it must be a non-empty string.")
