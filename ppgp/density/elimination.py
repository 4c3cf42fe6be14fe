"""Sum discrete variables out of a product of factors, in log space.

Variables are eliminated one after another (Zhang & Poole 1994), inside plates first: the copies of
a plate are independent given the variables outside, so that their log sums add up (Obermeyer et al.
2019, algorithm 1). Where each variable meets only its neighbours, as in a hidden Markov model, the
cost is linear in their number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, cast

import torch
from torch import Tensor

from ..errors import NotApplicable
from .chains import LEAST_STEPS, log_of_chain, log_of_paths, log_sum_exp
from .graph.enumerated_steps import UNROLLED, LoopOfSites

MOST_STATES = 4096  # joint states of the discrete sites of a step of a loop
#: an axis of a factor: a plate by its name, or a discrete variable by its number
Name = str | int
Plates = frozenset[str]


@dataclass(frozen=True, eq=False)
class Factor:
    """A factor in log space.

    Attributes:
        values: [*dims]; or, with a ``row``, several such factors [row, *dims].
        dims: The axes.
        plates: The plates that the factor is in, with those of size 1, which have no axis.
        scale: Multiplies the log of the sum to which the factor belongs: a number, or one for each
            entry of the plates among the axes, in the order of their names.
        row: Its place in ``values``; None where these are its own.
        loop: Of a site of the steps of a loop, of which ``values`` has all but the first, with the
            axis ``loop.plate``: of size 1 where they are the same. None for any other site.
        first: The factor of the first step.
    """

    values: Tensor
    dims: tuple[Name, ...]
    plates: Plates
    scale: Tensor | float = 1.0
    row: int | None = None
    loop: LoopOfSites | None = None
    first: Factor | None = None

    @property
    def value(self) -> Tensor:
        """The values of this factor alone, [*dims]."""
        return self.values if self.row is None else self.values[self.row]

    @property
    def variables(self) -> list[int]:
        """The discrete variables of the factor."""
        return [dim for dim in self.dims if isinstance(dim, int)]


@dataclass(frozen=True, eq=False)
class Step:
    """A variable that was eliminated, with the product of the factors that it had then.

    Attributes:
        variable: The number of the variable.
        factor: The product; its other variables are eliminated later.
    """

    variable: int
    factor: Factor


Reduce = Callable[[Tensor, int], Tensor]


def eliminated(
    factors: Iterable[Factor],
    of_sum: Reduce = log_sum_exp,
    steps: list[Step] | None = None,
    chains: bool = True,
) -> list[Factor]:
    """Return factors without variables, whose sum over all entries is the log of the sum.

    Scales are applied.

    Args:
        factors: The factors.
        of_sum: (values, axis) -> values without the axis: the logarithm of a sum, or the largest.
        steps: Receives the variables in the order in which they are eliminated.
        chains: Whether long chains are summed as one, which takes derivatives of its own and so
            does not run under vmap.

    Raises:
        NotApplicable: If a factor in two plates joins variables of one plate each, so that all
            variables of both depend on one another; or if the factors of one sum have several
            scales.
    """
    every = list(factors)
    home: dict[int, Plates] = {}
    for factor in every:
        for variable in factor.variables:
            home[variable] = home.get(variable, factor.plates) & factor.plates
    if any(factor.loop is not None for factor in every):
        every = _without_loops(every, home, of_sum, chains)
    return _from_the_inside(every, home, frozenset(), of_sum, steps, chains)


def _from_the_inside(
    factors: Iterable[Factor],
    home: Mapping[int, Plates],
    kept: Collection[int],
    of_sum: Reduce,
    steps: list[Step] | None,
    chains: bool,
) -> list[Factor]:
    """Eliminate variables, those in the innermost plates first; see ``eliminated``.

    Args:
        factors: The factors.
        home: ``{variable: the plates that it is in}``.
        kept: Variables that stay.
        of_sum: See ``eliminated``.
        steps: See ``eliminated``.
        chains: See ``eliminated``.
    """
    # what each plate set still has
    waiting: dict[Plates, list[Factor]] = {}
    for factor in factors:
        waiting.setdefault(factor.plates, []).append(factor)
    own = {v: plates for v, plates in home.items() if v not in kept}
    done: list[Factor] = []
    while waiting:
        inner = max(waiting, key=len)
        group = waiting.pop(inner)
        for part, variables in _components(group, own, inner):
            found = part[0]
            if variables:
                found = _without(part, variables, of_sum, steps, chains)
            if not found.variables:
                done.append(_scaled(found))
                continue
            outer = reduce(or_, (home[v] for v in found.variables))
            if outer == inner and not own.keys() >= {*found.variables}:
                done.append(found)
                continue
            if outer == inner:
                plates = ", ".join(sorted(inner))
                raise NotApplicable(
                    "discrete sites of which those in different plates do not meet in a third site",
                    f"such a site in the plates {plates}",
                    "draw one of the discrete sites inside both plates, or outside of both",
                )
            waiting.setdefault(outer, []).append(over_plates(found, outer))
    return done


def _without_loops(
    factors: list[Factor], home: Mapping[int, Plates], of_sum: Reduce, chains: bool
) -> list[Factor]:
    """Return factors in place of those of loops, whose discrete sites are summed out.

    Args:
        factors: The factors.
        home: ``{variable: the plates that it is in}``.
        of_sum: See ``eliminated``.
        chains: See ``eliminated``.
    """
    found = [factor for factor in factors if factor.loop is None]
    loops = {id(factor.loop): factor.loop for factor in factors if factor.loop is not None}
    for key, loop in loops.items():
        own = [factor for factor in factors if id(factor.loop) == key]
        scale = _common_scale([cast(Factor, factor.first) for factor in own])
        firsts = [replace(cast(Factor, f.first), scale=1.0) for f in own]
        inside = {v: plates - {loop.plate} for v, plates in home.items()}
        links = loop.before
        ends = {*links, *links.values()}
        rest = [rest_of(f, ends.isdisjoint(f.variables)) for f in own]
        kept = ends | {v for v in home if v not in loop.own}
        rest = _from_the_inside(rest, home, kept, of_sum, None, False)
        firsts = _from_the_inside(firsts, inside, kept, of_sum, None, False)
        parts = [f for f in (*rest, *firsts) if ends.isdisjoint(f.variables)]
        found += [replace(f, scale=scale) for f in parts]
        rest = [f for f in rest if not ends.isdisjoint(f.variables)]
        firsts = [f for f in firsts if not ends.isdisjoint(f.variables)]
        for group in _chains_of(links, [*rest, *firsts]):
            here = [f for f in rest if not group.isdisjoint(f.variables)]
            begin = [f for f in firsts if not group.isdisjoint(f.variables)]
            states = {now: past for now, past in links.items() if now in group}
            _check_plates_of_chain(states, home)
            found.append(replace(_sum_of_loop(loop, states, begin, here, chains), scale=scale))
    return found


def _chains_of(links: Mapping[int, int], factors: Sequence[Factor]) -> list[set[int]]:
    """Return the variables, now and before, of each chain that factors do not connect to others."""
    groups: list[set[int]] = [{now, past} for now, past in links.items()]
    for factor in factors:
        own = set(factor.variables)
        touched = [group for group in groups if not group.isdisjoint(own)]
        groups = [group for group in groups if group.isdisjoint(own)]
        if touched:
            groups.append(set().union(*touched))
    return groups


def _check_plates_of_chain(states: Mapping[int, int], home: Mapping[int, Plates]) -> None:
    """Raise NotApplicable for chains in several plates, which are no chain of joint states."""
    plates = [home[now] for now in states]
    if any(each != plates[0] for each in plates):
        raise NotApplicable(
            "discrete sites of the steps of ppgp.scan in the same plates, where data join them",
            "one in other plates than another",
            "draw them in the same plates",
        )


def _sum_of_loop(
    loop: LoopOfSites,
    states: Mapping[int, int],
    firsts: Sequence[Factor],
    rest: Sequence[Factor],
    chains: bool,
) -> Factor:
    """Return the log of the sum over the joint states of all steps.

    Args:
        loop: The loop.
        states: ``{variable: that of the step before}``.
        firsts: The factors of the first step.
        rest: The factors of the other steps.
        chains: See ``eliminated``.

    Raises:
        NotApplicable: If there are very many joint states.
    """
    now, past = tuple(states), tuple(states.values())
    size: dict[Name, int] = {}
    for factor in (*firsts, *rest):
        for dim, n in zip(factor.dims, factor.value.shape, strict=True):
            size[dim] = max(n, size.get(dim, 1))
    size |= {past: size[now] for now, past in states.items()}
    batch = tuple(dim for dim in size if dim not in (loop.plate, *now, *past))
    shape = [size[dim] for dim in batch]
    K = math.prod(size[v] for v in now)
    if K > MOST_STATES:
        raise NotApplicable(
            f"at most {MOST_STATES:,} joint states in a step of ppgp.scan",
            f"{K:,}, of {len(now)} discrete sites",
            UNROLLED,
        )

    def joint(factors: Sequence[Factor], dims: tuple[Name, ...], ends: list[int]) -> Tensor:
        """Return a sum with the axes of the discrete sites in one."""
        whole = [*(size[dim] for dim in dims[1:])]
        total: Tensor | float = 0.0
        for factor in factors:
            total = total + aligned(factor.value, factor.dims, dims)
        found = torch.as_tensor(total, dtype=torch.float64)
        return found.expand(len(found), *whole).reshape(len(found), *shape, *ends)

    single = joint(
        [replace(f, values=f.value[None], dims=(loop.plate, *f.dims), row=None) for f in firsts],
        (loop.plate, *batch, *now),
        [K],
    )
    alone = [f for f in rest if not set(past) & {*f.variables}]
    pairs = joint(
        [f for f in rest if f not in alone] or [_nothing(loop, firsts[0])],
        (loop.plate, *batch, *past, *now),
        [K, K],
    )
    others = single.new_zeros(1, *shape, K)
    if alone:
        others = joint(alone, (loop.plate, *batch, *now), [K])
    single = torch.cat([single, others.expand(loop.steps - 1, *shape, K)])
    same = len(pairs) == 1
    which = (0,) * (loop.steps - 1) if same else tuple(range(loop.steps - 1))
    total = (log_of_chain if chains else log_of_paths)(single, pairs, which)
    return Factor(total, batch, firsts[0].plates)


def rest_of(factor: Factor, whole: bool = True) -> Factor:
    """Return the factor of all steps of a loop but the first, without its scale.

    Args:
        factor: That of a site of the loop.
        whole: Whether it has an entry for each step, also where they are the same.
    """
    loop = cast(LoopOfSites, factor.loop)
    values = factor.values
    if whole:
        shape = list(values.shape)
        shape[factor.dims.index(loop.plate)] = loop.steps - 1
        values = values.expand(shape)
    return replace(factor, values=values, loop=None, first=None, scale=1.0)


def _nothing(loop: LoopOfSites, like: Factor) -> Factor:
    """Return a factor of 1."""
    return Factor(like.value.new_zeros(1), (loop.plate,), like.plates | {loop.plate})


def in_a_plate(factor: Factor) -> Factor:
    """Return the factor of a site of a loop whose steps are the elements of a plate."""
    loop, first = cast(LoopOfSites, factor.loop), cast(Factor, factor.first)
    dims = (loop.plate, *(dim for dim in factor.dims if dim != loop.plate))
    rest = aligned(factor.value, factor.dims, dims)
    begin = aligned(first.value[None], (loop.plate, *first.dims), dims)
    shape = [max(a, b) for a, b in zip(rest.shape[1:], begin.shape[1:], strict=True)]
    whole = torch.cat([begin.expand(1, *shape), rest.expand(loop.steps - 1, *shape)])
    return Factor(loop.in_time(whole), dims, factor.plates)


def factors_of_steps(factor: Factor, numbers: Callable[[int, int], int]) -> list[Factor]:
    """Return the factors of each step of a loop, in the order of the loop.

    Args:
        factor: That of a site of a loop.
        numbers: (step, variable) -> the number of the variable in a step.
    """
    loop, first = cast(LoopOfSites, factor.loop), cast(Factor, factor.first)
    past = {before: now for now, before in loop.before.items()}

    def in_step(t: int, values: Tensor, dims: tuple[Name, ...]) -> Factor:
        own = loop.own
        named: list[Name] = []
        for dim in dims:
            if isinstance(dim, int) and dim in own:
                dim = numbers(t - (dim in past), past.get(dim, dim))
            named.append(dim)
        return Factor(values, tuple(named), first.plates, first.scale)

    dims = tuple(dim for dim in factor.dims if dim != loop.plate)
    rest = rest_of(factor).values.unbind(factor.dims.index(loop.plate))
    return [
        in_step(0, first.value, first.dims),
        *(in_step(t, values, dims) for t, values in enumerate(rest, 1)),
    ]


def _components(
    group: list[Factor], home: Mapping[int, Plates], here: Plates
) -> list[tuple[list[Factor], list[int]]]:
    """Return the factors that variables of these plates connect, and these variables."""
    parent: dict[int, int] = {}

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    own = [[v for v in factor.variables if home.get(v) == here] for factor in group]
    for variables in own:
        for v in variables:
            parent.setdefault(v, v)
        for v in variables[1:]:
            parent[root(v)] = root(variables[0])
    parts: dict[Any, tuple[list[Factor], dict[int, None]]] = {}
    for i, (factor, variables) in enumerate(zip(group, own, strict=True)):
        key = root(variables[0]) if variables else ("alone", i)
        part = parts.setdefault(key, ([], {}))
        part[0].append(factor)
        part[1].update(dict.fromkeys(variables))
    return [(part, sorted(variables)) for part, variables in parts.values()]


def _scaled(factor: Factor) -> Factor:
    """Return a factor without variables, multiplied by its scale."""
    if isinstance(factor.scale, int | float) and factor.scale == 1:
        return replace(factor, values=factor.value, row=None)
    value, dims, scale = factor.value, factor.dims, factor.scale
    if isinstance(scale, Tensor) and scale.ndim:
        dims = tuple(sorted(dims, key=str))
        value = aligned(value, factor.dims, dims)
        if scale.ndim != value.ndim:
            raise several_scales()
    return replace(factor, values=value * scale, dims=dims, scale=1.0, row=None)


def over_plates(factor: Factor, outer: Plates) -> Factor:
    """Return the product over the copies of plates that are not among the outer ones."""
    axes = [i for i, dim in enumerate(factor.dims) if isinstance(dim, str) and dim not in outer]
    if axes and isinstance(factor.scale, Tensor) and factor.scale.ndim:
        raise several_scales()
    value = factor.value.sum(axes) if axes else factor.value
    dims = tuple(dim for i, dim in enumerate(factor.dims) if i not in axes)
    return replace(factor, values=value, dims=dims, plates=outer, row=None)


def several_scales() -> NotApplicable:
    """Return the error for a sum whose factors count differently."""
    return NotApplicable(
        "one scale (pyro.poutine.scale, or a subsampled plate) at a discrete site and at all that "
        "depends on it",
        "several",
        "put all of them inside the same scale, or sum the discrete site out in the program",
    )


def _common_scale(factors: Sequence[Factor]) -> Tensor | float:
    first, *others = (factor.scale for factor in factors)
    for other in others:
        if other is first:
            continue
        if isinstance(first, Tensor) or isinstance(other, Tensor):
            a, b = torch.as_tensor(first), torch.as_tensor(other)
            same = a.shape == b.shape and bool((a == b).all())
        else:
            same = first == other
        if not same:
            raise several_scales()
    return first


def _without(
    factors: list[Factor],
    variables: list[int],
    of_sum: Reduce,
    steps: list[Step] | None,
    chains: bool,
) -> Factor:
    """Return the one factor that is left when variables are eliminated."""
    scale = _common_scale(factors)
    plates = factors[0].plates
    graph = _Graph(factors, variables, of_sum, steps)
    if chains:
        graph.eliminate_twigs()
        order = graph.chain()
        if order is not None:
            values, dims = graph.sum_of_chain(order)
            return Factor(values, dims, plates, scale)
    left = graph.eliminate_all()
    return replace(product_of(left), plates=plates, scale=scale)


class _Graph:
    """The factors of variables that are being eliminated.

    Args:
        factors: The factors.
        variables: Those to be eliminated.
        of_sum: See ``eliminated``.
        steps: See ``eliminated``.
    """

    def __init__(
        self,
        factors: list[Factor],
        variables: list[int],
        of_sum: Reduce,
        steps: list[Step] | None,
    ) -> None:
        self.of_sum, self.steps = of_sum, steps
        self.left = dict.fromkeys(variables)
        self.factors = dict(enumerate(factors))
        self.number = len(factors)
        self.at: dict[int, set[int]] = {v: set() for v in variables}  # the factors of a variable
        self.near: dict[int, set[int]] = {v: set() for v in variables}
        self.size: dict[Name, int] = {}
        for i, factor in self.factors.items():
            self._connect(i, factor)

    def _connect(self, i: int, factor: Factor) -> None:
        shape = factor.values.shape[factor.row is not None :]
        self.size.update(zip(factor.dims, shape, strict=True))
        own = [v for v in factor.variables if v in self.at]
        for v in own:
            self.at[v].add(i)
            self.near[v].update(own)
            self.near[v].discard(v)

    def eliminate(self, v: int) -> None:
        """Eliminate one variable."""
        own = [self.factors.pop(i) for i in sorted(self.at.pop(v))]
        for w in self.near.pop(v):
            self.near[w].discard(v)
        del self.left[v]
        product = product_of(own)
        if self.steps is not None:
            self.steps.append(Step(v, product))
        axis = product.dims.index(v)
        dims = product.dims[:axis] + product.dims[axis + 1 :]
        result = replace(product, values=self.of_sum(product.value, axis), dims=dims, row=None)
        for w in product.variables:
            if w in self.at:
                self.at[w].intersection_update(self.factors)
        self.factors[self.number] = result
        self._connect(self.number, result)
        self.number += 1

    def eliminate_all(self) -> list[Factor]:
        """Eliminate all variables, those first whose product is smallest; return what is left."""
        waiting = [(*self._cost(v), v) for v in self.left]
        heapq.heapify(waiting)
        while waiting:
            *cost, v = heapq.heappop(waiting)
            if v not in self.left:
                continue
            if tuple(cost) != self._cost(v):
                heapq.heappush(waiting, (*self._cost(v), v))
                continue
            near = self.near[v]
            self.eliminate(v)
            for w in near:
                heapq.heappush(waiting, (*self._cost(w), w))
        return list(self.factors.values())

    def _cost(self, v: int) -> tuple[int, int]:
        size = self.size[v]
        for w in self.near[v]:
            size *= self.size[w]
        # of equal ones the first that is at an end: a chain is walked along
        return size, v

    def eliminate_twigs(self) -> None:
        """Eliminate variables with one neighbour, where this has at least three."""
        waiting = list(self.left)
        while waiting:
            v = waiting.pop()
            if v not in self.left or len(self.near[v]) != 1:
                continue
            (w,) = self.near[v]
            if len(self.near[w]) >= 3:
                self.eliminate(v)
                waiting.append(w)

    def chain(self) -> list[int] | None:
        """Return the variables in the order of a chain; None for no chain, or a short one."""
        if len(self.left) <= LEAST_STEPS or len({self.size[v] for v in self.left}) > 1:
            return None
        ends = [v for v in self.left if len(self.near[v]) == 1]
        if len(ends) != 2 or any(len(near) > 2 for near in self.near.values()):
            return None
        order, before = [min(ends)], -1
        while len(order) < len(self.left):
            following = self.near[order[-1]] - {before}
            if len(following) != 1:
                return None
            before = order[-1]
            order.extend(following)
        return order

    def sum_of_chain(self, order: list[int]) -> tuple[Tensor, tuple[Name, ...]]:
        """Return the log of the sum over variables that form a chain, and its axes."""
        place: dict[Name, int] = {v: t for t, v in enumerate(order)}
        every = dict.fromkeys(dim for f in self.factors.values() for dim in f.dims)
        dims = tuple(dim for dim in every if dim not in place)
        shape = [*(self.size[dim] for dim in dims), self.size[order[0]]]
        rows: dict[Any, list[tuple[int, Factor]]] = {}
        pairs: list[dict[Any, Factor]] = [{} for _ in order[1:]]
        for factor in self.factors.values():
            own = sorted((v for v in factor.variables if v in place), key=place.__getitem__)
            axes = _axes(factor, (*dims, *own))
            if len(own) == 2:
                pairs[place[own[0]]][id(factor.values), factor.row, axes] = factor
            else:
                # those in one tensor are taken from it together
                together = id(factor.values) if factor.row is not None else None
                at = place[own[0]] if own else 0
                rows.setdefault((together, axes), []).append((at, factor))
        single: Tensor | None = None
        for found in rows.values():
            part = self._spread(found, dims, order, shape)
            single = part if single is None else single + part
        if single is None:
            raise ValueError("a chain without factors of its variables")
        kinds: dict[Any, int] = {}
        which, different = [], []
        for t, here in enumerate(pairs):
            key = tuple(here)
            if key not in kinds:
                kinds[key] = len(different)
                form = (*dims, order[t], order[t + 1])
                different.append(
                    reduce(torch.add, (aligned(f.value, f.dims, form) for f in here.values()))
                )
            which.append(kinds[key])
        # torch.broadcast_shapes imports sympy, which takes seconds
        common = [max(sizes) for sizes in zip(*(x.shape for x in different), strict=True)]
        stacked = torch.stack([x.expand(common) for x in different])
        return log_of_chain(single, stacked, tuple(which)), dims

    def _spread(
        self,
        found: list[tuple[int, Factor]],
        dims: tuple[Name, ...],
        order: list[int],
        shape: list[int],
    ) -> Tensor:
        """Return factors of single variables as [steps, *shape], 0 where there is none.

        Args:
            found: The place of each in the chain, and the factor. Their axes are alike.
            dims: The axes of the batch.
            order: The variables of the chain.
            shape: The sizes of the batch, and of a variable.
        """
        first = found[0][1]
        if first.row is None:
            parts = [aligned(f.value, f.dims, (*dims, order[t])) for t, f in found]
            values = torch.stack([part.expand(shape) for part in parts])
        else:
            index = torch.tensor([f.row for _, f in found], device=first.values.device)
            values = first.values
            if index.tolist() != list(range(len(values))):
                values = values.index_select(0, index)
            values = aligned(values, first.dims, (*dims, order[found[0][0]]), 1)
            values = values.expand(len(found), *shape)
        places = torch.tensor([t for t, _ in found], device=values.device)
        if places.tolist() == list(range(len(order))):
            return values
        return values.new_zeros((len(order), *shape)).index_add(0, places, values)


def _axes(factor: Factor, form: tuple[Name, ...]) -> tuple[int, ...]:
    """Return where the axes of a factor are in another form."""
    return tuple(form.index(dim) for dim in factor.dims)


def product_of(factors: Sequence[Factor]) -> Factor:
    """Return the product of factors, whose axes are the plates and then the variables."""
    if len(factors) == 1:
        return replace(factors[0], values=factors[0].value, row=None)
    every = dict.fromkeys(dim for factor in factors for dim in factor.dims)
    dims = tuple(sorted(every, key=lambda dim: (isinstance(dim, int), str(dim))))
    total = reduce(torch.add, (aligned(factor.value, factor.dims, dims) for factor in factors))
    return Factor(total, dims, factors[0].plates, factors[0].scale)


def connected(factors: Mapping[str, Factor]) -> list[list[str]]:
    """Return the names of the factors that variables connect, group by group.

    Args:
        factors: ``{name: factor}``; one without variables is a group of its own.
    """
    named = {id(factor): name for name, factor in factors.items()}
    home = {v: frozenset[str]() for factor in factors.values() for v in factor.variables}
    groups = _components(list(factors.values()), home, frozenset())
    return [[named[id(factor)] for factor in group] for group, _ in groups]


def aligned(values: Tensor, own: Sequence[Name], dims: Sequence[Name], first: int = 0) -> Tensor:
    """Return values with the axes ``dims``, of size 1 where they have none.

    Args:
        values: Of the axes ``own``, after the ``first`` ones, which stay.
        own: The axes.
        dims: The axes of the result.
        first: How many axes stay in front.
    """
    places = {dim: i for i, dim in enumerate(own)}
    order = [places[dim] for dim in dims if dim in places]
    if order != list(range(len(own))):
        values = values.permute(*range(first), *(first + i for i in order))
    shape = [*values.shape[:first]]
    sizes = iter(values.shape[first:])
    shape += [next(sizes) if dim in places else 1 for dim in dims]
    return values.reshape(shape)


def taken(factor: Factor, variable: int, index: Tensor, of_index: Sequence[Name]) -> Factor:
    """Return the factor at one value of a variable.

    Args:
        factor: The factor.
        variable: One of its variables.
        index: The value, [*of_index].
        of_index: The axes of the index, which the factor has too.
    """
    missing: Collection[Name] = set(of_index) - set(factor.dims)
    if missing:
        raise ValueError(f"no axis {missing} in a factor of {factor.dims}")
    axis = factor.dims.index(variable)
    spread = aligned(index, of_index, [dim for dim in factor.dims if dim != variable])
    values = torch.take_along_dim(factor.value, spread.unsqueeze(axis), axis).squeeze(axis)
    dims = tuple(dim for dim in factor.dims if dim != variable)
    return replace(factor, values=values, dims=dims, row=None)
