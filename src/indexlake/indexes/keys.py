"""Keys of one or several columns as values whose natural order is the order of the keys.

A key of one integer-like column is an unsigned 64-bit integer: the encoded value with its sign bit flipped.  Any other
key is a byte string: integers as eight big-endian bytes; byte values unchanged if they come last, else escaped and
terminated (00 → 00 FF, terminator 00 00).  Two keys are equal exactly when all their canonical values are, so -0.0 and
0.0 are one key and every NaN is one key.  No part of a key is null: callers make sure of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import array_around, truths
from indexlake.arrow.values import array_of, scalar_of
from indexlake.types import Codec, SqlValue

Key: TypeAlias = int | bytes

_SIGN = 1 << 63
_WORD = (1 << 64) - 1
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_END = b"\x00\x00"
_HASHED = 1 << 15


def encode_key(codecs: Sequence[Codec], values: Sequence[SqlValue]) -> Key:
    """Return the key of encoded values, one per column."""
    if len(codecs) == 1:
        codec = codecs[0]
        value: Any = codec.canonical(values[0])
        return value + _SIGN if codec.kind == "int" else bytes(value)
    last = len(codecs) - 1
    pairs = zip(codecs, values, strict=True)
    return b"".join([encode_part(c, c.canonical(v), last=n == last) for n, (c, v) in enumerate(pairs)])


def encode_keys(codecs: Sequence[Codec], columns: Sequence[Sequence[SqlValue]]) -> list[Key | None]:
    """Return the keys of encoded values given by column, with None for those with a null."""
    if len(codecs) == 1 and codecs[0].kind == "int":
        canonical: Any = codecs[0].canonical
        return [None if value is None else canonical(value) + _SIGN for value in columns[0]]
    return [None if None in row else encode_key(codecs, row) for row in zip(*columns, strict=True)]


def encode_part(codec: Codec, value: Any, *, last: bool) -> bytes:
    """Return a canonical value encoded as a part of a key of several columns."""
    if codec.kind == "int":
        return (value + _SIGN).to_bytes(8, "big")  # type: ignore[no-any-return]
    return bytes(value) if last else value.replace(b"\x00", b"\x00\xff") + _END


def decode_key(codecs: Sequence[Codec], key: Key) -> list[Any]:
    """Return the encoded values of a key, in their canonical form."""
    if isinstance(key, int):
        return [key - _SIGN]
    if len(codecs) == 1:
        return [key]
    values: list[Any] = []
    rest = key
    for number, codec in enumerate(codecs):
        if codec.kind == "int":
            values.append(int.from_bytes(rest[:8], "big") - _SIGN)
            rest = rest[8:]
        elif number == len(codecs) - 1:
            values.append(rest)
        else:
            end = 0
            while rest[end : end + 2] != _END:
                end += 2 if rest[end] == 0 else 1
            values.append(rest[:end].replace(b"\x00\xff", b"\x00"))
            rest = rest[end + 2 :]
    return values


def key_to_bytes(key: Key) -> bytes:
    """Return a key as bytes in key order, for catalog records."""
    return key if isinstance(key, bytes) else key.to_bytes(8, "big")


class KeyColumn:
    """Many keys: unsigned integers, or byte strings as a large binary array without nulls."""

    __slots__ = ("binary", "ints")

    def __init__(self, ints: npt.NDArray[np.uint64] | None = None, binary: pa.LargeBinaryArray | None = None) -> None:
        if (ints is None) == (binary is None):
            raise ValueError("a key column holds either integers or byte strings")
        self.ints = ints
        self.binary: Any = binary

    @classmethod
    def from_arrays(cls, codecs: Sequence[Codec], arrays: Sequence[pa.Array | pa.ChunkedArray]) -> KeyColumn:
        """Make the keys of rows given as columns, which contain no null."""
        if len(codecs) == 1 and codecs[0].kind == "int":
            values = np.asarray(codecs[0].canonical_array(arrays[0]))
            return cls(ints=_flipped(values))
        last = len(codecs) - 1
        parts: list[Any] = []
        for number, (codec, column) in enumerate(zip(codecs, arrays, strict=True)):
            parts += part_values(codec, column, last=number == last)
        joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _scalar(b""))
        return cls(binary=joined)

    @classmethod
    def from_keys(cls, keys: Sequence[Key], *, ints: bool) -> KeyColumn:
        """Make a column of the given keys, which are either all integers or all byte strings."""
        if ints:
            return cls(ints=np.array(keys, np.uint64))
        return cls(binary=array_of(keys, pa.large_binary()))

    @property
    def is_int(self) -> bool:
        return self.ints is not None

    def __len__(self) -> int:
        return len(self.ints) if self.ints is not None else len(self.binary)

    def __getitem__(self, index: int) -> Key:
        if self.ints is not None:
            return int(self.ints[index])
        return bytes(self.binary[index].as_py())

    def __iter__(self) -> Iterator[Key]:
        return iter(self.to_list())

    @property
    def nbytes(self) -> int:
        return int(self.ints.nbytes if self.ints is not None else self.binary.nbytes)

    def __repr__(self) -> str:
        return f"KeyColumn({len(self)} {'integers' if self.is_int else 'byte strings'})"

    def to_list(self) -> list[Key]:
        """Return all keys as Python values."""
        keys: list[Key] = self.ints.tolist() if self.ints is not None else self.binary.to_pylist()
        return keys

    def bounds(self) -> tuple[Key, Key]:
        """Return the lowest and the highest of the keys, which are not none."""
        if self.ints is not None:
            return int(self.ints.min()), int(self.ints.max())
        found = pc.min_max(self.binary)
        return found["min"].as_py(), found["max"].as_py()

    def slice(self, offset: int, length: int | None = None) -> KeyColumn:
        """Return consecutive keys without copying them."""
        if self.ints is not None:
            return KeyColumn(ints=self.ints[offset : None if length is None else offset + length])
        return KeyColumn(binary=self.binary.slice(offset, length))

    def take(self, indices: npt.NDArray[Any]) -> KeyColumn:
        """Return the keys at some indices, in the order of the indices."""
        if self.ints is not None:
            return KeyColumn(ints=self.ints[indices])
        return KeyColumn(binary=self.binary.take(array_around(indices)))

    @staticmethod
    def concat(columns: Sequence[KeyColumn]) -> KeyColumn:
        """Concatenate columns of the same kind."""
        if columns[0].ints is not None:
            return KeyColumn(ints=np.concatenate([c.ints for c in columns if c.ints is not None]))
        return KeyColumn(binary=pa.concat_arrays([c.binary for c in columns]))

    def is_sorted(self) -> bool:
        """Return whether no key is greater than the next one."""
        if self.ints is not None:
            return bool((self.ints[1:] >= self.ints[:-1]).all())
        if len(self) < 2:
            return True
        return bool(pc.all(pc.less_equal(self.binary.slice(0, len(self) - 1), self.binary.slice(1))).as_py())

    def argsort(self, *, in_runs: bool = False) -> npt.NDArray[np.intp]:
        """Return the stable permutation that sorts the keys.  ``in_runs``: the keys consist of a few sorted runs."""
        order = self.order(in_runs=in_runs)
        return np.arange(len(self)) if order is None else order

    def order(self, *, in_runs: bool = False) -> npt.NDArray[np.intp] | None:
        """Return the same, or None if the keys are sorted."""
        if self.is_sorted():
            return None
        if self.ints is not None:
            return _argsort_runs(self.ints) if in_runs else _argsort_ints(self.ints)
        return self._argsort_binary(_argsort_runs if in_runs else _argsort_ints)

    def _argsort_binary(
        self, argsort: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.intp]]
    ) -> npt.NDArray[np.intp]:
        """Sort by the first eight bytes that differ, then repair the order where those are equal."""
        prefixes = self.prefixes(len(self.common_prefix()))
        order = argsort(prefixes)
        places = _tied(prefixes[order])
        if len(places):
            members = order[places]
            # Each repaired stretch keeps its places, because the prefix is compared first.
            table = pa.table({"prefix": prefixes[members], "key": self.binary.take(pa.array(members))})
            repaired = pc.sort_indices(table, [("prefix", "ascending"), ("key", "ascending")])
            order[places] = members[np.asarray(repaired).astype(np.intp)]
        return order

    def first_duplicate(self) -> int | None:
        """Return the index of the first key that equals an earlier one, or None if all keys differ."""
        order = self.argsort()
        if self.ints is not None:
            ordered = self.ints[order]
            again = ordered[1:] == ordered[:-1]
        elif len(order) < 2:
            return None
        else:
            keys = self.binary.take(pa.array(order))
            again = np.asarray(pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)))
        return int(order[1:][again].min()) if again.any() else None

    def common_prefix(self) -> bytes:
        """Return the longest byte string that every key starts with; empty for integers."""
        if self.ints is not None or not len(self):
            return b""
        bounds: Any = self.bounds()
        low, high = bounds
        length = 0
        while length < len(low) and low[length] == high[length]:
            length += 1
        return bytes(low[:length])

    def prefixes(self, skip: int = 0) -> npt.NDArray[np.uint64]:
        """Return eight bytes of each key from `skip` on, padded with zeros, as an integer in key order."""
        if self.ints is not None:
            return self.ints
        offsets, data = binary_parts(self.binary)
        starts = np.minimum(offsets[:-1] + skip, offsets[1:])
        padded = np.concatenate((data, np.zeros(8, np.uint8)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, 8)[starts]
        words = windows.view(">u8").ravel().astype(np.uint64)
        unused = np.uint64(64) - np.uint64(8) * np.minimum(offsets[1:] - starts, 8).astype(np.uint64)
        short = unused > 0
        if short.any():
            # Shift twice, because shifting a word by all its 64 bits is undefined.
            half = unused[short] >> np.uint64(1)
            words[short] = (words[short] >> half >> half) << half << half
        return words


class FewKeys(KeyColumn):
    """A few keys, at least one, as Python values; arrays are made only on demand."""

    __slots__ = ("_keys",)

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    @property
    def ints(self) -> npt.NDArray[np.uint64] | None:  # type: ignore[override]
        return np.array(self._keys, np.uint64) if self.is_int else None

    @property
    def binary(self) -> Any:
        return None if self.is_int else array_of(self._keys, pa.large_binary())

    @property
    def is_int(self) -> bool:
        return isinstance(self._keys[0], int)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Key:
        return self._keys[index]

    def to_list(self) -> list[Key]:
        return self._keys

    def bounds(self) -> tuple[Key, Key]:
        return min(self._keys), max(self._keys)


def hash_key(key: Key) -> int:
    """Return the 64-bit hash of one key, as in files: splitmix64's finaliser for integers, xxh3-64 for byte strings."""
    if isinstance(key, bytes):
        return xxh3_64_intdigest(key)
    key = ((key ^ (key >> 30)) * _MIX_1) & _WORD
    key = ((key ^ (key >> 27)) * _MIX_2) & _WORD
    return key ^ (key >> 31)


def hash_keys(keys: KeyColumn) -> npt.NDArray[np.uint64]:
    """Return the hashes of many keys, as `hash_key` does."""
    if keys.ints is None:
        found = np.empty(len(keys), np.uint64)
        for start in range(0, len(keys), _HASHED):  # limits the number of Python objects at a time
            some = keys.binary.slice(start, _HASHED).to_pylist()
            found[start : start + len(some)] = np.fromiter(map(xxh3_64_intdigest, some), np.uint64, len(some))
        return found
    x = keys.ints ^ (keys.ints >> np.uint64(30))
    x *= np.uint64(_MIX_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    return x


def binary_parts(array: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the offsets (starting at zero, one more than keys) and the bytes, not copied, of a large binary array."""
    if not len(array):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, len(array) + 1, array.offset * 8)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def part_values(codec: Codec, column: pa.Array | pa.ChunkedArray, *, last: bool) -> list[Any]:
    """Return what to join for one part of a key of several columns: large binary arrays and scalars.

    Where the column is null, a byte string is null and an integer is arbitrary.
    """
    if codec.kind == "int":
        return [_int_bytes(_flipped(np.asarray(codec.canonical_array(column))))]
    values = _byte_values(codec, column)
    return [values] if last else [pc.replace_substring(values, b"\x00", b"\x00\xff"), _scalar(_END)]


def _byte_values(codec: Codec, column: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """Return the canonical values, cast chunk by chunk because 32-bit offsets end at 2 GiB."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    values: list[Any] = [codec.canonical_array(chunk) for chunk in chunks]
    parts = [part.cast(pa.large_binary()) for part in values]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.large_binary())


def _flipped(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return values.astype(np.int64, copy=False).view(np.uint64) ^ np.uint64(_SIGN)


def _int_bytes(keys: npt.NDArray[np.uint64]) -> pa.LargeBinaryArray:
    offsets = np.arange(0, 8 * len(keys) + 1, 8, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(keys.astype(">u8").tobytes())]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(keys), buffers)


def _scalar(value: bytes) -> pa.Scalar:
    return scalar_of(value, pa.large_binary())


def _argsort_runs(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return the stable order; NumPy's stable sort merges the sorted runs it finds."""
    return np.argsort(keys, kind="stable")


def _argsort_ints(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return the stable order, by sorting the upper bits of each key with its index in one word, which is faster than
    an argsort, and then repairing the order where those bits are equal."""
    if not len(keys):
        return np.zeros(0, np.intp)
    low = keys.min()
    bits = max(1, int(len(keys) - 1).bit_length())
    lost = max(0, int(keys.max() - low).bit_length() + bits - 64)
    words = (((keys - low) >> np.uint64(lost)) << np.uint64(bits)) | np.arange(len(keys), dtype=np.uint64)
    words.sort()
    order: npt.NDArray[np.intp] = (words & np.uint64((1 << bits) - 1)).astype(np.intp)
    if lost:
        words >>= np.uint64(bits)
        places = _tied(words)
        members = order[places]
        order[places] = members[np.argsort(keys[members], kind="stable")]
    return order


def _tied(ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return the places of all numbers that equal a neighbour."""
    same = ordered[1:] == ordered[:-1]
    tied = np.zeros(len(ordered), np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    return np.flatnonzero(tied)


def bisect_many(
    stored: Any, sought: Any, low: npt.NDArray[Any], high: npt.NDArray[Any], before: Any, *, whole: bool = False
) -> npt.NDArray[Any]:
    """Search for many keys at once, each within its own range of sorted keys.

    With `pc.less`, a range of one key is returned as it is unless `whole`, because callers compare that key anyway.
    """
    low, high = low.copy(), high.copy()
    smallest = 1 if before is pc.less and not whole else 0
    active = np.flatnonzero(high - low > smallest)
    while len(active):
        middle = (low[active] + high[active]) // 2
        right = truths(before(stored.take(array_around(middle)), sought.take(array_around(active))))
        low[active] = np.where(right, middle + 1, low[active])
        high[active] = np.where(right, high[active], middle)
        active = active[low[active] < high[active]]
    return low
