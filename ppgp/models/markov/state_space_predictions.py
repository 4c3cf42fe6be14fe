"""Predictions of a Gaussian process of one column from the rows before and after a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    Candidates,
    Capability,
    Components,
    ComponentsByRole,
    IntegratedCoefficients,
)
from ...data.dataset import Dataset
from ...errors import NotApplicable
from ...kernels import Kernel, Matern, Sum
from ...kernels.state_space import StateSpace, with_batch
from ...kernels.wrappers import labels_of_terms, roles_of_terms
from ...numerics.cholesky import at_least_rounding
from ...numerics.small_matrices import (
    identity,
    outer,
    product,
    product_with_transpose,
    times_vector,
)
from ...priors import PriorLike
from ...runtime.result_cache import ResultCache
from ..advice.memory_checks import check_memory_of_predictions
from ..sites import Theta
from .kalman import Forward, Observed, Row, forward, passes
from .markov_process import MarkovProcess
from .parallel_scan import in_rows
from .state_space_rows import Steps


class Smoothed(NamedTuple):
    """What the training rows, in order of time, say about the states.

    Attributes:
        times: [n].
        m: The mean of the state at each row given it and the rows before, [s, *b, n].
        P: Its covariance [s, s, *b, n].
        K: The gain of each row's observation, [s, *b, n].
        G: (I - K H') F, which moves an error of the state to the next row, [s, s, *b, n].
        r: What a row and those after it say about its state: see ``kalman.Backward``.
        N: See r.
        u: C^-1 (y - mean), [*b, n].
        d: The diagonal of C^-1, [*b, n].
        columns: The regressors [r, n].
    """

    times: Tensor
    m: Tensor
    P: Tensor
    K: Tensor
    G: Tensor
    r: Tensor
    N: Tensor
    u: Tensor
    d: Tensor
    columns: Tensor


def smoothed(steps: Steps, residual: Tensor) -> Smoothed:
    """Return what the rows say, given y - mean [*b, n] in the order of the rows."""
    s, n = steps, len(steps.times)
    filtered, back = passes(s.F, s.Q, s.P0, s.R, s.in_order(residual), s.observed)

    def rows(values: list[Tensor]) -> Tensor:
        return in_rows(torch.stack(values, -2), n)

    k, w, v = rows(filtered.k), rows(filtered.w), rows(filtered.v)
    K = k * w
    m = rows(filtered.m) + k * v
    P = rows(filtered.P) - outer(K, k)
    F, columns = in_rows(s.F, n), s.times[None][:0]
    if s.observed.columns is not None:
        columns = in_rows(s.observed.columns, n)
    G = F - outer(K, Row(s.observed.states, columns).of(F))
    r, N, u, d = (rows(each) for each in (back.r, back.N, back.u, back.d))
    return Smoothed(s.times, m, P, K, G, r, N, u, d, columns)


def wide(M: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return matrices [s, s, *m] as [s, s, *batch, *m], which is ``shape``."""
    return with_batch(M, len(shape) - 2).expand(shape)


@dataclass(frozen=True)
class At:
    """The states at new times: N(m, P) given the rows before, and what later rows say (r, N).

    Attributes:
        m: [s, *b, k].
        P: [s, s, *b, k].
        r: [s, *b, k].
        N: [s, s, *b, k].
        last: The number of rows up to each time, [k].
    """

    m: Tensor
    P: Tensor
    r: Tensor
    N: Tensor
    last: Tensor

    def of(self, H: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [*b, k] of H'x given all rows, for weights H [s, k]."""
        weights = H.reshape(len(H), *(1,) * (self.m.ndim - 2), -1)
        PH = (self.P * weights).sum(1)
        mean = (weights * self.m).sum(0) + (PH * self.r).sum(0)
        prior = (weights * PH).sum(0)
        variance = prior - (PH * times_vector(self.N, PH)).sum(0)
        return mean, variance.clamp_min(0.0)

    def lost(self, H: Tensor) -> Tensor:
        """Return where most digits of the variance of H'x are lost, [k].

        It is the difference from the variance given the rows before, which is very large where
        these say little and the later rows much.
        """
        share = torch.finfo(H.dtype).eps ** 0.25
        before = replace(self, N=torch.zeros_like(self.N)).of(H)[1]
        lost = self.of(H)[1] < share * before
        return lost.flatten(end_dim=-2).any(0) if lost.ndim > 1 else lost

    def but(self, other: At, where: Tensor) -> At:
        """Return the states of ``other`` where ``where`` [k], else these."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return At(*(torch.where(where, two, one) for one, two in pairs))


def at(found: Smoothed, space: StateSpace, t: Tensor) -> At:
    """Return the states at times t [k], in any order, and wherever they are."""
    n = len(found.times)
    last = torch.searchsorted(found.times, t.contiguous(), right=True)
    left, right = (last - 1).clamp_min(0), last.clamp_max(n - 1)
    F, Q = space.transition((t - found.times[left]).clamp_min(0.0))
    m, P = found.m[..., left], found.P[..., left]
    F, Q = wide(F, P.shape), wide(Q, P.shape)
    begun, ended = last > 0, last == n
    m = torch.where(begun, times_vector(F, m), 0.0)
    moved = product_with_transpose(product(F, P), F) + Q
    P = torch.where(begun, moved, wide(space.covariance(t), P.shape))
    F = space.transition((found.times[right] - t).clamp_min(0.0))[0]
    F = wide(F, P.shape).transpose(0, 1)
    r = torch.where(ended, 0.0, times_vector(F, found.r[..., right]))
    N = product_with_transpose(product(F, found.N[..., right]), F)
    return At(m, P, r, torch.where(ended, 0.0, N), last)


def after(m: Tensor, P: Tensor, time: Tensor, space: StateSpace, t: Tensor) -> At:
    """Return the states at times t [k] from the one at an earlier time: N(m, P), [s, *b]."""
    F, Q = space.transition(t - time)
    shape = (*P.shape, len(t))
    F, Q, P = (wide(M, shape) for M in (F, Q, P[..., None]))
    P = product_with_transpose(product(F, P), F) + Q
    zero = torch.zeros_like(P)
    return At(times_vector(F, m[..., None].expand(shape[1:])), P, zero[0], zero, zero[0])


@dataclass(frozen=True)
class Onward:
    """The filter over further rows, given the state at an earlier time.

    Attributes:
        times: Of the rows, in order, [n].
        filtered: The filter over them.
        back: The place of each row in that order, [n].
        observed: What the rows observe.
    """

    times: Tensor
    filtered: Forward
    back: Tensor
    observed: Observed

    def end(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last time [1], and mean [s, k] and covariance [s, s, k] of the state there."""
        m, P = self.filtered.last
        return self.times[-1:], m[..., 0], P[..., 0]

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance [k, n] of f at the rows, each given the rows before it."""
        rows = list(self.observed.rows())
        means = [H.of(m) for m, H in zip(self.filtered.m, rows, strict=True)]
        variances = [H.of(k) for k, H in zip(self.filtered.k, rows, strict=True)]
        return torch.cat(means, -1)[..., self.back], torch.cat(variances, -1)[..., self.back]


def onward(
    m: Tensor,
    P: Tensor,
    time: Tensor,
    space: StateSpace,
    t: Tensor,
    residual: Tensor,
    noise: Tensor,
    columns: Tensor | None = None,
) -> Onward:
    """Filter further rows.

    Args:
        m: The mean of the state at ``time`` given the rows so far, [s, k] for k draws.
        P: Its covariance [s, s, k].
        time: Of the last row so far, [1].
        space: The process.
        t: Times of further rows [n], in any order, none before ``time``.
        residual: The difference y - mean of these rows, [n] or [k, n].
        noise: Their noise variances, [*k, 1] or [*k, n].
        columns: Their regressors [r, n]; None: there are none.
    """
    times, order = torch.sort(t, stable=True)
    F, Q = space.transition(torch.cat([time, times]).diff()[:, None])
    k, shape = m.shape[-1], (*P.shape, len(t), 1)

    def in_order(values: Tensor) -> Tensor:
        return values.expand(*values.shape[:-1], len(t))[..., order].expand(k, len(t))[..., None]

    seen = torch.ones_like(times)[:, None]
    weights = None if columns is None else columns[:, order, None]
    observed = Observed(space.observed, weights, seen=seen, blocks=space.sizes)
    F, Q = wide(F, shape), wide(Q, shape)
    y, R = in_order(residual), in_order(noise)
    filtered = forward(F, Q, R, y, observed, m[..., None], P[..., None])
    return Onward(times, filtered, torch.argsort(order), observed)


def joint(found: Smoothed, space: StateSpace, t: Tensor, H: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean [*b, k] and covariance [*b, k, k] of H'x at times t [k], for weights H [s, k].

    The states at times i < j have covariance P_i (G ...)' (I - N_j P_j), with the product of G
    over the rows between. De Jong & MacKinnon (1988).
    """
    times, order = torch.sort(t, stable=True)
    here = at(found, space, times)
    H = H[:, order]
    weights = H.reshape(len(H), *(1,) * (here.m.ndim - 2), -1)
    between = _between(found, space, times, here.last)
    NP = product(here.N, here.P)
    seen = identity(NP) - NP
    columns = []
    W = here.P[..., :0]  # covariances of earlier states with the state at j, [s, s, *b, j]
    for j in range(len(times)):
        if j:
            move = between[..., j - 1, None].transpose(0, 1)
            W = product(W, move.expand(*move.shape[:-1], j))
        W = torch.cat([W, here.P[..., j : j + 1]], -1)
        with_j = (seen[..., j] * weights[..., j]).sum(1)  # (I - N P) H, [s, *b]
        each = times_vector(W, with_j[..., None].expand(*W.shape[1:]))
        columns.append((each * weights[..., : j + 1]).sum(0))
    mean, variance = here.of(H)
    k = len(times)
    upper = torch.stack([torch.nn.functional.pad(c, (0, k - c.shape[-1])) for c in columns], -1)
    covariance = upper.triu() + upper.triu(1).mT
    covariance = torch.diagonal_scatter(covariance, variance, dim1=-2, dim2=-1)
    back = torch.argsort(order)
    return mean[..., back], covariance[..., back, :][..., back]


def _between(found: Smoothed, space: StateSpace, times: Tensor, last: Tensor) -> Tensor:
    """Return how a state moves from each of the times to the next, through the rows between."""
    n, here, there = len(found.times), times[:-1], times[1:]
    shape = (*found.P.shape[:-1], len(here))
    low, high = last[:-1], last[1:]
    first, final = low.clamp_max(n - 1), (high - 1).clamp_min(0)
    observation = Row(space.observed, found.columns[:, first])

    def moves(dt: Tensor) -> Tensor:
        return wide(space.transition(dt.clamp_min(0.0))[0], shape)

    # the first row after a time is a shorter step away than from the row before it
    enter = moves(found.times[first] - here)
    enter = enter - outer(found.K[..., first], observation.of(enter))
    through = product(range_products(found.G, low + 1, high), enter)
    through = product(moves(there - found.times[final]), through)
    return torch.where(low == high, moves(there - here), through)


def range_products(G: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the products G[high - 1] ... G[low], [s, s, *b, k]; the identity where low >= high.

    Args:
        G: [s, s, *b, n].
        low: [k].
        high: [k].
    """
    early = late = identity(G[..., :1].expand(*G.shape[:-1], len(low)))
    while bool((low < high).any()):
        odd = (low < high) & (low % 2 == 1)
        early = torch.where(odd, product(G[..., low.clamp_max(G.shape[-1] - 1)], early), early)
        low = low + odd.to(low)
        odd = (low < high) & (high % 2 == 1)
        late = torch.where(odd, product(late, G[..., (high - 1).clamp_min(0)]), late)
        high = high - odd.to(high)
        low, high = low // 2, high // 2
        if G.shape[-1] % 2:
            G = torch.cat([G, identity(G[..., :1])], -1)
        G = product(G[..., 1::2], G[..., 0::2])
    return product(late, early)


@dataclass(frozen=True)
class GivenRows:
    """A process given its training rows, under each draw of the hyperparameters.

    Attributes:
        process: The process.
        mean_at: The function (theta, X) -> the mean of f at X, [*draw, m] or [*draw, 1].
        theta: {site: [draw, *event]}.
        train: The training rows.
        draws: The number of draws.
        chunks: The function of a number of new rows -> the slices of the draws whose matrices fit
            into memory, each with theta there.
        conditioned: The function (theta, backwards) -> what the rows say of the process, or of
            f(-t).
        kept: Where that is kept between predictions, or None.
    """

    process: MarkovProcess
    mean_at: Callable[[Theta, Tensor], Tensor]
    theta: Theta
    train: Dataset
    draws: int
    chunks: Callable[[int], Iterator[tuple[slice, Theta]]]
    conditioned: Callable[[Theta, bool], Smoothed]
    kept: ResultCache | None = None

    def smoothed(self, chunk: slice, part: Theta, backwards: bool = False) -> Smoothed:
        """Return what the training rows say under a chunk of draws."""

        def compute() -> Smoothed:
            return self.conditioned(part, backwards)

        kept = self.kept or ResultCache(limit=0)
        return Smoothed(*kept.get((chunk.start, chunk.stop, backwards), compute, part))

    def states(self, X: Tensor) -> Iterator[tuple[slice, Theta, At]]:
        """Yield the states at X under each chunk of draws.

        Where the rows before a time say little, the process runs backwards from the last row.
        """
        H = self.process.observation(X)
        for chunk, part in self.chunks(len(X)):
            found = self.smoothed(chunk, part)
            here = at(found, *self.process.in_direction(part, X, False))
            lost = here.lost(H)
            if bool(lost.any()):
                found = self.smoothed(chunk, part, backwards=True)
                there = at(found, *self.process.in_direction(part, X, True))
                here = here.but(there, lost & ~there.lost(H))
            yield chunk, part, here

    def end(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the time of the last row, and mean and covariance of the state there.

        The time is [1], the mean [s, *batch] and the covariance [s, s, *batch], which begin with
        an axis of the draws where several chunks are needed.
        """

        def compute() -> tuple[Tensor, Tensor, Tensor]:
            ms, Ps = [], []
            last = self.train.X[:, 0].max()[None]
            for chunk, part in self.chunks(0):
                found = self.smoothed(chunk, part)
                k = chunk.stop - chunk.start
                ms.append(found.m[..., -1].reshape(len(found.m), -1).expand(-1, k))
                P = found.P[..., -1]
                Ps.append(P.reshape(*P.shape[:2], -1).expand(-1, -1, k))
            return last, torch.cat(ms, -1), torch.cat(Ps, -1)

        kept = self.kept or ResultCache(limit=0)
        return kept.get("end", compute, self.theta)

    def states_after(self, X: Tensor) -> Iterator[tuple[slice, Theta, At]]:
        """Yield the states at times X after the last row, as ``states`` does."""
        time, m, P = self.end()
        for chunk, part in self.chunks(len(X)):
            space = self.process.space(part, X)
            yield chunk, part, after(m[..., chunk], P[..., chunk], time, space, X[:, 0])

    def marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [draw, m] of f at X."""
        check_memory_of_predictions(self.draws, len(X), X)
        H, means, variances = self.process.observation(X), [], []
        states = self.states(X)
        if self.kept is not None and len(X) and bool(X[:, 0].min() >= self.train.X[:, 0].max()):
            states = self.states_after(X)
        for chunk, part, found in states:
            mean, variance = found.of(H)
            shape = (chunk.stop - chunk.start, len(X))
            means.append((mean + self.mean_at(part, X)).expand(shape))
            prior = self.process.variances(part, X)
            variances.append(at_least_rounding(variance, prior).expand(shape))
        return torch.cat(means), torch.cat(variances)

    def joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean [draw, m] and covariance [draw, m, m] of f at X."""
        check_memory_of_predictions(self.draws, len(X), X, joint=True)
        H, means, covariances = self.process.observation(X), [], []
        for chunk, part in self.chunks(len(X)):
            found = self.smoothed(chunk, part)
            here = self.process.in_direction(part, X, False)
            mean, covariance = joint(found, *here, H)
            lost = at(found, *here).lost(H)
            if bool(lost.any()):  # as in ``states``
                found = self.smoothed(chunk, part, backwards=True)
                there = self.process.in_direction(part, X, True)
                other, of_pairs = joint(found, *there, H)
                worse = at(found, *there).lost(H)
                mean = torch.where(lost & ~worse, other, mean)
                either = (lost[:, None] | lost) & ~(worse[:, None] | worse)
                covariance = torch.where(either, of_pairs, covariance)
            k, m = chunk.stop - chunk.start, len(X)
            means.append((mean + self.mean_at(part, X)).expand(k, m))
            covariances.append(covariance.expand(k, m, m))
        return torch.cat(means), torch.cat(covariances)

    def parts(self, X: Tensor, names: list[str]) -> dict[str, Distribution]:
        """Return the distribution of the terms of each name together at X, batch [draw, m].

        Each term has states of its own, and so have the regressors. No term includes the mean.

        Args:
            X: The new rows.
            names: One for each term of the kernel, if it is a sum, or else for the kernel.
        """
        kernel = self.process.kernel
        H, start = self.process.observation(X), 0
        sizes = [len(H) - (X.shape[-1] - 1)]
        if isinstance(kernel, Sum):
            like = {name: X.new_ones(s.shape) for name, s in kernel.sites(1).items()}
            sizes = [len(space.observation) for space in kernel.state_spaces(like, X)]
        if X.shape[-1] > 1:
            names, sizes = [*names, "regressors"], [*sizes, X.shape[-1] - 1]
        parts = {name: torch.zeros_like(H) for name in names}
        for name, size in zip(names, sizes, strict=True):
            parts[name][start : start + size] = H[start : start + size]
            start += size
        moments: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in parts}
        for chunk, _, states in self.states(X):
            shape = (chunk.stop - chunk.start, len(X))
            for name, own in parts.items():
                mean, variance = states.of(own)
                variance = at_least_rounding(variance, torch.zeros_like(variance))
                moments[name].append((mean.expand(shape), variance.expand(shape)))
        return {
            name: dist.Normal(
                torch.cat([m for m, _ in each]), torch.cat([v for _, v in each]).sqrt()
            )
            for name, each in moments.items()
        }

    def weight_moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and sd [draw, r] of the weight of each regressor."""
        train, r = self.train, self.train.d - 1
        # at the last time, the states given the rows before it are those given all rows
        X = train.X[train.X[:, 0].argmax()].expand(r, -1)
        H = torch.eye(self.process.width(train.d)).to(X)[:, -r:]
        means, variances = [], []
        for chunk, _, states in self.states(X):
            mean, variance = states.of(H)
            shape = (chunk.stop - chunk.start, r)
            means.append(mean.expand(shape))
            variances.append(variance.expand(shape))
        return torch.cat(means), torch.cat(variances).sqrt()


class PartsOfProcess(Candidates, Components, ComponentsByRole, IntegratedCoefficients):
    """The terms of the kernel and the weights of the regressors: each part has states of its own.

    Attributes:
        kernel: A kernel with a state space; None: ``fit`` chooses among ``candidates``, and
            whatever meets no rows has Matern().
        regressors: Prior Normal(0, scale) of the weights of the columns beside the time, or None.
    """

    kernel: Kernel | None
    regressors: PriorLike | None

    @property
    def process(self) -> MarkovProcess:
        """The process of time, and the regressors."""
        return MarkovProcess(Matern() if self.kernel is None else self.kernel, self.regressors)

    @abstractmethod
    def given_rows(
        self, theta: Theta, train: Dataset, kept: ResultCache | None = None
    ) -> GivenRows:
        """Return the process given the training rows, under each draw of theta."""

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is Candidates and self.kernel is not None:
            return NotApplicable(capability.wanted, f"kernel={self.kernel!r}", capability.advice)
        return self.process.lacks(capability, type(self).__name__)

    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return the distribution of each term of a sum of kernels at X, batch [draw, m].

        Each term has states of its own. No term includes the mean.
        """
        kernel = self.process.kernel
        assert isinstance(kernel, Sum)  # see ``MarkovProcess.lacks``
        return self.given_rows(theta, train).parts(X, labels_of_terms(kernel))

    def parts_by_role(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return the distribution of the terms of each role together at X, batch [draw, m]."""
        return self.given_rows(theta, train).parts(X, roles_of_terms(self.process.kernel))

    def weighted(self, d: int) -> range:
        return range(1, d)

    def weight_moments(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        return self.given_rows(theta, train).weight_moments()
