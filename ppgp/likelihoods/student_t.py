"""The likelihood of Student-t noise, which tolerates outliers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution

from ..display.overrides import computed
from ..distributions.student_t import (
    StudentTOfAnyDf,
    digamma_part,
    excess_of_log1p,
    information,
    trigamma_part,
)
from ..distributions.student_t_plus_normal import StudentTPlusNormal, expected_log_density
from ..priors import Gamma, LogNormal, PriorLike
from .base import Theta, root
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP, log_or_zero, raised

START = 5.0  # degrees of freedom at which the search of a constant begins


@dataclass(frozen=True)
class StudentT(Parametric):
    """y = f + scale t, where t has Student's distribution with ``df`` degrees of freedom.

    Jylanki, Vanhatalo & Vehtari (2011). f [n], the median of y, is in the units of y. The functions
    are [K, n] where parameters are ``Predicted()``. The CRPS needs df > 1, and a df that is not
    ``Predicted()``.

    Args:
        df: Prior of the degrees of freedom, a number that fixes them, or ``Predicted()``. They have
            no unit.
        scale: Prior of the scale (for large df, the sd of the noise), a number that fixes it, or
            ``Predicted()``. A number is in the units of y. A prior is on the standardised scale
            unless ``InUnitsOfData`` holds it.

    Raises:
        SettingError: If the scale is negative, or an argument is a class in place of an instance.
            ``fit`` raises it for a scale or df of 0 or less, and for a prior that allows one.
        UnknownArgument: If an argument has another name.

    Examples:
        An outlier hardly moves the centre of the others, 2.5:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [1.0, 2.0, 3.0, 4.0, 1000.0]
        >>> likelihood = likelihoods.StudentT(df=4.0, scale=1.0)
        >>> model = models.GLM(likelihood, weight=0.0, bias=priors.Flat())
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), inference.MAP(), progress=False)
        >>> round(float(posterior.draws_in("data")["bias"]), 1)
        2.5
    """

    df: PriorLike | Predicted = Gamma(2.0, 0.1)
    scale: PriorLike | Predicted = LogNormal(-1.0, 1.0)
    dimensions = {"df": 0, "scale": 1}
    integrates_f = True
    limits = (math.inf, LARGEST_STEP, LARGEST_STEP)
    spikes_on_ties = True

    def _kinds(self) -> tuple[str, ...]:
        """The scores: the CRPS has no closed slope by df, and is infinite up to df = 1."""
        without_mean = isinstance(self.df, float | int) and self.df <= 1
        return ("nll",) if "df" in self.predicted or without_mean else ("nll", "crps")

    kinds = computed(_kinds)

    def most_probable(self, y: Tensor) -> Tensor:
        return y

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        # a search may come to a scale that underflows, where the log density is not finite
        return StudentTOfAnyDf(p["df"], f, p["scale"], validate_args=False)

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return StudentTPlusNormal(p["df"], mean, p["scale"], root(variance), validate_args=False)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        # by quadrature that is accurate for noise much narrower than f
        return expected_log_density(p["df"], p["scale"], mean, variance, y)

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        if kind == "nll":
            return -self._distribution(p, f).log_prob(y)
        df, s = p["df"], p["scale"]
        z = (y - f) / s
        spread = 2 * _pdf(z, df) * (df + z.square()) / (df - 1)
        return s * (z * (2 * _cdf(z, df) - 1) + spread - _self_distance(df))

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        df, s = p["df"], p["scale"]
        z = (y - f) / s
        if kind == "nll":
            w = (df + 1) / (df + z.square())
            t = z.square() / df
            by_df = 0.5 * (digamma_part(df) + excess_of_log1p(t) - t / (1 + t) / df)
            return -w * z / s, df * by_df, 1 - w * z.square()
        spread = 2 * _pdf(z, df) * (df + z.square()) / (df - 1)
        by_scale = s * (spread - _self_distance(df))
        return 1 - 2 * _cdf(z, df), torch.full_like(by_scale, math.nan), by_scale

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        df, s = p["df"], p["scale"]
        square = ((y - f) / s).square()
        w = (df + 1) / (df + square)
        by_f = w * (square - df) / ((df + square) * s.square())
        by_scale = -2 * w * square * df / (df + square)
        total = df + square
        tail = square * (df * (square - 2) - square) / (2 * total.square())
        by_df = trigamma_part(df) + tail
        return by_f, by_df - self._slopes(p, f, y, "nll")[1], by_scale

    def step_curvature(self, theta: Theta, f: Tensor, y: Tensor) -> Tensor:
        """Return the precision of each row as a mixture of normals, given its residual, [*draw, n].

        The parabola of this curvature that touches the log density is nowhere above it, so that a
        step ascends, and outlying rows do not hold it back. Lange, Little & Taylor (1989), the EM
        algorithm.
        """
        return self.precision_as_normal(theta, f, y)

    def precision_as_normal(self, theta: Theta, f: Tensor, y: Tensor, width: float = 1.0) -> Tensor:
        p, location = self._at(theta, f)
        df, scale = p["df"], width * p["scale"]
        return (df + 1) / (df * scale.square() + (y - location).square())

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        df, s = p["df"], p["scale"]
        if kind == "nll":  # Lange, Little & Taylor (1989), appendix B
            return {
                (0, 0): (df + 1) / ((df + 3) * s.square()),
                (1, 1): information(df),
                (1, 2): -2 * df / ((df + 1) * (df + 3)),
                (2, 2): 2 * df / (df + 3) + torch.zeros_like(s),
            }
        unit = 2 * torch.exp(-2 * _log_beta(0.5, 0.5 * df))
        by_scale = s * df.sqrt() * torch.exp(_log_beta(1.5, df - 0.5))
        return {
            (0, 0): unit * torch.exp(_log_beta(0.5, df + 0.5)) / (s * df.sqrt()),
            (2, 2): unit * by_scale,
        }

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        middle = y.median()
        scale = 1.5 * float((y - middle).abs().median())
        if not scale > 0:  # more than half of the values are equal
            scale = float(y.std(correction=0))
        return float(middle), math.log(START), log_or_zero(scale)

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f with the log of the scale raised by ``log_temperature``."""
        if "scale" not in self.predicted:
            return f
        return raised(f, 1 + self.predicted.index("scale"), log_temperature)


def _log_beta(a: float, b: Tensor) -> Tensor:
    """Return log B(a, b)."""
    first = torch.as_tensor(a).to(b)
    return torch.lgamma(first) + torch.lgamma(b) - torch.lgamma(first + b)


def _pdf(z: Tensor, df: Tensor) -> Tensor:
    log_density = -_log_beta(0.5, 0.5 * df) - 0.5 * df.log()
    return torch.exp(log_density - 0.5 * (df + 1) * torch.log1p(z.square() / df))


def _cdf(z: Tensor, df: Tensor) -> Tensor:
    df = df.expand(z.shape)
    return torch.as_tensor(special.stdtr(df.cpu().numpy(), z.cpu().numpy())).to(z)


def _self_distance(df: Tensor) -> Tensor:
    """Return half of E abs(t - t') of two independent variables."""
    log_ratio = _log_beta(0.5, df - 0.5) - 2 * _log_beta(0.5, 0.5 * df)
    return 2 * df.sqrt() / (df - 1) * log_ratio.exp()
