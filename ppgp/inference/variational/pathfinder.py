"""Pathfinder: Gaussians along the way to a mode, the one that is nearest to the posterior kept."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ...errors import NumericalError
from ...numerics.cholesky import LOG_2PI
from ...posterior.posterior import Posterior
from ...target.target import Target
from ..base import Inference, finish, starting_point
from ..options import Count
from ..progress import bar

BALL = 0.1  # sd, where there is nothing better
HISTORY = 6  # pairs of steps and gradient differences behind each inverse Hessian
CANDIDATE_DRAWS = 10  # behind each ELBO on the way
CHAIN_STEPS, CHAIN_CANDIDATES = (
    200,
    8,
)  # of L-BFGS before a chain, and of the Gaussians on its way that are looked at
CURVED = 1e-12  # of the squared gradient difference: less curvature than this along a step teaches nothing
SPREAD = 1.0  # paths start Uniform(-1, 1) around the origin of unconstrained space


@dataclass(frozen=True, eq=False)
class PathGaussian:
    """N(mean, covariance), the covariance being diag(scale) (I + Q (L L' - I) Q') diag(scale): O(p history) to draw from.

    Shapes: mean and scale [p], Q [p, 2 history], L [2 history, 2 history].
    """

    mean: Tensor
    scale: Tensor
    Q: Tensor
    L: Tensor
    elbo: float = -math.inf

    def draw(self, e: Tensor) -> Tensor:
        """z [k, p] from standard normal e [k, p]."""
        along = e @ self.Q
        return self.mean + self.scale * (e + (along @ self.L.mT - along) @ self.Q.mT)

    def log_prob(self, z: Tensor) -> Tensor:
        """[k] from z [k, p]."""
        w = (z - self.mean) / self.scale
        along = w @ self.Q
        inner = torch.linalg.solve_triangular(self.L, along.mT, upper=False)
        distance = w.square().sum(-1) - along.square().sum(-1) + inner.square().sum(0)
        return -0.5 * distance - self.half_log_det - 0.5 * len(self.mean) * LOG_2PI

    @property
    def half_log_det(self) -> float:
        return float(self.scale.log().sum() + self.L.diagonal().log().sum())

    def root(self) -> Tensor:
        """A square root [p, p] of the covariance."""
        return (self.draw(torch.eye(len(self.mean)).to(self.mean)) - self.mean).mT


@dataclass(frozen=True)
class Pathfinder(Inference):
    """Zhang, Carpenter, Gelman & Vehtari (2022): L-BFGS from several places; at each step of each path the Gaussian of its
    inverse-Hessian estimate; of each path the one with the highest ELBO.

    The draws are from the mixture of the paths' Gaussians in proportion to exp(ELBO), whose density is known, so that ``diagnose``
    can weigh them (the paper resamples them by those weights instead). Made for starts: it needs gradients alone, does not mind
    modes at infinity, and takes some hundred of them. ``fit(..., init=posterior)`` begins where it ends.

    Args:
        draws: from the mixture.
        paths: from different places, Uniform(-1, 1) around the origin of unconstrained space.
        steps: of L-BFGS, at most.

    Stats: ``elbo`` (of the best path), ``path_elbo`` [path], ``lp`` and ``log_q`` of the draws.

    Raises:
        NumericalError: on use, if no Gaussian of any path has a finite ELBO.
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
        found: list[PathGaussian] = []
        notes: list[str] = []
        interrupted = False
        try:
            with bar("Pathfinder", self.paths, progress) as update:
                for path in range(self.paths):
                    z0 = starting_point(target, init, seed + path, SPREAD)
                    if (
                        init is not None
                    ):  # at a mode there would be no path, and all paths would be one
                        own = torch.Generator().manual_seed(seed + path)
                        z0 = z0 + BALL * torch.randn(
                            target.dim, generator=own, dtype=torch.float64
                        ).to(z0)
                    best = best_on_path(target, z0, seed + path, self.steps)
                    found += [best] if best is not None else []
                    update(path + 1, elbo=best.elbo if best else math.nan)
        except KeyboardInterrupt:
            interrupted = True
            notes.append(f"stopped by Ctrl-C after {len(found)} of {self.paths} paths")
            if not found:
                notes.append(
                    "no path had ended: these are draws from a small ball around the start"
                )
                found.append(_ball(target.origin()))
        if not found:
            raise NumericalError(
                "a Gaussian of finite ELBO on some path", "none", "check the priors, or use NUTS"
            )
        generator = torch.Generator().manual_seed(seed)
        elbos = torch.tensor([g.elbo for g in found], dtype=torch.float64)
        log_weight = torch.log_softmax(elbos, 0)
        which = torch.multinomial(
            log_weight.exp(), self.draws, replacement=True, generator=generator
        )
        e = torch.randn(self.draws, target.dim, generator=generator, dtype=torch.float64).to(
            found[0].mean
        )
        z = torch.empty_like(e)
        for i, gaussian in enumerate(found):
            z[which == i] = gaussian.draw(e[which == i])
        log_q = torch.logsumexp(
            torch.stack([w + g.log_prob(z) for w, g in zip(log_weight.to(z), found, strict=True)]),
            0,
        )
        lp = log_densities(target, z)
        stats = {
            "elbo": float(elbos.max()),
            "path_elbo": elbos,
            "lp": lp[None],
            "log_q": log_q[None],
        }
        return finish(self, target, z[None], started, stats, notes, interrupted=interrupted)


def _ball(z: Tensor) -> PathGaussian:
    return PathGaussian(
        z,
        torch.full_like(z, BALL),
        torch.zeros_like(z)[:, None],
        torch.ones_like(z[:1])[:, None],
        elbo=0.0,
    )


def log_densities(target: Target, z: Tensor) -> Tensor:
    """[k] from z [k, p], by the graph of one point: one of k points costs more to make than some hundred calls."""
    graph = target.compiled()
    with torch.no_grad():
        return torch.stack([graph(point)[0] for point in z])


def best_on_path(
    target: Target, z0: Tensor, seed: int, steps: int, candidates: int | None = None
) -> PathGaussian | None:
    """The Gaussian of highest ELBO on the way of L-BFGS from z0 [p], among all or some of them; None where none has a finite one."""
    generator = torch.Generator().manual_seed(seed)
    callback = target.callback()
    path = [z0.double().cpu().numpy()]

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = callback(np.ascontiguousarray(z))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return 1e300, np.zeros_like(z)
        return -value, -gradient

    options = {"maxiter": steps, "maxcor": HISTORY, "ftol": 1e-10}
    optimize.minimize(
        loss,
        path[0],
        jac=True,
        method="L-BFGS-B",
        options=options,
        callback=lambda z: path.append(z.copy()),
    )
    points = torch.from_numpy(np.stack(path)).to(z0)
    slopes = torch.stack([torch.from_numpy(callback(z)[1].copy()) for z in path]).to(z0)  # of log p
    best: PathGaussian | None = None
    last = len(path) - 1
    looked_at = (
        range(last + 1)
        if candidates is None
        else {round(last * (i + 1) / candidates) for i in range(candidates)}
    )
    variances = torch.ones_like(z0)
    pairs: list[tuple[Tensor, Tensor]] = []
    for t in range(1, len(path)):
        s, y = points[t] - points[t - 1], slopes[t - 1] - slopes[t]
        if bool(s @ y > CURVED * y.square().sum()):
            variances = _scaled(variances, s, y)
            pairs = [*pairs[-HISTORY + 1 :], (s, y)]
        if not pairs or t not in looked_at:
            continue
        gaussian = _gaussian(points[t], slopes[t], variances, pairs)
        if gaussian is None:
            continue
        e = torch.randn(CANDIDATE_DRAWS, target.dim, generator=generator, dtype=torch.float64).to(
            z0
        )
        z = gaussian.draw(e)
        elbo = float((log_densities(target, z) - gaussian.log_prob(z)).mean())
        if math.isfinite(elbo) and (best is None or elbo > best.elbo):
            best = replace(gaussian, elbo=elbo)
    return best


def near_the_mass(target: Target, z0: Tensor, seed: int) -> Tensor:
    """A draw from the best Gaussian on the path from z0 [p], where the density is finite; else z0: what a chain starts from.

    Chains from places far apart end in different modes, so R-hat still sees them.
    """
    best = best_on_path(target, z0, seed, CHAIN_STEPS, CHAIN_CANDIDATES)
    if best is None:
        return z0
    e = torch.randn(
        1, target.dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(z0)
    z = best.draw(e)[0]
    value, gradient = target.value_and_grad(z)
    return z if bool(torch.isfinite(value) and torch.isfinite(gradient).all()) else z0


def _scaled(variances: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """The diagonal of the inverse Hessian after a step s with gradient difference y; Zhang et al. (2022), algorithm 3."""
    a, b, c = (variances * y) @ y, y @ s, (s / variances) @ s
    return 1 / (
        a / (b * variances) + y.square() / b - a * s.square() / (b * c * variances.square())
    )


def _gaussian(
    z: Tensor, slope: Tensor, variances: Tensor, pairs: list[tuple[Tensor, Tensor]]
) -> PathGaussian | None:
    """N(z + H slope, H) with H = diag(variances) + B G B', the L-BFGS inverse Hessian; Zhang et al. (2022), algorithm 4."""
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
    return PathGaussian(mean, scale, Q, L) if bool(torch.isfinite(mean).all()) else None
