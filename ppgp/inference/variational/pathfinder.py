"""Pathfinder: of the Gaussians along the way to a mode, the one nearest to the posterior."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ...density.target import Target
from ...errors import NumericalError
from ...numerics.cholesky import LOG_2PI
from ...posterior.posterior import Posterior
from ...runtime.progress import bar
from ...runtime.seeding import standard_normal
from ..base import Inference, finish, starting_point, weighed
from ..options import Count

BALL = 0.1  # sd of the Gaussian around a start, and of the jitter of starts at a given point
HISTORY = 6  # pairs of steps and gradient differences behind each inverse Hessian
#: Behind each ELBO on a path; of fewer, noise prefers Gaussians that are too narrow.
CANDIDATE_DRAWS = 25
CHAIN_STEPS = 200  # of L-BFGS before a chain starts
CHAIN_CANDIDATES = 8  # Gaussians on the path of a chain whose ELBO is evaluated
#: Of the squared gradient difference: a step with less curvature does not update the inverse
#: Hessian.
CURVED = 1e-12
SPREAD = 1.0  # paths start Uniform(-1, 1) around the origin of unconstrained space


@dataclass(frozen=True, eq=False)
class PathGaussian:
    """A Gaussian with covariance diag(scale) (I + Q (L L' - I) Q') diag(scale).

    A draw costs O(p history).

    Attributes:
        mean: [p].
        scale: [p].
        Q: [p, 2 history].
        L: [2 history, 2 history].
        elbo: An estimate of its ELBO.
    """

    mean: Tensor
    scale: Tensor
    Q: Tensor
    L: Tensor
    elbo: float = -math.inf

    def draw(self, e: Tensor) -> Tensor:
        """Return z [k, p] from standard normal e [k, p]."""
        along = e @ self.Q
        return self.mean + self.scale * (e + (along @ self.L.mT - along) @ self.Q.mT)

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log densities [k] at z [k, p]."""
        w = (z - self.mean) / self.scale
        along = w @ self.Q
        inner = torch.linalg.solve_triangular(self.L, along.mT, upper=False)
        distance = w.square().sum(-1) - along.square().sum(-1) + inner.square().sum(0)
        half_log_det = float(self.scale.log().sum() + self.L.diagonal().log().sum())
        return -0.5 * distance - half_log_det - 0.5 * len(self.mean) * LOG_2PI

    def root(self) -> Tensor:
        """Return a square root [p, p] of the covariance."""
        return (self.draw(torch.eye(len(self.mean)).to(self.mean)) - self.mean).mT


@dataclass(frozen=True)
class Pathfinder(Inference):
    """Pathfinder: Gaussians on the paths of L-BFGS. Zhang, Carpenter, Gelman & Vehtari (2022).

    L-BFGS runs from several places. Each step of a path gives a Gaussian from the estimate of the
    inverse Hessian, and each path keeps the one of highest ELBO. The draws are from the mixture of
    the kept Gaussians in proportion to exp(ELBO). The density of this mixture is known, so
    ``diagnose`` can weight the draws (the paper resamples them by those weights instead).

    The method is made for starts: it needs only gradients, some hundred of them, and modes at
    infinity do not mislead it. ``fit(..., init=posterior)`` starts another method from its
    posterior.

    Stats, in nats: ``elbo`` (of the best path), ``path_elbo`` [path], ``lp`` and ``log_q`` of the
    draws, [1, draw].

    Args:
        draws: Draws from the mixture.
        paths: The number of paths, which start Uniform(-1, 1) around the origin of unconstrained
            space.
        steps: The largest number of steps of L-BFGS.

    Raises:
        SettingError: For an option outside its range.
        NumericalError: On use, if no Gaussian of any path has a finite ELBO, or the density is not
            finite anywhere near a start.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [1.1, 2.9, 5.1, 6.9])
        >>> model = models.LinearRegression(noise=0.25)
        >>> paths = ppgp.fit(model, data, inference.Pathfinder(), progress=False)
        >>> exact = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> bool(abs(paths.theta["weight"].mean() - exact.theta["weight"].mean()) < 0.1)
        True
        >>> paths.stats["path_elbo"].shape  # one per path, in nats
        torch.Size([4])
        >>> mode = ppgp.fit(model, data, inference.MAP(), init=paths, progress=False)
        >>> bool(abs(mode.theta["weight"] - exact.theta["weight"].mean()) < 0.1)
        True
    """

    draws: Count = 1000
    paths: Count = 4
    steps: Count = 200

    def quick(self) -> Pathfinder:
        return replace(self, draws=20, paths=2)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        gaussians: list[PathGaussian] = []
        notes: list[str] = []
        interrupted = False
        try:
            with bar("Pathfinder", self.paths, progress) as update:
                for path in range(self.paths):
                    z0 = starting_point(target, init, seed + path, SPREAD)
                    if init is not None:
                        # there is no path from a mode, and all paths from one point are the same
                        own = torch.Generator().manual_seed(seed + path)
                        jitter = standard_normal(own, target.dim)
                        z0 = z0 + BALL * jitter.to(z0)
                    best = best_on_path(target, z0, seed + path, self.steps)
                    elbo = math.nan
                    if best is not None:
                        gaussians.append(best)
                        elbo = best.elbo
                    update(path + 1, elbo=elbo)
        except KeyboardInterrupt:
            interrupted = True
            notes.append(f"stopped by Ctrl-C after {len(gaussians)} of {self.paths} paths")
            if not gaussians:
                notes.append(
                    "no path had ended: these are draws from a small ball around the start"
                )
                gaussians.append(_ball(target.origin()))
        if not gaussians:
            raise NumericalError(
                "a Gaussian of finite ELBO on some path", "none", "check the priors, or use NUTS"
            )
        elbos = torch.tensor([g.elbo for g in gaussians], dtype=torch.float64)
        z, log_q = _mixture_draws(gaussians, elbos, self.draws, seed)
        stats: dict[str, Any] = {"elbo": float(elbos.max()), "path_elbo": elbos}
        lp, stopped = weighed(target, notes, lambda: log_densities(target, z))
        interrupted = interrupted or stopped
        if lp is not None:
            stats |= {"lp": lp[None], "log_q": log_q[None]}
        return finish(self, target, z[None], started, stats, notes, interrupted=interrupted)


def _mixture_draws(
    gaussians: list[PathGaussian], elbos: Tensor, draws: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Draw from the mixture of Gaussians with weights in proportion to exp(ELBO).

    Returns:
        The draws z [draw, p] and their log densities [draw].
    """
    generator = torch.Generator().manual_seed(seed)
    mean = gaussians[0].mean
    log_weight = torch.log_softmax(elbos, 0)
    which = torch.multinomial(log_weight.exp().cpu(), draws, replacement=True, generator=generator)
    e = standard_normal(generator, draws, len(mean)).to(mean)
    z = torch.empty_like(e)
    for i, gaussian in enumerate(gaussians):
        z[which == i] = gaussian.draw(e[which == i])
    weighted = [w + g.log_prob(z) for w, g in zip(log_weight.to(z), gaussians, strict=True)]
    return z, torch.logsumexp(torch.stack(weighted), 0)


def _ball(z: Tensor) -> PathGaussian:
    """Return a small ball around z [p]."""
    return PathGaussian(
        z,
        torch.full_like(z, BALL),
        torch.zeros_like(z)[:, None],
        torch.ones_like(z[:1])[:, None],
        elbo=0.0,
    )


def log_densities(target: Target, z: Tensor) -> Tensor:
    """Return the log densities [k] at z [k, p].

    The graph of one point evaluates them in turn: compiling a graph of k points would cost more
    than some hundred calls.
    """
    graph = target.compiled()
    with torch.no_grad():
        return torch.stack([graph(point)[0] for point in z])


def best_on_path(
    target: Target, z0: Tensor, seed: int, steps: int, candidates: int | None = None
) -> PathGaussian | None:
    """Return the Gaussian of highest ELBO on the path of L-BFGS from z0 [p].

    Args:
        target: The density.
        z0: The start of the path.
        seed: The seed of the draws behind each ELBO.
        steps: The largest number of steps of L-BFGS.
        candidates: How many Gaussians of the path to evaluate. None: all.

    Returns:
        The best Gaussian; None if none has a finite ELBO.
    """
    generator = torch.Generator().manual_seed(seed)
    callback = target.callback()
    path = [z0.double().cpu().numpy()]

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = callback(np.ascontiguousarray(z))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return 1e300, np.zeros_like(z)
        return -value, -gradient

    limits = {"maxiter": steps, "maxcor": HISTORY, "ftol": 1e-10}
    optimize.minimize(
        loss,
        path[0],
        jac=True,
        method="L-BFGS-B",
        options=limits,
        callback=lambda z: path.append(z.copy()),
    )
    # in float64: differences along the path are small beside the points
    points = torch.from_numpy(np.stack(path))
    slopes = torch.stack([torch.from_numpy(callback(z)[1].copy()) for z in path])  # of log p
    best: PathGaussian | None = None
    last = len(path) - 1
    evaluated = set(range(last + 1))
    if candidates is not None:
        evaluated = {round(last * (i + 1) / candidates) for i in range(candidates)}
    variances = torch.ones_like(points[0])
    pairs: list[tuple[Tensor, Tensor]] = []
    for t in range(1, len(path)):
        s, y = points[t] - points[t - 1], slopes[t - 1] - slopes[t]
        if bool(s @ y > CURVED * y.square().sum()):
            variances = _scaled(variances, s, y)
            pairs = [*pairs[-HISTORY + 1 :], (s, y)]
        if not pairs or t not in evaluated:
            continue
        gaussian = _gaussian(points[t], slopes[t], variances, pairs)
        if gaussian is None:
            continue
        mean, scale = gaussian.mean.to(z0), gaussian.scale.to(z0)
        gaussian = PathGaussian(mean, scale, gaussian.Q.to(z0), gaussian.L.to(z0))
        e = standard_normal(generator, CANDIDATE_DRAWS, target.dim)
        z = gaussian.draw(e.to(z0))
        elbo = float((log_densities(target, z) - gaussian.log_prob(z)).mean())
        if math.isfinite(elbo) and (best is None or elbo > best.elbo):
            best = replace(gaussian, elbo=elbo)
    return best


def near_the_mass(target: Target, z0: Tensor, seed: int) -> Tensor:
    """Return the start of a chain: a draw from the best Gaussian on the path from z0 [p].

    It is z0 itself if the density at the draw is not finite. Paths from places far apart end in
    different modes, so that R-hat still detects several modes.
    """
    best = best_on_path(target, z0, seed, CHAIN_STEPS, CHAIN_CANDIDATES)
    if best is None:
        return z0
    generator = torch.Generator().manual_seed(seed)
    e = standard_normal(generator, 1, target.dim).to(z0)
    z = best.draw(e)[0]
    value, gradient = target.value_and_grad(z)
    finite = bool(torch.isfinite(value) and torch.isfinite(gradient).all())
    return z if finite else z0


def _scaled(variances: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """Return the diagonal of the inverse Hessian after a step s with gradient difference y.

    Zhang et al. (2022), algorithm 3.
    """
    a, b, c = (variances * y) @ y, y @ s, (s / variances) @ s
    return 1 / (
        a / (b * variances) + y.square() / b - a * s.square() / (b * c * variances.square())
    )


def _gaussian(
    z: Tensor, slope: Tensor, variances: Tensor, pairs: list[tuple[Tensor, Tensor]]
) -> PathGaussian | None:
    """Return N(z + H slope, H) with the L-BFGS inverse Hessian H = diag(variances) + B G B'.

    Zhang et al. (2022), algorithm 4. None if H is not positive definite or the mean not finite.
    """
    if not bool((variances > 0).all() and torch.isfinite(variances).all()):
        return None
    S, Y = (torch.stack([pair[i] for pair in pairs], 1) for i in range(2))
    inner = S.mT @ Y
    R, E = inner.triu(), torch.diag(inner.diagonal())
    inverse = torch.linalg.solve_triangular(R, torch.eye(len(pairs)).to(z), upper=True)
    corner = inverse.mT @ (E + (variances[:, None] * Y).mT @ Y) @ inverse
    G = torch.cat(
        [torch.cat([torch.zeros_like(inverse), -inverse], 1), torch.cat([-inverse.mT, corner], 1)]
    )
    B = torch.cat([variances[:, None] * Y, S], 1)
    scale = variances.sqrt()
    Q, T = torch.linalg.qr(B / scale[:, None])
    L, failed = torch.linalg.cholesky_ex(torch.eye(len(T)).to(z) + T @ G @ T.mT)
    if int(failed) or not bool(torch.isfinite(L).all()):
        return None
    mean = z + variances * slope + B @ (G @ (B.mT @ slope))
    if not bool(torch.isfinite(mean).all()):
        return None
    return PathGaussian(mean, scale, Q, L)
