"""An index kind as simple as can be: a JSON list of (key, ordinal, position) in order, without filter or fences.

Registered in place of "btree" it has to pass the conformance suite: what passes knows segments by their protocol only.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any

import numpy as np

from indexlake.indexes.builder import KeySegmentBuilder, WrittenSegment
from indexlake.indexes.index import Index
from indexlake.indexes.keys import Key, KeyColumn, key_to_bytes
from indexlake.indexes.kind import ORDINAL_SHIFT, Found
from indexlake.schema import TableSchema
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums


class SortedList:
    def builder(self, index: Index, schema: TableSchema) -> KeySegmentBuilder:
        return KeySegmentBuilder(index, schema, write)

    def open(self, storage: Storage, path: str, size: int, checksums: Checksums) -> ListSegment:
        with storage.open_file(path, checksums) as file:
            return ListSegment(json.loads(bytes(file.read_at(0, size))))


def write(storage: Storage, path: str, keys: KeyColumn) -> WrittenSegment:
    entries = sorted((key, 0, position) for position, key in enumerate(keys))
    text = json.dumps([(k if isinstance(k, int) else k.hex(), o, p) for k, o, p in entries]).encode()
    with storage.create_file(path) as file:
        file.write(memoryview(text))
    low, high = (key_to_bytes(entries[n][0]) for n in (0, -1))
    return WrittenSegment(len(text), file.checksums, low, high)


class ListSegment:
    def __init__(self, entries: list[Any]) -> None:
        self._keys: list[Any] = [key if isinstance(key, int) else bytes.fromhex(key) for key, _, _ in entries]
        self._addresses = [ordinal << ORDINAL_SHIFT | position for _, ordinal, position in entries]
        self.several = any(ordinal for _, ordinal, _ in entries)
        self.unique = len(set(self._keys)) == len(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        first = bisect_left(self._keys, key)
        last = first
        while last < len(self) and self._keys[last] == key:
            last += 1
        return self._addresses[first:last]

    def find_many(self, keys: KeyColumn, hashes: Any = None) -> Found:
        pairs = [(n, address) for n, key in enumerate(keys) for address in self.find(key)]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def keys(self) -> KeyColumn:
        return KeyColumn.from_keys(self._keys, ints=isinstance(self._keys[0], int))

    def addresses(self) -> Any:
        return np.array(self._addresses, np.int64)

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        first = 0 if low is None else bisect_left(self._keys, low)
        return first, len(self) if high is None else max(first, bisect_left(self._keys, high))

    def sample(self, count: int) -> list[Key]:
        places = sorted({round(n * (len(self) - 1) / max(1, count - 1)) for n in range(count)})
        return [self._keys[place] for place in places]
