"""P(Y <= k) of count distributions that lack a cdf in torch, by SciPy's special functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution

Form = Callable[[Any, Tensor], Tensor]


def closed_cdf(d: Distribution, x: Tensor) -> Tensor | None:
    """Return P(component <= x), broadcast over the batch of ``d``.

    It uses SciPy's incomplete gamma and beta functions.

    Returns:
        The probabilities, or None for a distribution without such a form.
    """
    form = next((FORMS[c.__name__] for c in type(d).__mro__ if c.__name__ in FORMS), None)
    if form is None:
        return None
    value = form(d, x.floor().clamp_min(0.0))
    value = torch.where(x < 0, torch.zeros_like(value), value)
    return torch.where(torch.isposinf(x), torch.ones_like(value), value)


def through_scipy(function: Callable[..., np.ndarray], *values: Tensor) -> Tensor:
    """Return a function of NumPy's arrays at tensors, broadcast, in the dtype of the last."""
    arrays = [v.detach().double().cpu().numpy() for v in torch.broadcast_tensors(*values)]
    with np.errstate(all="ignore"):
        return torch.as_tensor(function(*arrays)).to(values[-1])


def _poisson(d: Any, k: Tensor) -> Tensor:
    return through_scipy(special.pdtr, k, d.rate)


def _negative_binomial(d: Any, k: Tensor) -> Tensor:
    return through_scipy(special.betainc, d.total_count, k + 1, torch.sigmoid(-d.logits))


def _gamma_poisson(d: Any, k: Tensor) -> Tensor:
    return through_scipy(special.betainc, d.concentration, k + 1, d.rate / (1 + d.rate))


def _binomial(d: Any, k: Tensor) -> Tensor:
    left = d.total_count - k
    value = through_scipy(special.betainc, left.clamp_min(1.0), k + 1, torch.sigmoid(-d.logits))
    return torch.where(left > 0, value, torch.ones_like(value))


def _geometric(d: Any, k: Tensor) -> Tensor:
    return -torch.expm1((k + 1) * torch.nn.functional.logsigmoid(-d.logits))


FORMS: dict[str, Form] = {
    "Poisson": _poisson,
    "NegativeBinomial": _negative_binomial,
    "GammaPoisson": _gamma_poisson,
    "Binomial": _binomial,
    "Geometric": _geometric,
}
