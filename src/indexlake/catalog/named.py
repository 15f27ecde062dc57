"""Views and other named definitions in a namespace, each valid from one snapshot to another.

A definition never changes: it is replaced by another record. The catalog does not interpret its body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexlake.catalog.dialect import Dialect
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.schema.names import full_name


@dataclass(frozen=True, slots=True)
class Named:
    """One row of ``indexlake_named``."""

    named_id: int
    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name)


def create_statements(d: Dialect) -> list[str]:
    i, t = d.int_type, d.text_type
    return [
        f"""create table indexlake_named (
            named_id {d.key_type} primary key, kind {t} not null, namespace_id {i} not null, name {t} not null,
            folded_name {t} not null, body {t} not null, begin_snapshot {i} not null, end_snapshot {i})""",
        """create unique index indexlake_named_name on indexlake_named (namespace_id, kind, folded_name)
            where end_snapshot is null""",
    ]


def find_named(
    r: ReadTransaction | Transaction, kind: str, namespace: str, name: str, at: int | None = None
) -> Named | None:
    """Return the definition with a kind and name, now or at a snapshot."""
    found = _select(r, at, "d.kind = ? and n.folded_name = ? and d.folded_name = ?",
                    (kind, namespace.lower(), name.lower()))  # fmt: skip
    return found[0] if found else None


def list_named(
    r: ReadTransaction | Transaction, at: int | None = None, kinds: Sequence[str] | None = None
) -> list[Named]:
    """Return all definitions of now or of a snapshot, by name."""
    if kinds is None:
        return _select(r, at, "1 = 1", ())
    return _select(r, at, f"d.kind in ({', '.join('?' * len(kinds))})", tuple(kinds))


def named_in(r: ReadTransaction | Transaction, kind: str, snapshot: int) -> dict[str, Named | None]:
    """Return what the newest snapshot has created, by full name in lower case; None: what it has only dropped."""
    dropped = _select(r, snapshot - 1, "d.kind = ? and d.end_snapshot = ?", (kind, snapshot))
    created = _select(r, None, "d.kind = ? and d.begin_snapshot = ?", (kind, snapshot))
    return {**dict.fromkeys(n.full_name.lower() for n in dropped), **{n.full_name.lower(): n for n in created}}


def _select(r: ReadTransaction | Transaction, at: int | None, where: str, params: tuple[str | int, ...]) -> list[Named]:
    visible, when = "d.end_snapshot is null", tuple[int, ...]()
    if at is not None:
        visible, when = "d.begin_snapshot <= ? and (d.end_snapshot is null or d.end_snapshot > ?)", (at, at)
    rows = r.rows(
        f"""select d.named_id, d.kind, n.namespace_name, d.name, d.body from indexlake_named d
        join indexlake_namespace n on n.namespace_id = d.namespace_id where {where} and {visible} order by 3, 4, 2""",
        (*params, *when),
    )
    return [Named(number, kind, space, name, json.loads(body)) for number, kind, space, name, body in rows]


def insert_named(tx: Transaction, named_id: int, namespace_id: int, new: Named, snapshot: int) -> None:
    tx.execute(
        """insert into indexlake_named (named_id, kind, namespace_id, name, folded_name, body, begin_snapshot)
        values (?, ?, ?, ?, ?, ?, ?)""",
        (named_id, new.kind, namespace_id, new.name, new.name.lower(), json.dumps(dict(new.body)), snapshot),
    )


def end_named(tx: Transaction, named_id: int, snapshot: int) -> None:
    tx.execute("update indexlake_named set end_snapshot = ? where named_id = ?", (snapshot, named_id))


def set_body(tx: Transaction, named_id: int, body: Mapping[str, Any]) -> None:
    tx.execute("update indexlake_named set body = ? where named_id = ?", (json.dumps(dict(body)), named_id))
