"""The index kinds by name, as index definitions name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake.errors import NotFoundError
from indexlake.indexes.btree.kind import BTree

if TYPE_CHECKING:
    from indexlake.indexes.kind import IndexKind

KINDS: dict[str, IndexKind] = {"btree": BTree()}


def kind_named(name: str) -> IndexKind:
    kind = KINDS.get(name)
    if kind is None:
        raise NotFoundError(
            f"There is no index kind {name!r} in this release; it knows {', '.join(sorted(KINDS))}. A newer IndexLake "
            "may have made the index: upgrade with pip install -U indexlake.",
            name=name,
        )
    return kind
