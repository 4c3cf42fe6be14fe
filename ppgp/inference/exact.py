"""Exact inference, for models that know their posterior in closed form."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..capabilities import ClosedForm, require
from ..density.target import Target
from ..posterior.posterior import Posterior
from .base import Inference, from_draws
from .options import Count


@dataclass(frozen=True)
class Exact(Inference):
    """Independent draws from the exact posterior.

    Predictions integrate in closed form, not over the draws. The method serves a linear regression
    with Gaussian noise and Normal or Flat coefficients (Bishop 2006, section 3.3), and a tiny
    mixture by enumeration of all assignments. The draws are ``{site: [1, draw, *event]}``.

    Stats: ``log_evidence``, log p(y) in nats on the scale of the model (with a flat prior, the
    integral against density 1). ``Posterior.log_evidence`` is that in the units of the data.

    Args:
        draws: The number of draws.

    Raises:
        SettingError: If ``draws`` is not a positive whole number.
        NotApplicable: On use, if the model has no closed form under its priors, or a mixture more
            than 1,000,000 assignments of rows to components.
        DataError: On use, for flat coefficients that the inputs do not determine.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
        >>> model = models.LinearRegression(bias=0.0, noise=1.0)  # weight ~ N(0, 1)
        >>> posterior = ppgp.fit(model, data, inference.Exact(), progress=False, standardise=False)
        >>> prediction = posterior.predict([[1.0]])  # weight ~ N(5 / 6, 1 / 6) given y
        >>> prediction.mean.numpy().round(4), prediction.variance.numpy().round(4)
        (array([0.8333]), array([1.1667]))
        >>> posterior.draws["weight"].shape  # [chain, draw, d]
        torch.Size([1, 1000, 1])
        >>> # log p(y): y ~ N(0, I + x x'), with determinant 6 and y'C^-1 y = 5 - 25 / 6
        >>> round(posterior.log_evidence, 4)
        -4.0694
    """

    draws: Count = 1000

    def quick(self) -> Exact:
        return replace(self, draws=20)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        """Take the draws; ``init`` and ``progress`` have no effect.

        Raises:
            NotApplicable: If the model has no closed form under its priors.
        """
        started = time.perf_counter()
        model = require(target.model, ClosedForm)
        generator = torch.Generator().manual_seed(seed)
        draws, params, evidence = model.exact(target.data, self.draws, generator)
        chain = {name: value[None] for name, value in draws.items()}
        return from_draws(self, target, chain, started, {"log_evidence": evidence}, (), params)
