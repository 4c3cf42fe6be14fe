"""The No-U-Turn sampler: nutpie's on Target's compiled gradient, or Pyro's own for comparison."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from torch import Tensor

from ..arviz_bridge import arviz
from ..data import Dataset
from ..errors import NumericalError, SettingError, UnknownName
from ..posterior import Posterior
from ..prediction import seeded
from ..progress import bar
from ..target import Target
from .inference import Inference, check_counts, finish, starting_point

ENGINES = ("nutpie", "pyro")
SPREAD = 1.0  # chains start Uniform(-1, 1) around the origin of unconstrained space


@dataclass(frozen=True)
class NUTS(Inference):
    """Hoffman & Gelman (2014), with warm-up of step size and diagonal mass matrix.

    Args:
        draws, warmup: a chain, kept and thrown away.
        chains: how many; nutpie runs them in parallel threads.
        engine: "nutpie" (its Rust sampler on the compiled gradient), or "pyro" (``pyro.infer.NUTS`` on the program).
        target_accept: mean acceptance that the step size is tuned to; raise it against divergences.
        max_depth: at most 2^max_depth gradients a draw.

    Stats, [chain, draw]: ``diverging``, ``n_steps``, ``acceptance_rate``, ``lp``, ``energy``, ``tree_depth``, ``step_size``
    (nutpie), ``diverging`` (pyro).
    """

    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    engine: str = "nutpie"
    target_accept: float = 0.8
    max_depth: int = 10

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UnknownName("engine", self.engine, ENGINES)
        check_counts(self, draws=self.draws, warmup=self.warmup, chains=self.chains, max_depth=self.max_depth)
        if not 0 < self.target_accept < 1:
            raise SettingError("target_accept in (0, 1)", repr(self.target_accept), "use 0.8, or 0.95 against divergences")

    def quick(self) -> NUTS:
        return replace(self, draws=20, warmup=30, chains=2, max_depth=5)

    def __call__(
        self, target: Target, *, seed: int = 0, progress: bool = False, init: Posterior | Tensor | None = None
    ) -> Posterior:
        run = _nutpie if self.engine == "nutpie" else _pyro
        return run(self, target, seed, progress, init, time.perf_counter())


def _starter(target: Target, init: Posterior | Tensor | None, seed: int) -> Callable[[int], Tensor]:
    """Where a chain starts, as a function of its own seed."""
    if init is None:
        return lambda own: target.start(own % 2**63, SPREAD)
    centre = starting_point(target, init, seed)

    def near(own: int) -> Tensor:
        generator = torch.Generator().manual_seed(own % 2**63)
        return centre + 0.01 * torch.randn(target.dim, generator=generator, dtype=torch.float64).to(centre)

    return near


@contextmanager
def _one_thread_a_chain(chains: int) -> Iterator[None]:
    """Chains run side by side; torch's own threads would only get in their way. The caller's number comes back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // chains))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Recoverable(Exception):
    """What nutpie takes for a divergence: a point where the density does not exist."""

    is_recoverable = True


def _notes(diverging: Tensor, kept: int, wanted: int) -> list[str]:
    notes = []
    count = int(diverging.sum())
    if count:
        notes.append(
            f"{count} of {diverging.numel()} draws diverged: the sampler could not follow the posterior there; "
            "raise target_accept, or reparametrise"
        )
    if kept < wanted:
        notes.append(f"stopped by Ctrl-C: {kept} of {wanted} draws a chain")
    return notes


# -- nutpie ------------------------------------------------------------------------------------------------------------

NUTPIE_STATS = {
    "diverging": "diverging",
    "n_steps": "n_steps",
    "acceptance_rate": "mean_tree_accept",
    "lp": "logp",
    "energy": "energy",
    "tree_depth": "depth",
    "step_size": "step_size",
}


def _nutpie(how: NUTS, target: Target, seed: int, progress: bool, init: Any, started: float) -> Posterior:
    arviz()  # nutpie imports it, with its notice
    import nutpie
    from nutpie.compiled_pyfunc import from_pyfunc

    callback = target.callback()
    start = _starter(target, init, seed)
    start(seed)  # what is wrong with the density is said here, not inside a sampler's thread
    failures: list[BaseException] = []

    def make_logp() -> Callable[..., tuple[float, np.ndarray]]:
        def logp(z: np.ndarray, **_: Any) -> tuple[float, np.ndarray]:
            gradients[0] += 1
            try:
                value, gradient = callback(z)
            except BaseException as error:  # nutpie would turn it into a panic; it is raised again below
                failures.append(error)
                raise _Recoverable from None
            if not (math.isfinite(value) and np.isfinite(gradient).all()):
                raise _Recoverable
            return value, gradient

        return logp

    done, gradients = [0], [0]

    def make_expand(*_: Any) -> Callable[..., dict[str, np.ndarray]]:
        def expand(z: np.ndarray, **__: Any) -> dict[str, np.ndarray]:  # called once a draw
            done[0] += 1
            update(done[0], gradients_a_draw=gradients[0] / done[0])
            return {"z": z}

        return expand

    model = from_pyfunc(
        target.dim,
        make_logp,
        make_expand,
        [np.dtype("float64")],  # type: ignore[list-item]
        [(target.dim,)],
        ["z"],
        make_initial_point_fn=lambda own: (
            start(own).double().cpu().numpy()
        ),  # own: the chain's seed, whatever thread comes first
    )
    total = how.chains * (how.draws + how.warmup)
    with _one_thread_a_chain(how.chains), bar(f"NUTS, {how.chains} chains", total, progress) as update:
        sampler: Any = nutpie.sample(
            model,
            draws=how.draws,
            tune=how.warmup,
            chains=how.chains,
            cores=1 if target.eager else min(how.chains, os.cpu_count() or 1),
            seed=seed,
            progress_bar=False,
            return_raw_trace=True,
            blocking=False,
            target_accept=how.target_accept,
            maxdepth=how.max_depth,
        )
        try:
            raw = sampler.wait()
        except KeyboardInterrupt:
            raw = sampler.abort()
        except (RuntimeError, ValueError) as error:
            cause = failures[0] if failures else error
            raise NumericalError(
                "a density that can be sampled", f"{type(cause).__name__}: {cause}", "check the model"
            ) from cause
    if failures:
        raise failures[0]
    return _from_nutpie(how, target, raw, started)


def _column(batch: Any, name: str) -> np.ndarray:
    import pyarrow

    values = pyarrow.array(batch.column(name))
    return (values.flatten() if hasattr(values, "flatten") else values).to_numpy(False)


def _from_nutpie(how: NUTS, target: Target, raw: Any, started: float) -> Posterior:
    """Chains of one length. After Ctrl-C they differ, and some may not have begun: as many as keep the most draws in all."""
    draws, stats = raw.get_arrow_trace()
    tuning = [_column(s, "tuning").astype(bool) for s in stats]
    lengths = [int((~t).sum()) for t in tuning]
    longest = sorted(lengths, reverse=True)
    kept = longest[max(range(len(longest)), key=lambda k: (k + 1) * longest[k])] if longest else 0
    if kept == 0:
        raise KeyboardInterrupt("stopped before the warm-up was over; there is no draw to return")
    chosen = [i for i, length in enumerate(lengths) if length >= kept]
    draws, stats, tuning = ([x[i] for i in chosen] for x in (draws, stats, tuning))
    z = np.stack([_column(d, "z").reshape(-1, target.dim)[~t][:kept] for d, t in zip(draws, tuning, strict=True)])
    figures = {
        ours: torch.from_numpy(
            np.stack([_column(s, theirs)[~t][:kept].astype(float) for s, t in zip(stats, tuning, strict=True)])
        )
        for ours, theirs in NUTPIE_STATS.items()
    }
    figures["diverging"] = figures["diverging"].bool()
    notes = _notes(figures["diverging"], kept, how.draws)
    if len(chosen) < how.chains:
        notes.append(f"stopped by Ctrl-C: {len(chosen)} of {how.chains} chains")
    return finish(how, target, torch.from_numpy(z), started, figures, notes)


# -- Pyro --------------------------------------------------------------------------------------------------------------


def _pyro(how: NUTS, target: Target, seed: int, progress: bool, init: Any, started: float) -> Posterior:
    data = target.data
    args, kwargs = ((data.X, data.y), {"total": data.n}) if isinstance(data, Dataset) else ((), dict(data))
    chains: list[dict[str, Tensor]] = []
    diverging = torch.zeros(how.chains, how.draws, dtype=torch.bool)
    total = how.chains * (how.draws + how.warmup)
    start = _starter(target, init, seed)
    with (
        pyro.get_param_store().scope(),
        pyro.validation_enabled(False),
        bar(f"NUTS (pyro), {how.chains} chains", total, progress) as update,
    ):
        try:
            for chain in range(how.chains):
                z = start(seed + chain)
                initial = {name: s.of(z) for name, s in target.slices.items()}
                kernel = PyroNUTS(target.model.model, target_accept_prob=how.target_accept, max_tree_depth=how.max_depth)
                count = 0

                def seen(*_: Any, chain: int = chain) -> None:
                    nonlocal count
                    count += 1
                    update(chain * (how.draws + how.warmup) + count, chain=chain + 1)

                with seeded(seed + chain, z.device):
                    run = MCMC(
                        kernel,
                        num_samples=how.draws,
                        warmup_steps=how.warmup,
                        initial_params=initial,
                        disable_progbar=True,
                        hook_fn=seen,
                    )
                    run.run(*args, **kwargs)
                chains.append(run.get_samples())
                diverging[chain, run.diagnostics()["divergences"]["chain 0"]] = True
        except KeyboardInterrupt:
            if not chains:
                raise
            diverging = diverging[: len(chains)]
    notes = _notes(diverging, how.draws, how.draws)
    if len(chains) < how.chains:
        notes.append(f"stopped by Ctrl-C: {len(chains)} of {how.chains} chains")
    draws = {name: torch.stack([c[name] for c in chains]) for name in target.slices}
    return finish(how, target, target.unconstrain(draws), started, {"diverging": diverging}, notes)
