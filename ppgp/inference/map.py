"""Maximum a posteriori by a general optimiser on Target's compiled gradient."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ..errors import SettingError, UnknownName
from ..posterior import Posterior
from ..progress import bar
from ..target import Target
from .inference import Inference, check_batch, check_counts, finish, starting_point

OPTIMIZERS = ("lbfgs", "newton", "adam")


@dataclass(frozen=True)
class MAP(Inference):
    """The mode of the posterior density on the natural scale of the sites: one draw. With ``Flat`` priors, maximum likelihood.

    Args:
        optimizer: "lbfgs" (SciPy's L-BFGS-B), "newton" (SciPy's trust-region Newton on the exact Hessian; IRLS for
            logistic regression), or "adam".
        steps: at most so many iterations.
        learning_rate: of Adam; one number, or ``{site: rate}`` with "" for the rest.
        batch_size: rows a step of Adam; None: all.

    The density is that of the sites themselves (no log-Jacobian), as Pyro's AutoDelta and Stan's optimiser have it.
    Stats: ``log_density`` at the mode, ``gradient`` (largest entry, unconstrained scale), ``steps``, ``losses``,
    and ``interrupted`` (by Ctrl-C).
    """

    optimizer: str = "lbfgs"
    steps: int = 1000
    learning_rate: float | Mapping[str, float] = 0.05
    batch_size: int | None = None
    optimises_params = True

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise UnknownName("optimizer", self.optimizer, OPTIMIZERS)
        check_counts(self, steps=self.steps, batch_size=self.batch_size)
        rates = self.learning_rate.values() if isinstance(self.learning_rate, Mapping) else [self.learning_rate]
        if not all(rate > 0 for rate in rates):
            raise SettingError("positive learning rates in MAP", repr(self.learning_rate), "try 0.01")
        if self.batch_size is not None and self.optimizer != "adam":
            raise SettingError("the whole data with lbfgs and newton", f"batch_size={self.batch_size}", "use optimizer='adam'")

    def quick(self) -> MAP:
        return replace(self, steps=20)

    def __call__(
        self, target: Target, *, seed: int = 0, progress: bool = False, init: Posterior | Tensor | None = None
    ) -> Posterior:
        started = time.perf_counter()
        check_batch(self, target, self.batch_size)
        z0 = starting_point(target, init, seed, jacobian=False)
        search = _adam if self.optimizer == "adam" else _scipy
        z, stats, notes = search(self, target, z0, seed, progress, jacobian=False)
        return finish(self, target, z[None, None], started, stats, notes)


def find_mode(target: Target, z0: Tensor, progress: bool, jacobian: bool, steps: int = 1000) -> tuple[Tensor, dict, list[str]]:
    """The mode by L-BFGS, with or without the log-Jacobian: what Laplace expands around."""
    return _scipy(MAP(steps=steps), target, z0, 0, progress, jacobian)


class _Search:
    """The objective as SciPy wants it; remembers the best point, so that an interrupted search keeps it."""

    def __init__(self, target: Target, jacobian: bool) -> None:
        self.callback = target.callback(jacobian)
        self.best, self.best_z = -math.inf, None
        self.losses: list[float] = []
        self.worst = 0.0

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.callback(np.ascontiguousarray(z))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return self.worst + 1e3 * (1 + abs(self.worst)), np.zeros_like(z)  # uphill: the line search steps back
        self.worst = max(self.worst, -value) if self.losses else -value
        self.losses.append(-value)
        if value > self.best:
            self.best, self.best_z = value, z.copy()
        return -value, -gradient


def _scipy(how: MAP, target: Target, z0: Tensor, seed: int, progress: bool, jacobian: bool) -> tuple[Tensor, dict, list[str]]:
    search = _Search(target, jacobian)

    def curvature(z: np.ndarray) -> np.ndarray:
        return -target.hessian(torch.from_numpy(z), jacobian=jacobian).double().cpu().numpy()

    newton = how.optimizer == "newton"
    if newton:
        method, options = "trust-exact", {"gtol": 1e-8, "maxiter": how.steps}
    else:
        method, options = "L-BFGS-B", {"maxiter": how.steps, "maxfun": 4 * how.steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-7}
    notes: list[str] = []
    iterations, interrupted = 0, False
    with bar(f"MAP ({how.optimizer})", how.steps, progress) as update:

        def after(_: np.ndarray) -> None:
            nonlocal iterations
            iterations += 1
            update(iterations, loss=-search.best)

        try:
            optimize.minimize(
                search,
                z0.double().cpu().numpy(),
                jac=True,
                hess=curvature if newton else None,
                method=method,
                options=options,
                callback=after,
            )
        except KeyboardInterrupt:
            interrupted = True
            notes.append(f"stopped by Ctrl-C after {iterations} iterations; this is the best point so far")
    z = torch.from_numpy(search.best_z).to(z0) if search.best_z is not None else z0
    value, gradient = target.value_and_grad(z, jacobian=jacobian)
    slope = float(gradient.abs().max())
    if iterations >= how.steps or slope > 1e-3 * max(1.0, abs(float(value)) ** 0.5):
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


def _adam(how: MAP, target: Target, z0: Tensor, seed: int, progress: bool, jacobian: bool) -> tuple[Tensor, dict, list[str]]:
    rates = how.learning_rate if isinstance(how.learning_rate, Mapping) else {"": how.learning_rate}
    unknown = [name for name in rates if name and name not in target.slices]
    if unknown:
        raise UnknownName("site in learning_rate", unknown[0], target.slices)
    missing = [name for name in target.slices if name not in rates and "" not in rates]
    if missing:
        raise SettingError("a learning rate for every site", f"none for {missing}", "add them, or one for the rest under ''")
    z = z0.clone()
    pieces = {name: z[s.start : s.stop] for name, s in target.slices.items()}
    optimizer = torch.optim.Adam([{"params": [piece], "lr": rates.get(name, rates.get(""))} for name, piece in pieces.items()])
    generator = torch.Generator().manual_seed(seed)
    losses: list[float] = []
    best, best_z, interrupted = -math.inf, z.clone(), False
    notes: list[str] = []
    try:
        with bar("MAP (adam)", how.steps, progress) as update:
            for step in range(1, how.steps + 1):
                batch = None if how.batch_size is None else torch.randperm(target.data.n, generator=generator)[: how.batch_size]
                value, gradient = target.value_and_grad(z, batch, jacobian=jacobian)
                if not bool(torch.isfinite(gradient).all()):
                    notes.append(
                        f"the gradient was not finite at step {step}; this is the point before it: lower the learning rate"
                    )
                    break
                if how.batch_size is None and float(value) > best:
                    best, best_z = float(value), z.clone()
                for name, s in target.slices.items():
                    pieces[name].grad = -gradient[s.start : s.stop]
                optimizer.step()
                losses.append(-float(value))
                update(step, loss=losses[-1])
    except KeyboardInterrupt:
        interrupted = True
        notes.append(f"stopped by Ctrl-C after {len(losses)} of {how.steps} steps; this is the point reached")
    value, gradient = target.value_and_grad(z, jacobian=jacobian)
    if not float(value) >= best and how.batch_size is None:
        z, (value, gradient) = best_z, target.value_and_grad(best_z, jacobian=jacobian)
    stats = {
        "log_density": float(value),
        "gradient": float(gradient.abs().max()),
        "steps": len(losses),
        "interrupted": interrupted,
        "losses": torch.tensor(losses, dtype=torch.float64),
    }
    return z.detach(), stats, notes
