"""A curve through some columns: rows close to each other on it are close to each other in those columns.

A value becomes its rank among sampled values, so skew, types and units do not matter; the ranks of a row's columns
become one number, one after the other (``sort``) or with their bits interleaved (``zorder``). Nulls come last. The
numbers only decide which rows share a block: no answer depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import SchemaError
from indexlake.schema import Field, TableSchema

ORDERS = ("sort", "zorder")
MOST_COLUMNS = 8
MOST_BITS = 14
PREFIX = 64
"""How many bytes of a long value are used."""

Codes = npt.NDArray[np.uint64]


def check_curve(schema: TableSchema, columns: Sequence[str], order: str) -> tuple[Field, ...]:
    """Return the fields of a requested curve, or raise if they are not suitable."""
    if order not in ORDERS:
        raise SchemaError(f"order={order!r} is not known. Use 'sort' or 'zorder'.")
    if isinstance(columns, str) or not 1 <= len(columns) <= MOST_COLUMNS:
        raise SchemaError(f"cluster_by is a list of one to {MOST_COLUMNS} columns, not {columns!r}.")
    fields = schema.project(columns)
    for field in fields:
        if not field.codec.ordered:
            raise SchemaError(
                f"Column {field.name!r} of type {field.type} has no order: rows cannot be clustered by it.",
                column=field.name,
            )
        if fields.count(field) > 1:
            raise SchemaError(f"cluster_by names column {field.name!r} twice.", column=field.name)
    return fields


def comparable(field: Field, array: Any) -> pa.Array:
    """Return the column's values as 64-bit integers or bytes in the same order, with their nulls."""
    values = field.codec.canonical_array(array)
    if field.codec.kind != "int":
        return pc.binary_slice(values, 0, PREFIX)
    plain = array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
    return pa.array(values, mask=np.asarray(pc.is_null(plain)))


@dataclass(frozen=True, slots=True)
class Curve:
    """The columns, how they are combined, and the sampled values of each in order."""

    fields: tuple[Field, ...]
    order: str
    bounds: tuple[pa.Array, ...]

    @classmethod
    def through(cls, fields: tuple[Field, ...], order: str, samples: Sequence[pa.Array]) -> Curve:
        """Return the curve given by sampled values of each column."""
        most = (1 << _bits(len(fields))) - 2
        bounds = []
        for values in samples:
            known = values.drop_null()
            ordered = known.take(pc.sort_indices(known))
            if len(ordered) > most:
                ordered = ordered.take(pa.array(np.linspace(0, len(ordered) - 1, most).astype(np.int64)))
            bounds.append(ordered)
        return cls(fields, order, tuple(bounds))

    def codes(self, columns: Sequence[pa.Array]) -> Codes:
        """Return the places of rows on the curve, from their comparable values."""
        bits = _bits(len(self.fields))
        ranks = [_ranks(v, b, (1 << bits) - 1) for v, b in zip(columns, self.bounds, strict=True)]
        code = np.zeros(len(columns[0]), np.uint64)
        if self.order == "sort":
            for rank in ranks:
                code = (code << np.uint64(bits)) | rank
            return code
        for bit in reversed(range(bits)):
            for rank in ranks:
                code = (code << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
        return code

    def codes_of(self, batch: pa.RecordBatch) -> Codes:
        """Return the same for rows in the format of files."""
        return self.codes([comparable(f, batch.column(f.column)) for f in self.fields])


def cuts(codes: Codes, buckets: int) -> Codes:
    """Return where to cut the curve so that each bucket gets as many sampled rows; equal rows stay together."""
    ordered = np.sort(codes)
    places = np.arange(1, buckets) * len(ordered) // buckets
    return np.unique(ordered[places]) if len(ordered) else ordered


def _bits(columns: int) -> int:
    return min(MOST_BITS, 63 // columns)


def _ranks(values: pa.Array, bounds: pa.Array, top: int) -> Codes:
    """Return how many bounds are smaller than each value, scaled so that each column has the same weight."""
    if pa.types.is_integer(values.type):
        ranks = np.searchsorted(bounds.to_numpy(), values.fill_null(0).to_numpy(), side="left")
    elif values.null_count < len(values):
        encoded = values.dictionary_encode()
        ranks = _byte_ranks(encoded.dictionary, bounds)[encoded.indices.fill_null(0).to_numpy()]
    else:
        ranks = np.zeros(len(values), np.int64)
    stretched: Codes = ranks.astype(np.uint64)
    stretched[np.asarray(values.is_null())] = len(bounds) + 1
    return stretched * np.uint64(top) // np.uint64(len(bounds) + 1)


def _byte_ranks(values: pa.Array, bounds: pa.Array) -> npt.NDArray[np.int64]:
    """Do ``searchsorted`` for bytes: sorted together, a value precedes the bounds that equal it."""
    order = np.asarray(pc.sort_indices(pa.concat_arrays([values, bounds.cast(values.type)])))
    is_bound = order >= len(values)
    ranks = np.zeros(len(values), np.int64)
    ranks[order[~is_bound]] = np.cumsum(is_bound)[~is_bound]
    return ranks
