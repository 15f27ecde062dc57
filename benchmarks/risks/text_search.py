"""Full-text search beside bare tantivy: generated documents of 5 to 40 words, one thread, the best 10.

    python benchmarks/risks/text_search.py [documents] [queries] [parts]

Queries have one to four words, drawn as the documents draw theirs (so most have frequent words) or evenly from the
vocabulary (so most have rare ones).  ``ours, deletes`` has one row in a hundred deleted; ``ours, parts`` has the same
documents in several segments of falling size.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import tantivy
from measure import percentile, print_table

from indexlake.indexes.bm25.kind import Bm25
from indexlake.indexes.bm25.params import checked
from indexlake.indexes.kind import Part
from indexlake.storage import Storage

VOCABULARY = 100_000
KIND = Bm25()
INDEX: Any = SimpleNamespace(name="text", params=checked({}))


class Corpus:
    """Words by falling frequency (Zipf), and documents of them."""

    def __init__(self, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        letters = self._random.integers(97, 123, (2 * VOCABULARY, 9)).astype(np.uint8)
        sizes = self._random.integers(3, 10, 2 * VOCABULARY)
        words = dict.fromkeys(row[:size].tobytes().decode() for row, size in zip(letters, sizes.tolist(), strict=True))
        self.words = np.array(list(words)[:VOCABULARY], dtype=object)
        shares = 1 / np.arange(1, VOCABULARY + 1) ** 1.07
        self._edges = np.cumsum(shares / shares.sum())[:-1]

    def draw(self, count: int) -> list[str]:
        found: list[str] = self.words[np.searchsorted(self._edges, self._random.random(count))].tolist()
        return found

    def documents(self, count: int) -> list[str]:
        sizes = self._random.integers(5, 41, count)
        words = self.draw(int(sizes.sum()))
        ends = np.cumsum(sizes).tolist()
        return [" ".join(words[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def queries(self, count: int, size: int, *, frequent: bool) -> list[str]:
        if frequent:
            return [" ".join(self.draw(size)) for _ in range(count)]
        return [" ".join(self._random.choice(self.words, size).tolist()) for _ in range(count)]


def build_ours(storage: Storage, texts: Sequence[str], name: str) -> tuple[Any, int]:
    builder = KIND.builder(INDEX, [], lasting=True)
    builder.add([pa.array(texts, pa.string())])
    builder.end_block()
    with storage.create_file(name) as file:
        for piece in builder.content().pieces:
            file.write(piece)
    return KIND.open(INDEX, storage.open_file(name, file.checksums)), file.checksums.size


def build_tantivy(folder: str, texts: Sequence[str]) -> Any:
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", stored=False, tokenizer_name="default", index_option="position")
    index = tantivy.Index(schema.build(), path=folder)
    writer = index.writer(heap_size=256 << 20, num_threads=1)
    for text in texts:
        writer.add_document(tantivy.Document(text=[text]))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def main() -> None:
    count, queries, parts = (int(value) for value in (*sys.argv[1:], *("300000", "200", "20")[len(sys.argv) - 1 :]))
    corpus = Corpus()
    texts = corpus.documents(count)
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage.open(str(Path(folder) / "ours"))
        start = time.perf_counter()
        segment, size = build_ours(storage, texts, "whole")
        ours_seconds = time.perf_counter() - start
        (Path(folder) / "tantivy").mkdir()
        start = time.perf_counter()
        index = build_tantivy(str(Path(folder) / "tantivy"), texts)
        theirs_seconds = time.perf_counter() - start
        theirs = sum(file.stat().st_size for file in (Path(folder) / "tantivy").iterdir())
        print(f"{count} documents. Build, one thread: ours {ours_seconds:.1f} s, {size / count:.0f} bytes a row; "
              f"tantivy {theirs_seconds:.1f} s, {theirs / count:.0f} bytes a row")  # fmt: skip
        searcher = index.searcher()
        live = np.random.default_rng(5).random(count) >= 0.01
        live.flags.writeable = False  # as a snapshot keeps it
        contenders: dict[str, Callable[[str], object]] = {
            "tantivy": lambda text: searcher.search(index.parse_query(text, ["text"]), 10).hits,
            "ours": lambda text: ask(text, [Part(segment, None)]),
            "ours, deletes": lambda text: ask(text, [Part(segment, live)]),
        }
        if parts > 1:
            shares = 1 / np.arange(1, parts + 1) ** 1.5
            ends = np.round(np.cumsum(shares / shares.sum()) * count).astype(int).tolist()
            many = [
                Part(build_ours(storage, texts[low:high], f"part-{high}")[0], None)
                for low, high in zip([0, *ends[:-1]], ends, strict=True)
            ]
            contenders[f"ours, {parts} parts"] = lambda text: ask(text, many)
        rows = []
        for frequent in (True, False):
            for words in (1, 2, 3, 4):
                warm_up, asked = (corpus.queries(queries, words, frequent=frequent) for _ in range(2))
                times = measure(contenders, warm_up, asked)
                for name, taken in times.items():
                    against = [percentile(taken, p) / percentile(times["tantivy"], p) for p in (0.5, 0.95)]
                    rows.append(
                        (
                            f"{words} {'frequent' if frequent else 'rare'}",
                            name,
                            f"{1e3 * percentile(taken, 0.5):.3f}",
                            f"{1e3 * percentile(taken, 0.95):.3f}",
                            f"{against[0]:.2f}",
                            f"{against[1]:.2f}",
                        )
                    )
        print_table(
            "Milliseconds a query", ("words", "contender", "p50 ms", "p95 ms", "p50 / tantivy", "p95 / tantivy"), rows
        )


def ask(text: str, parts: Sequence[Part]) -> object:
    return KIND.search(INDEX, KIND.query(INDEX, [], text, {}), parts, 10)


def measure(
    contenders: Mapping[str, Callable[[str], object]], warm_up: Sequence[str], queries: Sequence[str]
) -> dict[str, list[float]]:
    """Seconds of each query, asked once, after others like it: what is remembered is what those have left behind.

    It is the processor time of the thread: another program on the machine disturbs it least.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for name, call in contenders.items():
        for query in warm_up:
            call(query)
        for query in queries:
            start = time.thread_time()
            call(query)
            times[name].append(time.thread_time() - start)
    return times


if __name__ == "__main__":
    main()
