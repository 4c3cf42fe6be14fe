"""nutpie's Rust sampler on Target's compiled gradient: chains in forked processes, in threads, or one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...errors import NumericalError, PpgpError
from ...numerics.libraries import unchanged
from ...numerics.process_locks import help_in, turns_of_this_thread
from ...numerics.threads import at_most, available_cores
from ...posterior.arviz import arviz
from ...posterior.posterior import Posterior
from ...target.target import Target
from ..base import divergences, finish, starting_point
from ..checkpoint import Checkpoint
from ..optimise.laplace import laplace_frame
from ..progress import bar
from ..variational.pathfinder import near_the_mass
from .forked_workers import WorkerPool, can_fork

if TYPE_CHECKING:
    from .nuts import NUTS

LOW_RANK_UP_TO = 200  # dimensions; its adaptation costs an eigendecomposition a window, whatever the density costs
THREADS_PAY_FROM = 3e-4  # seconds a gradient; below, chains in threads wait longer for the interpreter's lock than they gain
SPREAD = 1.0  # chains start on a path from Uniform(-1, 1) around the origin of unconstrained space
REPORT_SECONDS = 0.1  # between the reports of a forked chain


def starter(target: Target, init: Posterior | Tensor | None, seed: int) -> Callable[[int], Tensor]:
    """Where a chain starts, as a function of its own seed."""
    if init is None:
        if target.dim > LOW_RANK_UP_TO:
            return lambda own: target.start(own % 2**63, SPREAD)
        return lambda own: near_the_mass(target, target.start(own % 2**63, SPREAD), own % 2**63)
    centre = starting_point(target, init, seed)

    def near(own: int) -> Tensor:
        generator = torch.Generator().manual_seed(own % 2**63)
        return centre + 0.01 * torch.randn(target.dim, generator=generator, dtype=torch.float64).to(
            centre
        )

    return near


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


NUTPIE_STATS = {
    "diverging": "diverging",
    "n_steps": "n_steps",
    "acceptance_rate": "mean_tree_accept",
    "lp": "logp",
    "energy": "energy",
    "tree_depth": "depth",
    "step_size": "step_size",
}


def run_nutpie(
    how: NUTS,
    target: Target,
    seed: int,
    progress: bool,
    init: Any,
    started: float,
    kept: Checkpoint,
) -> Posterior:
    """All chains, those in the checkpoint left out."""
    arviz()  # nutpie imports it, with its notice
    finished = _Finished.of(kept.found())
    start = starter(target, init, seed)
    first = start(
        seed
    )  # what is wrong with the density is said here, not inside a sampler's thread
    cheap = _seconds_a_call(target.callback(), first) < THREADS_PAY_FROM
    metric = how.metric or ("low_rank", "diagonal")[target.dim > LOW_RANK_UP_TO]
    frame = laplace_frame(target, first) if metric == "low_rank" else None
    run = _Run(how, target, start, frame, seed)
    wanted = [chain for chain in range(how.chains) if chain not in finished.by_number]
    cores = min(len(wanted), available_cores())
    length = how.draws + how.warmup
    counted: dict[int, tuple[int, int]] = dict.fromkeys(finished.by_number, (length, 0))
    with bar(f"NUTS, {how.chains} chains", how.chains * length, progress) as update:

        def heard(chain: int, figures: tuple[int, int]) -> None:
            counted[chain] = figures
            update(
                sum(draws for draws, _ in counted.values()),
                gradients=sum(g for _, g in counted.values()),
            )

        def keep(chain: int, parts: dict[str, np.ndarray] | None) -> None:
            if parts is not None:
                finished.by_number[chain] = parts
                kept.save(finished.whole(how.draws))  # a chain that Ctrl-C cut short is run again

        if (cheap or target.eager) and cores > 1 and can_fork():
            interrupted = _forked(run, wanted, cores, heard, keep)
        else:
            interrupted = _threaded(
                run, wanted, 1 if cheap or target.eager else cores, cheap, heard, keep
            )
    return _together(how, target, finished, started, interrupted)


def _forked(
    run: _Run, wanted: list[int], cores: int, heard: Callable[..., None], keep: Callable[..., None]
) -> bool:
    """Whether Ctrl-C came."""
    with at_most(1):
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
    run: _Run,
    wanted: list[int],
    cores: int,
    cheap: bool,
    heard: Callable[..., None],
    keep: Callable[..., None],
) -> bool:
    """Whether Ctrl-C came."""
    running: dict[int, tuple[Any, _Chain]] = {}
    with at_most(1 if cheap else max(1, torch.get_num_threads() // max(cores, 1))):
        try:
            while wanted or running:
                while wanted and len(running) < cores:
                    chain = wanted.pop(0)
                    running[chain] = run.begin(
                        chain, lambda *figures, chain=chain: heard(chain, figures)
                    )
                chain = next(iter(running))
                sampler, counts = running[chain]
                parts = counts.end(sampler)
                del running[chain]
                keep(chain, parts)
        except KeyboardInterrupt:
            for _, counts in running.values():
                counts.stop()
            for chain, (sampler, counts) in running.items():
                keep(chain, counts.cut(sampler))
            return True
        except BaseException:
            for sampler, _ in running.values():
                sampler.abort()
            raise
    return False


class _Run:
    """What all chains share: the density in the coordinates of ``frame``, and how to start a chain."""

    def __init__(
        self, how: NUTS, target: Target, start: Callable[[int], Tensor], frame: Any, seed: int
    ) -> None:
        self.how, self.target, self.start, self.seed = how, target, start, seed
        self.moved = frame is not None
        origin, root = frame if self.moved else (torch.zeros(0), torch.zeros(0))
        self.origin, self.root = (x.double().cpu().numpy() for x in (origin, root))
        self.callback = target.callback()
        self.turns = turns_of_this_thread()  # this thread waits for those that sample

    def whole_chain(
        self, chain: int, report: Callable[[int, int], None]
    ) -> dict[str, np.ndarray] | None:
        """One chain from start to end; after Ctrl-C, what there is."""
        sampler, counts = self.begin(chain, report)
        try:
            parts = counts.end(sampler)
        except KeyboardInterrupt:
            counts.stop()
            return counts.cut(sampler)
        if (
            parts is not None and self.target.visited
        ):  # what a forked child has seen, its parent has not
            parts["visited"] = (
                torch.cat([z.reshape(-1, self.target.dim) for z in self.target.visited])
                .double()
                .cpu()
                .numpy()
            )
        return parts

    def begin(self, chain: int, report: Callable[[int, int], None]) -> tuple[Any, _Chain]:
        """nutpie's sampler, running in a thread of its own, and what is known of it here."""
        with unchanged():
            import nutpie
            from nutpie.compiled_pyfunc import from_pyfunc

        counts = _Chain(self, report)
        dim = self.target.dim
        model = from_pyfunc(
            dim,
            lambda: counts.logp,
            lambda *_: counts.expanded,
            [np.dtype("float64")],  # type: ignore[list-item]
            [(dim,)],
            ["z"],
            make_initial_point_fn=counts.initial_point,
        )
        sampler = nutpie.sample(
            model,
            draws=self.how.draws,
            tune=self.how.warmup,
            chains=1,
            cores=1,
            seed=chain_seed(self.seed, chain),
            progress_bar=False,
            return_raw_trace=True,
            blocking=False,
            target_accept=self.how.target_accept,
            maxdepth=self.how.max_depth,
            low_rank_modified_mass_matrix=self.moved,
        )
        return sampler, counts


class _Chain:
    """The functions that nutpie calls for one chain, and what went wrong in them."""

    def __init__(self, run: _Run, report: Callable[[int, int], None]) -> None:
        self.run, self.report = run, report
        self.draws = self.gradients = 0
        self.reported = time.monotonic()
        self.failure: BaseException | None = None
        self.whole: int | None = None  # draws that were there when Ctrl-C came

    def logp(self, w: np.ndarray, **_: Any) -> tuple[float, np.ndarray]:
        if self.whole is not None:
            raise _Recoverable
        run = self.run
        help_in(run.turns)
        self.gradients += 1
        try:
            value, gradient = run.callback(run.origin + run.root @ w if run.moved else w)
        except (
            torch.linalg.LinAlgError
        ):  # a Cholesky factor in a stranger's program: no density there
            raise _Recoverable from None
        except (
            BaseException
        ) as error:  # nutpie would turn it into a panic; it is raised again at the end
            self.failure = self.failure or error
            raise _Recoverable from None
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise _Recoverable
        return value, gradient @ run.root if run.moved else gradient

    def expanded(self, w: np.ndarray, **_: Any) -> dict[str, np.ndarray]:
        self.draws += 1  # called once a draw
        now = time.monotonic()
        if now - self.reported > REPORT_SECONDS:
            self.reported = now
            self.report(self.draws, self.gradients)
        return {"z": self.run.origin + self.run.root @ w if self.run.moved else w}

    def initial_point(self, own: int) -> np.ndarray:
        """``own``: the chain's seed."""
        help_in(self.run.turns)
        try:
            z = self.run.start(own).double().cpu().numpy()
            return np.linalg.solve(self.run.root, z - self.run.origin) if self.run.moved else z
        except BaseException as error:  # as above
            self.failure = self.failure or error
            raise

    def end(self, sampler: Any) -> dict[str, np.ndarray] | None:
        """Wait for it.

        Raises:
            NumericalError: if nutpie cannot sample the density.
            Exception: what the density raised.
        """
        try:
            raw = sampler.wait()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            if isinstance(self.failure, PpgpError):
                raise self.failure from None
            cause = self.failure or error
            said = str(cause).splitlines()[0] if str(cause) else ""
            raise NumericalError(
                "a density that can be sampled",
                f"{type(cause).__name__}: {said}",
                "look for a prior that is flat, or a likelihood that is constant far from the data",
            ) from cause
        if self.failure is not None:
            raise self.failure
        return _parts(raw)

    def stop(self) -> None:
        """The trajectory on its way ends at its next gradient; a thousand slow ones are not waited for."""
        self.whole = self.draws

    def cut(self, sampler: Any) -> dict[str, np.ndarray] | None:
        """The draws there were when it was stopped; None where there are none."""
        try:
            return _parts(sampler.abort(), self.whole)
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ):  # the chain had no place to start from yet; a panic in Rust is no Exception
            return None


def chain_seed(seed: int, chain: int) -> int:
    """Of one chain: runs with neighbouring seeds share none."""
    return int(
        np.random.SeedSequence([seed % 2**63, chain]).generate_state(1, np.uint64)[0]
        >> np.uint64(1)
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

    def whole(self, draws: int) -> dict[str, Tensor]:
        """The tensors of those chains that have all their draws."""
        chains = {
            chain: parts for chain, parts in self.by_number.items() if len(parts["z"]) == draws
        }
        return {
            f"{chain}.{what}": torch.from_numpy(v)
            for chain, parts in chains.items()
            for what, v in parts.items()
        }


def _parts(raw: Any, first: int | None = None) -> dict[str, np.ndarray] | None:
    """The draws of one chain, or the first so many, the warm-up left out; None where there are none."""
    draws, stats = raw.get_arrow_trace()
    if not draws:
        return None
    tuned = ~_column(stats[0], "tuning").astype(bool)
    if first is not None:
        tuned[first:] = False
    if not tuned.any():
        return None
    parts = {"z": _column(draws[0], "z").reshape(len(tuned), -1)[tuned]}
    return parts | {
        ours: _column(stats[0], theirs)[tuned].astype(float)
        for ours, theirs in NUTPIE_STATS.items()
    }


def _column(batch: Any, name: str) -> np.ndarray:
    with unchanged():
        import pyarrow

    values = pyarrow.array(batch.column(name))
    return (values.flatten() if hasattr(values, "flatten") else values).to_numpy(False)


def _together(
    how: NUTS, target: Target, chains: _Finished, started: float, interrupted: bool
) -> Posterior:
    """Chains of one length. After Ctrl-C they differ, and some may not have begun: as many as keep the most draws in all."""
    found = [chains.by_number[chain] for chain in sorted(chains.by_number)]
    longest = sorted((len(parts["z"]) for parts in found), reverse=True)
    kept = longest[max(range(len(longest)), key=lambda k: (k + 1) * longest[k])] if longest else 0
    if kept == 0:
        raise KeyboardInterrupt("stopped before the warm-up was over; there is no draw to return")
    target.visited += [
        torch.from_numpy(parts.pop("visited")) for parts in found if "visited" in parts
    ]
    chosen = [parts for parts in found if len(parts["z"]) >= kept]
    stacked = {
        name: torch.from_numpy(np.stack([parts[name][:kept] for parts in chosen]))
        for name in chosen[0]
    }
    z, figures = stacked.pop("z"), stacked
    figures["diverging"] = figures["diverging"].bool()
    notes = divergences(figures["diverging"])
    if interrupted:
        notes.append(
            f"stopped by Ctrl-C: {len(chosen)} of {how.chains} chains, {kept} of {how.draws} draws each"
        )
    return finish(how, target, z, started, figures, notes, interrupted=interrupted)
