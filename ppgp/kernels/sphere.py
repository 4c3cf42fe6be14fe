"""Places on a sphere, by latitude and longitude: a kernel of points in three dimensions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, SettingError
from ..priors import Param, Site, finite_numbers
from .around import Around, Unscaled
from .base import Kernel, Product, Sum, Theta, mapped
from .fourier_features import Draw, Path
from .units import Factor, Units

RADIAN = math.pi / 180.0
ROUNDING = 1e-4  # degrees by which a latitude may exceed 90, after a column was standardised
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


@dataclass(frozen=True)
class Sphere(Around):
    """The kernel at points of a sphere: X holds latitude and longitude in degrees, in this order.

    For X [n, 2] it is kernel(p, p') with p = radius (cos lat cos lon, cos lat sin lon, sin lat), so
    that distances are chords, straight through the sphere. Any kernel of three dimensions is
    therefore a covariance on the sphere, and there is no seam at the date line or at a pole. The
    kernels ``RBF`` and ``Matern`` (past nu = 1/2) of great-circle distances are no covariances.
    Gneiting (2013), theorem 1; Guinness & Fuentes (2016).

    A chord is shorter than the great circle: by 0.1 % at 1,000 km on Earth, by 4 % at 6,371 km.
    Numbers, priors inside ``InUnitsOfData`` and ``summary(units="data")`` give lengths in the units
    of the radius. Any other prior is on the scale of the model: where ``fit`` standardises X, a
    length of 1 is the standard deviation of the places (the geometric mean of those of the two
    columns), and otherwise the unit of the radius. With further columns, write
    ``Subspace(Sphere(Matern()), [0, 1])``.

    Args:
        kernel: A kernel of three columns.
        radius: The radius, whose unit is that of the lengths: 6371.0 for km on Earth.
        degrees: Set by ``fit``: the degrees in one unit of standardised X. None: X is in degrees.

    Raises:
        SettingError: If ``kernel`` is no kernel of three columns, or the radius not a positive
            number; on use, if X has not two columns.
        DataError: On use, if a latitude of the data is not from -90 to 90. A search may pass a
            pole, behind which the places of the opposite meridian follow. From ``fit``, if the
            names of the columns say that longitude comes first.

    Examples:
        On the equator, two degrees are 222 km, across the date line as elsewhere:

        >>> import torch
        >>> from ppgp import kernels
        >>> kernel = kernels.Sphere(kernels.Exponential(1.0, lengthscale=1000.0), radius=6371.0)
        >>> kernel({}, torch.tensor([[0.0, 179.0], [0.0, -179.0], [0.0, 177.0]]))[0]
        tensor([1.0000, 0.8006, 0.8006])
    """

    kernel: Kernel
    radius: float = 1.0
    degrees: float | None = None
    widths = (2, 2)
    about_origin = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not finite_numbers((self.radius,)) or self.radius <= 0:
            raise SettingError("a positive radius", repr(self.radius), "use 6371.0 for km on Earth")
        self.kernel.check_columns(3)

    def measured(self) -> bool:
        return True

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        return self.kernel.sites(3)

    def _inner(self, units: Units) -> Units:
        """Return the units of the three columns of points."""
        length = 1.0
        if any(units.x_mean) or any(s != 1.0 for s in units.x_sd):
            length = self.radius * RADIAN * units.middle
        return replace(units, x_mean=(0.0,) * 3, x_sd=(length,) * 3)

    def in_units(self, units: Units) -> Kernel:
        inner = self._inner(units)
        kernel = replace(self, kernel=self.kernel.in_units(inner))
        if inner.x_sd[0] == 1.0:
            return kernel
        middle = units.middle
        factor = tuple(s / middle for s in units.x_sd)
        shift = tuple(m / middle for m in units.x_mean)
        return Unscaled(replace(kernel, degrees=middle), factor, shift)

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(self._inner(units))

    def has_places(self) -> bool:
        return True

    def check_places(self, X: Tensor, names: Sequence[str] | None = None) -> None:
        if names is not None:
            _check_order(names)
        self.check_columns(X.shape[-1])
        _check_latitudes(X[..., 0] * (self.degrees or 1.0))
        super().check_places(X)

    def _points(self, X: Tensor) -> Tensor:
        """Return the points [*b, n, 3] of latitudes and longitudes."""
        self.check_columns(X.shape[-1])
        size = self.radius
        if self.degrees is not None:
            X, size = X * self.degrees, 1.0 / (RADIAN * self.degrees)
        latitude, longitude = X[..., 0] * RADIAN, X[..., 1] * RADIAN
        across = latitude.cos()
        x, y, z = across * longitude.cos(), across * longitude.sin(), latitude.sin()
        return size * torch.stack([x, y, z], -1)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        if self.degrees is None and X2 is None:  # no ``fit`` has checked the rows
            self.check_places(X1)
        return self.kernel(theta, self._points(X1), mapped(self._points, X2))

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self.kernel.diag(theta, self._points(X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(theta, self._points(X))

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return self.kernel.check_fit(theta, self._points(X))

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        inner = self.kernel.path(theta, 3, replace(draw, like=self._points(draw.like)))
        return lambda X: inner(self._points(X))


def _check_latitudes(latitude: Tensor) -> None:
    """Refuse latitudes beyond the poles, unless a trace hides the values."""
    if not latitude.numel():
        return
    with torch.no_grad():
        worst = latitude.abs().amax()
        try:
            beyond = bool(worst > 90.0 + ROUNDING)
        except RuntimeError:
            return
        if beyond:
            do = "put latitude first, then longitude, both in degrees"
            raise DataError("latitudes from -90 to 90 in the first column", f"{worst:.4g}", do)


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
