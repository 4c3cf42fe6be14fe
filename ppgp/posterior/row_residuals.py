"""Residuals of a fit, its deviance, and the check of its dispersion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ..capabilities import GeneralisedLinear, LeaveOneOut, supports
from ..distributions.standardised_moments import skewness_and_kurtosis
from ..distributions.univariate import is_classes
from ..errors import NotApplicable, NotKnown, UnknownName
from ..runtime.seeding import standard_uniform
from .boosted import is_boosted
from .fitted import Fitted, evaluated_at
from .maximum_likelihood import (
    at_the_mode,
    counts_of_rows,
    of_rows,
    pearson_residuals,
    pearson_statistic,
)
from .prediction import Prediction

KINDS = ("deviance", "pearson", "quantile")
CHANCE = 0.01  # below which a tail of Pearson's chi-squared is not put down to chance


def residuals(self: Fitted, kind: str = "deviance", seed: int = 0) -> Tensor:
    """Return a residual per training row, [n].

    - "deviance": the signed root of the row's part of the deviance. McCullagh & Nelder (1989),
      section 2.4.3. It has the unit of y for Gaussian noise, else none.
    - "pearson": (y - mean) / sqrt(V(mean)), where the variance of y is V(mean) times the
      dispersion; y - mean for Gaussian noise.
    - "quantile": the standard normal quantile of P(Y <= y), drawn between P(Y < y) and P(Y <= y)
      for counts and classes. Dunn & Smyth (1996). Under the true model and coefficients they are
      standard normal, for every likelihood. They average over the draws of the posterior, and use
      leave-one-out predictions where the model has them in closed form.

    A row of any weight has the residual of one such row, and rows of weight 0 are left out.

    Args:
        self: The posterior.
        kind: "deviance", "pearson" or "quantile".
        seed: The seed of quantile residuals of counts and classes.

    Raises:
        UnknownName: If there is no such kind.
        NotApplicable: For "deviance" and "pearson", if the model is no GLM without groups, the fit
            is not by MAP, or the likelihood has none; for "quantile", if the classes have no order.
    """
    if kind not in KINDS:
        raise UnknownName("kind of residuals", str(kind), KINDS)
    if not self.data.is_table:
        got, do = "a program", "take (y - prediction.mean) / prediction.std"
        raise NotApplicable("a model on a table for residuals", got, do)
    if kind == "quantile":
        return _quantile(self, seed)
    model, theta = at_the_mode(self, f"{kind} residuals")
    with torch.no_grad():
        if kind == "pearson":
            found = pearson_residuals(model, theta, self.data)
        else:
            found = _deviance(model, theta, self)
    return found * _unit(self, model)


def _unit(fit: Fitted, model: GeneralisedLinear) -> Tensor:
    """Return the unit of y if residuals have it, else 1."""
    law = model.likelihood
    if law.dispersion_parameter() is None or "y" not in law.scales:
        return torch.ones_like(fit.scaler.y_sd)
    return fit.scaler.y_sd


def _deviance(model: GeneralisedLinear, theta: dict[str, Tensor], fit: Fitted) -> Tensor:
    """Return deviance residuals on the scale of the model.

    Raises:
        NotApplicable: If the likelihood of the saturated model is not known.
    """
    data = fit.data
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


def deviance(self: Fitted) -> float:
    """Twice the log likelihood ratio of the saturated model, times the dispersion.

    The sum of squared deviance residuals. McCullagh & Nelder (1989), section 2.3. For Gaussian
    noise it is the residual sum of squares.

    Raises:
        NotApplicable: As ``residuals("deviance")``.
    """
    w = counts_of_rows(self)
    try:
        square = residuals(self, "deviance").square()
    except NotApplicable as error:  # a property lets ``hasattr`` return False
        raise NotKnown(error.expected, error.got, error.do) from None
    return float((w * square).sum())


def _quantile(fit: Fitted, seed: int) -> Tensor:
    data = fit.data
    if data.right_censored is not None and bool(data.right_censored.any()):
        got, do = "right-censored ones", "leave out the censored rows"
        raise NotApplicable("observed targets for residuals", got, do)
    with evaluated_at(fit, data.n):
        if supports(fit.model, LeaveOneOut) and not is_boosted(fit):
            found = fit.model.loo(fit.theta, data)
        else:
            found = fit.model.predict(fit.theta, data.X, data, **data.for_prediction)
    prediction = Prediction(found)
    if prediction.kind == "continuous":
        below, above = (one.double().cpu().numpy() for one in prediction.log_tails(data.y))
        z = np.where(below < above, special.ndtri_exp(below), -special.ndtri_exp(above))
        return torch.as_tensor(z).to(data.y)
    u = _between(prediction, fit, seed) if is_classes(found) else prediction.pit(data.y, seed)
    least = torch.finfo(torch.float64).eps / 4
    return torch.special.ndtri(u.double().clamp(least, 1 - 2 * least)).to(data.y)


def _between(prediction: Prediction, fit: Fitted, seed: int) -> Tensor:
    """Return numbers between the probability of lower classes and that of the same as well.

    Raises:
        NotApplicable: If the classes have no order.
    """
    p = prediction.probabilities
    ordered = p.shape[1] == 2 or hasattr(getattr(fit.model, "likelihood", None), "cutpoints")
    if not ordered:
        do = "use Brier scores or log losses of the prediction"
        raise NotApplicable("ordered classes for residuals", "classes without an order", do)
    upper = p.cumsum(1).gather(1, fit.data.y.long()[:, None])[:, 0]
    own = p.gather(1, fit.data.y.long()[:, None])[:, 0]
    generator = torch.Generator().manual_seed(seed)
    uniform = standard_uniform(generator, *own.shape).to(own)
    return upper - uniform * own


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


def dispersion_check(self: Fitted) -> DispersionCheck:
    """Return Pearson's chi-squared against its degrees of freedom, which shows overdispersion.

    Its ``str`` is a sentence about it. McCullagh & Nelder (1989), section 4.5.

    Args:
        self: The posterior.

    Raises:
        NotApplicable: If the model is no GLM without groups, the fit is not by MAP, y is one of
            several classes, the dispersion is a parameter of the likelihood, which is then
            fitted, or the likelihood is not one of counts, Gamma, Exponential or Gaussian.
    """
    model, theta = at_the_mode(self, "the check of its dispersion")
    law = model.likelihood
    name = law.dispersion_parameter()
    if name is not None and not law.sites()[name].fixed:
        do = "look at residuals('quantile')"
        raise NotApplicable("a likelihood whose dispersion is known", f"{law!r}", do)
    with torch.no_grad():
        found = of_rows(model, theta, self.data)
    binomial = isinstance(found, torch.distributions.Binomial)
    if is_classes(found) or (binomial and float(found.total_count.max()) == 1):
        do = "group equal rows, and fit Binomial()"
        if isinstance(found, torch.distributions.Categorical):
            do = "look at residuals('quantile') of ordered classes"
            raise NotApplicable("numbers or trials for a check of the dispersion", f"{law!r}", do)
        raise NotApplicable("more than one trial for a check of the dispersion", "one", do)
    moments = skewness_and_kurtosis(found)
    if moments is None:
        do = "look at residuals('quantile')"
        raise NotApplicable("counts, Gamma, Exponential or Gaussian noise", f"{law!r}", do)
    with torch.no_grad():
        statistic, df = pearson_statistic(model, theta, self)
        statistic /= float(law.dispersion(theta, self.data.X))
        variance = df * _variance_of_squares(self, model, theta, moments[1])
    share = 2 * df / variance
    p = float(special.chdtrc(share * df, share * statistic))
    return DispersionCheck(statistic, df, p, type(law).__name__)


def _variance_of_squares(
    fit: Fitted, model: Any, theta: dict[str, Tensor], kurtosis: Tensor
) -> float:
    """Return the variance of the sum of squared Pearson residuals, per row.

    It is that of the rows at the true coefficients, kurtosis + 2, less what their estimates take
    away: with c the derivatives of the sum of the logs of the variances by the coefficients and I
    their information, c' I^-1 c.
    """
    data, w = fit.data, counts_of_rows(fit)
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
