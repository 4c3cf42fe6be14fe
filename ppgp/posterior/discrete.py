"""The discrete sites of a program given the data, which the fit has summed out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..density.assignments import drawn, most_probable, probabilities
from ..density.enumeration import Enumerated
from ..density.handlers import quietly
from ..errors import NotApplicable, UnknownName
from ..runtime.seeding import seeded

__all__ = ["DiscreteSites", "discrete_sites"]

Indices = Callable[[Enumerated], dict[str, Tensor]]


@dataclass(frozen=True, eq=False)
class DiscreteSites:
    """A discrete site given the data, or the steps ``z_0, z_1, ...`` of a loop as one axis.

    Given the other sites of a draw, all discrete sites have one joint law: ``sample`` draws from
    it, and ``most_probable`` is where it is largest, so that two sites of one call (or of one seed)
    belong together.

    Attributes:
        sites: The names of the sites, in the order of the steps.
        values: The values of a site, [K, *event].
        probabilities: Of each value given the data, for each draw of the other sites,
            [chain, draw, *steps, *plates, K]. Steps are an axis where the name is that of a loop.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def program(y):
        ...     m = pyro.sample("m", dist.Normal(torch.tensor(3.0), 1.0))
        ...     with pyro.plate("rows", len(y)):
        ...         z = pyro.sample("z", dist.Bernoulli(0.5))
        ...         pyro.sample("y", dist.Normal(z * m, 1.0), obs=y)
        >>> y = torch.tensor([-0.2, 0.4, 2.8])
        >>> posterior = ppgp.fit(program, {"y": y}, inference.MAP(), progress=False)
        >>> z = posterior.discrete("z")
        >>> z.probabilities.shape, z.probabilities[0, 0, :, 1].numpy().round(2)
        (torch.Size([1, 1, 3, 2]), array([0.01, 0.06, 0.98], dtype=float32))
        >>> z.most_probable()
        tensor([[[0., 0., 1.]]])
        >>> z
        <DiscreteSites of z: probabilities [1, 1, 3, 2]>
    """

    sites: tuple[str, ...]
    values: Tensor
    probabilities: Tensor
    _of_draws: Callable[[Indices], dict[str, Tensor]]
    _stacked: Callable[[dict[str, Tensor]], Tensor]

    def __repr__(self) -> str:
        first, *more = self.sites
        names = f"{first} to {more[-1]}" if more else first
        return f"<DiscreteSites of {names}: probabilities {list(self.probabilities.shape)}>"

    def sample(self, *, seed: int = 0) -> Tensor:
        """Return one draw of the site for each draw of the others.

        Args:
            seed: The seed. Sites drawn from the same seed are one joint draw.

        Returns:
            [chain, draw, *steps, *plates, *event].
        """
        with quietly(), seeded(seed):
            return self._chosen(drawn)

    def most_probable(self) -> Tensor:
        """Return the value of the site where all discrete sites together are most probable.

        For a hidden Markov model it is the path of Viterbi (1967), one for each draw.

        Returns:
            [chain, draw, *steps, *plates, *event].
        """
        with quietly():
            return self._chosen(most_probable)

    def _chosen(self, indices: Indices) -> Tensor:
        with torch.no_grad():
            return self.values[self._stacked(self._of_draws(indices))]


def discrete_sites(
    model: Any,
    theta: dict[str, Tensor],
    data: Mapping[str, Any],
    shape: tuple[int, int],
    name: str,
) -> DiscreteSites:
    """Return a discrete site of a program given the data; see ``Posterior.discrete``.

    Args:
        model: The Program.
        theta: ``{site or param: [chain * draw, *event]}``.
        data: The arguments of the fit.
        shape: (chains, draws per chain).
        name: Of a site, or what the names of the steps of a loop have in common.
    """
    first = {site: value[0] for site, value in theta.items()}
    with quietly(), torch.no_grad():
        found = model.enumerated(first, data)
    names, steps = _named(name, found, list(theta))
    values = [found.support[each] for each in names]
    batches = {tuple(size for _, size in found.batch[each]) for each in names}
    if len(batches) > 1 or any(not torch.equal(v, values[0]) for v in values):
        raise NotApplicable(
            f"steps of {name!r} of the same values and plates",
            f"others at {names[-1]!r}",
            f"name one step, such as {names[0]!r}",
        )

    def of_draws(make: Indices) -> dict[str, Tensor]:
        return model.of_discrete(theta, data, make)

    def stacked(each: dict[str, Tensor]) -> Tensor:
        parts = [each[site].reshape(*shape, *each[site].shape[1:]) for site in names]
        return torch.stack(parts, 2) if steps else parts[0]

    with quietly(), torch.no_grad():
        shares = stacked(of_draws(probabilities)).to(next(iter(theta.values())).dtype)
    return DiscreteSites(tuple(names), values[0], shares, of_draws, stacked)


def _named(name: str, found: Enumerated, others: Sequence[str]) -> tuple[list[str], bool]:
    """Return the discrete sites of a name, and whether they are steps of a loop."""
    every = list(found.support)
    if not every:
        raise NotApplicable("a program with discrete latent sites", "none", "read posterior.draws")
    if name in found.support:
        return [name], False
    pattern = re.compile(re.escape(name) + r"[_.\-\[]?(\d+)\]?")
    steps = {each: match for each in every if (match := pattern.fullmatch(each))}
    if steps:
        return sorted(steps, key=lambda each: int(steps[each][1])), True
    if name in others:
        raise NotApplicable(
            "a discrete site, which the fit has summed out",
            f"{name!r}, which was drawn or optimised",
            f"read posterior.draws[{name!r}]",
        )
    raise UnknownName("discrete site", name, every)
