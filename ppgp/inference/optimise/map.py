"""Maximum a posteriori: which optimiser, and what is said of where it ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ...errors import SettingError
from ...numerics.threads import blas_on_one_thread
from ...posterior.posterior import Posterior
from ...target.capabilities import WarmStart
from ...target.target import Target
from ..base import Inference, at_the_mode, check_batch, finish, starting_point
from ..options import Count, OneOf, Positive, Share
from ..progress import bar
from .early_stopping import SEARCHES, Watch, unguarded
from .first_order import RATES, adam, gd, sgd
from .joint_mode import JOINT_MODE, found_jointly
from .multistart import NEAR, best_of, number_of_starts, scattered
from .newton import irls
from .schedules import SCHEDULES, site_rates

SUBSET_STEPS = 30
COMPILE_AFTER = 60  # evaluations, which most searches end before: about what compiling costs


@dataclass(frozen=True)
class MAP(Inference):
    """The mode of the posterior density on the natural scale of the sites: one draw. With ``Flat`` priors, maximum likelihood.

    Args:
        optimizer: "lbfgs" (SciPy's L-BFGS-B); "newton" (iteratively reweighted least squares where the model knows its
            curvature, logistic and softmax regression; SciPy's trust-region Newton on the exact Hessian elsewhere);
            "gd" (gradient descent, its step found by backtracking, Armijo 1966, unless ``learning_rate`` fixes it); "sgd"
            (stochastic gradient descent, Robbins & Monro 1951); or "adam".
        steps: at most so many iterations.
        starts: searches begun at the usual place (or ``init``) and, for the others, at draws of the prior (within a factor of
            e^2 of the usual place, where that is improper); the highest end is the answer, and a warning says where searches
            ended apart. None: where a prior is improper (``Flat``) or the log of a site has a prior sd above 3, 8, or the first 5 where
            those end alike; else 1; 1 too with ``init`` or ``hold_out``, and for the linear models, whose density has one mode.
        learning_rate: of gd and sgd (on the density a row) and of Adam; one number, or ``{site: rate}``, "kernel.network" for
            all under it and "" for the rest.
            None: 0.1 for sgd, 0.05 for Adam.
        schedule: how the rate falls over the steps: "constant", "cosine" (to 1 % of itself) or "inverse" (as 1 / t).
            None: "inverse" for sgd, "constant" otherwise.
        batch_size: rows a step of sgd (None: 32) and Adam (None: all).
        hold_out: share of the rows, 0.1 say, that lbfgs, sgd and Adam do not see: the search ends when their predictive density has
            stopped rising, at the point where it was highest. The posterior is then conditional on all rows. For deep kernels.

    A model with a subset model (fewer rows of the same data) is started at the mode of that, by L-BFGS.

    Networks drop units out in the steps of sgd and Adam; the other methods need the same density at every call.

    The density is that of the sites themselves (no log-Jacobian), as Pyro's AutoDelta and Stan's optimiser have it.
    Stats: ``log_density`` at the mode, ``log_likelihood``, ``observations`` and ``parameters`` (what BIC and AIC are made of),
    ``gradient`` (largest entry, unconstrained scale), ``steps``, ``losses``, and ``interrupted`` (by Ctrl-C); with several starts
    also ``ends`` [start, p] (unconstrained scale), ``end_log_densities`` [start] and ``losses_of_starts`` (the subset model's, where the
    starts are its own); with ``hold_out`` also ``held_out_nlpd``, look
    by look, and ``held_out_step``, the best one, and the first of these are of the rows not held out; ``joint_mode`` where f was
    searched together with its hyperparameters (an SVGP), a poor fit.
    """

    optimizer: Annotated[str, OneOf(("lbfgs", "newton", "gd", "sgd", "adam"))] = "lbfgs"
    steps: Count = 1000
    starts: Count | None = None
    learning_rate: Positive | Mapping[str, Positive] | None = None
    schedule: Annotated[str, OneOf(SCHEDULES)] | None = None
    batch_size: Count | None = None
    hold_out: Share | None = None
    optimises_params = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold_out is not None and self.optimizer not in SEARCHES:
            got = f"hold_out={self.hold_out!r} with {self.optimizer}"
            raise SettingError(
                f"hold_out with {', '.join(SEARCHES)}", got, "change one, or leave hold_out out"
            )
        if self.batch_size is not None and self.optimizer not in ("adam", "sgd"):
            raise SettingError(
                f"the whole data with {self.optimizer}",
                f"batch_size={self.batch_size}",
                "use optimizer='adam' or 'sgd'",
            )

    @property
    def reselects_inducing(self) -> bool:
        """Whether a model may place params of its own on the way."""
        return self.optimizer in ("adam", "sgd")

    def quick(self) -> MAP:
        return replace(self, steps=20, starts=min(self.starts or 1, 2))

    def rates(self, target: Target) -> dict[str, float]:
        """The learning rate of each site.

        Raises:
            UnknownName, SettingError: for a site that there is not, or one without a rate.
        """
        return site_rates(
            RATES[self.optimizer] if self.learning_rate is None else self.learning_rate, target
        )

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
    ) -> Posterior:
        started = time.perf_counter()
        watch = None if self.hold_out is None else Watch(self, target, seed)
        everything, target = target, target if watch is None else watch.target
        check_batch(self, target, self.batch_size)
        search = OPTIMIZERS[self.optimizer]
        if self.optimizer == "newton" and target.has_curvature:
            search = irls
        watched = {} if watch is None else {"watch": watch}
        starts, enough = number_of_starts(
            target, 1 if watch is not None and self.starts is None else self.starts, init
        )
        ask_subset = init is None and self.starts in (None, 1) and search is not irls
        found = (
            self._after_a_subset(target, seed, progress, watched, starts, enough)
            if ask_subset
            else None
        )
        if found is None:
            z0 = starting_point(
                target,
                init,
                seed,
                jacobian=False,
                check=search is not irls,
                compile=search is not _scipy,
            )

            def maximise(z: Tensor, seed: int) -> tuple[Tensor, dict[str, Any], list[str]]:
                return search(self, target, z, seed, progress, False, **watched)

            found = (
                maximise(z0, seed)
                if starts == 1
                else best_of(target, maximise, z0, starts, seed, enough=enough)
            )
        z, stats, notes = found
        if watch is not None:
            z, seen = watch.chosen(z)
            stats |= seen
        stats |= at_the_mode(everything, z)
        notes = [*notes, *unguarded(self, everything)]
        if found_jointly(everything):
            stats["joint_mode"], notes = True, [*notes, JOINT_MODE]
        return finish(
            self, everything, z[None, None], started, stats, notes, interrupted=stats["interrupted"]
        )

    def _after_a_subset(
        self,
        target: Target,
        seed: int,
        progress: bool,
        watched: dict[str, Any],
        starts: int,
        enough: int | None,
    ) -> tuple[Tensor, dict[str, Any], list[str]] | None:
        """The search from where the mode of the subset model places the start; None where there is none, or it leads nowhere.
        Several starts are those of the subset model."""
        model = target.model
        if not isinstance(model, WarmStart):
            return None
        found = model.subset_model(target.data)
        if found is None:
            return None
        small = Target(*found, compile=False, empty=True)

        def maximise(z: Tensor, seed: int) -> tuple[Tensor, dict[str, Any], list[str]]:
            return _scipy(MAP(steps=SUBSET_STEPS), small, z, seed, False, False)

        ends: dict[str, Any] = {}
        z = small.origin()
        if small.dim:
            z = small.start(seed, jacobian=False)
            if starts == 1:
                z, ends, _ = maximise(z, seed)
            else:
                z, ends, _ = best_of(small, maximise, z, starts, seed, enough=enough)
            if ends["interrupted"]:
                raise KeyboardInterrupt(
                    "stopped on the way to the start; there is no point to return"
                )
        with torch.no_grad():
            z = target.placed(model.warm_start(small.constrain(z), target.data))
        search = OPTIMIZERS[self.optimizer]
        if search is _scipy:  # a model with a subset model is large: compiling it would not repay
            search = partial(_scipy, compile_after=math.inf)
        z, stats, notes = search(self, target, z, seed, progress, False, **watched)
        kept = {
            name: ends[name]
            for name in ("ends", "end_log_densities", "losses_of_starts")
            if name in ends
        }
        if kept:  # few steps end near a mode, not in it
            notes = [*notes, *scattered(kept["end_log_densities"], NEAR)]
        return (z, {**stats, **kept}, notes) if math.isfinite(stats["log_density"]) else None


def find_mode(
    target: Target, z0: Tensor, progress: bool, jacobian: bool, steps: int = 1000
) -> tuple[Tensor, dict, list[str]]:
    """The mode, with or without the log-Jacobian, which Laplace expands around: by L-BFGS, or by Newton's method where the model
    knows its curvature."""
    search = irls if target.has_curvature else _scipy
    return search(MAP(steps=steps), target, z0, 0, progress, jacobian)


class _Search:
    """The objective as SciPy wants it, of z / unit; remembers the best point, so that an interrupted search keeps it."""

    def __init__(
        self, target: Target, jacobian: bool, unit: np.ndarray, compile_after: float
    ) -> None:
        self.callback, self.unit = target.callback(jacobian, compile_after), unit
        self.best, self.best_z = -math.inf, None
        self.losses: list[float] = []
        self.worst = 0.0

    def __call__(self, scaled: np.ndarray) -> tuple[float, np.ndarray]:
        z = scaled * self.unit
        value, gradient = self.callback(z)
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return self.worst + 1e3 * (1 + abs(self.worst)), np.zeros_like(
                z
            )  # uphill: the line search steps back
        self.worst = max(self.worst, -value) if self.losses else -value
        self.losses.append(-value)
        if value > self.best:
            self.best, self.best_z = value, z
        return -value, -gradient * self.unit


def _scipy(
    how: MAP,
    target: Target,
    z0: Tensor,
    seed: int,
    progress: bool,
    jacobian: bool,
    watch: Watch | None = None,
    compile_after: float = COMPILE_AFTER,
) -> tuple[Tensor, dict, list[str]]:
    newton = how.optimizer == "newton"
    with torch.no_grad():
        unit = (torch.ones_like(z0) if newton else target.step_scales(z0)).double().cpu().numpy()
    search = _Search(target, jacobian, unit, compile_after)

    def curvature(z: np.ndarray) -> np.ndarray:
        return -target.hessian(torch.from_numpy(z), jacobian=jacobian).double().cpu().numpy()

    if newton:
        method, options = "trust-exact", {"gtol": 1e-8, "maxiter": how.steps}
    else:
        method, options = (
            "L-BFGS-B",
            {
                "maxiter": how.steps,
                "maxfun": 4 * how.steps,
                "maxcor": 20,
                "ftol": 1e-13,
                "gtol": 1e-7,
            },
        )
    notes: list[str] = []
    iterations, interrupted, ended = 0, False, False
    with bar(f"MAP ({how.optimizer})", how.steps, progress) as update:

        def after(z: np.ndarray) -> None:
            nonlocal iterations, ended
            iterations += 1
            update(iterations, loss=-search.best)
            if watch is not None and watch.over(iterations, torch.from_numpy(z * unit).to(z0)):
                ended = True
                raise StopIteration

        try:
            with blas_on_one_thread():
                optimize.minimize(
                    search,
                    z0.double().cpu().numpy() / unit,
                    jac=True,
                    hess=curvature if newton else None,
                    method=method,
                    options=options,
                    callback=after,
                )
        except KeyboardInterrupt:
            interrupted = True
            notes.append(
                f"stopped by Ctrl-C after {iterations} iterations; this is the best point so far"
            )
    z = torch.from_numpy(search.best_z).to(z0) if search.best_z is not None else z0
    value, gradient = search.callback(z.double().cpu().numpy())
    slope = float(np.abs(gradient).max())
    if not ended and (iterations >= how.steps or slope > 1e-3 * max(1.0, abs(float(value)) ** 0.5)):
        notes.append(
            f"the search ended after {iterations} iterations with a gradient of {slope:.2g}: raise steps, or check the priors"
        )
    stats = {
        "log_density": float(value),
        "gradient": slope,
        "steps": iterations,
        "interrupted": interrupted,
        "losses": torch.tensor(search.losses, dtype=torch.float64),
    }
    return z, stats, notes


OPTIMIZERS: dict[str, Callable[..., tuple[Tensor, dict[str, Any], list[str]]]] = {
    "lbfgs": _scipy,
    "newton": _scipy,
    "gd": gd,
    "sgd": sgd,
    "adam": adam,
}
