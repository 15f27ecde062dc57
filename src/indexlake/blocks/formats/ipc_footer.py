"""Where the record batches of an Arrow file lie, which pyarrow does not tell."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from indexlake.storage import InputFile

_END = struct.Struct("<i6s")  # length of the footer, "ARROW1"
_BATCHES = 3  # the field of the footer that lists record batches
_PLACE = np.dtype({"names": ["offset", "head", "body"], "formats": ["<i8", "<i4", "<i8"], "offsets": [0, 8, 16]})


def batch_ranges(file: InputFile) -> list[tuple[int, int]]:
    """Offset and length of each record batch, its metadata included, of a file that pyarrow could open."""
    size = file.size()
    length, _ = _END.unpack(file.read_at(size - _END.size, _END.size))
    footer = file.read_at(size - _END.size - length, length)
    root = _number("<I", footer, 0)
    fields = root - _number("<i", footer, root)
    if _number("<H", footer, fields) <= 4 + 2 * _BATCHES:
        return []
    field = _number("<H", footer, fields + 4 + 2 * _BATCHES)
    if not field:
        return []
    vector = root + field + _number("<I", footer, root + field)
    places = np.frombuffer(footer, _PLACE, _number("<I", footer, vector), vector + 4)
    return list(zip(places["offset"].tolist(), (places["head"] + places["body"]).tolist(), strict=True))


def _number(form: str, data: memoryview, at: int) -> Any:
    return struct.unpack_from(form, data, at)[0]
