"""Stacking: the weights of the mixture of models that predicts best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, DataError, NotApplicable, an
from ..posterior.averaging import same_targets
from ..posterior.posterior import Posterior
from .leave_one_out import leave_one_out

ROUNDS = 200  # of SLSQP
SHORT = 1e-6  # nats per row


def _of_models(given: Any) -> Tensor:
    """Return log densities as a tensor [K, n].

    Raises:
        DataError: If they are something else.
    """
    if isinstance(given, Mapping):
        given = list(given.values())
    if isinstance(given, list | tuple) and any(isinstance(one, Posterior) for one in given):
        return torch.as_tensor(np.stack(_left_out_densities(given)))
    wanted = "posteriors, or log densities [K, n] of K models and n rows"
    do = "pass torch.stack([p.log_prob(y) for p in predictions]), of rows that no fit has seen"
    found = given
    if isinstance(given, list | tuple) and all(isinstance(one, Tensor) for one in given):
        if len({tuple(one.shape) for one in given}) != 1:
            raise DataError(wanted, "other shapes", do)
        found = torch.stack(list(given))
    elif isinstance(given, np.ndarray) and given.dtype.kind == "f":
        found = torch.as_tensor(given)
    if not isinstance(found, Tensor):
        raise DataError(wanted, an(type(given).__name__), do)
    if found.ndim != 2 or not found.numel():
        raise DataError(wanted, f"shape {list(found.shape)}", do)
    return found


def stacking_weights(
    log_densities: Tensor
    | np.ndarray
    | Sequence[Tensor]
    | Sequence[Posterior]
    | Mapping[str, Posterior],
) -> Tensor:
    """Compute the weights of the mixture of K models that predicts best.

    They maximise sum_i log sum_k w_k p_k(y_i given the other rows). Yao, Vehtari, Simpson & Gelman
    (2018), equation 4; by SciPy's SLSQP. The sum is concave, so that its gradient bounds the
    distance to the maximum: there is a ConvergenceWarning where it may exceed 1e-6 nats per row.

    Args:
        log_densities: [K, n], log p_k(y_i given the other rows): a tensor, an array, or one tensor
            per model. Or K posteriors, in a list or by name, of the same training rows, whose
            leave-one-out densities are then those of ``compare(loo=True)``: in closed form where
            the model has one, and otherwise by PSIS.

    Returns:
        The weights [K], which sum to 1, in the order given.

    Raises:
        DataError: Where a density is NaN or infinite, or a row is impossible under all models; for
            another shape, or what holds no numbers, such as predictions; for posteriors of
            different rows, or without leave-one-out densities.

    Examples:
        Of two models, the first gives two rows the density 0.6 and the third row 0.2, the second
        0.3 and 0.8. The weight w of the first maximises 2 log(0.3 + 0.3 w) + log(0.8 - 0.6 w),
        which it does at 5 / 9:

        >>> import torch
        >>> import ppgp
        >>> densities = torch.tensor([[0.6, 0.6, 0.2], [0.3, 0.3, 0.8]])
        >>> ppgp.stacking_weights(densities.log())
        tensor([0.5556, 0.4444])
    """
    log_densities = _of_models(log_densities)
    table = log_densities.detach().double().cpu().numpy()
    best = table.max(0)
    if np.isnan(table).any() or not np.isfinite(best).all():
        row = int(np.flatnonzero(np.isnan(table).any(0) | ~np.isfinite(best))[0])
        raise DataError(
            "log densities that are numbers, finite under one model at least",
            f"others in row {row}",
            "drop it",
        )
    densities = np.exp(table - best)
    K = len(densities)

    def mixture(w: np.ndarray) -> np.ndarray:
        return np.maximum(w @ densities, np.finfo(float).tiny)

    result = optimize.minimize(
        lambda w: -np.log(mixture(w)).mean(),
        np.full(K, 1 / K),
        jac=lambda w: -(densities / mixture(w)).mean(1),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * K,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(K)},
        options={"ftol": 1e-16, "maxiter": ROUNDS},
    )
    weights = np.clip(result.x, 0.0, None)
    weights /= weights.sum()
    short = float((densities / mixture(weights)).mean(1).max()) - 1
    if not short <= SHORT:
        sentence = (
            f"the stacking weights may lie {short:.2g} nats per row below the best: "
            f"{result.message}"
        )
        warn(sentence, ConvergenceWarning)
    return torch.as_tensor(weights).to(log_densities)


def _left_out_densities(posteriors: Sequence[Any]) -> list[np.ndarray]:
    """Return log p(y_i given the other rows), [n], of each posterior.

    Raises:
        DataError: If some are no posteriors, are fits to other rows, or have no leave-one-out
            densities.
    """
    others = [one for one in posteriors if not isinstance(one, Posterior)]
    if others:
        do = "pass posteriors alone, or log densities alone"
        raise DataError("posteriors of K models", f"{an(type(others[0]).__name__)} among them", do)
    do = "fit all models to the same rows, or pass log densities of new rows"
    wanted = "posteriors of the same training rows"
    if not same_targets(posteriors):
        raise DataError(wanted, "other targets", do)
    try:
        found = [leave_one_out(one).pointwise for one in posteriors]
    except NotApplicable as error:
        do = "pass torch.stack([p.log_prob(y) for p in predictions]), of rows that no fit has seen"
        raise DataError(f"{error.expected}, to leave rows out", error.got, do) from None
    if len({len(each) for each in found}) > 1:
        raise DataError(wanted, "other numbers of rows", do)
    return found
