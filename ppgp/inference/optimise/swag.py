"""SWAG: a Gaussian with the moments of the iterates of stochastic gradient descent."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor

from ...density.target import Target
from ...errors import NotApplicable
from ...posterior.posterior import Posterior
from ...posterior.summary import cut_short
from ...runtime.progress import bar
from ...runtime.seeding import standard_normal
from ..base import Inference, check_batch, finish
from ..options import Count, Positive, Whole
from .first_order import SGD_BATCH, Gradients, stopped_by_the_user
from .map import MAP
from .search import SearchOptions

RESTARTS = 10  # runs at lower and lower rates
SLOWER = 0.25  # factor on the rate of a run that diverged
WINDOW = 20  # steps whose mean loss shows whether a run diverges
DIVERGED = 0.5  # nats per row above the loss at the mode, or this share of it if it is larger


@dataclass(frozen=True)
class SWAG(Inference):
    """Draws from the Gaussian that the iterates of stochastic gradient descent have around a mode.

    Maddox, Garipov, Izmailov, Vetrov & Wilson (2019). ``base`` finds a mode, and gradient descent
    of a constant rate goes on from there. The draws are N(mean, (diagonal + D D' / (K - 1)) / 2) on
    the unconstrained scale, with the mean and the variances of the iterates and their last K
    deviations D from the mean so far. Their spread depends on ``learning_rate`` and ``batch_size``,
    and is that of the posterior for no setting that is known beforehand.

    Stats: ``mean`` [p], ``diagonal`` [p], ``deviations`` [K, p]; ``iterates``, how many were
    recorded; ``learning_rate``, that of the run; ``losses``.

    Args:
        rank: The largest K.
        steps: The number of steps of gradient descent.
        learning_rate: Their rate, on the log density per row. A run that diverges (its loss rises
            by half, and by 0.5 nats per row) starts again at a quarter of the rate.
        batch_size: Rows per step; None: 32, or all if there are fewer.
        every: The number of steps between two iterates that are recorded; None: those of one pass
            over the rows, or fewer so that ``rank`` iterates are recorded.
        draws: The number of draws.
        base: How the mode is found; with ``init`` it starts there.

    Raises:
        SettingError: For an option outside its range; on use, for a ``batch_size`` above the number
            of rows.
        NotApplicable: On use, for a program with its own arguments, or for mini-batches of a model
            that needs all rows at once, such as GP.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> X = torch.linspace(-1, 1, 100, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, 1 + 2 * X[:, 0] + 0.5 * torch.sin(40 * X[:, 0]))
        >>> how = inference.SWAG(rank=5, steps=300, every=20, base=inference.MAP())
        >>> posterior = ppgp.fit(models.LinearRegression(), data, how, progress=False)
        >>> posterior.stats["deviations"].shape, posterior.stats["iterates"]
        (torch.Size([5, 3]), 15)
        >>> posterior.draws["weight"].shape  # [chain, draw, d]
        torch.Size([1, 1000, 1])
        >>> bool(abs(posterior.coefficients()["weight"].mean() - 2) < 0.2)
        True
    """

    rank: Annotated[int, Whole(2)] = 20
    steps: Count = 2000
    learning_rate: Positive = 0.01
    batch_size: Count | None = None
    every: Count | None = None
    draws: Count = 1000
    base: MAP = field(default_factory=lambda: MAP("adam", steps=2000, schedule="cosine"))

    def quick(self) -> SWAG:
        return replace(self, steps=20, draws=20, base=self.base.quick())

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        if not target.data.is_table:
            raise NotApplicable(
                "a Dataset to take mini-batches from",
                "a program with its own arguments",
                "use NUTS, or Laplace for an approximation",
            )
        check_batch(self, target, self.batch_size)
        mode = self.base(target, seed=seed, progress=progress, init=init)
        z = target.unconstrain(mode.draws)[0, 0].clone()
        steps = 0 if cut_short(mode.stats) else self.steps
        rate, runs = self.learning_rate, 1
        run = self._descend(target, z, steps, rate, seed, progress)
        while run[0] is None and runs < RESTARTS:
            rate, runs = SLOWER * rate, runs + 1
            run = self._descend(target, z, steps, rate, seed, progress)
        found, losses, notes, interrupted = run
        moments = Moments(z, self.rank) if found is None else found
        interrupted = interrupted or steps == 0
        if moments.count < 2:
            notes.append("fewer than 2 iterates were recorded, so that the draws have no spread")
        elif moments.count < self.rank:
            notes.append(
                f"{moments.count} iterates were recorded, fewer than rank = {self.rank}, and their "
                "spread is hardly known; raise steps, or lower every"
            )
        generator = torch.Generator().manual_seed(seed)
        draws = moments.sample(self.draws, generator)
        stats = {
            "mean": moments.mean,
            "diagonal": moments.diagonal,
            "deviations": moments.last,
            "iterates": moments.count,
            "learning_rate": rate,
            "losses": torch.tensor(losses, dtype=torch.float64),
        }
        notes = [*mode.warnings[len(target.notes) :], *notes]
        return finish(self, target, draws[None], started, stats, notes, interrupted=interrupted)

    def _descend(
        self, target: Target, z: Tensor, steps: int, rate: float, seed: int, progress: bool
    ) -> tuple[Moments | None, list[float], list[str], bool]:
        """Run gradient descent from z [p]; return the moments of its iterates.

        They are None if it diverged.
        """
        n = target.data.n
        batch_size = min(self.batch_size or SGD_BATCH, n)
        every = self.every or max(1, min(math.ceil(n / batch_size), self.steps // self.rank))
        gradients = Gradients(SearchOptions(), target, z, batch_size, seed)
        moments, losses, notes, interrupted = Moments(z, self.rank), [], [], False
        first = -float(target.value_and_grad(z, jacobian=False)[0])
        most = first + DIVERGED * max(n, abs(first))
        try:
            with bar("SWAG", steps, progress) as update:
                for t in range(steps):
                    value, gradient = gradients.at(z, t)
                    losses.append(-float(value))
                    recent = losses[-WINDOW:]
                    if not sum(recent) / len(recent) <= most and len(losses) >= WINDOW:
                        return None, losses, [diverged(t + 1)], False
                    if not bool(torch.isfinite(gradient).all()):
                        return None, losses, [diverged(t + 1)], False
                    z = z + rate / n * gradient
                    if (t + 1) % every == 0:
                        moments.add(z)
                    update(t + 1, loss=losses[-1])
        except KeyboardInterrupt:
            interrupted = True
            notes.append(stopped_by_the_user(len(losses), self.steps))
        return moments, losses, notes, interrupted


def diverged(step: int) -> str:
    """Return the note of a run of gradient descent that diverged at every rate."""
    return f"gradient descent diverged at step {step} at every rate: lower the learning rate"


class Moments:
    """The running mean and variance of iterates, and their last deviations from the mean so far.

    Args:
        first: The mean as long as no iterate was added, [p].
        rank: How many deviations are kept.

    Attributes:
        mean: [p].
        last: The deviations, [K, p].
        count: How many iterates were added.
    """

    def __init__(self, first: Tensor, rank: int) -> None:
        self.mean, self.rank, self.count = first.clone(), rank, 0
        self.last = first.new_zeros(0, len(first))
        self._squares = torch.zeros_like(first)

    def add(self, z: Tensor) -> None:
        """Add an iterate z [p]. Welford (1962)."""
        self.count += 1
        before = z - self.mean if self.count > 1 else torch.zeros_like(z)
        self.mean = z.clone() if self.count == 1 else self.mean + before / self.count
        after = z - self.mean
        self._squares = self._squares + before * after
        self.last = torch.cat([self.last, after[None]])[-self.rank :]

    @property
    def diagonal(self) -> Tensor:
        """The variances of the iterates, [p]."""
        return self._squares / max(1, self.count)

    def sample(self, draws: int, generator: torch.Generator) -> Tensor:
        """Draw from N(mean, (diagonal + last' last / (K - 1)) / 2), [draw, p]."""
        k = len(self.last)

        def normal(size: int) -> Tensor:
            e = standard_normal(generator, draws, size)
            return e.to(self.mean)

        spread = normal(len(self.mean)) * (0.5 * self.diagonal).sqrt()
        return self.mean + spread + normal(k) @ self.last / math.sqrt(2 * max(1, k - 1))
