"""What the options of the data source ask for: which table of which lake, and how to open it.

Spark shows options in plans and logs, except those whose names mark them as secret.  So secrets are only taken from
such options or from the driver's environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from indexlake.connect import connect, connect_to_read
from indexlake.errors import SchemaError
from indexlake.scan.scan import bind_predicate
from indexlake.spark.feed_options import FEED_OPTIONS, NO_FEED, FeedOptions
from indexlake.storage import environment
from indexlake.storage.cache import CACHE_BYTES

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.table import Table

CATALOG = "INDEXLAKE_CATALOG"
"""The catalog's address, in the driver's environment."""

_KNOWN = (
    "cache_bytes", "cache_dir", "catalog", "catalog_password", "catalog_schema", "path", "pushdown", "sequence_by",
    "snapshot", "table", "timestamp", "token", "where", "write_mode",
)  # fmt: skip


_SPARKS_OWN = ("checkpointlocation", "queryname")
"""Options of a stream that Spark hands on although they are its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which table is asked for, and how to open its lake.  Its repr shows no secrets."""

    catalog: str = field(repr=False)
    catalog_schema: str | None
    storage_options: Mapping[str, str] = field(repr=False)
    table: str
    snapshot: int | None
    timestamp: datetime | None
    where: str | None
    pushdown: bool
    token: str | None = None
    cache_dir: str | None = None
    cache_bytes: int = CACHE_BYTES
    write_mode: str | None = None
    sequence_by: str | None = None
    pinned: bool = False  # whether the snapshot was pinned when the table was loaded
    feed: FeedOptions = NO_FEED

    @staticmethod
    def of(options: Mapping[str, str]) -> Request:
        given = {name.lower(): value for name, value in options.items() if name.lower() not in _SPARKS_OWN}
        storage = {
            name.removeprefix("storage."): given.pop(name) for name in list(given) if name.startswith("storage.")
        }
        if "location" in given:
            raise SchemaError(
                "A table made with CREATE TABLE … USING indexlake would lose its options. Use CREATE TEMPORARY VIEW … "
                "USING indexlake OPTIONS (…)."
            )
        known = sorted((*_KNOWN, *FEED_OPTIONS))
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise SchemaError(
                f"The data source 'indexlake' has no option {unknown[0]!r}; it has {', '.join(known)} and storage.…"
            )
        catalog = _without_password(given.get("catalog") or given.get("path")) or os.environ.get(CATALOG)
        if not catalog:
            raise SchemaError(
                "The data source 'indexlake' needs the lake: the option 'catalog', or load(path), with a folder or a "
                f"postgresql:// address, or the variable {CATALOG} in the driver's environment."
            )
        catalog = _with_password(catalog, given.get("catalog_password"))
        if not given.get("table"):
            raise SchemaError("The data source 'indexlake' needs the option 'table', for example 'sales.orders'.")
        if "snapshot" in given and "timestamp" in given:
            raise SchemaError("The data source 'indexlake' takes either 'snapshot' or 'timestamp'.")
        return Request(
            catalog, given.get("catalog_schema"), {**environment.storage_options(), **storage}, given["table"],
            _number("snapshot", given["snapshot"]) if "snapshot" in given else None,
            _timestamp(given.get("timestamp")), given.get("where"), _pushdown(given.get("pushdown", "never")),
            given.get("token"), given.get("cache_dir"),
            _number("cache_bytes", given.get("cache_bytes", str(CACHE_BYTES)), " of bytes"), given.get("write_mode"),
            given.get("sequence_by"), feed=FeedOptions.of(given),
        )  # fmt: skip

    def open_to_read(self) -> Lake:
        return connect_to_read(
            self.catalog, self.storage_options or None, self.catalog_schema, self.cache_dir, self.cache_bytes
        )

    def open(self, *, automatic: bool = False) -> Lake:
        return connect(
            self.catalog,
            storage_options=self.storage_options or None,
            catalog_schema=self.catalog_schema,
            create=False,
            automatic=automatic,
            cache_dir=self.cache_dir,
            cache_bytes=self.cache_bytes,
        )

    def table_of(self, lake: Lake) -> Table:
        if self.snapshot is None and self.timestamp is None:
            return lake.table(self.table)
        return lake.at(self.snapshot, time=self.timestamp).table(self.table)

    def check_write(self, *, streaming: bool = False) -> None:
        reading = {
            "snapshot": self.snapshot is not None, "timestamp": self.timestamp is not None,
            "where": self.where is not None, "pushdown": self.pushdown, **dict.fromkeys(self.feed.given, True),
        }  # fmt: skip
        wrong = next((name for name, given in reading.items() if given), None)
        if wrong is not None:
            raise SchemaError(f"The option {wrong!r} is for reading; a write takes none of {', '.join(reading)}.")
        if streaming and self.token is not None:
            raise SchemaError("A stream has no option 'token': its checkpoint makes each batch happen once.")
        if not streaming and (self.write_mode or self.sequence_by) is not None:
            raise SchemaError(
                "The options 'write_mode' and 'sequence_by' are for streams. For a DataFrame call df.write.mode(…), or "
                "lake.pipeline().load(df, …, mode=…)."
            )

    def check_where(self, table: Table) -> None:
        if self.where is not None:
            bind_predicate(self.where, table._schema_now(), None)

    def check_feed(self, *, stream: bool) -> None:
        """Refuse options that do not go with reading changes, or with a stream."""
        self.feed.check_stream() if stream else self.feed.check_read()
        others = {
            "snapshot": self.snapshot is not None, "timestamp": self.timestamp is not None, "pushdown": self.pushdown,
        }  # fmt: skip
        wrong = next((name for name, given in others.items() if given), None)
        if wrong is not None and (stream or self.feed.changes):
            raise SchemaError(f"The option {wrong!r} is not for streams and changes; 'since' says where they begin.")


def _without_password(address: str | None) -> str | None:
    """Return the address, after checking that it has no password in it."""
    if address is not None and "://" in address:
        url = urlsplit(address)
        if url.password or "password" in parse_qs(url.query):
            raise SchemaError(
                "Spark shows options in plans and logs, so the address of a catalog must not have the password in it. "
                f"Give the option 'catalog_password', which Spark hides, or set {CATALOG} or PGPASSWORD in the "
                "driver's environment."
            )
    return address


def _with_password(address: str, password: str | None) -> str:
    if not password:
        return address
    if "://" not in address:
        raise SchemaError("The option 'catalog_password' is for the address of a PostgreSQL catalog.")
    url = urlsplit(address)
    user, _, place = url.netloc.rpartition("@")
    return urlunsplit(url._replace(netloc=f"{user.partition(':')[0]}:{quote(password, safe='')}@{place}"))


def _pushdown(text: str) -> bool:
    if text.lower() not in ("never", "once"):
        raise SchemaError(
            f"The option 'pushdown' is 'never' or 'once', not {text!r}; 'once' is for a DataFrame that one query reads."
        )
    return text.lower() == "once"


def _number(option: str, text: str, of: str = "") -> int:
    if not text.isdecimal():
        raise SchemaError(f"The option {option!r} is a whole number{of}, not {text!r}.")
    return int(text)


def _timestamp(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise SchemaError(
            f"The option 'timestamp' is a time with its zone such as '2024-05-01T12:00:00+00:00', not {text!r}."
        )
    return found
