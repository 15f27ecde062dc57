"""A second SQLite library in the process of an open lake."""

from __future__ import annotations

from pathlib import Path

import indexlake as il
from tests.processes.scripts import run_script


def test_a_log_that_another_sqlite_of_this_process_removed_is_noticed_at_the_next_commit(tmp_path: Path) -> None:
    program = """
        lake = il.connect(sys.argv[1], automatic=False)
        t = lake.table("t")
        t.insert({"id": 1})
        import sqlite3
        other = sqlite3.connect(sys.argv[1] + "/catalog.sqlite")
        other.execute("select count(*) from indexlake_snapshot").fetchall()
        other.close()
        try:
            t.insert({"id": 2})
        except il.CatalogError as error:
            print(error)
        else:
            print("acknowledged")
        import os
        os.kill(os.getpid(), 9)
    """
    with il.connect(tmp_path) as lake:
        lake.create_table("t", {"id": "int64"})
    ended = run_script(program, tmp_path)
    assert "was removed while it was in use" in ended.out, ended
    with il.connect(tmp_path) as lake:
        assert [row["id"] for row in lake.table("t")] == [1]
        lake.table("t").insert({"id": 2})
    with il.connect(tmp_path) as lake:
        assert lake.table("t").count() == 2
