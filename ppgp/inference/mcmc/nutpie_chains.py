"""Several chains of nutpie: in forked processes, in threads, or one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...numerics.threads import at_most, available_cores, blas_on_one_thread
from ...posterior.arviz import arviz
from ...posterior.posterior import Posterior
from ...target.target import Target
from ..base import divergences
from ..checkpoint import Checkpoint
from ..optimise.laplace import laplace_preconditioner
from ..progress import bar
from .chain_starts import LOW_RANK_UP_TO, start_of_chain
from .forked_workers import WorkerPool, can_fork
from .nutpie_sampler import Chain, NutpieOptions, NutpieSampler, Parts

#: Seconds per gradient above which threads pay. Chains with cheaper gradients wait longer for the
#: interpreter's lock than they gain.
THREADS_PAY_FROM = 3e-4

#: A function of a chain and its numbers of draws and gradients so far.
Heard = Callable[[int, tuple[int, int]], None]
#: A function of a chain that has ended and its draws.
Keep = Callable[[int, Parts | None], None]


@dataclass(frozen=True)
class SampledChains:
    """The draws z [chain, draw, p] of a run, its stats [chain, draw] and its warnings."""

    z: Tensor
    stats: dict[str, Tensor]
    notes: list[str]
    interrupted: bool


def run_nutpie(
    options: NutpieOptions,
    target: Target,
    seed: int,
    progress: bool,
    init: Posterior | Tensor | None,
    checkpoint: Checkpoint | None,
) -> SampledChains:
    """Run all chains that the checkpoint does not hold.

    Raises:
        NumericalError: if the density cannot be sampled anywhere near the start.
        KeyboardInterrupt: if Ctrl-C came before there was a draw.
    """
    arviz()  # nutpie imports it, with its notice
    finished: dict[int, Parts] = {}  # the draws and statistics of each chain
    if checkpoint is not None:
        finished = _read(checkpoint.found() or {})
    start = start_of_chain(target, init, seed)
    first = start(seed)  # raises errors in the density here, not inside a sampler's thread
    cheap = _seconds_per_call(target.callback(), first) < THREADS_PAY_FROM
    low_rank = options.metric == "low_rank"
    if options.metric is None:
        low_rank = target.dim <= LOW_RANK_UP_TO
    preconditioner = None
    if low_rank:
        preconditioner = laplace_preconditioner(target, first)
    run = NutpieSampler(options, target, start, preconditioner, seed)
    wanted = [chain for chain in range(options.chains) if chain not in finished]
    cores = min(len(wanted), available_cores())
    length = options.draws + options.warmup
    counted: dict[int, tuple[int, int]] = dict.fromkeys(finished, (length, 0))
    with bar(f"NUTS, {options.chains} chains", options.chains * length, progress) as update:

        def heard(chain: int, counts: tuple[int, int]) -> None:
            counted[chain] = counts
            draws = sum(draws for draws, _ in counted.values())
            update(draws, gradients=sum(gradients for _, gradients in counted.values()))

        def keep(chain: int, parts: Parts | None) -> None:
            if parts is None:
                return
            finished[chain] = parts
            if checkpoint is not None:  # a chain that Ctrl-C cut short is run again
                checkpoint.save(_written(finished, options.draws))

        single = cheap or target.eager
        if single and cores > 1 and can_fork():
            interrupted = _forked(run, wanted, cores, heard, keep)
        else:
            if single:
                cores = 1
            interrupted = _threaded(run, wanted, cores, cheap, heard, keep)
    return _together(options, target, finished, interrupted)


def _seconds_per_call(
    callback: Callable[[np.ndarray], object], z: Tensor, calls: int = 20
) -> float:
    """Return the shortest of several times that an evaluation at z [p] takes."""
    point = z.double().cpu().numpy()
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        callback(point)
        times.append(time.perf_counter() - started)
    return min(times)


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
            for sampler, _ in running.values():
                sampler.abort()
            raise
    return False


def _read(tensors: dict[str, Tensor]) -> dict[int, Parts]:
    """Return the finished chains by number, from the tensors of a checkpoint."""
    finished: dict[int, Parts] = {}
    for name, value in tensors.items():
        chain, _, part = name.partition(".")
        finished.setdefault(int(chain), {})[part] = value.numpy()
    return finished


def _written(finished: dict[int, Parts], draws: int) -> dict[str, Tensor]:
    """Return the tensors of those chains that have all their draws, for a checkpoint."""
    return {
        f"{chain}.{part}": torch.from_numpy(value)
        for chain, parts in finished.items()
        if len(parts["z"]) == draws
        for part, value in parts.items()
    }


def _together(
    options: NutpieOptions, target: Target, finished: dict[int, Parts], interrupted: bool
) -> SampledChains:
    """Cut the chains to one length.

    After Ctrl-C their lengths differ, and some may not have begun. The length is the one that keeps
    the most draws in all.
    """
    chains = [finished[chain] for chain in sorted(finished)]
    length = _best_length([len(parts["z"]) for parts in chains])
    if length == 0:
        raise KeyboardInterrupt("stopped before the warm-up was over; there is no draw to return")
    target.visited += [
        torch.from_numpy(parts.pop("visited")) for parts in chains if "visited" in parts
    ]
    kept = [parts for parts in chains if len(parts["z"]) >= length]
    stats = {
        name: torch.from_numpy(np.stack([parts[name][:length] for parts in kept]))
        for name in kept[0]
    }
    z = stats.pop("z")
    stats["diverging"] = stats["diverging"].bool()
    notes = divergences(stats["diverging"])
    if interrupted:
        notes.append(
            f"stopped by Ctrl-C: {len(kept)} of {options.chains} chains, "
            f"{length} of {options.draws} draws each"
        )
    return SampledChains(z, stats, notes, interrupted)


def _best_length(lengths: list[int]) -> int:
    """Return the length at which chains of these lengths, cut or dropped, keep the most draws."""
    longest = sorted(lengths, reverse=True)
    if not longest:
        return 0
    return longest[max(range(len(longest)), key=lambda k: (k + 1) * longest[k])]
