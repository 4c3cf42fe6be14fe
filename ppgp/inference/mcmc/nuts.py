"""The No-U-Turn sampler: nutpie's on the compiled gradient, or Pyro's for comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from pyro.poutine import substitute
from torch import Tensor

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
from .chain_starts import start_of_chain
from .nutpie_chains import run_nutpie
from .nutpie_sampler import NutpieOptions

#: The metrics of each engine, its default first.
METRICS = {
    "nutpie": ("low_rank", "diagonal"),
    "pyro": ("diagonal", "dense"),
}


@dataclass(frozen=True)
class NUTS(Inference):
    """The No-U-Turn sampler, with warm-up of step size and mass matrix. Hoffman & Gelman (2014).

    Stats, [chain, draw]: ``diverging``, ``n_steps``, ``acceptance_rate``, ``lp``, ``energy``,
    ``tree_depth``, ``step_size`` (nutpie); ``diverging`` (pyro).

    Args:
        draws: draws per chain that are kept.
        warmup: draws per chain that are thrown away.
        chains: the number of chains. nutpie runs them in parallel: in threads, or on Linux in
            forked processes if the gradient is so cheap that threads would wait for one another.
            The number of cores does not change the draws.
        engine: "nutpie" (its Rust sampler on the compiled gradient) or "pyro" (``pyro.infer.NUTS``
            on the program).
        target_accept: the mean acceptance that the step size is tuned to. Raise it against
            divergences.
        max_depth: at most 2^max_depth gradients per draw.
        metric: the form of the mass matrix. nutpie has "low_rank" (in the coordinates of the
            Laplace approximation, if there is one: a diagonal, and those directions in which draws
            and gradients show that it is not enough; Seyboldt, Carlson & Carpenter 2026) and
            "diagonal". pyro has "diagonal" and "dense". None: the first of these; for nutpie in
            more than 200 dimensions the second.

    Raises:
        UnknownName: if the engine does not have the metric.
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
        """Run the chains; ``checkpoint`` keeps those that have finished (nutpie only).

        Raises:
            NumericalError: if the density cannot be sampled anywhere near the start.
            NotApplicable: for a checkpoint with the engine "pyro".
        """
        started = time.perf_counter()
        if self.engine == "pyro":
            if checkpoint is None:
                return _pyro(self, target, seed, progress, init, started)
            raise NotApplicable(
                "engine='nutpie' with a checkpoint",
                "engine='pyro'",
                "leave checkpoint or engine out",
            )
        if checkpoint is None:
            return self._nutpie(target, seed, progress, init, started, None)
        with Checkpoint(checkpoint, self, target, seed) as kept:
            return kept.with_notes(self._nutpie(target, seed, progress, init, started, kept))

    def _nutpie(
        self,
        target: Target,
        seed: int,
        progress: bool,
        init: Any,
        started: float,
        checkpoint: Checkpoint | None,
    ) -> Posterior:
        """Run nutpie on the compiled gradient."""
        options = NutpieOptions(
            draws=self.draws,
            warmup=self.warmup,
            chains=self.chains,
            target_accept=self.target_accept,
            max_depth=self.max_depth,
            metric=self.metric,
        )
        run = run_nutpie(options, target, seed, progress, init, checkpoint)
        return finish(
            self, target, run.z, started, run.stats, run.notes, interrupted=run.interrupted
        )


def _pyro(
    how: NUTS, target: Target, seed: int, progress: bool, init: Any, started: float
) -> Posterior:
    """Run Pyro's NUTS on the program, one chain after the other."""
    check_flat(target.slices, "engine='nutpie'")
    args, kwargs = target.data.passed()
    chains: list[dict[str, Tensor]] = []
    interrupted = False
    diverging = torch.zeros(how.chains, how.draws, dtype=torch.bool)
    length = how.draws + how.warmup
    start = start_of_chain(target, init, seed)
    # Pyro would begin the params anew
    program: Any = substitute(target.guarded_program, data=target.params)
    with (
        quietly(),
        bar(f"NUTS (pyro), {how.chains} chains", how.chains * length, progress) as update,
    ):
        try:
            for chain in range(how.chains):
                z = start(seed + chain)
                initial = {name: s.of(z) for name, s in target.slices.items()}
                kernel = PyroNUTS(
                    program,
                    target_accept_prob=how.target_accept,
                    max_tree_depth=how.max_depth,
                    full_mass=how.metric == "dense",
                )
                count = 0

                def after_draw(*_: Any, chain: int = chain) -> None:
                    nonlocal count
                    count += 1
                    update(chain * length + count, chain=chain + 1)

                with seeded(seed + chain, z.device):
                    run = MCMC(
                        kernel,
                        num_samples=how.draws,
                        warmup_steps=how.warmup,
                        initial_params=initial,
                        disable_progbar=True,
                        hook_fn=after_draw,
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
    z = target.unconstrain(draws)
    stats = {"diverging": diverging}
    return finish(how, target, z, started, stats, notes, interrupted=interrupted)
