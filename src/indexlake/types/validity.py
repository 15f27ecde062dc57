"""Whether the values of an array are what its type promises.

Arrow does not look: a string may hold bytes that are no UTF-8, a required field inside a struct may be null,
an index of a dictionary may point nowhere.  Such arrays are refused at the door, since files written from
them could not be read, or would crash the reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import ConstraintError
from indexlake.types.buffers import chunks, null_mask
from indexlake.types.nested import list_parts


def check_values(array: Any, column: str) -> None:
    """Raise ``ConstraintError`` unless every value of the array is valid for its type."""
    for chunk in chunks(array):
        try:
            _check_bits(chunk)
            _check_required(chunk, np.zeros(len(chunk), np.bool_))
        except (pa.ArrowException, ConstraintError) as error:
            raise ConstraintError(
                f"Column {column!r} was given an array of type {array.type} that is not valid: "
                f"{str(error).rstrip('.')}. Repair it where it is made.",
                column=column,
            ) from None


def holds_null(array: Any) -> bool:
    """Whether a value is null; the null may be in the dictionary of a dictionary array."""
    return bool(array.null_count or (pa.types.is_dictionary(array.type) and _nulls(array).any()))


def _check_bits(array: Any) -> None:
    """Offsets, indices and UTF-8.  Dates and times may hold any integer: it comes back as it went in."""
    type, t = array.type, pa.types
    if t.is_date(type) or t.is_time(type):
        array.validate()
    elif t.is_dictionary(type):
        array.indices.validate(full=True)
        _check_indices(array)
        _check_bits(array.dictionary)
    elif t.is_nested(type):
        array.validate()
        if t.is_struct(type):
            for index in range(type.num_fields):
                _check_bits(array.field(index))
            return
        if not t.is_fixed_size_list(type):
            _check_offsets(array)
        items = list_parts(array)[2]
        _check_bits(items)
    else:
        array.validate(full=True)


def _check_offsets(array: Any) -> None:
    offsets = array.offsets.to_numpy()
    limit = len(array.keys if pa.types.is_map(array.type) else array.values)
    if (np.diff(offsets) < 0).any() or offsets[0] < 0 or offsets[-1] > limit:
        raise ConstraintError("An offset of a list points outside its items.")


def _check_indices(array: Any) -> None:
    indices = array.indices.drop_null()
    if len(indices) == 0:
        return
    numbers = indices.to_numpy()
    if int(numbers.min()) < 0 or int(numbers.max()) >= len(array.dictionary):
        raise ConstraintError("An index points outside the dictionary.")


def _check_required(array: Any, hidden: npt.NDArray[np.bool_]) -> None:
    """No null in a field that is not nullable, unless a null above hides it."""
    type, t = array.type, pa.types
    if not t.is_nested(type):
        return
    hidden = hidden | _nulls(array)
    if t.is_struct(type):
        for index in range(type.num_fields):
            _check_child(array.field(index), type.field(index), hidden)
        return
    starts, stops, items = list_parts(array)
    _check_child(items, type.field(0), np.repeat(hidden, stops - starts))


def _check_child(child: Any, field: Any, hidden: npt.NDArray[np.bool_]) -> None:
    if not field.nullable and (_nulls(child) & ~hidden).any():
        raise ConstraintError(f"The required field {field.name!r} is null in it.")
    _check_required(child, hidden)


def _nulls(array: Any) -> npt.NDArray[np.bool_]:
    """Where the array is null; for a dictionary array also where its dictionary is."""
    mask = null_mask(array)
    if mask is None:
        mask = np.zeros(len(array), np.bool_)
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        empty = array.dictionary.is_null().take(array.indices.fill_null(0))
        mask = mask | empty.to_numpy(zero_copy_only=False)
    return mask
