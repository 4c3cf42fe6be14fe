"""The No-U-Turn sampler: nutpie's on Target's compiled gradient, or Pyro's own for comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from torch import Tensor

from ...data.dataset import Dataset
from ...errors import NotApplicable, UnknownName
from ...numerics.seeding import seeded
from ...posterior.posterior import Posterior
from ...target.checks import check_flat
from ...target.handlers import quietly
from ...target.target import Target
from ..base import Inference, divergences, finish
from ..checkpoint import Checkpoint
from ..options import Acceptance, Count, OneOf
from ..progress import bar
from .nutpie_chains import run_nutpie, starter

METRICS = {
    "nutpie": ("low_rank", "diagonal"),
    "pyro": ("diagonal", "dense"),
}  # the first is what the engine does unasked


@dataclass(frozen=True)
class NUTS(Inference):
    """Hoffman & Gelman (2014), with warm-up of step size and mass matrix.

    Args:
        draws, warmup: a chain, kept and thrown away.
        chains: how many; nutpie runs them in parallel, in threads, or on Linux in forked processes where the gradient is so cheap
            that threads would wait for one another. Their number of cores does not change the draws.
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

    draws: Count = 1000
    warmup: Count = 1000
    chains: Count = 4
    engine: Annotated[str, OneOf(tuple(METRICS))] = "nutpie"
    target_accept: Acceptance = 0.8
    max_depth: Count = 10
    metric: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric is not None and self.metric not in METRICS[self.engine]:
            raise UnknownName(f"metric of {self.engine}", self.metric, METRICS[self.engine])

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
            with Checkpoint(checkpoint, self, target, seed) as kept:
                return kept.noted(run_nutpie(self, target, seed, progress, init, started, kept))
        if checkpoint is not None:
            raise NotApplicable(
                "engine='nutpie' with a checkpoint",
                "engine='pyro'",
                "leave checkpoint or engine out",
            )
        return _pyro(self, target, seed, progress, init, started)


def _pyro(
    how: NUTS, target: Target, seed: int, progress: bool, init: Any, started: float
) -> Posterior:
    check_flat(target, "engine='nutpie'")
    data = target.data
    args, kwargs = (
        ((data.X, data.y), {"total": data.n}) if isinstance(data, Dataset) else ((), dict(data))
    )
    chains: list[dict[str, Tensor]] = []
    interrupted = False
    diverging = torch.zeros(how.chains, how.draws, dtype=torch.bool)
    total = how.chains * (how.draws + how.warmup)
    start = starter(target, init, seed)
    with (
        quietly(),
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
            interrupted = True
            diverging = diverging[: len(chains)]
    notes = divergences(diverging)
    if interrupted:
        notes.append(f"stopped by Ctrl-C: {len(chains)} of {how.chains} chains")
    draws = {name: torch.stack([c[name] for c in chains]) for name in target.slices}
    return finish(
        how,
        target,
        target.unconstrain(draws),
        started,
        {"diverging": diverging},
        notes,
        interrupted=interrupted,
    )
