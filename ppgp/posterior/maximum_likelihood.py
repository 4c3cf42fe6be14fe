"""A generalised linear model at its mode: residuals, standard errors, and its dispersion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from scipy import special
from torch import Tensor

from ..capabilities import GeneralisedLinear, RowScores
from ..data.dataset import Dataset
from ..data.groups import coded_groups
from ..display.user_warnings import warn
from ..distributions.standardised_moments import skewness_and_kurtosis
from ..distributions.univariate import is_classes, sd
from ..errors import ConvergenceWarning, DataError, NotApplicable, SettingError, UnknownName
from ..numerics.sandwich import clustered, robust

__all__ = ["COVARIANCES", "DispersionCheck", "Mode"]

COVARIANCES = ("model", "HC0", "HC3")
LEFT = 1e-4  # of the log likelihood, which a search may have left before the maximum
CHANCE = 0.01  # below which a tail of Pearson's chi-squared is not put down to chance


@dataclass(frozen=True)
class DispersionCheck:
    """Pearson's chi-squared against its degrees of freedom.

    Attributes:
        statistic: The sum of squared Pearson residuals.
        df: The rows minus the coefficients.
        p: The probability of a greater statistic under the model, by a chi-squared variable with
            the mean and the variance of the statistic: McCullagh (1986). It holds approximately,
            for many rows.
        likelihood: The name of the likelihood.
    """

    statistic: float
    df: float
    p: float
    likelihood: str

    @property
    def ratio(self) -> float:
        """The dispersion: near 1 if the variance is that of the likelihood."""
        return self.statistic / self.df

    def __str__(self) -> str:
        found = (
            f"Pearson's chi-squared is {self.statistic:.4g} on {self.df:g} degrees of freedom "
            f"(ratio {self.ratio:.2f}): "
        )
        if self.p < CHANCE:
            return found + (
                f"y varies more than {self.likelihood} says, and standard errors by 'model' are "
                "too small; use another likelihood, such as NegativeBinomial() for counts, or "
                "coefficients('HC3')"
            )
        if self.p > 1 - CHANCE:
            return found + f"y varies less than {self.likelihood} says"
        return found + f"y varies as {self.likelihood} says"


@dataclass(frozen=True)
class Mode:
    """The mode of a generalised linear model; under flat priors that of maximum likelihood.

    Attributes:
        model: The model.
        theta: ``{site: [*event]}`` at the mode.
        data: The training rows, on the scale of the model.
        y_sd: What the targets were divided by, a number [].
    """

    model: GeneralisedLinear
    theta: dict[str, Tensor]
    data: Dataset
    y_sd: Tensor

    @property
    def counts(self) -> Tensor:
        """How many rows each row counts as, [n]; ``fit`` has left out those of weight 0."""
        weights = self.data.weights
        return torch.ones_like(self.data.y) if weights is None else weights

    @property
    def law(self) -> Any:
        """The distribution of y in the rows, batch [n], on the scale of the model."""
        law = self.model.likelihood.for_rows(self.data.trials)
        f = self.model.functions(self.theta, self.data.X, self.data.offset)
        return law.distribution(self.theta, f)

    def pearson_residuals(self) -> Tensor:
        """Return (y - mean) / sqrt(V(mean)), [n], on the scale of the model.

        Raises:
            NotApplicable: If y is one of several classes.
        """
        law, found = self.model.likelihood, self.law
        if isinstance(found, torch.distributions.Categorical):
            do = "use kind='quantile' for ordered classes"
            raise NotApplicable("numbers, or two classes, for Pearson residuals", repr(law), do)
        spread = sd(found)
        if not bool(torch.isfinite(spread).all() & torch.isfinite(found.mean).all()):
            do = "use kind='quantile'"
            raise NotApplicable("a finite variance of y for Pearson residuals", repr(law), do)
        dispersion = law.dispersion(self.theta, self.data.X)
        return (self.data.y - found.mean) / spread * dispersion.sqrt()

    def deviance_residuals(self) -> Tensor:
        """Return deviance residuals on the scale of the model.

        Raises:
            NotApplicable: If the likelihood of the saturated model is not known.
        """
        data, model, theta = self.data, self.model, self.theta
        law = model.likelihood.for_rows(data.trials)
        f = model.functions(theta, data.X, data.offset)
        best = law.most_probable(data.y)
        if best is None:
            do = "use kind='quantile'"
            raise NotApplicable("a likelihood with a deviance", repr(model.likelihood), do)
        first = f[0] if f.ndim == 2 else f
        saturated = torch.cat([best[None], f[1:]]) if f.ndim == 2 else best
        most, here = (law.distribution(theta, at).log_prob(data.y) for at in (saturated, f))
        sign = torch.sign(best - first) * (-1 if law.positive_f else 1)
        square = 2 * (most - here).clamp_min(0.0) * law.dispersion(theta, data.X)
        return sign * square.sqrt()

    @property
    def unit(self) -> Tensor:
        """The unit of y if residuals have it, else 1."""
        law = self.model.likelihood
        if law.dispersion_parameter() is None or "y" not in law.scales:
            return torch.ones_like(self.y_sd)
        return self.y_sd

    def pearson_statistic(self) -> tuple[float, float]:
        """Return Pearson's chi-squared on the scale of the model, and its degrees of freedom."""
        w = self.counts
        square = self.pearson_residuals().square()
        model: Any = self.model
        sites = model.sites(self.data.d)
        own = (sites[name] for name in ("weight", "bias") if name in sites)
        coefficients = sum(torch.Size(site.shape).numel() for site in own if not site.fixed)
        return float((w * square).sum()), float(w.sum()) - coefficients

    def dispersion_check(self) -> DispersionCheck:
        """Return Pearson's chi-squared against its degrees of freedom.

        Raises:
            NotApplicable: If y is one of several classes, the dispersion is a parameter of the
                likelihood, or its kurtosis is not known.
        """
        law = self.model.likelihood
        name = law.dispersion_parameter()
        if name is not None and not law.sites()[name].fixed:
            do = "look at residuals('quantile')"
            raise NotApplicable("a likelihood whose dispersion is known", f"{law!r}", do)
        with torch.no_grad():
            found = self.law
        binomial = isinstance(found, torch.distributions.Binomial)
        if is_classes(found) or (binomial and float(found.total_count.max()) == 1):
            do = "group equal rows, and fit Binomial()"
            if isinstance(found, torch.distributions.Categorical):
                do = "look at residuals('quantile') of ordered classes"
                raise NotApplicable(
                    "numbers or trials for a check of the dispersion", f"{law!r}", do
                )
            raise NotApplicable("more than one trial for a check of the dispersion", "one", do)
        moments = skewness_and_kurtosis(found)
        if moments is None:
            do = "look at residuals('quantile')"
            raise NotApplicable("counts, Gamma, Exponential or Gaussian noise", f"{law!r}", do)
        with torch.no_grad():
            statistic, df = self.pearson_statistic()
            statistic /= float(law.dispersion(self.theta, self.data.X))
            variance = df * self._variance_of_squares(moments[1])
        share = 2 * df / variance
        p = float(special.chdtrc(share * df, share * statistic))
        return DispersionCheck(statistic, df, p, type(law).__name__)

    def _variance_of_squares(self, kurtosis: Tensor) -> float:
        """Return the variance of the sum of squared Pearson residuals, per row.

        It is that of the rows at the true coefficients, kurtosis + 2, less what their estimates
        take away: with c the derivatives of the sum of the logs of the variances by the
        coefficients and I their information, c' I^-1 c.
        """
        model: Any = self.model
        data, w, theta = self.data, self.counts, self.theta
        total = w @ (kurtosis + 2)
        sites = model.sites(data.d)
        columns = {"weight": data.X, "bias": torch.ones_like(data.X[:, :1])}
        free = [x for name, x in columns.items() if name in sites and not sites[name].fixed]
        if free:
            law = model.likelihood.for_rows(data.trials)
            f = model.functions(theta, data.X, data.offset).detach().requires_grad_()
            with torch.enable_grad():
                log_variance = law.distribution(theta, f).variance.log().sum()
                (slope,) = torch.autograd.grad(log_variance, f, materialize_grads=True)
            f = f.detach() if f.ndim == 2 else f.detach()[None]
            root = law.metric(theta, f)[:, 0, 0].sqrt()
            slope = slope[0] if slope.ndim == 2 else slope
            A = torch.cat(free, 1) * (w.sqrt() * root)[:, None]
            target = w.sqrt() * slope / root
            taken = A @ torch.linalg.lstsq(A, target[:, None]).solution[:, 0]
            total = total - taken.square().sum()
        return float(total / w.sum())

    def covariance(
        self, kind: Any, dispersion: str | float | None = None
    ) -> tuple[RowScores, Tensor]:
        """Return the derivatives at the mode, and the covariance of the estimates [p, p].

        Args:
            kind: "model", "HC0", "HC3", the name of a column of clusters, or labels [n].
            dispersion: As of ``Posterior.coefficients``.

        Raises:
            As ``Posterior.coefficients``.
        """
        priors = self.model.informative_priors()
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
        found = self.model.row_scores(self.theta, self.data)
        if found.scores.shape[1] == 0:
            raise NotApplicable("coefficients with a prior", "fixed numbers", "give weight a prior")
        w = self.counts
        _check_maximum(found, w)
        if isinstance(kind, str) and kind == "model":
            scale = self._dispersion_ratio(dispersion)
            return found, scale * torch.linalg.inv(found.expected)
        bread = torch.linalg.inv(found.hessian())
        if isinstance(kind, str) and kind in COVARIANCES:
            leverage = _leverage(found) if kind == "HC3" else None
            return found, robust(bread, found.scores, w, leverage)
        codes = self._clusters(kind).unique(return_inverse=True)[1]
        if int(codes.max()) < 1:
            raise DataError("at least two clusters", "one", "use covariance='HC3'")
        return found, clustered(bread, found.scores, w, codes)

    def _dispersion_ratio(self, dispersion: str | float | None) -> float:
        """Return the dispersion over that of the fit."""
        law = self.model.likelihood
        name = law.dispersion_parameter()
        fitted = float(law.dispersion(self.theta, self.data.X))
        if dispersion is None:
            if name is None or law.sites()[name].fixed:
                return 1.0
            dispersion = "pearson"
        if dispersion == "pearson":
            statistic, df = self.pearson_statistic()
            if df <= 0:
                got = f"{df:g} degrees of freedom"
                raise DataError("more rows than coefficients for a dispersion", got, "add rows")
            return statistic / df / fitted
        number = isinstance(dispersion, int | float) and not isinstance(dispersion, bool)
        if not number or not 0 < float(dispersion) < float("inf"):
            do = "for example dispersion='pearson'"
            raise SettingError("'pearson' or a positive number as dispersion", repr(dispersion), do)
        unit = float(self.y_sd) ** law.dimensions.get(name or "", 0)
        return float(dispersion) / unit / fitted

    def _clusters(self, kind: Any) -> Tensor:
        """Return codes of the clusters, [n].

        Raises:
            UnknownName: If there is neither a covariance nor a column of that name.
            DataError: If there is not one label per row, or one is missing.
        """
        data = self.data
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
