"""What a statement asks for, parsed as far as it concerns IndexLake.

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
    """Anything that returns rows; DuckDB answers it using our scans."""

    text: Fragment


@dataclass(frozen=True, eq=False)
class Explain:
    query: Query
    analyze: bool
    format: str | None = None  # of DuckDB's plan alone


@dataclass(frozen=True, eq=False)
class ExplainOther:
    """DuckDB's plan for a statement that is not a query."""

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
class ShowIndexes:
    table: TableName | None  # None: those of all tables of the namespace
    everywhere: bool = False  # in all namespaces


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
    """What to do with rows whose key already exists: nothing, replace every given column, or these assignments."""

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
    value: str  # as an argument for one of DuckDB's functions
    place: int


@dataclass(frozen=True, eq=False)
class CopyFrom:
    """Loads the rows of files into a table."""

    table: TableName
    columns: tuple[str, ...] | None
    file: Fragment
    options: tuple[CopyOption, ...]


@dataclass(frozen=True, eq=False)
class CopyTo:
    """Writes the rows of a query to one or more files."""

    query: Query
    file: Fragment
    options: Fragment | None  # as DuckDB takes them


@dataclass(frozen=True, eq=False)
class MergeClause:
    """``when …``: which rows, an additional condition, and what happens to them."""

    rows: str  # "matched" | "not matched" | "not matched by source"
    condition: Fragment | None
    action: str  # "update" | "delete" | "insert" | "nothing" | "error"
    assignments: tuple[Assignment, ...] | None  # an empty tuple: insert default values
    place: int
    values: tuple[Fragment, ...] | None = None  # one for each column of the table, in order; for an error, its message
    by_name: bool = False  # without assignments and values: match the source's columns by name, not by position


@dataclass(frozen=True, eq=False)
class Merge:
    table: TableName
    alias: str | None
    source: Fragment  # a table name or a query in parentheses
    source_is_query: bool
    source_alias: str
    source_table: TableName | None  # if it has no alias
    source_columns: tuple[str, ...] | None
    on: Fragment | None
    using: tuple[str, ...]
    clauses: tuple[MergeClause, ...]
    prefix: Fragment | None
    returning: Fragment | None = None


@dataclass(frozen=True, eq=False)
class ColumnDefinition:
    name: str
    type: Fragment | None  # None: the type of the generated expression
    nullable: bool
    default: Fragment | None
    place: int
    generated: Fragment | None = None
    collation: Fragment | None = None
    stored: bool = False  # it says that what is generated is stored, which it always is


@dataclass(frozen=True, eq=False)
class Constraint:
    """A check, or columns whose values must be unique together."""

    name: str | None
    condition: Fragment | None
    unique: tuple[str, ...]
    place: int
    is_key: bool = False  # a primary key: unique and never null


@dataclass(frozen=True, eq=False)
class CreateTable:
    table: TableName
    if_not_exists: bool
    replace: bool
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    definition: Fragment | None  # the columns and constraints as written, in parentheses
    names: tuple[str, ...]  # for the first columns of the query
    query: Query | None  # create table … as
    with_data: bool
    options: tuple[tuple[str, Fragment], ...]


@dataclass(frozen=True, eq=False)
class CreateTemporaryTable:
    """Executed by the engine: its columns are up to DuckDB."""

    table: TableName
    if_not_exists: bool
    replace: bool
    definition: Fragment | None  # the columns and constraints as written, in parentheses
    types: tuple[Fragment, ...]  # of the columns
    names: tuple[str, ...]  # for the first columns of the query
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
    names: tuple[str, ...]  # for its first columns
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
    body: Mapping[str, Any]  # as stored
    texts: tuple[Fragment, ...] = ()  # expressions, queries or types that DuckDB has to understand
    query: Query | None = None  # returns the values of an enum


@dataclass(frozen=True, eq=False)
class DropNamed:
    kind: str
    name: TableName
    if_exists: bool
    cascade: bool  # together with the tables that need it


@dataclass(frozen=True, eq=False)
class OwnSequence:
    name: TableName
    owner: TableName
    if_exists: bool
    kind: str = "sequence"


@dataclass(frozen=True, eq=False)
class CommentOn:
    kind: str  # "table" | "view" | "column" | "index" | "sequence" | "type" | "macro" | "table macro"
    name: TableName
    column: str | None
    comment: Fragment | None  # None: remove it


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
    cascade: bool  # together with what is generated from it


@dataclass(frozen=True, eq=False)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True, eq=False)
class RenameTable:
    new: TableName


@dataclass(frozen=True, eq=False)
class ChangeType:
    column: str
    type: Fragment
    using: Fragment | None  # None: convert the current value


@dataclass(frozen=True, eq=False)
class SetDefault:
    column: str
    default: Fragment | None  # None: drop it


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
    table: TableName | None  # None: find the table that has an index of this name
    if_exists: bool


@dataclass(frozen=True, eq=False)
class Control:
    """Begins or ends a transaction."""

    word: Literal["begin", "commit", "rollback"]
    read_only: bool = False


@dataclass(frozen=True, eq=False)
class Prepare:
    """A named statement, and its parameters."""

    name: str
    statement: Statement
    text: Fragment

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.text.parameters


@dataclass(frozen=True, eq=False)
class Argument:
    name: str | None  # None: positional
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
    value: Fragment | None  # None: reset it
    place: int


@dataclass(frozen=True, eq=False)
class Variable:
    """A named value, for ``getvariable``."""

    name: str
    value: Query | None  # None: forget it


@dataclass(frozen=True, eq=False)
class Nothing:
    """A statement that has no effect."""

    looked_at: Query | None = None  # which has to be there


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
    | OwnSequence
    | CommentOn
    | AlterTable
    | CreateIndex
    | DropIndex
)
Reading = Query | Explain | ExplainOther | DescribeTable | DescribeQuery | ShowTables | ShowIndexes | CopyTo
Around = Prepare | Deallocate | Setting | Variable | Nothing
Meant = Write | Definition | Reading | Control
Statement = Meant | Around | Execute
