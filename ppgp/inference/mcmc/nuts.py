"""The No-U-Turn sampler: nutpie's on the compiled gradient, or Pyro's for comparison."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyroNUTS
from pyro.poutine import substitute
from torch import Tensor

from ...density.checks import check_flat
from ...density.handlers import quietly
from ...density.target import Target
from ...errors import NotApplicable, UnknownName
from ...posterior.posterior import Posterior
from ...runtime.progress import bar
from ...runtime.seeding import seeded
from ..base import Inference, divergences, finish, starting_point
from ..checkpoint import Checkpoint
from ..options import Acceptance, Count, OneOf
from .nutpie_chains import run_nutpie
from .nutpie_sampler import start_of_chain
from .nuts_defaults import NUTSOptions, SampledChains, run_plan

#: The metrics of each engine, its default first.
METRICS = {
    "nutpie": ("low_rank", "diagonal"),
    "pyro": ("diagonal", "dense"),
}


@dataclass(frozen=True)
class NUTS(Inference):
    """The No-U-Turn sampler, with warm-up of step size and mass matrix. Hoffman & Gelman (2014).

    Stats, [chain, draw]: ``diverging``, ``n_steps``, ``acceptance_rate``, ``lp``, ``energy``,
    ``tree_depth``, ``step_size`` (nutpie); ``diverging`` (pyro). Both record the ``warmup`` and the
    ``target_accept`` that were used.

    Args:
        draws: Draws per chain that are kept.
        warmup: Draws per chain that are thrown away. None chooses: 200 if the posterior is nearly
            normal, 300 if it is not but has a Laplace approximation, and 1000 without one, with the
            metric "diagonal" and with the engine "pyro". Nearly normal: at two standard deviations
            along each axis of the approximation, and at 20 draws from it, the log density has
            fallen by 1/3 to 3 times what that of the approximation has. If chains disagree after
            200 or 300 (an R-hat above 1.05, or more where few draws make it uncertain), or more
            than one draw in a hundred diverges (at an acceptance of 0.7, two in a thousand), they
            are run again with 1000, and at an acceptance of 0.8 if it was chosen too.
        chains: The number of chains. nutpie runs them in parallel: in threads, or on Linux in
            forked processes if the gradient is so cheap that threads would wait for one another.
            The number of cores does not change the draws.
        engine: "nutpie" (its Rust sampler on the compiled gradient; on machine code with the extra
            ``ppgp[llvm]``) or "pyro" (``pyro.infer.NUTS``
            on the program).
        target_accept: The mean acceptance that the step size is tuned to. Raise it against
            divergences. None: 0.7 in up to 6 dimensions, if the posterior is nearly normal
            and falls at most 1.6 times as fast as the approximation along each axis; 0.9 if
            ``metric`` is None too and the density falls more than five times as fast as its Laplace
            approximation, at half of the draws of this; else 0.8.
        max_depth: At most 2^max_depth gradients per draw.
        metric: The form of the mass matrix. nutpie has "low_rank" (in the coordinates of the
            Laplace approximation, if there is one: a diagonal, and those directions in which draws
            and gradients show that it is not enough; Seyboldt, Carlson & Carpenter 2026) and
            "diagonal". pyro has "diagonal" and "dense". None: the first of these; for nutpie in
            more than 200 dimensions the second, and also where the acceptance is 0.9 by default.
            Where more than one draw in ten diverges with the first, both run, and the chains of the
            one that diverges less are kept.

    Raises:
        UnknownName: If there is no such engine, or if the engine does not have the metric.
        SettingError: For an option outside its range.
        ImproperPosterior: On use, if the density does not fall in some direction.
        NumericalError: On use, if the density is not finite anywhere near the start.

    Examples:
        >>> import ppgp, pyro, torch
        >>> import pyro.distributions as dist
        >>> from ppgp import inference
        >>> def coin(heads):
        ...     p = pyro.sample("p", dist.Beta(2.0, 2.0))
        ...     with pyro.plate("tosses", len(heads)):
        ...         pyro.sample("heads", dist.Bernoulli(p), obs=heads)
        >>> heads = torch.tensor([1.0] * 7 + [0.0] * 3)
        >>> how = inference.NUTS(draws=400, chains=2)
        >>> posterior = ppgp.fit(coin, {"heads": heads}, how, progress=False)
        >>> posterior.draws["p"].shape  # [chain, draw]
        torch.Size([2, 400])
        >>> draws = posterior.theta["p"]
        >>> bool(abs(draws.mean() - 9 / 14) < 0.03)  # p ~ Beta(9, 5) given the tosses
        True
        >>> bool(abs(draws.std() - 0.1237) < 0.02)
        True
        >>> bool(posterior.r_hat()["p"] < 1.05)
        True
    """

    draws: Count = 1000
    warmup: Count | None = None
    chains: Count = 4
    engine: Annotated[str, OneOf(tuple(METRICS))] = "nutpie"
    target_accept: Acceptance | None = None
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
            NumericalError: If the density cannot be sampled anywhere near the start.
            NotApplicable: For a checkpoint with the engine "pyro".
        """
        started = time.perf_counter()
        if self.engine == "pyro" and checkpoint is not None:
            raise NotApplicable(
                "engine='nutpie' with a checkpoint",
                "engine='pyro'",
                "leave checkpoint or engine out",
            )
        kept = None if checkpoint is None else Checkpoint(checkpoint, self, target, seed)
        with kept or nullcontext():
            if self.engine == "pyro":
                run = _run_pyro(self, target, seed, progress, init)
            else:
                run = run_nutpie(self, target, seed, progress, init, kept)
            posterior = finish(
                self, target, run.z, started, run.stats, run.notes, interrupted=run.interrupted
            )
        return posterior if kept is None else kept.with_notes(posterior)


def _run_pyro(
    options: NUTSOptions,
    target: Target,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
) -> SampledChains:
    """Run all chains.

    Raises:
        NotApplicable: For a program with angles, or with sites of ``obs_mask``.
        KeyboardInterrupt: If Ctrl-C came before there was a chain.
    """
    check_flat(target.slices, "engine='nutpie'")
    if target.survey.imputed:
        name = next(iter(target.survey.imputed))
        raise NotApplicable(
            "a program without obs_mask with engine='pyro'",
            f"{name!r}, of which Pyro's chains also move the entries that are data",
            "use engine='nutpie', the default",
        )
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
    settled = {"warmup": options.warmup, "target_accept": options.target_accept}
    return SampledChains(z, {"diverging": diverging, **settled}, notes, interrupted)
