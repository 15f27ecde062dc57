"""The index kinds by the names used in index definitions: the built-in ones and those of other packages.

A kind is loaded when it is first needed.  Another package adds one with an entry point in the group
``indexlake.index_kinds``; it cannot replace a built-in kind.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from indexlake.errors import NotFoundError

if TYPE_CHECKING:
    from indexlake.indexes.kind import IndexKind

GROUP = "indexlake.index_kinds"

_OWN = {
    "btree": "indexlake.indexes.btree.kind:BTree",
    "hash": "indexlake.indexes.hash.kind:HashIndex",
    "rtree": "indexlake.indexes.rtree.kind:RTree",
    "bm25": "indexlake.indexes.bm25.kind:Bm25",
    "hnsw": "indexlake.indexes.hnsw.kind:Hnsw",
}
_SYNONYMS = {"rstar": "rtree"}

KINDS: dict[str, IndexKind] = {}
"""The kinds loaded so far."""


def kind_named(name: str) -> IndexKind:
    kind = KINDS.get(name)
    return kind if kind is not None else _load(name)


def kind_if_known(name: str) -> IndexKind | None:
    """Return the kind, or None if this release does not have it, for callers that can do without."""
    try:
        return kind_named(name)
    except NotFoundError:
        return None


def known_name(name: str) -> str:
    """Return the name under which definitions store a kind."""
    folded = name.lower() if isinstance(name, str) else name
    folded = _SYNONYMS.get(folded, folded)
    if folded not in KINDS and folded not in _OWN and folded not in _external():
        raise _unknown(name)
    return folded


def _load(name: str) -> IndexKind:
    if name in _OWN:
        module, _, attribute = _OWN[name].partition(":")
        found = getattr(import_module(module), attribute)
    elif name in (others := _external()):
        found = others[name].load()
    else:
        raise _unknown(name)
    return KINDS.setdefault(name, found())


def _external() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _unknown(name: object) -> NotFoundError:
    known = ", ".join(sorted({*_OWN, *KINDS, *_external()}))
    return NotFoundError(
        f"There is no index kind {name!r}; there are {known}. A newer IndexLake or another package may have it: "
        "upgrade with pip install -U indexlake, or install that package.",
        name=str(name),
    )
