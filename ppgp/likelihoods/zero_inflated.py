"""Counts with more zeros than their likelihood has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import logsigmoid, softplus

from .. import priors
from ..data.dataset import Dataset
from ..display.overrides import computed
from ..distributions.tails import log1mexp
from ..distributions.zero_inflated import ZeroInflatedCounts
from ..errors import SettingError
from ..numerics.shapes import broadcast_shapes
from ..priors import Prior, PriorLike, Site, Uniform, bare, finite_numbers, site
from .base import Likelihood, Theta, root
from .parametric import Parametric, Predicted
from .scored import LARGEST_STEP

GATE = "probability"
CORNER, NODES = 0.25, 128  # of the average over f where no event was seen


@dataclass(frozen=True)
class ZeroInflated(Parametric):
    """Counts that are 0 with a probability, and otherwise have the given likelihood.

    Lambert (1992), equation 1. f [n] is that of the counts. With ``probability=Predicted()`` the
    logit of the probability is the last of the functions of x [K, n]; it is sigmoid(logit(level) +
    f_k(x)). There is no CRPS.

    Args:
        likelihood: ``Poisson()`` or ``NegativeBinomial(...)``.
        probability: Prior on (0, 1) of the probability, a number that fixes it, or
            ``Predicted()``.

    Raises:
        SettingError: If the likelihood is not one of counts, or the probability may be outside
            (0, 1).
        UnknownArgument: If an argument has another name.

    Examples:
        Six of 10 counts are 0, more than Poisson's distribution has beside the others. The maximum
        of the likelihood gives 0 the probability 0.6:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X = [[float(i)] for i in range(10)]
        >>> data = ppgp.Dataset(X, [0] * 6 + [2, 3, 4, 7])
        >>> likelihood = likelihoods.ZeroInflated(likelihoods.Poisson())
        >>> model = models.GLM(likelihood, weight=0.0, bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> zero = posterior.predict([[0.0]]).log_prob([0]).exp()
        >>> zero.round(decimals=2).tolist()
        [0.6]
    """

    likelihood: Likelihood
    probability: PriorLike | Predicted = priors.Uniform(0.0, 1.0)
    scales = "X"
    counts = True
    numeric = True
    kinds = ("nll",)
    structure = ("likelihood",)

    def __post_init__(self) -> None:
        super().__post_init__()
        inner = self.likelihood
        if not isinstance(inner, Parametric) or not inner.counts or isinstance(inner, ZeroInflated):
            do = "use Poisson() or NegativeBinomial()"
            raise SettingError("a likelihood of counts in ZeroInflated", repr(inner), do)
        given = self.probability
        if not isinstance(given, Predicted):
            _check_probability(given)
        elif given.level is not None:
            _check_probability(given.level)

    @property
    def _counts(self) -> Any:
        return self.likelihood

    @cached_property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override] # a constant of others
        """The names of the parameters: those of the counts, then the probability."""
        return (*self._counts.parameters, GATE)

    def _integrates_f(self) -> bool:
        """Whether the average over f has a closed form, which depends on the counts."""
        return self._counts.integrates_f

    integrates_f = computed(_integrates_f)

    def _limits(self) -> tuple[float, ...]:
        """The longest natural step of each coordinate."""
        own = tuple(self._counts.limits)
        missing = len(self.parameters) - len(own)
        return own + (LARGEST_STEP,) * (missing + 1)

    limits = computed(_limits)

    def given(self, name: str) -> Any:
        return self.probability if name == GATE else getattr(self.likelihood, name)

    def replaced(self, changed: Mapping[str, Any]) -> Likelihood:
        inner = {name: value for name, value in changed.items() if name != GATE}
        own = {GATE: changed[GATE]} if GATE in changed else {}
        return replace(self, likelihood=self.likelihood.replaced(inner), **own)

    def sites(self) -> dict[str, Site]:
        found = self.likelihood.sites()
        if GATE not in self.predicted:
            found[GATE] = site(GATE, self.given(GATE), positive=True)
        return found

    def levels(self) -> dict[str, Site]:
        found = self.likelihood.levels()
        if GATE in self.predicted:
            found[GATE] = site(GATE, self._level(GATE), positive=True)
        return found

    def prepare(self, data: Dataset) -> ZeroInflated:
        """Return this likelihood.

        Raises:
            DataError: If a target is not a count.
        """
        return replace(self, likelihood=self.likelihood.prepare(data))

    def ratio(self) -> str | None:
        return self.likelihood.ratio()

    def scale_of(self, name: str) -> str:
        return "logit" if name == GATE else "log"

    # the hooks take the logit of the probability

    def _joined(self, name: str, g: Tensor, level: Tensor | None) -> Tensor:
        if name != GATE:
            return super()._joined(name, g, level)
        return g if level is None else g + torch.logit(level)

    def _neutral(self, name: str) -> float:
        return 0.5 if name == GATE else 1.0

    def _held(self, name: str, value: Tensor) -> Tensor:
        return torch.logit(value) if name == GATE else value

    def _built(self, p: Theta, f: Tensor, sd: Tensor | None) -> Distribution:
        shape = broadcast_shapes(f.shape, *(v.shape for v in p.values()))
        own = [p[name].expand(shape) for name in self._counts.parameters]
        given = torch.stack(own, -1) if own else f.new_zeros(*shape, 0)
        return ZeroInflatedCounts(f.expand(shape), p[GATE], given, sd, likelihood=self._counts)

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        return self._built(p, f, None)

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        return self._built(p, mean, root(variance))

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        # log P(0) falls to the log of the probability, and has a corner where it reaches it: where
        # minus the log probability of 0 counts is this number
        depth = softplus(-p[GATE])
        turn = depth.clamp_min(1.0).log()
        if "shape" in p:  # (1 + exp(f) / shape)^-shape
            ratio = depth / p["shape"]
            turn = p["shape"].log() + ratio + log1mexp(-ratio)
        none = torch.zeros_like(y)
        zero = self._turning(p, mean, variance, none, turn, width=CORNER, count=NODES)
        some = self._counts._expected(p, mean, variance, y) + logsigmoid(-p[GATE])
        return torch.where(y == 0, zero, some)

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        return -self._distribution(p, f).log_prob(y)

    def _zero(self, p: Theta, f: Tensor) -> tuple[Tensor, ...]:
        """Return what holds given y = 0.

        Returns:
            P(counts = 0); P(counts > 0); the probability given y = 0; 1 minus it; the probability
            given y = 0 minus the one before.
        """
        none = torch.zeros_like(f)
        log_none = -self._counts._score(p, f, none, "nll")
        gate, rest = logsigmoid(p[GATE]), logsigmoid(-p[GATE])
        log_zero = torch.logaddexp(gate, rest + log_none)
        some = -torch.expm1(log_none)
        excess = some * torch.exp(gate + rest - log_zero)
        posterior, share = torch.exp(gate - log_zero), torch.exp(rest + log_none - log_zero)
        return log_none.exp(), some, posterior, share, excess

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        _, _, _, share, excess = self._zero(p, f)
        zero = y == 0
        share = torch.where(zero, share, torch.ones_like(share))
        gate = torch.where(zero, -excess, torch.sigmoid(p[GATE]))
        return (*(share * s for s in self._counts._slopes(p, f, y, kind)), gate)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        _, _, posterior, share, excess = self._zero(p, f)
        zero, prior, rest = y == 0, torch.sigmoid(p[GATE]), torch.sigmoid(-p[GATE])
        gate = torch.where(zero, excess * (share - prior), -prior * rest)
        mixed = torch.where(zero, posterior * share, torch.zeros_like(share))
        share = torch.where(zero, share, torch.ones_like(share))
        first = self._counts._slopes(p, f, y, "nll")
        pairs = zip(self._counts._second_slopes(p, f, y), first, strict=True)
        return (*(share * h + mixed * g * g for h, g in pairs), gate)  # g * g may overflow

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        """Return the Fisher information: that of the counts, less what the zeros hide."""
        none, some, posterior, _, _ = self._zero(p, f)
        rest, last = torch.sigmoid(-p[GATE]), 1 + len(self._counts.parameters)
        hidden = rest * none * posterior
        at_zero = [-s for s in self._counts._slopes(p, f, torch.zeros_like(f), kind)]
        whole = self._counts._curvature(p, f, kind)
        entries = {(last, last): torch.sigmoid(p[GATE]) * posterior * rest * some}
        for i in range(last):
            entries[i, last] = hidden * at_zero[i]
            for j in range(i, last):
                own = rest * whole.get((i, j), torch.zeros_like(f))
                entries[i, j] = own - hidden * at_zero[i] * at_zero[j]
        return entries

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        own = list(self._counts._guess(y))
        mean = float(y[y > 0].mean()) if bool((y > 0).any()) else 1.0
        own[0] = math.log(max(mean, 1.0))
        none = float(torch.exp(-y.new_tensor(math.exp(own[0]))))
        zeros = float((y == 0).double().mean())
        excess = min(max((zeros - none) / (1 - none), 0.01), 0.99)
        return (*own, math.log(excess) - math.log1p(-excess))

    def _has_least(self, y: Tensor) -> bool:
        return bool(y.max() > 0)


def _check_probability(given: Any) -> None:
    """Refuse numbers and priors that allow values outside (0, 1)."""
    prior = bare(given)
    if isinstance(prior, Prior):
        ends: Any = (prior.low, prior.high) if isinstance(prior, Uniform) else None
        inside = ends is not None and 0 <= ends[0] < ends[1] <= 1
        do = "use Uniform(0, 1)"
    else:
        numbers = finite_numbers(given)
        inside = len(numbers) > 0 and all(0 < number < 1 for number in numbers)
        do = "give one between them, or a prior"
    if not inside:
        raise SettingError("a probability above 0 and below 1 in ZeroInflated", repr(given), do)
