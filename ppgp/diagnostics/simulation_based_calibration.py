"""Simulation-based calibration: whether posteriors are right on average over the prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyro
import scipy
import torch

from .. import files
from ..data.arguments import with_tensors
from ..data.dataset import Dataset
from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, NotApplicable, SettingError
from ..inference import Inference
from ..inference.fitting.fit import fit
from ..inference.jobs import each
from ..inference.runs import raise_if_interrupted, second_goes_to_the_caller
from ..models import Model
from ..posterior.convergence import ess, scalars
from ..runtime.fingerprint import fingerprint
from ..runtime.process_locks import silenced
from ..runtime.progress import bar
from ..runtime.seeding import seeded, standard_normal
from ..runtime.whole_numbers import check_workers
from .prior_simulations import OfModel, OfProgram

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SBC", "ecdf_band", "sbc"]

FEWEST = 20  # simulations
RANKS = 99  # draws that each true value is ranked among: 100 possible ranks
FIT_SEED = 1_000_000_007  # between the seed of the data and that of the fit
PATHS = 2000  # simulated samples for the simultaneous band


@dataclass(frozen=True, eq=False)
class SBC:
    """Ranks of the true values among posterior draws.

    They are uniform on 0 .. ``draws`` if the inference method is right.

    Attributes:
        ranks: ``{scalar: [simulations]}``.
        draws: The number of draws that each true value is ranked among.
        level: Of the simultaneous bands.
        interrupted: Whether Ctrl-C stopped it before the last simulation.
    """

    ranks: dict[str, np.ndarray]
    draws: int = RANKS
    level: float = 0.95
    interrupted: bool = False

    @property
    def simulations(self) -> int:
        return len(next(iter(self.ranks.values())))

    def differences(self) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Return the differences of the ECDFs from the uniform distribution, with their band.

        Returns:
            (points, {scalar: ECDF - points}, lower, upper); ``plots.sbc`` draws them.
        """
        points = np.arange(1, self.draws + 1) / (self.draws + 1)
        lower, upper = ecdf_band(self.simulations, points, self.level)
        gaps = {}
        for name, r in self.ranks.items():
            gaps[name] = _counts(r, points, self.draws) / len(r) - points
        return points, gaps, lower, upper

    @property
    def passes(self) -> bool:
        """Whether no scalar leaves the band more than chance allows (Bonferroni's bound)."""
        return bool((self.to_frame()["p_value"] * len(self.ranks) > 1 - self.level).all())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per scalar.

        Returns:
            A table with the columns ``p_value``, of uniform ranks (simultaneous over the ECDF);
            ``inside``, whether the ECDF stays in the band; ``spread``, above 1 where the posterior
            is too narrow and below 1 where it is too wide; ``shift``, above 0 where it lies too
            low; and ``symmetry``, the p-value of ranks that are symmetric about the middle,
            whatever their spread. An approximation whose means can be trusted although its spread
            cannot passes the last test (VSBC; Yao, Vehtari, Simpson & Gelman 2018, section 3.2; by
            Wilcoxon's signed ranks, as the ranks and their mirror images are not two independent
            samples).
        """
        import pandas as pd

        points, gaps, lower, upper = self.differences()
        smallest = _extremes(self.simulations, tuple(points))
        rows = {}
        for name, r in self.ranks.items():
            u = (r + 0.5) / (self.draws + 1)
            own = smallest_p(_counts(r, points, self.draws)[None], self.simulations, points)
            p = float((smallest <= own).mean())
            inside = bool(((gaps[name] >= lower) & (gaps[name] <= upper)).all())
            rows[name] = {
                "p_value": p,
                "inside": inside,
                "spread": float(u.std() * 12**0.5),
                "shift": float(u.mean() - 0.5),
                "symmetry": float(tuple(scipy.stats.wilcoxon(u - 0.5))[1]),
            }
        numbers = dict.fromkeys(("p_value", "spread", "shift", "symmetry"), float)
        return pd.DataFrame(rows).T.astype({**numbers, "inside": bool})

    def __repr__(self) -> str:
        cut = " (interrupted)" if self.interrupted else ""
        word = "passes" if self.passes else "fails"
        return f"<SBC of {len(self.ranks)} scalars, {self.simulations} simulations{cut}: {word}>"


def smallest_p(counts: np.ndarray, n: int, points: np.ndarray) -> np.ndarray:
    """Return the smallest two-sided p-value over k of counts [..., k] under Binomial(n, points)."""
    binomial = scipy.stats.binom(n, points)
    below, above = binomial.cdf(counts), binomial.sf(counts - 1)
    return np.minimum(1.0, 2 * np.minimum(below, above)).min(-1)


@lru_cache(maxsize=8)
def _extremes(n: int, points: tuple[float, ...]) -> np.ndarray:
    """Return the smallest pointwise p-value of each of many samples of n uniforms."""
    u = np.random.default_rng(0).random((PATHS, n))
    counts = np.stack([(u < p).sum(1) for p in points], 1)
    return smallest_p(counts, n, np.array(points))


def _counts(ranks: np.ndarray, points: np.ndarray, draws: int) -> np.ndarray:
    """Return how many ranks lie below each point of (0, 1)."""
    # in floating point 0.07 * 100 is more than 7
    return (ranks[:, None] < np.rint(points * (draws + 1))).sum(0)


def ecdf_band(n: int, points: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the simultaneous band of ECDF - points of n uniforms.

    The differences stay within it at all points together, with probability ``level``. Sailynoja,
    Buerkner & Vehtari (2022), algorithm 1: pointwise binomial bands, their level adjusted by
    simulation.

    Args:
        n: How many uniforms.
        points: [k], in (0, 1).
        level: In (0, 1).

    Returns:
        The lower and the upper band, each [k].
    """
    # arviz.stats.ecdf_utils.ecdf_confidence_band covers as often (0.950 and 0.954 of the simulated
    # samples of 200 uniforms), takes 1.2 to 2 times as long, and gives no p-value, which has to
    # come from the same simulation as the band
    gamma = float(np.quantile(_extremes(n, tuple(points)), 1 - level))
    lower = scipy.stats.binom.ppf(gamma / 2, n, points) / n - points
    upper = scipy.stats.binom.ppf(1 - gamma / 2, n, points) / n - points
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
    workers: int | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
    level: float = 0.95,
) -> SBC:
    """Run simulation-based calibration of an inference method on a model.

    Each simulation draws theta from the prior and y given theta, fits, and ranks theta among the
    posterior draws. Talts, Betancourt, Simpson, Vehtari & Gelman (2018). Chains are thinned to
    independent draws before ranking.

    Args:
        model: A model, or a Pyro program. Its data are the sites with the names of arguments that
            are left out, and the sites that observe an argument or a part of one.
        how: The inference method.
        simulations: How many, at least 20.
        seed: Of all random numbers.
        X: Inputs [n, d] of every simulation; None: n rows of d standard normal columns. A Dataset
            with an offset, trials, groups or known noise: its columns are those of every
            simulation, and its targets only have to suit the model.
        n: How many rows, where X is None.
        d: How many columns, where X is None.
        arguments: Of a program, those of the data left out:
            ``sbc(program, how, arguments=dict(x=x))``. Data that are passed all the same, as a
            program needs them to know its sizes, are drawn too: their shapes are used, and their
            values are not.
        workers: How many processes; None: those of an active ``joblib.parallel_config``, or else
            1. Each simulation has its own seed and one thread, so that neither the number of
            workers nor the backend changes the ranks.
        checkpoint: A file that stores the ranks; a call with the same arguments continues from it.
        progress: Whether a progress bar is shown.
        level: Of the simultaneous bands.

    Returns:
        The SBC, with ranks [simulations] of each scalar, which have no unit; after Ctrl-C that of
        the finished simulations, with a ConvergenceWarning.

    Raises:
        SettingError: If there are fewer than 20 simulations, or no worker.
        NumericalError: If a simulation ends its worker, and does so again when it is run once more.
        NotApplicable: If a prior is Flat, as nothing can be drawn from it, a program has no site of
            data, or it reads data that it is given other than by ``obs=``.
        StorageError: If the checkpoint is of another call, or another call is using it.
        KeyboardInterrupt: If Ctrl-C came before 20 simulations.

    Examples:
        Exact draws have uniform ranks:

        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> recipe = models.LinearRegression(noise=priors.InverseGamma(3.0, 2.0), conjugate=True)
        >>> how = inference.Exact(draws=99)
        >>> result = ppgp.sbc(recipe, how, simulations=40, n=10, d=1, progress=False)
        >>> result
        <SBC of 3 scalars, 40 simulations: passes>
        >>> {name: ranks.shape for name, ranks in result.ranks.items()}
        {'noise': (40,), 'weight[0]': (40,), 'bias': (40,)}
        >>> bool(result.to_frame()["inside"].all())
        True
    """
    if simulations < FEWEST:
        raise SettingError(f"at least {FEWEST} simulations", str(simulations), "for example 200")
    check_workers(workers)
    source = _source(model, how, X, (n, d), seed, arguments)
    with seeded(seed), _params_kept(source):
        source.check()
    header = {"sbc": fingerprint(source, how, seed)}
    log = files.JsonLines(checkpoint, header, "a checkpoint of this call")
    interrupted = False
    with log.held():
        ranks = _ranks_in(log)
        missing = [i for i in range(simulations) if i not in ranks]
        simulate = partial(_simulate, source, how, seed)
        results = each(simulate, missing, workers, noun="simulation")
        title = f"SBC of {type(how).__name__}"
        with second_goes_to_the_caller():
            try:
                with bar(title, simulations, progress) as update, closing(results):
                    for number, own in results:
                        i = missing[number]
                        ranks[i] = own
                        log.save({"i": i, "ranks": own})
                        update(len(ranks))
            except KeyboardInterrupt:
                interrupted = True
        log.finish()
    done = [i for i in range(simulations) if i in ranks]
    if len(done) < FEWEST:
        raise KeyboardInterrupt(f"stopped after {len(done)} of {simulations} simulations")
    if interrupted:
        sentence = (
            f"stopped by Ctrl-C: {len(done)} of {simulations} simulations; "
            "unfinished ones are left out, and those are more often slow ones"
        )
        warn(sentence, ConvergenceWarning)
    columns = {name: np.array([ranks[i][name] for i in done]) for name in ranks[done[0]]}
    return SBC(columns, RANKS, level, interrupted)


def _ranks_in(log: files.JsonLines) -> dict[int, dict[str, int]]:
    """Return {simulation: {scalar: rank}} from a log; a simulation without a line runs again."""
    return {int(record["i"]): dict(record["ranks"]) for record in log.read("i", "ranks")}


def _source(
    model: Any,
    how: Inference,
    X: Any,
    shape: tuple[int, int],
    seed: int,
    arguments: Mapping[str, Any] | None,
) -> OfModel | OfProgram:
    """Return what simulated data are drawn from."""
    if not isinstance(model, Model):
        if not callable(model):
            do = "pass a model of ppgp.models, or a function"
            raise NotApplicable("a model or a Pyro program", type(model).__name__, do)
        return OfProgram(model, with_tensors(dict(arguments or {})))
    if arguments is not None:
        raise NotApplicable("X, or n and d, for a model", "arguments", "pass X=")
    if isinstance(X, Dataset):
        return OfModel(model.for_method(how).prepare(X), X.X, X)
    if X is None:
        generator = torch.Generator().manual_seed(seed)
        X = standard_normal(generator, *shape)
    return OfModel(model, Dataset(X, np.zeros(len(X))).X)


def _params_kept(source: OfModel | OfProgram) -> AbstractContextManager[Any]:
    """Context manager: Pyro's store stays as it is; a program's params have their values there."""
    store = pyro.get_param_store()
    return store.scope(store.get_state() if isinstance(source, OfProgram) else None)


def _simulate(source: OfModel | OfProgram, how: Inference, seed: int, i: int) -> dict[str, int]:
    """Run the i-th simulation and return the rank of each scalar of its theta."""
    own = seed * 1_000_003 + i
    with seeded(own), _params_kept(source):
        values, ready, data = source.drawn()
    if getattr(ready, "standardised", False):  # the model of a posterior: X is on its scale here
        ready = replace(ready, standardised=False)
    with silenced(ConvergenceWarning):
        # the fit has another seed: its random numbers must not be those that drew theta
        fitted = fit(ready, data, how, seed=own + FIT_SEED, progress=False, standardise=False)
        posterior = raise_if_interrupted(fitted)
    truth = {name: values[name][None, None] for name in posterior.draws}
    if isinstance(ready, Model):
        truth, _ = ready.relabel(truth)
    generator = np.random.default_rng(own)
    own, true = (scalars(draws, posterior) for draws in (posterior.draws, truth))
    ranks = {}
    for (name, x), (_, value) in zip(own, true, strict=True):
        if x.size < 2:
            do = "use NUTS, SVI or Laplace"
            raise NotApplicable("a method that gives a spread", type(how).__name__, do)
        thin = 1
        if posterior.mcmc:
            thin = max(1, int(np.ceil(x.size / max(ess(x), 1.0))))
        ranks[name] = _rank(x[:, ::thin].ravel(), value.item(), generator)
    return ranks


def _rank(draws: np.ndarray, value: float, generator: np.random.Generator) -> int:
    """Return the rank of a value among RANKS of the draws.

    Of fewer draws, the rank is spread evenly over the ranks that it corresponds to.
    """
    if len(draws) >= RANKS:
        return int((generator.choice(draws, RANKS, replace=False) < value).sum())
    share = (int((draws < value).sum()) + generator.random()) / (len(draws) + 1)
    return int(share * (RANKS + 1))
