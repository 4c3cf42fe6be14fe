"""Simulation-based calibration: does a method, on a model, give posteriors that are right on average over the prior?"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyro
import torch
from scipy import stats

from .. import files
from ..data.dataset import Dataset
from ..errors import ConvergenceWarning, NotApplicable, SettingError, StorageError, StorageWarning
from ..inference import Inference
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..inference.progress import bar
from ..models import Model
from ..numerics.fingerprint import fingerprint
from ..numerics.process_locks import silenced
from ..numerics.processes import Spawned, end_with_parent, kill_all, without_interrupts
from ..numerics.seeding import seeded
from ..posterior.convergence import ess, scalars
from .prior_simulations import OfModel, OfProgram

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SBC", "ecdf_band", "sbc"]

FEWEST = 20  # simulations
RANKS = 99  # draws that each rank is among: 100 values, from thinned chains
FIT_SEED = 1_000_000_007
PATHS = 2000  # simulated, for the simultaneous band


@dataclass(frozen=True, eq=False)
class SBC:
    """Ranks of the true values among posterior draws, uniform on 0 .. ``draws`` if the method is right.

    Attributes:
        ranks: ``{scalar: [simulations]}``.
        draws: how many draws a rank is among.
        level: of the simultaneous bands.
        interrupted: whether Ctrl-C ended it before the last simulation.
    """

    ranks: dict[str, np.ndarray]
    draws: int = RANKS
    level: float = 0.95
    interrupted: bool = False

    @property
    def simulations(self) -> int:
        return len(next(iter(self.ranks.values())))

    def differences(self) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """(points, {scalar: ECDF - points}, lower, upper): what ``plots.sbc`` draws, with a simultaneous band."""
        points = np.arange(1, self.draws + 1) / (self.draws + 1)
        lower, upper = ecdf_band(self.simulations, points, self.level)
        each = {
            name: _counts(r, points, self.draws) / len(r) - points for name, r in self.ranks.items()
        }
        return points, each, lower, upper

    @property
    def passes(self) -> bool:
        """Whether no more scalars leave the band than chance allows (by Bonferroni's bound over them)."""
        return bool((self.to_frame()["p_value"] * len(self.ranks) > 1 - self.level).all())

    def to_frame(self) -> pd.DataFrame:
        """One row a scalar: ``p_value`` of uniform ranks (simultaneous over the ECDF), whether it stays in the band, and how.

        ``spread``: above 1 where the posterior is too narrow, below where too wide; ``shift``: above 0 where it lies too low;
        ``symmetry``: p-value of ranks that are as far up as down, whatever their spread: an approximation whose means can be
        trusted although its spread cannot passes it (VSBC; Yao, Vehtari, Simpson & Gelman 2018, section 3.2; by Wilcoxon's signed
        ranks, as the ranks and their mirror images are not two independent samples).
        """
        import pandas as pd

        points, each, lower, upper = self.differences()
        smallest = _extremes(self.simulations, tuple(points))
        rows = {}
        for name, r in self.ranks.items():
            u = (r + 0.5) / (self.draws + 1)
            seen = _tails(_counts(r, points, self.draws)[None], self.simulations, points)
            p = float((smallest <= seen).mean())
            inside = bool(((each[name] >= lower) & (each[name] <= upper)).all())
            rows[name] = {
                "p_value": p,
                "inside": inside,
                "spread": float(u.std() * 12**0.5),
                "shift": float(u.mean() - 0.5),
                "symmetry": float(tuple(stats.wilcoxon(u - 0.5))[1]),
            }
        numbers = dict.fromkeys(("p_value", "spread", "shift", "symmetry"), float)
        return pd.DataFrame(rows).T.astype({**numbers, "inside": bool})

    def __repr__(self) -> str:
        cut = " (interrupted)" if self.interrupted else ""
        word = "passes" if self.passes else "fails"
        return f"<SBC of {len(self.ranks)} scalars, {self.simulations} simulations{cut}: {word}>"


def _tails(counts: np.ndarray, n: int, points: np.ndarray) -> np.ndarray:
    """Two-sided pointwise p-values of counts [..., k] under Binomial(n, points), the smallest over k."""
    below, above = stats.binom.cdf(counts, n, points), stats.binom.sf(counts - 1, n, points)
    return np.minimum(1.0, 2 * np.minimum(below, above)).min(-1)


@lru_cache(maxsize=8)
def _extremes(n: int, points: tuple[float, ...]) -> np.ndarray:
    """The smallest pointwise p-value of each of many samples of n uniforms: what chance alone gives."""
    u = np.random.default_rng(0).random((PATHS, n))
    counts = np.stack([(u < p).sum(1) for p in points], 1)
    return _tails(counts, n, np.array(points))


def _counts(ranks: np.ndarray, points: np.ndarray, draws: int) -> np.ndarray:
    """How many ranks lie below each point of (0, 1)."""
    return (ranks[:, None] < np.rint(points * (draws + 1))).sum(0)  # 0.07 * 100 is more than 7


def ecdf_band(n: int, points: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper band of ECDF - points that n uniforms stay within, at all points at once, with probability ``level``.

    Sailynoja, Buerkner & Vehtari (2022), algorithm 1: pointwise binomial bands, their level adjusted by simulation.
    """
    gamma = float(np.quantile(_extremes(n, tuple(points)), 1 - level))
    lower = stats.binom.ppf(gamma / 2, n, points) / n - points
    upper = stats.binom.ppf(1 - gamma / 2, n, points) / n - points
    return lower, upper


def sbc(
    model: Model | Callable[..., Any],
    how: Inference,
    simulations: int = 200,
    *,
    seed: int = 0,
    X: Any = None,
    n: int = 20,
    d: int = 2,
    arguments: Mapping[str, Any] | None = None,
    workers: int = 1,
    checkpoint: str | Path | None = None,
    progress: bool = True,
    level: float = 0.95,
) -> SBC:
    """Draw theta from the prior and y given theta, fit, and rank theta among the draws; many times.

    Talts, Betancourt, Simpson, Vehtari & Gelman (2018). Chains are thinned to independent draws before ranking.

    Args:
        model: a model, or a Pyro program whose sites of the data bear the names of their arguments.
        X: inputs [n, d] of every simulation; None: n rows of d standard normal columns.
        arguments: of a program, those of the data left out: ``sbc(program, how, arguments=dict(x=x))``.
        workers: processes; each simulation has a seed of its own, so that their number does not change the ranks.
        checkpoint: a file that keeps the ranks found; a call with the same arguments goes on from it.

    Returns:
        The SBC; after Ctrl-C that of the simulations that were done, with a ConvergenceWarning.

    Raises:
        NotApplicable: if a prior is Flat, as nothing can be drawn from it, or a program has no site of data.
        StorageError: if the checkpoint is of another call, or another call is using it.
        KeyboardInterrupt: if Ctrl-C came before 20 simulations.
    """
    if simulations < FEWEST:
        raise SettingError(f"at least {FEWEST} simulations", str(simulations), "for example 200")
    if workers < 1:
        raise SettingError("at least one worker", str(workers), "pass workers=2")
    source: OfModel | OfProgram
    if isinstance(model, Model):
        if arguments is not None:
            raise NotApplicable("X, or n and d, for a model", "arguments", "pass X=")
        if X is None:
            X = torch.randn(
                n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
            )
        source = OfModel(model, Dataset(X, torch.zeros(len(X))).X)
    else:
        if not callable(model):
            raise NotApplicable(
                "a model or a Pyro program",
                type(model).__name__,
                "pass a model of ppgp.models, or a function",
            )
        source = OfProgram(model, dict(arguments or {}))
    with seeded(seed), pyro.get_param_store().scope():
        source.check()
    kept = _Kept(checkpoint, fingerprint(source, how, seed))
    interrupted = False
    with files.locked(checkpoint):
        found = kept.read()
        missing = [i for i in range(simulations) if i not in found]
        try:
            simulated = _simulated(source, how, seed, missing, workers)
            with (
                bar(f"SBC of {type(how).__name__}", simulations, progress) as update,
                closing(simulated),
            ):
                for i, ranks in simulated:
                    found[i] = ranks
                    kept.add(i, ranks)
                    update(len(found))
        except KeyboardInterrupt:
            interrupted = True
        kept.end()
    done = [i for i in range(simulations) if i in found]
    if len(done) < FEWEST:
        raise KeyboardInterrupt(f"stopped after {len(done)} of {simulations} simulations")
    if interrupted:
        sentence = f"stopped by Ctrl-C: {len(done)} of {simulations} simulations; those on their way are left out, slow ones most often"
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    ranked = {name: np.array([found[i][name] for i in done]) for name in found[done[0]]}
    return SBC(ranked, RANKS, level, interrupted)


def _simulated(
    source: OfModel | OfProgram, how: Inference, seed: int, wanted: list[int], workers: int
) -> Generator[tuple[int, dict[str, int]], None, None]:
    if workers == 1 or len(wanted) < 2:
        yield from ((i, _one(source, how, seed, i)) for i in wanted)
        return
    context = Spawned()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        with without_interrupts():
            futures = {pool.submit(_one, source, how, seed, i): i for i in wanted}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BaseException:
        kill_all(context.processes)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Of each worker."""
    end_with_parent()
    torch.set_num_threads(1)


def _one(source: OfModel | OfProgram, how: Inference, seed: int, i: int) -> dict[str, int]:
    """One simulation: the ranks of its theta."""
    own = seed * 1_000_003 + i
    with seeded(own), pyro.get_param_store().scope():
        values, ready, data = source.drawn()
    if getattr(
        ready, "standardised", False
    ):  # the recipe of a posterior: X stands on its scale here
        ready = replace(ready, standardised=False)
    with silenced(ConvergenceWarning):
        # a seed of the fit's own: its random numbers must not be those that drew theta
        posterior = whole(
            fit(ready, data, how, seed=own + FIT_SEED, progress=False, standardise=False)
        )
    truth = {name: values[name][None, None] for name in posterior.draws}
    if isinstance(ready, Model):
        truth, _ = ready.relabel(truth)
    generator = np.random.default_rng(own)
    ranks = {}
    for (name, x), (_, value) in zip(scalars(posterior.draws), scalars(truth), strict=True):
        if x.size < 2:
            raise NotApplicable(
                "a method that gives a spread", type(how).__name__, "use NUTS, SVI or Laplace"
            )
        thin = max(1, int(np.ceil(x.size / max(ess(x), 1.0)))) if posterior.mcmc else 1
        kept = x[:, ::thin].ravel()
        if len(kept) >= RANKS:
            ranks[name] = int((generator.choice(kept, RANKS, replace=False) < value.item()).sum())
        else:  # a rank among fewer draws, spread evenly over the ranks that it stands for
            among = (int((kept < value.item()).sum()) + generator.random()) / (len(kept) + 1)
            ranks[name] = int(among * (RANKS + 1))
    return ranks


class _Kept:
    """Ranks in a file of JSON lines, the first of which says whose they are."""

    def __init__(self, path: str | Path | None, identity: str) -> None:
        self.path = None if path is None else files.check_regular(path)
        self.identity = identity
        self._saves = files.Saves(self.path)
        self._lines: list[str] = [json.dumps({"sbc": self.identity})]
        self._written = 0  # of the lines

    def read(self) -> dict[int, dict[str, int]]:
        if self.path is None:
            return {}
        text = self._text()
        if not text:
            return {}
        lines = text.splitlines()
        try:
            head = json.loads(lines[0])["sbc"]
        except (json.JSONDecodeError, KeyError, TypeError):
            head = None
        if head != self.identity:
            raise StorageError(
                "a checkpoint of this call",
                f"{self.path.name}, of another",
                "choose another path, or delete it",
            )
        found = {}
        for line in lines[1:]:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # that line: its simulation is run again
            found[int(entry["i"])] = entry["ranks"]
        self._lines, self._written = lines, len(lines)
        return found

    def _text(self) -> str:
        assert self.path is not None
        try:
            with files.explained(self.path, "read"):
                return self.path.read_text() if self.path.exists() else ""
        except UnicodeDecodeError:
            do = "choose another path"
            raise StorageError(
                "a checkpoint of this call", f"{self.path.name}, another kind of file", do
            ) from None

    def add(self, i: int, ranks: dict[str, int]) -> None:
        if self.path is not None:
            self._lines.append(json.dumps({"i": i, "ranks": ranks}))
            self._write(self.path)

    def end(self) -> None:
        """Try once more, and say what the file does not hold."""
        if (
            self.path is not None
            and self._written < len(self._lines)
            and not self._write(self.path)
        ):
            for sentence in self._saves.notes():
                warnings.warn(sentence, StorageWarning, stacklevel=3)

    def _write(self, path: Path) -> bool:
        """Add the lines that are not in the file; all of them, if it is gone."""
        waiting = self._lines[self._written if path.exists() else 0 :]
        written = self._saves.attempt(
            lambda: files.append(path, "".join(f"{line}\n" for line in waiting))
        )
        if written:
            self._written = len(self._lines)
        return written
