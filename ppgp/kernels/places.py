"""Rows at which a kernel is a covariance, and columns of latitude and longitude by their names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from ..errors import DataError
from .around import Around, Unscaled
from .base import Product, Sum
from .sphere import Sphere
from .wrappers import Subspace

__all__ = ["check_places", "flat_degrees"]

LATITUDE, LONGITUDE = "latitude", "longitude"
#: words that stand for the one or the other in the name of a column
WORDS = {
    LATITUDE: {"lat", "lats", "latdeg", "latdd", "breitengrad"},
    LONGITUDE: {"lon", "lons", "lng", "long", "longs", "londeg", "londd", "längengrad"},
}
#: names that do so beside one another
PAIR = {"x": LONGITUDE, "y": LATITUDE}
PARTS = {LATITUDE: "latitud", LONGITUDE: "longitud"}  # in English and in the Romance languages
BOUNDS = {LATITUDE: (-90.0, 90.0), LONGITUDE: (-180.0, 360.0)}
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def check_places(kernel: Any, X: Tensor, names: Sequence[str] | None = None) -> None:
    """Check the rows of data, which a kernel with places of its own does not take everywhere.

    Places that a search tries, such as inducing inputs, are not checked.

    Args:
        kernel: A kernel, with a method ``check_places`` if it has places; None has none.
        X: Rows [n, d], as the kernel sees them.
        names: The names of the columns; None: they have none.

    Raises:
        DataError: If a row is no place of the kernel, or of one inside it; if the names say that
            a ``Sphere`` would read a longitude as latitude.
    """
    if isinstance(kernel, Sphere) and names is not None:
        _check_order(names)
    own = getattr(kernel, "check_places", None)
    if own is not None:
        own(X)
    for child in _inside(kernel):
        if _has_places(child):
            inner = names
            if isinstance(kernel, Subspace) and names is not None:
                inner = [names[c] for c in kernel.columns]
            check_places(child, _seen_inside(kernel, X), inner)


def flat_degrees(kernel: Any, X: Tensor, names: Sequence[str] | None) -> str | None:
    """Return the warning about latitudes and longitudes that a kernel takes as flat, or None.

    Args:
        kernel: A kernel; None: a model without one, which has no distances.
        X: Rows [n, d] in the units of the data.
        names: The names of the columns; None: they have none.
    """
    if kernel is None or names is None or any(isinstance(k, Sphere) for k in _every(kernel)):
        return None
    found: dict[str, int] = {}
    for c, name in enumerate(names):
        kind = _kind(name)
        if kind is not None:
            found.setdefault(kind, c)
    if len(found) < len(BOUNDS):
        return None
    for kind, (low, high) in BOUNDS.items():
        x = X[:, found[kind]]
        if not bool(((x >= low) & (x <= high)).all()):
            return None
    latitude, longitude = found[LATITUDE], found[LONGITUDE]
    pair = f"{names[latitude]} and {names[longitude]}"
    share = float(X[:, latitude].deg2rad().cos().mean())
    advice = (
        f"Sphere({type(kernel).__name__}(...), radius=6371.0) on the columns {pair}, in this order"
    )
    if len(names) > len(BOUNDS):
        advice = (
            "Subspace(Sphere(Exponential(...), radius=6371.0), "
            f"[{latitude}, {longitude}]) for these two columns"
        )
    return (
        f"the columns {pair} look like degrees, which the kernel takes as places on a plane; "
        f"a degree of longitude is {share:.2g} times as long as one of latitude here: use "
        f"{advice}, or project them to metres"
    )


def _kind(name: str) -> str | None:
    """Return whether the name of a column says latitude or longitude."""
    text = str(name)
    words = set(re.findall(r"[^\W\d_]+", _CAMEL.sub(" ", text).lower()))
    for kind, known in WORDS.items():
        if PARTS[kind] in text.lower() or words & known:
            return kind
    return None


def _check_order(names: Sequence[str]) -> None:
    """Raise DataError where the two columns of a Sphere are longitude and latitude by name."""
    kinds = [_kind(name) for name in names]
    if all(str(name).lower() in PAIR for name in names):
        kinds = [PAIR[str(name).lower()] for name in names]
    wrong = LONGITUDE in kinds[:1] or LATITUDE in kinds[1:2]
    if wrong and kinds[:1] != kinds[1:2]:
        first, second = names
        wanted = "latitude first, then longitude, in degrees for Sphere"
        got = f"the columns {first}, {second}"
        do = (
            f"put {second} before {first} in the table, or pass their numbers in this order, as "
            "Subspace(Sphere(...), [1, 0]) does"
        )
        raise DataError(wanted, got, do)


def _every(kernel: Any) -> Iterator[Any]:
    """Yield a kernel and all kernels inside it."""
    yield kernel
    for child in _inside(kernel):
        yield from _every(child)


def _inside(kernel: Any) -> tuple[Any, ...]:
    """Return the kernels that a kernel combines or wraps."""
    if isinstance(kernel, Sum | Product):
        return kernel.children
    return (kernel.kernel,) if isinstance(kernel, Around) else ()


def _has_places(kernel: Any) -> bool:
    return any(hasattr(one, "check_places") for one in _every(kernel))


def _seen_inside(kernel: Any, X: Tensor) -> Tensor:
    """Return the rows as the kernel inside sees them."""
    if isinstance(kernel, Subspace):
        return kernel.chosen(X)
    return kernel.rescaled(X) if isinstance(kernel, Unscaled) else X
