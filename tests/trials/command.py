"""What all trials share: the command line, where their lakes are, and the loop over seeds.

    python -m tests.trials.<name> --seconds 300 --seed 1 --catalog both

A trial is a function that plays one seed on a new lake, raises at the first thing that is wrong, and returns what
happened as counts.  The command plays one seed after the other until the time is up.  A failure ends it with the
trace, the notes of the round, and the command that plays the same seed again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

from tests.support.folders import new_folder

CATALOGS = ("sqlite", "postgres")
REPORT_SECONDS = 30.0

T = TypeVar("T")


class Ground:
    """Where the lakes of a trial are made.  Nothing is left of it when it is closed."""

    def __init__(self, catalog: str = "sqlite", dsn: str | None = None) -> None:
        assert catalog in CATALOGS
        self.catalog = catalog
        self._stack = ExitStack()
        self._shared: dict[Any, Any] = {}
        self.folder = new_folder("trial")
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        if catalog == "postgres" and dsn is None:
            from tests.support.servers import postgres_server

            dsn = self._stack.enter_context(postgres_server()).database()
        self.dsn = dsn if catalog == "postgres" else None

    def new(self) -> dict[str, Any]:
        """What `il.connect` takes to make a lake that does not exist yet, in this or another process."""
        name = f"lake_{uuid.uuid4().hex[:12]}"
        folder = str(self.folder / name)
        if self.dsn is None:
            return {"catalog": folder}
        return {"catalog": self.dsn, "storage": folder, "catalog_schema": name}

    def remove(self, where: dict[str, Any]) -> None:
        shutil.rmtree(where.get("storage") or where["catalog"], ignore_errors=True)
        if self.dsn is not None:
            import psycopg

            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(f'drop schema if exists "{where["catalog_schema"]}" cascade')

    def shared(self, name: Any, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Something that all rounds use and that is slow to make."""
        if name not in self._shared:
            self._shared[name] = self._stack.enter_context(make())
        found: T = self._shared[name]
        return found

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


Play = Callable[[int, Ground], Counter[str]]
"""One round: a seed, on a new lake."""


def main(name: str, play: Play, purpose: str | None) -> None:
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.trials.{name}", description=purpose, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no further round after so long (300)")
    parser.add_argument("--rounds", type=int, help="so many rounds, however long they take")
    parser.add_argument("--seed", type=int, help="of the first round; the others count up (default: any)")
    parser.add_argument("--catalog", choices=(*CATALOGS, "both"), default="both", help="both: they take turns")
    given = parser.parse_args()
    first = random.SystemRandom().getrandbits(30) if given.seed is None else given.seed
    catalogs = CATALOGS if given.catalog == "both" else (given.catalog,)
    print(f"seed {first}", flush=True)
    with ExitStack() as stack:
        grounds = [stack.enter_context(Ground(catalog)) for catalog in catalogs]
        sys.exit(_rounds(name, play, grounds, first, given.seconds, given.rounds))


def _rounds(name: str, play: Play, grounds: list[Ground], first: int, seconds: float, most: int | None) -> int:
    counts: Counter[str] = Counter()
    begun = reported = time.monotonic()
    while counts["rounds"] < most if most is not None else time.monotonic() < begun + seconds:
        seed = first + counts["rounds"]
        ground = grounds[counts["rounds"] % len(grounds)]
        try:
            counts += play(seed, ground)
        except Exception:
            traceback.print_exc()
            print(f"VIOLATION after {_said(counts, begun)}")
            print(
                f"again: python -m tests.trials.{name} --seed {seed} --rounds 1 --catalog {ground.catalog}", flush=True
            )
            return 1
        counts["rounds"] += 1
        if time.monotonic() > reported + REPORT_SECONDS:
            reported = time.monotonic()
            print(_said(counts, begun), flush=True)
    print(f"{_said(counts, begun)}: no violation (seeds {first} to {first + counts['rounds'] - 1})")
    return 0


def _said(counts: Counter[str], begun: float) -> str:
    figures = ", ".join(
        f"{count} {what}" for what, count in sorted(counts.items(), key=lambda item: item[0] != "rounds")
    )
    return f"{figures} in {time.monotonic() - begun:.0f} s"
