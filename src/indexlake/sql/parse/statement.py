"""What a statement asks for, taken apart as far as it concerns IndexLake.

Expressions and queries stay as they were written.  Nothing here knows which tables exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.token_reader import TableName


@dataclass(frozen=True, eq=False)
class Query:
    """Anything that gives rows; DuckDB answers it over our scans."""

    text: Fragment


@dataclass(frozen=True, eq=False)
class Explain:
    query: Query
    analyze: bool
    format: str | None = None  # of DuckDB's plan alone


@dataclass(frozen=True, eq=False)
class ExplainOther:
    """What DuckDB would do for a statement that is no query."""

    text: Fragment


@dataclass(frozen=True, eq=False)
class DescribeTable:
    table: TableName


@dataclass(frozen=True, eq=False)
class DescribeQuery:
    query: Query


@dataclass(frozen=True, eq=False)
class ShowTables:
    namespace: str | None


@dataclass(frozen=True, eq=False)
class ShowSchemas:
    pass


@dataclass(frozen=True, eq=False)
class ShowIndexes:
    table: TableName | None  # None: of all tables of the namespace
    everywhere: bool = False  # of all namespaces


@dataclass(frozen=True, eq=False)
class Insert:
    table: TableName
    alias: str | None
    columns: tuple[str, ...] | None
    by_name: bool
    query: Query | None  # None: default values
    conflict: Conflict | None
    prefix: Fragment | None
    returning: Fragment | None = None


@dataclass(frozen=True, eq=False)
class Conflict:
    """What to do with rows whose key is there: nothing, replace every given column, or these assignments."""

    action: str  # "nothing" | "replace" | "update"
    columns: tuple[str, ...] | None
    assignments: tuple[Assignment, ...] = ()
    where: Fragment | None = None


@dataclass(frozen=True, eq=False)
class Assignment:
    column: str
    value: Fragment
    place: int


@dataclass(frozen=True, eq=False)
class Update:
    table: TableName
    alias: str | None
    assignments: tuple[Assignment, ...]
    source: Fragment | None
    where: Fragment | None
    prefix: Fragment | None
    returning: Fragment | None = None


@dataclass(frozen=True, eq=False)
class Delete:
    table: TableName
    alias: str | None
    source: Fragment | None
    where: Fragment | None
    prefix: Fragment | None
    returning: Fragment | None = None


@dataclass(frozen=True, eq=False)
class Truncate:
    tables: tuple[TableName, ...]


@dataclass(frozen=True, eq=False)
class CopyOption:
    name: str
    value: str  # as an argument of a function of DuckDB's
    place: int


@dataclass(frozen=True, eq=False)
class CopyFrom:
    """The rows of files go into a table."""

    table: TableName
    columns: tuple[str, ...] | None
    file: Fragment
    options: tuple[CopyOption, ...]


@dataclass(frozen=True, eq=False)
class CopyTo:
    """The rows of a query go into a file, or into several."""

    query: Query
    file: Fragment
    options: Fragment | None  # as DuckDB takes them


@dataclass(frozen=True, eq=False)
class MergeClause:
    """``when …``: which rows, on which further condition, and what happens to them."""

    rows: str  # "matched" | "not matched" | "not matched by source"
    condition: Fragment | None
    action: str  # "update" | "delete" | "insert" | "nothing" | "error"
    assignments: tuple[Assignment, ...] | None  # none at all: an insert of default values
    place: int
    values: tuple[Fragment, ...] | None = None  # for all columns of the table in their order; of an error its message
    by_name: bool = False  # without assignments and values: how columns of the source find those of the table


@dataclass(frozen=True, eq=False)
class Merge:
    table: TableName
    alias: str | None
    source: Fragment  # a table name or a query in parentheses
    source_is_query: bool
    source_alias: str
    source_table: TableName | None  # where it has no alias
    source_columns: tuple[str, ...] | None
    on: Fragment | None
    using: tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    prefix: Fragment | None
    returning: Fragment | None = None


@dataclass(frozen=True, eq=False)
class ColumnDefinition:
    name: str
    type: Fragment | None  # None: that of what is computed
    nullable: bool
    default: Fragment | None
    place: int
    generated: Fragment | None = None
    collation: Fragment | None = None


@dataclass(frozen=True, eq=False)
class Constraint:
    """A check, or columns whose values are unique together."""

    name: str | None
    condition: Fragment | None
    unique: tuple[str, ...]
    place: int
    is_key: bool = False  # and are never null


@dataclass(frozen=True, eq=False)
class CreateTable:
    table: TableName
    if_not_exists: bool
    replace: bool
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    names: tuple[str, ...]  # of the first columns of the query
    query: Query | None  # create table … as
    with_data: bool
    options: tuple[tuple[str, Fragment], ...]


@dataclass(frozen=True, eq=False)
class CreateTemporaryTable:
    """Of the engine: its columns are DuckDB's business."""

    table: TableName
    if_not_exists: bool
    replace: bool
    definition: Fragment | None  # the columns, or the names of those of the query
    names: tuple[str, ...]
    query: Query | None
    with_data: bool


@dataclass(frozen=True, eq=False)
class CreateSchema:
    name: str
    if_not_exists: bool


@dataclass(frozen=True, eq=False)
class CreateView:
    view: TableName
    if_not_exists: bool
    replace: bool
    temporary: bool
    names: tuple[str, ...]  # of its first columns
    query: Query


@dataclass(frozen=True, eq=False)
class DropView:
    view: TableName
    if_exists: bool


@dataclass(frozen=True, eq=False)
class RenameView:
    view: TableName
    new: str
    if_exists: bool


@dataclass(frozen=True, eq=False)
class CreateNamed:
    """A sequence, a type or a macro."""

    kind: str  # "sequence" | "type" | "macro" | "table macro"
    name: TableName
    if_not_exists: bool
    replace: bool
    temporary: bool
    body: Mapping[str, Any]  # as it is stored
    texts: tuple[Fragment, ...] = ()  # what DuckDB has to understand
    query: Query | None = None  # whose values are those of an enum


@dataclass(frozen=True, eq=False)
class DropNamed:
    kind: str
    name: TableName
    if_exists: bool


@dataclass(frozen=True, eq=False)
class CommentOn:
    kind: str  # "table" | "view" | "column" | "sequence" | "type" | "macro" | "table macro"
    name: TableName
    column: str | None
    comment: Fragment | None  # None: there is none from now on


@dataclass(frozen=True, eq=False)
class DropTable:
    table: TableName
    if_exists: bool


@dataclass(frozen=True, eq=False)
class DropSchema:
    name: str
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, eq=False)
class AddColumn:
    column: ColumnDefinition
    if_not_exists: bool


@dataclass(frozen=True, eq=False)
class DropColumn:
    name: str
    if_exists: bool


@dataclass(frozen=True, eq=False)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True, eq=False)
class RenameTable:
    new: str


@dataclass(frozen=True, eq=False)
class ChangeType:
    column: str
    type: Fragment
    using: Fragment | None  # None: the value that it has


@dataclass(frozen=True, eq=False)
class SetDefault:
    column: str
    default: Fragment | None  # None: it is dropped


@dataclass(frozen=True, eq=False)
class SetNotNull:
    column: str
    not_null: bool


@dataclass(frozen=True, eq=False)
class AddConstraint:
    constraint: Constraint


@dataclass(frozen=True, eq=False)
class DropConstraint:
    name: str
    if_exists: bool


@dataclass(frozen=True, eq=False)
class SetOptions:
    options: tuple[tuple[str, Fragment], ...]


AlterAction = (
    AddColumn | DropColumn | RenameColumn | RenameTable | ChangeType | SetDefault | SetNotNull | AddConstraint
    | DropConstraint | SetOptions
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class AlterTable:
    table: TableName
    if_exists: bool
    action: AlterAction


@dataclass(frozen=True, eq=False)
class CreateIndex:
    name: str
    table: TableName
    if_not_exists: bool
    kind: str
    columns: tuple[str, ...]
    include: tuple[str, ...]
    unique: bool
    options: tuple[tuple[str, Fragment], ...]


@dataclass(frozen=True, eq=False)
class DropIndex:
    name: str
    table: TableName | None  # None: the one that has an index of that name
    if_exists: bool


@dataclass(frozen=True, eq=False)
class Control:
    """The begin or the end of a transaction."""

    word: Literal["begin", "commit", "rollback"]


@dataclass(frozen=True, eq=False)
class Prepare:
    """A statement that gets a name, and the parameters that it has."""

    name: str
    statement: Statement
    text: Fragment

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.text.parameters


@dataclass(frozen=True, eq=False)
class Argument:
    name: str | None  # None: by its place
    value: Fragment


@dataclass(frozen=True, eq=False)
class Execute:
    name: str
    arguments: tuple[Argument, ...]
    place: int


@dataclass(frozen=True, eq=False)
class Deallocate:
    name: str | None  # None: all of them
    place: int


@dataclass(frozen=True, eq=False)
class Setting:
    """A setting of the engine."""

    name: str
    value: Fragment | None  # None: as it was at the beginning
    place: int


@dataclass(frozen=True, eq=False)
class Variable:
    """A value with a name, for ``getvariable``."""

    name: str
    value: Query | None  # None: it is forgotten


@dataclass(frozen=True, eq=False)
class Nothing:
    """There is nothing to do."""


Write = Insert | Update | Delete | Truncate | Merge | CopyFrom
Definition = (
    CreateTable
    | CreateTemporaryTable
    | CreateSchema
    | CreateView
    | CreateNamed
    | DropTable
    | DropSchema
    | DropView
    | RenameView
    | DropNamed
    | CommentOn
    | AlterTable
    | CreateIndex
    | DropIndex
)
Reading = (
    Query | Explain | ExplainOther | DescribeTable | DescribeQuery | ShowTables | ShowSchemas | ShowIndexes | CopyTo
)
Around = Prepare | Deallocate | Setting | Variable | Nothing
Meant = Write | Definition | Reading | Control
Statement = Meant | Around | Execute
