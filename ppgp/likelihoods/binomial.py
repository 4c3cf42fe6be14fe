"""The binomial likelihood of events among trials."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import logsigmoid

from ..data.dataset import Dataset
from ..distributions.logistic_normal import expected_softplus
from ..errors import SettingError
from ..numerics.shapes import broadcast_shapes
from ..priors import Site, finite_numbers
from .base import Theta, log_of_count
from .parametric import Parametric
from .scored import NO_THETA, log_or_zero
from .target_checks import check_counts_of_events, check_events_of_trials


@dataclass(frozen=True)
class Binomial(Parametric):
    """y ~ Binomial(trials, sigmoid(f)): y = 0, 1, ..., trials events among the trials of a row.

    McCullagh & Nelder (1989), section 4.3. sigmoid(f) [n] is the probability of an event, and f a
    log-odds. There is no CRPS.

    Args:
        trials: The number of trials, if it is the same in every row; None: the column ``trials``
            [n] of the Dataset, which ``for_rows`` takes.

    Raises:
        SettingError: If the number is not 1, 2, 3, ...
        UnknownArgument: If an argument has another name.

    Examples:
        Two of 10 trials had an event where x = 0, and six of 10 where x = 1:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X, events = [[0.0], [0.0], [1.0], [1.0]], [1, 1, 3, 3]
        >>> data = ppgp.Dataset(X, events, trials=[5, 5, 4, 6])
        >>> model = models.GLM(likelihoods.Binomial(), weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> expected = posterior.predict([[0.0], [1.0]], trials=[10, 1000]).mean  # of events
        >>> expected.round(decimals=2).tolist()
        [2.0, 600.0]
    """

    trials: float | None = None
    scales = "X"
    numeric = True
    kinds = ("nll",)
    takes_trials = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number: Any = self.trials
        if number is None:
            return
        if hasattr(number, "__len__"):
            got, do = f"a {type(number).__name__}", "pass Dataset(trials=) for one per row"
            raise SettingError("one number of trials in Binomial", got, do)
        whole = finite_numbers(number) and number == round(number)
        if not whole or number < 1:
            do = "give 1, 2, 3, ..., or leave it out beside Dataset(trials=)"
            raise SettingError("a number of trials in Binomial", repr(number), do)

    def sites(self) -> dict[str, Site]:
        return {}

    def for_rows(self, trials: Tensor | None = None) -> Binomial:
        """Return this likelihood for rows with these numbers of trials [n]; None: itself.

        Raises:
            SettingError: If it has a number of trials already.
        """
        if trials is None:
            return self
        if self.trials is not None:
            got, do = f"also trials={self.trials:g} in Binomial", "leave one of them out"
            raise SettingError("the trials of each row from the Dataset alone", got, do)
        bound = copy(self)
        vars(bound)["_of_rows"] = trials
        return bound

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        """Return the number of trials, [n] or [1].

        Raises:
            SettingError: If it is unknown.
        """
        trials = vars(self).get("_of_rows")
        if trials is not None:
            return trials.to(like)
        if self.trials is None:
            do = "pass Dataset(trials=), or Binomial(trials=) for one number"
            raise SettingError("the trials of the rows for Binomial", "none", do)
        return torch.full((1,), float(self.trials), dtype=like.dtype, device=like.device)

    def prepare(self, data: Dataset) -> Binomial:
        """Return this likelihood.

        Raises:
            DataError: If a target is not a count, or exceeds the trials of its row.
            SettingError: If there are no trials, or two numbers of them.
        """
        check_counts_of_events(data)
        rows = self.for_rows(data.trials)
        check_events_of_trials(data, rows.value({}, "trials", data.y))
        return self

    def ratio(self) -> str:
        return "odds ratio"

    def most_probable(self, y: Tensor) -> Tensor:
        return log_of_count(y) - log_of_count(self.value({}, "trials", y) - y)

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        trials = p["trials"].expand(broadcast_shapes(p["trials"].shape, f.shape))
        return dist.Binomial(trials, logits=f.expand(trials.shape), validate_args=False)

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        wide = variance.expand(mean.shape)
        none = (p["trials"] - y) * expected_softplus(mean, wide)
        return _log_ways(p["trials"], y) - y * expected_softplus(-mean, wide) - none

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f); the error is at most 2e-8 per trial, however uncertain f is."""
        return super().expected(theta, mean, variance, y)

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        trials = p["trials"]
        return -_log_ways(trials, y) - y * logsigmoid(f) - (trials - y) * logsigmoid(-f)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        return ((p["trials"] - y) * torch.sigmoid(f) - y * torch.sigmoid(-f),)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (-p["trials"] * torch.sigmoid(f) * torch.sigmoid(-f),)

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        return {(0, 0): p["trials"] * torch.sigmoid(f) * torch.sigmoid(-f)}

    def initial(
        self,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
        theta: Theta = NO_THETA,
    ) -> Tensor:
        """Return the logit of the share of events, [1]; half an event is added to 0 or to all."""
        self._check(y[None], kind, right_censored)
        trials = float(self.value(theta, "trials", y).expand(y.shape).sum())
        events = min(max(float(y.sum()), 0.5), trials - 0.5)
        return y.new_tensor([log_or_zero(events) - log_or_zero(trials - events)])


def _log_ways(trials: Tensor, y: Tensor) -> Tensor:
    """Return the log of the number of ways to choose y of the trials."""
    return torch.lgamma(trials + 1) - torch.lgamma(y + 1) - torch.lgamma(trials - y + 1)
