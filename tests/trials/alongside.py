"""Background jobs that run without pause while something else is tried."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import indexlake as il
from indexlake.pipeline.job import JobBusy, LeaseLost

KINDS = {"dump": 5, "compact": 3, "freeze": 1, "thaw": 1, "vacuum": 0.5}


@contextmanager
def jobs_alongside(
    lake: il.Lake, tables: Sequence[str], seed: int, extra: Callable[[], object] | None = None
) -> Iterator[Counter[str]]:
    """Jobs on tables chosen at random, in a thread, and `extra` now and then; how many of each were done."""
    stop = threading.Event()
    done: Counter[str] = Counter()
    errors: list[BaseException] = []
    chance = random.Random(f"jobs-{seed}")

    def one() -> None:
        pipeline = lake.pipeline(runner="threads")
        (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
        if extra is not None and chance.random() < 0.1:
            extra()
        if kind == "vacuum":
            pipeline.vacuum(dry_run=False, grace=timedelta(0))
        else:
            getattr(pipeline, kind)(chance.choice(tables))
        done[kind] += 1

    def run() -> None:
        try:
            while not stop.is_set():
                try:
                    one()
                except (JobBusy, LeaseLost):
                    done["busy"] += 1
                stop.wait(chance.random() * 0.02)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]
