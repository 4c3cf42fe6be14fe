"""Acquisition functions: how much is gained by a measurement of y at x, given a posterior of f.

``posterior`` is that of a model with a latent function, such as GP, and X is in the units of the
data. The distribution of f is taken under each draw of the hyperparameters, and the value is
averaged over the draws (Snoek, Larochelle & Adams 2012, section 3.2). Values are differentiable in
X. A loop alternates ``suggest``, a measurement, and ``posterior.update``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..arguments import NamedArguments
from ..errors import DataError, NotApplicable, SettingError, an, own_class
from ..kernels.places import check_places
from ..numerics.cholesky import cholesky
from ..numerics.standard_normal import log_improvement
from ..numerics.threads import PREDICTIONS_PAY_FROM, limited
from ..target.capabilities import JointLatent, LatentFunction, require
from .fitted import Fitted
from .multi import MultiPosterior
from .posterior import Posterior
from .predicting import kept_by
from .suggestion import best_places

__all__ = ["EI", "UCB", "Acquisition", "LogEI", "qEI", "qUCB", "suggest"]

ROUNDING = 1e-10  # relative jitter of the covariance of a batch, whose rows may coincide
ROUNDINGS = 100  # the least jitter, in roundings of the variance of y


@dataclass(frozen=True)
class Acquisition(NamedArguments):
    """A value of places at which y might be measured next.

    Attributes:
        maximise: Whether f is to be maximised; False: minimised.
        batch: Whether it values several places together.
    """

    maximise: bool = True
    batch = False

    def __call__(self, posterior: Any, X: Any) -> Tensor:
        """Return the value of each place, [m], or of each batch of places.

        Args:
            posterior: The posterior.
            X: Places [m, d], in the units of the data. For qEI and qUCB: one batch [q, d], whose
                value is [], or batches [b, q, d], whose values are [b].

        Raises:
            NotApplicable: If the model has no latent function, or for a batch no joint one.
            DataError: If X has another number of columns than the data.
        """
        rows = _places(posterior, X)
        ready = self.prepared(posterior)
        with limited(_work(posterior, rows), PREDICTIONS_PAY_FROM):
            if self.batch and rows.ndim == 3:
                return torch.stack([ready.value(posterior, each) for each in rows])
            if rows.ndim != 2:
                do = "pass X [m, d], or X[None] for one place"
                raise DataError("places [m, d]", f"shape {list(rows.shape)}", do)
            return ready.value(posterior, rows)

    def prepared(self, posterior: Fitted) -> Acquisition:
        """Return the function with what it needs to know of the posterior."""
        return self

    def value(self, posterior: Fitted, rows: Tensor) -> Tensor:
        """Return the values at rows on the scale of the model."""
        raise NotImplementedError

    def _marginal(self, posterior: Fitted, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and sd [draw, m] of f, or of -f to minimise it, in the units of the data."""
        model = require(posterior.model, LatentFunction)
        found = model.latent(posterior.theta, rows, posterior.data, **kept_by(posterior))
        offset, scale = posterior.scaler.location_and_scale
        mean = offset + scale * found.mean
        return self._signed(mean), scale * found.stddev

    def _joint(self, posterior: Fitted, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, q] and a root [draw, q, q] of the covariance, as in _marginal."""
        model = require(posterior.model, JointLatent)
        mean, C = model.joint_latent(posterior.theta, rows, posterior.data, posterior.kept)
        # near measured rows without noise C is nearly 0, and its rounding that of the variance of y
        least = float(posterior.data.y.var()) if posterior.data.n > 1 else 0.0
        relative = max(ROUNDING, ROUNDINGS * torch.finfo(C.dtype).eps)
        jitter = relative * C.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(least)
        C = C + torch.diag_embed(jitter[:, None].expand(-1, len(rows)))
        root = cholesky(C, "covariance of f at a batch of places")
        offset, scale = posterior.scaler.location_and_scale
        return self._signed(offset + scale * mean), scale * root

    def _signed(self, f: Tensor) -> Tensor:
        return f if self.maximise else -f


@dataclass(frozen=True)
class _Improvement(Acquisition):
    """The gain over the best value so far.

    Args:
        best: The best value so far, in the units of the data; None: the best posterior mean of f at
            the training rows, which is the best target where there is no noise.
    """

    best: float | None = None

    def prepared(self, posterior: Fitted) -> Acquisition:
        if self.best is not None:
            return self
        with torch.no_grad():
            mean = self._marginal(posterior, posterior.data.X)[0].mean(0).max()
        return replace(self, best=float(self._signed(mean)))

    def _level(self) -> float:
        assert self.best is not None  # see prepared
        return self.best if self.maximise else -self.best


@dataclass(frozen=True)
class LogEI(_Improvement):
    """log E(f - best)+, whose gradient does not vanish where improvement is improbable.

    Ament et al. (2023), equation 9. Jones, Schonlau & Welch (1998), equation 15, for E(f - best)+.
    """

    def value(self, posterior: Fitted, rows: Tensor) -> Tensor:
        mean, sd = self._marginal(posterior, rows)
        each = sd.log() + log_improvement((mean - self._level()) / sd)
        return torch.logsumexp(each, 0) - math.log(len(each))


@dataclass(frozen=True)
class EI(_Improvement):
    """E(f - best)+, the expected improvement. Jones, Schonlau & Welch (1998), equation 15."""

    def value(self, posterior: Fitted, rows: Tensor) -> Tensor:
        return LogEI(self.maximise, self.best).value(posterior, rows).exp()


@dataclass(frozen=True)
class UCB(Acquisition):
    """mean + sqrt(beta) sd, the upper confidence bound of f. Srinivas et al. (2010), equation 6.

    To minimise f it is sqrt(beta) sd - mean.

    Args:
        beta: The weight of the variance.

    Raises:
        SettingError: If beta is negative.
    """

    beta: float = 4.0

    def __post_init__(self) -> None:
        _check_beta(self.beta)

    def value(self, posterior: Fitted, rows: Tensor) -> Tensor:
        mean, sd = self._marginal(posterior, rows)
        return (mean + math.sqrt(self.beta) * sd).mean(0)


@dataclass(frozen=True)
class _Batch(Acquisition):
    """An average over samples of f at all places of a batch.

    Args:
        samples: The number of quasi-random samples under each draw of the hyperparameters.
        seed: Their seed; the value is a smooth function of X, as they stay the same.
    """

    samples: int = 256
    seed: int = 0
    batch = True

    def _normal(self, mean: Tensor) -> Tensor:
        """Return quasi-random numbers of N(0, 1), [samples, q]. Owen (1998) for the scrambling."""
        sobol = torch.quasirandom.SobolEngine(mean.shape[-1], scramble=True, seed=self.seed)
        uniform = sobol.draw(self.samples, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)
        return (math.sqrt(2) * torch.erfinv(2 * uniform - 1)).to(mean)

    def _deviations(self, mean: Tensor, root: Tensor) -> Tensor:
        """Return samples of f - mean, [draw, samples, q]."""
        return self._normal(mean) @ root.mT


@dataclass(frozen=True)
class qEI(_Batch, _Improvement):
    """E(max_j f_j - best)+ of a batch of places. Ginsbourger, Le Riche & Carraro (2010), section 2.

    Args:
        best: See ``EI``.
        samples: The number of quasi-random samples under each draw of the hyperparameters.
        seed: Their seed.
    """

    def value(self, posterior: Fitted, rows: Tensor) -> Tensor:
        mean, root = self._joint(posterior, rows)
        f = mean[:, None] + self._deviations(mean, root)
        return (f.amax(-1) - self._level()).clamp_min(0.0).mean()


@dataclass(frozen=True)
class qUCB(_Batch):
    """E max_j (mean_j + sqrt(beta pi / 2) |f_j - mean_j|) of a batch, which is UCB for one place.

    Wilson, Moriconi, Hutter & Deisenroth (2017), table 1.

    Args:
        beta: The weight of the variance.
        samples: The number of quasi-random samples under each draw of the hyperparameters.
        seed: Their seed.

    Raises:
        SettingError: If beta is negative.
    """

    beta: float = 4.0

    def __post_init__(self) -> None:
        _check_beta(self.beta)

    def value(self, posterior: Fitted, rows: Tensor) -> Tensor:
        mean, root = self._joint(posterior, rows)
        width = math.sqrt(self.beta * math.pi / 2) * self._deviations(mean, root).abs()
        return (mean[:, None] + width).amax(-1).mean()


def _check_beta(beta: float) -> None:
    if not beta >= 0:
        raise SettingError("beta of at least 0", repr(beta), "use 4.0")


def _places(posterior: Fitted, X: Any) -> Tensor:
    """Return places [.., d] on the scale of the model, with the gradient of X if it has one."""
    _check_posterior(posterior)
    rows = _numbers(X, posterior.data.X, "places [m, d]", "pass numbers, one row for each place")
    if not bool(torch.isfinite(rows).all()):
        raise DataError("finite places", "NaN or infinity", "correct X")
    rows = posterior.scaler.inputs(rows)
    check_places(posterior.model.covariance, rows.detach())
    return rows


def _numbers(values: Any, like: Tensor, wanted: str, do: str) -> Tensor:
    """Return an array or a list as a tensor like another, with its own gradient if it has one."""
    try:
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        got = repr(values)[:60] if isinstance(values, str) else an(type(values).__name__)
        raise DataError(wanted, got, do) from None


def _check_posterior(posterior: Any) -> None:
    """Raise NotApplicable for what is no Posterior, DataError for that of a program."""
    if not isinstance(posterior, Posterior):
        do = "pass what ppgp.fit returns"
        if hasattr(posterior, "prepare"):  # a recipe
            do = "fit it first: ppgp.fit(model, ppgp.Dataset(X, y))"
        elif isinstance(posterior, MultiPosterior):
            do = f"pass that of one output, such as posterior[{posterior.names[0]!r}]"
        raise NotApplicable("a Posterior", an(type(posterior).__name__), do)
    if not posterior.data.is_table:
        do = "fit a model of ppgp.models, such as GP()"
        raise DataError("the posterior of a model on a table", "that of a program", do)


def _work(posterior: Fitted, rows: Tensor) -> float:
    """Return the multiplications of a prediction."""
    data = posterior.data
    return posterior.model.work(data.n, data.d) * max(1.0, rows.shape[0] / data.n)


def suggest(
    posterior: Any,
    bounds: Any,
    q: int = 1,
    acquisition: Acquisition | None = None,
    *,
    starts: int = 8,
    candidates: int = 256,
    seed: int = 0,
) -> Tensor:
    """Return the q places at which y is worth most to measure next, [q, d].

    The best of random candidates are starting points of L-BFGS-B. Candidates are quasi-random
    points within the bounds, and for a fourth of them points around the training row with the best
    mean of f.

    Args:
        posterior: The posterior; a model with a latent function.
        bounds: The lowest and the highest value of each column, [d, 2], in the units of the data.
        q: The number of places.
        acquisition: What is maximised; None: ``LogEI()``, or for q > 1 ``qEI()``.
        starts: The number of searches.
        candidates: The number of candidates.
        seed: The seed of the candidates.

    Raises:
        DataError: If the bounds are not finite, increasing pairs, one for each column.
        SettingError: If a number is not a whole one of 1 or more, or a function of one place is
            asked for several.
        NotApplicable: If the model has no latent function, or for a batch no joint one, or the
            acquisition is no instance, or the posterior is none.
    """
    _check_posterior(posterior)
    for name, number in (("q", q), ("starts", starts), ("candidates", candidates)):
        _check_number(name, number)
    if acquisition is None:
        acquisition = LogEI() if q == 1 else qEI()
    _check_acquisition(acquisition)
    if q > 1 and not acquisition.batch:
        got = f"{type(acquisition).__name__} for q={q}"
        raise SettingError("an acquisition function of batches", got, "use qEI() or qUCB()")
    low, high = _bounds(posterior, bounds)
    ready = acquisition.prepared(posterior)

    def value(X: Tensor) -> Tensor:
        """Return the values of batches of places X [b, q, d]."""
        return ready(posterior, X if ready.batch else X[:, 0])

    with torch.no_grad():
        rows = posterior.data.X
        mean = acquisition._marginal(posterior, rows)[0].mean(0)
        incumbent = posterior.scaler.inputs_back(rows[mean.argmax()])
    return best_places(value, low, high, incumbent, q, starts, candidates, seed)


def _check_number(name: str, number: Any) -> None:
    """Raise SettingError unless a number is a whole one of at least 1."""
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if whole and int(number) >= 1:
        return
    do = "use 1 or more"
    if isinstance(number, str | Acquisition | type):
        do = "write acquisition= before an acquisition function"
    raise SettingError(f"a positive whole number as {name}", repr(number)[:60], do)


def _check_acquisition(acquisition: Any) -> None:
    """Raise NotApplicable unless this is an instance of Acquisition."""
    if isinstance(acquisition, Acquisition):
        return
    got, do = an(type(acquisition).__name__), "pass one of ppgp.acquisition"
    if isinstance(acquisition, type):
        got = f"the class {acquisition.__name__}"
        if issubclass(acquisition, Acquisition):
            do = f"call it: {acquisition.__name__}()"
    elif isinstance(acquisition, str):
        got = repr(acquisition)
        name = own_class(Acquisition, acquisition)
        if name:
            do = f"write acquisition.{name}()"
    wanted = "an instance of an acquisition function such as acquisition.LogEI()"
    raise NotApplicable(wanted, got, do)


def _bounds(posterior: Fitted, bounds: Any) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper bounds [d]."""
    like = posterior.data.X
    wanted = f"bounds of shape [{like.shape[1]}, 2], one pair for each column"
    do = "pass [(low, high), ...]"
    found = _numbers(bounds, like, wanted, do)
    if found.shape != (like.shape[1], 2):
        if found.shape == (2, like.shape[1]):
            do += ", the transpose of [[low, ...], [high, ...]]"
        raise DataError(wanted, f"shape {list(found.shape)}", do)
    low, high = found.unbind(1)
    if not bool((torch.isfinite(found).all(1) & (low < high)).all()):
        raise DataError("finite bounds, the lower one first", f"{found.tolist()}", "correct them")
    return low, high
