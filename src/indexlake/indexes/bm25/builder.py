"""Builds a segment from the texts of blocks, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.bm25.analysis import analyser_of
from indexlake.indexes.bm25.merging import merge_sources
from indexlake.indexes.bm25.run import SpilledRun, TokenBuffer
from indexlake.indexes.bm25.writer import Batch, Documents, Pairs, Writer, ordered_pairs
from indexlake.indexes.kind import Content
from indexlake.indexes.spool import Spool

RUN_TOKENS = 1 << 18
"""A run has about this many tokens, which take some 13 MB while it is made."""

_TEXT_BYTES = 1 << 20
_ROWS = 1 << 16


class Builder:
    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params
        self._analyser = analyser_of(params)
        self._positions: bool = params["positions"]
        self._starts = [0]
        self._slots = 0
        self._lengths = Spool()
        self._documents = self._length = self._longest = self._last_place = 0
        self._runs: list[SpilledRun] = []
        self._new_run()

    def add(self, columns: Sequence[Any]) -> None:
        texts = columns[0]
        for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
            for piece in _pieces(chunk.cast(pa.large_string())):
                self._add(piece)

    def end_block(self) -> None:
        self._starts.append(self._slots)

    def content(self) -> Content:
        documents = Documents(self._lengths, self._starts, self._documents, self._length, self._longest)
        if not self._runs:
            batch, pairs = self._run()
            numbered = self._ordered(pairs, documents)
            writer = Writer(documents, numbered, self._last_place, positions=self._positions)
            order = np.argsort(numbered)
            numbers = order[np.searchsorted(numbered, pairs, sorter=order)]
            writer.add(batch._replace(codes=numbers[batch.codes]))
            return Content(writer.pieces())
        if self._tokens.count:
            self._spill()
        pairs = self._ordered(np.concatenate([run.pairs for run in self._runs]), documents)
        writer = Writer(documents, pairs, self._last_place, positions=self._positions)
        runs, self._runs = self._runs, []
        merge_sources(runs, pairs, writer)
        return Content(writer.pieces())

    def _add(self, texts: Any) -> None:
        tokens = self._analyser.tokens(texts)
        lengths = np.bincount(tokens.rows, minlength=len(texts)).astype(np.int64)
        if texts.null_count:
            lengths[np.asarray(pc.is_null(texts))] = -1
        self._documents += len(texts) - texts.null_count
        self._length += len(tokens.codes)
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self._last_place = max(self._last_place, int(tokens.places.max(initial=0)))
        self._tokens.add(tokens.terms, tokens.codes, tokens.rows + self._slots, tokens.places)
        self._lengths.write(lengths.astype(np.int32))
        self._run_lengths.append(lengths)
        self._slots += len(texts)
        if self._tokens.count >= RUN_TOKENS:
            self._spill()

    def _new_run(self) -> None:
        self._tokens = TokenBuffer()
        self._run_start = self._slots
        self._run_lengths: list[npt.NDArray[np.int64]] = []

    def _run(self) -> tuple[Batch, Pairs]:
        lengths = np.concatenate(self._run_lengths) if self._run_lengths else np.empty(0, np.int64)
        return self._tokens.run(lengths, self._run_start, positions=self._positions)

    def _spill(self) -> None:
        self._runs.append(SpilledRun(*self._run()))
        self._new_run()

    def _ordered(self, pairs: Pairs, documents: Documents) -> Pairs:
        return ordered_pairs(pairs, documents, self._params["k1"], self._params["b"])


def _pieces(texts: Any) -> list[Any]:
    """Split the texts into pieces of a few megabytes; a single long text is not split."""
    if len(texts) <= _ROWS and texts.nbytes <= _TEXT_BYTES:
        return [texts] if len(texts) else []
    middle = len(texts) // 2
    if not middle:
        return [texts]
    return [*_pieces(texts.slice(0, middle)), *_pieces(texts.slice(middle))]
