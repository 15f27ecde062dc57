"""Processes that are killed again and again while they write to several tables, alter them and load files.

Two processes of two threads each share a lake of three tables (a key, a composite key, none).  They insert, update,
delete, upsert, load, add, drop, rename and widen columns, make and drop tables, commit transactions over two tables
with tokens, and dump, compact, cluster, freeze, thaw and vacuum.  Each is killed at a random moment or at a named step.
Afterwards everything acknowledged is there once, what was in flight is there whole or not at all and can be repeated
with its token, the columns are those that were acknowledged or in flight, the feed leads from the first snapshot to the
present rows, no file is damaged, and vacuum leaves nothing behind.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing

from tests.crash.campaign import FORMATS, STEPS, kill_at_step
from tests.crash.ledger import new_lake, remove
from tests.crash.nursery import Nursery
from tests.crash.worker import STORM
from tests.trials.command import Ground, main


def play(seed: int, ground: Ground, storms: int = 6, workers: int = 2, most_lines: int = 200) -> Counter[str]:
    chance = random.Random(seed)
    first, *others = (ground.shared(f"nursery {n}", lambda: closing(Nursery())) for n in range(workers))
    lake = new_lake(first, seed, dsn=ground.dsn, format=chance.choice(FORMATS))
    try:
        for _ in range(storms):
            if chance.random() < 0.6:
                lake.storm(others, most_lines, weights=STORM)
            else:
                kill_at_step(lake, chance.choice(STEPS), chance.choice((1, 2, 3, 5, 8)), STORM)
        lake.finish(most=25)
    except BaseException as error:
        error.add_note(f"lake seed {seed}, kill {lake.kills}, lake kept in {lake.folder}")
        raise
    remove(lake)
    return Counter(
        {"kills": lake.kills, "acknowledged writes": lake.acknowledged, "in flight": lake.in_flight,
         "of those committed": lake.kept_in_flight, "repeated by token": lake.repeated}
    )  # fmt: skip


if __name__ == "__main__":
    main("kill_storm", play, __doc__)
