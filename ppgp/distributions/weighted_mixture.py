"""Mixtures of distributions of one number, with weights: of one family, or of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..errors import NotApplicable
from . import univariate
from .distributions import NormalMixture
from .rows_on_demand import RowsOnDemand

__all__ = ["FamilyMixture", "weighted"]

#: families that stay themselves where y = offset + scale * z, with parameters ``loc`` and ``scale``
LOCATION_AND_SCALE = ("Normal", "StudentT", "Cauchy", "Laplace", "Logistic", "NormalMixture")


class FamilyMixture(dist.TorchDistribution):
    """The mixture sum_k proportion_k p_k(y), whose components may be of several families.

    Args:
        proportion: [*batch, K], the weights, in the order of the families.
        families: A distribution of each family, of which the class and its constants count.
        validate_args: Whether to check arguments, as in torch.
        **parameters: Those of family j, named "of_j_NAME", [*batch, K_j, *event], where the K_j
            add up to K.
    """

    def __init__(
        self,
        proportion: Tensor,
        families: tuple[Distribution, ...],
        validate_args: bool | None = None,
        **parameters: Tensor,
    ) -> None:
        self.proportion, self.families = proportion, families
        self.names = tuple(sorted(parameters))
        for name, value in parameters.items():
            setattr(self, name, value)
        super().__init__(proportion.shape[:-1], torch.Size(), validate_args=False)

    @property
    def arg_constraints(self) -> Any:
        """The constraints of the parameters, which depend on the families."""
        found: dict[str, Any] = {"proportion": constraints.simplex}
        for name in self.names:
            _, j, own = name.split("_", 2)
            family: Any = self.families[int(j)]
            found[name] = constraints.independent(family.arg_constraints[own], 1)
        return found

    @property
    def support(self) -> Any:
        """The support that all families share, or else all numbers."""
        supports: list[Any] = [family.support for family in self.families]
        bounds = {getattr(support, "lower_bound", None) for support in supports}
        if supports[0].is_discrete or len(bounds) == 1:
            return supports[0]
        return constraints.real

    def _each(self) -> Iterator[tuple[Tensor, Distribution]]:
        """Yield the weights [*batch, K_j] and the components, of that batch, of each family."""
        start = 0
        for j, family in enumerate(self.families):
            begins = f"of_{j}_"
            names = [name for name in self.names if name.startswith(begins)]
            own = {name.removeprefix(begins): getattr(self, name) for name in names}
            each = univariate.rebuilt(family, own)
            size = each.batch_shape[-1]
            yield self.proportion[..., start : start + size], each
            start += size

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> FamilyMixture:
        batch, axes = torch.Size(batch_shape), len(self.batch_shape)
        parts = {n: getattr(self, n) for n in ("proportion", *self.names)}
        wide = {n: value.expand(*batch, *value.shape[axes:]) for n, value in parts.items()}
        return FamilyMixture(families=self.families, **wide)

    @property
    def mean(self) -> Tensor:
        return torch.stack([(w * each.mean).sum(-1) for w, each in self._each()]).sum(0)

    @property
    def variance(self) -> Tensor:
        mean = self.mean[..., None]
        parts = [
            (w * (each.variance + (each.mean - mean).square())).sum(-1) for w, each in self._each()
        ]
        return torch.stack(parts).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        x = value[..., None]
        parts = [w.log() + univariate.log_prob(each, x) for w, each in self._each()]
        return torch.logsumexp(torch.cat(parts, -1), -1)

    def cdf(self, value: Tensor) -> Tensor:
        x = value[..., None]
        parts = [(w * univariate.cdf(each, x)).sum(-1) for w, each in self._each()]
        return torch.stack(parts).sum(0)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            drawn = torch.cat([each.sample(shape) for _, each in self._each()], -1)
            k = torch.distributions.Categorical(self.proportion).sample(shape)[..., None]
            return drawn.gather(-1, k)[..., 0]


def weighted(
    distributions: Sequence[Distribution],
    weights: Tensor,
    units: Sequence[tuple[float | Tensor, float | Tensor]],
) -> Distribution:
    """Return the mixture of predictive distributions of n rows, of batch [1, n].

    Args:
        distributions: K of them, of one kind of y, each an equal mixture over its first axis, of
            batch [draw, n].
        weights: [K], which sum to 1.
        units: (offset, scale) of each, in y = offset + scale * z.

    Raises:
        NotApplicable: For a family that has no form in the units of y.
    """
    found = [_in_units(_whole(d), *unit) for d, unit in zip(distributions, units, strict=True)]
    n = found[0].batch_shape[-1]
    shares = []
    for weight, d in zip(weights, found, strict=True):
        draws = d.batch_shape[0]
        shares.append((weight / draws).expand(1, n, draws))
    like = univariate.like(found[0])
    proportion = torch.cat(shares, -1).to(like)
    values = [univariate.parameters(d) for d in found]
    if all(isinstance(d, torch.distributions.Normal) for d in found):
        loc, scale = (
            torch.cat([v[name].mT[None] for v in values], -1) for name in ("loc", "scale")
        )
        return NormalMixture(proportion, loc, scale, validate_args=False)
    parameters = {
        f"of_{j}_{name}": value.transpose(0, 1)[None]
        for j, each in enumerate(values)
        for name, value in each.items()
    }
    return FamilyMixture(proportion, tuple(found), False, **parameters)


def _whole(d: Distribution) -> Distribution:
    return d.whole if isinstance(d, RowsOnDemand) else d


def _in_units(d: Distribution, offset: float | Tensor, scale: float | Tensor) -> Distribution:
    """Return the distribution of offset + scale * z.

    Raises:
        NotApplicable: For a family in which it is no distribution of that family.
    """
    names = {c.__name__ for c in type(d).__mro__}
    values = univariate.parameters(d)
    like = next(iter(values.values()))
    offset, scale = (torch.as_tensor(value).to(like) for value in (offset, scale))
    if bool((offset == 0).all()) and bool((scale == 1).all()):
        return d
    if names & set(LOCATION_AND_SCALE):
        by_row = [u[:, None] if "proportion" in values and u.ndim else u for u in (offset, scale)]
        values["loc"] = by_row[0] + by_row[1] * values["loc"]
        values["scale"] = by_row[1] * values["scale"]
        return univariate.rebuilt(d, values)
    if "LogNormal" in names and bool((offset == 0).all()):
        return univariate.rebuilt(d, {**values, "loc": values["loc"] + scale.log()})
    raise NotApplicable(
        "a family of distributions that has the units of y",
        type(d).__name__,
        "fit with standardise=False",
    )
