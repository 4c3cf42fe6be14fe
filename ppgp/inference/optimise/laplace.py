"""The Laplace approximation on the unconstrained scale."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from ...capabilities import GaussianNetwork, NetworkWeights, require
from ...density.target import Target
from ...errors import SettingError
from ...numerics.cholesky import LOG_2PI
from ...posterior.posterior import Posterior
from ...posterior.stats import Later
from ...posterior.summary import cut_short
from ...runtime.seeding import standard_normal
from ..base import Inference, at_the_mode, finish, starting_point, weighed
from ..options import Count, OneOf
from .expansion import expanded
from .kronecker_expansion import check_kron, kronecker_expansion
from .last_layer import last_layer
from .map import JOINT_MODE, MAP, found_jointly
from .network_expansion import (
    check_size,
    full_expansion,
    has_gauss_newton_matrix,
    linearised_at,
)
from .scipy_search import find_mode
from .search import Few, SearchResult
from .search_starts import OF_STARTS, best_of, plan_of_starts

STRUCTURES = ("full", "kron", "last_layer")
MANY = 1000  # draws
FEW = 100  # draws where each costs a search or a pass over chunks of rows, here and in ``predict``


@dataclass(frozen=True)
class Laplace(Inference):
    """The normal approximation N(z^, H^-1) around the mode z^ of the unconstrained density.

    H is minus the Hessian of the log density at z^, log-Jacobian included. MacKay (2003),
    chapter 27; the same scale as in Pyro's AutoLaplaceApproximation and Stan.

    For a network whose likelihood has scores, H is the generalised Gauss-Newton matrix plus the
    prior precision, which is positive semidefinite; the rows of a site of the likelihood, such as
    its noise, are those of minus the Hessian. N(z^, H^-1) is then the posterior of the network
    linearised at z^, up to the likelihood's departure from a parabola. Predictions are therefore
    those of the linearised network, with draws of its weights: draws of the same Gaussian in the
    network itself predict poorly. Immer, Korzepa & Bauer (2021).

    Stats: ``log_evidence`` (log joint at z^ + p/2 log 2 pi - log|H| / 2); ``mode`` [p];
    ``covariance`` [p, p], of the full structure; ``log_q`` and ``lp`` (log densities of the draws
    under the approximation and the target, the latter computed when it is first read), unless
    predictions are those of a linearised network, which is not the target; and those of MAP that
    BIC and AIC are made of. ``joint_mode`` if f was expanded together with its hyperparameters (an
    SVGP), a poor fit.

    Args:
        draws: The number of draws. None: 1,000, or 100 where the density of the model has a search
            inside or visits the rows in chunks, since each draw then costs as much in ``predict``.
            Such are a GP, StateSpaceGP or Vecchia with a likelihood, groups of a GLM whose effects
            are integrated out by Laplace's approximation, and an SGPR, SKI or Vecchia of many rows.
        steps: The largest number of iterations of L-BFGS.
        starts: The number of searches for the mode, as in ``MAP``: several by default if a prior
            leaves the scale of a site open or discrete sites are summed out.
        structure: "full"; "kron" for a network of Linear and Conv2d layers under a normal prior: a
            Kronecker product per layer in place of its block of the Gauss-Newton matrix, plus the
            prior precision exactly. Layers are independent, and the memory grows with the squares
            of their sides. Ritter, Botev & Barber (2018). "last_layer" for a network with Gaussian
            noise: Bayesian linear regression on the last hidden units, which is exact; the other
            weights stay at the mode. The prior precision of the last layer, its bias included, and
            the variance of the noise (unless it is a number) maximise the evidence, whatever their
            priors. MacKay (1992).
            The stats are then ``log_evidence``, ``precision``, ``noise`` and ``mode``.
        base: Of a network, how the mode is found, such as ``MAP("adam")``. None: L-BFGS.
        linearised: Whether predictions of a network are those of the network linearised at the
            mode, rather than those of the network itself at each draw.

    Raises:
        SettingError: For an option outside its range; on use, if ``base`` is given for a model that
            is no network.
        UnknownName: If there is no such structure.
        NotApplicable: On use, if a network has more than 5,000 weights for the full structure, or
            has no Kronecker factors for "kron".
        ImproperPosterior: On use, if the density does not fall in some direction from the mode, or
            a flat prior leaves the precision of "kron" singular.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [1.1, 2.9, 5.1, 6.9])
        >>> model = models.LinearRegression(noise=0.25)  # whose posterior is normal
        >>> normal = ppgp.fit(model, data, inference.Laplace(), progress=False)
        >>> exact = ppgp.fit(model, data, inference.Exact(), progress=False)
        >>> bool(abs(normal.log_evidence - exact.log_evidence) < 1e-6)
        True
        >>> normal.stats["covariance"].shape  # of weight and bias, [p, p]
        torch.Size([2, 2])
        >>> normal.draws["weight"].shape  # [chain, draw, d]
        torch.Size([1, 1000, 1])
    """

    draws: Count | None = None
    steps: Count = 1000
    starts: Count | None = None
    structure: Annotated[str, OneOf(STRUCTURES)] = "full"
    base: MAP | None = None
    linearised: bool = True
    seeks_mode = True
    less_memory = (
        "use fewer draws, or SVI('normal'), which holds no matrix of them, or for a network "
        "structure='kron' or structure='last_layer'"
    )

    def serves_team(self, model: Any) -> bool:
        network = isinstance(model, NetworkWeights)
        return self.structure == "full" and self.base is None and not network

    def numbers(self, p: int) -> float:
        of_draws = 3.0 * p * (self.draws or MANY)
        return of_draws if self.structure != "full" else of_draws + 6.0 * p * p

    def _number_of_draws(self, target: Target) -> int:
        if self.draws is not None:
            return self.draws
        return FEW if target.model.chunked(target.data) else MANY

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
        if self.structure == "last_layer":
            return self._last_layer(target, seed, progress, init, started)
        of_network = self._checked(target)
        result = self._mode(target, seed, progress, init)
        if self.structure == "kron":
            peak = kronecker_expansion(target, result)
        elif of_network:
            peak = full_expansion(target, result)
        else:
            peak = expanded(target, result, _precision(target, result.z))
        generator = torch.Generator().manual_seed(seed)
        noise = standard_normal(generator, self._number_of_draws(target), target.dim)
        noise = noise.to(peak.mode)
        z = peak.mode + peak.spread(noise)
        stats = {
            "log_evidence": peak.log_density
            + 0.5 * target.dim * LOG_2PI
            + peak.half_log_det_covariance,
            "mode": peak.mode,
            "steps": peak.steps,
            **peak.stats(),
        }
        params, interrupted, notes = {}, peak.interrupted, list(peak.notes)
        if of_network and self.linearised:
            params = linearised_at(target, peak.mode)
        else:
            log_q = (
                -peak.half_log_det_covariance
                - 0.5 * target.dim * LOG_2PI
                - 0.5 * noise.square().sum(-1)
            )
            stats["lp"], stats["log_q"] = Later(lambda: target.log_densities(z)[None]), log_q[None]
            if not _known_later(target):
                interrupted = _weighed(target, stats, notes) or interrupted
        stats |= {name: result.stats[name] for name in OF_STARTS if name in result.stats}
        stats |= at_the_mode(target, peak.mode, notes)
        if found_jointly(target):
            stats["joint_mode"] = True
            notes.append(JOINT_MODE)
        return finish(self, target, z[None], started, stats, notes, params, interrupted)

    def _checked(self, target: Target) -> bool:
        """Return whether the precision is a Gauss-Newton matrix; raise for what does not fit."""
        if self.structure == "kron":
            check_kron(target)
            return True
        of_network = has_gauss_newton_matrix(target)
        if of_network:
            check_size(target)
        elif self.base is not None:
            do = "leave it out, or fit MAP first and pass it as init="
            raise SettingError("no base for a model that is no network", "one", do)
        return of_network

    def _mode(
        self, target: Target, seed: int, progress: bool, init: Posterior | Tensor | None
    ) -> SearchResult:
        """Return the mode, with its log density on the unconstrained scale."""
        if self.base is None:
            start = self._start(target, init, seed, progress)
            steps = 1 if start.interrupted else self.steps
            end = find_mode(target, start.z, progress, jacobian=True, steps=steps)
            others = [note for note in end.notes if note not in start.notes]
            return replace(
                end,
                stats={**start.stats, **end.stats},
                notes=[*start.notes, *others],
                interrupted=start.interrupted or end.interrupted,
            )
        mode = self.base(target, seed=seed, progress=progress, init=init)
        z = target.unconstrain(mode.draws)[0, 0]
        stats = {"log_density": float(target.value_and_grad(z)[0]), "steps": mode.stats["steps"]}
        notes = list(mode.warnings[len(target.notes) :])
        return SearchResult(z, stats, notes, cut_short(mode.stats))

    def _last_layer(
        self,
        target: Target,
        seed: int,
        progress: bool,
        init: Posterior | Tensor | None,
        started: float,
    ) -> Posterior:
        """Return draws of the last layer at the mode of the other weights."""
        require(target.model, GaussianNetwork)
        base = self.base or MAP(steps=self.steps, starts=self.starts)
        mode = base(target, seed=seed, progress=progress, init=init)
        z, mean, found = last_layer(
            target,
            target.unconstrain(mode.draws)[0, 0],
            self._number_of_draws(target),
            torch.Generator().manual_seed(seed),
        )
        stats = {
            "log_evidence": found.log_evidence,
            "precision": found.precision,
            "noise": found.noise,
            "mode": mean,
            "steps": mode.stats["steps"],
        }
        notes = list(mode.warnings[len(target.notes) :])
        stats |= at_the_mode(target, mean, notes)
        interrupted = cut_short(mode.stats)
        return finish(self, target, z[None], started, stats, notes, interrupted=interrupted)

    def _start(
        self, target: Target, init: Posterior | Tensor | None, seed: int, progress: bool
    ) -> SearchResult:
        """Return where the last search begins: the highest end if there are several starts."""
        compile = target.has_curvature and not target.survey.kinked  # L-BFGS compiles late
        z0 = starting_point(target, init, seed, compile=compile)
        plan = plan_of_starts(target, self.starts, init)
        if plan.starts == 1:
            return SearchResult(z0, {})

        def search(target: Target, z: Tensor, seed: int, few: Few | None = None) -> SearchResult:
            return find_mode(target, z, progress, jacobian=True, steps=self.steps, few=few)

        best = best_of(target, search, z0, plan, seed, jacobian=True)
        return replace(best, stats={k: best.stats[k] for k in OF_STARTS if k in best.stats})


def _known_later(target: Target) -> bool:
    """Return whether the density of the draws may be computed after the fit.

    That of a program has to be compared with the program during the fit, as its graph may be wrong.
    """
    return target.data.is_table and not target.data.streamed and target.team.alone


def _weighed(target: Target, stats: dict[str, Any], notes: list[str]) -> bool:
    """Compute the density of the draws, or leave it out of the stats; return if Ctrl-C came."""
    later, log_q = stats.pop("lp"), stats.pop("log_q")
    lp, stopped = weighed(target, notes, later.read)
    if lp is not None:
        stats |= {"lp": lp, "log_q": log_q}
    return stopped


def _precision(target: Target, z: Tensor) -> Tensor:
    """Return minus the second derivatives [p, p] at the mode z [p].

    Raises:
        KeyboardInterrupt: After Ctrl-C, as without them there is no approximation.
    """
    try:
        return -target.hessian(z)
    except KeyboardInterrupt:
        said = "stopped at the second derivatives at the mode; inference.MAP() needs none"
        raise KeyboardInterrupt(said) from None
