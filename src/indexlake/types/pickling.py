"""Makes types survive pickling.

When pickling, pyarrow loses the element field of a fixed-size list (name, nullability, metadata) and the flag that a
map's keys are sorted.  A task that is sent to another process carries types, and a file written there with such a type
could not be read again.  Importing this module fixes it for every pickle that this process makes.
"""

from __future__ import annotations

import copyreg
from typing import Any

import pyarrow as pa


def _fixed_size_list(type: Any) -> tuple[Any, ...]:
    return pa.list_, (type.value_field, type.list_size)


def _map(type: Any) -> tuple[Any, ...]:
    return pa.map_, (type.key_field, type.item_field, type.keys_sorted)


copyreg.pickle(pa.FixedSizeListType, _fixed_size_list)
copyreg.pickle(pa.MapType, _map)
