"""What an index kind has to provide.

A kind builds segments and answers from them.  A segment is an immutable file that answers for the blocks it names.
Its rows are numbered by *slot*: the rows of its first block in order, then those of the second, and so on; every row
of a block has a slot, deleted or not, null or not.  A segment never deals with visibility: the caller knows which rows
are visible, and either says so (`Part.live`) or checks what was found.

There are two ways to ask.  A *probe* comes from a predicate's necessary condition and finds all rows that may satisfy
it.  A *search* finds the best k rows.  A kind offers one of them or both.  The same segments serve hot rows and blocks
without a segment: for those they are built in memory, and only for as long as they are needed.

A package adds a kind with an entry point in the group ``indexlake.index_kinds`` that names an `IndexKind` subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsBytes

import numpy as np
import numpy.typing as npt

from indexlake.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from indexlake.expr.test import Test
    from indexlake.indexes.index import Index
    from indexlake.indexes.keys import Key, KeyColumn
    from indexlake.schema import Field
    from indexlake.storage import InputFile

Slots = npt.NDArray[np.int64]

Found = tuple[npt.NDArray[np.int64], Slots]
"""Indices into the keys that were asked for, ascending, and the slot of each."""


class SegmentFile(NamedTuple):
    """A segment: a file, the types of the columns that its keys were made from, as text, and `key_to_bytes` bounds."""

    index_id: int
    path: str
    size: int
    checksum: SupportsBytes  # gives serialised `Checksums`
    key_types: tuple[str, ...]
    min_key: bytes
    max_key: bytes


class Content(NamedTuple):
    """A segment that is not a file yet: its bytes in pieces, and bounds of its keys where the kind has ordered ones."""

    pieces: Iterable[Any]  # buffers
    low: bytes = b""
    high: bytes = b""


class SegmentBuilder(Protocol):
    """Makes one segment from the rows of one block after the other."""

    def add(self, columns: Sequence[pa.Array]) -> None:
        """The next rows of the block: its key columns, then the included ones."""
        ...

    def end_block(self) -> None:
        """The block has no more rows."""
        ...

    def content(self) -> Content:
        """After the last block has ended."""
        ...


class Segment(Protocol):
    """An open segment.  Safe to share between threads."""

    @property
    def starts(self) -> Sequence[int]:
        """The first slot of each of its blocks, and the number of all slots."""
        ...


class Probe(Protocol):
    """What a kind can look up for a predicate.  Prints itself for ``explain``.  Pickles."""

    @property
    def exact(self) -> bool:
        """Whether every row that it finds satisfies the part of the condition that it was made from."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a segment has for a probe."""

    count: int
    """About how many slots, never fewer; to know it costs little however many they are."""

    slots: Callable[[], Slots]
    """All slots that may satisfy the probe, ascending, each once."""


class ProbedSegment(Segment, Protocol):
    """A segment of a kind that answers probes."""

    def ask(self, probe: Any) -> Answer: ...


class KeySegment(ProbedSegment, Protocol):
    """A segment that finds exact keys: what primary keys and unique indexes need.

    Hashes are those of `hash_key` and `hash_keys`: whoever asks several segments makes them once.
    """

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        """The slots that hold a key, in order."""
        ...

    def find_many(self, keys: KeyColumn, hashes: npt.NDArray[np.uint64] | None = None) -> Found: ...

    # Whole segments are compared with each other.

    def __len__(self) -> int: ...
    @property
    def unique(self) -> bool:
        """Whether no key is there twice."""
        ...

    def keys(self, first: int = 0, end: int | None = None) -> KeyColumn:
        """All keys in order, or some.  Rows without a key (null in a column of the key) are not among them."""
        ...

    def key_slots(self, first: int = 0, end: int | None = None) -> Slots:
        """Where each of ``keys()`` is."""
        ...

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """The rows of ``keys()`` with low <= key < high; None is no bound."""
        ...

    def sample(self, count: int) -> list[Key]:
        """Up to so many of the keys, evenly spaced, the first and the last among them."""
        ...


class Part(NamedTuple):
    """A segment, which of its slots are visible, and which of those may be found; None: all of them."""

    segment: Any
    live: npt.NDArray[np.bool_] | None
    wanted: npt.NDArray[np.bool_] | None = None

    @property
    def mask(self) -> npt.NDArray[np.bool_] | None:
        """The slots that may be found."""
        return self.live if self.wanted is None else self.wanted


class Hits(NamedTuple):
    """What a search found, best first: the number of the part, the slot in it, and the score or distance."""

    parts: npt.NDArray[np.int64]
    slots: Slots
    scores: npt.NDArray[np.float64]


class IndexKind(ABC):
    """One kind of index.  Stateless: everything comes from the definition and the segments."""

    name: str
    measure: str | None = None
    """The column that a search adds: ``_score`` (the greatest first) or ``_distance`` (the least first)."""

    ranks_by_all: bool = False
    """Whether scores depend on all visible rows, not only on those that satisfy ``where``."""

    slow: bool = False
    """Whether building takes many times as long as writing the rows: jobs do that, users do not wait for it."""

    most_rows: int = 1 << 24
    """Segments are not folded into larger ones than that: it bounds the memory of a build."""

    def hot_fields(self, fields: Sequence[Field]) -> Sequence[Field]:
        """The columns by whose values the hot store should find rows; the kind's own structures are for blocks."""
        return ()

    @abstractmethod
    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Check a new definition and give the parameters to keep, as JSON values, with defaults filled in.

        Raises ``SchemaError`` for columns, options or parameters that the kind does not take, and
        ``MissingExtraError`` where a library is missing.  `refuse_unique` and the like say it in common words.
        """

    @abstractmethod
    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> SegmentBuilder:
        """``fields`` are the key columns, then the included ones, as the rows have them.

        ``lasting=False``: for hot rows or one query, so it has to be made fast.
        """

    @abstractmethod
    def open(self, index: Index, file: InputFile) -> Any:
        """A segment from a file or from memory, whose bytes are verified.  Reads little before it is asked."""

    @abstractmethod
    def merge(self, index: Index, inputs: Sequence[tuple[Any, Sequence[int]]]) -> Content:
        """One segment from several: of each input the blocks with these ordinals, in this order."""

    def probe(self, index: Index, fields: Sequence[Field], test: Test) -> Probe | None:
        """What of the condition the index can answer: usually some of the conjuncts.  None: nothing."""
        return None

    def query(self, index: Index, fields: Sequence[Field], query: Any, options: Mapping[str, Any]) -> Any:
        """A search query, checked and ready.  Raises ``ExpressionError`` that says what is wrong with it."""
        raise self._not_searched(index)

    def search(self, index: Index, query: Any, parts: Sequence[Part], k: int) -> Hits:
        """The best k of the slots of all parts that may be found, or all if there are fewer."""
        raise self._not_searched(index)

    def _not_searched(self, index: Index) -> SchemaError:
        return SchemaError(
            f"Index {index.name!r} is a {self.name}, which cannot be searched with t.search; it makes where=… fast."
        )

    def snippets(self, index: Index, query: Any, values: Sequence[Any]) -> list[str | None] | None:
        """What to show of the found values of the first key column; None: the kind has nothing to show."""
        return None


def refuse_params(kind: str, params: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse parameters that a kind does not have."""
    names = sorted(known)
    for name in params:
        if name not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise SchemaError(f"An index of kind {kind} has no parameter {name!r}; {has}.")


def whole_number(value: Any) -> int | None:
    """A whole number that was given as a parameter or an option, also one of NumPy; None: it is something else."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def refuse_unique(kind: str, unique: bool) -> None:
    if unique:
        raise SchemaError(f"An index of kind {kind} cannot be unique. Use kind='btree'.")


def refuse_include(kind: str, include: Sequence[Field]) -> None:
    if include:
        raise SchemaError(f"An index of kind {kind} cannot include further columns. Use kind='btree'.")
