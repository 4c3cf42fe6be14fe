"""Several chains of nutpie: in forked processes, in threads, or one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from timeit import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...density.target import Sendable, Target
from ...posterior.posterior import Posterior
from ...runtime.libraries import nutpie
from ...runtime.progress import bar
from ...runtime.threads import at_most, available_cores, blas_on_one_thread
from ..base import attempted, divergences, failed_afterwards, starting_point
from ..checkpoint import Checkpoint
from ..jobs import each, goes_elsewhere
from ..optimise.expansion import laplace_preconditioner
from .forked_workers import WorkerPool, can_fork
from .nutpie_sampler import LOW_RANK_UP_TO, Chain, NutpieSampler, Parts, start_of_chain
from .nuts_defaults import NUTSOptions, SampledChains, SettledOptions, run_plan, trusted

#: Seconds per gradient above which threads pay. Chains with cheaper gradients wait longer for the
#: interpreter's lock than they gain.
THREADS_PAY_FROM = 3e-4
#: Share of divergences from which a mass matrix of low rank is given up. It is learnt from draws
#: and gradients together, which a density whose scales differ from place to place misleads.
HURTS = 0.1
TIMED = 20  # gradients that are timed; the shortest time is that of one

#: A function of a chain and its numbers of draws and gradients so far.
Heard = Callable[[int, tuple[int, int]], None]
#: A function of a chain that has ended and its draws.
Keep = Callable[[int, Parts | None], None]


def run_nutpie(
    options: NUTSOptions,
    target: Target,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
    checkpoint: Checkpoint | None,
) -> SampledChains:
    """Run all chains that the checkpoint does not hold.

    Raises:
        NumericalError: If the density cannot be sampled anywhere near the start.
        KeyboardInterrupt: If Ctrl-C came before there was a draw.
    """
    nutpie()  # forked processes then have it
    finished: dict[int, Parts] = {}  # the draws and statistics of each chain
    if checkpoint is not None:
        finished = _chains_in(checkpoint.found() or {})
    centre = None if init is None else starting_point(target, init, seed)
    # errors in the density are raised here, not inside a sampler's thread
    first = start_of_chain(target, centre, seed)
    call = partial(target.callback(often=True), first.double().cpu().numpy())
    call()  # the first one may compile, or be known
    cheap = min(repeat(call, number=1, repeat=TIMED)) < THREADS_PAY_FROM
    low_rank = options.metric == "low_rank"
    if options.metric is None:
        low_rank = target.dim <= LOW_RANK_UP_TO
    preconditioner = None
    if low_rank:
        preconditioner = laplace_preconditioner(target, first)
    plan = run_plan(options, target, preconditioner)
    chains: list[Parts] = []
    notes: list[str] = []
    interrupted = False
    used = plan[0]
    for attempt, settled in enumerate(plan):
        falls_back = bool(chains) and settled.metric == "diagonal"
        root = None if settled.metric == "diagonal" else preconditioner
        run = NutpieSampler(settled, target, centre, root, seed)
        # the chains of the second attempt go on with the numbers, so that their seeds differ
        numbers = range(attempt * options.chains, (attempt + 1) * options.chains)
        again = "again with " if attempt else ""
        label = f"NUTS, {options.chains} chains, {again}{settled.warmup} steps of warm-up"
        try:
            interrupted = _sampled(run, numbers, finished, cheap, label, progress, checkpoint)
        except Exception as error:
            if not chains:
                raise
            changed = "a diagonal mass matrix" if falls_back else "a longer warm-up"
            notes.append(failed_afterwards(f"a second run, with {changed},", error))
            break
        if interrupted and chains:
            # the attempt before has all its draws
            first = "with a short warm-up, which need a longer one,"
            if falls_back:
                first = "of the first run, many of whose draws diverged,"
            notes.append(f"stopped by Ctrl-C: the chains {first} are returned")
            break
        latest = [finished[number] for number in numbers if number in finished]
        if not falls_back or _diverged(latest) < _diverged(chains):
            chains, used = latest, settled
        if interrupted or falls_back:
            break
        if root is not None and options.metric is None and _diverged(chains) > HURTS:
            plan[attempt + 1 :] = [replace(plan[-1], metric="diagonal")]
            continue
        if settled is plan[-1]:
            break
        z, diverging = (np.stack([parts[name] for parts in chains]) for name in ("z", "diverging"))
        try:
            what = "the comparison of the chains with one another"
            accept = settled.target_accept
            enough = partial(trusted, z, diverging, accept)
            if attempted(target, notes, what, enough, True):
                break
        except KeyboardInterrupt:
            notes.append("stopped by Ctrl-C before the chains were compared with one another")
            interrupted = True
            break
    visited = [parts.pop("visited") for parts in finished.values() if "visited" in parts]
    if visited:
        target.remember([torch.from_numpy(points) for points in visited])
    result = _joined(options, chains, interrupted and not notes)
    return replace(
        result,
        stats={**result.stats, "warmup": used.warmup, "target_accept": used.target_accept},
        notes=result.notes + notes,
        interrupted=interrupted,
    )


def _diverged(chains: list[Parts]) -> float:
    """Return the share of draws that diverged."""
    return float(np.mean([parts["diverging"].mean() for parts in chains])) if chains else 1.0


def _sampled(
    run: NutpieSampler,
    numbers: range,
    finished: dict[int, Parts],
    cheap: bool,
    label: str,
    progress: bool,
    checkpoint: Checkpoint | None,
) -> bool:
    """Run those of the chains ``numbers`` that are not ``finished``, and add them to it.

    Returns:
        Whether Ctrl-C came.
    """
    options, target = run.options, run.target
    wanted = [chain for chain in numbers if chain not in finished]
    cores = len(wanted)
    if cores > 1:
        cores = min(cores, available_cores())
    length = options.draws + options.warmup
    counted = {chain: (length, 0) for chain in numbers if chain in finished}
    with bar(label, options.chains * length, progress) as update:

        def heard(chain: int, counts: tuple[int, int]) -> None:
            counted[chain] = counts
            draws = sum(draws for draws, _ in counted.values())
            update(draws, gradients=sum(gradients for _, gradients in counted.values()))

        def keep(chain: int, parts: Parts | None) -> None:
            if parts is None:
                return
            finished[chain] = parts
            if checkpoint is not None:  # a chain that Ctrl-C cut short is run again
                checkpoint.save(_tensors_of(finished, options.draws))

        if goes_elsewhere():
            return _elsewhere(run, wanted, heard, keep)
        single = cheap or target.eager
        if single and cores > 1 and can_fork():
            return _forked(run, wanted, cores, heard, keep)
        if single:
            cores = 1
        return _threaded(run, wanted, cores, cheap, heard, keep)


@dataclass(frozen=True, eq=False)
class _ChainElsewhere:
    """The chains of a run as the jobs of ``each``; the fields are those of ``NutpieSampler``."""

    options: SettledOptions
    sendable: Sendable
    centre: Tensor | None
    preconditioner: tuple[Tensor, Tensor] | None
    seed: int

    def __call__(self, number: int) -> Parts | None:
        """Return the draws of one chain."""
        target = self.sendable.target
        run = NutpieSampler(self.options, target, self.centre, self.preconditioner, self.seed)
        return run.whole_chain(number, lambda *_: None)


def _elsewhere(run: NutpieSampler, wanted: list[int], heard: Heard, keep: Keep) -> bool:
    """Run chains on the workers of joblib's active backend; return whether Ctrl-C came."""
    length = run.options.draws + run.options.warmup
    sendable = Sendable(run.target)
    chain = _ChainElsewhere(run.options, sendable, run.centre, run.preconditioner, run.seed)
    try:
        with closing(each(chain, wanted, noun="chain")) as ended:
            for number, parts in ended:
                heard(wanted[number], (length, 0))
                keep(wanted[number], parts)
    except KeyboardInterrupt:
        return True
    return False


def _forked(run: NutpieSampler, wanted: list[int], cores: int, heard: Heard, keep: Keep) -> bool:
    """Run chains in forked processes; return whether Ctrl-C came."""
    with at_most(1), blas_on_one_thread():  # the children inherit both
        pool = WorkerPool(run.whole_chain, cores, heard)
        try:
            for chain, parts in pool.results(wanted):
                keep(chain, parts)
        except KeyboardInterrupt:
            for chain, parts in pool.interrupt():
                keep(chain, parts)
            return True
        finally:
            pool.close()
    return False


def _threaded(
    run: NutpieSampler, wanted: list[int], cores: int, cheap: bool, heard: Heard, keep: Keep
) -> bool:
    """Run up to ``cores`` chains at a time in threads; return whether Ctrl-C came."""
    running: dict[int, tuple[Any, Chain]] = {}
    threads = 1
    if not cheap:
        threads = max(1, torch.get_num_threads() // max(cores, 1))
    with at_most(threads), blas_on_one_thread():
        try:
            while wanted or running:
                while wanted and len(running) < cores:
                    number = wanted.pop(0)
                    running[number] = run.begin(
                        number, lambda *counts, number=number: heard(number, counts)
                    )
                number = next(iter(running))
                sampler, chain = running[number]
                parts = chain.end(sampler)
                del running[number]
                keep(number, parts)
        except KeyboardInterrupt:
            for _, chain in running.values():
                chain.stop()
            for number, (sampler, chain) in running.items():
                keep(number, chain.cut(sampler))
            return True
        except BaseException:
            for sampler, chain in running.values():
                chain.stop()
                chain.cut(sampler)  # unlike abort(), without an error of its own
            raise
    return False


def _chains_in(tensors: dict[str, Tensor]) -> dict[int, Parts]:
    """Return the finished chains by number, from the tensors of a checkpoint."""
    finished: dict[int, Parts] = {}
    for name, value in tensors.items():
        chain, _, part = name.partition(".")
        finished.setdefault(int(chain), {})[part] = value.numpy()
    return finished


def _tensors_of(finished: dict[int, Parts], draws: int) -> dict[str, Tensor]:
    """Return the tensors of those chains that have all their draws, for a checkpoint."""
    return {
        f"{chain}.{part}": torch.from_numpy(value)
        for chain, parts in finished.items()
        if len(parts["z"]) == draws
        for part, value in parts.items()
    }


def _joined(options: NUTSOptions, chains: list[Parts], interrupted: bool) -> SampledChains:
    """Cut the chains to one length.

    After Ctrl-C their lengths differ, and some may not have begun. The length is the one that keeps
    the most draws in all.
    """
    lengths = sorted((len(parts["z"]) for parts in chains), reverse=True)
    if not lengths:
        raise KeyboardInterrupt(
            "stopped before the warm-up was over, so there is no draw to return; "
            "inference.Laplace() is faster, and approximate"
        )
    length = lengths[max(range(len(lengths)), key=lambda k: (k + 1) * lengths[k])]
    kept = [parts for parts in chains if len(parts["z"]) >= length]
    stats = {
        name: torch.from_numpy(np.stack([parts[name][:length] for parts in kept]))
        for name in kept[0]
    }
    z = stats.pop("z")
    stats["diverging"] = stats["diverging"].bool()
    notes: list[str] = []
    if bool(stats["diverging"].any()):
        notes = divergences(stats["diverging"])
    if interrupted:
        notes.append(
            f"stopped by Ctrl-C: {len(kept)} of {options.chains} chains, "
            f"{length} of {options.draws} draws each"
        )
    return SampledChains(z, stats, notes, interrupted)
