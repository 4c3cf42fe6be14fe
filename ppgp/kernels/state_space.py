"""Kernels of one column whose function is part of a state that is a Markov process in time.

Hartikainen & Sarkka (2010); Sarkka & Solin (2019), chapter 12. With such a kernel, a Gaussian
process on n rows costs O(n).

The axes of a matrix come first, [s, s, *batch, *m]: s is the number of states, ``batch`` are the
axes of the hyperparameters and ``m`` those of the times. An operation on small matrices at many
times is then an operation on a few long vectors.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..capabilities import Capability
from ..errors import NotApplicable
from ..numerics.shapes import broadcast_shapes
from ..numerics.small_matrices import block_diagonal

#: from a number of axes to {hyperparameter: value} with these axes at the end
Values = Callable[[int], Mapping[str, Tensor]]
#: kernels without a state space -> what to use instead
RELATIVES = {
    "Anisotropy": "use the kernel itself, which has one direction on one column",
    "Deep": "use models.GP, or the kernel on the column itself",
    "LinearVariogram": "use its nearest relative, Exponential() with a long lengthscale",
    "Polynomial": "use its nearest relative, Constant() + Linear(), or models.GP",
    "RBF": "use its nearest relative, Matern(2.5), or models.GP",
    "RationalQuadratic": "use its nearest relative, a sum of Matern(2.5) kernels, or models.GP",
    "SpectralMixture": "use its nearest relative, a sum of Matern(2.5) * Cosine(), or models.GP",
    "Spherical": "use its nearest relative, Exponential(), or models.GP",
    "White": "leave it out, as the noise of the model is the same",
}
SERIES_BELOW = 2.0  # below it, the sum of the terms that 1 - exp(-x) (1 + x + ...) leaves over
LARGEST = 1000.0  # exp(-x) is 0 beyond it, and a power of x could overflow
SERIES_TERMS = 24  # of it, as 2^24 / 24! is below the rounding error of float64


@dataclass(frozen=True)
class StateSpace:
    """f(t) = observation'x(t), where x(t + dt) given x(t) is N(F x(t), Q).

    Attributes:
        transition: From steps dt [*m], not negative, to F and Q [s, s, *batch, *m].
        covariance: From times t [*m] to the prior covariance of x(t), [s, s, *batch, *m].
        observation: The s numbers that map a state to f.
        blocks: The numbers of states, in order, of processes that are independent; (): one.
        signs: By state, -1 where it changes its sign as time runs backwards, as a slope does, and
            else 1; (): all are 1. A state in the observation has the sign 1.
    """

    transition: Callable[[Tensor], tuple[Tensor, Tensor]]
    covariance: Callable[[Tensor], Tensor]
    observation: tuple[float, ...]
    blocks: tuple[int, ...] = ()
    signs: tuple[float, ...] = ()

    @property
    def every_sign(self) -> tuple[float, ...]:
        """The sign of each state."""
        return self.signs or (1.0,) * len(self.observation)

    @property
    def observed(self) -> tuple[int, ...]:
        """The states in f."""
        return tuple(i for i, weight in enumerate(self.observation) if weight)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of states of each independent process."""
        return self.blocks or (len(self.observation),)

    def scaled(self, factor: Callable[[int], Tensor]) -> StateSpace:
        """Return the state space of sqrt(factor) f.

        Args:
            factor: From a number of axes to the factor [*batch, 1, ...] with these axes.
        """

        def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
            F, Q = self.transition(dt)
            return F, times(Q, factor(dt.ndim))

        def covariance(t: Tensor) -> Tensor:
            return times(self.covariance(t), factor(t.ndim))

        return replace(self, transition=transition, covariance=covariance)

    def backwards(self) -> StateSpace:
        """Return the state space of f(-t), which moves as f does: the kernels are symmetric."""

        def covariance(t: Tensor) -> Tensor:
            P = self.covariance(-t)
            signs = torch.tensor(self.every_sign).to(P)
            return P * torch.outer(signs, signs).reshape(*P.shape[:2], *(1,) * (P.ndim - 2))

        return replace(self, covariance=covariance)

    def of_moved_times(self, factor: float, shift: float) -> StateSpace:
        """Return the state space of f(factor t + shift), for a positive factor."""
        return replace(
            self,
            transition=lambda dt: self.transition(dt * factor),
            covariance=lambda t: self.covariance(t * factor + shift),
        )


class Markov(Capability):
    """A kernel with a state space; one of several parts ``lacks`` it if a part has none."""

    wanted = "a kernel with a state space, such as Matern, Cosine or Linear"
    advice = "use models.GP"

    @abstractmethod
    def state_space(self, theta: Mapping[str, Tensor], like: Tensor) -> StateSpace:
        """Return the state space of f at the hyperparameters ``{name: [*batch]}``.

        Args:
            theta: The hyperparameters that are not fixed.
            like: A tensor with the dtype and the device of the results.
        """


def lacking(kernel: object) -> NotApplicable | None:
    """Return the error for a kernel without a state space, which names its nearest relative."""
    if isinstance(kernel, Markov):
        return kernel.lacks(Markov)
    name = type(kernel).__name__
    return NotApplicable(Markov.wanted, name, RELATIVES.get(name, Markov.advice))


def supports(kernel: object) -> bool:
    """Return whether the kernel has a state space."""
    return lacking(kernel) is None


def require(kernel: object) -> Markov:
    """Return the kernel, typed as one with a state space.

    Raises:
        NotApplicable: If it has none; the message names its nearest relative that has one.
    """
    error = lacking(kernel)
    if error is not None or not isinstance(kernel, Markov):
        raise error or TypeError(type(kernel).__name__)
    return kernel


def stacked(rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return a matrix [s, s, *shape] from its entries, which broadcast to one shape."""
    entries = torch.broadcast_tensors(*(entry for row in rows for entry in row))
    width = len(rows[0])
    lines = [torch.stack(entries[i : i + width]) for i in range(0, len(entries), width)]
    return torch.stack(lines)


def with_batch(M: Tensor, axes: int) -> Tensor:
    """Return a matrix [s, s, *shape] with axes of length 1 put before ``shape``, up to ``axes``."""
    missing = axes - (M.ndim - 2)
    return M.reshape(*M.shape[:2], *(1,) * missing, *M.shape[2:]) if missing > 0 else M


def times(M: Tensor, by: Tensor) -> Tensor:
    """Return matrices M [s, s, *shape] times numbers [*batch, *m]."""
    return with_batch(M, by.ndim) * by


def _together(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Return matrices [s_i, s_i, *shape_i] with one common shape."""
    shape = broadcast_shapes(*(M.shape[2:] for M in matrices))
    return [with_batch(M, len(shape)).expand(*M.shape[:2], *shape) for M in matrices]


def _block_diagonal(matrices: Sequence[Tensor]) -> Tensor:
    return block_diagonal(_together(matrices))


def _kronecker(A: Tensor, B: Tensor) -> Tensor:
    A, B = _together([A, B])
    size = len(A) * len(B)
    return (A[:, None, :, None] * B[None, :, None]).reshape(size, size, *A.shape[2:])


def summed(spaces: Sequence[StateSpace]) -> StateSpace:
    """Return the state space of a sum of independent functions: their states side by side."""

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        steps = [space.transition(dt) for space in spaces]
        return _block_diagonal([F for F, _ in steps]), _block_diagonal([Q for _, Q in steps])

    def covariance(t: Tensor) -> Tensor:
        return _block_diagonal([space.covariance(t) for space in spaces])

    observation = tuple(number for space in spaces for number in space.observation)
    sizes = tuple(size for space in spaces for size in space.sizes)
    signs = tuple(sign for space in spaces for sign in space.every_sign)
    return StateSpace(transition, covariance, observation, sizes, signs)


def multiplied(one: StateSpace, two: StateSpace) -> StateSpace:
    """Return the state space of a product of stationary kernels: the products of their states.

    A sum of independent processes times a process is the sum of the products.
    """
    if len(one.sizes) < len(two.sizes):
        one, two = two, one

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        (F1, Q1), (F2, Q2) = one.transition(dt), two.transition(dt)
        # P1 x P2 - F1 P1 F1' x F2 P2 F2', where F P F' = P - Q: no difference of large numbers
        P1, Q1 = _together([one.covariance(dt), Q1])
        left, right = _together([_kronecker(Q1, two.covariance(dt)), _kronecker(P1 - Q1, Q2)])
        return _kronecker(F1, F2), left + right

    def covariance(t: Tensor) -> Tensor:
        return _kronecker(one.covariance(t), two.covariance(t))

    observation = tuple(a * b for a in one.observation for b in two.observation)
    signs = tuple(a * b for a in one.every_sign for b in two.every_sign)
    sizes = tuple(size * len(two.observation) for size in one.sizes)
    return StateSpace(transition, covariance, observation, sizes, signs)


def level(variance: Callable[[int], Tensor]) -> StateSpace:
    """Return the state space of a level that never changes.

    Args:
        variance: From a number of axes to its variance with these axes at the end.
    """

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        F = stacked([[torch.ones_like(dt)]])
        return F, torch.zeros_like(F)

    def covariance(t: Tensor) -> Tensor:
        return stacked([[variance(t.ndim) + torch.zeros_like(t)]])

    return StateSpace(transition, covariance, (1.0,))


def wave(frequency: Callable[[int], Tensor], variance: Callable[[int], Tensor]) -> StateSpace:
    """Return the wave and the same wave a quarter of a period later, which turn in a circle.

    Args:
        frequency: From a number of axes to radians per unit of time, with these axes at the end.
        variance: From a number of axes to the variance of the wave.
    """

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        angle = frequency(dt.ndim) * dt
        cos, sin = angle.cos(), angle.sin()
        F = stacked([[cos, -sin], [sin, cos]])
        return F, torch.zeros_like(F)

    def covariance(t: Tensor) -> Tensor:
        zero = torch.zeros_like(t)
        size = variance(t.ndim) + zero
        return stacked([[size, zero], [zero, size]])

    return StateSpace(transition, covariance, (1.0, 0.0), signs=(1.0, -1.0))


def matern_states(nu: float, values: Values) -> StateSpace:
    """Return the state space of a Matern kernel of nu = 1/2, 3/2 or 5/2.

    The states are f, f'/rate, ..., with rate = sqrt(2 nu) / lengthscale. The covariance Q of a
    step u = rate dt is the integral over (0, u) of exp(-2 s) times polynomials of s, so that its
    entries are sums of the incomplete gamma functions P(j, 2 u). Computed as P - F P F', Q would
    lose all digits where u is small.

    Hartikainen & Sarkka (2010), section 3.2.

    Args:
        nu: The smoothness.
        values: From a number of axes to the hyperparameters "variance" and "lengthscale" with
            these axes at the end.
    """
    root = math.sqrt(2 * nu)
    move, spread = {0.5: (_move1, _spread1), 1.5: (_move2, _spread2), 2.5: (_move3, _spread3)}[nu]

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        h = values(dt.ndim)
        u = root * dt / h["lengthscale"]
        v = h["variance"]
        F = torch.exp(-u) * move(u)
        return F, times(spread(2 * u), v)

    def covariance(t: Tensor) -> Tensor:
        one, zero = torch.ones_like(t), torch.zeros_like(t)
        third = one / 3.0
        matrix = {
            0.5: [[one]],
            1.5: [[one, zero], [zero, one]],
            2.5: [[one, zero, -third], [zero, third, zero], [-third, zero, one]],
        }[nu]
        return times(stacked(matrix), values(t.ndim)["variance"])

    observation = (1.0,) + (0.0,) * round(nu - 0.5)
    signs = (1.0, -1.0, 1.0)[: len(observation)]
    return StateSpace(transition, covariance, observation, signs=signs)


def _move1(u: Tensor) -> Tensor:
    return torch.ones_like(u)[None, None]


def _move2(u: Tensor) -> Tensor:
    return stacked([[1 + u, u], [-u, 1 - u]])


def _move3(u: Tensor) -> Tensor:
    w = u * u
    h = w / 2
    return stacked(
        [[1 + u + h, u + w, h], [-h, 1 + u - w, u - h], [h - u, w - 3 * u, 1 - 2 * u + h]]
    )


def _spread1(x: Tensor) -> Tensor:
    return erlang(1, x)[0][None, None]


def _spread2(x: Tensor) -> Tensor:
    p1, p2, p3 = erlang(3, x)
    return stacked([[p3, p2 - p3], [p2 - p3, 2 * p1 - 2 * p2 + p3]])


def _spread3(x: Tensor) -> Tensor:
    p1, p2, p3, p4, p5 = erlang(5, x)
    q12 = p4 - p5
    q13 = 2 / 3 * p3 - 2 * p4 + p5
    q22 = 4 / 3 * p3 - 2 * p4 + p5
    q23 = 4 / 3 * p2 - 10 / 3 * p3 + 3 * p4 - p5
    q33 = 8 / 3 * p1 - 16 / 3 * p2 + 20 / 3 * p3 - 4 * p4 + p5
    return stacked([[p5, q12, q13], [q12, q22, q23], [q13, q23, q33]])


class _Erlang(torch.autograd.Function):
    """P(k, x), with derivative exp(-x) x^(k - 1) / (k - 1)!, accurate in relative terms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: int) -> Tensor:
        series, partial = torch.ones_like(x), torch.ones_like(x)
        for j in range(SERIES_TERMS, 0, -1):
            series = 1 + series * x / (k + j)
        for j in range(k - 1, 0, -1):
            partial = 1 + partial * x / j
        decay = torch.exp(-x)
        below = decay * x**k * (series / math.factorial(k))
        return torch.where(x < SERIES_BELOW, below, 1 - decay * partial)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.k = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad_outputs[0] * _poisson_mass(ctx.k - 1, x), None


def _poisson_mass(k: int, x: Tensor) -> Tensor:
    """Return P(k, x) - P(k + 1, x) = exp(-x) x^k / k!, the mass of Poisson's law at k."""
    return torch.exp(-x) * x**k / math.factorial(k)


def erlang(k: int, x: Tensor) -> list[Tensor]:
    """Return P(1, x), ..., P(k, x), where P(j, x) = 1 - exp(-x) (1 + x + ... + x^(j-1) / (j-1)!).

    They are the distribution functions of Erlang's laws.

    Each is accurate in relative terms, also where x is small and P(j, x) is about x^j / j!.

    Args:
        k: The largest shape, at least 1.
        x: Any shape, not negative.
    """
    x = x.clamp_max(LARGEST)
    top: Any = _Erlang.apply(x, k)
    values = [top]
    for j in range(k - 1, 0, -1):
        values.append(values[-1] + _poisson_mass(j, x))
    return values[::-1]
