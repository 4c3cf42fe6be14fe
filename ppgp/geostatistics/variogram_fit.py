"""The variogram model that fits an empirical variogram best, by weighted least squares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, DataError, NotApplicable, SettingError, counted
from ..kernels import Exponential, Kernel, Product, Sum
from ..models import Kriging
from ..models.exact.drift import Drift
from ..provenance.found_on import Found, Origin
from .variogram import EmpiricalVariogram

__all__ = ["VariogramFit", "fit_variogram"]

WEIGHTS = ("pairs/distance^2", "pairs", "cressie", "equal")
STARTS = 4
FAR = 10  # lengthscales above this many times the largest distance are as good as infinite


@dataclass(frozen=True, eq=False)
class VariogramFit:
    """The variogram model with the numbers that fit best.

    The numbers record the rows of the empirical variogram, so a fit that uses them in its recipe
    counts those rows as training rows.

    Attributes:
        variogram: The kernel, with a number for every hyperparameter.
        nugget: The fitted number, or the one that was given.
        loss: The weighted sum of squares.
        converged: Whether the optimiser reported convergence.
    """

    variogram: Kernel
    nugget: float
    loss: float
    converged: bool

    def kriging(self, drift: Drift = None, **options: Any) -> Kriging:
        """Return a ``Kriging`` recipe with these numbers.

        Args:
            drift: The drift, see ``models.Kriging``.
            **options: The other options of ``Kriging``.
        """
        return Kriging(self.variogram, self.nugget, drift, **options)

    def __call__(self, distance: Tensor, direction: float | None = None) -> Tensor:
        """Return the semivariance [k] at distances [k] above 0, with the nugget."""
        like = torch.as_tensor(distance)
        return semivariance(self.variogram, {}, like, direction) + self.nugget


def semivariance(
    kernel: Kernel, theta: Mapping[str, Tensor], distance: Tensor, direction: float | None = None
) -> Tensor:
    """Return the semivariance of a kernel, without a nugget.

    It is (k(0, 0) + k(x, x)) / 2 - k(0, x) for x at each distance from 0.

    Args:
        kernel: The kernel, for inputs with two columns.
        theta: Its hyperparameters that are not fixed.
        distance: [k].
        direction: Of x from 0, in degrees clockwise from north; None: east.

    Returns:
        [k].
    """
    angle = math.radians(90.0 if direction is None else direction)
    unit = torch.tensor(
        [math.sin(angle), math.cos(angle)], dtype=distance.dtype, device=distance.device
    )
    X = distance[:, None] * unit
    origin = torch.zeros_like(X[:1])
    variance = 0.5 * (kernel.diag(theta, origin) + kernel.diag(theta, X))
    return variance - kernel(theta, origin, X)[..., 0, :]


def fit_variogram(
    empirical: EmpiricalVariogram,
    variogram: Kernel | None = None,
    nugget: float | None = None,
    *,
    weights: str = "pairs/distance^2",
) -> VariogramFit:
    """Fit a variogram model to an empirical variogram by weighted least squares. Cressie (1985).

    Hyperparameters that are fixed to numbers stay. Warns with ConvergenceWarning if the optimiser
    stops early, or if the lags show no sill.

    Args:
        empirical: The empirical variogram, with lags [k].
        variogram: A kernel. Hyperparameters with a prior are fitted; the priors themselves are not
            used. None: ``Exponential()``.
        nugget: A number, if it is known; None: it is fitted.
        weights: The weight of a lag: "pairs/distance^2" (gstat's default), "pairs", "cressie"
            (pairs / model^2) or "equal".

    Returns:
        The fitted model, with variances and the nugget in squared units of y, and lengthscales in
        the units of the coordinates.

    Raises:
        SettingError: If ``weights`` is none of these, or the nugget is negative.
        DataError: If there are fewer lags than unknown numbers, or all semivariances are 0.
        NotApplicable: For one lengthscale per column (ARD) or an unknown angle, which one direction
            does not determine; for an anisotropic kernel and pairs in all directions.

    Examples:
        A surface with a variance of 2, a lengthscale of 1 and a nugget of 0.5:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import kernels
        >>> generator = torch.Generator().manual_seed(0)
        >>> places = 10 * torch.rand(200, 2, generator=generator, dtype=torch.float64)
        >>> C = kernels.Exponential(variance=2.0, lengthscale=1.0)({}, places)
        >>> root = torch.linalg.cholesky(C + 0.5 * torch.eye(200))
        >>> y = root @ torch.randn(200, generator=generator, dtype=torch.float64)
        >>> empirical = ppgp.empirical_variogram(ppgp.Dataset(places, y), lags=12)
        >>> found = ppgp.fit_variogram(empirical)
        >>> kernel = found.variogram
        >>> round(kernel.variance, 1), round(kernel.lengthscale, 1), round(found.nugget, 1)
        (2.2, 1.2, 0.6)
        >>> found.kriging(drift=1).drift
        1
    """
    _check(weights, nugget)
    kernel = Exponential() if variogram is None else variogram
    _check_determined(kernel, empirical)
    names = [name for name, s in kernel.sites(2).items() if not s.fixed]
    unknown = len(names) + (nugget is None)
    if not bool((empirical.semivariance > 0).any()):
        wanted, got = "semivariances above 0", "0 at all lags, as of a constant y"
        raise DataError(wanted, got, "check y; a constant has no variogram to fit")
    if len(empirical.pairs) < unknown:
        raise DataError(
            f"at least {counted(unknown, 'lag')} for {counted(unknown, 'number')}",
            f"{len(empirical.pairs)}",
            "use more lags",
        )
    problem = _LeastSquares(empirical, kernel, names, nugget, weights)
    if not unknown:
        residuals = problem.residuals(np.zeros(0))
        loss = float(np.square(residuals).sum()) * problem.sill**2
        return VariogramFit(kernel, float(nugget or 0.0), loss, True)
    best = problem.solve()
    origin = Origin(*([] if empirical.rows is None else [empirical.rows]))
    values = [Found.on(float(value), origin) for value in np.exp(best.x)]
    numbers = dict(zip(names, values, strict=False))  # the nugget comes last
    _warn(bool(best.success), numbers, problem.reach)
    loss = 2 * float(best.cost)
    if weights != "cressie":  # residuals are then relative to the sill
        loss *= problem.sill**2
    return VariogramFit(
        with_numbers(kernel, numbers),
        values[-1] if nugget is None else float(nugget),
        loss,
        bool(best.success),
    )


def _check(weights: str, nugget: float | None) -> None:
    """Check the options of ``fit_variogram``."""
    if weights not in WEIGHTS:
        raise SettingError(
            f"weights among {', '.join(map(repr, WEIGHTS))}", repr(weights), "choose one"
        )
    if nugget is not None and not 0 <= nugget < math.inf:
        raise SettingError(
            "a nugget of 0 or more", repr(nugget), "pass a variance, or None to find it"
        )


def _check_determined(kernel: Kernel, empirical: EmpiricalVariogram) -> None:
    """Refuse a kernel whose hyperparameters pairs along one direction do not determine."""
    sites = kernel.sites(2)
    anisotropy = [name for name in sites if name.rsplit(".", 1)[-1] in ("angle", "ratio")]
    if any(s.shape for s in sites.values()) or not all(sites[name].fixed for name in anisotropy):
        raise NotApplicable(
            "a variogram that one direction determines",
            repr(kernel),
            "fix the angle and the ratio, or fit Kriging by MAP",
        )
    if anisotropy and empirical.direction is None:
        raise NotApplicable(
            "pairs along one direction for an anisotropic variogram",
            "pairs in all directions",
            "pass direction= to empirical_variogram",
        )


class _LeastSquares:
    """The weighted least-squares problem in the logarithms z of the unknown numbers."""

    def __init__(
        self,
        empirical: EmpiricalVariogram,
        kernel: Kernel,
        names: list[str],
        nugget: float | None,
        weights: str,
    ) -> None:
        self.kernel, self.names, self.nugget = kernel, names, nugget
        self.direction, self.weights = empirical.direction, weights
        self.distance = empirical.distance.double().cpu()
        self.semivariance = empirical.semivariance.double().cpu()
        self.sill = max(float(self.semivariance.max()), 1e-300)
        self.reach = float(self.distance.max())
        pairs = empirical.pairs.double().cpu()
        if weights == "pairs/distance^2":
            self.weight = pairs / self.distance.square()
        elif weights == "equal":
            self.weight = torch.ones_like(pairs)
        else:
            self.weight = pairs

    def model(self, z: np.ndarray) -> Tensor:
        """Return the semivariance of the model at the lags, [k]."""
        values = torch.from_numpy(np.asarray(z)).exp()
        theta = {name: values[i] for i, name in enumerate(self.names)}
        nugget = values[-1] if self.nugget is None else self.nugget
        return semivariance(self.kernel, theta, self.distance, self.direction) + nugget

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """Return the weighted residuals, [k], relative to the sill (or the model, "cressie")."""
        fitted = self.model(z)
        unit: Tensor | float = self.sill
        if self.weights == "cressie":
            unit = fitted.clamp_min(1e-12 * self.sill)
        return ((self.semivariance - fitted) * (self.weight.sqrt() / unit)).numpy()

    def solve(self) -> Any:
        """Return the best of several local optima, as SciPy's OptimizeResult."""
        optima = []
        for k in range(STARTS):
            z = _start(self.names, self.nugget, self.sill, self.reach, k)
            optima.append(optimize.least_squares(self.residuals, z, x_scale=1.0, max_nfev=2000))
        return min(optima, key=lambda optimum: optimum.cost)


def _warn(converged: bool, numbers: Mapping[str, float], reach: float) -> None:
    """Warn about a fit that stopped early, and about a lengthscale that is as good as infinite."""
    if not converged:
        warn("the fit of the variogram stopped before it converged", ConvergenceWarning)
    for name, value in numbers.items():
        if name.endswith("lengthscale") and value > FAR * reach:
            warn(
                f"{name} lies {value / reach:.0f} times beyond the last lag, so that these lags "
                "show no sill; use a larger cutoff, or LinearVariogram",
                ConvergenceWarning,
            )
            return


def _start(names: list[str], nugget: float | None, sill: float, reach: float, k: int) -> np.ndarray:
    """Return the logarithms of the k-th starting point.

    The variances share the sill. A length is a share of the largest distance that depends on k.
    """
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
    if nugget is None:
        values.append(0.1 * sill)
    return np.log(values)


def with_numbers(kernel: Any, numbers: Mapping[str, float]) -> Any:
    """Return the kernel with the sites in ``numbers`` fixed to them.

    As in the names of sites, a wrapper does not appear in a name, and the children of sums and
    products are numbered.

    Args:
        kernel: The kernel.
        numbers: {site: number}.
    """
    if isinstance(kernel, Sum | Product):
        children = []
        for i, child in enumerate(kernel.children):
            prefix = f"{i}."
            of_child = {
                name.removeprefix(prefix): value
                for name, value in numbers.items()
                if name.startswith(prefix)
            }
            children.append(with_numbers(child, of_child))
        return replace(kernel, children=tuple(children))
    own = {f.name: numbers[f.name] for f in fields(kernel) if f.name in numbers}
    inner = getattr(kernel, "kernel", None)
    if inner is not None:
        own["kernel"] = with_numbers(inner, numbers)
    return replace(kernel, **own)
