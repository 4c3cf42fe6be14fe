"""The search for the places of the highest acquisition value, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ..errors import DataError, NotApplicable, SettingError, an, own_class
from ..posterior.posterior import Posterior
from ..runtime.seeding import standard_normal
from ..runtime.whole_numbers import check_seed
from .acquisition import Acquisition, LogEI, as_numbers, check_count, check_posterior
from .batch_acquisition import qEI

__all__ = ["suggest"]

NEARBY = 0.05  # sd of candidates around the best row, in widths of the bounds

Value = Callable[[Tensor], Tensor]


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
    mean of f. A loop of ``suggest``, a measurement and ``posterior.update`` is Bayesian
    optimisation: Jones, Schonlau & Welch (1998), section 4; Snoek, Larochelle & Adams (2012).

    Args:
        posterior: The posterior; a model with a latent function.
        bounds: The lowest and the highest value of each column, [d, 2], in the units of the data.
        q: The number of places.
        acquisition: What is maximised; None: ``LogEI()``, or for q > 1 ``qEI()``.
        starts: The number of searches.
        candidates: The number of candidates.
        seed: The seed of the candidates.

    Returns:
        The places [q, d], in the units of the data.

    Raises:
        DataError: If the bounds are not finite, increasing pairs, one for each column.
        SettingError: If a number is not a whole one of 1 or more, or a function of one place is
            asked for several.
        NotApplicable: If the model has no latent function, or for a batch no joint one, or the
            acquisition is no instance, or the posterior is none.

    Examples:
        With beta = 0 the upper confidence bound is the mean, which is largest in the middle of
        these three rows:

        >>> import ppgp
        >>> from ppgp import acquisition, inference, kernels, models
        >>> model = models.GP(kernels.RBF(1.0, 1.0), noise=1e-6, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> greedy = acquisition.UCB(beta=0.0)
        >>> place = acquisition.suggest(fit, [(0.0, 2.0)], acquisition=greedy)
        >>> place.round(decimals=2).tolist()
        [[1.0]]

        The next measurement conditions the posterior on a new row:

        >>> fit.update(place, [1.1]).data.n
        4
    """
    check_posterior(posterior)
    for name, number in (("q", q), ("starts", starts), ("candidates", candidates)):
        check_count(name, number)
    seed = check_seed(seed)
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
    return _best_places(value, low, high, incumbent, q, starts, candidates, seed)


def _best_places(
    value: Value,
    low: Tensor,
    high: Tensor,
    incumbent: Tensor,
    q: int,
    starts: int,
    candidates: int,
    seed: int,
) -> Tensor:
    """Return the places [q, d] of the highest value that is found.

    Args:
        value: Maps batches of places [b, q, d] to their values [b], with a gradient.
        low: The lower bounds [d].
        high: The upper bounds [d].
        incumbent: The best place so far [d].
        q: The number of places.
        starts: The number of searches.
        candidates: The number of random batches that these start from.
        seed: The seed of the batches.
    """
    width = high - low
    near = ((incumbent - low) / width).clamp(0.0, 1.0)
    drawn = _candidates(near, q, candidates, seed)
    with torch.no_grad():
        values = value(low + width * drawn)
    order = values.nan_to_num(nan=-torch.inf).argsort(descending=True)
    best, highest = drawn[order[0]], float(values[order[0]])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        unit = torch.from_numpy(flat).to(low).reshape(1, q, -1).requires_grad_()
        with torch.enable_grad():
            found = value(low + width * unit)[0]
        (gradient,) = torch.autograd.grad(found, unit)
        slope = gradient.nan_to_num().reshape(-1).double().cpu().numpy()
        return -float(found.detach()), -slope

    for start in drawn[order[:starts]]:
        flat = start.reshape(-1).double().cpu().numpy()
        search = minimize(loss, flat, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * flat.size)
        if -float(search.fun) > highest:
            highest = -float(search.fun)
            best = torch.from_numpy(search.x).to(low).reshape(q, -1)
    return low + width * best


def _candidates(near: Tensor, q: int, count: int, seed: int) -> Tensor:
    """Return batches of points of the unit cube [count, q, d], a fourth of them around ``near``."""
    sobol = torch.quasirandom.SobolEngine(q * len(near), scramble=True, seed=seed)
    drawn = sobol.draw(count, dtype=torch.float64).to(near).reshape(count, q, -1)
    around = count // 4
    generator = torch.Generator().manual_seed(seed)
    steps = standard_normal(generator, around, q, len(near)).to(near)
    drawn[:around] = (near + NEARBY * steps).clamp(0.0, 1.0)
    return drawn


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


def _bounds(posterior: Posterior, bounds: Any) -> tuple[Tensor, Tensor]:
    """Return the lower and the upper bounds [d]."""
    like = posterior.data.X
    wanted = f"bounds of shape [{like.shape[1]}, 2], one pair for each column"
    do = "pass [(low, high), ...]"
    found = as_numbers(bounds, like, wanted, do)
    if found.shape != (like.shape[1], 2):
        if found.shape == (2, like.shape[1]):
            do += ", the transpose of [[low, ...], [high, ...]]"
        raise DataError(wanted, f"shape {list(found.shape)}", do)
    low, high = found.unbind(1)
    if not bool((torch.isfinite(found).all(1) & (low < high)).all()):
        raise DataError("finite bounds, the lower one first", f"{found.tolist()}", "correct them")
    return low, high
