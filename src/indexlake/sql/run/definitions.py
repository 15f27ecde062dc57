"""Create, drop and alter: turns parsed statements into the lake's own operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import chain, count, zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.config import TableConfig
from indexlake.errors import AlreadyExistsError, ExpressionError, IndexLakeError, NotFoundError, SchemaError
from indexlake.evolution.alterations import SetDefault
from indexlake.expr.expression import expr
from indexlake.schema.names import split_name
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.schema_mentions import SCHEMAS
from indexlake.sql.parse.script import parse
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.parse.tokens import Source, quoted, tokenize
from indexlake.sql.plan.query_tables import TEMPORARY
from indexlake.sql.plan.snapshot import MAIN, Viewpoint
from indexlake.sql.run import temporary_tables
from indexlake.sql.run.column_changes import add_column, alter_type, drop_column
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.definitions_in_duckdb import (
    constraint_of,
    default_text,
    key_name,
    unique_name,
    with_default_text,
)
from indexlake.sql.run.duckdb_types import check_held, held_form
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.index_definitions import create_index, drop_index
from indexlake.sql.run.named_definitions import comment_on, create_named, drop_named, own_sequence
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.result import SqlChange
from indexlake.sql.run.row_writes import RowWrites
from indexlake.sql.run.rule_texts import generated_texts, rule_text
from indexlake.sql.run.type_checks import type_checks
from indexlake.sql.run.type_names import casts_to, column_field, declared_field, sql_names, stored_field
from indexlake.sql.run.view_definitions import create_view, drop_view, rename_view
from indexlake.types.outside import python_value

if TYPE_CHECKING:
    from indexlake.schema import Field
    from indexlake.table import Table
    from indexlake.transaction import Transaction

_CHANGING = {
    "now", "current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "today",
    "get_current_timestamp", "transaction_timestamp", "random", "gen_random_uuid", "uuidv4", "uuidv7", "nextval",
    "currval",
}  # fmt: skip
_ON_GENERATED = (
    "Constraints on generated columns are not supported yet",
    "A generated column with constraints has to be STORED: write GENERATED ALWAYS AS (…) STORED",
)


class Definitions:
    def __init__(self, engine: Engine, view: Viewpoint, parameters: Parameters) -> None:
        self._engine = engine
        self._view = view
        self._within = view.within
        self._parameters = parameters

    def run(self, statement: st.Definition) -> SqlChange:
        if self._view.transaction is None:
            return self._run(statement)
        transaction = self._view.transaction
        with self._engine.undoing(transaction.when_undone), transaction.all_or_nothing():
            return self._run(statement)

    def _run(self, statement: st.Definition) -> SqlChange:
        self._within._check(writing=True)
        self._check_schema(statement)
        if isinstance(statement, st.CreateSchema):
            self._within.create_namespace(statement.name, exist_ok=statement.if_not_exists)
            return _done("create schema")
        if isinstance(statement, st.DropSchema):
            if statement.name.lower() == MAIN:
                raise SchemaError("The schema 'main' is always there and cannot be dropped.", name=MAIN)
            self._within.drop_namespace(statement.name, cascade=statement.cascade, missing_ok=statement.if_exists)
            if statement.name.lower() == self._engine.namespace.lower():
                self._engine.namespace = MAIN
            return _done("drop schema")
        if isinstance(statement, st.DropTable):
            self._within.drop_table(statement.table.full(self._view.namespace), missing_ok=statement.if_exists)
            return _done("drop table")
        if isinstance(statement, st.CreateTemporaryTable):
            return temporary_tables.create(self._engine, self._view, statement, self._parameters)
        if isinstance(statement, st.CreateView):
            create_view(self._engine, self._view, statement, self._parameters)
            return _done("create view")
        if isinstance(statement, st.DropView):
            drop_view(self._engine, self._view, statement)
            return _done("drop view")
        if isinstance(statement, st.RenameView):
            rename_view(self._engine, self._view, statement)
            return _done("alter view")
        if isinstance(statement, st.CreateNamed):
            create_named(self._engine, self._view, statement, self._parameters)
            return _done(f"create {statement.kind}")
        if isinstance(statement, st.DropNamed):
            drop_named(self._engine, self._view, statement)
            return _done(f"drop {statement.kind}")
        if isinstance(statement, st.OwnSequence):
            own_sequence(self._view, statement)
            return _done("alter sequence")
        if isinstance(statement, st.CommentOn):
            comment_on(self._engine, self._view, statement, self._parameters)
            return _done("comment")
        if isinstance(statement, st.CreateIndex):
            create_index(self._engine, self._view, statement, self._parameters)
            return _done("create index")
        if isinstance(statement, st.DropIndex):
            drop_index(self._view, statement)
            return _done("drop index")
        if isinstance(statement, st.CreateTable):
            return self._create(statement)
        return self._alter(statement)

    def _check_schema(self, statement: st.Definition) -> None:
        """Refuse definitions in schemas that do not exist or that belong to DuckDB."""
        if isinstance(statement, st.CreateSchema):
            if statement.name.lower() in (MAIN, *SCHEMAS) and not statement.if_not_exists:
                raise AlreadyExistsError(f"The schema {statement.name!r} always exists.", name=statement.name)
            return
        if isinstance(statement, st.CreateTable):
            namespace = statement.table.namespace
        elif isinstance(statement, st.CreateView):
            namespace = statement.view.namespace
        elif isinstance(statement, st.CreateNamed):
            namespace = statement.name.namespace
        else:
            return
        if namespace is None or namespace == TEMPORARY:
            return
        if namespace.lower() in SCHEMAS:
            raise SchemaError(
                f"The schema {namespace!r} only describes what is there; create it in another one.", name=namespace
            )
        if namespace.lower() not in [MAIN, *(name.lower() for name in self._within.namespaces())]:
            raise NotFoundError(f"There is no schema {namespace!r}: CREATE SCHEMA makes it.", name=namespace)

    # ------------------------------------------------------------ create table

    def _create(self, statement: st.CreateTable) -> SqlChange:
        name = statement.table.full(self._view.namespace)
        options = self._options(statement.options, "layout")
        layout = options.pop("layout", "heap")
        config = TableConfig(**options)
        if layout == "clustered" and not statement.primary_key:
            raise SchemaError(
                "A clustered table is sorted by its primary key: name it with the columns, as in create "
                "table t (a int, b int, primary key (a)); rows of a query come with insert into t select …."
            )
        if statement.query is not None:
            return self._create_from_query(statement, name, statement.query, layout, config)
        fields, defaults = [], {}
        names = [column.name for column in statement.columns]
        given = {
            c.name: rule_text(c.generated, "A generated column", statement.table, self._view.namespace, names)
            for c in statement.columns
            if c.generated is not None
        }
        generated = generated_texts(statement.columns, given)
        declared = self._declared(statement, generated)
        for column, field in zip(statement.columns, declared, strict=True):
            if column.default is not None:
                _check_default(column.default)
                default = defaults[column.name] = self._default(column.name, column.default, field)
                field = with_default_text(field, column.default, default)
            fields.append(field.with_nullable(column.nullable))
        self._bind(statement)
        if statement.if_not_exists and self._found(name) is not None:
            return _done("create table")

        def create(tx: Transaction) -> WriteResult:
            table = tx.create_table(
                name, pa.schema(fields), primary_key=list(statement.primary_key) or None, layout=layout,
                exist_ok=statement.if_not_exists, config=config, defaults=defaults, replace=statement.replace,
                generated=generated, checks=[*self._checks(statement), *type_checks(fields)],
            )  # fmt: skip
            for constraint in statement.constraints:
                if constraint.unique:
                    self._add_unique(table, constraint)
            return WriteResult(0)

        self._in_one_commit(create)
        return _done("create table")

    def _in_one_commit(self, create: Callable[[Transaction], WriteResult]) -> WriteResult:
        """Create a table in the transaction of the statement, or in one of its own, run again if it loses."""
        if self._view.transaction is not None:
            return create(self._view.transaction)

        def run(tx: Transaction) -> WriteResult:
            tx.write_set.operation = "create table"
            done = create(tx)
            return done._replace(snapshot_id=tx.commit().snapshot_id)

        return self._view.lake.run(run)

    def _bind(self, statement: st.CreateTable) -> None:
        """Refuse what DuckDB would refuse in a table of its own.  Forms that only we have are not checked."""
        definition = statement.definition
        assert definition is not None
        if definition.parameters or definition.calls("nextval") or any(c.stored for c in statement.columns):
            return
        self._bound(definition, f"create temp table {quoted(statement.table.name)} ")

    def _bound(self, definition: Fragment, prefix: str, suffix: str = "") -> None:
        spliced = definition.spliced(prefix=prefix, suffix=suffix)
        try:
            with translating(definition.source, spliced):
                self._engine.bind(spliced.text)
        except ExpressionError as error:
            problem = str(error).replace(*_ON_GENERATED)
            if "\nline " not in problem:
                problem = f"{problem}\n{definition.source.excerpt(definition.start)}"
            raise SchemaError(problem) from None

    def _declared(self, statement: st.CreateTable, generated: Mapping[str, str]) -> list[pa.Field]:
        """Return the columns; a generated column without a type has that of its expression."""
        found = [c.type and column_field(self._engine, c) for c in statement.columns]
        typed = [(c.name, f) for c, f in zip(statement.columns, found, strict=True) if f is not None]
        types = sql_names(self._engine, [f for _, f in typed])
        nulls = ", ".join(
            f"cast(null as {type}) as {quoted(name)}" for (name, _), type in zip(typed, types, strict=True)
        )
        for n, column in enumerate(statement.columns):
            if found[n] is None:
                assert column.generated is not None
                text = f"select ({generated[column.name]}) as c from (select {nulls or '1'})"
                with translating(column.generated.source, column.generated.spliced()):
                    (type,) = self._engine.types(text)
                    check_held(type, column.name, declared=True)
                    shown = self._engine.table(f"select {held_form(type, 'c')} from ({text})").schema.field(0)
                    found[n] = stored_field(column.name, shown.type, type)
        return found

    def _checks(self, statement: st.CreateTable) -> list[tuple[str | None, str]]:
        columns = [column.name for column in statement.columns]
        return [
            (c.name, rule_text(c.condition, "A check", statement.table, self._view.namespace, columns))
            for c in statement.constraints
            if c.condition is not None
        ]

    def _add_key(self, table: Table, constraint: st.Constraint) -> None:
        """Add a primary key: not-null columns and a unique index, each verified by a job; all of them or none."""
        schema = table._schema_now()
        if key := _key(table):
            names = ", ".join(f.name for f in key)
            raise SchemaError(f"Table {table.name!r} has a primary key, ({names}), and it has only one.")
        columns = [f.name for f in map(schema.field, constraint.unique)]
        nullable = [name for name in columns if schema.field(name).nullable]
        name = constraint.name or key_name(split_name(table.name)[1])
        try:
            for column in columns:
                table.set_not_null(column)
            table.create_index(name, columns, unique=True)
        except IndexLakeError:
            for column in nullable:
                with suppress(IndexLakeError):  # someone else has changed the table
                    table.drop_not_null(column)
            raise

    def _add_unique(self, table: Table, constraint: st.Constraint) -> None:
        names = [table._schema_now().field(name).name for name in constraint.unique]
        name = constraint.name or unique_name(split_name(table.name)[1], names)
        table.create_index(name, names, unique=True)

    def _create_from_query(
        self, statement: st.CreateTable, name: str, query: st.Query, layout: str, config: TableConfig
    ) -> SqlChange:
        if statement.if_not_exists and self._found(name) is not None:
            return _done("create table")
        planned = plan_query(self._engine, self._view, query, self._parameters)
        planned.storing = True

        def create(tx: Transaction) -> WriteResult:
            found, batches = planned.run()
            fields = planned.stored_fields(found)
            fields = [f.with_name(n) for f, n in zip(fields, _apart([f.name for f in fields]), strict=True)]
            if statement.names:
                if len(statement.names) > len(fields):
                    query.text.source.fail(
                        f"{len(statement.names)} names are given for {len(fields)} columns.", statement.table.place
                    )
                fields = [f.with_name(n or f.name) for f, n in zip_longest(fields, statement.names)]
            schema = pa.schema([f.with_name(own.name) for f, own in zip(found, fields, strict=True)])
            table = tx.create_table(
                name, pa.schema(fields), layout=layout, config=config, replace=statement.replace,
                checks=type_checks(fields),
            )  # fmt: skip
            if not statement.with_data:
                return WriteResult(0)
            return table.insert(pa.RecordBatchReader.from_batches(schema, _named(batches, schema)))

        return SqlChange("create table", self._in_one_commit(create))

    def _new_default(self, column: str, written: Fragment, field: pa.Field) -> Any:
        """Return the default for a column of an existing table."""
        _check_default(written)
        if not written.parameters and not written.calls("nextval"):
            (type,) = sql_names(self._engine, [field])
            self._bound(written, f"create temp table t ({quoted(column)} {type} default (", "))")
        return self._default(column, written, field)

    def _default(self, column: str, written: Fragment, field: pa.Field) -> Any:
        """Return the default as a value for all rows, or as an expression to be computed for each."""
        if written.has_word(*_CHANGING) or written.calls("uuid"):  # uuid is also the name of a type
            if written.parameters:
                written.source.fail(
                    "A default is stored, so it cannot have parameters: write the value.", written.start
                )
            return expr(written.text)
        if written.parameters and len(written.tokens) > 1:
            written.source.fail("A default is a constant or a parameter.", written.start)
        ((before, after),) = casts_to(self._engine, [field])
        spliced = written.spliced(prefix=f"select {before}", suffix=f"{after} as c")
        try:
            with translating(written.source, spliced):
                table = self._engine.table(spliced.text, self._parameters.of(written.parameters))
        except ExpressionError as error:
            raise SchemaError(f"The default of column {column!r}: {error}", column=column) from None
        return python_value(table.column(0)[0])

    def _options(self, options: Sequence[tuple[str, Fragment]], *more: str) -> dict[str, Any]:
        """Return the options of ``with (…)`` or ``set (…)``: fields of ``TableConfig``, or ``more``."""
        values: dict[str, Any] = {}
        for name, written in options:
            if name.lower() == "layout" and "layout" not in more:
                raise written.source.error(
                    "The layout of an existing table is changed in Python: lake.cluster_table(name, layout=…).",
                    written.start,
                )
            if name.lower() in values:
                raise written.source.error(f"Table option {name!r} is given twice.", written.start)
            if name.lower() not in (*more, *TableConfig.__dataclass_fields__):
                known = ", ".join((*more, *TableConfig.__dataclass_fields__))
                raise written.source.error(f"There is no table option {name!r}; there are {known}.", written.start)
            value = constant_value(self._engine, written, self._parameters)
            values[name.lower()] = float(value) if isinstance(value, Decimal) else value
        return values

    # ------------------------------------------------------------ alter table

    def _found(self, name: str) -> Table | None:
        try:
            return self._within.table(name)
        except NotFoundError:
            return None

    def _alter(self, statement: st.AlterTable) -> SqlChange:
        name = statement.table.full(self._view.namespace)
        if statement.if_exists and self._found(name) is None:
            return _done("alter table")
        table = self._within.table(name)
        action = statement.action
        if isinstance(action, st.AddColumn):
            column = action.column
            if action.if_not_exists and table.alter().has_column(column.name):
                return _done("alter table")
            assert column.type is not None
            field = column_field(self._engine, column)
            default = None
            if column.default is not None:
                default = self._new_default(column.name, column.default, field)
                field = with_default_text(field, column.default, default)
            fill = f"update {_quoted(name)} set {quoted(column.name)} = default where {quoted(column.name)} is null"
            add_column(table, field, default, lambda: self._change(fill), nullable=column.nullable)
        elif isinstance(action, st.DropColumn):
            if action.if_exists and not table.alter().has_column(action.name):
                return _done("alter table")
            drop_column(table, action.name, cascade=action.cascade)
        elif isinstance(action, st.RenameColumn):
            table.rename_column(action.old, action.new)
        elif isinstance(action, st.RenameTable):
            table.rename(action.new.full(statement.table.namespace or self._view.namespace))
        elif isinstance(action, st.ChangeType):
            self._change_type(statement.table, table, action)
        elif isinstance(action, st.SetDefault):
            field, default = table._schema_now().field(action.column).arrow(), None
            if action.default is not None:
                default = self._new_default(field.name, action.default, field)
                field = with_default_text(field, action.default, default)
            table.alter()._add(SetDefault(field.name, default, field.metadata)).commit()
        elif isinstance(action, st.SetNotNull):
            if action.not_null:
                table.set_not_null(action.column)
            elif table._schema_now().field(action.column) not in _key(table):  # a key implies it, whatever is said here
                table.drop_not_null(action.column)
        elif isinstance(action, st.AddConstraint):
            constraint = action.constraint
            if constraint.is_key:
                self._add_key(table, constraint)
            elif constraint.condition is None:
                self._add_unique(table, constraint)
            else:
                names = table._schema_now().names
                text = rule_text(constraint.condition, "A check", statement.table, self._view.namespace, names)
                table.add_check(text, constraint.name)
        elif isinstance(action, st.DropConstraint):
            self._drop_constraint(table, action)
        else:
            table.set_config(**self._options(action.options))
        return _done("alter table")

    def _change_type(self, name: TableName, table: Table, action: st.ChangeType) -> None:
        field = declared_field(self._engine, action.type, action.column, inside="." in action.column)
        schema = table._schema_now()
        text = None
        if action.using is not None:
            text = rule_text(action.using, "What a column is computed from", name, self._view.namespace, schema.names)
        default, f = None, schema.by_name.get(action.column.lower())
        if f is not None and (written := default_text(f)) is not None:
            source = Source(written)
            try:
                text_of_default = Fragment(source, tokenize(source), {})
                default = self._default(f.name, text_of_default, field)
                field = with_default_text(field, text_of_default, default)
            except SchemaError as error:
                problem = str(error).partition("\n")[0]
                raise SchemaError(f"{problem}. Drop it first: ALTER … DROP DEFAULT.", column=f.name) from None
        try:
            alter_type(table, action.column, field, text, sql_names(self._engine, [field])[0], default)
        except IndexLakeError as error:
            if action.using is None or "does not support" not in str(error):
                raise
            problem = str(error).partition("\n")[0]
            action.using.source.fail(
                f"{problem}. Add a column of the new type, fill it with UPDATE, and drop the old one.",
                action.using.start,
            )

    def _change(self, text: str) -> None:
        (statement,) = parse(text).statements
        assert isinstance(statement, st.Update)
        RowWrites(self._engine, self._view, Parameters.of_values({}), None).run(statement)

    def _drop_constraint(self, table: Table, action: st.DropConstraint) -> None:
        """Drop the check or unique index of that name."""
        if any(name.lower() == action.name.lower() for name in table.checks()):
            table.drop_check(action.name)
        elif any(i.unique and i.name.lower() == action.name.lower() for i in table.indexes()):
            table.drop_index(action.name)
        elif not action.if_exists:
            raise NotFoundError(f"Table {table.name!r} has no constraint {action.name!r}.", name=action.name)


def _key(table: Table) -> Sequence[Field]:
    """Return the columns of the primary key, which may have been added to the table."""
    schema = table._schema_now()
    added = (i.fields(schema) for i in table._state().live_indexes if constraint_of(i, schema) == "primary key")
    return schema.key_fields or next(added, ())


def _check_default(written: Fragment) -> None:
    if written.calls("currval"):
        written.source.fail(
            "A default cannot be currval(…), which is different for everyone: use nextval(…), or give the value.",
            written.start,
        )


def _apart(names: Sequence[str]) -> list[str]:
    """Return the names of columns, with numbers appended to repeated ones, as DuckDB does."""
    found: dict[str, str] = {}  # by their names in lower case
    for name in names:
        numbered = (f"{name}_{n}" for n in count(1))
        new = next(n for n in chain([name], numbered) if n.lower() not in found)
        found[new.lower()] = new
    return list(found.values())


def _quoted(name: str) -> str:
    return ".".join(map(quoted, split_name(name)))


def _named(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)


def _done(operation: str) -> SqlChange:
    return SqlChange(operation, WriteResult(0))
