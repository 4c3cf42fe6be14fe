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

import numpy as np
import torch
from torch import Tensor

from ..arguments import named_arguments
from ..capabilities import JointLatent, LatentFunction, require
from ..data.entries.arrays import laid_out
from ..distributions.standard_normal import log_improvement
from ..errors import DataError, NotApplicable, SettingError, an
from ..kernels import Kernel
from ..numerics.cholesky import cholesky
from ..posterior.multi import MultiPosterior
from ..posterior.posterior import Posterior, kept_by
from ..priors import finite_numbers, with_plain_fields
from ..runtime.threads import PREDICTIONS_PAY_FROM, limited

__all__ = ["EI", "UCB", "Acquisition", "LogEI"]

ROUNDING = 1e-10  # relative jitter of the covariance of a batch, whose rows may coincide
ROUNDINGS = 100  # the least jitter, in roundings of the variance of y


@named_arguments
@dataclass(frozen=True)
class Acquisition:
    """A value of places at which y might be measured next.

    ``acquisition(posterior, X)`` gives the values [m] of places X [m, d], and ``suggest`` finds the
    places of the highest value. X is in the units of the data; the unit of the value is that of y,
    apart from LogEI, which is the logarithm of such a number. The distribution of f is taken under
    each draw of the hyperparameters, and the value is averaged over the draws (Snoek, Larochelle &
    Adams 2012, section 3.2); that of LogEI is the logarithm of the average. Values are
    differentiable in X.

    Attributes:
        maximise: Whether f is to be maximised; False: minimised.
        batch: Whether it values several places together.

    Raises:
        SettingError: If maximise is not True or False.
        UnknownArgument: If an argument of an acquisition function has another name.

    Examples:
        Values have a slope in X. To the left of the data the upper confidence bound falls towards
        them, as f is better known there:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> X = torch.tensor([[-3.0], [-2.5]], requires_grad=True)
        >>> value = acquisition.UCB()(fit, X).sum()
        >>> [slope] = torch.autograd.grad(value, X)
        >>> slope.shape, bool((slope < 0).all())
        (torch.Size([2, 1]), True)
        >>> [a.batch for a in (acquisition.EI(), acquisition.qEI())]
        [False, True]
    """

    maximise: bool = True
    batch = False

    def __post_init__(self) -> None:
        with_plain_fields(self)
        given: object = self.maximise
        if isinstance(given, bool):
            return
        do = "write maximise=True or maximise=False"
        for name in ("beta", "best"):
            if isinstance(given, int | float) and hasattr(self, name):
                do = f"if it is {name}, write {type(self).__name__}({name}={given!r})"
        wanted = f"True or False as maximise, the first argument of {type(self).__name__}"
        raise SettingError(wanted, repr(given)[:60], do)

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

    def prepared(self, posterior: Posterior) -> Acquisition:
        """Return the function with what it needs to know of the posterior."""
        return self

    def value(self, posterior: Posterior, rows: Tensor) -> Tensor:
        """Return the values at rows on the scale of the model."""
        raise NotImplementedError

    def _marginal(self, posterior: Posterior, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and sd [draw, m] of f, or of -f to minimise it, in the units of the data."""
        model = require(posterior.model, LatentFunction)
        found = model.latent(posterior.theta, rows, posterior.data, **kept_by(posterior))
        offset, scale = posterior.scaler.location_and_scale
        mean = offset + scale * found.mean
        return self._signed(mean), scale * found.stddev

    def _joint(self, posterior: Posterior, rows: Tensor) -> tuple[Tensor, Tensor]:
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
class Improvement(Acquisition):
    """The gain over the best value so far.

    Args:
        best: The best value so far, in the units of the data; None: the best posterior mean of f at
            the training rows, which is the best target where there is no noise.
    """

    best: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best is not None and len(finite_numbers((self.best,))) != 1:
            do = "use the best y so far, or None"
            raise SettingError("a finite number, or None, as best", repr(self.best)[:60], do)

    def prepared(self, posterior: Posterior) -> Acquisition:
        if self.best is not None:
            return self
        with torch.no_grad():
            mean = self._marginal(posterior, posterior.data.X)[0].mean(0).max()
        return replace(self, best=float(self._signed(mean)))

    def _level(self) -> float:
        assert self.best is not None  # see prepared
        return self.best if self.maximise else -self.best


@dataclass(frozen=True)
class LogEI(Improvement):
    """log E(f - best)+, whose gradient does not vanish where improvement is improbable.

    Ament et al. (2023), equation 9. Jones, Schonlau & Welch (1998), equation 15, for E(f - best)+.

    Args:
        maximise: Whether f is to be maximised; False: minimised.
        best: The best value so far, in the units of y; None: the best posterior mean of f at the
            training rows, which is the best target where there is no noise.

    Returns:
        The values [m] of places X [m, d]: logarithms of numbers in the units of y.

    Raises:
        SettingError: If maximise is not True or False, or best not a finite number or None.
        NotApplicable: On use, if the model has no latent function.
        DataError: On use, if X is not a table of finite numbers with the columns of the data.

    Examples:
        Far from the data f is N(0, 1). A best value of 40 is so improbable there that the expected
        improvement underflows, and its logarithm does not:

        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> acquisition.EI(best=40.0)(fit, [[50.0]]).tolist()
        [0.0]
        >>> [round(value, 1) for value in acquisition.LogEI(best=40.0)(fit, [[50.0]]).tolist()]
        [-808.3]
    """

    def value(self, posterior: Posterior, rows: Tensor) -> Tensor:
        mean, sd = self._marginal(posterior, rows)
        each = sd.log() + log_improvement((mean - self._level()) / sd)
        return torch.logsumexp(each, 0) - math.log(len(each))


@dataclass(frozen=True)
class EI(Improvement):
    """E(f - best)+, the expected improvement. Jones, Schonlau & Welch (1998), equation 15.

    Args:
        maximise: Whether f is to be maximised; False: minimised.
        best: The best value so far, in the units of y; None: the best posterior mean of f at the
            training rows, which is the best target where there is no noise.

    Returns:
        The values [m] of places X [m, d], in the units of y.

    Raises:
        SettingError: If maximise is not True or False, or best not a finite number or None.
        NotApplicable: On use, if the model has no latent function.
        DataError: On use, if X is not a table of finite numbers with the columns of the data.

    Examples:
        Far from the data f is N(0, 1), whose positive part has the mean 1 / sqrt(2 pi). The best
        place so far is worth nothing, and one beside it is worth more:

        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> [round(value, 4) for value in acquisition.EI(best=0.0)(fit, [[50.0]]).tolist()]
        [0.3989]
        >>> [round(value, 2) for value in acquisition.EI()(fit, [[1.0], [1.3]]).tolist()]
        [0.0, 0.05]
    """

    def value(self, posterior: Posterior, rows: Tensor) -> Tensor:
        return LogEI(self.maximise, self.best).value(posterior, rows).exp()


@dataclass(frozen=True)
class UCB(Acquisition):
    """mean + sqrt(beta) sd, the upper confidence bound of f. Srinivas et al. (2010), equation 6.

    To minimise f it is sqrt(beta) sd - mean.

    Args:
        maximise: Whether f is to be maximised; False: minimised.
        beta: The weight of the variance, without a unit; the default is two sds.

    Returns:
        The values [m] of places X [m, d], in the units of y.

    Raises:
        SettingError: If maximise is not True or False, or beta not a finite number of at least 0.
        NotApplicable: On use, if the model has no latent function.
        DataError: On use, if X is not a table of finite numbers with the columns of the data.

    Examples:
        At a measured place it is y, here 1 and 0.5, and far from the data 0 + 2 * 1:

        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> places = [[1.0], [2.0], [50.0]]
        >>> [round(value, 1) for value in acquisition.UCB(beta=4.0)(fit, places).tolist()]
        [1.0, 0.5, 2.0]
    """

    beta: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_beta(self.beta)

    def value(self, posterior: Posterior, rows: Tensor) -> Tensor:
        mean, sd = self._marginal(posterior, rows)
        return (mean + math.sqrt(self.beta) * sd).mean(0)


def check_beta(beta: float) -> None:
    """Raise SettingError unless beta is a finite number of at least 0."""
    if not finite_numbers((beta,)) or beta < 0:
        raise SettingError("a finite beta of at least 0", repr(beta), "use 4.0")


def check_count(name: str, number: Any) -> None:
    """Raise SettingError unless a number is a whole one of at least 1."""
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if whole and int(number) >= 1:
        return
    do = "use 1 or more"
    if name == "q" and isinstance(number, str | Acquisition | type):
        do = "write acquisition= before an acquisition function"
    raise SettingError(f"a positive whole number as {name}", repr(number)[:60], do)


def _places(posterior: Posterior, X: Any) -> Tensor:
    """Return places [.., d] on the scale of the model, with the gradient of X if it has one."""
    check_posterior(posterior)
    wanted = "places [m, d]"
    rows = as_numbers(X, posterior.data.X, wanted, "pass numbers, one row for each place")
    if rows.ndim == 0:
        raise DataError(wanted, "one number", "pass [[number]] for one place of one column")
    if not bool(torch.isfinite(rows).all()):
        raise DataError("finite places", "NaN or infinity", "correct X")
    rows = posterior.scaler.inputs(rows)
    kernel = posterior.model.covariance
    if isinstance(kernel, Kernel):
        kernel.check_places(rows.detach())
    return rows


def as_numbers(values: Any, like: Tensor, wanted: str, do: str) -> Tensor:
    """Return an array or a list as a tensor like another, with its own gradient if it has one."""
    if isinstance(values, np.ndarray):  # torch takes no reversed arrays and no other byte order
        values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    try:
        return laid_out(torch.as_tensor(values, dtype=like.dtype, device=like.device))
    except (TypeError, ValueError, RuntimeError):
        got = repr(values)[:60] if isinstance(values, str) else an(type(values).__name__)
        raise DataError(wanted, got, do) from None


def check_posterior(posterior: Any) -> None:
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


def _work(posterior: Posterior, rows: Tensor) -> float:
    """Return the multiplications of a prediction."""
    data = posterior.data
    return posterior.model.work(data.n, data.d) * max(1.0, rows.shape[0] / data.n)
