"""Coefficients of linear models, as draws and as a table."""

from __future__ import annotations

from functools import partial
from typing import Any, overload

import torch
from torch import Tensor

from ..capabilities import IntegratedCoefficients, LinearCoefficients, require
from ..data.scaler import IdentityScaler, Scaler
from ..errors import NotApplicable, SettingError, UnknownName
from ..numerics.sandwich import two_sided
from .fitted import Fitted
from .integrated_coefficients import table_of_integrated
from .maximum_likelihood import covariance_at
from .region import exact_level
from .shown_coefficients import Coefficients
from .units_of_draws import UNITS, scale_of


@overload
def coefficients(self: Fitted) -> Coefficients: ...


@overload
def coefficients(
    self: Fitted,
    covariance: Any,
    *,
    level: float = ...,
    units: str = ...,
    exponentiate: bool = ...,
    dispersion: str | float | None = ...,
) -> Any: ...


def coefficients(
    self: Fitted,
    covariance: Any = None,
    *,
    level: float = 0.95,
    units: str = "data",
    exponentiate: bool = False,
    dispersion: str | float | None = None,
) -> Any:
    """Return the coefficients: draws in the units of the data, or a table with intervals.

    Without arguments, draws of weights and bias in the units of the data, a dictionary that prints
    and shows as the table of "draws".

    With "draws", a table of these draws: mean, sd, the median and the central interval. The
    regressors of StateSpaceGP have this table alone, of their exact distribution under the draws of
    the hyperparameters.

    Otherwise a table of maximum likelihood, for a GLM with flat priors fitted by MAP: estimate,
    standard error (se), z, the two-sided p-value of a normal z, and the Wald interval. Other priors
    are refused, because these standard errors are those of maximum likelihood, and the mode is then
    another point: "draws" of a fit by Laplace or NUTS has the posterior sds. A coefficient that is
    fixed to a number has the standard error 0, and no z.

    - "model": the inverse of the Fisher information, as of R's ``summary.glm``. The dispersion of
      Gaussian and Gamma, unless a number fixes it, is Pearson's chi-squared over n - p.
    - "HC0": the sandwich of Huber (1967) and White (1980), with the Hessian of the data. The
      standard errors hold if the mean is right and the variance is not.
    - "HC3": the same with scores divided by 1 - leverage. MacKinnon & White (1985).
    - clusters: the same with the sums of scores within clusters, times G / (G - 1)
      (n - 1) / (n - p). Liang & Zeger (1986). It is a name ("ids", or a grouping of the Dataset) or
      labels [n] of the training rows that have a weight.

    Args:
        self: The posterior.
        covariance: None, "draws", "model", "HC0", "HC3", or clusters.
        level: The level of the intervals.
        units: "data", or "model": the scale that the model saw.
        exponentiate: Whether to return exp of the coefficients and of the ends of their intervals,
            for links whose coefficients are logs of ratios: odds ratios, rate ratios and ratios of
            means. The quantiles and the mean of "draws" are those of exp of the draws. z and p test
            a ratio of 1.
        dispersion: With "model", "pearson" to estimate it for any likelihood (that of Poisson gives
            quasi-likelihood; McCullagh & Nelder 1989, chapter 9), or a number.

    Returns:
        ``{name: [chain, draw, ...]}`` with the method ``to_frame``, or a pandas DataFrame with one
        row per coefficient.

    Raises:
        NotApplicable: If the model is not linear; for a table of maximum likelihood, if the model
            is no GLM, the fit is not by MAP or a prior is not flat; for HC3 if there are several
            linear predictors; for ratios, if the link has none.
        SettingError: If the level is not in (0, 1), or for a dispersion beside another covariance
            than "model".
        UnknownName: If there is no such covariance, column or system of units.
        DataError: If clusters are not one label per row or fewer than two, or a leverage is 1.
    """
    share = float(1 - exact_level(level)) / 2
    if units not in UNITS:
        raise UnknownName("system of units", units, UNITS)
    if isinstance(self.model, IntegratedCoefficients):
        if exponentiate or dispersion is not None:
            name = type(self.model).__name__
            wanted = f"neither exponentiate nor dispersion for the weights of {name}"
            do = "leave them out; exp of the columns 50% and of the interval gives ratios"
            raise SettingError(wanted, "one of them", do)
        table = table_of_integrated(self, covariance, share, units == "model")
        table.index.name = scale_of(units, self.scaler)
        return table
    model = require(self.model, LinearCoefficients)
    given = (level, units, exponentiate, dispersion) != (0.95, "data", False, None)
    if covariance is None and given:
        do = "for example 'draws', or 'model'"
        raise SettingError("a covariance for a table of coefficients", "None", do)
    if covariance is None:
        draws = model.coefficients(self.draws, self.scaler, self.data.X)
        return Coefficients(draws, partial(coefficients, self, "draws"))
    scaler = self.scaler if units == "data" else IdentityScaler.for_data(self.data)
    if isinstance(covariance, str) and covariance == "draws":
        if dispersion is not None:
            raise SettingError("no dispersion beside draws", repr(dispersion), "leave it out")
        table = _of_draws(self, model, scaler, share, exponentiate)
    else:
        table = _of_maximum_likelihood(self, covariance, scaler, share, exponentiate, dispersion)
    title = scale_of(units, self.scaler)
    if exponentiate:
        ratio = _ratio_of(self.model)
        table = table.drop(index=[name for name in table.index if "|" in name])
        title = f"{ratio}, {title}"
    table.index.name = title
    return table


def _of_draws(
    fit: Fitted, model: LinearCoefficients, scaler: Scaler, share: float, exponentiate: bool
) -> Any:
    import pandas as pd

    names, flat = _in_rows(fit, model.coefficients(fit.draws, scaler, fit.data.X))
    flat = flat.exp() if exponentiate else flat
    spread = flat.std(0) if len(flat) > 1 else torch.full_like(flat[0], torch.nan)
    at = torch.quantile(flat, flat.new_tensor([share, 0.5, 1 - share]), dim=0)
    columns = ["mean", "sd", *_labels(share, "50%")]
    rows = torch.stack([flat.mean(0), spread, *at], -1).tolist()
    return pd.DataFrame(rows, index=pd.Index(names), columns=columns)


def _of_maximum_likelihood(
    fit: Fitted,
    kind: Any,
    scaler: Scaler,
    share: float,
    exponentiate: bool,
    dispersion: str | float | None,
) -> Any:
    import pandas as pd

    found, theta, precise = covariance_at(fit, kind, dispersion)
    covariance = precise.double()
    model: Any = fit.model
    # the coefficients are affine in the sites: at 0, and at each unit vector
    p, start, units = len(covariance), 0, {}
    identity = torch.cat([precise.new_zeros(1, p), torch.eye(p).to(precise)])
    for name, shape in found.sites.items():
        end = start + shape.numel()
        units[name] = identity[:, start:end].reshape(1, p + 1, *shape)
        start = end
    moved = _in_rows(fit, model.coefficients(units, scaler, fit.data.X))[1]
    own = {name: value[None, None] for name, value in theta.items()}
    names, estimate = _in_rows(fit, model.coefficients(own, scaler, fit.data.X))
    J = (moved[1:] - moved[:1]).mT
    error = (J @ covariance * J).sum(1).clamp_min(0.0).sqrt()
    b = estimate[0]
    z = torch.where(error > 0, b / error, torch.nan)
    reach = -float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
    columns = {"estimate": b, "se": error, "z": z, "p": two_sided(z)}
    for label, end in zip(_labels(share), (b - reach * error, b + reach * error), strict=True):
        columns[label] = end
    table = pd.DataFrame({k: v.cpu().numpy() for k, v in columns.items()}, index=pd.Index(names))
    if exponentiate:
        table = table.drop(columns="se")
        ends = ["estimate", *_labels(share)]
        table[ends] = table[ends].map(_exp)
    return table


def _exp(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).exp())


def _labels(share: float, *middle: str) -> list[str]:
    low, high = (f"{round(100 * s, 10):g}%" for s in (share, 1 - share))
    return [low, *middle, high]


def _ratio_of(model: Any) -> str:
    """Return what exp of a coefficient is.

    Raises:
        NotApplicable: If it is nothing.
    """
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None and hasattr(model, "likelihood_of_functions"):
        likelihood = model.likelihood_of_functions()
    ratio = None if likelihood is None else likelihood.ratio()
    if ratio is None:
        got = type(model).__name__ if likelihood is None else repr(likelihood)
        do = "leave exponentiate out"
        raise NotApplicable("a log or logit link, whose coefficients are logs of ratios", got, do)
    return ratio


def _in_rows(fit: Fitted, found: dict[str, Tensor]) -> tuple[list[str], Tensor]:
    """Return the names of all coefficients, and their draws [draw, coefficient].

    The intercept comes first, and the cutpoints between ordered classes last.
    """
    columns = fit.data.feature_names or [f"x{j}" for j in range(fit.data.d)]
    names: list[str] = []
    parts: list[Tensor] = []
    weight = found["weight"].flatten(0, 1)
    several = weight.ndim == 3
    bias = found["bias"].flatten(0, 1) if "bias" in found else None
    for k, before in enumerate(_functions(fit, weight.shape[1]) if several else [""]):
        if bias is not None:
            names.append(f"{before}intercept")
            parts.append((bias[:, k] if several else bias)[:, None])
        names += [f"{before}{column}" for column in columns]
        parts.append(weight[:, k] if several else weight)
    if "cutpoints" in found:
        cuts = found["cutpoints"].flatten(0, 1)
        labels = fit.data.classes or range(cuts.shape[1] + 1)
        names += [f"{labels[k]}|{labels[k + 1]}" for k in range(cuts.shape[1])]
        parts.append(cuts)
    return names, torch.cat(parts, 1).double()


def _functions(fit: Fitted, count: int) -> list[str]:
    """Return what precedes the names of the coefficients of each function."""
    likelihood: Any = getattr(fit.model, "likelihood", None)
    predicted = tuple(getattr(likelihood, "predicted", ()))
    if len(predicted) == count - 1:
        return ["", *(f"{likelihood.scale_of(name)} {name}: " for name in predicted)]
    labels = list(fit.data.classes or range(count))
    return [f"{label}: " for label in labels[len(labels) - count :]]
