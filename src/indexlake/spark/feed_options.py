"""The options of the data source that are about changes: which ones to read, and from where on a stream reads them.

Which of them apply is only known when Spark asks for a reader: one DataSource object serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from indexlake.errors import SchemaError

FEED_OPTIONS = ("changes", "max_rows_per_trigger", "since", "skip_changes", "until")

Moment = int | datetime


@dataclass(frozen=True, slots=True)
class FeedOptions:
    given: tuple[str, ...] = ()
    changes: bool = False
    since: Moment | Literal["latest"] | None = None
    until: Moment | None = None
    skip_changes: bool = False
    max_rows: int | None = None

    @staticmethod
    def of(given: Mapping[str, str]) -> FeedOptions:
        most = given.get("max_rows_per_trigger")
        if most is not None and (not most.isdecimal() or not int(most)):
            raise SchemaError(f"The option 'max_rows_per_trigger' is a whole number of rows, 1 or more, not {most!r}.")
        since = given.get("since")
        return FeedOptions(
            tuple(name for name in FEED_OPTIONS if name in given),
            _flag(given, "changes", since is not None),
            "latest" if since is not None and since.lower() == "latest" else _moment(given, "since"),
            _moment(given, "until"),
            _flag(given, "skip_changes", False),
            None if most is None else int(most),
        )

    def check_read(self) -> None:
        """Refuse what ``spark.read`` cannot do."""
        if (wrong := self._first("max_rows_per_trigger", "skip_changes")) is not None:
            raise SchemaError(f"The option {wrong!r} is for spark.readStream.")
        if self.since == "latest":
            raise SchemaError("since='latest' is for spark.readStream; give a snapshot number or a time.")
        if self.changes and self.since is None:
            raise SchemaError(
                "To read changes, give the option 'since': a snapshot number, or a time with its zone. "
                "spark.readStream begins with the whole table without it."
            )
        if not self.changes and (wrong := self._first("since", "until")) is not None:
            raise SchemaError(f"The option {wrong!r} is for reading changes: set 'since', and not 'changes' to false.")

    def _first(self, *names: str) -> str | None:
        """Return the first of these options that is given."""
        return next((name for name in names if name in self.given), None)

    def check_stream(self) -> None:
        """Refuse what ``spark.readStream`` cannot do."""
        if self.until is not None:
            raise SchemaError("A stream has no end: the option 'until' is for spark.read.")
        if self.changes and self.skip_changes:
            raise SchemaError("Set either 'changes' or 'skip_changes': one shows updates and deletes, the other none.")


NO_FEED = FeedOptions()


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise SchemaError(f"The option {name!r} is 'true' or 'false', not {text!r}.")
    return text.lower() == "true"


def _moment(given: Mapping[str, str], name: str) -> Moment | None:
    text = given.get(name)
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        latest = " or, for a stream, 'latest'" if name == "since" else ""
        raise SchemaError(
            f"The option {name!r} is a snapshot number, a time with its zone such as '2024-05-01T12:00:00+00:00'"
            f"{latest}; not {text!r}."
        )
    return found
