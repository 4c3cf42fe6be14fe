"""One chain of nutpie's Rust sampler on the compiled gradient of a Target."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...density.target import Target
from ...errors import NumericalError
from ...runtime.libraries import nutpie, settings_unchanged
from ...runtime.process_locks import help_in, turns_of_this_thread
from ...runtime.seeding import standard_normal
from ..variational.pathfinder import near_the_mass
from .chains import SPREAD
from .coordinates import Coordinates
from .nuts_defaults import SettledOptions

REPORT_SECONDS = 0.1  # between two reports of progress by a chain
#: Dimensions above which chains do not start on a path of L-BFGS, and mass matrices are diagonal:
#: a low-rank adaptation costs an eigendecomposition per window, whatever the density costs.
LOW_RANK_UP_TO = 200
JITTER = 0.01  # sd of the starts around a point that the caller gives
#: The name of each statistic here, and in nutpie.
NUTPIE_STATS = {
    "diverging": "diverging",
    "n_steps": "n_steps",
    "acceptance_rate": "mean_tree_accept",
    "lp": "logp",
    "energy": "energy",
    "tree_depth": "depth",
    "step_size": "step_size",
}

#: The draws z [draw, p] and the statistics [draw] of one chain.
Parts = dict[str, np.ndarray]
#: A function of the numbers of draws and of gradients so far.
Report = Callable[[int, int], None]


class _Recoverable(Exception):
    """The density does not exist at a point; nutpie counts this as a divergence."""

    is_recoverable = True


class NutpieSampler:
    """What all chains share: the density in the coordinates w of the sampler.

    Args:
        options: The options of the run.
        target: The density.
        centre: The point near which all chains start, [p]; None: there is none.
        preconditioner: Origin [p] and root [p, p]; None: the coordinates are z itself.
        seed: The seed of the run.
    """

    def __init__(
        self,
        options: SettledOptions,
        target: Target,
        centre: Tensor | None,
        preconditioner: tuple[Tensor, Tensor] | None,
        seed: int,
    ) -> None:
        self.options, self.target, self.centre, self.seed = options, target, centre, seed
        self.preconditioner = preconditioner
        self.preconditioned = preconditioner is not None
        self.coordinates = Coordinates(target, preconditioner)
        self.callback = target.callback(often=True)
        self.turns = turns_of_this_thread()  # this thread waits for those that sample

    def whole_chain(self, number: int, report: Report) -> Parts | None:
        """Run one chain from start to end; after Ctrl-C, return the draws so far."""
        visited = self.target.visited
        before = len(visited)
        sampler, chain = self.begin(number, report)
        try:
            parts = chain.end(sampler)
        except KeyboardInterrupt:
            chain.stop()
            return chain.cut(sampler)
        if parts is not None and len(visited) > before:
            # a parent process does not see the points that its forked child evaluated
            points = torch.cat([z.reshape(-1, self.target.dim)[:1] for z in visited[before:]])
            parts["visited"] = points.double().cpu().numpy()
        return parts

    def begin(self, number: int, report: Report) -> tuple[Any, Chain]:
        """Start a chain in a thread of its own; return nutpie's sampler and its callbacks here."""
        chain = Chain(self, report)
        dim = self.target.dim
        dtypes: list[Any] = [np.dtype("float64")]
        library = nutpie()
        model = library.compiled_pyfunc.from_pyfunc(
            dim,
            lambda: chain.logp,
            lambda *_: chain.expanded,
            dtypes,
            [(dim,)],
            ["z"],
            make_initial_point_fn=chain.initial_point,
        )
        sampler = library.sample(
            model,
            draws=self.options.draws,
            tune=self.options.warmup,
            chains=1,
            cores=1,
            seed=chain_seed(self.seed, number),
            progress_bar=False,
            return_raw_trace=True,
            blocking=False,
            target_accept=self.options.target_accept,
            maxdepth=self.options.max_depth,
            **(low_rank_mass_matrix(library.sample) if self.preconditioned else {}),
        )
        return sampler, chain


def low_rank_mass_matrix(sample: Callable[..., Any]) -> dict[str, Any]:
    """Return the argument that asks nutpie for a mass matrix of low rank.

    Args:
        sample: ``nutpie.sample``; from 0.16.9 it has ``adaptation=``, and warns of the older name.
    """
    if "adaptation" in inspect.signature(sample).parameters:
        return {"adaptation": "low_rank"}
    return {"low_rank_modified_mass_matrix": True}


def start_of_chain(target: Target, centre: Tensor | None, seed: int) -> Tensor:
    """Return the start z [p] of one chain.

    Args:
        target: The density.
        centre: The point that the caller gives, near which the chain starts, [p]; None: there is
            none.
        seed: The seed of this chain.
    """
    seed %= 2**63
    if centre is not None:
        generator = torch.Generator().manual_seed(seed)
        e = standard_normal(generator, target.dim)
        return centre + JITTER * e.to(centre)
    z = target.start(seed, SPREAD)
    if target.dim > LOW_RANK_UP_TO:
        return z
    return near_the_mass(target, z, seed)


@dataclass(eq=False, repr=False)
class Chain:
    """The functions that nutpie calls for one chain, and the first error inside them.

    Attributes:
        run: What all chains share.
        report: Takes the numbers of draws and of gradients so far.
        draws: The number of draws so far, those of the warm-up included.
        gradients: The number of gradients so far.
        reported: The time of the last report.
        failure: The first error.
        whole: The number of complete draws when Ctrl-C came.
    """

    run: NutpieSampler
    report: Report
    draws: int = 0
    gradients: int = 0
    reported: float = field(default_factory=time.monotonic)
    failure: BaseException | None = None
    whole: int | None = None

    def logp(self, w: np.ndarray, **_: Any) -> tuple[float, np.ndarray]:
        """Return the log density at w [p] and its gradient [p]."""
        if self.whole is not None:
            raise _Recoverable
        run = self.run
        help_in(run.turns)
        self.gradients += 1
        try:
            value, gradient = run.callback(run.coordinates.point(w))
        except BaseException as error:
            # nutpie would turn this into a panic, so it is raised at the end of the chain
            self.failure = self.failure or error
            raise _Recoverable from None
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise _Recoverable
        return run.coordinates.density(w, value, gradient)

    def expanded(self, w: np.ndarray, **_: Any) -> Parts:
        """Return z [p] of a draw w [p]. nutpie calls this once per draw."""
        self.draws += 1
        now = time.monotonic()
        if now - self.reported > REPORT_SECONDS:
            self.reported = now
            self.report(self.draws, self.gradients)
        return {"z": self.run.coordinates.point(w)}

    def initial_point(self, own: int) -> np.ndarray:
        """Return the start w [p] of the chain; ``own`` is its seed."""
        run = self.run
        help_in(run.turns)
        try:
            z = start_of_chain(run.target, run.centre, own).double().cpu().numpy()
            return run.coordinates.inverse(z)
        except BaseException as error:
            # raised again at the end of the chain, as in logp
            self.failure = self.failure or error
            raise

    def end(self, sampler: Any) -> Parts | None:
        """Wait for the end of the chain, and return its draws.

        Raises:
            NumericalError: If nutpie cannot sample the density.
            Exception: The first error that the density raised.
        """
        try:
            raw = sampler.wait()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic in Rust is no Exception
            if self.failure is not None:
                raise self.failure from None
            reason = (str(error).splitlines() or [""])[0]
            raise NumericalError(
                "a density that can be sampled",
                f"{type(error).__name__}: {reason}",
                "look for a prior that is flat, or a likelihood that is constant far from the data",
            ) from error
        if self.failure is not None:
            raise self.failure
        return self._parts(raw)

    def stop(self) -> None:
        """End the current trajectory at its next gradient, of which there may be a thousand."""
        self.whole = self.draws

    def cut(self, sampler: Any) -> Parts | None:
        """Return the draws that were complete at the stop; None if there are none."""
        try:
            return self._parts(sampler.abort(), self.whole)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # the chain had no start yet; a panic in Rust is no Exception
            return None

    def _parts(self, raw: Any, first: int | None = None) -> Parts | None:
        """Return the draws after the warm-up, with the log density of z; None if there are none.

        ``first``: leave out all draws, warm-up included, after so many.
        """
        draws, stats = raw.get_arrow_trace()
        if not draws:
            return None
        with settings_unchanged():
            import pyarrow

        kept = ~pyarrow.array(stats[0].column("tuning")).to_numpy(False).astype(bool)
        if first is not None:
            kept[first:] = False
        if not kept.any():
            return None
        z = pyarrow.array(draws[0].column("z")).flatten()  # its vectors are laid end to end
        parts = {"z": z.to_numpy(False).reshape(len(kept), -1)[kept]}
        for name, theirs in NUTPIE_STATS.items():
            values = pyarrow.array(stats[0].column(theirs)).to_numpy(False)
            parts[name] = values[kept].astype(float)
        coordinates = self.run.coordinates
        if len(coordinates.bent):  # nutpie's is that of w
            parts["lp"] = parts["lp"] - coordinates.log_jacobian(parts["z"])
        return parts


def chain_seed(seed: int, chain: int) -> int:
    """Return the seed of one chain; runs with neighbouring seeds share none."""
    state = np.random.SeedSequence([seed % 2**63, chain]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
