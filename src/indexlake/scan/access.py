"""Access paths: how a scan finds the rows in blocks that may satisfy its predicate.

From the predicate's necessary condition, each path answers where such rows are: in which blocks, and at which
positions.  A path may name rows that do not match, but never misses one that does; the predicate has the last word on
every row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexlake.blocks.block import BlockRecord
from indexlake.errors import ConstraintError
from indexlake.expr.test import ALWAYS, All, ColumnTest, Test, conjuncts
from indexlake.indexes.keys import Key, KeyColumn, encode_key
from indexlake.scan.lookup import Covered, Offer, look_up
from indexlake.schema import ROW_ID, TableSchema
from indexlake.schema.lineage import older_tests
from indexlake.types import Codec, SqlValue

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.expr import Bound
    from indexlake.indexes.coverage import Coverage
    from indexlake.snapshots.reading import Reading

MOST_KEYS = 10_000
"""Up to this many primary keys named by a predicate are looked up through the key segments."""

Place = tuple[BlockRecord, "npt.NDArray[np.uint64] | None"]
"""A block, and the positions in it where rows may lie; None: anywhere in it."""


class Path(NamedTuple):
    """How the rows of blocks are found, and where they are."""

    found_by: str
    places: Iterable[tuple[BlockRecord, npt.NDArray[np.uint64] | None, Covered | None]]
    offers: tuple[Offer, ...] = ()
    segments: int = 0  # index segments that were searched


def choose_path(reading: Reading, files: OpenFiles, test: Test, chosen: Collection[BlockRecord]) -> Path:
    """Return the most precise path that the condition allows, and what it finds in the chosen blocks."""
    ids = row_ids_in(test)
    if ids is not None:
        places = places_of_row_ids(reading, files, chosen, np.array(sorted(ids), np.int64))
        return Path("row id", ((block, only, None) for block, only in places))
    keys = keys_in(test, reading.schema)
    if keys is not None:
        return Path(
            "primary key", ((block, only, None) for block, only in places_of_keys(reading, files, chosen, keys))
        )
    found = look_up(reading, files, test, chosen)
    if found is not None and found.found_by:
        return Path(found.found_by, found.places, found.offers, found.segments)
    return Path("statistics", ((block, None, None) for block in chosen), () if found is None else found.offers)


def file_test(predicate: Bound | None, schema: TableSchema) -> Test:
    """Return the condition on file columns that every row satisfying the predicate meets."""
    return ALWAYS if predicate is None else renamed(predicate.test(), schema.column_of)


def renamed(test: Test, names: Mapping[str, str]) -> Test:
    if isinstance(test, ColumnTest):
        return ColumnTest(names[test.column], test.op, test.values)
    return type(test)(tuple(renamed(child, names) for child in test.children))


def with_older_columns(test: Test, schema: TableSchema) -> tuple[Test, dict[str, Codec]]:
    """Return the test to check against statistics, with the codecs of its columns.

    A widened column is also tested under the columns that older blocks hold instead.  A block holds only one of these
    and has no statistics for the others, so all of them can be tested at once.
    """
    codecs = dict(schema.column_codecs)
    fields = {f.column: f for f in schema.fields if f.source is not None}

    def extended(part: Test) -> Test:
        if not isinstance(part, ColumnTest):
            return type(part)(tuple(extended(child) for child in part.children))
        if part.column not in fields:
            return part
        older = older_tests(fields[part.column], part.op, part.values)
        codecs.update({f.column: f.codec for f, _ in older})
        return All((part, *(ColumnTest(f.column, part.op, values) for f, values in older)))

    return extended(test), codecs


class ByStatistics(Collection[BlockRecord]):
    """The visible blocks, in order, whose column statistics allow a matching row.

    Statistics are consulted only when needed: an index may find the rows without them.
    """

    def __init__(self, reading: Reading, test: Test) -> None:
        self._reading = reading
        self._test = test

    @cached_property
    def _candidates(self) -> npt.NDArray[np.intp]:
        schema, test = self._reading.schema, self._test
        test, codecs = (test, schema.column_codecs) if not schema.evolved else with_older_columns(test, schema)
        return self._reading.state.blocks.candidates(test, codecs, self._reading.snapshot)

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[BlockRecord]:
        records = self._reading.state.blocks.records
        return (records[n] for n in self._candidates.tolist())

    def __contains__(self, block: object) -> bool:
        return any(block is each for each in self)


def places_of_row_ids(
    reading: Reading, files: OpenFiles, chosen: Collection[BlockRecord], ids: npt.NDArray[np.int64]
) -> Iterator[Place]:
    """Yield where rows with one of the ids may lie."""
    for block in chosen:
        within = ids[(ids >= block.min_row_id) & (ids <= block.max_row_id)]
        if not len(within):
            continue
        if block.role == "history":
            yield block, None
            continue
        positions = reading.state.addresses(block, files).positions_of(within)
        positions = positions[positions >= 0]
        if len(positions):
            yield block, positions.astype(np.uint64)


def places_of_keys(
    reading: Reading, files: OpenFiles, chosen: Collection[BlockRecord], keys: KeyColumn
) -> Iterator[Place]:
    """Yield where rows with one of the primary keys may lie."""
    state, snapshot = reading.state, reading.snapshot
    assert state.primary is not None
    yield from uncovered(chosen, state.primary)
    if len(keys) == 1:
        for block, position in state.primary.find(keys[0], state, snapshot, files):
            yield block, np.array([position], np.uint64)
        return
    for block, _, positions in state.primary.find_many(keys, state, snapshot, files):
        yield block, np.unique(positions).astype(np.uint64)


def uncovered(chosen: Collection[BlockRecord], index: Coverage) -> Iterator[Place]:
    """Return the blocks that no segment of the index covers."""
    return ((block, None) for block in chosen if block.role == "history" or block.data_file_id in index.gaps)


def row_ids_in(test: Test) -> set[int] | None:
    """Return the row ids that a matching row must be among, or None if the test does not limit them."""
    for part in conjuncts(test):
        if isinstance(part, ColumnTest) and part.column == ROW_ID and part.op in ("=", "in"):
            return {int(v) for v in part.values if v is not None}
    return None


def keys_in(test: Test, schema: TableSchema) -> KeyColumn | None:
    """Return the primary keys that a matching row must have, or None if the test does not name them all."""
    if not schema.primary_key:
        return None
    choices: list[Sequence[Any]] = []
    count = 1
    parts = conjuncts(test)
    for key_field in schema.key_fields:
        named = [
            p.values
            for p in parts
            if isinstance(p, ColumnTest) and p.column == key_field.column and p.op in ("=", "in")
        ]
        if not named:
            return None
        choices.append(min(named, key=len))
        count *= len(choices[-1])
        if count > MOST_KEYS:
            return None
    codecs = schema.key_codecs
    keys: set[Key] = set()
    try:
        for values in product(*choices):
            if None not in values:
                keys.add(encode_key(codecs, [c.encode_constant(v) for c, v in zip(codecs, values, strict=True)]))
    except ConstraintError:
        return None
    return KeyColumn.from_keys(sorted(keys), ints=len(codecs) == 1 and codecs[0].kind == "int")


def keys_test(schema: TableSchema, keys: Sequence[Sequence[SqlValue]]) -> Test:
    """Return the test that statistics can apply to rows with one of the primary keys, given as encoded values."""
    values = zip(schema.key_fields, zip(*keys, strict=True), strict=True)
    return All(tuple(ColumnTest(f.column, "in", tuple(map(f.codec.decode_one, set(some)))) for f, some in values))
