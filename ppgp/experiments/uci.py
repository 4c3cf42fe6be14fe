"""The UCI regression sets on their published 90/10 splits: RMSE and NLL in the units of y beside two published methods.

Splits: Hernández-Lobato & Adams (2015), as distributed with Gal & Ghahramani (2016). Published columns: MC dropout from the
corrected runs in that repository; SVGP with 100 inducing inputs from bayesian_benchmarks (Salimbeni), kin8nm from the
demonstration of doubly stochastic deep GPs. The recipe: kernels of several degrees of smoothness, one lengthscale a column, and
sums of a smooth and a rough one, fitted by MAP; their predictions are mixed with the weights that leave-one-out densities of the
training rows ask for.

On wine a third of the test rows repeat a training row, rating included. Kernels that notice it from the repeats among the training
rows give such a rating almost all the probability there is, and a density without bound: its NLL tells of the repeats, its RMSE of
the model.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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
from ..files import append
from ..inference import MAP, SVI
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..kernels import ARD, RBF, Matern
from ..models import GP, SGPR, SVGP
from ..numerics.distributions import NormalMixture
from ..numerics.process_locks import silenced
from ..posterior.prediction import Prediction
from ..priors import LogNormal

LEVEL = 0.9
EXACT_UP_TO = 2000  # rows; beyond, "auto" takes the sparse model,
COLLAPSED_UP_TO = 20_000  # and beyond that the one that takes mini-batches
INDUCING = 512  # of SGPR
MOST_INDUCING = 1000  # of SVGP
BATCH = 512
FROM_THE_SUBSET = 150  # steps: SVI begins at the mode of a collapsed bound, and q moves along its natural gradient
COLUMN = LogNormal(
    0.0, 1.0
)  # the prior of each lengthscale with which the published table was made
SMOOTH, MIDDLE, ROUGH = (
    ARD(kernel)
    for kernel in (
        RBF(lengthscale=COLUMN),
        Matern(1.5, lengthscale=COLUMN),
        Matern(0.5, lengthscale=COLUMN),
    )
)
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
FILES = "one NAME.npz a set, with X [n, d], y [n], n, splits, and test_mask = np.packbits of a bool [splits, n], in DIR or DIR/uci"


def _gp(n: int) -> list[Any]:
    return [GP(kernel) for kernel in (*KERNELS, *SUMS)]


def _sgpr(n: int) -> list[Any]:
    return [SGPR(kernel, inducing=min(INDUCING, n // 2), learn=True) for kernel in KERNELS[:2]]


def _svgp(n: int) -> list[Any]:
    return [SVGP(MIDDLE, inducing=min(MOST_INDUCING, n // 2))]


#: name -> (rows) -> candidates, which the training rows weigh
RECIPES: dict[str, Callable[[int], list[Any]]] = {
    "auto": lambda n: (_gp if n <= EXACT_UP_TO else _sgpr if n <= COLLAPSED_UP_TO else _svgp)(n),
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
    """Rows with ``model``, ``set``, ``rmse``, ``nll`` (means over splits, in the units of y) and their standard errors.

    Each split that is done is a line of ``splits.jsonl`` in ``out``; a run that was stopped goes on from there.

    Args:
        data_dir: a folder with the sets.
        sets, models: names, comma-separated; models are "auto" (exact up to 2,000 rows, sparse up to 20,000, svgp beyond), "gp", "sgpr" and
            "svgp" (Matern 3/2, mini-batches).
        splits: how many of the published splits, or "all".

    Raises:
        SettingError: without the data, or for a number of splits that there is not.
        UnknownName: for a model that there is not.
    """
    wanted = [name.strip() for name in models.split(",")]
    for name in wanted:
        if name not in RECIPES:
            raise UnknownName("model of this experiment", name, RECIPES)
    if data_dir is None:
        raise SettingError(
            "a folder with the published splits", "none", f"pass --data-dir DIR: {FILES}"
        )
    log = out / "splits.jsonl"
    done = _whole_lines(log.read_text()) if log.exists() else []
    known = {(r["set"], r["model"], r["split"], r["seed"], r["quick"]): r for r in done}
    rows = []
    for name in (s.strip() for s in sets.split(",")):
        path = _file(Path(data_dir), name)
        for model in wanted:
            found = []
            for number, train, test in splits_of(path, 1 if quick else splits):
                key = (name, model, number, seed, quick)
                if key not in known:
                    known[key] = {
                        "set": name,
                        "model": model,
                        "split": number,
                        "n": train.n + test.n,
                    }
                    known[key] |= {
                        "seed": seed,
                        "quick": quick,
                        **_measured(RECIPES[model](train.n), train, test, seed, quick),
                    }
                    append(log, json.dumps(known[key]) + "\n")
                found.append(known[key])
            rows.append(_row(name, model, found))
    return rows


def _whole_lines(text: str) -> list[dict[str, Any]]:
    """Without what a killed run left of a line: that split is run again."""
    found = []
    for line in text.splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def path_of(folder: Path, name: str) -> Path | None:
    """``name``.npz in the folder or its ``uci``; None where it is not."""
    return next(
        (
            path
            for path in (folder / f"{name}.npz", folder / "uci" / f"{name}.npz")
            if path.is_file()
        ),
        None,
    )


def _file(folder: Path, name: str) -> Path:
    path = path_of(folder, name)
    if path is not None:
        return path
    raise SettingError(f"{name}.npz in {folder}", "no such file", f"it holds {FILES}")


def splits_of(path: Path, splits: str | int) -> Iterator[tuple[int, Dataset, Dataset]]:
    """(number, training rows, test rows) of each of the first so many published splits, or of "all"."""
    raw = np.load(path)
    n, there = int(raw["n"]), int(raw["splits"])
    count = there if splits == "all" else int(splits) if str(splits).isdigit() else 0
    if not 1 <= count <= there:
        raise SettingError(
            f"1 to {there} splits of {path.stem}, or all", str(splits), "lower --splits"
        )
    masks = np.unpackbits(raw["test_mask"], axis=1)[:, :n].astype(bool)
    X, y = torch.as_tensor(raw["X"]).double(), torch.as_tensor(raw["y"]).double()
    for number in range(count):
        mask = torch.from_numpy(masks[number])
        yield number, Dataset(X[~mask], y[~mask]), Dataset(X[mask], y[mask])


def _measured(
    candidates: list[Any], train: Dataset, test: Dataset, seed: int, quick: bool
) -> dict[str, Any]:
    """What the candidates, stacked by leave-one-out on the training rows, make of the test rows."""
    started = time.perf_counter()
    if quick:
        train, candidates = train.rows(torch.arange(min(train.n, 100))), candidates[:2]
        candidates = [c if isinstance(c, GP) else replace(c, inducing=20) for c in candidates]
    fits = []
    for model in candidates:
        with silenced(PpgpWarning):  # so many steps serve; how far to trust a fit is weighed below
            how = MAP(steps=5 if quick else 60)
            if isinstance(model, SVGP):
                how = SVI(steps=5 if quick else FROM_THE_SUBSET, batch_size=min(train.n, BATCH))
            fits.append(whole(fit(model, train, how, seed=seed, progress=False)))
    weights, prediction = torch.ones(1), fits[0].predict(test.X)
    if len(fits) > 1:
        weights = stacking_weights(torch.stack([each.loo().log_prob(train.y) for each in fits]))
        prediction = _mixed([each.predict(test.X) for each in fits], weights)
    return {
        "how": type(how).__name__.lower(),
        "weights": {
            repr(each.model.kernel): round(float(w), 4)
            for each, w in zip(fits, weights, strict=True)
        },
        "rmse": metrics.rmse(prediction, test.y),
        "nll": metrics.nll(prediction, test.y),
        "coverage": metrics.coverage(prediction.interval(LEVEL), test.y),
        "seconds": time.perf_counter() - started,
    }


def _mixed(predictions: list[Prediction], weights: Tensor) -> Prediction:
    """Normal laws of one draw each, mixed."""
    mean, sd = (
        torch.stack([getattr(p, figure) for p in predictions], -1) for figure in ("mean", "std")
    )
    return Prediction(NormalMixture(weights, mean, sd))


def _row(name: str, model: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    svgp, dropout = PUBLISHED.get(name, ((None, None), (None, None)))

    def error(key: str) -> float | None:
        values = [r[key] for r in found]
        return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None

    def mean(key: str) -> float:
        return sum(r[key] for r in found) / len(found)

    return {
        "model": model,
        "how": found[0]["how"],
        "set": name,
        "n": found[0]["n"],
        "splits": len(found),
        "rmse": mean("rmse"),
        "rmse_se": error("rmse"),
        "svgp_rmse": svgp[0],
        "dropout_rmse": dropout[0],
        "nll": mean("nll"),
        "nll_se": error("nll"),
        "svgp_nll": svgp[1],
        "dropout_nll": dropout[1],
        "coverage": mean("coverage"),
        "seconds": sum(r["seconds"] for r in found),
    }
