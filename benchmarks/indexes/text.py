"""Full text: the best ten of one to four words, with hot rows and deleted ones, beside bare tantivy and Lance's FTS."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.indexes import data
from benchmarks.outcome import Outcome, at_most, in_turn

WORDS = 50_000
HOT = 1_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("note", pa.string())])


def documents(rows: int) -> pa.Table:
    """Of 5 to 40 words, a few of which are very frequent."""
    pick = np.random.default_rng(1)
    lengths = pick.integers(5, 41, rows)
    words = np.minimum(pick.zipf(1.2, int(lengths.sum())) - 1, WORDS - 1)
    known = [f"w{n}" for n in range(WORDS)]
    ends = np.cumsum(lengths).tolist()
    texts, start = [], 0
    chosen = words.tolist()
    for end in ends:
        texts.append(" ".join([known[n] for n in chosen[start:end]]))
        start = end
    return pa.table([pa.array(range(rows), pa.int64()), pa.array(texts)], schema=SCHEMA)


def _tantivy(folder: Path, rows: pa.Table) -> Callable[[str], list[int]]:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True)
    builder.add_text_field("note", stored=False, tokenizer_name="default")
    place = folder / "tantivy"
    place.mkdir()
    index = tantivy.Index(builder.build(), path=str(place))
    writer = index.writer(heap_size=1 << 28, num_threads=1)
    for n, text in zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True):
        writer.add_document(tantivy.Document(id=n, note=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def best(query: str) -> list[int]:
        found = searcher.search(index.parse_query(query, ["note"]), 10, count=False).hits
        return [searcher.doc(address)["id"][0] for _, address in found]

    return best


def _lance(folder: Path, rows: pa.Table) -> Callable[[str], list[int]]:
    import lance

    made = lance.write_dataset(rows, folder / "text.lance")
    made.create_scalar_index("note", "INVERTED")
    return lambda query: made.to_table(columns=["id", "_score"], full_text_query=query, limit=10)["id"].to_pylist()


def best_ten(folder: Path, rows: int) -> Iterator[Outcome]:
    rows = max(10 * HOT, rows // 10)
    every = documents(rows)
    lake = data.open_lake(folder, "text")
    table = data.table_of(lake, rows, 10, schema=SCHEMA)
    table.create_index("words", "note", kind="bm25")
    table.insert(every.slice(0, rows - HOT))
    lake.pipeline(runner="threads").dump(table.name)
    table.set_config(inline_row_count_limit=10 * HOT, direct_write_row_count=10 * HOT)
    table.insert(every.slice(rows - HOT))
    table.delete("id % 100 = 7")
    live = every.filter(pa.array(np.arange(rows) % 100 != 7))
    assert table.count() == live.num_rows
    contenders: dict[str, Callable[[str], Any]] = {
        "ours": lambda q: table.search("note", q, columns=["id"]).to_arrow(),
        "tantivy": _tantivy(folder, live),
        "Lance": _lance(folder, live),
    }
    pick = random.Random(3)
    common = [f"w{int(n)}" for n in np.minimum(np.random.default_rng(4).zipf(1.2, 4000) - 1, WORDS - 1)]
    for terms in (1, 2, 3, 4):
        queries = [" ".join(pick.sample(common, terms)) for _ in range(330)]
        calls = {name: (lambda n, ask=ask, queries=queries: ask(queries[n])) for name, ask in contenders.items()}
        times = in_turn(calls, 300, warm_up=30, together=10)
        p50 = {name: statistics.median(t) for name, t in times.items()}
        p95 = {name: sorted(t)[int(0.95 * len(t))] for name, t in times.items()}
        detail = "; ".join(f"{name} p50 {p50[name]:,.0f}, p95 {p95[name]:,.0f} µs" for name in calls)
        what = f"bm25 top 10, {terms} term{'s' if terms > 1 else ''}"
        yield at_most(f"{what}, p50, and tantivy", p50["ours"], p50["tantivy"], 1, detail=detail)
        yield at_most(f"{what}, p95, and tantivy", p95["ours"], p95["tantivy"], 1.2, detail=detail)
        yield at_most(f"{what}, p50, and Lance FTS", p50["ours"], p50["Lance"], 1, detail=detail)
    lake.close()
