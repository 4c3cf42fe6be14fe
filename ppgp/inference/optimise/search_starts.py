"""Several starts of one search: draws from the prior, peaks of a periodogram; the best of the ends.

They are the default where priors leave the scale of a site open, and where a density has several
modes by its making: waves, mixtures, heavy tails, networks of few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Independent, constraints

from ...capabilities import NetworkWeights, supports
from ...density.handlers import Run, mapping, quietly
from ...density.layout import Partly
from ...density.target import Sendable, Target
from ...priors import Prior, Site
from ...priors.sites import law_of
from ...runtime.seeding import seeded, standard_normal, standard_uniform
from ..base import fresh_weights
from ..jobs import each
from .search import ENDED, SCATTERED, SHORT_OF_STEPS, Few, SearchResult

#: Searches by default. All of them miss an end that one search in three reaches in 4 % of fits.
SEVERAL = 8
#: Starts of flat sites are Uniform(-2, 2) around the unconstrained origin, as Stan's chains.
SPREAD = 2.0
TRIES = 20  # draws from the prior among which one of finite density is sought
#: Searches by default if so many end alike. They miss an end that half of the searches reach in
#: 3 % of fits, and one that one in three reaches in 13 %.
ENOUGH = 5
#: Searches of few steps by default where a density has several modes by its making; one more
#: where it has waves.
FEW = 3
NETWORK_ROWS = 200  # up to so many rows, a network is searched from several places
#: In nats: a mode with less than e^-3 = 5 % of the height of the best one is no rival.
NEAR = 3.0
WAVES = 2.0  # fewer of them over the rows do not tell a period from a trend
#: In nats: a short search that has ended so far below another may still end near it, or above.
UNDECIDED = 6.0
STEPS = (-2.5, -1.25, 1.25)  # of the log of lengthscales, to places where a mode may be
UNLIKE = 1.3  # steps of the log between the lengthscales of terms of a kernel
HARDLY_LOWER = 1.0  # in nats: a point so near an end, and elsewhere, is the start of a search
CLIMBS = 4  # steps up the gradient from there, which away from a saddle lead above it
BESIDE = 0.1  # sd of the places beside the end of a search of a program
MANY_ENDS = 5  # of climbs from many places, at most, from which a search goes on
LITTLE = 0.1  # of the squares of y, explained at the end of a search that ended badly
ROUNDS = 2  # of searches from other lengthscales, each from a better end than the last
APART = 0.05  # of the unconstrained scale: two ends that are farther apart are not yet one mode
DIP = 0.1  # nats by which the density falls between two ends that are not one mode
SAME = 1e-3  # of the unconstrained scale: a search ends closer than this to its mode

#: the stats of several starts
OF_STARTS = ("ends", "end_log_densities", "losses_of_starts", "starts_elsewhere")

#: ``search(target, z, seed, few=None)``: one from z [p], with few steps if ``few`` is given
Search = Callable[..., SearchResult]


@dataclass(frozen=True)
class Plan:
    """How many searches are made, and how.

    Attributes:
        starts: The number of searches.
        enough: After how many that end alike the rest is left out; None: all searches are made.
        short: Whether each of them has few steps, and one goes on from the best end.
        first_whole: Whether the first of short searches goes on to its end at once, as where the
            first start is the likeliest; the others are then soon compared with it.
    """

    starts: int
    enough: int | None = None
    short: bool = False
    first_whole: bool = False


def best_of(
    target: Target,
    search: Search,
    z0: Tensor,
    plan: Plan,
    seed: int,
    *,
    jacobian: bool = False,
    workers: int | None = 1,
) -> SearchResult:
    """Search from z0, from other starts of the target and from draws from the prior.

    Args:
        target: The density.
        search: One search. Its stats hold ``log_density``, and notes mean that its end is no mode.
            Under a ``short`` plan it has few steps from all starts, and goes on from the best end,
            and from the best of those that may be rivals.
        z0: The first start, [p].
        plan: How many searches are made.
        seed: The seed of the first search; each further search has the next one.
        jacobian: Whether the density that is maximised includes the log-Jacobian.
        workers: How many processes search, as in ``jobs.each``.

    Returns:
        The highest end. Its stats gain ``ends`` [start, p] on the unconstrained scale,
        ``end_log_densities`` [start], ``losses_of_starts``, the losses of each search, and
        ``starts_elsewhere``, a sentence on the ends that are not the answer.
    """
    if plan.short:
        workers = 1  # few steps are over before a worker has begun, or a graph has paid
    if not plan.short or target.turning:
        target.settle(jacobian)  # workers have no graph and no value from before
    begun = z0[None]
    if plan.short or target.turning:
        begun = torch.cat([begun, target.starts(jacobian), _terms_apart(target, z0)])
    search_from = _Start(Sendable(target), search, _distinct(begun), seed, jacobian, plan.short)
    if plan.short:
        results, interrupted = _short_results(search_from, plan)
        if not interrupted:
            results = _gone_on(target, search, results, seed, jacobian)
            interrupted = any(result.interrupted for result in results)
    else:
        results, interrupted = _results(search_from, plan.starts, plan.enough, workers)
    ends = torch.stack([result.z for result in results])
    heights = _heights(results)
    order = _best_first(heights)
    best = results[order[0]]
    highest = heights[order[0]]
    near = [i for i in order if heights[i] > highest - NEAR]
    if not plan.short:
        near = [i for i in near if not results[i].notes]
    rivals = _separate_modes(target, ends[near], heights[near], jacobian, plan.short)
    notes = list(best.notes)
    if len(rivals) > 1:
        below = ", ".join(f"{float(highest - height):.2g}" for height in rivals[1:6])
        others = "the other" if len(rivals) == 2 else "the others"
        notes.append(
            f"{len(rivals)} modes within {NEAR:g} nats ({others} {below} below the best): one "
            "point cannot stand for them all; look at stats['ends'], or draw by NUTS from several "
            "chains"
        )
    elif not interrupted and not plan.short:
        notes += scattered(heights)
    notes += few_waves(target, best.z)
    stats = {
        **best.stats,
        "ends": ends,
        "end_log_densities": heights,
        "losses_of_starts": tuple(r.stats["losses"] for r in results if "losses" in r.stats),
    }
    ended = [not (plan.short and result.notes) for result in results]
    ended[order[0]] = True
    sentence = elsewhere(heights, ended=ended)
    if sentence:
        stats["starts_elsewhere"] = sentence
    return SearchResult(best.z, stats, notes, interrupted)


def _gone_on(
    target: Target, search: Search, results: list[SearchResult], seed: int, jacobian: bool
) -> list[SearchResult]:
    """Return the results of short searches, the best of which has gone on to its end.

    So has the next best, if it was still rising and its end may come within ``NEAR`` of the other's
    in a mode of its own. Those without notes are at their ends already.
    """
    results = list(results)
    ended: list[int] = []
    for _ in range(2):
        heights = _heights(results)
        best, *others = _best_first(heights)
        rivals = (
            i
            for i in others
            if i not in ended
            and any(SHORT_OF_STEPS in note for note in results[i].notes)
            and heights[i] > heights[best] - UNDECIDED
            and _dips(target, results[i].z, results[best].z, float(heights[i]), jacobian, True)
        )
        rising = bool(results[best].notes) and best not in ended
        next_one = best if rising else next(rivals, None)
        if next_one is None or results[best].interrupted:
            break
        results[next_one] = search(target, results[next_one].z, seed + next_one)
        ended.append(next_one)
    return results


@dataclass(frozen=True, eq=False)
class _Start:
    """The searches of one target, as the jobs of ``each``; the fields are those of ``best_of``."""

    sendable: Sendable
    search: Search
    begun: Tensor  # starts [k, p]; further ones are draws from the prior
    seed: int
    jacobian: bool
    short: bool

    def __call__(self, number: int, few: Few | None = None) -> tuple[SearchResult, list[Tensor]]:
        """Return the result of one search, and the points that a worker's graph was run at."""
        target, seed = self.sendable.target, self.seed + number
        given = number < len(self.begun)
        start = self.begun[number] if given else from_prior(target, seed)
        if not self.short:
            target.settle(self.jacobian)
        try:
            result = self.search(target, start, seed, few)
        except (ValueError, ArithmeticError) as error:
            if not number:
                raise
            # a draw from the prior may lie where numbers overflow, which the program refuses
            nowhere = {"log_density": -math.inf, "losses": torch.empty(0)}
            result = SearchResult(start, nowhere, [f"a search failed: {error}"])
        return result, (target.visited if self.sendable.received else [])


def _short_results(search_from: _Start, plan: Plan) -> tuple[list[SearchResult], bool]:
    """Run searches of few steps in turn; return their results, and whether Ctrl-C ended them.

    One that would stay far below the best end so far is given up.
    """
    results: list[SearchResult] = []
    highest = -math.inf
    try:
        for number in range(plan.starts):
            few = Few(bar=highest - UNDECIDED)
            if plan.first_whole:  # one that is higher than a mode goes on to its own
                few = replace(few, leader=highest)
            results.append(search_from(number, few)[0])
            if results[-1].interrupted:
                return results, True
            highest = max(highest, results[-1].stats["log_density"])
    except KeyboardInterrupt:
        if not results:
            raise
        return results, True
    return results, False


def _results(
    search_from: _Start, starts: int, enough: int | None, workers: int | None
) -> tuple[list[SearchResult], bool]:
    """Run the searches; return their results in order, and whether Ctrl-C ended them."""
    results: dict[int, SearchResult] = {}

    def in_order() -> list[SearchResult]:
        return [results[number] for number in sorted(results)]

    first = min(enough or starts, starts)
    try:
        for numbers in (range(first), range(first, starts)):
            with closing(each(search_from, numbers, workers, noun="search")) as ended:
                for i, (result, visited) in ended:
                    results[numbers[i]] = result
                    search_from.sendable.target.remember(visited)
                    if result.interrupted:
                        return in_order(), True
            if first == enough and _alike(in_order()):
                break
    except KeyboardInterrupt:
        if not results:
            raise
        return in_order(), True
    return in_order(), False


def plan_of_starts(target: Target, starts: int | None, init: object) -> Plan:
    """Return how many searches are made.

    If the caller gives no number and no start, they are several

    - short ones, where a density has several modes by its making: the periods and frequencies of
      waves, equal terms of a kernel, heavy tails (``Model.several_modes``), a network with few
      rows;
    - up to ``SEVERAL`` whole ones, where priors leave the scale of a site open or discrete sites
      are summed out. The components of a mixture begin alike at their usual place, where the
      gradient does not tell them apart.

    A model with one mode has one search, and a network with many rows, whose density has as many
    modes as a network, which ``Ensemble`` averages.
    """
    if starts is not None:
        return Plan(starts)
    if init is not None or target.model.one_mode:
        return Plan(1)
    if supports(target.model, NetworkWeights):
        few = target.data.n is not None and target.data.n <= NETWORK_ROWS
        return Plan(SEVERAL, short=True) if few else Plan(1)
    if target.enumerates or bool(_vague_sites(target)):
        return Plan(SEVERAL, ENOUGH)
    if not target.data.is_table:
        if target.mixes:
            return Plan(SEVERAL, short=True)
        if target.turning:
            return Plan(len(target.starts()), short=True, first_whole=True)
    if target.waves or target.model.several_modes or target.alike:
        return Plan(FEW + min(len(target.waves), 1), short=True, first_whole=True)
    return Plan(1)


def gone_elsewhere(
    target: Target,
    result: SearchResult,
    search: Search,
    seed: int,
    *,
    jacobian: bool = False,
) -> SearchResult:
    """Return a result, or a better one where the search ended badly or beside a likely mode.

    A search that has not converged is followed by several. Where the rows are noise to a kernel
    with long lengthscales, and a function that changes fast to one with short ones, both are modes:
    a point with other lengthscales that is hardly lower than the end is the start of a search too.
    """
    if result.interrupted or any(SHORT_OF_STEPS in note for note in result.notes):
        return result  # the user allows so many steps
    if any(note.startswith(ENDED) for note in result.notes):
        plan = Plan(SEVERAL, short=True)
        return best_of(target, search, result.z, plan, seed, jacobian=jacobian)
    try:
        program = not target.data.is_table and target.alone_and_smooth
        if program and _may_be_elsewhere(target, result.z):
            result = _from_many(target, result, search, seed, jacobian)
        for _ in range(ROUNDS):
            better = _in_a_mode_beside(target, result, search, seed, jacobian)
            if better is None:
                break
            result = better
            if result.interrupted:
                break
    except KeyboardInterrupt:
        note = "stopped by Ctrl-C while other modes were looked for; this is the one that was found"
        return replace(result, notes=[*result.notes, note], interrupted=True)
    return result


def _may_be_elsewhere(target: Target, z: Tensor) -> bool:
    """Whether a program that ended at z explains next to nothing, or began where entries are alike.

    A narrow peak in the data is such a case, and a network whose hidden units are equal.
    """
    try:
        return target.explained(z) < LITTLE or target.begins_alike()
    except (RuntimeError, ValueError, ArithmeticError):
        return False


def _from_many(
    target: Target, result: SearchResult, search: Search, seed: int, jacobian: bool
) -> SearchResult:
    """Return the highest end: of a search, and of others that begin at the best of many climbs."""
    heights, places = target.far_starts(jacobian)
    ends = [result]
    for height, z in zip(heights.tolist(), places, strict=True):
        if len(ends) > MANY_ENDS or not height > result.stats["log_density"] - HARDLY_LOWER:
            break
        if any(not _apart(z, end.z) for end in ends):
            continue
        ends.append(search(target, z, seed))
        if ends[-1].interrupted:
            break
    all_heights = _heights(ends)
    best = ends[_best_first(all_heights)[0]]
    sentence = elsewhere(all_heights)
    if not sentence:
        return best
    interrupted = any(end.interrupted for end in ends)
    return replace(
        best, stats={**best.stats, "starts_elsewhere": sentence}, interrupted=interrupted
    )


def _in_a_mode_beside(
    target: Target, result: SearchResult, search: Search, seed: int, jacobian: bool
) -> SearchResult | None:
    """Return the end of a search from other lengthscales, if it is higher; None otherwise."""
    height = result.stats["log_density"]
    likely: list[tuple[float, Tensor]] = []
    if target.random is not None or not target.team.alone:
        return None  # a value by itself says nothing, or is that of the rows of one process
    for z in _other_lengthscales(target, result.z, jacobian):
        # with its gradient, which is by formula where a density without one is not
        value = float(target.value_and_grad(z, jacobian=jacobian, compile=False)[0])
        bar = height - HARDLY_LOWER if target.data.is_table else height + SAME
        if value > bar:
            likely.append((value, z))
    for _, z in sorted(likely, key=lambda pair: -pair[0]):
        other = search(target, z, seed, Few(bar=height - DIP, leader=height + SAME))
        if not (other.stats["log_density"] > height - DIP and _apart(other.z, result.z)):
            continue
        if other.notes:
            other = search(target, other.z, seed)
        if other.stats["log_density"] > height + SAME:
            return other
    return None


def _apart(z: Tensor, other: Tensor) -> bool:
    """Whether two ends of searches of few steps are not yet one mode."""
    return float((z - other).abs().max()) > APART


def _other_lengthscales(target: Target, z: Tensor, jacobian: bool = False) -> list[Tensor]:
    """Return z [p] with shorter lengthscales, and with longer ones; of a program, places beside z.

    A program is symmetric, perhaps, and a search from its middle has stayed there: where it is a
    saddle, a place beside it is higher.
    """
    if not target.data.is_table:
        return _beside(target, z, jacobian)
    sites = {} if target.data.streamed else target.slices
    own = [s for name, s in sites.items() if name.endswith("lengthscale") and not s.param]
    moved = []
    for step in STEPS if own else ():
        other = z.clone()
        for s in own:
            other[s.start : s.stop] += step
        moved.append(other)
    return moved


def _beside(target: Target, z: Tensor, jacobian: bool) -> list[Tensor]:
    """Return the end [p] of a few steps up the gradient from a place beside z."""
    if target.out_of_torch is not None:
        return []
    generator = torch.Generator().manual_seed(0)
    point = z + BESIDE * standard_normal(generator, len(z)).to(z)
    for _ in range(CLIMBS):
        _, slope = target.value_and_grad(point, jacobian=jacobian, compile=False)
        length = slope.norm()
        if not bool(length.isfinite()) or not bool(length > 0):
            return []
        point = point + 2 * BESIDE * slope / length
    return [point]


def _terms_apart(target: Target, z: Tensor) -> Tensor:
    """Return starts z [k, p] with the lengthscales of equal terms of a kernel apart.

    These have equal gradients where they are equal, and a search leaves them so.
    """
    own = target.alike
    if not own:
        return z.new_zeros((0, len(z)))
    other = z.clone()
    for i, s in enumerate(own):
        other[s.start : s.stop] += UNLIKE * (i - 0.5 * (len(own) - 1))
    return other[None]


def elsewhere(heights: Tensor, least: float = DIP, ended: Sequence[bool] | None = None) -> str:
    """Return a sentence on the searches that ended below the best; "" if there are none.

    Args:
        heights: The log densities at the ends, [start].
        least: The nats below the best from which an end counts.
        ended: Which searches came to an end. The others were given up on the way. None: all.
    """
    kinds = ("ended elsewhere", True), ("were given up on the way", False)
    parts = []
    for what, kind in kinds:
        own = [ended is None or ended[i] for i in range(len(heights))]
        chosen = torch.tensor([each is kind for each in own])
        number, span = _below_the_best(heights, least, chosen)
        if number:
            where = f"{span} nats below the best" if span else "at no finite density"
            parts.append(f"{number} of {len(heights)} searches {what}, {where}")
    return "; ".join(parts)


def _below_the_best(heights: Tensor, least: float, chosen: Tensor | None = None) -> tuple[int, str]:
    """Return how many ends are more than ``least`` nats below the best, and by how many nats.

    Those that are ``chosen`` [start] count.

    The second is "" where their densities are not finite.
    """
    gaps = heights.nan_to_num(nan=-torch.inf).max() - heights
    low = gaps[~(gaps <= least) & (True if chosen is None else chosen)]
    finite = [f"{float(f'{gap:.2g}'):g}" for gap in sorted(low[low.isfinite()].tolist())]
    return len(low), " to ".join(dict.fromkeys(finite[:1] + finite[-1:]))


def _heights(results: Sequence[SearchResult]) -> Tensor:
    """Return the log densities of the ends, [start]."""
    return torch.tensor([r.stats["log_density"] for r in results], dtype=torch.float64)


def _best_first(heights: Tensor) -> list[int]:
    """Return the numbers of the searches, that of the highest end first."""
    return heights.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True).tolist()


def _distinct(points: Tensor) -> Tensor:
    """Return the points [k, p] without those that are there already."""
    kept = [z for i, z in enumerate(points) if not any(torch.equal(z, p) for p in points[:i])]
    return torch.stack(kept)


def _alike(results: Sequence[SearchResult]) -> bool:
    """Whether all searches ended in a mode, and none below another."""
    heights = _heights(results)
    converged = not any(result.notes for result in results)
    return converged and bool((heights >= heights.max() - DIP).all())


def scattered(heights: Tensor, least: float = DIP) -> list[str]:
    """Return a warning if searches ended ``least`` nats or more below the best, else []."""
    number, span = _below_the_best(heights, least)
    if not number:
        return []
    where = f"{span} nats below" if span else "at no finite density, beside"
    return [
        f"{number} of {len(heights)} {SCATTERED}, {where} the best, which is the "
        "answer: see stats['end_log_densities']; where few reach the best, raise starts or give "
        "proper priors"
    ]


def few_waves(target: Target, z: Tensor) -> list[str]:
    """Return a warning for each period of which the rows have less than ``WAVES``, else []."""
    values = target.constrain(z) if target.waves else {}
    notes = []
    for name, columns in target.waves.items():
        span = float((columns.max(0).values - columns.min(0).values).max())
        if values[name].ndim or not span < WAVES * float(values[name]):
            continue
        notes.append(
            f"the rows hold {span / float(values[name]):.2g} waves of {name!r}, and below "
            f"{WAVES:g} several modes of a period, and a trend, fit nearly alike: give it a prior, "
            "or do not read it as a period"
        )
    return notes


def from_prior(target: Target, seed: int) -> Tensor:
    """Return z [p] drawn from the prior, of finite density.

    Weights of a network are the initial weights of another seed. Sites with an improper prior are
    spread around the origin, those with a prior too wide to search
    around its median, and params stay where they begin.
    """
    weights = fresh_weights(target, seed)
    if weights is not None:
        return weights
    generator = torch.Generator().manual_seed(seed)
    for _ in range(TRIES):
        jump = SPREAD * (2 * standard_uniform(generator, target.dim) - 1)
        own = int(torch.randint(2**31, (), generator=generator, device="cpu"))
        with quietly(), seeded(own), torch.no_grad(), Run({}, params=target.params) as run:
            target.run_program()
        z = _start(target, run.sites, jump)
        value, gradient = target.value_and_grad(z, jacobian=False, compile=False)
        if bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all()):
            return z
    return target.start(seed, SPREAD, jacobian=False)


def _start(target: Target, sites: dict[str, Any], jump: Tensor) -> Tensor:
    """Return z [p] from a run of the program; ``jump`` [p] moves the vague sites."""
    z = target.origin()
    for name, s in target.slices.items():
        if s.param:
            continue
        prior, own_jump = sites[name]["fn"], jump[s.start : s.stop]
        median, spread = _log_spread(prior)
        if _improper(prior):
            z[s.start : s.stop] += own_jump.to(z)
        elif spread > WIDE and not isinstance(s.transform, Partly):
            centre = median.expand(s.event).reshape(-1).nan_to_num(0.0, 0.0, 0.0)
            z[s.start : s.stop] = (centre + own_jump.to(centre)).to(z)
        else:
            transform = mapping(name, prior)
            if isinstance(s.transform, Partly):
                transform = s.transform.of(transform)
            z[s.start : s.stop] = transform.inv(sites[name]["value"]).reshape(-1)
    return z


def _separate_modes(
    target: Target, ends: Tensor, heights: Tensor, jacobian: bool, short: bool
) -> list[Tensor]:
    """Return the heights of those ends that are modes of their own, best first.

    An end is a mode of its own if the density dips on the line to every better one. ``short`` says
    that they are ends of few steps.
    """
    kept: list[int] = []
    for i in range(len(ends)):
        lower = [float(min(heights[i], heights[j])) for j in kept]
        if all(
            _dips(target, ends[i], ends[j], low, jacobian, short)
            for j, low in zip(kept, lower, strict=True)
        ):
            kept.append(i)
    return [heights[i] for i in kept]


def _dips(target: Target, a: Tensor, b: Tensor, lower: float, jacobian: bool, short: bool) -> bool:
    """Whether the density on the line from a to b falls below ``lower`` by more than ``DIP``."""
    if float((a - b).abs().max()) < (APART if short else SAME):
        return False
    between = [
        # a few values do not repay a graph
        float(target.value_and_grad(a + t * (b - a), jacobian=jacobian, compile=not short)[0])
        for t in (0.25, 0.5, 0.75)
    ]
    return not min(between) >= lower - DIP  # NaN counts as a dip


#: Standard deviations of the log: nine in ten draws then span a factor of e^10, or 20,000.
WIDE = 3.0
#: Draws that estimate the spread of a log that has no closed form, to some 5 %.
DRAWS = 400


def _vague_sites(target: Target) -> list[str]:
    """Return the sites whose prior is improper, or has a log with an sd above ``WIDE``.

    A model of the library knows its priors; a program is run once.
    """
    wanted = {name for name, s in target.slices.items() if not s.param}
    sites: Mapping[str, Any] = target.model.sites_at(target.data.d)
    if wanted <= sites.keys():
        known = {name: sites[name] for name in wanted if isinstance(sites[name], Site)}
        like = target.data.like
        priors = {n: law_of(s, like) for n, s in known.items() if isinstance(s.prior, Prior)}
    else:
        with quietly(), seeded(0), torch.no_grad(), Run({}, params=target.params) as run:
            target.run_program()
        priors = {name: run.sites[name]["fn"] for name in wanted}
    return [name for name, prior in priors.items() if _log_spread(prior)[1] > WIDE]


def _improper(prior: Any) -> bool:
    """Whether a prior has no finite integral: its draws are starting values, not a sample."""
    while hasattr(prior, "base_dist"):
        prior = prior.base_dist
    return bool(getattr(prior, "improper", False)) or isinstance(prior, dist.ImproperUniform)


def _log_spread(prior: Any) -> tuple[Tensor, float]:
    """Return the median [*event] and the largest sd of the log of a prior on positive numbers.

    The sd is 0 for a prior on other numbers, and infinite for an improper one.
    """
    if _improper(prior):  # Pyro's improper prior cannot be drawn from
        return torch.zeros(()), math.inf
    base = prior
    while isinstance(base, Independent):
        base = base.base_dist
    if isinstance(base, dist.LogNormal):
        return base.loc, float(base.scale.max())
    support = base.support
    above = isinstance(support, constraints.greater_than | constraints.greater_than_eq)
    if not above or bool(torch.as_tensor(support.lower_bound).ne(0).any()):
        return torch.zeros(()), 0.0
    with seeded(0), torch.no_grad():
        logs = prior.sample(torch.Size([DRAWS])).log()
    spread = float(logs.std(0).max())
    if not math.isfinite(spread):  # a draw that rounds to 0 has a log of minus infinity
        spread = math.inf
    return logs.median(0).values, spread
