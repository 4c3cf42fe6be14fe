"""The Laplace approximation on the unconstrained scale."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from ...errors import ImproperPosterior, NumericalError, SettingError
from ...numerics.cholesky import LOG_2PI
from ...posterior.posterior import Posterior
from ...posterior.summary import cut_short
from ...target.capabilities import GaussianNetwork, require
from ...target.target import Target
from ..base import Inference, at_the_mode, finish, starting_point
from ..options import Count, OneOf
from .joint_mode import JOINT_MODE, found_jointly
from .last_layer import last_layer
from .map import MAP
from .scipy_search import find_mode
from .search import SearchResult
from .search_starts import best_of, number_of_starts

#: How far along a ridge the density is evaluated, in its own units.
DOUBLINGS = tuple(2.0**i for i in range(40))
#: Standard deviations on the unconstrained scale above which the density is checked to fall at all.
WIDE = 1e3
#: Of the largest entry of a direction: smaller ones are rounding of an eigenvector, which a long
#: way along it would magnify.
NOTHING = 1e-4
#: How far along a flat direction the density is evaluated, in its own units. A proper prior may be
#: as wide as 1e7.
FAR = (1e2, -1e2, 1e4, -1e4, 1e8, -1e8)


@dataclass(frozen=True)
class Laplace(Inference):
    """The normal approximation N(z^, H^-1) around the mode z^ of the unconstrained density.

    H is minus the Hessian of the log density at z^, log-Jacobian included. MacKay (2003),
    chapter 27; the same scale as in Pyro's AutoLaplaceApproximation and Stan.

    Stats: ``log_evidence`` (log joint at z^ + p/2 log 2 pi - log|H| / 2); ``mode`` [p];
    ``covariance`` [p, p]; ``log_q`` and ``lp`` (log densities of the draws under the approximation
    and the target); and those of MAP that BIC and AIC are made of. ``joint_mode`` if f was expanded
    together with its hyperparameters (an SVGP), a poor fit.

    Args:
        draws: the number of draws.
        steps: the largest number of iterations of L-BFGS.
        starts: the number of searches for the mode, as in ``MAP``: several by default if a prior
            leaves the scale of a site open.
        structure: "full", or "last_layer" for a network with Gaussian noise: Bayesian linear
            regression on the last hidden units, which is exact; the other weights stay at the mode.
            The prior precision of the last layer, its bias included, and the variance of the noise
            (unless it is a number) maximise the evidence, whatever their priors. MacKay (1992).
            The stats are then ``log_evidence``, ``precision``, ``noise`` and ``mode``.
        base: with "last_layer", how the mode is found, such as ``MAP("adam")``. None: L-BFGS.

    Raises:
        SettingError: if ``base`` is given beside the full structure.
    """

    draws: Count = 1000
    steps: Count = 1000
    starts: Count | None = None
    structure: Annotated[str, OneOf(("full", "last_layer"))] = "full"
    base: MAP | None = None
    seeks_mode = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base is not None and self.structure == "full":
            do = "use structure='last_layer', or fit MAP first and pass it as init="
            raise SettingError("no base with structure='full'", "one", do)

    def numbers(self, p: int) -> float:
        if self.structure == "last_layer":
            return super().numbers(p)
        return super().numbers(p) + 6.0 * p * p

    def quick(self) -> Laplace:
        return replace(self, draws=20, starts=min(self.starts or 1, 2))

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        if self.structure == "last_layer":
            return self._last_layer(target, seed, progress, init, started)
        start = self._start(target, init, seed, progress)
        steps = 1 if start.interrupted else self.steps
        peak = expand_at_mode(target, start.z, progress, steps)
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(self.draws, target.dim, generator=generator, dtype=torch.float64)
        noise = noise.to(peak.mode)
        z = peak.mode + noise @ peak.root.mT
        log_q = (
            -peak.half_log_det_covariance
            - 0.5 * target.dim * LOG_2PI
            - 0.5 * noise.square().sum(-1)
        )
        graph = target.compiled()
        with torch.no_grad():
            lp = torch.stack([graph(point)[0] for point in z])
        stats = {
            "log_evidence": peak.log_density
            + 0.5 * target.dim * LOG_2PI
            + peak.half_log_det_covariance,
            "mode": peak.mode,
            "covariance": peak.root @ peak.root.mT,
            "lp": lp[None],
            "log_q": log_q[None],
            "steps": peak.steps,
        }
        stats |= start.stats | at_the_mode(target, peak.mode)
        notes = [*start.notes, *(note for note in peak.notes if note not in start.notes)]
        if found_jointly(target):
            stats["joint_mode"] = True
            notes.append(JOINT_MODE)
        interrupted = start.interrupted or peak.interrupted
        return finish(self, target, z[None], started, stats, notes, interrupted=interrupted)

    def _last_layer(
        self,
        target: Target,
        seed: int,
        progress: bool,
        init: Posterior | Tensor | None,
        started: float,
    ) -> Posterior:
        """Return draws of the last layer at the mode of the other weights."""
        require(target.model, GaussianNetwork)
        base = self.base or MAP(steps=self.steps, starts=self.starts)
        mode = base(target, seed=seed, progress=progress, init=init)
        z, mean, found = last_layer(
            target,
            target.unconstrain(mode.draws)[0, 0],
            self.draws,
            torch.Generator().manual_seed(seed),
        )
        stats = {
            "log_evidence": found.log_evidence,
            "precision": found.precision,
            "noise": found.noise,
            "mode": mean,
            "steps": mode.stats["steps"],
        }
        stats |= at_the_mode(target, mean)
        notes = mode.warnings[len(target.notes) :]
        interrupted = cut_short(mode.stats)
        return finish(self, target, z[None], started, stats, notes, interrupted=interrupted)

    def _start(
        self, target: Target, init: Posterior | Tensor | None, seed: int, progress: bool
    ) -> SearchResult:
        """Return where the last search begins: the highest end if there are several starts."""
        z0 = starting_point(target, init, seed)
        starts, enough = number_of_starts(target, self.starts, init)
        if starts == 1:
            return SearchResult(z0, {})

        def search(z: Tensor, seed: int) -> SearchResult:
            return find_mode(target, z, progress, jacobian=True, steps=self.steps)

        best = best_of(target, search, z0, starts, seed, jacobian=True, enough=enough)
        kept = ("ends", "end_log_densities", "losses_of_starts")
        return replace(best, stats={name: best.stats[name] for name in kept})


@dataclass(frozen=True)
class Peak:
    """A mode of the unconstrained density, and its second-order expansion.

    Attributes:
        mode: the mode, [p].
        log_density: the log density there.
        root: a square root [p, p] of the covariance, the inverse of minus the Hessian.
        half_log_det_covariance: half the log determinant of the covariance.
        steps: iterations of the search.
        notes: reasons to doubt the expansion.
        interrupted: whether Ctrl-C ended the search.
        definite: whether the density curves down in every direction.
    """

    mode: Tensor
    log_density: float
    root: Tensor
    half_log_det_covariance: float
    steps: int
    notes: tuple[str, ...]
    interrupted: bool
    definite: bool


def expand_at_mode(target: Target, z0: Tensor, progress: bool, steps: int) -> Peak:
    """Maximise the density from z0 [p], and expand it to second order at the mode.

    Directions in which the density does not curve down get a made-up spread and a note.

    Raises:
        NumericalError: if the second derivatives are not finite.
        ImproperPosterior: if the density is constant along a line through the mode.
    """
    result = find_mode(target, z0, progress, jacobian=True, steps=steps)
    mode, notes = result.z, list(result.notes)
    precision = -target.hessian(mode)
    if not bool(torch.isfinite(precision).all()):
        raise NumericalError(
            "second derivatives at the mode",
            "NaN or infinity",
            "use SVI or NUTS, or priors that keep the mode off the boundary",
        )
    # scaled by each direction's own curvature, so that whether a direction counts as flat does not
    # depend on the units of another
    own = precision.diagonal().abs()
    unit = torch.where(own > 0, own, torch.ones_like(own)).rsqrt()
    values, vectors = torch.linalg.eigh(unit[:, None] * precision * unit)
    floor = 1e-10 * float(values.abs().max())
    tiny = torch.finfo(values.dtype).tiny
    flat = values <= floor
    spread = (unit[:, None] * vectors * values.clamp_min(tiny).rsqrt()).norm(dim=0)
    wide = spread > WIDE
    if bool(wide.any()):
        _refuse_endless(target, mode, unit[:, None] * vectors[:, wide])
    if bool(flat.any()):
        directions = unit[:, None] * vectors[:, flat]
        _refuse_improper(target, mode, directions)
        measured = _far_curvature(target, mode, directions)
        if measured is None:
            notes.append(
                f"the Hessian at the mode is not negative definite in {int(flat.sum())} of "
                f"{target.dim} directions (a ridge or a saddle); the spread along them is made up "
                "and the evidence is not to be used"
            )
            values = values.abs().clamp_min(max(floor, tiny))
        else:
            values[flat], turn = torch.linalg.eigh(measured)
            vectors[:, flat] = vectors[:, flat] @ turn
            flat = torch.zeros_like(flat)
    return Peak(
        mode=mode,
        log_density=result.stats["log_density"],
        root=unit[:, None] * vectors * values.rsqrt(),
        half_log_det_covariance=float(unit.log().sum()) - 0.5 * float(values.log().sum()),
        steps=result.stats["steps"],
        notes=tuple(notes),
        interrupted=result.interrupted,
        definite=not bool(flat.any()),
    )


def _refuse_endless(target: Target, mode: Tensor, directions: Tensor) -> None:
    """Raise ImproperPosterior if the density never falls along one of the directions [p, k].

    The direction away from the origin in their plane is checked too: classes that the inputs
    separate, under a flat prior, have their best weights at infinity.
    """
    away = directions @ torch.linalg.lstsq(directions, (mode - target.origin())[:, None]).solution
    distances = [0.0, *(t for t in FAR if t > 0)]
    for v in torch.cat([away, directions, -directions], 1).mT:
        step = v / v.abs().max()
        step = torch.where(step.abs() < NOTHING, torch.zeros_like(step), step)
        if not bool(torch.isfinite(step).all()):
            continue
        far = torch.stack([target.value_and_grad(mode + t * step)[0] for t in distances])
        if bool((far >= far[0] - 1e-7 * (1 + far[0].abs())).all()):
            _raise_improper(target, step, "a density that does not fall however far {}")


def _raise_improper(target: Target, step: Tensor, got: str) -> None:
    """Raise ImproperPosterior; ``got`` has a place for the names of what ``step`` moves."""
    names = target.names()
    moved = [names[j] for j in torch.nonzero(step.abs() > 1e-3).flatten().tolist()]
    goes = "goes" if len(moved) == 1 else "go together"
    raise ImproperPosterior(
        "a proper posterior",
        got.format(f"{' and '.join(moved[:4])} {goes}"),
        "give a proper prior, or leave out what the data cannot tell apart",
    )


def _refuse_improper(target: Target, mode: Tensor, directions: Tensor) -> None:
    """Raise ImproperPosterior if the density stays constant along one of the directions [p, k]."""
    for v in directions.mT:
        step = v / v.abs().max()
        far = torch.stack([target.value_and_grad(mode + t * step)[0] for t in (0.0, *FAR)])
        if bool((far - far[0]).abs().max() <= 1e-7 * (1 + far[0].abs())):
            _raise_improper(target, step, "a density that stays the same however far {}")


def _far_curvature(target: Target, mode: Tensor, directions: Tensor) -> Tensor | None:
    """Measure the curvature along directions [p, k] in which rounding hides it in the Hessian.

    A wide prior along a ridge is such a case. The curvature follows from how far away the density
    has fallen by about a nat.

    Returns:
        Minus the second derivatives [k, k]; None if the density is no parabola there.
    """
    top = float(target.value_and_grad(mode)[0])

    def fall(v: Tensor) -> float:
        return top - float(target.value_and_grad(mode + v)[0])

    def curvature(v: Tensor) -> float:
        t = next((t for t in DOUBLINGS if not abs(fall(t * v)) < 0.5), math.nan)
        falls = fall(t * v), fall(-t * v), 4 * fall(0.5 * t * v), 4 * fall(-0.5 * t * v)
        mean = sum(falls) / 4
        parabola = mean > 0 and all(abs(each / mean - 1) < 0.05 for each in falls)
        return 2 * mean / t**2 if parabola else math.nan

    columns = list(directions.mT)
    diagonal = [curvature(v) for v in columns]
    measured = torch.diag(torch.tensor(diagonal, dtype=mode.dtype, device=mode.device))
    for i, a in enumerate(columns):
        for j in range(i):
            both = curvature(a + columns[j])
            mixed = 0.5 * (both - float(measured[i, i]) - float(measured[j, j]))
            measured[i, j] = measured[j, i] = mixed
    if not bool(torch.isfinite(measured).all()):
        return None
    if not bool((torch.linalg.eigvalsh(measured) > 0).all()):
        return None
    return measured


def laplace_preconditioner(
    target: Target, start: Tensor, steps: int = 200
) -> tuple[Tensor, Tensor]:
    """Return the mode and the square root of the covariance of the Laplace approximation.

    They give the change of variables z = origin + root w. Being linear, it leaves the posterior as
    it is, however poor the approximation. It is the identity if there is no approximation.

    Returns:
        origin [p] and root [p, p].

    Raises:
        ImproperPosterior: if the density is constant along a line.
        KeyboardInterrupt: if Ctrl-C ended the search.
    """
    identity = torch.eye(target.dim, dtype=start.dtype, device=start.device)
    try:
        peak = expand_at_mode(target, start, False, steps)
    except ImproperPosterior:
        raise
    except NumericalError:
        return torch.zeros_like(start), identity
    if peak.interrupted:
        raise KeyboardInterrupt("stopped before the warm-up; there is no draw to return")
    if not peak.definite:
        return torch.zeros_like(start), identity
    return peak.mode, peak.root
