"""Operations on one-dimensional distributions that torch lacks, component by component.

They cover cdf, quantiles, sums of mass functions, selection of rows, and stacking of draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import pyro.distributions as dist
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..errors import NotApplicable
from ..numerics.cholesky import LOG_2PI
from ..numerics.shapes import broadcast_shapes
from . import standard_normal
from .counts import FORMS, closed_cdf
from .rows_on_demand import RowsOnDemand
from .tails import has_tails, log_tails

#: arguments of families that are no tensors of parameters
CONSTANTS = ("total_count", "coords", "likelihood", "families")
MOST_COUNTS = 1_000_000  # the largest count up to which a mass function is summed


def is_classes(d: Distribution) -> bool:
    """Return whether the distribution is one of classes."""
    if isinstance(d, RowsOnDemand):
        d = d.first
    return isinstance(d, torch.distributions.Categorical | torch.distributions.Bernoulli)


def is_discrete(d: Distribution) -> bool:
    """Return whether the distribution has a discrete support."""
    support: Any = d.support
    return bool(support.is_discrete)


def probabilities(d: Distribution) -> Tensor:
    """Return the probabilities of the classes, [..., K]; K = 2 for a Bernoulli distribution."""
    if isinstance(d, RowsOnDemand):
        d = d.whole
    if isinstance(d, torch.distributions.Categorical):
        return d.probs
    assert isinstance(d, torch.distributions.Bernoulli)
    # 1 - p loses digits where p is close to 1; the sigmoid of minus the logit does not
    logits = d.logits
    return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], -1)


def cdf(d: Distribution, x: Tensor) -> Tensor:
    """Return P(component <= x), broadcast over the batch of ``d``.

    SciPy or a sum of the mass function is used where torch has no cdf, and other forms where
    torch's loses the digits of small probabilities: it computes them as 1 minus a number next to 1.

    Raises:
        NotApplicable: If the distribution has neither a cdf nor a mass function to sum.
    """
    for c, form in LOWER_TAILS.items():
        if isinstance(d, c):
            return form(d, x)
    if isinstance(d, torch.distributions.StudentT):
        z = (x - d.loc) / d.scale
        df = d.df.expand(z.shape)
        cauchy = torch.atan2(torch.ones_like(z), -z) / math.pi  # SciPy's has 8 digits at df = 1
        general = torch.as_tensor(special.stdtr(df.cpu().numpy(), z.cpu().numpy())).to(z)
        return torch.where(df == 1, cauchy, general)
    if is_discrete(d):
        closed = closed_cdf(d, x)
        if closed is not None:
            return closed
        if has_only_mass(d):
            return _summed_mass(d, x)
        return d.cdf(x)
    if isinstance(d, torch.distributions.TransformedDistribution) and has_tails(d):
        # torch's cdf rejects numbers that round to an end of the support of its base distribution
        return log_tails(d, x)[0].exp()
    try:
        value = d.cdf(_nearest(d, x))
    except NotImplementedError:
        return log_tails(d, x)[0].exp()
    lower = getattr(d.support, "lower_bound", None)
    if lower is None:
        return value
    return torch.where(x <= lower, torch.zeros_like(value), value)


def _laplace_cdf(d: Any, x: Tensor) -> Tensor:
    z = (x - d.loc) / d.scale
    smaller = 0.5 * torch.exp(-z.abs())
    return torch.where(z > 0, 1 - smaller, smaller)


LOWER_TAILS: dict[type[Distribution], Callable[[Any, Tensor], Tensor]] = {
    torch.distributions.Normal: lambda d, x: standard_normal.cdf((x - d.loc) / d.scale),
    torch.distributions.Laplace: _laplace_cdf,
    torch.distributions.Cauchy: lambda d, x: (
        torch.atan2(torch.ones_like(x), (d.loc - x) / d.scale) / math.pi
    ),
    torch.distributions.Exponential: lambda d, x: -torch.expm1(-d.rate * x.clamp_min(0.0)),
}


def icdf(d: Distribution, p: Tensor) -> Tensor | None:
    """Return approximate quantiles of each component, broadcast over the batch of ``d``.

    Returns:
        The quantiles, or None if there is no closed form.
    """
    form = next((QUANTILES[c.__name__] for c in type(d).__mro__ if c.__name__ in QUANTILES), None)
    if form is not None:
        return torch.as_tensor(form(d, p.double().cpu().numpy())).to(p)
    try:
        return d.icdf(p)
    except NotImplementedError:
        return None


def _array(x: Tensor) -> Any:
    return x.detach().double().cpu().numpy()


QUANTILES: dict[str, Callable[[Any, Any], Any]] = {
    "Gamma": lambda d, p: special.gammaincinv(_array(d.concentration), p) / _array(d.rate),
    "InverseGamma": lambda d, p: _array(d.rate) / special.gammainccinv(_array(d.concentration), p),
    "Beta": lambda d, p: special.betaincinv(_array(d.concentration1), _array(d.concentration0), p),
    "MeanBeta": lambda d, p: special.betaincinv(
        _array(d.concentration1), _array(d.concentration0), p
    ),
}


def has_only_mass(d: Distribution) -> bool:
    """Return whether the cdf of these counts has to be summed from their mass function."""
    return not any(c.__name__ in FORMS for c in type(d).__mro__) and type(d).cdf is Distribution.cdf


def sd(d: Distribution) -> Tensor:
    """Return the standard deviation of each component.

    Scales are not squared, so that they may be too large or too small for their square to be finite
    and positive.
    """
    for c in type(d).__mro__:
        if c.__name__ in SD_OF_UNIT_SCALE:
            family: Any = d
            return SD_OF_UNIT_SCALE[c.__name__](family) * family.scale
    return d.variance.sqrt()


def _student_factor(d: Any) -> Tensor:
    tiny = torch.finfo(d.df.dtype).tiny
    return torch.where(d.df > 2, (d.df / (d.df - 2).clamp_min(tiny)).sqrt(), torch.inf)


SD_OF_UNIT_SCALE: dict[str, Callable[[Any], Any]] = {
    "Normal": lambda d: 1.0,
    "StudentT": _student_factor,
    "Laplace": lambda d: math.sqrt(2),
    "Logistic": lambda d: math.pi / math.sqrt(3),
    "SoftLaplace": lambda d: math.pi / 2,
    "Gumbel": lambda d: math.pi / math.sqrt(6),
    "HalfNormal": lambda d: math.sqrt(1 - 2 / math.pi),
}


def inside(d: Distribution, x: Tensor, *, open_above: bool = False) -> Tensor:
    """Return the nearest points of the support; its lower end is never one of them.

    Args:
        d: The distribution.
        x: The points.
        open_above: Whether the upper end of the support is none of them either.
    """
    lower = getattr(d.support, "lower_bound", None)
    upper = getattr(d.support, "upper_bound", None)
    if lower is not None:
        x = torch.maximum(x, torch.as_tensor(lower).to(x) + torch.finfo(x.dtype).tiny)
    if upper is not None:
        end = torch.as_tensor(upper).to(x)
        if open_above:
            end = torch.nextafter(end, torch.full_like(end, -torch.inf))
        x = torch.minimum(x, end)
    return x


def _nearest(d: Distribution, x: Tensor) -> Tensor:
    """Return the nearest point of the support, since torch raises outside it."""
    x = inside(d, x)
    if is_discrete(d):
        return x.floor()
    return x


def log_prob(d: Distribution, x: Tensor) -> Tensor:
    """Return the log density (or mass) of each component, and -inf outside the support."""
    family: Any = d
    if type(d).log_prob is torch.distributions.Normal.log_prob:
        # torch squares the scale, which overflows and underflows
        z = (x - family.loc) / family.scale
        return (-0.5 * LOG_2PI - 0.5 * z.square()) - distinct_rows(family.scale).log()
    if is_classes(d) or getattr(d.support, "lower_bound", None) is None:
        return d.log_prob(x)
    near = _nearest(d, x)
    if any(c.__name__ == "InverseGamma" for c in type(d).__mro__):
        value = _inverse_gamma(d, near)
    else:
        value = d.log_prob(near)
    return torch.where(family.support.check(x), value, torch.full_like(value, -torch.inf))


def _inverse_gamma(d: Any, x: Tensor) -> Tensor:
    """Return the log density; torch takes the logarithm of x^-2, which overflows."""
    a, b = d.concentration, d.rate
    return a * b.log() - torch.lgamma(a) - (a + 1) * x.log() - b / x


def check_reach(top: int) -> None:
    """Raise NotApplicable for a count up to which a mass function cannot be summed."""
    if top > MOST_COUNTS:
        raise NotApplicable(
            f"counts up to {MOST_COUNTS}",
            str(top),
            "use a distribution with a closed-form cdf, such as Poisson, or rescale the counts",
        )


def _summed_mass(d: Distribution, x: Tensor) -> Tensor:
    """Return P(component <= x) as a sum of the mass function."""
    finite = x[torch.isfinite(x)]
    top = int(finite.max().floor()) if finite.numel() else 0
    check_reach(top)
    shape = broadcast_shapes(d.batch_shape, x.shape)
    upto = x.expand(shape)
    total = torch.zeros(shape, dtype=x.dtype, device=x.device)
    for k in range(max(top, 0) + 1):
        count = torch.full(d.batch_shape, float(k), dtype=x.dtype, device=x.device)
        mass = log_prob(d, count).exp()
        total = total + torch.where(upto >= k, mass, torch.zeros_like(total))
    return torch.where(torch.isposinf(upto), torch.ones_like(total), total.clamp_max(1.0))


class JointRows(dist.TorchDistribution):
    """A joint distribution over rows, batch [draw] and event [n], that knows each row's."""

    def by_row(self) -> Distribution:
        """Return the distribution of each row, batch [draw, n]."""
        raise NotImplementedError


def marginals(d: Distribution) -> Distribution:
    """Return a joint distribution over rows as a batch of one-row distributions.

    Raises:
        NotApplicable: For a joint distribution that is neither independent nor Gaussian nor
            Student-t, and no ``JointRows``.
    """
    if isinstance(d, JointRows):
        return d.by_row()
    if isinstance(d, Independent):
        return d.base_dist
    if isinstance(
        d, torch.distributions.MultivariateNormal | torch.distributions.LowRankMultivariateNormal
    ):
        return dist.Normal(d.mean, d.variance.sqrt())
    if isinstance(d, dist.MultivariateStudentT):
        scale = d.scale_tril.square().sum(-1).sqrt()
        return dist.StudentT(d.df[..., None].expand(scale.shape), d.loc, scale)
    raise NotApplicable(
        "independent rows, or a joint Gaussian or Student-t distribution",
        type(d).__name__,
        "predict without joint=True, or give the site one of these",
    )


def parameters(d: Distribution) -> dict[str, Tensor]:
    """Return the tensors that the distribution was built from, expanded to its batch."""
    constraints: Any = d.arg_constraints
    names = set(constraints)
    for alternatives in (
        ("logits", "probs"),
        ("gate", "gate_logits"),
        ("scale_tril", "covariance_matrix", "precision_matrix"),
    ):
        here = [a for a in alternatives if a in names]
        given = [a for a in here if a in vars(d)]
        names -= set(here) - set((given or here)[:1])
    values = {}
    for name in sorted(names):
        value = getattr(d, name)
        if isinstance(value, Tensor):
            event = value.shape[value.ndim - constraints[name].event_dim :]
            values[name] = value.expand((*d.batch_shape, *event))
    return values


def like(d: Distribution) -> Tensor:
    """Return one of the distribution's parameters, whose dtype and device all results have.

    Raises:
        NotApplicable: For a distribution made from others (MixtureSameFamily, a mask), which has
            none.
    """
    if isinstance(d, RowsOnDemand):
        d = d.first
    return next(iter(_own_parameters(d).values()))


def _own_parameters(d: Distribution) -> dict[str, Tensor]:
    values = parameters(d)
    if not values:
        raise NotApplicable(
            "a distribution with tensor parameters",
            type(d).__name__,
            "use a plain Pyro distribution for y",
        )
    return values


def rebuilt(d: Distribution, new: dict[str, Tensor]) -> Distribution:
    """Return a distribution of the same family with other parameters.

    Raises:
        NotApplicable: For a family with further arguments than these parameters.
    """
    known = {name: getattr(d, name, None) for name in CONSTANTS if name not in new}
    constants = {name: value for name, value in known.items() if value is not None}
    kind: Any = type(d)
    try:
        found = kind(**new, **constants, validate_args=False)
        found._batch_shape = torch.Size(found.batch_shape)  # Pyro's zero-inflated ones have a tuple
        return found
    except TypeError:
        raise NotApplicable(
            "a distribution that its tensor parameters determine",
            kind.__name__,
            "use a plain Pyro distribution for y",
        ) from None


def take(d: Distribution, index: Any) -> Distribution:
    """Return the distribution at some rows: ``index`` applies to the last batch axis.

    Parameters that are the same number in memory for all rows stay so.
    """
    if isinstance(d, RowsOnDemand):
        return d.some(index)
    return rebuilt(d, {k: _at_rows(v, index) for k, v in _own_parameters(d).items()})


def _at_rows(value: Tensor, index: Any) -> Tensor:
    if isinstance(index, Tensor) and index.ndim == 1 and value.stride(1) == 0 and value.shape[1]:
        n = int(index.sum()) if index.dtype == torch.bool else len(index)
        return value[:, :1].expand(-1, n, *value.shape[2:])
    return value[:, index]


def distinct_rows(value: Tensor) -> Tensor:
    """Return [..., n] as [..., 1] where all rows are the same number in memory."""
    if value.ndim and value.stride(-1) == 0:
        return value[..., :1]
    return value


def components(d: Distribution, index: Tensor) -> Distribution:
    """Return the distribution at some draws: ``index`` applies to the first batch axis."""
    if isinstance(d, Independent):
        return Independent(components(d.base_dist, index), d.reinterpreted_batch_ndims)
    return rebuilt(d, {k: v[index] for k, v in _own_parameters(d).items()})


def stack(distributions: Sequence[Distribution]) -> Distribution:
    """Stack one distribution per draw into a single one with a leading draw axis."""
    first = distributions[0]
    if isinstance(first, Independent):
        inner = stack([cast(Independent, one).base_dist for one in distributions])
        return Independent(inner, first.reinterpreted_batch_ndims)
    each = [_own_parameters(one) for one in distributions]
    return rebuilt(first, {k: torch.stack([p[k] for p in each]) for k in each[0]})
