"""A parameter of a likelihood that is a function of x."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import NamedArguments
from ..priors import PriorLike, with_plain_fields


@dataclass(frozen=True)
class Predicted(NamedArguments):
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
