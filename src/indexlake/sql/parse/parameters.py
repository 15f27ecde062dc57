"""The values of ``$name``, ``$1`` and ``?`` of one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from indexlake.errors import ExpressionError
from indexlake.expr.constants import plain
from indexlake.expr.foreign_parameters import parameter_hint
from indexlake.types.outside import python_value

Params = Mapping[str, Any] | Sequence[Any] | None


class Parameters:
    """The values of one call, checked against what the text uses: none is missing and none is unused."""

    def __init__(self, params: Params, used: Sequence[str], text: str) -> None:
        if (hint := parameter_hint(text)) is not None:
            raise ExpressionError(f"{hint[0].upper()}{hint[1:]}.", text=text)
        if params is None:
            given: dict[str, Any] = {}
        elif isinstance(params, Mapping):
            given = {str(name): value for name, value in params.items()}
        elif isinstance(params, str | bytes) or not isinstance(params, Sequence):
            raise ExpressionError(
                f"params must be a dict of names or a list of values, not {type(params).__name__}.", text=text
            )
        else:
            given = {str(n): value for n, value in enumerate(params, 1)}
        missing = [name for name in used if name not in given]
        if missing:
            how = f'params={{"{missing[0]}": …}}' if not missing[0].isdigit() else "params=[…]"
            raise ExpressionError(f"Parameter ${missing[0]} has no value; give {how}.", text=text)
        unused = [name for name in given if name not in used]
        if unused:
            raise ExpressionError(f"Parameter ${unused[0]} is given, but the text does not use it.", text=text)
        self.values = {name: _taken(value) for name, value in given.items()}

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Parameters:
        """Make the parameters of a statement that is known to use exactly these."""
        made = cls.__new__(cls)
        made.values = {name: _taken(value) for name, value in values.items()}
        return made

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: self.values[name] for name in names}


def _taken(value: Any) -> Any:
    """Return a parameter as DuckDB takes it."""
    return plain(python_value(value)) if isinstance(value, pa.Scalar) else plain(value)
