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
"""Indices into the keys searched for, ascending, and the slot of each."""


class SegmentFile(NamedTuple):
    """A segment's file, the types of its key columns, as text, and `key_to_bytes` bounds of its keys."""

    index_id: int
    path: str
    size: int
    checksum: SupportsBytes  # gives serialised `Checksums`
    key_types: tuple[str, ...]
    min_key: bytes
    max_key: bytes


class Content(NamedTuple):
    """A segment that is not a file yet: its bytes in pieces, and bounds of its keys if the kind orders them."""

    pieces: Iterable[Any]  # buffers
    low: bytes = b""
    high: bytes = b""


class SegmentBuilder(Protocol):
    """Builds one segment from rows, block by block."""

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add the next rows of the block: the key columns, then the included ones."""
        ...

    def end_block(self) -> None:
        """End the block."""
        ...

    def content(self) -> Content:
        """Return the segment, after the last block has ended."""
        ...


class Segment(Protocol):
    """An open segment.  Safe to share between threads."""

    @property
    def starts(self) -> Sequence[int]:
        """The first slot of each block, and the total number of slots."""
        ...


class Probe(Protocol):
    """What a kind can look up for a predicate.  Its ``str`` is shown by ``explain``, and it can be pickled."""

    @property
    def exact(self) -> bool:
        """Whether every row found is certain to satisfy the part of the condition that the probe was made from."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A segment's answer to a probe."""

    count: int
    """An upper bound of the number of slots, usually close; cheap to determine however many there are."""

    slots: Callable[[], Slots]
    """Returns all slots that may satisfy the probe, ascending, each once."""


class ProbedSegment(Segment, Protocol):
    """A segment of a kind that answers probes."""

    def ask(self, probe: Any) -> Answer: ...


class KeySegment(ProbedSegment, Protocol):
    """A segment that finds exact keys, as primary keys and unique indexes need.

    Hashes are those of `hash_key` and `hash_keys`; callers that ask several segments compute them once.
    """

    def find(self, key: Key, hash_: int | None = None) -> list[int]:
        """Return the slots that hold a key, in order."""
        ...

    def find_many(self, keys: KeyColumn, hashes: npt.NDArray[np.uint64] | None = None) -> Found: ...

    # Methods for comparing whole segments with each other

    def __len__(self) -> int: ...
    @property
    def unique(self) -> bool:
        """Whether no key occurs twice."""
        ...

    def keys(self, first: int = 0, end: int | None = None) -> KeyColumn:
        """Return the keys in order, all or some.  Rows with a null in their key are left out."""
        ...

    def key_slots(self, first: int = 0, end: int | None = None) -> Slots:
        """Return the slot of each of ``keys()``."""
        ...

    def rows_between(self, low: Key | None, high: Key | None) -> tuple[int, int]:
        """Return the rows of ``keys()`` with low <= key < high, where None means unbounded."""
        ...

    def sample(self, count: int) -> list[Key]:
        """Return up to ``count`` of the keys, evenly spaced, including the first and the last."""
        ...


class Part(NamedTuple):
    """A segment, with masks of the slots that are visible and of those that may be found; None means all of them."""

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
    """One kind of index.  Stateless: all data comes from the definition and the segments."""

    name: str
    measure: str | None = None
    """The column that a search adds: ``_score`` (greatest first) or ``_distance`` (smallest first)."""

    ranks_by_all: bool = False
    """Whether scores depend on all visible rows, not only on those that satisfy ``where``."""

    slow: bool = False
    """Whether building takes many times as long as writing the rows, so that it is left to jobs."""

    most_rows: int = 1 << 24
    """Segments are not folded into larger ones than this, which bounds the memory of a build."""

    def hot_fields(self, fields: Sequence[Field]) -> Sequence[Field]:
        """Return the columns by which the hot store should find rows; the kind's own structures only serve blocks."""
        return ()

    @abstractmethod
    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Check a new definition and return the parameters to store, as JSON values, with defaults filled in.

        Raises ``SchemaError`` for columns, options or parameters that the kind does not accept, and
        ``MissingExtraError`` if a library is missing.  `refuse_unique` and the other helpers raise the usual messages.
        """

    @abstractmethod
    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> SegmentBuilder:
        """Return a builder; ``fields`` are the key columns, then the included ones, as the rows have them.

        ``lasting=False``: the segment is for hot rows or a single query, so it has to be built fast.
        """

    @abstractmethod
    def open(self, index: Index, file: InputFile) -> Any:
        """Open a segment from a file or from memory, whose bytes are verified.  Reads little until it is used."""

    @abstractmethod
    def merge(self, index: Index, inputs: Sequence[tuple[Any, Sequence[int]]]) -> Content:
        """Return one segment made from several: the blocks with these ordinals of each input, in this order."""

    def probe(self, index: Index, fields: Sequence[Field], test: Test) -> Probe | None:
        """Return what the index can answer of the condition, usually some of its conjuncts, or None."""
        return None

    def query(self, index: Index, fields: Sequence[Field], query: Any, options: Mapping[str, Any]) -> Any:
        """Check a search query and return it ready for use.  Raises ``ExpressionError`` if it is wrong."""
        raise self._not_searched(index)

    def search(self, index: Index, query: Any, parts: Sequence[Part], k: int) -> Hits:
        """Return the best k eligible slots of all parts, or all if there are fewer."""
        raise self._not_searched(index)

    def values(self, segment: Any, slots: Slots, type: pa.DataType) -> pa.Array | None:
        """Return the first key column of found slots exactly as the rows have it, or None if the segment lacks it."""
        return None

    def _not_searched(self, index: Index) -> SchemaError:
        return SchemaError(
            f"Index {index.name!r} is of kind {self.name}, which t.search cannot use; it makes where=… fast."
        )

    def snippets(self, index: Index, query: Any, values: Sequence[Any]) -> list[str | None] | None:
        """Return the text to show for each value found in the first key column, or None if the kind has no snippets."""
        return None


def refuse_params(kind: str, params: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse parameters that the kind does not have."""
    names = sorted(known)
    for name in params:
        if name not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise SchemaError(f"An index of kind {kind} has no parameter {name!r}; {has}.")


def whole_number(value: Any) -> int | None:
    """Return a whole number, including NumPy's, given as a parameter or option; None if it is anything else."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def refuse_unique(kind: str, unique: bool) -> None:
    if unique:
        raise SchemaError(f"An index of kind {kind} cannot be unique. Use kind='btree'.")


def refuse_include(kind: str, include: Sequence[Field]) -> None:
    if include:
        raise SchemaError(f"An index of kind {kind} cannot include further columns. Use kind='btree'.")
