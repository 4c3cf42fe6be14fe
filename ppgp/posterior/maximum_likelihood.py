"""Maximum likelihood of a generalised linear model: covariance of its estimates, dispersion."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..capabilities import GeneralisedLinear, RowScores, require
from ..data.groups import coded_groups
from ..display.user_warnings import warn
from ..distributions.univariate import sd
from ..errors import ConvergenceWarning, DataError, NotApplicable, SettingError, UnknownName
from ..numerics.sandwich import clustered, robust
from .fitted import Fitted

COVARIANCES = ("model", "HC0", "HC3")
LEFT = 1e-4  # of the log likelihood, which a search may have left before the maximum


def at_the_mode(fit: Fitted, wanted: str) -> tuple[GeneralisedLinear, dict[str, Tensor]]:
    """Return the model and its one draw, {site: [*event]}.

    Args:
        fit: The posterior.
        wanted: What needs the mode.

    Raises:
        NotApplicable: If it is no generalised linear model, or the fit is not by MAP.
    """
    model = require(fit.model, GeneralisedLinear)
    if "log_likelihood" not in fit.stats or "mode" in fit.stats or fit.shape != (1, 1):
        got = f"draws by {type(fit.how).__name__}"
        raise NotApplicable(f"a mode for {wanted}", got, "fit by MAP('newton')")
    return model, {name: value[0] for name, value in fit.theta.items()}


def counts_of_rows(fit: Fitted) -> Tensor:
    """Return how many rows each row counts as, [n]; ``fit`` has left out those of weight 0."""
    weights = fit.data.weights
    return torch.ones_like(fit.data.y) if weights is None else weights


def of_rows(model: GeneralisedLinear, theta: dict[str, Tensor], data: Any) -> Any:
    """Return the distribution of y in the rows, batch [n], on the scale of the model."""
    law = model.likelihood.for_rows(data.trials)
    return law.distribution(theta, model.functions(theta, data.X, data.offset))


def pearson_residuals(model: GeneralisedLinear, theta: dict[str, Tensor], data: Any) -> Tensor:
    """Return (y - mean) / sqrt(V(mean)), [n], on the scale of the model.

    Raises:
        NotApplicable: If y is one of several classes.
    """
    law, found = model.likelihood, of_rows(model, theta, data)
    if isinstance(found, torch.distributions.Categorical):
        do = "use kind='quantile' for ordered classes"
        raise NotApplicable("numbers, or two classes, for Pearson residuals", repr(law), do)
    spread = sd(found)
    if not bool(torch.isfinite(spread).all() & torch.isfinite(found.mean).all()):
        do = "use kind='quantile'"
        raise NotApplicable("a finite variance of y for Pearson residuals", repr(law), do)
    return (data.y - found.mean) / spread * law.dispersion(theta, data.X).sqrt()


def pearson_statistic(
    model: GeneralisedLinear, theta: dict[str, Tensor], fit: Fitted
) -> tuple[float, float]:
    """Return Pearson's chi-squared on the scale of the model, and its degrees of freedom."""
    w = counts_of_rows(fit)
    square = pearson_residuals(model, theta, fit.data).square()
    sites = fit.model.sites(fit.data.d)
    own = (sites[name] for name in ("weight", "bias") if name in sites)
    coefficients = sum(torch.Size(site.shape).numel() for site in own if not site.fixed)
    return float((w * square).sum()), float(w.sum()) - coefficients


def covariance_at(
    fit: Fitted, kind: Any, dispersion: str | float | None = None
) -> tuple[RowScores, dict[str, Tensor], Tensor]:
    """Return the derivatives at the mode, the mode, and the covariance of the estimates [p, p].

    Args:
        fit: The posterior.
        kind: "model", "HC0", "HC3", the name of a column of clusters, or labels [n].
        dispersion: As of ``coefficients``.

    Raises:
        As ``coefficients``.
    """
    model, theta = at_the_mode(fit, "standard errors of maximum likelihood")
    priors = model.informative_priors()
    if priors:
        raise NotApplicable(
            "flat priors for standard errors of maximum likelihood",
            ", ".join(priors),
            "fit with Flat() in their place, or take those of the posterior: "
            "coefficients('draws') of a fit by Laplace or NUTS",
        )
    if dispersion is not None and not (isinstance(kind, str) and kind == "model"):
        do = "leave it out, as robust covariances do not depend on it"
        raise SettingError("no dispersion beside a robust covariance", repr(dispersion), do)
    found = model.row_scores(theta, fit.data)
    if found.scores.shape[1] == 0:
        raise NotApplicable("coefficients with a prior", "fixed numbers", "give weight a prior")
    w = counts_of_rows(fit)
    _check_maximum(found, w)
    if isinstance(kind, str) and kind == "model":
        scale = _dispersion_ratio(fit, model, theta, dispersion)
        return found, theta, scale * torch.linalg.inv(found.expected)
    bread = torch.linalg.inv(found.hessian())
    if isinstance(kind, str) and kind in COVARIANCES:
        leverage = _leverage(found) if kind == "HC3" else None
        return found, theta, robust(bread, found.scores, w, leverage)
    codes = _clusters(fit, kind).unique(return_inverse=True)[1]
    if int(codes.max()) < 1:
        raise DataError("at least two clusters", "one", "use covariance='HC3'")
    return found, theta, clustered(bread, found.scores, w, codes)


def _check_maximum(found: RowScores, w: Tensor) -> None:
    """Warn if the search ended before the maximum, or there is none."""
    total = w @ found.scores
    left = 0.5 * float(total @ torch.linalg.solve(found.expected, total))
    if not left < LEFT:
        warn(
            "the likelihood has no maximum here, so the standard errors are not those of maximum "
            "likelihood: fit by MAP('newton') if the search ended early, and Poisson() if the "
            "shape of NegativeBinomial() grows without end",
            ConvergenceWarning,
        )


def _dispersion_ratio(
    fit: Fitted,
    model: GeneralisedLinear,
    theta: dict[str, Tensor],
    dispersion: str | float | None,
) -> float:
    """Return the dispersion over that of the fit."""
    law = model.likelihood
    name = law.dispersion_parameter()
    fitted = float(law.dispersion(theta, fit.data.X))
    if dispersion is None:
        if name is None or law.sites()[name].fixed:
            return 1.0
        dispersion = "pearson"
    if dispersion == "pearson":
        statistic, df = pearson_statistic(model, theta, fit)
        if df <= 0:
            got = f"{df:g} degrees of freedom"
            raise DataError("more rows than coefficients for a dispersion", got, "add rows")
        return statistic / df / fitted
    number = isinstance(dispersion, int | float) and not isinstance(dispersion, bool)
    if not number or not 0 < float(dispersion) < float("inf"):
        do = "for example dispersion='pearson'"
        raise SettingError("'pearson' or a positive number as dispersion", repr(dispersion), do)
    unit = float(fit.scaler.y_sd) ** law.dimensions.get(name or "", 0)
    return float(dispersion) / unit / fitted


def _leverage(found: RowScores) -> Tensor:
    """Return the leverages [n].

    Raises:
        NotApplicable: If there are none.
        DataError: If one is 1.
    """
    if found.leverage is None:
        got, do = "several functions of x, or other parameters", "use covariance='HC0'"
        raise NotApplicable("one linear predictor alone for the leverages of HC3", got, do)
    h = found.leverage
    if float(h.max()) > 1 - 1e-9:
        got, do = f"1 in row {int(h.argmax())}", "use 'HC0', or leave out its column"
        raise DataError("leverages below 1 for HC3", got, do)
    return h


def _clusters(fit: Fitted, kind: Any) -> Tensor:
    """Return codes of the clusters, [n].

    Raises:
        UnknownName: If there is neither a covariance nor a column of that name.
        DataError: If there is not one label per row, or one is missing.
    """
    data = fit.data
    if isinstance(kind, str):
        columns = dict(data.groups or {})
        if kind in columns:
            return columns[kind]
        if kind != "ids" or data.ids is None:
            known = [*COVARIANCES, "draws", *columns, *(["ids"] if data.ids else [])]
            raise UnknownName("covariance, or column of clusters", kind, known)
        kind = data.ids
    codes = (coded_groups({"clusters": kind}, None)[0] or {})["clusters"]
    if codes.shape != (data.n,):
        do = "pass those of the training rows, without rows of weight 0"
        raise DataError(f"one cluster per row ({data.n})", f"shape {list(codes.shape)}", do)
    return codes.to(data.X.device)
