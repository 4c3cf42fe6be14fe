"""Derivatives of row log densities by all arguments of a likelihood together.

The arguments are its functions f_1, ..., f_K and its parameters that have a prior. Each such
parameter is taken as one more function, which is constant: the log of a positive one, the logit of
a probability, or the cutpoints themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...distributions.ordered_links import LINKS, cutpoint_slopes
from ...likelihoods.base import Likelihood, Theta
from ...likelihoods.categorical import Categorical
from ...likelihoods.from_distribution import FromDistribution
from ...likelihoods.ordinal import Ordinal
from ...likelihoods.parametric import Parametric, Predicted
from ...likelihoods.scored import NO_THETA, Scored

Rows = tuple[Tensor, Tensor, Tensor]


def has_joint_slopes(likelihood: Likelihood) -> bool:
    """Return whether ``JointSlopes`` serves the likelihood."""
    return isinstance(likelihood, Scored) and not isinstance(likelihood, FromDistribution)


def free_sites(likelihood: Likelihood) -> list[str]:
    """Return the names of the parameters that have a prior."""
    return [name for name, site in likelihood.sites().items() if not site.fixed]


def with_functions(likelihood: Any) -> Any:
    """Return the likelihood with parameters that have a prior as functions of x."""
    names = free_sites(likelihood)
    return likelihood.replaced({name: Predicted() for name in names}) if names else likelihood


class JointSlopes:
    """The row log densities of a likelihood at theta, as functions of all arguments.

    Args:
        likelihood: A likelihood with scores, bound to no rows.
        theta: One draw, {site: [*event]}.

    Attributes:
        constants: The arguments that are constant, [P].
    """

    def __init__(self, likelihood: Any, theta: Theta) -> None:
        self.likelihood, self.theta = likelihood, theta
        self.free = free_sites(likelihood)
        self.law = likelihood
        self.order = torch.arange(likelihood.latents)
        values = [theta[name].reshape(-1) for name in self.free]
        self.natural = torch.cat(values) if values else torch.zeros(0)
        self.constants = self.natural
        if isinstance(likelihood, Parametric):
            self.law = with_functions(likelihood)
            own = [1 + self.law.predicted.index(n) for n in likelihood.predicted]
            free = [1 + self.law.predicted.index(n) for n in self.free]
            self.order = torch.tensor([0, *own, *free])
            logs = [self._function(n, theta[n].reshape(-1)) for n in self.free]
            self.constants = torch.cat(logs) if logs else self.constants

    def _function(self, name: str, value: Tensor) -> Tensor:
        return value.log() if self.law.scale_of(name) == "log" else torch.logit(value)

    def by_natural(self) -> tuple[Tensor, Tensor]:
        """Return the first two derivatives of the constants by the parameters, [P] each."""
        x = self.natural
        first, second = torch.ones_like(x), torch.zeros_like(x)
        if isinstance(self.likelihood, Parametric):
            logs = [self.law.scale_of(name) == "log" for name in self.free]
            positive = torch.tensor(logs, dtype=torch.bool, device=x.device)
            rest = torch.where(positive, torch.ones_like(x), 1 - x)
            first = 1 / (x * rest)
            second = torch.where(positive, -first.square(), (2 * x - 1) * first.square())
        return first, second

    def rows(self, f: Tensor, y: Tensor, trials: Tensor | None, expected: bool) -> Rows:
        """Return the log densities of rows, with their gradients and Hessians.

        Args:
            f: The functions, [K, n].
            y: Targets [n].
            trials: The trials of the rows [n], of a binomial likelihood.
            expected: Whether the Hessian is minus the Fisher information, where it differs.

        Returns:
            [n], [J, n] and [J, J, n] for the J = K + P arguments, the functions first.
        """
        if isinstance(self.likelihood, Ordinal) and self.free:
            link = LINKS[self.likelihood.link]
            # the Hessian is negative semi-definite: Pratt (1981)
            return cutpoint_slopes(link, self.constants[:, None] - f[:1], y)
        law = self.law.for_rows(trials)
        given = f.new_empty(len(self.order), f.shape[-1])
        given[self.order] = torch.cat([f, self.constants.to(f)[:, None].expand(-1, f.shape[-1])])
        value = -law.score(NO_THETA, given, y)
        first, second = self._derivatives(law, given, y, expected)
        return value, first[self.order], second[self.order][:, self.order]

    def _derivatives(self, law: Any, f: Tensor, y: Tensor, expected: bool) -> tuple[Tensor, Tensor]:
        if expected or isinstance(law, Categorical):
            return -law.gradient(NO_THETA, f, y), -law.metric(NO_THETA, f).movedim(0, -1)
        first, diagonal = law.slopes(NO_THETA, f, y)
        if len(f) == 1:
            return first, diagonal[None]
        return first, _mixed(law, f, y) + torch.diag_embed(diagonal.mT).movedim(0, -1)


def _mixed(law: Any, f: Tensor, y: Tensor) -> Tensor:
    """Return the mixed second derivatives, [J, J, n], by autograd of the first; 0 elsewhere."""
    J = len(f)
    upper = f.new_zeros(J, J, f.shape[-1])
    with torch.enable_grad():
        at = f.detach().requires_grad_()
        p, location = law._at(NO_THETA, at)
        # of the score; the backward pass of each leaves out the others, unlike that of a stack
        first = law._slopes(p, location, y, "nll")
        for j, coordinate in enumerate(law._coordinates()[:-1]):
            total = first[coordinate].sum()
            (row,) = torch.autograd.grad(total, at, retain_graph=True, materialize_grads=True)
            upper[j, j + 1 :] = -row[j + 1 :]
    return upper + upper.transpose(0, 1)


def starting_constants(
    likelihood: Any, y: Tensor, trials: Tensor | None
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the constants of least score as functions [K], and as parameters that have a prior.

    Args:
        likelihood: A likelihood with scores.
        y: Targets [n].
        trials: The trials of the rows [n], of a binomial likelihood.
    """
    law, free = with_functions(likelihood), free_sites(likelihood)
    found = law.for_rows(trials).initial(y)
    if not isinstance(likelihood, Parametric):
        return found, {}
    own = [0, *(1 + law.predicted.index(n) for n in likelihood.predicted)]
    values = {}
    for name in free:
        u = found[1 + law.predicted.index(name)]
        values[name] = u.exp() if law.scale_of(name) == "log" else torch.sigmoid(u)
    return found[own], values
