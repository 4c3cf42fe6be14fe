"""Levenberg-Marquardt steps for likelihoods of functions of the rows, such as networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ...density.target import Target
from ...numerics.conjugate_gradients import Product, conjugate_gradients
from ...runtime.progress import bar
from .curvature_of_rows import CurvatureOfRows
from .search import Record, SearchOptions, SearchResult, is_steep

LARGEST_FORMED = 2000  # parameters up to which the matrix is formed and factored
CG_STEPS = 250
CG_LEFT = 0.01  # of |b| at which conjugate gradients end
FIRST_DAMPING = 1e-3  # of the curvature along the first gradient
#: Of the rise that the quadratic model promises, relative to the log density.
TOLERANCE = 1e-11
LEAST_GAIN = 1e-4  # share of the promised rise that a step must deliver
GOOD_GAIN = 0.25  # share from which steps of L-BFGS follow
MORE_STEPS = 20
SHARE = 0.1  # of the rise that the slope promises, which a step of L-BFGS must deliver
FLAT = 1e-10  # cosine of the angle between a step and the fall of the gradient that is too small


def gauss_newton(options: SearchOptions, target: Target, z0: Tensor, seed: int) -> SearchResult:
    """Maximise the log density from z0 [p] by Levenberg-Marquardt steps (A + mu I)^-1 gradient.

    A is the generalised Gauss-Newton matrix. The damping mu follows from the ratio of the gained
    to the promised rise: Nielsen (1999); Madsen, Nielsen & Tingleff (2004), algorithm 3.16. Up to
    2,000 parameters A is formed and factored, and steps of L-BFGS, which begin with the factored
    matrix, follow a good step. Beyond that the step is found by conjugate gradients. ``seed`` is
    not used: the search is deterministic.
    """
    search = _Search(options, target, z0)
    notes: list[str] = []
    interrupted, iteration = False, 0
    try:
        steps = options.most_steps(search.value)
        with bar("MAP (gauss_newton)", steps, options.progress) as update:
            for iteration in range(1, steps + 1):
                ended = search.step()
                update(iteration, loss=-search.value)
                if ended:
                    break
    except KeyboardInterrupt:
        interrupted = True
        notes.append(
            f"stopped by Ctrl-C after {iteration - 1} iterations; this is the best point so far"
        )
    slope = float(search.gradient.abs().max())
    steep = is_steep(slope, search.value, z0.dtype)
    if not interrupted and (steep or not search.converged):
        notes.append(
            f"the search ended after {iteration} iterations with a gradient of {slope:.2g}: "
            "raise steps, or check the priors"
        )
    stats = {
        "log_density": search.value,
        "gradient": slope,
        "steps": iteration,
        "losses": torch.tensor(search.losses, dtype=torch.float64),
    }
    return SearchResult(search.z, stats, notes, interrupted)


class _Search:
    """The point reached, and the steps that lead on.

    Attributes:
        z: The best point so far, [p].
        value: The log density there.
        gradient: Its gradient, [p].
        losses: Minus the log density at the start and after each step that was taken.
        converged: Whether the search has ended by its own rule.
    """

    def __init__(self, options: SearchOptions, target: Target, z0: Tensor) -> None:
        self.options, self.target, self.z = options, target, z0.detach().clone()
        self.curvature = CurvatureOfRows(target, options.jacobian)
        self.converged, self.evaluations = False, 0
        self.value, self.gradient = self._evaluate(self.z)
        self.losses = [-self.value]
        self.damping, self.growth = math.nan, 2.0
        self.matrix: _Solver | None = None

    def step(self) -> bool:
        """Try one step; return whether the search has ended."""
        if self.matrix is None:
            self.matrix = _Solver(self.options.record, self.curvature, self.z)
            if math.isnan(self.damping):
                self.damping = FIRST_DAMPING * self.matrix.along(self.gradient)
        step, left = self.matrix.solve(self.damping, self.gradient)
        promised = 0.5 * float(step @ (self.damping * step + self.gradient + left))
        if promised <= TOLERANCE * (1 + abs(self.value)):
            self.converged = True
            return True
        before, matrix = self.gradient, self.matrix
        gain = self._move(step, LEAST_GAIN * promised) / promised
        if not gain > LEAST_GAIN:
            self.damping *= self.growth
            self.growth *= 2
            return False
        if gain > GOOD_GAIN and matrix.formed:
            self._more_steps(matrix, step, before - self.gradient)
        self.matrix = None
        self.damping *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
        self.growth = 2.0
        return False

    def _move(self, step: Tensor, least: float) -> float:
        """Take a step if the log density rises by more than ``least``; return the rise, or 0."""
        value, gradient = self._evaluate(self.z + step)
        rise = value - self.value
        if not (rise > least and bool(torch.isfinite(gradient).all())):  # NaN is no rise
            return 0.0
        self.z, self.value, self.gradient = self.z + step, value, gradient
        self.losses.append(-value)
        return rise

    def _more_steps(self, matrix: _Solver, step: Tensor, fall: Tensor) -> None:
        """Take steps of L-BFGS, whose first matrix is the factored one, while they go on well.

        A step costs an evaluation, which is far less than a matrix. The pairs of steps and slopes
        bring in what the matrix leaves out, the second derivatives of the functions.

        Args:
            matrix: That of the point before.
            step: The step taken with it, [p].
            fall: By how much the gradient fell along it, [p].
        """
        pairs = [(step, fall)]
        for _ in range(MORE_STEPS):
            pairs = [(s, y) for s, y in pairs if float(s @ y) > FLAT * float(s.norm() * y.norm())]
            before = self.gradient
            direction = matrix.two_loops(pairs, before)
            least = SHARE * float(direction @ before)
            rise = self._move(direction, least)
            if rise <= TOLERANCE * (1 + abs(self.value)):
                return
            pairs.append((direction, before - self.gradient))

    def _evaluate(self, z: Tensor) -> tuple[float, Tensor]:
        """Return the log density and its gradient; it is compiled after some evaluations."""
        compile = self.evaluations >= self.options.compile_after
        self.evaluations += 1
        jacobian = self.options.jacobian
        if compile and self.evaluations == self.options.compile_after + 1:
            self.target.compiled(None, jacobian)  # now, also if the results are on record

        def compute() -> tuple[Tensor, Tensor]:
            return self.target.value_and_grad(z, jacobian=jacobian, compile=compile)

        value, gradient = self.options.record.evaluated(z, (0, 1), compute)
        return float(value), gradient


class _Solver:
    """Solutions with the matrix at a point, which is computed if the record does not have them.

    Args:
        record: What the search has computed so far.
        curvature: The matrix as a function of the point.
        z: The point, [p].
    """

    def __init__(self, record: Record, curvature: CurvatureOfRows, z: Tensor) -> None:
        self.record, self.curvature, self.z = record, curvature, z
        self.formed = len(z) <= LARGEST_FORMED
        self.damped: tuple[float, Tensor] | None = None

    @cached_property
    def matrix(self) -> Factored | Unformed:
        """The matrix."""
        if self.formed:
            return Factored(self.curvature.matrix(self.z))
        return Unformed(self.curvature.product(self.z))

    def along(self, v: Tensor) -> float:
        """Return the curvature along v [p]."""

        def compute() -> tuple[Tensor]:
            found = _along(v, self.matrix.product)
            return (torch.tensor(found, dtype=torch.float64),)

        return float(self.record.evaluated(v.double(), (0,), compute)[0])

    def solve(self, damping: float, b: Tensor) -> Sequence[Tensor]:
        """Return the x [p] and the rest [p] of ``Factored.solve``."""
        self.damped = damping, b
        return self.record.evaluated(b, (1, 1), lambda: self.matrix.solve(damping, b))

    def two_loops(self, pairs: list[tuple[Tensor, Tensor]], gradient: Tensor) -> Tensor:
        """Return the step of L-BFGS, [p], which begins with the matrix of the last ``solve``."""

        def compute() -> tuple[Tensor]:
            return (_two_loops(pairs, self._factored(), gradient),)

        return self.record.evaluated(gradient, (1,), compute)[0]

    def _factored(self) -> Factored:
        """Return the matrix with the factor of the last ``solve``."""
        assert self.damped is not None
        assert isinstance(self.matrix, Factored)
        if not self.matrix.solved:  # the solution was on record
            self.matrix.solve(*self.damped)
        return self.matrix


class Factored:
    """A symmetric matrix A [p, p] and the factor of A + damping I."""

    def __init__(self, A: Tensor) -> None:
        self.A, self.product = A, A.mv
        self.L, self.solved = A, False

    def solve(self, damping: float, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return x with (A + own I) x = b, and b - (A + damping I) x.

        ``own`` is ``damping``, or more if the matrix is not positive definite.
        """
        self.solved = True
        own, damped = damping, self.A.clone()
        damped.diagonal().add_(damping)
        self.L, failed = torch.linalg.cholesky_ex(damped)
        while int(failed):
            damped.diagonal().add_(3 * own)
            own *= 4
            self.L, failed = torch.linalg.cholesky_ex(damped)
        x = self.again(b)
        return x, (own - damping) * x

    def again(self, b: Tensor) -> Tensor:
        """Return the x of ``solve`` for another b, with the factor of the last call."""
        return torch.cholesky_solve(b[:, None], self.L)[:, 0]


class Unformed:
    """A symmetric matrix that is known by its products with vectors."""

    def __init__(self, product: Product) -> None:
        self.product = product

    def solve(self, damping: float, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return x with (A + damping I) x near b, and what is left of b."""

        def damped(v: Tensor) -> Tensor:
            return self.product(v) + damping * v

        return conjugate_gradients(damped, b, steps=CG_STEPS, left=CG_LEFT)


def _along(v: Tensor, product: Product) -> float:
    """Return the curvature v' A v / v' v; 1 where it is not positive."""
    square = float(v @ v)
    found = float(v @ product(v)) / square if square else 0.0
    return found if found > 0 else 1.0


def _two_loops(pairs: list[tuple[Tensor, Tensor]], matrix: Factored, gradient: Tensor) -> Tensor:
    """Return the step of L-BFGS from pairs of steps s and falls y. Nocedal & Wright (2006), 7.4."""
    q, shares = gradient.clone(), []
    for s, y in reversed(pairs):
        shares.append(float(s @ q) / float(s @ y))
        q -= shares[-1] * y
    q = matrix.again(q)
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(y @ q) / float(s @ y)) * s
    return q
