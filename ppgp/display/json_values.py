"""Values of JSON, which has neither NaN nor infinity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def json_value(value: Any) -> Any:
    """Return a JSON value: NaN and infinity, which JSON lacks, become None.

    Numbers then stay a column of numbers: the end of an interval that is unbounded is None.
    """
    if isinstance(value, Mapping):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item"):  # a number of NumPy
        return json_value(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
