"""Random lives of tables: columns are added, dropped, renamed, swapped and widened, nested ones too.

Between the alterations rows are inserted, updated, deleted, dumped, compacted, frozen, thawed, expired and vacuumed,
through two handles.  Every retained snapshot is read by scan, predicate, key and SQL, and the change feed is read, all
against a model in plain Python (`tests/evolution/evolving_model.py`).
"""

from __future__ import annotations

from collections import Counter

from tests.evolution.evolving_model import Evolution
from tests.support.lakes import connect
from tests.trials.command import Ground, main

STEPS = 60


def play(seed: int, ground: Ground, steps: int = STEPS) -> Counter[str]:
    where = ground.new()
    life = Evolution(seed, lambda: connect(**where))
    try:
        for _ in range(steps):
            life.step()
        life.check_all()
        snapshots = len(life.pictures)
        done = life.lakes[0].pipeline().verify()
        assert done.ok, done
    except BaseException as error:
        error.add_note("steps: " + ", ".join(life.log))
        raise
    finally:
        life.close()
    ground.remove(where)
    altered = sum(line.startswith(("add ", "drop ", "rename ", "widen ", "nested ")) for line in life.log)
    return Counter(steps=steps, snapshots=snapshots, alterations=altered, changes=len(life.model.feed))


if __name__ == "__main__":
    main("schema_histories", play, __doc__)
