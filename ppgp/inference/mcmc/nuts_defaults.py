"""What an engine of NUTS takes and returns, and the options that the caller leaves open.

These are the length of the warm-up and the acceptance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy.special import chdtri
from torch import Tensor

from ...density.target import Target
from ...numerics.effective_sizes import FEWEST, r_hats
from ...runtime.seeding import standard_normal


@runtime_checkable
class NUTSOptions(Protocol):
    """The options of one run, which are those of ``NUTS`` and documented there."""

    @property
    def draws(self) -> int: ...
    @property
    def warmup(self) -> int | None: ...
    @property
    def chains(self) -> int: ...
    @property
    def target_accept(self) -> float | None: ...
    @property
    def max_depth(self) -> int: ...
    @property
    def metric(self) -> str | None: ...


@dataclass(frozen=True)
class SampledChains:
    """The draws z [chain, draw, p] of a run, its stats ([chain, draw] or numbers) and warnings."""

    z: Tensor
    stats: dict[str, Any]
    notes: list[str]
    interrupted: bool


#: Draws of the warm-up, by how much of the posterior the Laplace approximation already shows: all
#: of it, its scales and correlations near the mode, nothing.
NEARLY_NORMAL, APPROXIMATED, UNKNOWN = 200, 300, 1000
ACCEPT = 0.8
#: In few dimensions, a trajectory along a nearly normal posterior has half as many steps at this
#: acceptance, and its draws are no more correlated. Where the density falls more than STEEP times
#: as fast as that of the approximation, along an axis, it would diverge.
ACCEPT_NEARLY_NORMAL, FEW_DIMENSIONS, STEEP = 0.7, 6, 1.6
#: A posterior is nearly normal if, at REACH standard deviations along each axis of the
#: approximation and at DRAWS draws from it, the log density has fallen by what that of the
#: approximation has, up to this FACTOR. Along the axes alone, a funnel looks normal at its mode.
REACH, DRAWS, FACTOR = 2.0, 20, 3.0
#: Where the log density falls by more than so many times what that of the approximation does, at
#: half of its draws, the posterior is nothing like it, as that of a network. A mass matrix of low
#: rank then misleads, and a step that suits one place is too long in another.
UNLIKE, ACCEPT_UNLIKE = 5.0, 0.9
#: R-hat of a coordinate above which a short warm-up was not enough, beside what independent draws
#: would exceed in one run of a thousand.
RHAT, BY_CHANCE = 1.05, 1e-3
#: Share of divergences above which it was not enough; at the lower acceptance, the second.
DIVERGING, DIVERGING_NEARLY_NORMAL = 0.01, 0.002


@dataclass(frozen=True)
class SettledOptions:
    """The options of one run, none of which is left open; documented at ``NUTS``."""

    draws: int
    warmup: int
    chains: int
    target_accept: float
    max_depth: int
    metric: str | None


def run_plan(
    options: NUTSOptions, target: Target, preconditioner: tuple[Tensor, Tensor] | None
) -> list[SettledOptions]:
    """Return the options with a warm-up, an acceptance and a metric, for one run or for two.

    The second run follows if ``trusted`` does not hold for the draws of the first, whose warm-up is
    short.

    Args:
        options: Those of the caller.
        target: The density.
        preconditioner: Origin [p] and root [p, p] of the Laplace approximation, an identity if
            there is no approximation; None: it is not used.
    """
    warmup, accept = options.warmup, options.target_accept
    normal = steep = False
    if preconditioner is not None and None in (warmup, accept, options.metric):
        axes, draws = falls(target, *preconditioner)
        inside = draws[~np.isnan(draws)]
        if options.metric is None and len(inside) and float(np.median(inside)) > UNLIKE:
            return [
                SettledOptions(
                    options.draws,
                    warmup or UNKNOWN,
                    options.chains,
                    accept or ACCEPT_UNLIKE,
                    options.max_depth,
                    "diagonal",
                )
            ]
        ratios = np.concatenate([axes, draws])
        normal = bool(((ratios >= 1 / FACTOR) & (ratios <= FACTOR)).all())
        steep = bool((axes > STEEP).any())
    if warmup is None:
        warmup = _length(normal, preconditioner)
    if accept is None:
        easy = normal and not steep and target.dim <= FEW_DIMENSIONS
        accept = ACCEPT_NEARLY_NORMAL if easy else ACCEPT
    first = SettledOptions(
        options.draws, warmup, options.chains, accept, options.max_depth, options.metric
    )
    if options.warmup is not None or warmup == UNKNOWN:
        return [first]
    return [first, replace(first, warmup=UNKNOWN, target_accept=options.target_accept or ACCEPT)]


def _length(normal: bool, preconditioner: tuple[Tensor, Tensor] | None) -> int:
    """Return the draws of the warm-up of a posterior that is nearly normal or not."""
    if normal:
        return NEARLY_NORMAL
    if preconditioner is None:
        return UNKNOWN
    root = preconditioner[1]
    if torch.equal(root, torch.eye(len(root)).to(root)):
        return UNKNOWN
    return APPROXIMATED


def trusted(z: np.ndarray, diverging: np.ndarray, accept: float = ACCEPT) -> bool:
    """Return whether a short warm-up was enough, by what the chains drew after it.

    The approximation from which its length follows sees one mode. Chains in another mode, or whose
    step size is still too large, disagree or diverge.

    Args:
        z: The draws [chain, draw, p].
        diverging: [chain, draw].
        accept: The acceptance at which they were drawn.
    """
    share = DIVERGING if accept >= ACCEPT else DIVERGING_NEARLY_NORMAL
    if diverging.sum() > max(1.0, share * diverging.size):
        return False
    if len(z) == 1:  # its halves stand for two chains
        half = z.shape[1] // 2
        z = np.concatenate([z[:, :half], z[:, half : 2 * half]])
    chains, length, p = z.shape
    if length < FEWEST:
        return True
    # between the 2m halves of m chains of independent draws, the variance of their means, in units
    # of its expectation, is chi2 / (2m - 1); R-hat^2 is about 1 + (that - 1) / (draws per half)
    freedom = 2 * chains - 1
    noise = float(chdtri(freedom, BY_CHANCE / (2 * p))) / freedom / (length // 2)
    limit = (RHAT**2 + noise) ** 0.5
    # chains that do not move have no R-hat, and are not trusted
    with np.errstate(all="ignore"):
        return bool((r_hats(z) <= limit).all())


def falls(target: Target, origin: Tensor, root: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much the log density falls, in units of the fall of its approximation.

    Args:
        target: The density.
        origin: The mode, [p].
        root: A square root [p, p] of the covariance, whose columns are the axes.

    Returns:
        The ratios at REACH standard deviations along each axis, either way [2p], and at draws of
        the approximation [DRAWS]; NaN where the density is not finite.
    """
    callback = target.callback()
    p = len(origin)
    generator = torch.Generator().manual_seed(0)
    e = standard_normal(generator, DRAWS, p)
    axes = REACH * torch.eye(p).to(root)
    away = torch.cat([axes, -axes, e.to(root)])
    points = [origin, *(origin + root @ step for step in away)]
    most, *values = (callback(z.double().cpu().numpy())[0] for z in points)
    drops = np.array([most - value for value in values])
    ratios = drops / (0.5 * away.square().sum(1).double().cpu().numpy())
    return ratios[: 2 * p], ratios[2 * p :]
