"""The UCI regression sets on their published 90/10 splits, beside two published methods.

RMSE and negative log density (NLL) are in the units of y. The splits are those of Hernández-Lobato
& Adams (2015), as distributed with Gal & Ghahramani (2016). The published columns are MC dropout,
from the corrected runs in that repository, and SVGP with 100 inducing inputs, from
bayesian_benchmarks (Salimbeni); kin8nm from the demonstration of doubly stochastic deep GPs.

The candidates are kernels of several degrees of smoothness, with one lengthscale per column, and
sums of a smooth and a rough one, fitted by MAP. Their predictions are mixed with stacking weights,
which maximise the leave-one-out density of the training rows.

On wine a third of the test rows repeat a training row, rating included. Kernels that detect
repeats among the training rows give such a rating almost all of the probability, and a density
without bound. The NLL of wine therefore measures the repeats, and its RMSE the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..diagnostics import metrics
from ..diagnostics.leave_one_out import stacking_weights
from ..errors import PpgpWarning, SettingError, UnknownName
from ..files import JsonLines
from ..inference import MAP, SVI
from ..inference.fitting import fit
from ..inference.interrupts import raise_if_interrupted
from ..kernels import ARD, RBF, Matern
from ..models import GP, SGPR, SVGP
from ..numerics.distributions import NormalMixture
from ..numerics.process_locks import silenced
from ..posterior.prediction import Prediction
from ..priors import LogNormal

LEVEL = 0.9
#: most rows of the exact model, and of the one with a collapsed bound; beyond it, mini-batches
EXACT_UP_TO = 2000
COLLAPSED_UP_TO = 20_000
INDUCING = 512  # of SGPR
MOST_INDUCING = 1000  # of SVGP
BATCH = 512
#: SVI starts at the mode of the collapsed bound of a subset, and moves q by natural gradients
SVI_STEPS = 150
MAP_STEPS = 60
#: prior of each lengthscale, with which the published table was computed
LENGTHSCALE = LogNormal(0.0, 1.0)
SMOOTH = ARD(RBF(lengthscale=LENGTHSCALE))
MIDDLE = ARD(Matern(1.5, lengthscale=LENGTHSCALE))
ROUGH = ARD(Matern(0.5, lengthscale=LENGTHSCALE))
KERNELS = (SMOOTH, MIDDLE, ROUGH)
SUMS = (SMOOTH + MIDDLE, SMOOTH + ROUGH)
#: set -> (RMSE, NLL) of SVGP and of MC dropout
PUBLISHED: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "boston": ((2.59, 2.40), (2.90, 2.40)),
    "concrete": ((5.97, 3.17), (4.83, 2.94)),
    "energy": ((0.65, 1.08), (0.54, 1.21)),
    "kin8nm": ((0.087, -0.97), (0.079, -1.14)),
    "power": ((3.97, 2.80), (4.01, 2.81)),
    "protein": ((4.40, 2.90), (4.27, 2.87)),
    "wine": ((0.63, 0.95), (0.62, 0.93)),
    "yacht": ((0.66, 0.77), (0.67, 1.25)),
}
IDENTITY = ("set", "model", "split", "seed", "quick")  # of a split in ``splits.jsonl``
FILES = (
    "one NAME.npz per set, with X [n, d], y [n], n, splits, and test_mask = np.packbits of a bool "
    "[splits, n], in DIR or DIR/uci"
)


def _gp(n: int) -> list[Any]:
    return [GP(kernel) for kernel in (*KERNELS, *SUMS)]


def _sgpr(n: int) -> list[Any]:
    return [SGPR(kernel, inducing=min(INDUCING, n // 2), learn=True) for kernel in KERNELS[:2]]


def _svgp(n: int) -> list[Any]:
    return [SVGP(MIDDLE, inducing=min(MOST_INDUCING, n // 2))]


def _auto(n: int) -> list[Any]:
    if n <= EXACT_UP_TO:
        return _gp(n)
    if n <= COLLAPSED_UP_TO:
        return _sgpr(n)
    return _svgp(n)


#: name -> function of the number of rows that returns the candidates
RECIPES: dict[str, Callable[[int], list[Any]]] = {
    "auto": _auto,
    "gp": _gp,
    "sgpr": _sgpr,
    "svgp": _svgp,
}


def run(
    out: Path,
    *,
    seed: int = 0,
    quick: bool = False,
    data_dir: str | None = None,
    sets: str = "boston,concrete,energy,kin8nm,power,protein,wine,yacht",
    splits: str = "all",
    models: str = "auto",
) -> list[dict[str, Any]]:
    """Fit the models on the published splits.

    Each complete split is a line of ``splits.jsonl``; a run that was stopped resumes from there.
    Several runs may share the file.

    Args:
        out: Folder of ``splits.jsonl``.
        seed: Seed of the fits.
        quick: Use one split of each set, 100 training rows and few steps.
        data_dir: Folder of the sets.
        sets: Names of sets, comma-separated.
        splits: Number of published splits to use, or "all".
        models: Comma-separated: "gp" (exact), "sgpr" (sparse), "svgp" (Matern 3/2, mini-batches)
            and "auto" (exact up to 2,000 rows, sparse up to 20,000, svgp beyond).

    Returns:
        Rows with ``model``, ``set``, ``rmse``, ``nll`` (means over splits, in the units of y) and
        their standard errors.

    Raises:
        SettingError: If the data are missing, or there are fewer splits than asked for.
        UnknownName: If there is no such model.
    """
    wanted = [name.strip() for name in models.split(",")]
    for name in wanted:
        if name not in RECIPES:
            raise UnknownName("model of this experiment", name, RECIPES)
    if data_dir is None:
        raise SettingError(
            "a folder with the published splits", "none", f"pass --data-dir DIR: {FILES}"
        )
    if quick:
        splits = "1"
    log = JsonLines(out / "splits.jsonl")
    known = {_key(record): record for record in log.read(*IDENTITY)}
    rows = []
    for name in (part.strip() for part in sets.split(",")):
        path = _file(Path(data_dir), name)
        for model in wanted:
            records = []
            for number, train, test in splits_of(path, splits):
                key = (name, model, number, seed, quick)
                if key not in known:
                    record: dict[str, Any] = {"set": name, "model": model, "split": number}
                    record |= {"n": train.n + test.n, "seed": seed, "quick": quick}
                    record |= _evaluate(RECIPES[model](train.n), train, test, seed, quick)
                    log.append(record)
                    known[key] = record
                records.append(known[key])
            rows.append(_row(name, model, records))
    return rows


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a split in ``splits.jsonl``."""
    return tuple(record[name] for name in IDENTITY)


def path_of(folder: Path, name: str) -> Path | None:
    """Return the path of ``name``.npz in the folder or its folder ``uci``; None if missing."""
    candidates = (folder / f"{name}.npz", folder / "uci" / f"{name}.npz")
    return next((path for path in candidates if path.is_file()), None)


def _file(folder: Path, name: str) -> Path:
    path = path_of(folder, name)
    if path is None:
        raise SettingError(f"{name}.npz in {folder}", "no such file", f"it holds {FILES}")
    return path


def splits_of(path: Path, splits: str | int) -> Iterator[tuple[int, Dataset, Dataset]]:
    """Yield the number, the training rows and the test rows of each split.

    Args:
        path: The file of the set.
        splits: Number of published splits to use, or "all".

    Raises:
        SettingError: If there are fewer splits than asked for.
    """
    raw = np.load(path)
    n, published = int(raw["n"]), int(raw["splits"])
    count = 0
    if splits == "all":
        count = published
    elif str(splits).isdigit():
        count = int(splits)
    if not 1 <= count <= published:
        raise SettingError(
            f"1 to {published} splits of {path.stem}, or all", str(splits), "lower --splits"
        )
    masks = np.unpackbits(raw["test_mask"], axis=1)[:, :n].astype(bool)
    X, y = torch.as_tensor(raw["X"]).double(), torch.as_tensor(raw["y"]).double()
    for number in range(count):
        mask = torch.from_numpy(masks[number])
        yield number, Dataset(X[~mask], y[~mask]), Dataset(X[mask], y[mask])


def _evaluate(
    candidates: list[Any], train: Dataset, test: Dataset, seed: int, quick: bool
) -> dict[str, Any]:
    """Fit the candidates, stack them by leave-one-out, and measure the test predictions."""
    started = time.perf_counter()
    if quick:
        train = train.rows(torch.arange(min(train.n, 100)))
        candidates = [_small(candidate) for candidate in candidates[:2]]
    how = _method(candidates[-1], train.n, quick)
    fits = []
    for model in candidates:
        with silenced(PpgpWarning):  # short searches suffice, and stacking weighs their results
            fits.append(raise_if_interrupted(fit(model, train, how, seed=seed, progress=False)))
    if len(fits) == 1:
        weights, prediction = torch.ones(1), fits[0].predict(test.X)
    else:
        left_out = torch.stack([each.loo().log_prob(train.y) for each in fits])
        weights = stacking_weights(left_out)
        prediction = _mixture([each.predict(test.X) for each in fits], weights)
    weight_of = {
        repr(each.model.kernel): round(float(weight), 4)
        for each, weight in zip(fits, weights, strict=True)
    }
    return {
        "how": type(how).__name__.lower(),
        "weights": weight_of,
        "rmse": metrics.rmse(prediction, test.y),
        "nll": metrics.nll(prediction, test.y),
        "coverage": metrics.coverage(prediction.interval(LEVEL), test.y),
        "seconds": time.perf_counter() - started,
    }


def _small(candidate: Any) -> Any:
    """Return the candidate with 20 inducing inputs, if it is sparse."""
    if isinstance(candidate, GP):
        return candidate
    return replace(candidate, inducing=20)


def _method(model: Any, n: int, quick: bool) -> MAP | SVI:
    """Return the inference method of a candidate; all candidates of a set have the same."""
    if isinstance(model, SVGP):
        how = SVI(steps=SVI_STEPS, batch_size=min(n, BATCH))
    else:
        how = MAP(steps=MAP_STEPS)
    return replace(how, steps=5) if quick else how


def _mixture(predictions: list[Prediction], weights: Tensor) -> Prediction:
    """Mix normal predictive distributions of one draw each."""
    mean = torch.stack([prediction.mean for prediction in predictions], -1)
    sd = torch.stack([prediction.std for prediction in predictions], -1)
    return Prediction(NormalMixture(weights, mean, sd))


def _row(name: str, model: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of one set and model: means over its splits."""
    svgp, dropout = PUBLISHED.get(name, ((None, None), (None, None)))

    def mean(key: str) -> float:
        return sum(record[key] for record in records) / len(records)

    def standard_error(key: str) -> float | None:
        if len(records) == 1:
            return None
        values = [record[key] for record in records]
        return float(np.std(values, ddof=1)) / math.sqrt(len(values))

    return {
        "model": model,
        "how": records[0]["how"],
        "set": name,
        "n": records[0]["n"],
        "splits": len(records),
        "rmse": mean("rmse"),
        "rmse_se": standard_error("rmse"),
        "svgp_rmse": svgp[0],
        "dropout_rmse": dropout[0],
        "nll": mean("nll"),
        "nll_se": standard_error("nll"),
        "svgp_nll": svgp[1],
        "dropout_nll": dropout[1],
        "coverage": mean("coverage"),
        "seconds": sum(record["seconds"] for record in records),
    }
