"""The second-order expansion of the unconstrained density at its mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import ImproperPosterior, NumericalError
from .irls import irls
from .scipy_search import lbfgs
from .search import Record, SearchOptions, SearchResult, with_edges

#: How far along a ridge the density is evaluated, in its own units.
DOUBLINGS = tuple(2.0**i for i in range(40))
#: Standard deviations on the unconstrained scale above which the density is checked to fall at all.
WIDE = 1e3
#: Of the largest entry of a direction: smaller ones are rounding of an eigenvector, which a long
#: way along it would magnify.
NOTHING = 1e-4
#: Rounding errors of the dtype, as a share of the largest eigenvalue of the Hessian, within which
#: an eigenvalue is that of a flat direction.
ROUNDINGS = 20.0
#: How far along a flat direction the density is evaluated, in its own units. A proper prior may be
#: as wide as 1e7.
FAR = (1e2, -1e2, 1e4, -1e4, 1e8, -1e8)


@dataclass(frozen=True)
class Peak:
    """A mode of the unconstrained density, and its second-order expansion.

    Attributes:
        mode: The mode, [p].
        log_density: The log density there.
        root: A square root [p, p] of the covariance, the inverse of minus the Hessian; each column
            is along an eigenvector.
        axes: These eigenvectors, [p, p], in units of each coordinate's own curvature.
        half_log_det_covariance: Half the log determinant of the covariance.
        steps: Iterations of the search.
        notes: Reasons to doubt the expansion.
        interrupted: Whether Ctrl-C ended the search.
        definite: Whether the density curves down in every direction.
    """

    mode: Tensor
    log_density: float
    root: Tensor
    axes: Tensor
    half_log_det_covariance: float
    steps: int
    notes: tuple[str, ...]
    interrupted: bool
    definite: bool

    def spread(self, noise: Tensor) -> Tensor:
        """Return the distances [draw, p] of draws from the mode, given N(0, I) noise [draw, p]."""
        # eigenvectors have no sign, and no direction where eigenvalues are equal: turned back by
        # them, the draws are the same up to rounding whatever they are
        return noise @ self.axes @ self.root.mT

    def stats(self) -> dict[str, Any]:
        """Return what a posterior records of the spread: ``covariance`` [p, p]."""
        return {"covariance": self.root @ self.root.mT}


def expand_at_mode(target: Target, z0: Tensor, progress: bool, steps: int) -> Peak:
    """Maximise the density from z0 [p], and expand it to second order at the mode.

    Directions in which the density does not curve down get a made-up spread and a note.

    Raises:
        NumericalError: If the second derivatives are not finite.
        ImproperPosterior: If the density is constant along a line through the mode.
    """
    options = SearchOptions(steps=steps, jacobian=True, progress=progress, record=Record())
    search = irls if target.has_curvature and not target.survey.kinked else lbfgs
    result = search(options, target, z0, 0)
    if target.has_curvature:  # the formula takes one pass, autograd one for each coordinate
        return expanded(target, result, -target.curvature(result.z)[2])
    return expanded(target, result, -target.hessian(result.z))


def expanded(target: Target, result: SearchResult, precision: Tensor) -> Peak:
    """Return the expansion with minus the second derivatives ``precision`` [p, p] at a mode.

    The errors are those of ``expand_at_mode``.
    """
    notes = list(with_edges(target, result) if result.notes else [])
    like = result.z
    # matrices in float64, whatever the dtype of the program
    mode, precision = like.double(), precision.double()
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
    floor = max(1e-10, ROUNDINGS * torch.finfo(like.dtype).eps) * float(values.abs().max())
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
        mode=like,
        log_density=result.stats["log_density"],
        root=(unit[:, None] * vectors * values.rsqrt()).to(like),
        axes=vectors.to(like),
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
        if bool((far >= far[0] - _rounding(far)).all()):
            _raise_improper(target, step, "a density that does not fall however far {}")


def _rounding(values: Tensor) -> Tensor:
    """Return the difference from the first of several log densities that may be rounding."""
    return max(1e-7, 4 * torch.finfo(values.dtype).eps) * (1 + values[0].abs())


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
        if bool((far - far[0]).abs().max() <= _rounding(far)):
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
        ImproperPosterior: If the density is constant along a line.
        KeyboardInterrupt: If Ctrl-C ended the search.
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
