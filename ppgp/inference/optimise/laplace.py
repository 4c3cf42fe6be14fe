"""The Laplace approximation on the unconstrained scale."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...errors import ImproperPosterior, NumericalError
from ...numerics.cholesky import LOG_2PI
from ...posterior.posterior import Posterior
from ...target.target import Target
from ..base import Inference, at_the_mode, finish, starting_point
from ..options import Count
from .joint_mode import JOINT_MODE, found_jointly
from .map import find_mode
from .multistart import best_of, number_of_starts


@dataclass(frozen=True)
class Laplace(Inference):
    """N(z^, H^-1) around the mode z^ of the unconstrained density, H minus its Hessian there, log-Jacobian included.

    Args:
        draws: how many draws to take from it.
        steps: at most so many iterations of L-BFGS.
        starts: of the search for the mode, as in ``MAP``: several by default where a prior leaves the scale of a site open.

    Stats: ``log_evidence`` (log joint at z^ + p/2 log 2 pi - log|H| / 2), ``mode`` [p], ``covariance`` [p, p], ``log_q``
    and ``lp`` (log densities of the draws under the approximation and the target), and those of
    MAP that BIC and AIC are made of; ``joint_mode`` where f was expanded together with its hyperparameters (an SVGP), a poor fit.
    MacKay (2003), chapter 27; the same scale as Pyro's AutoLaplaceApproximation and Stan.
    """

    draws: Count = 1000
    steps: Count = 1000
    starts: Count | None = None

    def numbers(self, p: int) -> float:
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
        z0, ends, said = self._begin(target, init, seed, progress)
        interrupted = ends.pop("interrupted", False)
        peak = expand(target, z0, progress, 1 if interrupted else self.steps)
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(self.draws, target.dim, generator=generator, dtype=torch.float64).to(
            peak.mode
        )
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
        stats |= ends | at_the_mode(target, peak.mode)
        notes = [*said, *(sentence for sentence in peak.notes if sentence not in said)]
        if found_jointly(target):
            stats["joint_mode"], notes = True, [*notes, JOINT_MODE]
        return finish(
            self,
            target,
            z[None],
            started,
            stats,
            notes,
            interrupted=interrupted or peak.interrupted,
        )

    def _begin(
        self, target: Target, init: Posterior | Tensor | None, seed: int, progress: bool
    ) -> tuple[Tensor, dict[str, Any], list[str]]:
        """Where to climb from: with several starts the highest of their ends, with the stats and notes on all of them."""
        z0 = starting_point(target, init, seed)
        starts, enough = number_of_starts(target, self.starts, init)
        if starts == 1:
            return z0, {}, []

        def maximise(z: Tensor, seed: int) -> tuple[Tensor, dict[str, Any], list[str]]:
            return find_mode(target, z, progress, jacobian=True, steps=self.steps)

        z, stats, notes = best_of(target, maximise, z0, starts, seed, jacobian=True, enough=enough)
        return (
            z,
            {
                name: stats[name]
                for name in ("ends", "end_log_densities", "losses_of_starts", "interrupted")
            },
            notes,
        )


@dataclass(frozen=True)
class Peak:
    """The mode of the unconstrained density, its height, and a root of the inverse of minus its Hessian there."""

    mode: Tensor
    log_density: float
    root: Tensor
    half_log_det_covariance: float
    steps: int
    notes: tuple[str, ...]
    interrupted: bool
    definite: bool  # whether the density curves down in every direction


def expand(target: Target, z0: Tensor, progress: bool, steps: int) -> Peak:
    """Climb to the mode by L-BFGS and expand to second order; directions that do not curve down are noted and made up.

    Raises:
        NumericalError: where the second derivatives are not finite.
        ImproperPosterior: where the density is constant along a line through the mode.
    """
    mode, stats, notes = find_mode(target, z0, progress, jacobian=True, steps=steps)
    precision = -target.hessian(mode)
    if not bool(torch.isfinite(precision).all()):
        raise NumericalError(
            "second derivatives at the mode",
            "NaN or infinity",
            "use SVI or NUTS, or priors that keep the mode off the boundary",
        )
    # in units of each direction's own curvature: whether a direction is flat must not depend on the units of another
    own = precision.diagonal().abs()
    unit = torch.where(own > 0, own, torch.ones_like(own)).rsqrt()
    values, vectors = torch.linalg.eigh(unit[:, None] * precision * unit)
    floor = 1e-10 * float(values.abs().max())
    flat = values <= floor
    wide = (
        unit[:, None] * vectors * values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt()
    ).norm(dim=0) > WIDE
    if bool(wide.any()):
        _refuse_endless(target, mode, unit[:, None] * vectors[:, wide])
    if bool(flat.any()):
        directions = unit[:, None] * vectors[:, flat]
        _refuse_improper(target, mode, directions)
        measured = _far_curvature(target, mode, directions)
        if measured is None:
            notes.append(
                f"the Hessian at the mode is not negative definite in {int(flat.sum())} of {target.dim} directions (a ridge or a "
                "saddle); the spread along them is made up and the evidence is not to be used"
            )
            values = values.abs().clamp_min(max(floor, torch.finfo(values.dtype).tiny))
        else:
            values[flat], turn = torch.linalg.eigh(measured)
            vectors[:, flat] = vectors[:, flat] @ turn
            flat = torch.zeros_like(flat)
    return Peak(
        mode=mode,
        log_density=stats["log_density"],
        root=unit[:, None] * vectors * values.rsqrt(),
        half_log_det_covariance=float(unit.log().sum()) - 0.5 * float(values.log().sum()),
        steps=stats["steps"],
        notes=tuple(notes),
        interrupted=stats["interrupted"],
        definite=not bool(flat.any()),
    )


DOUBLINGS = tuple(
    2.0**i for i in range(40)
)  # how far along a ridge the density is followed, in its own units
WIDE = 1e3  # standard deviations of the unconstrained scale from which on it is asked whether there is an end to them
NOTHING = 1e-4  # of a direction's largest entry: an eigenvector's rounding, which a long way would magnify
#: how far along a flat direction the density is looked at, in its own units: a proper prior may be as wide as 1e7
FAR = (1e2, -1e2, 1e4, -1e4, 1e8, -1e8)


def _refuse_endless(target: Target, mode: Tensor, directions: Tensor) -> None:
    """Raises ImproperPosterior where the density does not fall however far it is followed one way along one of the directions
    [p, k], or in their plane away from the origin: classes that the inputs separate, under a flat prior, have their best weights at
    infinity."""
    away = directions @ torch.linalg.lstsq(directions, (mode - target.origin())[:, None]).solution
    for v in torch.cat([away, directions, -directions], 1).mT:
        step = v / v.abs().max()
        step = torch.where(step.abs() < NOTHING, torch.zeros_like(step), step)
        if not bool(torch.isfinite(step).all()):
            continue
        far = torch.stack(
            [target.value_and_grad(mode + t * step)[0] for t in (0.0, *(t for t in FAR if t > 0))]
        )
        if bool((far >= far[0] - 1e-7 * (1 + far[0].abs())).all()):
            _improper(target, step, "a density that does not fall however far {}")


def _improper(target: Target, step: Tensor, got: str) -> None:
    names = target.names()
    moved = [names[j] for j in torch.nonzero(step.abs() > 1e-3).flatten().tolist()]
    goes = "goes" if len(moved) == 1 else "go together"
    raise ImproperPosterior(
        "a proper posterior",
        got.format(f"{' and '.join(moved[:4])} {goes}"),
        "give a proper prior, or leave out what the data cannot tell apart",
    )


def _refuse_improper(target: Target, mode: Tensor, directions: Tensor) -> None:
    """Raises ImproperPosterior where the density does not change far along one of the directions [p, k]."""
    for v in directions.mT:
        step = v / v.abs().max()
        far = torch.stack([target.value_and_grad(mode + t * step)[0] for t in (0.0, *FAR)])
        if bool((far - far[0]).abs().max() <= 1e-7 * (1 + far[0].abs())):
            _improper(target, step, "a density that stays the same however far {}")


def _far_curvature(target: Target, mode: Tensor, directions: Tensor) -> Tensor | None:
    """Minus the second derivatives [k, k] along directions [p, k] in which rounding hides them in the Hessian: a wide prior along a
    ridge. From how the density falls where it has fallen by a nat or so; None where that is no parabola."""

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
    found = torch.diag(
        torch.tensor([curvature(v) for v in columns], dtype=mode.dtype, device=mode.device)
    )
    for i, a in enumerate(columns):
        for j in range(i):
            own = 0.5 * (curvature(a + columns[j]) - float(found[i, i]) - float(found[j, j]))
            found[i, j] = found[j, i] = own
    definite = bool(torch.isfinite(found).all()) and bool((torch.linalg.eigvalsh(found) > 0).all())
    return found if definite else None


def laplace_frame(target: Target, start: Tensor, maximise: int = 200) -> tuple[Tensor, Tensor]:
    """origin [p] and root [p, p], z = origin + root w: the Laplace approximation's; z itself where it has none.

    A linear change of variables leaves the posterior as it is, however poor the approximation.
    """
    unmoved = torch.zeros_like(start), torch.eye(target.dim, dtype=start.dtype, device=start.device)
    try:
        peak = expand(target, start, False, maximise)
    except ImproperPosterior:
        raise
    except NumericalError:
        return unmoved
    if peak.interrupted:
        raise KeyboardInterrupt("stopped before the warm-up; there is no draw to return")
    return (peak.mode, peak.root) if peak.definite else unmoved
