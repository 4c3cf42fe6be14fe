"""Values of discrete sites given the data: probabilities, draws, and the most probable ones.

Variables are eliminated one after another, and what each depends on then tells, in the reverse
order, its law given those that come after (Zhang & Poole 1994). On a chain this is forward
filtering and backward sampling, and with maxima in place of sums the algorithm of Viterbi (1967).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .chains import log_sum_exp
from .elimination import Factor, Name, Step, aligned, eliminated, factors_of_steps, taken
from .enumeration import Enumerated

__all__ = ["drawn", "most_probable", "probabilities"]


def probabilities(found: Enumerated) -> dict[str, Tensor]:
    """Return the probability of each value of each discrete site, ``{site: [*plates, K]}``."""
    return _in_steps(found, _probabilities)


def _probabilities(found: Enumerated) -> dict[str, Tensor]:
    steps = _steps(found, log_sum_exp)
    place = {step.variable: i for i, step in enumerate(steps)}
    beliefs: dict[int, Factor] = {}
    for step in reversed(steps):
        factor = step.factor
        axis = factor.dims.index(step.variable)
        total = log_sum_exp(factor.value, axis).unsqueeze(axis)
        some = torch.isfinite(total)  # what depends on values of probability 0 has none
        share = torch.where(some, (factor.value - torch.where(some, total, 0.0)).exp(), 0.0)
        others = [v for v in factor.variables if v != step.variable]
        if others:
            # all others are in the product of the one that is eliminated first
            first = beliefs[min(others, key=place.__getitem__)]
            weights = _summed_to(first, others)
            dims = _both(factor.dims, weights.dims)
            share = aligned(share, factor.dims, dims) * aligned(weights.value, weights.dims, dims)
            factor = replace(factor, dims=dims)
        beliefs[step.variable] = replace(factor, values=share, row=None)
    result = {}
    for variable, name in found.variables.items():
        own = _summed_to(beliefs[variable], [variable])
        result[name] = _laid(found, name, own.value, own.dims, variable)
    return result


def drawn(found: Enumerated) -> dict[str, Tensor]:
    """Return one draw of all discrete sites given the data, ``{site: places of its values}``."""
    return _in_steps(found, lambda f: _assigned(f, _steps(f, log_sum_exp), noise=True))


def most_probable(found: Enumerated) -> dict[str, Tensor]:
    """Return the most probable values of all sites together, ``{site: places of its values}``."""
    return _in_steps(found, lambda f: _assigned(f, _steps(f, _largest), noise=False))


def _largest(values: Tensor, axis: int) -> Tensor:
    return values.amax(axis)


def _in_steps(
    found: Enumerated, make: Callable[[Enumerated], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return what a function finds for each site, those of loops in the order of their steps.

    Args:
        found: What a run shows.
        make: Takes it with a site of its own for each step.
    """
    loops = {id(f.loop): f.loop for f in found.factors.values() if f.loop is not None}
    if not loops:
        return make(found)
    of_name = {name: number for number, name in found.variables.items()}
    start = 1 + max(number for loop in loops.values() for number in (*loop.own, *of_name.values()))
    new: dict[tuple[int, int], int] = {}

    def number(t: int, variable: int) -> int:
        return new.setdefault((t, variable), start + len(new))

    factors: dict[str, Factor] = {}
    for name, factor in found.factors.items():
        if factor.loop is None:
            factors[name] = factor
        else:
            each = enumerate(factors_of_steps(factor, number))
            factors |= {f"{name}\0{t}": one for t, one in each}
    names = found.variables
    steps = {f"{names[v]}\0{t}": one for (t, v), one in new.items()}
    looped = {names[v] for _, v in new}
    batch = {name: plates for name, plates in found.batch.items() if name not in looped}
    batch |= {each: found.batch[each.split("\0")[0]][1:] for each in steps}
    variables = {v: name for v, name in names.items() if name not in looped}
    variables |= {one: each for each, one in steps.items()}
    result = make(replace(found, factors=factors, variables=variables, batch=batch))
    for loop in loops.values():
        for name in looped & loop.variables.keys():
            rows = [result.pop(f"{name}\0{t}") for t in range(loop.steps)]
            result[name] = loop.in_time(torch.stack(rows))
    return result


def _steps(found: Enumerated, of_sum: Any) -> list[Step]:
    steps: list[Step] = []
    # a scale is outside of the sums, and changes no probability of a discrete site
    factors = [replace(factor, scale=1.0) for factor in found.factors.values()]
    eliminated(factors, of_sum, steps, chains=False)
    return steps


def _assigned(found: Enumerated, steps: Sequence[Step], noise: bool) -> dict[str, Tensor]:
    """Return the place of the value of each site, [*plates], among its values.

    Args:
        found: What a run shows.
        steps: The variables in the order of their elimination.
        noise: Whether they are drawn; the values of highest density otherwise.
    """
    chosen: dict[int, tuple[Tensor, tuple[Name, ...]]] = {}
    result = {}
    for step in reversed(steps):
        factor, variable = step.factor, step.variable
        for other in step.factor.variables:
            if other != variable:
                index, dims = chosen[other]
                factor = taken(_with_axes(factor, index, dims), other, index, dims)
        name = found.variables[variable]
        values = _laid(found, name, factor.value, factor.dims, variable)
        if noise:  # the largest of log probabilities with Gumbel noise is a draw
            uniform = torch.rand(values.shape, dtype=values.dtype, device=values.device)
            values = values - (-uniform.log()).log()
        index = values.argmax(-1)
        result[name] = index
        plates = found.batch[name]
        kept = [i for i, (_, size) in enumerate(plates) if size > 1]
        shape = [index.shape[i] for i in kept]
        chosen[variable] = index.reshape(shape), tuple(plates[i][0] for i in kept)
    return result


def _both(one: Sequence[Name], other: Sequence[Name]) -> tuple[Name, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _summed_to(factor: Factor, variables: Sequence[int]) -> Factor:
    """Return probabilities summed over all other variables."""
    axes = [i for i, dim in enumerate(factor.dims) if isinstance(dim, int) and dim not in variables]
    if not axes:
        return factor
    dims = tuple(dim for i, dim in enumerate(factor.dims) if i not in axes)
    return replace(factor, values=factor.value.sum(axes), dims=dims, row=None)


def _with_axes(factor: Factor, index: Tensor, of_index: Sequence[Name]) -> Factor:
    """Return a factor with the plates of an index, in which it may not differ."""
    sizes: Mapping[Name, int] = dict(zip(of_index, index.shape, strict=True))
    missing = [dim for dim in of_index if dim not in factor.dims]
    if not missing:
        return factor
    dims = (*missing, *factor.dims)
    shape = [sizes[dim] for dim in missing]
    return replace(factor, values=factor.value.expand(*shape, *factor.value.shape), dims=dims)


def _laid(
    found: Enumerated, name: str, values: Tensor, dims: Sequence[Name], variable: int
) -> Tensor:
    """Return values with the axes of a site's plates and, last, those of its own values."""
    plates = found.batch[name]
    form = (*(plate for plate, _ in plates), variable)
    shape = [size for _, size in plates]
    return aligned(values, dims, form).expand(*shape, -1)
