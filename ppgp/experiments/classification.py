"""Two classes by logistic regression and Gaussian processes, with f approximated in four ways.

f is approximated by Laplace's method and by expectation propagation (Rasmussen & Williams 2006,
chapter 3), by an SVGP (Hensman, Matthews & Ghahramani 2015), or sampled by NUTS with the
hyperparameters, which is the reference. Kuss & Rasmussen (2005) found expectation propagation far
closer to it than Laplace's method. scikit-learn's classifier, which maximises the evidence of
Laplace's method, stands beside them, and so does gp-laplace-flat, which does the same. The others
have the default priors of hyperparameters, whose posterior gp-laplace and gp-ep take as normal.

The sets are German credit (UCI 144) and two simulated ones: "linear", where logistic regression is
the true model, and "wave", whose boundary is curved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor

from ..conformal import LAC, calibrate
from ..data.dataset import Dataset
from ..diagnostics.predictive_differences import predictive_difference
from ..errors import PpgpWarning, SettingError, UnknownName
from ..inference import MAP, NUTS, SVI, Laplace
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..kernels import RBF
from ..likelihoods import Bernoulli
from ..metrics import metrics
from ..models import SVGP, LatentGP, LogisticRegression
from ..posterior.convergence import efficiency
from ..posterior.posterior import Posterior
from ..posterior.prediction import Prediction
from ..priors import Flat
from ..runtime.process_locks import silenced
from ..runtime.seeding import standard_normal, standard_uniform
from . import start_rows

LEVEL = 0.9
SETS = ("german-credit", "linear", "wave")
REFERENCE = "gp-nuts"
PEER = "scikit-learn"
FLAT = "gp-laplace-flat"  # maximum evidence from one start, as scikit-learn's
#: the reference comes first: the others are measured against it
METHODS: dict[str, tuple[Any, Any]] = {
    REFERENCE: (LatentGP(RBF(), Bernoulli(), "sampled"), NUTS(draws=500, warmup=500, chains=2)),
    "gp-laplace": (LatentGP(RBF(), Bernoulli(), "laplace"), Laplace()),
    FLAT: (LatentGP(RBF(Flat(), Flat()), Bernoulli(), "laplace"), MAP(starts=1)),
    "gp-ep": (LatentGP(RBF(), Bernoulli(), "ep"), Laplace()),
    "svgp": (SVGP(RBF(), likelihood=Bernoulli()), SVI()),
    "logistic": (LogisticRegression(), Laplace()),
}
APPROXIMATIONS = {"gp-laplace": "laplace", "gp-ep": "ep"}
THINNED = 50  # draws of hyperparameters at which approximations of f are compared
QUICK_ROWS = 40


@dataclass(frozen=True)
class Parts:
    """The rows of one set: those of the fits, of the calibration and of the test."""

    train: Dataset
    calibration: Dataset
    test: Dataset


@dataclass(frozen=True)
class Fitted:
    """One fit: how it predicts, its evidence, the CPU seconds of the fit, and its posterior."""

    how: str
    predict: Callable[[Tensor], Prediction]
    evidence: float | None
    seconds: float
    posterior: Posterior | None = None


def run(
    out: Path,
    *,
    seed: int = 0,
    quick: bool = False,
    data_dir: str | None = None,
    sets: str = ",".join(SETS),
) -> list[dict[str, Any]]:
    """Fit every model to every set, and measure its probabilities on the test rows.

    Writes lines of ``rows.jsonl`` as each set is complete.

    Args:
        out: Folder of ``rows.jsonl``.
        seed: Seed of the simulated sets, the splits and the fits.
        quick: Use 40 training rows and tiny budgets.
        data_dir: Folder of ``german_credit/german_credit.npz``, or of the file itself.
        sets: Names of sets, comma-separated.

    Returns:
        Rows with ``model``, ``how``, ``set``, ``error``, ``nll`` (log loss), ``brier``, ``ece``
        (expected calibration error), ``coverage`` and ``size`` of the smallest label sets of 90 %
        probability, ``coverage_conformal`` and ``size_conformal`` of LAC sets, ``evidence`` (at the
        hyperparameters found; of the SVGP the lower bound), ``verdict`` on the predictions against
        those of gp-nuts, ``apart`` from them (root mean square of the probabilities' differences),
        ``apart_same``, the same where the approximation of f takes the hyperparameters that NUTS
        drew, and ``seconds``, CPU seconds of the fit.

    Raises:
        SettingError: If the file of German credit is wanted and missing.
        UnknownName: If there is no such set.
    """
    chosen = [part.strip() for part in sets.split(",")]
    for name in chosen:
        if name not in SETS:
            raise UnknownName("set of this experiment", name, SETS)
    tables = {name: _table(name, seed, data_dir) for name in chosen}
    log = start_rows(out)
    rows: list[dict[str, Any]] = []
    for name, parts in tables.items():
        if quick:
            parts = replace(parts, train=parts.train.rows(torch.arange(QUICK_ROWS)))
        new = _rows_of(name, parts, seed, quick)
        log.append(*new)
        rows += new
    return rows


def _table(name: str, seed: int, data_dir: str | None) -> Parts:
    """Return the rows of a set, split at random."""
    if name == "german-credit":
        data, shares = _german_credit(data_dir), (0.5, 0.25)
    else:
        data, shares = _simulated(name, seed), (0.2, 0.2)
    return Parts(*data.split(*shares, seed=seed))


def _german_credit(data_dir: str | None) -> Dataset:
    folder = Path(data_dir or ".")
    file = "german_credit.npz"
    paths = [folder / "german_credit" / file, folder / file]
    path = next((p for p in paths if p.is_file()), None)
    if path is None:
        do = "pass --data-dir DIR, or --sets linear,wave"
        raise SettingError(f"german_credit/{file} in {folder}", "no such file", do)
    raw = np.load(path)
    return Dataset(raw["X"], raw["y"].astype(float))


def _simulated(name: str, seed: int, n: int = 1500) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    d = 5 if name == "linear" else 2
    X = standard_normal(generator, n, d)
    if name == "linear":
        f = X @ torch.tensor([1.5, -1.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    else:
        f = 3 * torch.sin(2 * X[:, 0]) * torch.cos(X[:, 1]) + X[:, 1]
    u = standard_uniform(generator, n)
    return Dataset(X, (u < torch.sigmoid(f)).to(X))


def _rows_of(name: str, parts: Parts, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return the rows of one set; that of the reference is the first."""
    rows, reference, drawn = [], None, None
    for model in (*METHODS, PEER):
        fitted = _peer(parts.train) if model == PEER else _fitted(model, parts.train, seed, quick)
        prediction = fitted.predict(parts.test.X)
        row = {"model": model, "how": fitted.how, "set": name, "n": parts.train.n}
        row |= _measured(prediction, fitted.predict(parts.calibration.X), parts)
        row["evidence"] = fitted.evidence
        if model == REFERENCE:
            reference, drawn = prediction, fitted.posterior
        assert reference is not None
        assert drawn is not None
        row |= _judged(model, prediction, reference, drawn, parts.test.X)
        rows.append(row | {"seconds": fitted.seconds})
    return rows


def _fitted(name: str, train: Dataset, seed: int, quick: bool) -> Fitted:
    model, how = METHODS[name]
    if name == FLAT:
        model = replace(model, kernel=RBF(Flat(), Flat(_first_lengthscale(train))))
    if quick:
        how = how.quick()
    started = time.process_time()
    with silenced(PpgpWarning):
        posterior = fit(model, train, how, seed=seed, progress=False)
    posterior = raise_if_interrupted(posterior)
    seconds = time.process_time() - started
    found = [posterior.stats[k] for k in ("log_evidence", "elbo") if k in posterior.stats]
    if name in (*APPROXIMATIONS, FLAT):  # of the rows, at the mode of the hyperparameters
        found = [posterior.stats["log_likelihood"]]
    evidence = float(found[0]) if found else None
    return Fitted(type(how).__name__.lower(), posterior.predict, evidence, seconds, posterior)


def _first_lengthscale(train: Dataset) -> float:
    """Return where both searches of maximum evidence start, of standardised columns."""
    return train.d**0.5


def _peer(train: Dataset) -> Fitted:
    """Fit scikit-learn's classifier to standardised inputs."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF as PeerRBF
    from sklearn.gaussian_process.kernels import ConstantKernel

    mean, sd = train.X.mean(0), train.X.std(0)

    def scaled(X: Tensor) -> np.ndarray:
        return ((X - mean) / sd).numpy()

    peer: Any = GaussianProcessClassifier(ConstantKernel(1.0) * PeerRBF(_first_lengthscale(train)))
    started = time.process_time()
    peer.fit(scaled(train.X), train.y.numpy())
    seconds = time.process_time() - started

    def predict(X: Tensor) -> Prediction:
        p = torch.as_tensor(peer.predict_proba(scaled(X))[:, 1])
        return Prediction(dist.Bernoulli(probs=p[None]))

    return Fitted("laplace", predict, float(peer.log_marginal_likelihood_value_), seconds)


def _measured(prediction: Prediction, calibration: Prediction, parts: Parts) -> dict[str, Any]:
    """Return the metrics of the test rows."""
    y, p = parts.test.y, prediction.probabilities
    largest = p.max(-1).values
    before = torch.where((largest >= LEVEL)[:, None], p == largest[:, None], True)
    after = calibrate(LAC(), calibration, parts.calibration.y)(prediction, level=LEVEL)
    return {
        "error": 1 - metrics.accuracy(prediction, y),
        "nll": metrics.nll(prediction, y),
        "brier": metrics.brier(prediction, y),
        "ece": metrics.calibration_error(prediction, y),
        "coverage": float(before.gather(1, y.long()[:, None]).double().mean()),
        "size": float(before.sum(1).double().mean()),
        "coverage_conformal": metrics.coverage(after, y),
        "size_conformal": metrics.mean_width(after),
    }


def _judged(
    model: str, prediction: Prediction, reference: Prediction, drawn: Posterior, X: Tensor
) -> dict[str, Any]:
    """Return the verdict on the predictions, and how far they are from those of NUTS."""
    if model == REFERENCE:
        return {"verdict": "reference", "apart": None, "apart_same": None}
    sizes = float(prediction.draws), efficiency(drawn) * reference.draws
    verdict = predictive_difference(prediction, reference, LEVEL, sizes)
    same = None
    if model in APPROXIMATIONS:
        same = _apart(_at_the_draws_of(drawn, APPROXIMATIONS[model], X), reference)
    return {"verdict": verdict.word, "apart": _apart(prediction, reference), "apart_same": same}


def _apart(one: Prediction, two: Prediction) -> float:
    return float((one.probabilities - two.probabilities)[:, 1].square().mean().sqrt())


def _at_the_draws_of(drawn: Posterior, approximation: str, X: Tensor) -> Prediction:
    """Return predictions of an approximation of f, at hyperparameters that NUTS drew."""
    model = replace(drawn.model, approximation=approximation, rows=None)
    flat = {name: v.flatten(0, 1) for name, v in drawn.draws.items() if name != "v"}
    step = max(1, len(next(iter(flat.values()))) // THINNED)
    theta = {name: v[::step] for name, v in flat.items()}
    return Prediction(model.predict(theta, drawn.scaler.inputs(X), drawn.data))
