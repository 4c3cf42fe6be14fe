"""Likelihoods whose positive parameters are numbers, priors or functions of x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..arguments import named_arguments
from ..display.overrides import computed_once
from ..numerics.shapes import broadcast_shapes
from ..priors import PriorLike, Site, refuse_negative, site, with_plain_fields
from ..priors.units import power as to_power
from .base import Likelihood, Theta, hermite, product_nodes, root, turning_average
from .latent_average import LatentAverage
from .scored import Scored


@named_arguments
@dataclass(frozen=True)
class Predicted:
    """Another function of x in place of a number or a prior: the parameter is level * exp(f_k(x)).

    A probability is sigmoid(logit(level) + f_k(x)). The functions of x are then [K, n], as in Rigby
    & Stasinopoulos (2005).

    Boosting, networks and ``GLM`` find the functions f_k, with level 1. In an SVGP each f_k is a
    Gaussian process of mean 0, and the level is a site.

    Args:
        level: Prior or number of the level in an SVGP; None: the default prior of the parameter. It
            has the units of the parameter, as a number or a prior in its place has.

    Raises:
        UnknownArgument: If an argument has another name.
        SettingError: If the level is a class in place of an instance, or a distribution that cannot
            be a prior. ``fit`` raises it if the level may be a value that the parameter cannot
            have.

    Examples:
        Noise that depends on x: the standard deviation is 1 where x = 0, and 3 where x = 1.

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> data = ppgp.Dataset([[0.0], [0.0], [1.0], [1.0]], [1.0, 3.0, 2.0, 8.0])
        >>> likelihood = likelihoods.Gaussian(noise=likelihoods.Predicted())
        >>> model = models.GLM(likelihood, weight=priors.Flat(), bias=priors.Flat())
        >>> posterior = ppgp.fit(model, data, inference.MAP("newton"), progress=False)
        >>> prediction = posterior.predict([[0.0], [1.0]])
        >>> prediction.mean.round(decimals=3).tolist(), prediction.std.round(decimals=3).tolist()
        ([2.0, 5.0], [1.0, 3.0])
    """

    level: PriorLike | None = None

    def __post_init__(self) -> None:
        with_plain_fields(self)


class Parametric(Likelihood, Scored):
    """A likelihood of one function f and some positive parameters.

    The fields of the record are the parameters. Each is a number, a prior or ``Predicted()``. The
    K functions of x, [*draw, K, n], are f_0 and, in the order of the fields, the logs of the
    predicted parameters over their levels. With K = 1 they are [*draw, n], except in the methods
    of ``Scored``.

    A subclass defines ``_distribution``; ``_marginal`` and ``_expected`` if they have a closed
    form; and what ``Scored`` asks for. They take the parameters p per row: {field: [*draw, n]}.

    Attributes:
        structure: The fields that are not parameters.
        integrates_f: Whether ``_marginal`` is defined. Without it the average over f is taken by
            quadrature.
        counts: Whether y is 0, 1, 2, ...
    """

    structure: ClassVar[tuple[str, ...]] = ()
    integrates_f: ClassVar[bool] = False
    counts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, power in self.dimensions.items():
            if power:  # the fit sees it in another unit than it is written in
                refuse_negative(name, self.given(name))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        record: Any = self  # every concrete likelihood is a dataclass
        return tuple(f.name for f in fields(record) if f.name not in self.structure)

    def _predicted(self) -> tuple[str, ...]:
        """The parameters that are functions of x."""
        return tuple(n for n in self.parameters if isinstance(self.given(n), Predicted))

    predicted = computed_once(_predicted)

    @property
    def latents(self) -> int:
        return 1 + len(self.predicted)

    def sites(self) -> dict[str, Site]:
        return {
            name: site(name, self.given(name), positive=True)
            for name in self.parameters
            if name not in self.predicted
        }

    def levels(self) -> dict[str, Site]:
        return {name: site(name, self._level(name), positive=True) for name in self.predicted}

    def _level(self, name: str) -> PriorLike:
        given = self.given(name).level
        if given is not None:
            return given
        record: Any = self
        default = next(f.default for f in fields(record) if f.name == name)
        assert default is not MISSING
        return default

    def in_units(self, y_sd: float) -> Likelihood:
        likelihood = super().in_units(y_sd)
        changed = {}
        for name in self.predicted:
            level = self.given(name).level
            if level is not None:
                changed[name] = Predicted(self._in_unit(name, level, y_sd))
        if not changed:
            return likelihood
        return likelihood.replaced(changed)

    def factors(self, y_sd: float) -> dict[str, float]:
        return {name: to_power(y_sd, self._power_of_y(name)) for name in self.parameters}

    def scale_of(self, name: str) -> str:
        """Return the scale on which a predicted parameter is a function: "log" or "logit"."""
        return "log"

    # -- the hooks of a subclass ------------------------------------------------------------

    def _joined(self, name: str, g: Tensor, level: Tensor | None) -> Tensor:
        """Return a predicted parameter, given its function and its level; None: no level."""
        return g.exp() if level is None else level * g.exp()

    def _neutral(self, name: str) -> float:
        """Return the level that is as good as none."""
        return 1.0

    def _held(self, name: str, value: Tensor) -> Tensor:
        """Return a parameter that is not predicted as the other hooks take it."""
        return value

    def _distribution(self, p: Theta, f: Tensor) -> Distribution:
        raise NotImplementedError

    def _marginal(self, p: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        raise NotImplementedError

    def _expected(self, p: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        nodes, weights = hermite(self.nodes, mean)
        shape = broadcast_shapes(mean.shape, *(v.shape for v in p.values()))
        column = (-1,) + (1,) * len(shape)
        f = mean + root(variance) * nodes.reshape(column)
        return (self._distribution(p, f).log_prob(y) * weights.reshape(column)).sum(0)

    def _turning(
        self,
        p: Theta,
        mean: Tensor,
        variance: Tensor,
        y: Tensor,
        turn: Tensor,
        **options: Any,
    ) -> Tensor:
        """Return E log p(y | f) where log p changes within a few units of f around a turn."""
        shape = broadcast_shapes(mean.shape, *(v.shape for v in p.values()))

        def log_prob(f: Tensor) -> Tensor:
            return self._distribution(p, f).log_prob(y)

        return turning_average(log_prob, mean.expand(shape), variance, turn, **options)

    # -- the interface ----------------------------------------------------------------------

    def _coordinates(self) -> tuple[int, ...]:
        return (0, *(1 + self.parameters.index(name) for name in self.predicted))

    def _at(self, theta: Theta, f: Tensor) -> tuple[Mapping[str, Tensor], Tensor]:
        p = {}
        for name in self.parameters:
            if name not in self.predicted:
                p[name] = self._held(name, self.value(theta, name, f))
        for k, name in enumerate(self.predicted, 1):
            level = theta[name][..., None] if name in theta else None
            p[name] = self._joined(name, f[..., k, :], level)
        return p, f[..., 0, :]

    def _split(self, theta: Theta, f: Tensor) -> tuple[Mapping[str, Tensor], Tensor]:
        return self._at(theta, f if self.predicted else f[..., None, :])

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return self._distribution(*self._split(theta, f))

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        if self.integrates_f and not self.predicted:
            return self._marginal(self._split(theta, mean)[0], mean, variance)
        if not self.predicted:
            mean, variance = mean[..., None, :], variance[..., None, :]
        given = []
        for name in self.parameters:
            if name not in self.predicted:
                given.append(self.value(theta, name, mean))
            elif name in theta:
                given.append(theta[name][..., None])
            else:
                given.append(mean.new_full((1,), self._neutral(name)))
        rows = mean.shape[:-2] + mean.shape[-1:]
        if given:
            held = torch.stack([value.expand(rows) for value in given], -1)
        else:
            held = mean.new_zeros(*rows, 0)
        return LatentAverage(mean.mT, root(variance).mT, held, self)

    def at_nodes(self, f: Tensor, given: Tensor) -> Mapping[str, Tensor]:
        """Return the parameters where the predicted functions are f [..., K - 1].

        Args:
            f: The functions after the first.
            given: Per parameter its value, or its level if it is predicted, [..., parameter].
        """
        p = {}
        for i, name in enumerate(self.parameters):
            if name in self.predicted:
                g = f[..., self.predicted.index(name)]
                p[name] = self._joined(name, g, given[..., i])
            else:
                p[name] = self._held(name, given[..., i])
        return p

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f) over f ~ N(mean, variance), [*draw, n].

        The average over predicted parameters is taken by Gauss-Hermite quadrature.
        """
        if not self.predicted:
            return self._expected(self._split(theta, mean)[0], mean, variance, y)
        nodes, weights = product_nodes(self.nodes, len(self.predicted), mean)
        spread = root(variance)
        e = nodes.reshape(-1, *(1,) * (mean.ndim - 2), len(self.predicted), 1)
        others = mean[..., 1:, :] + spread[..., 1:, :] * e
        first = mean[..., :1, :].expand(*others.shape[:-2], 1, -1)
        p, _ = self._at(theta, torch.cat([first, others], -2))
        value = self._expected(p, mean[..., 0, :], variance[..., 0, :], y)
        return (value * weights.reshape(-1, *(1,) * (mean.ndim - 1))).sum(0)
