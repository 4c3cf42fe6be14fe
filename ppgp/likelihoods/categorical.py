"""The categorical likelihood of any number of classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.quasirandom import SobolEngine

from ..data.dataset import Dataset
from .base import Likelihood, Theta, root
from .scored import LEAST_SHARE, NO_THETA, Scored, widened
from .target_checks import check_codes, check_number_of_classes, count_classes, known_classes

POINTS = 64  # pairs of opposite quasi-random points in ``expected``
FINE_POINTS = 512  # and in ``marginal``


@dataclass(frozen=True)
class Categorical(Likelihood, Scored):
    """y ~ Categorical(softmax(f)), with one latent function per class.

    Rasmussen & Williams (2006), section 3.5. f is [K, n], in logs of probabilities up to a
    constant. Averages over f in R^K are taken at fixed quasi-random points, so that the evidence
    lower bound is deterministic. With 3 classes the error of the expected log likelihood is .005,
    .01 and .03 nats where the sds of f are 1, 2 and 20; that of predictive probabilities is .001,
    .001 and .003.

    Args:
        classes: K; None: the number of classes in the data.

    Raises:
        SettingError: If the number of classes is not 2, 3, ...
        UnknownArgument: If an argument has another name.

    Examples:
        Without a slope the probabilities are the shares of the classes:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X = [[float(i)] for i in range(10)]
        >>> data = ppgp.Dataset(X, ["cat"] * 5 + ["dog"] * 3 + ["fox"] * 2)
        >>> wide = priors.Normal(0.0, 100.0)
        >>> model = models.GLM(likelihoods.Categorical(), weight=0.0, bias=wide)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> posterior.predict([[0.0]]).probabilities.round(decimals=2).tolist()
        [[0.5, 0.3, 0.2]]
    """

    classes: int | None = None
    scales = "X"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number_of_classes(self.classes)

    @property
    def latents(self) -> int:
        return known_classes(self.classes)

    def prepare(self, data: Dataset) -> Categorical:
        """Return this likelihood with the number of classes in the data.

        Raises:
            DataError: If the targets are not the codes 0 .. K - 1.
        """
        ready = self
        if self.classes is None:
            ready = replace(self, classes=count_classes(data))
        check_codes(data, ready.latents)
        return ready

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.Categorical(logits=f.movedim(-2, -1))

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        total = torch.zeros_like(mean.movedim(-2, -1))
        # one point at a time, as all at once need 1,024 times the memory
        for e in _points(self.latents, FINE_POINTS).to(mean):
            f = mean + root(variance) * e[:, None]
            total = total + torch.softmax(f.movedim(-2, -1), -1)
        return dist.Categorical(probs=total / total.sum(-1, keepdim=True))

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E f_y, in closed form, minus the mean of log sum exp(f) over the points."""
        points = _points(self.latents, POINTS).to(mean)
        f = mean + root(variance) * points.reshape(-1, *(1,) * (mean.ndim - 2), self.latents, 1)
        label = y.long().expand(*mean.shape[:-2], mean.shape[-1])[..., None, :]
        own = mean.gather(-2, label)[..., 0, :]
        return own - torch.logsumexp(f, -2).mean(0)

    def _coordinates(self) -> tuple[int, ...]:
        return tuple(range(self.latents))

    @property
    def learned(self) -> int:
        """K - 1: the last logit is 0, as a constant added to all logits changes nothing."""
        return self.latents - 1

    def _at(self, theta: Theta, f: Tensor) -> tuple[Theta, Tensor]:
        return {}, f

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        """Return -log p(y), or the Brier score sum_k (p_k - 1[y = k])^2, [*draw, n]."""
        own = _one_hot(y, f)
        if kind == "nll":
            return -(torch.log_softmax(f, -2) * own).sum(-2)
        return (torch.softmax(f, -2) - own).square().sum(-2)

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        share = torch.softmax(f, -2)
        wrong = share - _one_hot(y, f)
        if kind == "nll":
            return wrong.unbind(-2)
        weighted = share * wrong
        return (2 * (weighted - share * weighted.sum(-2, keepdim=True))).unbind(-2)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        share = torch.softmax(f, -2)
        rest = 1 - torch.eye(f.shape[-2], dtype=f.dtype, device=f.device)
        return (-share * (rest @ share)).unbind(-2)  # 1 - p as a sum loses no digits

    def metric(self, theta: Theta, f: Tensor, kind: str = "nll") -> Tensor:
        """Return the metric, [*draw, n, K, K]; it has rank K - 1.

        A constant added to all logits changes nothing.
        """
        self._check(f, kind)
        share = torch.softmax(f, -2).mT
        fisher = torch.diag_embed(share) - share[..., :, None] * share[..., None, :]
        return fisher if kind == "nll" else 2 * fisher @ fisher

    def natural(
        self,
        theta: Theta,
        f: Tensor,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
    ) -> Tensor:
        """Return the natural gradient with the last logit held, [*draw, K, n].

        It is 1[y = K - 1] / p_(K - 1) - 1[y = k] / p_k, the same for both scores. Probabilities
        below 1e-6 count as 1e-6.
        """
        self._check(f, kind, right_censored)
        each = _one_hot(y, f) / torch.softmax(f, -2).clamp_min(LEAST_SHARE)
        return each[..., -1:, :] - each

    def initial(
        self,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
        theta: Theta = NO_THETA,
    ) -> Tensor:
        """Return the logits of the shares of the classes, the last of them 0, [K].

        Half a row is added to each class, so that a class without rows has a finite logit.
        """
        counts = torch.bincount(y.long(), minlength=self.latents).to(y) + 0.5
        return (counts / counts[-1]).log()

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f divided by the temperature."""
        return widened(f, log_temperature)


@lru_cache(maxsize=16)
def _points(dimension: int, pairs: int) -> Tensor:
    """Return quasi-random points of N(0, I), [2 * pairs, dimension].

    Each point comes with its opposite, and each coordinate has variance 1.
    """
    uniform = SobolEngine(dimension, scramble=True, seed=0).draw(pairs, dtype=torch.float64)
    e = torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))
    e = e / e.square().mean(0).sqrt()
    return torch.cat([e, -e])


def _one_hot(y: Tensor, f: Tensor) -> Tensor:
    """Return 1[y = k], [*draw, K, n]."""
    codes = torch.arange(f.shape[-2], dtype=y.dtype, device=y.device)[:, None]
    return (codes == y).to(f).expand(f.shape)
