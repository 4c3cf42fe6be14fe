"""The likelihood of ordered classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..distributions.logistic_normal import expected_softplus, log_odds
from ..distributions.ordered_links import LINKS, Link
from ..distributions.tails import log1mexp
from ..errors import SettingError, UnknownName
from ..priors import (
    Dirichlet,
    Flat,
    FlatDistribution,
    Prior,
    PriorLike,
    Site,
    finite_numbers,
    site,
    value_of,
)
from .base import Likelihood, Theta, root, turning_average
from .scored import Scored
from .target_checks import (
    check_codes,
    check_every_class,
    check_number_of_classes,
    count_classes,
    known_classes,
    warn_of_alphabet,
)

NODES, REACH = 192, 9.5  # of the average over f in ``marginal`` with the link "cloglog", in sds


@dataclass(frozen=True)
class Ordinal(Likelihood, Scored):
    """Ordered classes, P(y <= k) = F(c_k - f), y = 0, 1, ..., K - 1.

    McCullagh (1980). f [n] has no intercept beside the cutpoints c_0 < ... < c_(K - 2): a constant
    added to both changes nothing. Both are log-odds for "logit", and without a unit for every link.
    The CRPS is the ranked probability score, the sum over k of (P(y <= k) - 1[y <= k])^2: Epstein
    (1969).

    Labels that are texts have the order of the alphabet, with a warning; pandas' ordered categories
    have theirs.

    Args:
        link: "logit" (F is the sigmoid), "probit" (F is the normal cdf) or "cloglog"
            (F(z) = 1 - exp(-exp(z)), proportional hazards).
        cutpoints: ``Dirichlet(concentration)``, the prior of the shares of the classes at f = 0,
            which induces that of the cutpoints [K - 1] (Betancourt 2019); ``Flat()``; or K - 1
            increasing numbers, which boosting needs.
        classes: K; None: the number of classes in the data.

    Raises:
        UnknownName: If there is no such link.
        SettingError: If the cutpoints are something else, or not increasing, or for fewer than two
            classes.

    Examples:
        Without a slope the cutpoints give the shares of the classes:

        >>> import pandas as pd
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> X = [[float(i)] for i in range(10)]
        >>> grades = ["low"] * 2 + ["middle"] * 3 + ["high"] * 5
        >>> y = pd.Categorical(grades, ["low", "middle", "high"], ordered=True)
        >>> model = models.GLM(likelihoods.Ordinal(cutpoints=priors.Flat()), weight=0.0)
        >>> how = inference.MAP("newton")
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), how, progress=False)
        >>> posterior.predict([[0.0]]).probabilities.round(decimals=3).tolist()
        [[0.2, 0.3, 0.5]]
    """

    link: str = "logit"
    cutpoints: PriorLike = Dirichlet(1.0)
    classes: int | None = None
    scales = "X"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in LINKS:
            raise UnknownName("link", self.link, tuple(LINKS))
        check_number_of_classes(self.classes)
        if isinstance(self.cutpoints, Dirichlet | Flat):
            return
        numbers = finite_numbers(self.cutpoints)
        if not numbers:
            do = "use Dirichlet(1.0), Flat() or a tuple of increasing numbers"
            raise SettingError("a prior of cutpoints, or numbers,", repr(self.cutpoints), do)
        object.__setattr__(self, "cutpoints", numbers)
        self._check_numbers(numbers)

    def _check_numbers(self, cutpoints: tuple[float, ...]) -> None:
        if any(not a < b for a, b in pairwise(cutpoints)):
            raise SettingError("increasing numbers as cutpoints", repr(cutpoints), "sort them")
        if self.classes is None:
            object.__setattr__(self, "classes", len(cutpoints) + 1)
        if self.classes != len(cutpoints) + 1:
            got = f"{len(cutpoints)} for {self.classes} classes"
            raise SettingError("one cutpoint less than classes", got, "leave classes out")

    @property
    def _link(self) -> Link:
        return LINKS[self.link]

    def sites(self) -> dict[str, Site]:
        shape, given = (known_classes(self.classes) - 1,), self.cutpoints
        if not isinstance(given, Prior):
            return {"cutpoints": site("cutpoints", given, shape)}
        flat = isinstance(given, Flat)
        concentration = getattr(given, "concentration", 1.0)
        return {"cutpoints": Site(CutpointPrior(concentration, self.link, flat), shape)}

    def prepare(self, data: Dataset) -> Ordinal:
        """Return this likelihood with the number of classes in the data.

        Raises:
            DataError: If the targets are not the codes 0 .. K - 1, or if a class has no rows and
                neither ``classes`` with a proper prior nor numbers fix its cutpoints.
        """
        ready = self
        if self.classes is None:
            ready = replace(self, classes=count_classes(data))
        check_codes(data, known_classes(ready.classes))
        warn_of_alphabet(data)
        if self.classes is None or isinstance(self.cutpoints, Flat):
            check_every_class(data, known_classes(ready.classes))
        return ready

    def ratio(self) -> str | None:
        return "odds ratio" if self.link == "logit" else None

    def at_shares(self, data: Dataset) -> Ordinal:
        """Return this likelihood with numbers as cutpoints: f = 0 gives the shares of the classes.

        Half a row is added to each class.

        Raises:
            DataError: If the targets are not the codes 0 .. K - 1.
        """
        classes = self.classes or count_classes(data)
        check_codes(data, classes)
        counts = torch.bincount(data.y.long(), minlength=classes).double() + 0.5
        below = (counts / counts.sum()).cumsum(0)[:-1]
        numbers = tuple(self._link.quantile(below).tolist())
        return replace(self, cutpoints=numbers, classes=classes)

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        """Return the cutpoints [*draw, K - 1, 1]."""
        return value_of(theta, name, self.cutpoints, like)[..., None]

    def _gaps(self, theta: Theta, f: Tensor) -> Tensor:
        """Return the cutpoints minus f, [*draw, K - 1, n]."""
        return self.value(theta, "cutpoints", f) - f[..., None, :]

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.Categorical(logits=self._link.log_masses(self._gaps(theta, f)).mT)

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        """Return the distribution of y for f ~ N(mean, variance), batch [*draw, n].

        It has a closed form for "probit", Rasmussen & Williams (2006), equation 3.82, and is
        accurate to rounding for "logit"; for "cloglog" it is computed by the trapezoidal rule.
        """
        if self.link == "probit":
            z = self._gaps(theta, mean) / (1 + variance).sqrt()[..., None, :]
            return dist.Categorical(logits=self._link.log_masses(z).mT)
        if self.link == "logit":
            z = self._gaps(theta, mean)
            odds = log_odds(z, root(variance).square()[..., None, :].expand(z.shape))
            return dist.Categorical(logits=LINKS["logit"].log_masses(odds).mT)
        nodes = torch.linspace(-REACH, REACH, NODES, dtype=mean.dtype, device=mean.device)
        log_weights = torch.log_softmax(-0.5 * nodes.square(), 0)
        column = (-1,) + (1,) * mean.ndim
        f = mean + root(variance) * nodes.reshape(column)
        logs = self._link.log_masses(self._gaps(theta, f)) + log_weights.reshape(*column, 1)
        return dist.Categorical(logits=torch.logsumexp(logs, 0).mT)

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f).

        The relative error is at most 4e-8 for "logit", 1e-8 for "probit" and 1e-5 for "cloglog",
        however uncertain f is.
        """
        z = self._gaps(theta, mean)
        if self.link == "logit":
            wide = variance[..., None, :].expand(z.shape)
            below, above = -expected_softplus(-z, wide), -expected_softplus(z, wide)
            between = log1mexp(z[..., :-1, :] - z[..., 1:, :])
            middle = below[..., 1:, :] + above[..., :-1, :] + between
            logs = torch.cat([below[..., :1, :], middle, above[..., -1:, :]], -2)
            return _of_class(logs, y)
        end = z.shape[-2]
        first, last = y == 0, y == end
        low, high = _of_class(z, (y - 1).clamp_min(0)), _of_class(z, y.clamp_max(end - 1))
        width = torch.where(first | last, torch.ones_like(low), high - low)
        none = torch.zeros_like(low)
        if self.link == "cloglog":
            # F(high) - F(low) = exp(-exp(low)) (1 - exp(-exp(x))) with one x per class
            x = torch.where(first, high, low + width + log1mexp(-width))
            tail = turning_average(self._link.log_cdf, x, variance, none)
            log_rate = torch.where(first, -torch.inf, low + 0.5 * variance)
            return torch.where(last, none, tail) - log_rate.exp()
        below = turning_average(self._link.log_cdf, high, variance, none)
        above = turning_average(self._link.log_survival, low, variance, none)

        def rest(middle: Tensor) -> Tensor:
            a, b = middle - 0.5 * width, middle + 0.5 * width
            return self._link.log_between(a, b) - self._link.log_cdf(b) - self._link.log_survival(a)

        # what is left of the log probability of a class between two cutpoints turns between them
        between = turning_average(rest, 0.5 * (low + high), variance, none)
        one_sided = torch.where(first, below, above)
        return torch.where(first | last, one_sided, below + above + between)

    # -- scores ---------------------------------------------------------------------------------

    def _at(self, theta: Theta, f: Tensor) -> tuple[Mapping[str, Tensor], Tensor]:
        return {"cutpoints": self.value(theta, "cutpoints", f)}, f[..., 0, :]

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        z = p["cutpoints"] - f[..., None, :]
        if kind == "nll":
            return -_of_class(self._link.log_masses(z), y)
        return (
            torch.where(_at_most(y, z), self._link.log_survival(z), self._link.log_cdf(z))
            .mul(2)
            .exp()
            .sum(-2)
        )

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        z = p["cutpoints"] - f[..., None, :]
        if kind == "nll":
            return (-_of_class(self._link.slopes(z)[0], y),)
        below = _at_most(y, z)
        wrong = torch.where(below, -self._link.log_survival(z).exp(), self._link.log_cdf(z).exp())
        return (-2 * (wrong * self._link.log_pdf(z).exp()).sum(-2),)

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (_of_class(self._link.slopes(p["cutpoints"] - f[..., None, :])[1], y),)

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        z = p["cutpoints"] - f[..., None, :]
        if kind == "nll":
            first = self._link.slopes(z)[0]
            root_mass = self._link.log_masses(z).mul(0.5).exp()
            return {(0, 0): (root_mass * first).square().sum(-2)}
        return {(0, 0): 2 * self._link.log_pdf(z).mul(2).exp().sum(-2)}

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        if not isinstance(self.cutpoints, tuple):
            return (0.0,)
        c = torch.tensor(self.cutpoints, dtype=y.dtype)
        middles = torch.cat([c[:1] - 1, 0.5 * (c[1:] + c[:-1]), c[-1:] + 1])
        return (float(middles[y.long()].mean()),)

    def _has_least(self, y: Tensor) -> bool:
        if self.classes is None:
            return True
        return bool((y > 0).any() and (y < self.classes - 1).any())

    def in_units(self, y_sd: float) -> Ordinal:
        """Return this likelihood; cutpoints have no unit."""
        return self


def _of_class(values: Tensor, y: Tensor) -> Tensor:
    """Return the values [*draw, K, n] of the classes y [n], [*draw, n]."""
    index = y.long().expand(*values.shape[:-2], values.shape[-1])
    return values.gather(-2, index[..., None, :])[..., 0, :]


def _at_most(y: Tensor, z: Tensor) -> Tensor:
    """Return 1[y <= k], [K - 1, n]."""
    return y <= torch.arange(z.shape[-2], dtype=y.dtype, device=y.device)[:, None]


@dataclass(frozen=True)
class CutpointPrior(Dirichlet):
    """The prior of the cutpoints c_1 < ... < c_(K - 1) of a link.

    Attributes:
        link: The name of the link.
        flat: Whether the log density is 0 wherever the cutpoints are ordered.
    """

    link: str = "logit"
    flat: bool = False
    positive = False

    def __post_init__(self) -> None:
        """Its numbers were checked where the user gave them."""

    def distribution(self, like: Tensor, size: int = 2) -> TorchDistributionMixin:
        like = like.new_ones(size + 1)
        if self.flat:  # classes of equal shares
            below = like.cumsum(0)[:-1] / (size + 1)
            return FlatCutpoints(LINKS[self.link].quantile(below))
        return InducedDirichlet(self.concentration * like, self.link)


class InducedDirichlet(dist.TorchDistribution):
    """The cutpoints of which the shares of the classes at f = 0 have a Dirichlet distribution.

    The density is Dir(F(c_1), F(c_2) - F(c_1), ...; concentration) prod_k F'(c_k). Betancourt
    (2019), section 2.2.

    Args:
        concentration: [*batch, K], of the classes.
        link: The name of the link F.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.ordered_vector
    has_rsample = False

    def __init__(
        self, concentration: Tensor, link: str = "logit", validate_args: bool | None = None
    ) -> None:
        self.concentration, self.link = concentration, link
        event = torch.Size([concentration.shape[-1] - 1])
        super().__init__(concentration.shape[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> InducedDirichlet:
        shape = torch.Size(batch_shape) + self.concentration.shape[-1:]
        return InducedDirichlet(self.concentration.expand(shape), self.link, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        link, a = LINKS[self.link], self.concentration
        log_shares = link.log_masses(value[..., None])[..., 0]
        constant = torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)
        return ((a - 1) * log_shares).sum(-1) + constant + link.log_pdf(value).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shares = dist.Dirichlet(self.concentration).sample(torch.Size(sample_shape))
            below = shares.cumsum(-1)[..., :-1]
            eps = torch.finfo(below.dtype).eps
            return LINKS[self.link].quantile(below.clamp(eps, 1 - eps))


class FlatCutpoints(FlatDistribution):
    """Log density 0 where the cutpoints are ordered; a draw is the start of a search.

    Args:
        start: [*batch, K - 1], increasing.
    """

    def __init__(self, start: Tensor) -> None:
        self.start, self._support = start, constraints.ordered_vector
        dist.TorchDistribution.__init__(
            self, start.shape[:-1], start.shape[-1:], validate_args=False
        )

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> FlatCutpoints:
        return FlatCutpoints(self.start.expand(torch.Size(batch_shape) + self.event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        return self.start.expand(shape).clone()

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value[..., 0])
