"""What torch's distributions lack, component by component: cdf, the mass function summed, rows taken out, draws stacked."""

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
from .cholesky import LOG_2PI
from .counts import FORMS, closed_cdf
from .tails import has_tails, log_tails

MOST_COUNTS = 1_000_000  # a mass function is never summed further than this


def is_classes(d: Distribution) -> bool:
    return isinstance(d, torch.distributions.Categorical | torch.distributions.Bernoulli)


def is_discrete(d: Distribution) -> bool:
    return bool(d.support.is_discrete)  # type: ignore[union-attr]


def probabilities(d: Distribution) -> Tensor:
    """[..., K] of a Categorical, [..., 2] of a Bernoulli."""
    if isinstance(d, torch.distributions.Categorical):
        return d.probs
    assert isinstance(d, torch.distributions.Bernoulli)
    logits = (
        d.logits
    )  # 1 - p loses digits where p is close to 1; the sigmoid of minus the logit does not
    return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], -1)


def cdf(d: Distribution, x: Tensor) -> Tensor:
    """P(component <= x), broadcast over the batch of ``d``; SciPy or the sum of the mass function where torch has none.

    Raises:
        NotApplicable: if the distribution has no cdf, mass function included.
    """
    if isinstance(d, torch.distributions.Normal):
        return torch.special.ndtr((x - d.loc) / d.scale)
    if isinstance(d, torch.distributions.StudentT):
        z = (x - d.loc) / d.scale
        df = d.df.expand(z.shape)
        return torch.as_tensor(special.stdtr(df.cpu().numpy(), z.cpu().numpy())).to(z)
    if is_discrete(d):
        closed = closed_cdf(d, x)
        if closed is not None:
            return closed
        return _summed_mass(d, x) if has_only_mass(d) else d.cdf(x)
    if isinstance(d, torch.distributions.TransformedDistribution) and has_tails(d):
        return log_tails(d, x)[
            0
        ].exp()  # torch's cdf refuses numbers that round to an end of the support of its base
    try:
        value = d.cdf(_nearest(d, x))
    except NotImplementedError:
        return log_tails(d, x)[0].exp()
    lower = getattr(d.support, "lower_bound", None)
    return value if lower is None else torch.where(x <= lower, torch.zeros_like(value), value)


def icdf(d: Distribution, p: Tensor) -> Tensor | None:
    """The quantiles of each component, broadcast over the batch of ``d``, to some digits; None where there is no closed form."""
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
}


def has_only_mass(d: Distribution) -> bool:
    """Whether the cdf of these counts is the sum of their mass function, for want of another."""
    return not any(c.__name__ in FORMS for c in type(d).__mro__) and type(d).cdf is Distribution.cdf


def sd(d: Distribution) -> Tensor:
    """Standard deviation of each component, without the square of a scale that over- or underflows."""
    factor = next(
        (SD_OF_UNIT_SCALE[c.__name__] for c in type(d).__mro__ if c.__name__ in SD_OF_UNIT_SCALE),
        None,
    )
    if factor is not None:
        return factor(d) * d.scale  # type: ignore[attr-defined]
    return d.variance.sqrt()


def _student_factor(d: Any) -> Tensor:
    return torch.where(
        d.df > 2, (d.df / (d.df - 2).clamp_min(torch.finfo(d.df.dtype).tiny)).sqrt(), torch.inf
    )


SD_OF_UNIT_SCALE: dict[str, Callable[[Any], Any]] = {
    "Normal": lambda d: 1.0,
    "StudentT": _student_factor,
    "Laplace": lambda d: math.sqrt(2),
    "Logistic": lambda d: math.pi / math.sqrt(3),
    "SoftLaplace": lambda d: math.pi / 2,
    "Gumbel": lambda d: math.pi / math.sqrt(6),
    "HalfNormal": lambda d: math.sqrt(1 - 2 / math.pi),
}


def _nearest(d: Distribution, x: Tensor) -> Tensor:
    """The point of the support next to x: outside it torch raises."""
    lower, upper = (getattr(d.support, end, None) for end in ("lower_bound", "upper_bound"))
    if lower is not None:
        x = torch.maximum(x, torch.as_tensor(lower).to(x) + torch.finfo(x.dtype).tiny)
    if upper is not None:
        x = torch.minimum(x, torch.as_tensor(upper).to(x))
    return x.floor() if is_discrete(d) else x


def log_prob(d: Distribution, x: Tensor) -> Tensor:
    """Log density (or mass) of each component; -inf, not an exception, for a number outside the support."""
    if (
        type(d).log_prob is torch.distributions.Normal.log_prob
    ):  # torch squares the scale, which over- and underflows
        z = (x - d.loc) / d.scale  # type: ignore[attr-defined]
        return (-0.5 * LOG_2PI - 0.5 * z.square()) - d.scale.log()  # type: ignore[attr-defined]
    if is_classes(d) or getattr(d.support, "lower_bound", None) is None:
        return d.log_prob(x)
    near = _nearest(d, x)
    value = (
        _inverse_gamma(d, near)
        if any(c.__name__ == "InverseGamma" for c in type(d).__mro__)
        else d.log_prob(near)
    )
    return torch.where(d.support.check(x), value, torch.full_like(value, -torch.inf))  # type: ignore[union-attr]


def _inverse_gamma(d: Any, x: Tensor) -> Tensor:
    """Log density; torch takes the logarithm of x^-2, which overflows."""
    a, b = d.concentration, d.rate
    return a * b.log() - torch.lgamma(a) - (a + 1) * x.log() - b / x


def check_reach(top: int) -> None:
    """Raises NotApplicable for a count too large for a mass function to be summed up to it."""
    if top > MOST_COUNTS:
        raise NotApplicable(
            f"counts up to {MOST_COUNTS}",
            str(top),
            "use a law whose cdf is closed, such as Poisson, or rescale the counts",
        )


def _summed_mass(d: Distribution, x: Tensor) -> Tensor:
    finite = x[torch.isfinite(x)]
    top = int(finite.max().floor()) if finite.numel() else 0
    check_reach(top)
    shape = torch.broadcast_shapes(d.batch_shape, x.shape)
    upto = x.expand(shape)
    total = torch.zeros(shape, dtype=x.dtype, device=x.device)
    for k in range(max(top, 0) + 1):
        mass = log_prob(
            d, torch.full(d.batch_shape, float(k), dtype=x.dtype, device=x.device)
        ).exp()
        total = total + torch.where(upto >= k, mass, torch.zeros_like(total))
    return torch.where(torch.isposinf(upto), torch.ones_like(total), total.clamp_max(1.0))


def marginals(d: Distribution) -> Distribution:
    """A joint law over rows as the batch of its one-row laws.

    Raises:
        NotApplicable: for a joint law that is neither independent nor Gaussian.
    """
    if isinstance(d, Independent):
        return d.base_dist
    if isinstance(d.mean, Tensor) and hasattr(d, "covariance_matrix"):
        return dist.Normal(d.mean, d.variance.sqrt())
    raise NotApplicable(
        "independent rows or a joint Gaussian", type(d).__name__, "predict without joint=True"
    )


def parameters(d: Distribution) -> dict[str, Tensor]:
    """The tensors that the distribution was built from, expanded to its batch."""
    names = set(d.arg_constraints)
    for alternatives in (
        ("logits", "probs"),
        ("scale_tril", "covariance_matrix", "precision_matrix"),
    ):
        here = [a for a in alternatives if a in names]
        kept = next((a for a in here if a in vars(d)), here[0] if here else None)
        names -= set(here) - {kept}
    values = {k: v for k in sorted(names) if isinstance(v := getattr(d, k), Tensor)}
    event = {k: v.shape[v.ndim - d.arg_constraints[k].event_dim :] for k, v in values.items()}  # type: ignore[union-attr]
    return {k: v.expand((*d.batch_shape, *event[k])) for k, v in values.items()}


def like(d: Distribution) -> Tensor:
    """One of its parameters: whose dtype and device every figure has.

    Raises:
        NotApplicable: for a law made from others (MixtureSameFamily, a mask), which keeps none.
    """
    return next(iter(_own_parameters(d).values()))


def _own_parameters(d: Distribution) -> dict[str, Tensor]:
    values = parameters(d)
    if not values:
        raise NotApplicable(
            "a law with tensor parameters", type(d).__name__, "use a plain Pyro distribution for y"
        )
    return values


def rebuilt(d: Distribution, new: dict[str, Tensor]) -> Distribution:
    """The same law with other parameters."""
    count = getattr(d, "total_count", None)
    constants = {} if count is None or "total_count" in new else {"total_count": count}
    kind: Any = type(d)
    return kind(**new, **constants, validate_args=False)


def take(d: Distribution, index: Any) -> Distribution:
    """The law at some rows: ``index`` applies to the last batch axis."""
    return rebuilt(d, {k: v[:, index] for k, v in _own_parameters(d).items()})


def components(d: Distribution, index: Tensor) -> Distribution:
    """The law at some draws: ``index`` applies to the first batch axis."""
    if isinstance(d, Independent):
        return Independent(components(d.base_dist, index), d.reinterpreted_batch_ndims)
    return rebuilt(d, {k: v[index] for k, v in _own_parameters(d).items()})


def stack(laws: Sequence[Distribution]) -> Distribution:
    """One law with a leading draw axis, from one law a draw."""
    if isinstance(laws[0], Independent):
        inner = stack([cast(Independent, law).base_dist for law in laws])
        return Independent(inner, laws[0].reinterpreted_batch_ndims)
    each = [_own_parameters(law) for law in laws]
    return rebuilt(laws[0], {k: torch.stack([p[k] for p in each]) for k in each[0]})
