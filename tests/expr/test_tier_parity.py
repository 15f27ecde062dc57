"""Random predicates over real tables: inline, Vortex, Parquet and Arrow IPC give the rows that DuckDB gives.

The same rows lie in every tier at once, small blocks so that statistics can prune.  ``INDEXLAKE_HYPOTHESIS=long``
tries many more predicates.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import indexlake as il
from indexlake.errors import IndexLakeError
from tests.expr import predicate_data as data
from tests.expr.test_predicate_parity import FEW, LONG, judged, lazy, used

TIERS = ("inline", "vortex", "parquet", "ipc")
SEEDS = range(2)
ROWS = 60


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """(rows in order, tables that hold them) for each seed and for text with and without NUL."""
    with il.connect(tmp_path_factory.mktemp("tiers") / "lake", automatic=False) as lake:
        yield {(seed, nul): _tables(lake, seed, nul) for seed in SEEDS for nul in (True, False)}


def _tables(lake: il.Lake, seed: int, nul: bool) -> tuple[pa.RecordBatch, dict[str, il.Table]]:
    rows = data.table(seed, ROWS, nul=nul)
    numbered = rows.append_column("row_number", pa.array(range(ROWS), pa.int32()))
    made = {}
    for tier in TIERS:
        config = il.TableConfig(
            block_row_count=10, dump_format="vortex" if tier == "inline" else tier, direct_write_row_count=10**6
        )
        name = f"t{seed}{int(nul)}.{tier}"
        made[tier] = lake.create_table(name, numbered.schema, config=config)
        made[tier].insert(numbered)
        if tier != "inline":
            lake.pipeline().dump(name)
            assert made[tier].stats().blocks == ROWS // 10
        else:
            assert made[tier].stats().hot_rows == ROWS
    return rows, made


def _found(table: il.Table, text: str, params: dict[str, Any]) -> list[int] | str:
    try:
        rows = table.scan(text, params=params or None, columns=["row_number"]).to_arrow()
    except IndexLakeError:
        return "raises"
    return sorted(rows.column(0).to_pylist())


@given(predicate=data.predicates(depth=2), seed=data.st.sampled_from(list(SEEDS)))
@settings(FEW, max_examples=10_000 if LONG else 80)
def test_every_tier_gives_the_rows_that_duckdb_gives(tables, predicate: data.Predicate, seed: int) -> None:
    params = used(predicate)
    rows, tiers = tables[seed, "like" not in predicate.text]
    found = {tier: _found(table, predicate.text, params) for tier, table in tiers.items()}
    answers = [rows for rows in found.values() if rows != "raises"]
    assert all(answer == answers[0] for answer in answers), found
    want = judged(predicate, rows, params)
    if want is None or not answers:
        return  # DuckDB refuses it, or a row raises: unspecified where another conjunct excludes that row
    assert answers[0] == [n for n, truth in enumerate(want) if truth], found
    if not lazy(predicate):
        assert len(answers) == len(TIERS), found
