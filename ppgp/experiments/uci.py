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

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from ..data.dataset import Dataset
from ..errors import UnknownName
from ..files import JsonLines
from ..inference.jobs import each, number_of_workers
from ..metrics import metrics
from .published_splits import file_of, folder_of, mean_of, splits_of, standard_error_of
from .stacked_gps import RECIPES, stacked

LEVEL = 0.9
QUICK_ROWS = 100
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


def run(
    out: Path,
    *,
    seed: int = 0,
    quick: bool = False,
    data_dir: str | None = None,
    sets: str = "boston,concrete,energy,kin8nm,power,protein,wine,yacht",
    splits: str = "all",
    models: str = "auto",
    workers: str = "",
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
        workers: How many processes fit the splits; "": those of an active
            ``joblib.parallel_config``, or else 1. Each split has one thread.

    Returns:
        Rows with ``model``, ``set``, ``rmse``, ``nll`` (means over splits, in the units of y) and
        their standard errors.

    Raises:
        SettingError: If the data are missing, or there are fewer splits than asked for.
        UnknownName: If there is no such model.
        SettingError: If there is no worker.
    """
    how_many = number_of_workers(workers)
    wanted = [name.strip() for name in models.split(",")]
    for name in wanted:
        if name not in RECIPES:
            raise UnknownName("model of this experiment", name, RECIPES)
    folder = folder_of(data_dir)
    if quick:
        splits = "1"
    log = JsonLines(out / "splits.jsonl")
    known = {_key(record): record for record in log.read(*IDENTITY)}
    rows = []
    for name in (part.strip() for part in sets.split(",")):
        path = file_of(folder, name)
        for model in wanted:
            at = {"set": name, "model": model, "seed": seed, "quick": quick}
            records = {}
            missing = []
            for number, train, test in splits_of(path, splits):
                own = {**at, "split": number, "n": train.n + test.n}
                records[number] = known.get(_key(own))
                if records[number] is None:
                    missing.append((own, train, test))
            title = f"{name} by {model}"
            done = each(_of_split, missing, how_many, title=title, noun="missing split")
            with closing(done):
                for _, record in done:
                    log.append(record)
                    known[_key(record)] = records[record["split"]] = record
            rows.append(_row(name, model, list(records.values())))
    return rows


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a split in ``splits.jsonl``."""
    return tuple(record[name] for name in IDENTITY)


def _of_split(job: tuple[dict[str, Any], Dataset, Dataset]) -> dict[str, Any]:
    """Return the record of a split, from what identifies it and its rows."""
    own, train, test = job
    candidates = RECIPES[own["model"]](train.n)
    return own | _evaluate(candidates, train, test, own["seed"], own["quick"])


def _evaluate(
    candidates: list[Any], train: Dataset, test: Dataset, seed: int, quick: bool
) -> dict[str, Any]:
    """Fit the candidates, stack them by leave-one-out, and measure the test predictions."""
    started = time.perf_counter()
    if quick:
        train = train.rows(torch.arange(min(train.n, QUICK_ROWS)))
    stack = stacked(candidates, train, seed, quick)
    prediction = stack.predict(test.X)
    return {
        "how": type(stack.how).__name__.lower(),
        "weights": stack.weight_of(),
        "rmse": metrics.rmse(prediction, test.y),
        "nll": metrics.nll(prediction, test.y),
        "coverage": metrics.coverage(prediction.interval(LEVEL), test.y),
        "seconds": time.perf_counter() - started,
    }


def _row(name: str, model: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of one set and model: means over its splits."""
    svgp, dropout = PUBLISHED.get(name, ((None, None), (None, None)))

    return {
        "model": model,
        "how": records[0]["how"],
        "set": name,
        "n": records[0]["n"],
        "splits": len(records),
        "rmse": mean_of(records, "rmse"),
        "rmse_se": standard_error_of(records, "rmse"),
        "svgp_rmse": svgp[0],
        "dropout_rmse": dropout[0],
        "nll": mean_of(records, "nll"),
        "nll_se": standard_error_of(records, "nll"),
        "svgp_nll": svgp[1],
        "dropout_nll": dropout[1],
        "coverage": mean_of(records, "coverage"),
        "seconds": sum(record["seconds"] for record in records),
    }
