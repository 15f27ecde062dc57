"""Checks whether the values of an array are valid for its type.

Arrow does not check: a string may contain bytes that are not UTF-8, a required field inside a struct may be null, a
dictionary index may point nowhere, a time of day may be outside the day, a map may have a key twice.  Such arrays are
rejected on input, since files written from them could not be read, or would crash the reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.arrow.buffers import children_of, chunks, null_mask
from indexlake.errors import ConstraintError
from indexlake.types.hugeint import is_hugeint
from indexlake.types.nested import list_parts, without_list_views

TICKS_OF_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def check_values(array: Any, field: Any) -> None:
    """Raise ``ConstraintError`` unless every value of the array is valid for the column, an Arrow or table field."""
    if is_hugeint(field) and array.type == field.type:
        return
    for chunk in chunks(array):
        if (problem := problem_of(chunk)) is not None:
            raise ConstraintError(
                f"Column {field.name!r} was given an array of type {array.type} that is not valid: {problem}. "
                "Repair it where it is made.",
                column=field.name,
            )


def problem_of(array: Any) -> str | None:
    """Return what is wrong with an array, as a sentence without its full stop, or None."""
    try:
        array = without_list_views(array)
        _check_bits(array)
        _check_visible(array, np.zeros(len(array), np.bool_))
    except (pa.ArrowException, ConstraintError) as error:
        return str(error).rstrip(".")
    return None


def holds_null(array: Any) -> bool:
    """Return whether a value is null, including nulls in the dictionary of a dictionary array."""
    return bool(array.null_count or (pa.types.is_dictionary(array.type) and _nulls(array).any()))


def _check_bits(array: Any) -> None:
    """Check offsets, indices and UTF-8.  Dates may be any integer, which comes back unchanged."""
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
            for part in children_of(array):
                _check_bits(part)
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


def _check_visible(array: Any, hidden: npt.NDArray[np.bool_]) -> None:
    """Check rules for values that no null above hides: required fields, times of day, keys of maps."""
    type, t = array.type, pa.types
    if t.is_time(type):
        _check_times(array, hidden)
    elif t.is_dictionary(type) and t.is_time(type.value_type):
        _check_times(array.dictionary, np.zeros(len(array.dictionary), np.bool_))
    if not t.is_nested(type):
        return
    hidden = hidden | _nulls(array)
    if t.is_struct(type):
        for index, field in enumerate(type):
            _check_child(array.field(index), field, hidden)
        return
    starts, stops, items = list_parts(array)
    below = np.repeat(hidden, stops - starts)
    _check_child(items, type.field(0), below)
    if t.is_map(type):
        _check_keys(items.field(0), np.repeat(np.arange(len(array)), stops - starts), below)


def _check_child(child: Any, field: Any, hidden: npt.NDArray[np.bool_]) -> None:
    if not field.nullable and (_nulls(child) & ~hidden).any():
        raise ConstraintError(f"The required field {field.name!r} is null in it.")
    _check_visible(child, hidden)


def _check_times(array: Any, hidden: npt.NDArray[np.bool_]) -> None:
    """Check that times are from 00:00:00 to 24:00:00, which SQL allows.  Engines crash on others."""
    ticks = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    if hidden.any():
        ticks = ticks.filter(pa.array(~hidden))
    ends = pc.min_max(ticks)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is not None and (low < 0 or high > TICKS_OF_DAY[array.type.unit]):
        wrong = low if low < 0 else high
        raise ConstraintError(
            f"The time {wrong} {array.type.unit} after midnight is outside the day, 00:00:00 to 24:00:00."
        )


def _check_keys(keys: Any, rows: npt.NDArray[Any], hidden: npt.NDArray[np.bool_]) -> None:
    """Check that no map has a key twice.  Keys that compare equal, such as 0.0 and -0.0, are the same key."""
    from indexlake.types import codec_for

    if len(rows) < 2 or not (rows[1:] == rows[:-1]).any():
        return
    canonical = pa.array(codec_for(keys.type).canonical_array(keys)).dictionary_encode()
    places = rows * len(canonical.dictionary) + canonical.indices.fill_null(0).to_numpy()
    if hidden.any():
        places = places[~hidden]
    places.sort()
    if (places[1:] == places[:-1]).any():
        raise ConstraintError("A map in it has a key twice.")


def _nulls(array: Any) -> npt.NDArray[np.bool_]:
    """Return where the array is null; for a dictionary array, also where the dictionary's value is."""
    mask = null_mask(array)
    if mask is None:
        mask = np.zeros(len(array), np.bool_)
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        empty = array.dictionary.is_null().take(array.indices.fill_null(0))
        mask = mask | empty.to_numpy(zero_copy_only=False)
    return mask
