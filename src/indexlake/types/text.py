"""The exact text of a type, as the catalog stores it.

Plain types have their Arrow name (``int64``, ``timestamp[us, tz=UTC]``).  Types with parts are JSON, so that names with
any character, nullability and metadata of nested fields, dictionary index types and the ``ordered`` flag survive:
``{"list": {"name": "item", "type": "int64"}}``.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pyarrow as pa

from indexlake.errors import SchemaError

_UNITS = ("s", "ms", "us", "ns")
_PLAIN: dict[str, Any] = {
    **{name: getattr(pa, name)() for name in ("int8", "int16", "int32", "int64")},
    **{name: getattr(pa, name)() for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: getattr(pa, name)() for name in ("float16", "float32", "float64", "date32", "date64")},
    **{name: getattr(pa, name)() for name in ("string", "large_string", "string_view")},
    **{name: getattr(pa, name)() for name in ("binary", "large_binary", "binary_view")},
    "bool": pa.bool_(),
    "uuid": pa.uuid(),
    **{f"time32[{unit}]": pa.time32(unit) for unit in ("s", "ms")},
    **{f"time64[{unit}]": pa.time64(unit) for unit in ("us", "ns")},
    **{f"duration[{unit}]": pa.duration(unit) for unit in _UNITS},
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in _UNITS},
}
NAMES = {type: name for name, type in _PLAIN.items()}
"""The types without parts and parameters, and their names in the catalog."""
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", re.DOTALL)
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")


def type_to_text(type: Any) -> str:
    """Return the text of a supported type; ``type_from_text`` turns it back into the very same type.

    >>> type_to_text(pa.timestamp("us", "UTC"))
    'timestamp[us, tz=UTC]'
    """
    form = _to_form(type)
    return form if isinstance(form, str) else json.dumps(form, ensure_ascii=False)


def type_from_text(text: str) -> Any:
    """Return the type that ``type_to_text`` wrote."""
    try:
        return _from_form(json.loads(text) if text.startswith("{") else text)
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise SchemaError(
            f"{text!r} is not the text of a column type ({error}). The catalog was written by a newer "
            "version of indexlake, or changed by hand."
        ) from None


def _to_form(type: Any) -> str | dict[str, Any]:
    t = pa.types
    if t.is_dictionary(type):
        indices, values = _to_form(type.index_type), _to_form(type.value_type)
        return {"dictionary": {"indices": indices, "values": values, "ordered": type.ordered}}
    if t.is_struct(type):
        return {"struct": [_field_to_form(field) for field in type]}
    if t.is_map(type):
        key, value = _field_to_form(type.key_field), _field_to_form(type.item_field)
        return {"map": {"key": key, "value": value, "keys_sorted": type.keys_sorted}}
    if t.is_fixed_size_list(type):
        return {"fixed_size_list": _field_to_form(type.value_field), "size": type.list_size}
    if t.is_large_list(type):
        return {"large_list": _field_to_form(type.value_field)}
    if t.is_list(type):
        return {"list": _field_to_form(type.value_field)}
    if t.is_decimal(type) or (t.is_fixed_size_binary(type) and not isinstance(type, pa.BaseExtensionType)):
        return str(type)
    if t.is_timestamp(type) and type.tz is not None:
        return str(type)
    if type in NAMES:
        return NAMES[type]
    raise SchemaError(f"The type {type} is not supported in a table.")


def _from_form(form: str | dict[str, Any]) -> Any:
    if isinstance(form, str):
        return plain_type(form)
    match form:
        case {"list": item}:
            return pa.list_(_field_from_form(item))
        case {"large_list": item}:
            return pa.large_list(_field_from_form(item))
        case {"fixed_size_list": item}:
            return pa.list_(_field_from_form(item), form["size"])
        case {"struct": fields}:
            return pa.struct([_field_from_form(field) for field in fields])
        case {"map": parts}:
            key, value = _field_from_form(parts["key"]), _field_from_form(parts["value"])
            return pa.map_(key, value, keys_sorted=parts["keys_sorted"])
        case {"dictionary": parts}:
            return pa.dictionary(_from_form(parts["indices"]), _from_form(parts["values"]), parts["ordered"])
    raise KeyError(next(iter(form)))


def plain_type(text: str) -> Any:
    """Return a type without parts, given its name in the catalog."""
    if text in _PLAIN:
        return _PLAIN[text]
    if found := _ZONED.fullmatch(text):
        return pa.timestamp(found[1], found[2])
    if found := _DECIMAL.fullmatch(text):
        return getattr(pa, f"decimal{found[1]}")(int(found[2]), int(found[3]))
    if found := _FIXED.fullmatch(text):
        return pa.binary(int(found[1]))
    raise ValueError("no such type")


def _field_to_form(field: Any) -> dict[str, Any]:
    form: dict[str, Any] = {"name": field.name, "type": _to_form(field.type)}
    if not field.nullable:
        form["nullable"] = False
    if field.metadata:
        form["metadata"] = [[_bytes_to_form(part) for part in pair] for pair in field.metadata.items()]
    return form


def _field_from_form(form: dict[str, Any]) -> Any:
    pairs = form.get("metadata")
    metadata = {_bytes_from_form(key): _bytes_from_form(value) for key, value in pairs} if pairs else None
    return pa.field(form["name"], _from_form(form["type"]), form.get("nullable", True), metadata)


def _bytes_to_form(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes_from_form(form: str | dict[str, str]) -> bytes:
    return form.encode() if isinstance(form, str) else base64.b64decode(form["base64"])
