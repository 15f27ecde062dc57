"""What every statement that changes rows needs: the tables as it sees them, and the qualifiers for their columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from indexlake.sql.parse import statement as st
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.plan.qualifiers import own_names
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import Engine

if TYPE_CHECKING:
    from indexlake.commit.token import TokenLike
    from indexlake.table import Table
    from indexlake.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Writing:
    engine: Engine
    view: Viewpoint
    parameters: Parameters
    token: TokenLike | None

    def table(self, name: TableName, tx: Transaction | None = None) -> Table:
        return (tx or self.view.within)._table(name.full(self.view.namespace))

    def inside(self, tx: Transaction) -> Viewpoint:
        """Return the same view from within the statement's transaction."""
        return replace(self.view, snapshot=None, transaction=tx)

    def named(self, statement: st.Update | st.Delete | st.Merge | st.Insert, new: str = "") -> dict[str, str]:
        """Return the qualifiers that a statement may use for the columns of its table."""
        namespace = statement.table.namespace or self.view.namespace
        return own_names(statement.table.name, namespace, statement.alias, new)
