"""Searches by SciPy: L-BFGS-B, and a trust-region Newton method on the exact Hessian."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ...density.target import Target
from ...errors import LostRank
from ...numerics.newton import ROUNDINGS
from ...runtime.progress import bar
from ...runtime.threads import blas_on_one_thread
from .held_out_rows import EarlyStopping
from .irls import irls
from .kink_search import to_kink
from .search import GIVEN_UP, Few, Record, SearchOptions, SearchResult, is_steep

#: Of the value in one iteration, at which L-BFGS ends: in float64, and in float32.
RELATIVE_GAIN, RELATIVE_GAIN_IN_SINGLE = 1e-13, 1e-10
#: The largest gradient, where its numbers are in units of the posterior sd: 1e-7 nats are left.
LEAST_SLOPE, LEAST_SLOPE_IN_SD = 1e-7, 3e-4
IDLE = 3  # evaluations of one iteration, all within that of the best value, that end a search


def find_mode(
    target: Target,
    z0: Tensor,
    progress: bool,
    jacobian: bool,
    steps: int = 1000,
    record: Record | None = None,
    few: Few | None = None,
) -> SearchResult:
    """Find the mode near z0 [p], with or without the log-Jacobian in the density.

    Newton's method serves where the model knows its own curvature, L-BFGS elsewhere. The Laplace
    approximation expands around the mode with the log-Jacobian. ``record`` keeps the evaluations,
    and ``few`` makes it a search of few steps.
    """
    options = SearchOptions(
        steps=steps, jacobian=jacobian, progress=progress, few=few, record=record or Record()
    )
    search = irls if target.has_curvature and not target.survey.kinked else lbfgs
    return search(options, target, z0, 0)


class _Ended(Exception):
    """A search can go no further: values differ by rounding alone, or a Hessian is not finite."""


class _Objective:
    """The objective for SciPy, as a function of z / unit, or of unit^-1 z for a matrix.

    It remembers the best point, its value and the largest entry of its gradient, so that the end
    of a search, or an interrupted one, needs no evaluation.

    At a mode, values differ by rounding alone, and a line search that asks for a gain would
    evaluate up to 20 of them: the third ends the search. In float32 that is so from a hundredth of
    a standard deviation on. The difference of two values within rounding of one another then comes
    from the gradients at both points, which is exact for a parabola, as in the approximate
    conditions of Hager & Zhang (2005).
    """

    def __init__(
        self, target: Target, options: SearchOptions, unit: np.ndarray, dtype: torch.dtype
    ) -> None:
        evaluated = options.record.evaluated if options.record.active else None
        self.callback = target.callback(options.jacobian, options.compile_after, evaluated)
        self.unit = unit
        self.idle = 0  # evaluations of this iteration near the best value, in a row
        self.best, self.best_z, self.slope = -math.inf, None, math.nan
        self.losses: list[float] = []
        self.last = -math.inf  # the last value, if it is finite
        self.worst = 0.0
        self.single = dtype != torch.float64
        self.gain = RELATIVE_GAIN_IN_SINGLE if self.single else RELATIVE_GAIN
        self.rounding = ROUNDINGS * torch.finfo(dtype).eps
        self.reference: tuple[float, np.ndarray, np.ndarray] | None = None

    def _smooth(self, value: float, z: np.ndarray, gradient: np.ndarray) -> float:
        """Return the value at z [p], from the gradients if it is within rounding of another."""
        if self.reference is not None:
            at, there, slope = self.reference
            if self.alike(value, at):
                return at + 0.5 * float((slope + gradient) @ (z - there))
            if value < at:
                return value
        self.reference = value, z.copy(), gradient.copy()
        return value

    def alike(self, value: float, other: float) -> bool:
        """Return whether two values differ by no more than rounding."""
        return bool(abs(value - other) <= self.rounding * max(1.0, abs(other)))

    def __call__(self, scaled: np.ndarray) -> tuple[float, np.ndarray]:
        z = scaled * self.unit if self.unit.ndim == 1 else self.unit @ scaled
        value, gradient = self.callback(z)
        self.last = -math.inf
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            # a value above all others makes the line search step back
            return self.worst + 1e3 * (1 + abs(self.worst)), np.zeros_like(z)
        if self.single:
            value = self._smooth(value, z, gradient)
        self.worst = max(self.worst, -value) if self.losses else -value
        self.losses.append(-value)
        self.last = value
        if abs(value - self.best) <= self.gain * max(1.0, abs(value)):
            self.idle += 1
        else:
            self.idle = 0
        if value > self.best:
            self.best, self.best_z = value, z
            self.slope = float(np.abs(gradient).max())
        if self.idle == IDLE:
            raise _Ended
        return -value, -(gradient * self.unit if self.unit.ndim == 1 else gradient @ self.unit)


def lbfgs(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    seed: int,
    early_stopping: EarlyStopping | None = None,
) -> SearchResult:
    """Maximise the log density from z0 [p] by SciPy's L-BFGS-B.

    ``seed`` is not used: the search is deterministic.
    """
    if options.root is not None:
        scales = options.root
    else:
        with torch.no_grad():
            scales = target.step_scales(z0)
    limits = {
        "maxiter": options.steps,
        "maxfun": 4 * options.steps,
        "maxcor": 20,
        "ftol": RELATIVE_GAIN if z0.dtype == torch.float64 else RELATIVE_GAIN_IN_SINGLE,
        "gtol": LEAST_SLOPE if options.root is None else LEAST_SLOPE_IN_SD,
    }
    arguments = {"method": "L-BFGS-B", "options": limits}
    return _maximised(options, target, z0, scales, arguments, early_stopping)


def trust_region_newton(
    options: SearchOptions, target: Target, z0: Tensor, seed: int
) -> SearchResult:
    """Maximise the log density from z0 [p] by SciPy's trust-region Newton method.

    It evaluates the exact Hessian. ``seed`` is not used: the search is deterministic.
    """

    def hessian(z: np.ndarray) -> np.ndarray:
        point = torch.from_numpy(z)

        def compute() -> tuple[Tensor]:
            return (target.hessian(point, jacobian=options.jacobian),)

        (H,) = options.record.evaluated(point, (2,), compute)
        found = H.double().cpu().numpy()
        if not np.isfinite(found).all():  # SciPy's solution of the step would raise ValueError
            raise _Ended
        return -found

    limits = {"gtol": 1e-8, "maxiter": options.steps}
    arguments = {"method": "trust-exact", "options": limits, "hess": hessian}
    return _maximised(options, target, z0, torch.ones_like(z0), arguments, None)


def _maximised(
    options: SearchOptions,
    target: Target,
    z0: Tensor,
    scales: Tensor,
    arguments: dict[str, Any],
    early_stopping: EarlyStopping | None,
) -> SearchResult:
    """Maximise the log density from z0 [p] by a method of SciPy.

    Args:
        options: The options of the search.
        target: The density.
        z0: The start.
        scales: [p], the units in which SciPy sees z; or [p, p], as the root of ``options``.
        arguments: Those of ``scipy.optimize.minimize`` that state the method.
        early_stopping: Ends the search on held-out rows; None: there are none.
    """
    unit, begun = scales.double().cpu().numpy(), z0.double().cpu().numpy()
    begun = begun / unit if unit.ndim == 1 else np.linalg.solve(unit, begun)
    objective = _Objective(target, options, unit, z0.dtype)
    notes: list[str] = []
    iterations, interrupted, stopped_early, took_all = 0, False, False, False
    still, before = 0, -math.inf  # iterations without a gain, and the best value of the last one
    heights: list[float] = []  # after each iteration
    with bar(f"MAP ({options.optimizer})", options.steps, options.progress) as update:

        def after_iteration(z: np.ndarray) -> None:
            nonlocal iterations, stopped_early, took_all, still, before
            iterations += 1
            objective.idle = 0
            update(iterations, loss=-objective.best)
            heights.append(objective.best)
            if options.few is not None:
                stopped_early = options.few.is_given_up(heights)
                took_all = iterations >= options.most_steps(objective.best)
                if stopped_early or took_all:
                    raise StopIteration
            if objective.single:  # SciPy has no such rule of its own
                gained = objective.best - before > objective.gain * max(1.0, abs(objective.best))
                # trust-exact also calls back after a step that it rejects, far below the best value
                near = objective.alike(objective.last, objective.best)
                still, before = 0 if gained or not near else still + 1, objective.best
                if still == IDLE:
                    raise StopIteration
            if early_stopping is None:
                return
            if early_stopping.should_stop(iterations, torch.from_numpy(z * unit).to(z0)):
                stopped_early = True
                raise StopIteration

        try:
            with blas_on_one_thread(), suppress(_Ended):
                optimize.minimize(
                    objective,
                    begun,
                    jac=True,
                    callback=after_iteration,
                    **arguments,
                )
        except LostRank as error:
            raise error.at(step=iterations) from None
        except KeyboardInterrupt:
            interrupted = True
            notes.append(
                f"stopped by Ctrl-C after {iterations} iterations; this is the best point so far"
            )
    if objective.best_z is None:  # the density is finite nowhere
        z, value, slope = z0, *_value_and_slope(objective, z0)
    else:
        z = torch.from_numpy(objective.best_z).to(z0)
        value, slope = objective.best, objective.slope
    steep = is_steep(slope, float(value), z0.dtype)
    took_all = took_all or iterations >= options.steps
    at_kink: dict[str, Any] = {}
    stuck = not (took_all or stopped_early or interrupted)
    if steep and stuck and early_stopping is None and target.may_have_kinks:
        end = to_kink(
            objective.callback,
            z.double().cpu().numpy(),
            lambda slope: not is_steep(slope, float(value), z0.dtype),
            10 * torch.finfo(z0.dtype).eps,
        )
        if end is not None and end.value >= value:
            z, value, slope = torch.from_numpy(end.z).to(z0), end.value, end.slope
            steep = is_steep(slope, value, z0.dtype)
            at_kink = {"at_kink": True} if end.at_kink and not steep else {}
    if stopped_early and options.few is not None:
        notes.append(f"{GIVEN_UP} after {iterations} iterations")
    elif not stopped_early and (steep or took_all):
        do = "check the priors, or fit with more starts"
        if took_all:
            do = "raise steps, or check the priors"
        notes.append(
            f"the search ended after {iterations} iterations with a gradient of {slope:.2g}: {do}"
        )
    stats = {
        "log_density": float(value),
        "gradient": slope,
        "steps": iterations,
        "losses": torch.tensor(objective.losses, dtype=torch.float64),
        **at_kink,
    }
    return SearchResult(z, stats, notes, interrupted)


def _value_and_slope(objective: _Objective, z: Tensor) -> tuple[float, float]:
    """Return the log density at z [p], and the largest entry of its gradient."""
    value, gradient = objective.callback(z.double().cpu().numpy())
    return value, float(np.abs(gradient).max())
