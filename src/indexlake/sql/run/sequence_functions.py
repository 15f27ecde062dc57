"""``nextval`` and ``currval`` for DuckDB: they call the lake's sequences once per batch of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.sql.plan.own_names import CURRENT, NEXT, drafted

if TYPE_CHECKING:
    from indexlake.snapshots.sequences import Sequences
    from indexlake.sql.parse.fragment import Fragment
    from indexlake.sql.plan.snapshot import Viewpoint
    from indexlake.sql.run.engine import Engine


def register_sequences(connection: Any, sequences: Callable[[], Sequences], drafts: Callable[[int], Sequences]) -> None:
    """Register both functions with a database, for all of its cursors.

    Each has a second form, whose other argument is the number of the draft that knows the sequence.
    """

    def following(of: Sequences, names: pa.ChunkedArray) -> pa.Array:
        return pa.array(of.take(names[0].as_py(), len(names)), pa.int64())

    def current(of: Sequences, names: pa.ChunkedArray) -> pa.Array:
        return pa.array(np.full(len(names), of.last(names[0].as_py())), pa.int64())

    def register(name: str, run: Callable[[Sequences, pa.ChunkedArray], pa.Array]) -> None:
        def of_lake(names: pa.ChunkedArray) -> pa.Array:
            return run(sequences(), names)

        def of_draft(names: pa.ChunkedArray, versions: pa.ChunkedArray) -> pa.Array:
            return run(drafts(versions[0].as_py()), names)

        options: Any = {"return_type": "BIGINT", "type": "arrow", "side_effects": True}
        connection.create_function(name, of_lake, ["VARCHAR"], **options)
        connection.create_function(drafted(name), of_draft, ["VARCHAR", "BIGINT"], **options)

    register(NEXT, following)
    register(CURRENT, current)


def check_numbers(view: Viewpoint, text: Fragment) -> None:
    """Refuse ``nextval`` in a transaction that only reads."""
    if view.transaction is not None and view.transaction.read_only and text.has_word(NEXT):
        view.transaction._check(writing=True)


def draft_with_sequences(engine: Engine, view: Viewpoint) -> int | None:
    """Return the number of the transaction's draft, if it has defined sequences, under which the engine finds them."""
    draft = None if view.transaction is None else view.transaction.draft
    if draft is None or draft.sequences is None:
        return None
    engine.drafted[draft.version] = draft.sequences
    return draft.version
