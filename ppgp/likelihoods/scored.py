"""Proper scores of a likelihood as functions of f: values, gradients and natural gradients.

f [*draw, K, n] holds the K functions of x on the unconstrained scale, and y is [n]. A score is a
loss. Kind "nll" is the negative log density; "crps" is the continuous ranked probability score, or
the Brier score of classes. Duan et al. (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ..capabilities import Capability
from ..errors import DataError, NotApplicable, SettingError, UnknownName

Theta = Mapping[str, Tensor]
KINDS = ("nll", "crps")
LARGEST_STEP = 4.0  # of the log of a scale or shape along the natural gradient
HUGE_STEP = 1e9  # of the log of a location, which only an overflow reaches
LEAST_SHARE = 1e-6  # the least probability of a class in a natural gradient
SCORING_STEPS = 60
FARTHEST = math.log(1e3)  # of a log below the guess, from which the constant is that of ties
ROUNDING = 1e-9  # the last step of a search that has converged
NO_THETA: Theta = {}


class Scored(Capability):
    """What a likelihood offers to natural gradient boosting.

    A subclass defines ``_score``, ``_slopes``, ``_second_slopes`` and ``_curvature`` for the
    coordinates ``(f, log parameter 1, log parameter 2, ...)``, in the order of its ``parameters``;
    ``_guess``; and ``_censored`` if it is censorable. The public methods select those of the
    functions that are predicted.

    Attributes:
        kinds: The scores that it has.
        limits: The longest natural step of each coordinate; that of a log scale is finite.
        censorable: Whether it has a score of right-censored targets.
        spikes_on_ties: Whether the density of a few equal targets among others has no bound, so
            that no constant has the least score.
    """

    wanted = "a likelihood with scores (one that inherits Scored)"
    advice = "for example Gaussian(noise=Predicted())"

    kinds: ClassVar[tuple[str, ...]] = KINDS
    limits: ClassVar[tuple[float, ...]] = (math.inf,)
    censorable: ClassVar[bool] = False
    spikes_on_ties: ClassVar[bool] = False

    # -- what a subclass defines ------------------------------------------------------------

    def _coordinates(self) -> tuple[int, ...]:
        """Return which coordinates are functions of x, [K]."""
        return (0,)

    def _at(self, theta: Theta, f: Tensor) -> tuple[Mapping[str, Tensor], Tensor]:
        """Return the parameters per row, and f as ``_score`` takes it: the first, [*draw, n]."""
        return {}, f[..., 0, :]

    def _score(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> Tensor:
        raise NotImplementedError

    def _slopes(self, p: Theta, f: Tensor, y: Tensor, kind: str) -> tuple[Tensor, ...]:
        """Return the derivative of the score with respect to each coordinate."""
        raise NotImplementedError

    def _second_slopes(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the second derivative of the log density by each coordinate."""
        raise NotImplementedError

    def _curvature(self, p: Theta, f: Tensor, kind: str) -> Mapping[tuple[int, int], Tensor]:
        """Return the entries (i, j), i <= j, of the metric that are not 0."""
        raise NotImplementedError

    def _censored(self, p: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return -log P(Y > y), and its derivative with respect to each coordinate."""
        raise NotImplementedError

    def _guess(self, y: Tensor) -> tuple[float, ...]:
        """Return a value of each coordinate near which the search of ``initial`` begins."""
        raise NotImplementedError

    def _has_least(self, y: Tensor) -> bool:
        """Return whether finite constants have the least total score."""
        return True

    @property
    def learned(self) -> int:
        """How many of the K functions boosting finds; it holds the others at 0."""
        return len(self._coordinates())

    def completed(self, f: Tensor) -> Tensor:
        """Return f [*draw, K, n], given the functions that boosting finds; the others are 0."""
        missing = len(self._coordinates()) - f.shape[-2]
        if not missing:
            return f
        return torch.cat([f, torch.zeros_like(f[..., :missing, :])], -2)

    # -- what boosting calls ------------------------------------------------------------------

    def score(
        self,
        theta: Theta,
        f: Tensor,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
    ) -> Tensor:
        """Return the score per row, [*draw, n].

        Args:
            theta: {site: [*draw]} of the parameters that are not functions of x.
            f: The functions [*draw, K, n].
            y: Targets [n].
            kind: "nll" or "crps".
            right_censored: Which targets are only known to be exceeded, [n].

        Raises:
            UnknownName: If there is no such kind.
            NotApplicable: If the likelihood has no score of that kind, or none of censored targets.
        """
        self._check(f, kind, right_censored)
        p, first = self._at(theta, f)
        value = self._score(p, first, y, kind)
        if right_censored is None:
            return value
        return torch.where(right_censored.bool(), self._censored(p, first, y)[0], value)

    def gradient(
        self,
        theta: Theta,
        f: Tensor,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
    ) -> Tensor:
        """Return the derivative of the score with respect to f, [*draw, K, n].

        The arguments are those of ``score``. For "nll" it is minus the first of ``slopes``.
        """
        self._check(f, kind, right_censored)
        p, first = self._at(theta, f)
        return self._gradient_at(p, first, f, y, kind, right_censored)

    def _gradient_at(
        self,
        p: Theta,
        first: Tensor,
        f: Tensor,
        y: Tensor,
        kind: str,
        right_censored: Tensor | None,
    ) -> Tensor:
        """Return ``gradient`` where ``_at`` has read the parameters and the first function of f."""
        slopes = self._slopes(p, first, y, kind)
        if right_censored is not None:
            pairs = zip(slopes, self._censored(p, first, y)[1:], strict=True)
            slopes = tuple(torch.where(right_censored.bool(), c, s) for s, c in pairs)
        return self._selected(slopes, f)

    def slopes(self, theta: Theta, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and the second derivative of the row log density by each function.

        Args:
            theta: {site: [*draw]} of the parameters that are not functions of x.
            f: The functions [*draw, K, n].
            y: Targets [n].

        Returns:
            d log p / df_k and d^2 log p / df_k^2, each [*draw, K, n].
        """
        first = -self.gradient(theta, f, y)
        p, location = self._at(theta, f)
        return first, self._selected(self._second_slopes(p, location, y), f)

    def metric(self, theta: Theta, f: Tensor, kind: str = "nll") -> Tensor:
        """Return the Riemannian metric of the score, [*draw, n, K, K].

        It is the Fisher information for "nll", and 2 integral (dF/df_i)(dF/df_j) dz for "crps".
        """
        self._check(f, kind)
        p, first = self._at(theta, f)
        entries = self._curvature(p, first, kind)
        chosen = self._coordinates()
        metric = f.new_zeros(*first.shape, len(chosen), len(chosen))
        for a, i in enumerate(chosen):
            for b, j in enumerate(chosen):
                entry = entries.get((min(i, j), max(i, j)))
                if entry is not None:
                    metric[..., a, b] = entry
        return metric

    def step_curvature(self, theta: Theta, f: Tensor, y: Tensor) -> Tensor:
        """Return minus a curvature of the row log density by the first function, [*draw, n], >= 0.

        It serves for a step where the log density is not concave, and is the Fisher information
        where a likelihood has no better one. The arguments are those of ``slopes``.
        """
        return self.metric(theta, f)[..., 0, 0]

    def precision_as_normal(
        self, theta: Theta, f: Tensor, y: Tensor, width: float = 1.0
    ) -> Tensor | None:
        """Return the precision of each row as a mixture of normals around f, [*draw, n].

        It is that given the residual y - f, the weight of a step of the EM algorithm. None: the
        likelihood is no mixture of normals.

        Args:
            theta: {site: [*draw]} of the parameters that are not functions of x.
            f: The functions [*draw, K, n].
            y: Targets [n].
            width: How many times as wide the noise is taken.
        """
        return None

    def natural(
        self,
        theta: Theta,
        f: Tensor,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
    ) -> Tensor:
        """Return metric^-1 gradient, [*draw, K, n]; the arguments are those of ``score``.

        The step of the log of a scale or shape is limited to 4.
        """
        self._check(f, kind, right_censored)
        p, first = self._at(theta, f)
        gradient = self._gradient_at(p, first, f, y, kind, right_censored)
        step = self._solved(self._curvature(p, first, kind), gradient)
        for row, coordinate in enumerate(self._coordinates()):
            limit = self.limits[coordinate]
            if math.isfinite(limit):
                step[..., row, :].clamp_(-limit, limit)
        return step

    def initial(
        self,
        y: Tensor,
        kind: str = "nll",
        *,
        right_censored: Tensor | None = None,
        theta: Theta = NO_THETA,
    ) -> Tensor:
        """Return the constant f [K] of least total score, where boosting starts.

        The arguments are those of ``score``. Of targets of one class, or counts that are all 0, it
        is the constant to which half a row, or half an event, is added.

        Raises:
            DataError: If every target is censored.
        """
        if right_censored is not None and bool(right_censored.all()):
            do = "add rows whose event was seen, or use fewer folds"
            raise DataError("a target that is not censored", "none", do)
        guess = self._guess(y)
        start = np.array([guess[i] for i in self._coordinates()])
        if not self._has_least(y):
            return torch.as_tensor(start).to(y)

        def at(f: np.ndarray) -> Tensor:
            return torch.as_tensor(f).to(y)[:, None].expand(-1, len(y))

        def slope(f: np.ndarray) -> np.ndarray:
            rows = self.gradient(theta, at(f), y, kind, right_censored=right_censored)
            return rows.mean(-1).double().cpu().numpy()

        def total(f: np.ndarray) -> tuple[float, np.ndarray]:
            if self.spikes_on_ties and not _near(f, start, 2 * FARTHEST):
                return math.inf, np.zeros_like(f)
            value = self.score(theta, at(f), y, kind, right_censored=right_censored).mean()
            return float(value), slope(f)

        def metric(f: np.ndarray) -> np.ndarray:
            one = torch.as_tensor(f).to(y)[:, None]
            return self.metric(theta, one, kind)[0].double().cpu().numpy()

        found = _scoring(start, slope, metric)
        if found is None:
            least = optimize.minimize(total, start, jac=True, method="BFGS")
            found = _scoring(least.x, slope, metric)
            if found is None:
                found = least.x
        if self.spikes_on_ties and not _near(found, start, FARTHEST):
            found = start  # a spike on values that are equal, of which there is no least
        return torch.as_tensor(found).to(y)

    def tempered(self, f: Tensor, log_temperature: float | Tensor) -> Tensor:
        """Return f of a distribution rescaled by a temperature; f itself if none applies."""
        return f

    # -- helpers --------------------------------------------------------------------------------

    def _check(self, f: Tensor, kind: str, right_censored: Tensor | None = None) -> None:
        if kind not in KINDS:
            raise UnknownName("kind of score", kind, KINDS)
        if kind not in self.kinds:
            name = type(self).__name__
            raise NotApplicable(f"a score that {name} has", repr(kind), "use kind='nll'")
        expected = len(self._coordinates())
        if f.ndim < 2 or f.shape[-2] != expected:
            raise SettingError(
                f"f of shape [{expected}, n]", f"shape {list(f.shape)}", "pass one row per function"
            )
        if right_censored is None:
            return
        if kind == "crps":
            raise NotApplicable(
                "the score 'nll' for censored targets",
                "'crps', which is not proper for them",
                "use score='nll'",
            )
        if not self.censorable:
            raise NotApplicable(
                "a likelihood with a score of censored targets",
                type(self).__name__,
                "use LogNormal, Weibull, Exponential or Gaussian",
            )

    def _selected(self, slopes: tuple[Tensor, ...], f: Tensor) -> Tensor:
        rows = f.shape[:-2] + f.shape[-1:]
        return torch.stack([slopes[i].expand(rows) for i in self._coordinates()], -2)

    def _solved(self, entries: Mapping[tuple[int, int], Tensor], gradient: Tensor) -> Tensor:
        """Return metric^-1 gradient; most metrics are diagonal, or couple two functions."""
        chosen = self._coordinates()
        diagonal = torch.stack(
            [entries[i, i].expand(gradient.shape[:-2] + gradient.shape[-1:]) for i in chosen], -2
        )
        coupled = [
            (a, b)
            for a in range(len(chosen))
            for b in range(a + 1, len(chosen))
            if (chosen[a], chosen[b]) in entries
        ]
        if len(coupled) > 1:
            return self._solved_densely(entries, diagonal, gradient)
        step = gradient / diagonal
        for a, b in coupled:
            # in units, powers of 2, in which products of entries do not overflow
            unit = -torch.frexp(diagonal[..., a, :]).exponent
            off, d_a, d_b, g_a, g_b = (
                torch.ldexp(x, unit)
                for x in (
                    entries[chosen[a], chosen[b]],
                    *(of[..., i, :] for of in (diagonal, gradient) for i in (a, b)),
                )
            )
            determinant = d_a * d_b - off.square()
            step[..., a, :] = (d_b * g_a - off * g_b) / determinant
            step[..., b, :] = (d_a * g_b - off * g_a) / determinant
        return step

    def _solved_densely(
        self, entries: Mapping[tuple[int, int], Tensor], diagonal: Tensor, gradient: Tensor
    ) -> Tensor:
        """Return metric^-1 gradient of three functions or more, scaled to a unit diagonal."""
        chosen, root = self._coordinates(), diagonal.sqrt()
        matrix = torch.diag_embed(torch.ones_like(gradient.mT))
        for a, i in enumerate(chosen):
            for b, j in enumerate(chosen[a + 1 :], a + 1):
                if (i, j) in entries:
                    share = entries[i, j] / (root[..., a, :] * root[..., b, :])
                    matrix[..., a, b] = matrix[..., b, a] = share
        return torch.linalg.solve(matrix, (gradient / root).mT).mT / root


def largest_log(like: Tensor) -> float:
    """Return the largest log of slopes of which products and sums are still floats."""
    return math.log(torch.finfo(like.dtype).max) - 40.0


def log_or_zero(value: float) -> float:
    """Return the log of a positive number, and 0 otherwise."""
    return math.log(value) if value > 0 and math.isfinite(value) else 0.0


def log_rate(y: Tensor) -> float:
    """Return the log of the mean of counts, of half an event if there is none."""
    mean = float(y.mean())
    return math.log(mean if mean > 0 else 0.5 / len(y))


def raised(f: Tensor, row: int, by: float | Tensor) -> Tensor:
    """Return f [..., K, n] with ``by`` added to one of its functions."""
    higher = f.clone()
    higher[..., row, :] += by
    return higher


def widened(f: Tensor, log_temperature: float | Tensor) -> Tensor:
    """Return logits [*draw, K, n] divided by a temperature, a number or [*draw, 1]."""
    divisor = torch.as_tensor(log_temperature).to(f).exp()
    return f / (divisor[..., None] if divisor.ndim else divisor)


def _near(f: np.ndarray, start: np.ndarray, farthest: float) -> bool:
    """Return whether a constant lies near enough to the guess to be one of the whole data.

    Functions after the first are logs or log odds. A large df or shape has a limit, the normal or
    the Poisson distribution; a scale of next to nothing has none.
    """
    return bool(np.isfinite(f).all() and ((start - f)[1:] < farthest).all())


def _scoring(
    start: np.ndarray,
    slope: Callable[[np.ndarray], np.ndarray],
    metric: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray | None:
    """Return where the slope is 0, by Fisher's scoring to the last digits; None if it fails.

    The last digits matter little by themselves, but the units of y should not change them.
    """
    f, before = start, math.inf
    for _ in range(SCORING_STEPS):
        with np.errstate(all="ignore"):
            try:
                step = np.linalg.solve(metric(f), slope(f))
            except np.linalg.LinAlgError:
                return None
        length = float(np.abs(step).max())
        if not length < 2 * before:
            return f if before < ROUNDING else None
        f, before = f - step, length
        if length < ROUNDING * 1e-3:
            return f
    return f if before < ROUNDING else None
