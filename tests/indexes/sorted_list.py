"""An index kind as simple as can be: a JSON list of (key, slot) in order, without filter or fences.

Registered in place of "btree" it has to pass the conformance suite: what passes knows segments by their protocol only.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.indexes.index import Index
from indexlake.indexes.keys import Key, KeyColumn, key_to_bytes
from indexlake.indexes.kind import Content, Found, IndexKind, Slots
from indexlake.schema import Field
from indexlake.storage import InputFile


class SortedList(IndexKind):
    name = "btree"

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {}

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> ListBuilder:
        return ListBuilder(fields[: len(index.key_field_ids)])

    def open(self, index: Index, file: InputFile) -> ListSegment:
        return ListSegment(json.loads(bytes(file.read_at(0, file.size()))))

    def merge(self, index: Index, inputs: Sequence[tuple[ListSegment, Sequence[int]]]) -> Content:
        entries: list[tuple[Any, int]] = []
        starts = [0]
        for segment, ordinals in inputs:
            for ordinal in ordinals:
                first, end = segment.starts[ordinal : ordinal + 2]
                here = [(k, s) for k, s in zip(segment.keys(), segment.key_slots().tolist(), strict=True)]
                entries += [(k, s - first + starts[-1]) for k, s in here if first <= s < end]
                starts.append(starts[-1] + end - first)
        return content(entries, starts, ints=inputs[0][0].ints)


def content(entries: list[tuple[Any, int]], starts: list[int], *, ints: bool) -> Content:
    entries = sorted(entries)
    listed = [(key if ints else key.hex(), slot) for key, slot in entries]
    text = json.dumps({"ints": ints, "starts": starts, "entries": listed}).encode()
    low, high = (key_to_bytes(entries[n][0]) for n in (0, -1)) if entries else (b"\xff" * 8, b"\x00" * 8)
    return Content([memoryview(text)], low, high)


class ListBuilder:
    def __init__(self, fields: Sequence[Field]) -> None:
        self._codecs = [field.codec for field in fields]
        self._ints = len(fields) == 1 and self._codecs[0].kind == "int"
        self._keys: list[Key] = []
        self._slots: list[int] = []
        self._starts = [0]
        self._rows = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        for n in range(len(columns[0])):
            parts = [column.slice(n, 1) for column in columns[: len(self._codecs)]]
            if not any(part.null_count for part in parts):
                self._keys += KeyColumn.from_arrays(self._codecs, parts).to_list()
                self._slots.append(self._rows + n)
        self._rows += len(columns[0])

    def end_block(self) -> None:
        self._starts.append(self._rows)

    def keyed(self) -> tuple[KeyColumn, Slots]:
        return KeyColumn.from_keys(self._keys, ints=self._ints), np.array(self._slots, np.int64)

    def content(self) -> Content:
        return content(list(zip(self._keys, self._slots, strict=True)), self._starts, ints=self._ints)


class ListSegment:
    def __init__(self, stored: dict[str, Any]) -> None:
        self.ints: bool = stored["ints"]
        self.starts: list[int] = stored["starts"]
        self._keys: list[Any] = [key if self.ints else bytes.fromhex(key) for key, _ in stored["entries"]]
        self._slots: list[int] = [slot for _, slot in stored["entries"]]
        self.unique = len(set(self._keys)) == len(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        first = bisect_left(self._keys, key)
        last = first
        while last < len(self) and self._keys[last] == key:
            last += 1
        return self._slots[first:last]

    def find_many(self, keys: KeyColumn, hashes: Any = None) -> Found:
        pairs = [(n, slot) for n, key in enumerate(keys) for slot in self.find(key)]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def keys(self, first: int = 0, end: int | None = None) -> KeyColumn:
        return KeyColumn.from_keys(self._keys[first:end], ints=self.ints)

    def key_slots(self, first: int = 0, end: int | None = None) -> Slots:
        return np.array(self._slots[first:end], np.int64)

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        first = 0 if low is None else bisect_left(self._keys, low)
        return first, len(self) if high is None else max(first, bisect_left(self._keys, high))

    def sample(self, count: int) -> list[Key]:
        places = sorted({round(n * (len(self) - 1) / max(1, count - 1)) for n in range(count)})
        return [self._keys[place] for place in places]
