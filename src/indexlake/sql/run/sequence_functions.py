"""``nextval`` and ``currval`` for DuckDB: they call the lake's sequences once per batch of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.sql.plan.own_names import CURRENT, NEXT

if TYPE_CHECKING:
    from indexlake.snapshots.sequences import Sequences


def register_sequences(connection: Any, sequences: Callable[[], Sequences]) -> None:
    """Register both functions with a database, for all of its cursors."""

    def following(names: pa.ChunkedArray) -> pa.Array:
        return pa.array(sequences().take(names[0].as_py(), len(names)), pa.int64())

    def current(names: pa.ChunkedArray) -> pa.Array:
        return pa.array(np.full(len(names), sequences().last(names[0].as_py())), pa.int64())

    for name, run in ((NEXT, following), (CURRENT, current)):
        connection.create_function(name, run, ["VARCHAR"], "BIGINT", type="arrow", side_effects=True)
