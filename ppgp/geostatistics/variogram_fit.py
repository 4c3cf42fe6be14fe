"""The variogram model that fits an empirical variogram best, by weighted least squares."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ..data.found_on import Found, Origin
from ..errors import ConvergenceWarning, DataError, NotApplicable, SettingError, counted
from ..kernels import Exponential, Kernel, Product, Sum
from ..models import Kriging
from ..models.drift import Drift
from ..priors import Param, Site
from .variogram import EmpiricalVariogram

__all__ = ["VariogramFit", "fit_variogram"]

WEIGHTS = ("pairs/distance^2", "pairs", "cressie", "equal")
STARTS = 4
FAR = 10  # lengthscales so many times the largest distance cannot be told from infinity


@dataclass(frozen=True, eq=False)
class VariogramFit:
    """A variogram model with the numbers that fit best. They know the rows of the variogram: a fit with them in its recipe counts those
    rows as seen.

    Attributes:
        variogram: the kernel, every hyperparameter a number.
        nugget: the number found, or the one given.
        loss: weighted sum of squares.
        converged: whether the optimiser said so.
    """

    variogram: Kernel
    nugget: float
    loss: float
    converged: bool

    def kriging(self, drift: Drift = "constant", **options: Any) -> Kriging:
        """``Kriging`` with these numbers, its other options as given."""
        return Kriging(self.variogram, self.nugget, drift, **options)

    def __call__(self, distance: Tensor, direction: float | None = None) -> Tensor:
        """The semivariance [k] at distances [k] above 0, the nugget included."""
        like = torch.as_tensor(distance)
        return semivariance(self.variogram, {}, like, direction) + self.nugget


def semivariance(
    kernel: Kernel, theta: Mapping[str, Tensor], distance: Tensor, direction: float | None = None
) -> Tensor:
    """(k(0, 0) + k(x, x)) / 2 - k(0, x) for x at each distance [k] from 0, east where no direction is given: [k]."""
    turn = math.radians(90.0 if direction is None else direction)
    way = torch.tensor(
        [math.sin(turn), math.cos(turn)], dtype=distance.dtype, device=distance.device
    )
    X = distance[:, None] * way
    origin = torch.zeros_like(X[:1])
    return (
        0.5 * (kernel.diag(theta, origin) + kernel.diag(theta, X))
        - kernel(theta, origin, X)[..., 0, :]
    )


def fit_variogram(
    empirical: EmpiricalVariogram,
    variogram: Kernel | None = None,
    nugget: float | None = None,
    *,
    weights: str = "pairs/distance^2",
) -> VariogramFit:
    """The hyperparameters with the smallest weighted sum of squares; those fixed to numbers stay. Cressie (1985).

    Args:
        variogram: a kernel, its priors saying which numbers are to be found (their laws are not used); None: ``Exponential()``.
        nugget: a number that is known; None: to be found.
        weights: a lag's weight: "pairs/distance^2" (gstat's default), "pairs", "cressie" (pairs / model^2), "equal".

    Raises:
        SettingError: if ``weights`` is not one of these, or the nugget is negative.
        DataError: if there are fewer lags than numbers to find.
        NotApplicable: for a lengthscale a column (ARD) or an unknown angle, which one direction cannot tell; for an anisotropic
            kernel and pairs in all directions.
    """
    if weights not in WEIGHTS:
        raise SettingError(
            f"weights among {', '.join(map(repr, WEIGHTS))}", repr(weights), "choose one"
        )
    if nugget is not None and not 0 <= nugget < math.inf:
        raise SettingError(
            "a nugget of 0 or more", repr(nugget), "pass a variance, or None to find it"
        )
    kernel = Exponential() if variogram is None else variogram
    sites = kernel.sites(2)
    turned = [name for name in sites if name.rsplit(".", 1)[-1] in ("angle", "ratio")]
    if any(s.shape for s in sites.values()) or not all(sites[name].fixed for name in turned):
        do = "fix the angle and the ratio, or fit Kriging by MAP"
        raise NotApplicable("a variogram that one direction determines", repr(kernel), do)
    if turned and empirical.direction is None:
        do = "pass direction= to empirical_variogram"
        raise NotApplicable(
            "pairs along one direction for an anisotropic variogram", "pairs in all directions", do
        )
    names = _free(sites)
    unknown = len(names) + (nugget is None)
    if len(empirical.pairs) < unknown:
        raise DataError(
            f"at least {counted(unknown, 'lag')} for {counted(unknown, 'number')}",
            f"{len(empirical.pairs)}",
            "use more lags",
        )
    h, gamma = empirical.distance.double().cpu(), empirical.semivariance.double().cpu()
    pairs = empirical.pairs.double().cpu()
    plain = {
        "pairs/distance^2": pairs / h.square(),
        "pairs": pairs,
        "equal": torch.ones_like(h),
        "cressie": pairs,
    }[weights]
    sill = max(float(gamma.max()), 1e-300)

    def model(z: np.ndarray) -> Tensor:
        values = torch.from_numpy(np.asarray(z)).exp()
        theta = {name: values[i] for i, name in enumerate(names)}
        return semivariance(kernel, theta, h, empirical.direction) + (
            values[-1] if nugget is None else nugget
        )

    def residuals(z: np.ndarray) -> np.ndarray:
        found = model(z)
        scale = plain.sqrt() / (found.clamp_min(1e-12 * sill) if weights == "cressie" else sill)
        return ((gamma - found) * scale).numpy()

    if not unknown:
        return VariogramFit(
            kernel,
            float(nugget or 0.0),
            float(np.square(residuals(np.zeros(0))).sum()) * sill**2,
            True,
        )
    tries = [
        optimize.least_squares(
            residuals, _start(names, nugget, sill, float(h.max()), k), x_scale=1.0, max_nfev=2000
        )
        for k in range(STARTS)
    ]
    best = min(tries, key=lambda t: t.cost)
    origin = Origin(*([] if empirical.rows is None else [empirical.rows]))
    values = [Found.on(float(value), origin) for value in np.exp(best.x)]
    numbers = dict(zip(names, values, strict=False))  # the nugget comes last
    loss = 2 * float(best.cost) * (1.0 if weights == "cressie" else sill**2)
    if not best.success:
        warnings.warn(
            "the fit of the variogram stopped before it converged", ConvergenceWarning, stacklevel=2
        )
    far = [
        name
        for name in names
        if name.endswith("lengthscale") and numbers[name] > FAR * float(h.max())
    ]
    if far:
        sentence = f"{far[0]} lies {numbers[far[0]] / float(h.max()):.0f} times beyond the last lag, so that these lags show no sill"
        warnings.warn(
            f"{sentence}; use a larger cutoff, or LinearVariogram", ConvergenceWarning, stacklevel=2
        )
    return VariogramFit(
        with_numbers(kernel, numbers),
        values[-1] if nugget is None else float(nugget),
        loss,
        bool(best.success),
    )


def _free(sites: Mapping[str, Site | Param]) -> list[str]:
    return [name for name, s in sites.items() if not s.fixed]


def _start(names: list[str], nugget: float | None, sill: float, reach: float, k: int) -> np.ndarray:
    """Logarithms to start from: variances share the sill, lengths a share of the largest distance that depends on k."""
    share = (0.3, 0.1, 1.0, 0.03)[k]
    parts = max(1, sum(name.endswith(("variance", "outputscale")) for name in names))
    at = {
        "lengthscale": share * reach,
        "period": share * reach,
        "slope": sill / reach,
        "alpha": 1.0,
        "offset": 1.0,
    }
    values = [at.get(name.rsplit(".", 1)[-1], 0.8 * sill / parts) for name in names]
    return np.log([*values, *([0.1 * sill] if nugget is None else [])])


def with_numbers(kernel: Any, numbers: Mapping[str, float]) -> Any:
    """The kernel with the sites in ``numbers`` fixed to them.

    Wrappers are transparent, the children of sums and products numbered, as in the names of sites.
    """
    if isinstance(kernel, Sum | Product):
        tails = [
            {k.removeprefix(f"{i}."): v for k, v in numbers.items() if k.startswith(f"{i}.")}
            for i in range(len(kernel.children))
        ]
        return replace(
            kernel,
            children=tuple(with_numbers(c, t) for c, t in zip(kernel.children, tails, strict=True)),
        )
    own = {f.name: numbers[f.name] for f in fields(kernel) if f.name in numbers}
    inner = getattr(kernel, "kernel", None)
    if inner is not None:
        own["kernel"] = with_numbers(inner, numbers)
    return replace(kernel, **own)
