"""A parameter of a likelihood that is a function of x."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import NamedArguments
from ..priors import PriorLike, with_plain_fields


@dataclass(frozen=True)
class Predicted(NamedArguments):
    """Another function of x in place of a number or a prior: the parameter is level * exp(f_k(x)).

    A probability is sigmoid(logit(level) + f_k(x)).

    Boosting and networks find the functions f_k, with level 1. In an SVGP each f_k is a Gaussian
    process of mean 0, and the level is a site.

    Args:
        level: Prior or number of the level in an SVGP; None: the default prior of the parameter.
    """

    level: PriorLike | None = None

    def __post_init__(self) -> None:
        with_plain_fields(self)
