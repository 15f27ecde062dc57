"""DuckLake on a SQLite catalog, with rows of small inserts inlined in it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.peers.contenders import Group

_INLINED_ROWS = 1000


class Orders:
    name = "DuckLake"
    durability = "its SQLite catalog is synced at every commit, Parquet files are not"

    def __init__(self, folder: Path) -> None:
        offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        self._connection = duckdb.connect(config=offline)
        for extension in ("sqlite_scanner", "ducklake"):
            self._connection.load_extension(str(_extension(extension)))
        place = folder / "ducklake"
        place.mkdir(exist_ok=True)
        self._connection.execute(
            f"attach 'ducklake:sqlite:{place / 'catalog.sqlite'}' as lake "
            f"(data_path '{place / 'files'}', data_inlining_row_limit {_INLINED_ROWS})"
        )
        self._connection.execute("use lake")
        self._connection.execute(
            "create table if not exists orders "
            "(id bigint, customer varchar, city varchar, quantity integer, total double)"
        )

    def create(self, rows: pa.RecordBatchReader) -> None:
        self._run("insert into orders from given", rows)

    def insert(self, rows: list[dict[str, Any]]) -> None:
        values = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
        self._connection.execute(f"insert into orders values {values}", [v for row in rows for v in row.values()])

    def get(self, key: int) -> dict[str, Any] | None:
        found = self._connection.execute("select * from orders where id = ?", [key])
        names = [column[0] for column in found.description or ()]
        row = found.fetchone()
        return None if row is None else dict(zip(names, row, strict=True))

    def update(self, key: int, total: float) -> None:
        self._connection.execute("update orders set total = ? where id = ?", [total, key])

    def delete(self, key: int) -> None:
        self._connection.execute("delete from orders where id = ?", [key])

    def upsert(self, rows: pa.Table) -> None:
        clauses = "when matched then update when not matched then insert"
        self._run(f"merge into orders using given on orders.id = given.id {clauses}", rows)

    merge = upsert

    def _run(self, statement: str, rows: Any) -> None:
        self._connection.register("given", rows)
        self._connection.execute(statement)
        self._connection.unregister("given")

    def by_city(self) -> list[Group]:
        text = "select city, count(*), sum(quantity), sum(total) from orders group by city"
        return [(city, n, int(q), t) for city, n, q, t in self._connection.execute(text).fetchall()]

    def close(self) -> None:
        self._connection.close()


def _extension(name: str) -> Path:
    """The file inside the Python package that carries the extension."""
    found = find_spec(f"duckdb_extension_{name}")
    assert found is not None, f"pip install duckdb-extension-{name.replace('_', '-')}"
    folders = found.submodule_search_locations or []
    return next(path for folder in folders for path in Path(folder).rglob("*.duckdb_extension"))
