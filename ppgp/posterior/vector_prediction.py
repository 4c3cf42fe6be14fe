"""Predictions of rows that have several numbers each, such as several outputs or shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..data.entries.arrays import as_tensor
from ..distributions import univariate
from ..errors import DataError, NotApplicable, NotKnown, SettingError, listed
from ..runtime.seeding import stream
from .axes import steps_of_loops
from .prediction import Prediction

__all__ = ["VectorPrediction"]

DRAWS = 2000  # of the numbers, where their distributions are not known one by one


@dataclass(frozen=True, eq=False)
class VectorPrediction:
    """The predictive distribution of y where each row has several numbers, [n, k].

    It is a mixture with equal weights over the draws of the posterior, as ``Prediction``.
    ``posterior.predict`` of a program returns it where the site of y has an event, such as
    ``Normal(...).to_event(1)``, ``MultivariateNormal`` or ``Multinomial``. Statistics have the
    shape of y in the program, [*rows, *event], and are those of each number by itself; ``log_prob``
    and ``sample`` are those of the numbers of a row together. All are in the units of y. Gneiting,
    Stanberry, Grimit, Held & Johnson (2008) assess predictions of vectors.

    Args:
        each: The prediction of each number, in the order of ``y.reshape(-1)``.
        rows: The shape of the rows: [n], or [] where y as a whole is one event.
        event: The shape of the numbers of a row.
        law: The joint distribution of the numbers of a row: batch [draw, *rows] and this event.
            None: it is known by its draws alone.
        draws: Draws of y [draw, *rows, *event], where there is no law.
        outputs: Place of a number in its row, 0 to k - 1 -> its prediction of all rows.
        deterministic: Values of the ``pyro.deterministic`` sites at the draws, {site: [draw, ...]}.

    Raises:
        DataError: From ``log_prob``, if y has another shape.
        NotApplicable: From ``log_prob`` and ``covariance``, where they are not known.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def program(x, y=None):
        ...     w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        ...     with pyro.plate("rows", len(x)):
        ...         pyro.sample("y", dist.Normal(x[:, None] * w, 0.1).to_event(1), obs=y)
        >>> x = torch.linspace(-1, 1, 30)
        >>> data = {"x": x, "y": x[:, None] * torch.tensor([2.0, -1.0])}
        >>> posterior = ppgp.fit(program, data, inference.Laplace(), progress=False)
        >>> prediction = posterior.predict(x=torch.tensor([0.5, 1.0, 1.5]))
        >>> prediction.mean.shape, prediction.interval(0.9)[0].shape
        (torch.Size([3, 2]), torch.Size([3, 2]))
        >>> prediction.log_prob(torch.zeros(3, 2)).shape, prediction.sample(5).shape
        (torch.Size([3]), torch.Size([5, 3, 2]))
        >>> prediction.output(0)  # an ordinary prediction of three rows
        <Prediction of 3 rows: continuous, mixture of 1000 Normal>
    """

    each: Prediction
    rows: torch.Size
    event: torch.Size
    law: Distribution | None = None
    draws: Tensor | None = field(default=None, repr=False)
    outputs: Callable[[int], Prediction] | None = field(default=None, repr=False)
    deterministic: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> torch.Size:
        """The shape of y, [*rows, *event]."""
        return self.rows + self.event

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        family = "draws" if self.law is None else type(self.law).__name__
        if isinstance(self.law, Independent):
            family = type(self.law.base_dist).__name__
        return f"<VectorPrediction of {size} numbers: {self.kind}, {family}>"

    @property
    def kind(self) -> Literal["continuous", "count", "classes"]:
        """The kind of the numbers."""
        return self.each.kind

    def _shaped(self, values: Tensor) -> Tensor:
        """Return [..., n k] as [..., *rows, *event]."""
        return values.reshape(*values.shape[:-1], *self.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each number, [*rows, *event]."""
        return self._shaped(self.each.mean)

    @property
    def variance(self) -> Tensor:
        """The variance of each number [*rows, *event], in squared units."""
        return self._shaped(self.each.variance)

    @property
    def std(self) -> Tensor:
        """The standard deviation of each number, [*rows, *event]."""
        return self._shaped(self.each.std)

    @property
    def epistemic(self) -> Tensor:
        """The variance of the mean between draws, [*rows, *event]."""
        return self._shaped(self.each.epistemic)

    @property
    def aleatoric(self) -> Tensor:
        """The mean over draws of the variance given the draw, [*rows, *event]."""
        return self._shaped(self.each.aleatoric)

    @property
    def probabilities(self) -> Tensor:
        """The probability of each class of each number, [*rows, *event, K].

        Raises:
            NotApplicable: If the numbers are not classes.
        """
        found = self.each.probabilities
        return found.reshape(*self.shape, found.shape[-1])

    @property
    def covariance(self) -> Tensor:
        """The covariance matrix of the numbers of a row [*rows, k, k], in squared units.

        Raises:
            NotApplicable: If it is not known.
        """
        law: Any = self.law
        size = math.prod(self.event)
        matrix = getattr(law, "covariance_matrix", None)
        if isinstance(law, Independent) and not law.base_dist.event_shape:
            within = torch.diag_embed(law.variance.flatten(1 + len(self.rows)))
        elif matrix is not None and len(self.event) == 1:
            within = matrix
            if isinstance(law, dist.MultivariateStudentT):  # Pyro's is that of the normal law in it
                within = within * (law.variance / within.diagonal(dim1=-2, dim2=-1))[..., None]
        else:
            name = "draws" if law is None else type(getattr(law, "base_dist", law)).__name__
            do = "take torch.cov of prediction.sample(1000)[:, i].mT for row i"
            raise NotApplicable("a distribution whose covariance is known", name, do)
        means = law.mean.reshape(-1, *self.rows, size)
        apart = means - means.mean(0)
        return within.mean(0) + (apart[..., :, None] * apart[..., None, :]).mean(0)

    def cdf(self, y: Any) -> Tensor:
        """Return P(Y <= y) of each number, [*rows, *event]."""
        return self._shaped(self.each.cdf(self._inside(y).reshape(-1)))

    def quantile(self, p: Any) -> Tensor:
        """Return the p-quantile of each number, [*rows, *event], or [k, *rows, *event] for k p.

        Raises:
            SettingError: If p lies outside (0, 1).
        """
        return self._shaped(self.each.quantile(p))

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return the ends of the central interval of each number, [*rows, *event] each."""
        region = self.each.interval(level)
        lower, upper = region
        return self._shaped(lower), self._shaped(upper)

    def log_prob(self, y: Any) -> Tensor:
        """Return the log density (or mass) of the numbers of each row together, [*rows].

        Args:
            y: [*rows, *event].

        Raises:
            DataError: If y has another shape.
            NotApplicable: If the distribution is known by draws alone.
        """
        if self.law is None:
            do = "compare draws, .sample(1000), or the numbers one by one, .each.log_prob"
            raise NotApplicable("a distribution whose density is known", "draws", do)
        each = self.law.log_prob(self._inside(y))
        return torch.logsumexp(each, 0) - math.log(len(each))

    def sample(self, k: int = 1, seed: int = 0) -> Tensor:
        """Return k draws of y, [k, *rows, *event], those of a row jointly.

        Args:
            k: The number of draws.
            seed: The seed.

        Raises:
            SettingError: If k is no whole number, or negative.
        """
        if not isinstance(k, Integral) or k < 0:
            raise SettingError("a whole number of draws", repr(k)[:60], "for example 100")
        k, like = int(k), univariate.like(self.each.distribution)
        with stream(seed, like.device), torch.no_grad():
            if self.law is None:
                assert self.draws is not None
                return self.draws[torch.randint(len(self.draws), (k,), device=like.device)]
            which = torch.randint(self.law.batch_shape[0], (k,), device=like.device)
            return univariate.components(self.law, which).sample()

    def one_of_each_draw(self, seed: int = 0) -> Tensor:
        """Return one draw of y given each draw of the posterior, [draw, *rows, *event]."""
        if self.law is None:
            assert self.draws is not None
            return self.draws
        like = univariate.like(self.each.distribution)
        with stream(seed, like.device), torch.no_grad():
            return self.law.sample()

    def output(self, *index: Any) -> Prediction:
        """Return the prediction of one number of every row, such as one output.

        Args:
            *index: Its place in the row, one number for each axis of the event.

        Raises:
            DataError: If there is no such place.
        """
        sizes = self.event if self.rows else self.event[1:]
        wrong = len(index) != len(sizes) or any(
            not isinstance(i, int | np.integer) or not -size <= i < size
            for i, size in zip(index, sizes, strict=False)
        )
        if wrong:
            wanted = f"the place of a number in rows of shape {list(sizes)}"
            raise DataError(wanted, repr(index), "for example output(0)")
        place = 0
        for i, size in zip(index, sizes, strict=True):
            place = place * size + int(i) % size
        if self.outputs is not None:
            return self.outputs(place)
        return self.each[place :: math.prod(sizes)]

    def _inside(self, y: Any) -> Tensor:
        """Return y, checked.

        Raises:
            DataError: If it has another shape.
        """
        value = as_tensor(y, "y").to(univariate.like(self.each.distribution))
        if value.shape != self.shape:
            got = f"shape {list(value.shape)}"
            raise DataError(f"y of shape {list(self.shape)}", got, "pass all numbers of all rows")
        return value


class SitePredictions(dict[str, Any]):
    """The predictions of several sites, which says so where one prediction is expected."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Prediction, name):
            raise AttributeError(name)
        numbers = [site for site, each in self.items() if each.kind != "classes"]
        site = next(iter([*numbers, *self]))
        do = f"take one of them, such as predictions[{site!r}].{name}"
        got = f"those of {listed([repr(each) for each in self], 'site')}"
        raise NotKnown(f"one prediction with .{name}", got, do)


def loops_of_steps(laws: Mapping[str, Any]) -> dict[str, Any]:
    """Return {name of a loop: the distribution of the rows of all its steps}.

    Args:
        laws: {site: a distribution of batch [draw, n], or ``Vectors``}. Steps of other kinds or
            with joint distributions are no rows of one distribution.
    """
    found = {}
    for name, steps in steps_of_loops(laws).items():
        each = [laws[step] for step in steps]
        first = each[0]
        if not all(isinstance(law, Distribution) and not law.event_shape for law in each):
            continue
        parts = [univariate.parameters(law) for law in each]
        shapes = [{k: (len(v), v.shape[2:]) for k, v in part.items()} for part in parts]
        # Pyro's class and that of torch, of the steps of a fit and of later ones, have one name
        kinds = {type(law).__name__ for law in each}
        if len(kinds) > 1 or shapes.count(shapes[0]) < len(each):
            continue
        joined = {k: torch.cat([part[k] for part in parts], 1) for k in parts[0]}
        found[name] = univariate.rebuilt(first, joined)
    return found


def prediction_of_site(
    law: Any, of_rows: Callable[..., Prediction], deterministic: Mapping[str, Tensor]
) -> Prediction | VectorPrediction:
    """Return the prediction of a site of a program.

    Args:
        law: A distribution of batch [draw, n], or ``Vectors`` of ``models/program.py``.
        of_rows: Gives a Prediction its origin and its training rows; ``part=`` says which numbers
            of the site it holds.
        deterministic: Values of the deterministic sites.
    """
    if isinstance(law, Distribution):
        return of_rows(Prediction(law))
    each = of_rows(_of_draws(law.draws) if law.law is None else _of_numbers(law.law))
    shape = law.batch + law.event
    if len(shape) < 2 or not law.event:
        return each
    joint = law.law
    wrapped = 0 if joint is None else len(law.event) - len(joint.event_shape)
    if joint is not None and wrapped:
        joint = Independent(joint, wrapped)
    numbers = law.event if law.batch else law.event[1:]

    def output(place: int) -> Prediction:
        part = slice(place, None, numbers.numel())
        return of_rows(each[part], part=part)

    return VectorPrediction(
        each, law.batch, law.event, joint, law.draws, output, deterministic=deterministic
    )


def _of_draws(draws: Tensor) -> Prediction:
    flat = draws.reshape(len(draws), -1)
    return Prediction.from_samples(flat)


def _of_numbers(law: Distribution) -> Prediction:
    """Return the prediction of each number of a distribution of batch [draw, *rows]."""
    marginal = _of_each(law)
    if marginal is None:
        several = [law.sample() for _ in range(-(-DRAWS // law.batch_shape[0]))]
        draws = torch.cat(several)
        return _of_draws(draws.long() if univariate.is_discrete(law) else draws)
    axes = len(marginal.batch_shape)
    flat = {
        name: value.reshape(len(value), -1, *value.shape[axes:])
        for name, value in univariate.parameters(marginal).items()
    }
    return Prediction(univariate.rebuilt(marginal, flat))


def _of_each(law: Distribution) -> Distribution | None:
    """Return the distribution of each number, batch [draw, *rows, *event]; None: not known."""
    if not law.event_shape:
        return law
    family: Any = law
    if isinstance(law, torch.distributions.Multinomial):
        return dist.Binomial(family.total_count, probs=family.probs)
    if isinstance(law, torch.distributions.Dirichlet | dist.DirichletMultinomial):
        own = family.concentration
        others = own.sum(-1, keepdim=True) - own
        if isinstance(law, torch.distributions.Dirichlet):
            return dist.Beta(own, others)
        return dist.BetaBinomial(own, others, family.total_count[..., None])
    try:
        return univariate.marginals(law)
    except NotApplicable:
        return None
