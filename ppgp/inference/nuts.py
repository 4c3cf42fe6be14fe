"""The No-U-Turn sampler: nutpie's on Target's compiled gradient, or Pyro's own for comparison."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from torch import Tensor

from ..arviz_bridge import arviz
from ..data import Dataset
from ..errors import NotApplicable, NumericalError, SettingError, UnknownName
from ..posterior import Posterior
from ..prediction import seeded
from ..progress import bar
from ..target import Target
from .checkpoint import Checkpoint
from .inference import Inference, check_counts, finish, starting_point
from .laplace import laplace_frame

METRICS = {"nutpie": ("low_rank", "diagonal"), "pyro": ("diagonal", "dense")}  # the first is what the engine does unasked
LOW_RANK_UP_TO = 200  # dimensions; its adaptation costs an eigendecomposition a window, whatever the density costs
THREADS_PAY_FROM = 3e-4  # seconds a gradient; below, chains in threads wait longer for the interpreter's lock than they gain
SPREAD = 1.0  # chains start Uniform(-1, 1) around the origin of unconstrained space


@dataclass(frozen=True)
class NUTS(Inference):
    """Hoffman & Gelman (2014), with warm-up of step size and mass matrix.

    Args:
        draws, warmup: a chain, kept and thrown away.
        chains: how many; nutpie runs them in parallel threads, unless the gradient is too cheap for that to pay.
        engine: "nutpie" (its Rust sampler on the compiled gradient), or "pyro" (``pyro.infer.NUTS`` on the program).
        target_accept: mean acceptance that the step size is tuned to; raise it against divergences.
        max_depth: at most 2^max_depth gradients a draw.
        metric: what the mass matrix can be. nutpie: "low_rank" (in the coordinates of the Laplace approximation, where there
            is one, a diagonal and those directions in which draws and gradients say that it is not enough; Seyboldt,
            Carlson & Carpenter 2026) or "diagonal"; pyro: "diagonal" or "dense".
            None: the first of these; for nutpie in more than 200 dimensions the second.

    Stats, [chain, draw]: ``diverging``, ``n_steps``, ``acceptance_rate``, ``lp``, ``energy``, ``tree_depth``, ``step_size``
    (nutpie), ``diverging`` (pyro).
    """

    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    engine: str = "nutpie"
    target_accept: float = 0.8
    max_depth: int = 10
    metric: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in METRICS:
            raise UnknownName("engine", self.engine, METRICS)
        if self.metric is not None and self.metric not in METRICS[self.engine]:
            raise UnknownName(f"metric of {self.engine}", self.metric, METRICS[self.engine])
        check_counts(self, draws=self.draws, warmup=self.warmup, chains=self.chains, max_depth=self.max_depth)
        if not 0 < self.target_accept < 1:
            raise SettingError("target_accept in (0, 1)", repr(self.target_accept), "use 0.8, or 0.95 against divergences")

    def quick(self) -> NUTS:
        return replace(self, draws=20, warmup=30, chains=2, max_depth=5)

    def __call__(
        self,
        target: Target,
        *,
        seed: int = 0,
        progress: bool = False,
        init: Posterior | Tensor | None = None,
        checkpoint: str | Path | None = None,
    ) -> Posterior:
        """Run it; ``checkpoint`` keeps the chains that are finished (nutpie).

        Raises:
            NumericalError: if the density cannot be sampled anywhere near the start.
        """
        started = time.perf_counter()
        if self.engine == "nutpie":
            return _nutpie(self, target, seed, progress, init, started, Checkpoint(checkpoint, self, target, seed))
        if checkpoint is not None:
            raise NotApplicable("engine='nutpie' with a checkpoint", "engine='pyro'", "leave checkpoint or engine out")
        return _pyro(self, target, seed, progress, init, started)


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
def _threads(number: int) -> Iterator[None]:
    """torch with so many threads of its own; the caller's number comes back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seconds_a_call(callback: Callable[[np.ndarray], object], z: Tensor, calls: int = 20) -> float:
    point = z.double().cpu().numpy()
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        callback(point)
        times.append(time.perf_counter() - started)
    return min(times)


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


def _nutpie(how: NUTS, target: Target, seed: int, progress: bool, init: Any, started: float, kept: Checkpoint) -> Posterior:
    arviz()  # nutpie imports it, with its notice
    from nutpie.compiled_pyfunc import from_pyfunc

    chains = _Finished.of(kept.found())
    callback = target.callback()
    start = _starter(target, init, seed)
    # what is wrong with the density is said by start, not inside a sampler's thread
    first = start(seed)
    cheap = _seconds_a_call(callback, first) < THREADS_PAY_FROM
    cores = 1 if cheap or target.eager else min(how.chains, os.cpu_count() or 1)
    threads = 1 if cheap else max(1, torch.get_num_threads() // cores)
    metric = how.metric or METRICS["nutpie"][target.dim > LOW_RANK_UP_TO]
    moved = metric == "low_rank"
    frame = laplace_frame(target, first) if moved else (torch.zeros(0), torch.zeros(0))
    origin, root = (x.double().cpu().numpy() for x in frame)
    failures: list[BaseException] = []
    counted = {"draws": len(chains) * (how.draws + how.warmup), "gradients": 0}

    def make_logp() -> Callable[..., tuple[float, np.ndarray]]:
        def logp(w: np.ndarray, **_: Any) -> tuple[float, np.ndarray]:
            counted["gradients"] += 1
            try:
                value, gradient = callback(origin + root @ w if moved else w)
            except BaseException as error:  # nutpie would turn it into a panic; it is raised again below
                failures.append(error)
                raise _Recoverable from None
            if not (math.isfinite(value) and np.isfinite(gradient).all()):
                raise _Recoverable
            return value, gradient @ root if moved else gradient

        return logp

    def make_expand(*_: Any) -> Callable[..., dict[str, np.ndarray]]:
        def expanded(w: np.ndarray, **__: Any) -> dict[str, np.ndarray]:  # called once a draw
            counted["draws"] += 1
            update(counted["draws"], gradients=counted["gradients"])
            return {"z": origin + root @ w if moved else w}

        return expanded

    def initial_point(own: int) -> np.ndarray:  # own: the chain's seed
        z = start(own).double().cpu().numpy()
        return np.linalg.solve(root, z - origin) if moved else z

    model = from_pyfunc(
        target.dim,
        make_logp,
        make_expand,
        [np.dtype("float64")],  # type: ignore[list-item]
        [(target.dim,)],
        ["z"],
        make_initial_point_fn=initial_point,
    )
    wanted = [chain for chain in range(how.chains) if chain not in chains.by_number]
    running: dict[int, Any] = {}
    total = how.chains * (how.draws + how.warmup)
    with _threads(threads), bar(f"NUTS, {how.chains} chains", total, progress) as update:
        try:
            while wanted or running:
                while wanted and len(running) < cores:
                    chain = wanted.pop(0)
                    running[chain] = _sampler(how, model, chain_seed(seed, chain), moved)
                chain = next(iter(running))
                chains.add(chain, running[chain].wait())
                del running[chain]
                if failures:
                    break
                kept.save(chains.tensors())
        except KeyboardInterrupt:
            for chain, sampler in running.items():
                chains.add(chain, sampler.abort())
        except (RuntimeError, ValueError) as error:
            for sampler in running.values():
                sampler.abort()
            cause = failures[0] if failures else error
            raise NumericalError(
                "a density that can be sampled", f"{type(cause).__name__}: {cause}", "check the model"
            ) from cause
    if failures:
        raise failures[0]
    return _together(how, target, chains, started)


def chain_seed(seed: int, chain: int) -> int:
    """Of one chain: runs with neighbouring seeds share none."""
    return int(np.random.SeedSequence([seed % 2**63, chain]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sampler(how: NUTS, model: Any, seed: int, moved: bool) -> Any:
    """One chain, running in a thread of nutpie's."""
    import nutpie

    return nutpie.sample(
        model,
        draws=how.draws,
        tune=how.warmup,
        chains=1,
        cores=1,
        seed=seed,
        progress_bar=False,
        return_raw_trace=True,
        blocking=False,
        target_accept=how.target_accept,
        maxdepth=how.max_depth,
        low_rank_modified_mass_matrix=moved,
    )


class _Finished:
    """The chains that have draws: for each, z [draw, dim] and its statistics, warm-up left out."""

    def __init__(self) -> None:
        self.by_number: dict[int, dict[str, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.by_number)

    @classmethod
    def of(cls, found: dict[str, Tensor] | None) -> _Finished:
        """From the tensors of a checkpoint."""
        self = cls()
        for name, value in (found or {}).items():
            chain, _, what = name.partition(".")
            self.by_number.setdefault(int(chain), {})[what] = value.numpy()
        return self

    def tensors(self) -> dict[str, Tensor]:
        return {f"{chain}.{what}": torch.from_numpy(v) for chain, parts in self.by_number.items() for what, v in parts.items()}

    def add(self, chain: int, raw: Any) -> None:
        draws, stats = raw.get_arrow_trace()
        if not draws:
            return
        tuned = ~_column(stats[0], "tuning").astype(bool)
        if not tuned.any():
            return
        z = _column(draws[0], "z")
        parts = {"z": z.reshape(len(tuned), -1)[tuned]}
        parts |= {ours: _column(stats[0], theirs)[tuned].astype(float) for ours, theirs in NUTPIE_STATS.items()}
        self.by_number[chain] = parts


def _column(batch: Any, name: str) -> np.ndarray:
    import pyarrow

    values = pyarrow.array(batch.column(name))
    return (values.flatten() if hasattr(values, "flatten") else values).to_numpy(False)


def _together(how: NUTS, target: Target, chains: _Finished, started: float) -> Posterior:
    """Chains of one length. After Ctrl-C they differ, and some may not have begun: as many as keep the most draws in all."""
    found = [chains.by_number[chain] for chain in sorted(chains.by_number)]
    longest = sorted((len(parts["z"]) for parts in found), reverse=True)
    kept = longest[max(range(len(longest)), key=lambda k: (k + 1) * longest[k])] if longest else 0
    if kept == 0:
        raise KeyboardInterrupt("stopped before the warm-up was over; there is no draw to return")
    chosen = [parts for parts in found if len(parts["z"]) >= kept]
    stacked = {name: torch.from_numpy(np.stack([parts[name][:kept] for parts in chosen])) for name in chosen[0]}
    z, figures = stacked.pop("z"), stacked
    figures["diverging"] = figures["diverging"].bool()
    notes = _notes(figures["diverging"], kept, how.draws)
    if len(chosen) < how.chains:
        notes.append(f"stopped by Ctrl-C: {len(chosen)} of {how.chains} chains")
    return finish(how, target, z, started, figures, notes)


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
                kernel = PyroNUTS(
                    target.model.model,
                    target_accept_prob=how.target_accept,
                    max_tree_depth=how.max_depth,
                    full_mass=how.metric == "dense",
                )
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
