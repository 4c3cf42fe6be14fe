"""Pyro's NUTS on the program, one chain after the other."""

from __future__ import annotations

from typing import Any

import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from pyro.poutine import substitute
from torch import Tensor

from ...density.checks import check_flat
from ...density.handlers import quietly
from ...density.target import Target
from ...posterior.posterior import Posterior
from ...runtime.progress import bar
from ...runtime.seeding import seeded
from ..base import divergences, starting_point
from .chain_starts import start_of_chain
from .nuts_defaults import run_plan
from .nuts_engines import NUTSOptions, SampledChains


def run_pyro(
    options: NUTSOptions,
    target: Target,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
) -> SampledChains:
    """Run all chains.

    Raises:
        NotApplicable: For a program with angles.
        KeyboardInterrupt: If Ctrl-C came before there was a chain.
    """
    check_flat(target.slices, "engine='nutpie'")
    args, kwargs = target.data.passed()
    chains: list[dict[str, Tensor]] = []
    interrupted = False
    diverging = torch.zeros(options.chains, options.draws, dtype=torch.bool)
    options = run_plan(options, target, None)[0]
    length = options.draws + options.warmup
    centre = None if init is None else starting_point(target, init, seed)
    # Pyro would begin the params anew
    program: Any = substitute(target.guarded_program, data=target.params)
    with (
        quietly(),
        bar(f"NUTS (pyro), {options.chains} chains", options.chains * length, progress) as update,
    ):
        try:
            for chain in range(options.chains):
                z = start_of_chain(target, centre, seed + chain)
                initial = {name: s.of(z) for name, s in target.slices.items()}
                kernel = PyroNUTS(
                    program,
                    target_accept_prob=options.target_accept,
                    max_tree_depth=options.max_depth,
                    full_mass=options.metric == "dense",
                )
                count, diverged = 0, []

                # MCMC.diagnostics would also estimate R-hat, from at least four draws
                def after_draw(
                    kernel: Any, _: Any, stage: str, __: int, *, chain: int = chain
                ) -> None:
                    nonlocal count, diverged
                    count += 1
                    if stage == "Sample":
                        diverged = kernel.diagnostics()["divergences"]
                    update(chain * length + count, chain=chain + 1)

                with seeded(seed + chain, z.device):
                    run = MCMC(
                        kernel,
                        num_samples=options.draws,
                        warmup_steps=options.warmup,
                        initial_params=initial,
                        disable_progbar=True,
                        hook_fn=after_draw,
                    )
                    run.run(*args, **kwargs)
                chains.append(run.get_samples())
                diverging[chain, diverged] = True
        except KeyboardInterrupt:
            if not chains:
                raise
            interrupted = True
            diverging = diverging[: len(chains)]
    notes = divergences(diverging)
    if interrupted:
        notes.append(f"stopped by Ctrl-C: {len(chains)} of {options.chains} chains")
    draws = {name: torch.stack([c[name] for c in chains]) for name in target.slices}
    z = target.unconstrain(draws)
    return SampledChains(z, {"diverging": diverging, **options.stats()}, notes, interrupted)
