"""Full names of tables and views: ``sales.orders``; a part with a dot is quoted, as in SQL: ``sales."orders.old"``."""

from __future__ import annotations

import re

from indexlake.errors import NotFoundError

_PART = r'"(?:[^"]|"")+"|[^."][^.]*'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def parts_of(name: str) -> list[str] | None:
    """Return the parts of a name, however many; None if it is not one."""
    found = re.fullmatch(rf"(?:(?:{_PART})\.)*(?:{_PART})", name)
    return None if found is None else [_meant(part) for part in re.findall(rf"(?:^|(?<=\.))({_PART})(?=\.|$)", name)]


def full_name(namespace: str, name: str) -> str:
    return f"{_written(namespace)}.{_written(name)}"


def split_name(name: str, namespace: str = "main") -> tuple[str, str]:
    """Split a name into namespace and table; ``namespace`` is that of a name without one."""
    found = _NAME.fullmatch(name) if isinstance(name, str) and "\x00" not in name else None
    if found is None:
        raise NotFoundError(
            f"{name!r} is not a table name. Write 'table' or 'namespace.table'; a part with a dot in it is quoted: "
            "'namespace.\"a.b\"'.",
            name=str(name),
        )
    return namespace if found[1] is None else _meant(found[1]), _meant(found[2])


def _written(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if "." in part or part.startswith('"') else part


def _meant(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part
