"""The rule that ends stochastic variational inference: the ELBO has reached a plateau."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

FEWEST = 4  # ELBOs whose mean has a standard error worth the name
STANDARD_ERRORS = 3


class Plateau:
    """Find the step from which the moving average of the ELBO has not risen for ``patience`` steps.

    Attributes:
        average: The mean of the finite ones among the last ``patience`` ELBOs; NaN if there are
            none.
        reached_at: The number of steps after which the plateau was seen; None: not yet.
    """

    def __init__(self, patience: int) -> None:
        self.patience, self.best, self.best_at, self.total = patience, -math.inf, 0, 0.0
        self.window: deque[float] = deque()  # NaN for an ELBO that is not finite
        self.taken, self.finite, self.average = 0, 0, -math.inf
        self.reached_at: int | None = None

    def add(self, elbo: float) -> None:
        """Take account of one more step; an ELBO that is not finite enters no average."""
        self.window.append(elbo if math.isfinite(elbo) else math.nan)
        change = 0.0
        if math.isfinite(elbo):
            change, self.finite = elbo, self.finite + 1
        if len(self.window) > self.patience:
            dropped = self.window.popleft()
            if math.isfinite(dropped):
                change, self.finite = change - dropped, self.finite - 1
        self.total += change
        self.taken += 1
        self.average = self.total / self.finite if self.finite else math.nan
        if self.taken >= self.patience and self.average > self.best:
            self.best, self.best_at = self.average, self.taken - 1
        waited = self.taken - 1 - self.best_at
        over = waited >= self.patience and self.taken >= 2 * self.patience
        if over and self.reached_at is None:
            self.reached_at = self.taken

    def last_step(self, steps: int) -> int:
        """Return the number of steps after which the training ends."""
        if self.reached_at is None:
            return steps
        return min(steps, self.reached_at + self.patience)

    def still_rising(self, steps: int) -> bool:
        """Whether no plateau was seen and the best average lies in the last patience/4 steps.

        Of fewer steps than twice ``patience``, the last third in the window is compared with the
        one before.
        """
        if self.reached_at is not None:
            return False
        if steps < 2 * self.patience:
            return self._risen()
        return self.best_at >= steps - self.patience // 4

    def _risen(self) -> bool:
        """Whether the last third of the window lies above the one before, by 3 standard errors."""
        window = [elbo for elbo in self.window if math.isfinite(elbo)]
        third = len(window) // 3
        if third < FEWEST:
            return len(window) > 1 and window[-1] > window[0]
        _, before, last = np.split(np.array(window)[-3 * third :], 3)
        error = math.sqrt((before.var(ddof=1) + last.var(ddof=1)) / third)
        return float(last.mean() - before.mean()) > STANDARD_ERRORS * error
