"""Boosting, networks and Gaussian processes side by side on the published splits of the UCI sets.

RMSE, negative log density (NLL), CRPS and widths are in the units of y, at the splits of
Hernández-Lobato & Adams (2015). Each method has one recipe for all sets, and no choice looks at
test rows. Its 90 % intervals are measured before and after calibration.

The published columns are NGBoost (Duan et al. 2020), deep ensembles (Lakshminarayanan, Pritzel &
Blundell 2017) and MC dropout (Gal & Ghahramani 2016, corrected runs of their repository).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..data.dataset import Dataset
from ..errors import SettingError, UnknownName
from ..files import JsonLines
from ..metrics import metrics
from .league_methods import EPOCHS, METHODS, PUBLISHED_EPOCHS, Calibration, Fits, Setting
from .published_splits import file_of, folder_of, mean_of, splits_of, standard_error_of

LEVEL = 0.9
#: sets of whose rows the authors of NGBoost draw a tenth per stage
MINI_BATCHES = {"power": 0.1, "protein": 0.1}
QUICK_ROWS = 60
SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
Figures = tuple[float, float | None, float, float | None]
#: set -> RMSE and NLL, means over splits, each followed by its +-. That of NGBoost and of deep
#: ensembles is a standard deviation over splits, sqrt(20) times the standard error of the mean.
#: The means of MC dropout are those of its corrected runs, without +-.
NGBOOST: dict[str, Figures] = {
    "boston": (2.94, 0.53, 2.43, 0.15),
    "concrete": (5.06, 0.61, 3.04, 0.17),
    "energy": (0.46, 0.06, 0.6, 0.45),
    "kin8nm": (0.16, 0.0, -0.49, 0.02),
    "naval": (0.0, 0.0, -5.34, 0.04),
    "power": (3.79, 0.18, 2.79, 0.11),
    "protein": (4.33, 0.03, 2.81, 0.03),
    "wine": (0.63, 0.04, 0.91, 0.06),
    "yacht": (0.5, 0.2, 0.2, 0.26),
}
DEEP_ENSEMBLE: dict[str, Figures] = {
    "boston": (3.28, 1.0, 2.41, 0.25),
    "concrete": (6.03, 0.58, 3.06, 0.18),
    "energy": (2.09, 0.29, 1.38, 0.22),
    "kin8nm": (0.09, 0.0, -1.2, 0.02),
    "naval": (0.0, 0.0, -5.63, 0.05),
    "power": (4.11, 0.17, 2.79, 0.04),
    "protein": (4.71, 0.06, 2.83, 0.02),
    "wine": (0.64, 0.04, 0.94, 0.12),
    "yacht": (1.58, 0.48, 1.18, 0.21),
}
DROPOUT: dict[str, Figures] = {
    "boston": (2.9, None, 2.4, None),
    "concrete": (4.83, None, 2.94, None),
    "energy": (0.54, None, 1.21, None),
    "kin8nm": (0.079, None, -1.14, None),
    "naval": (0.0007, None, -4.45, None),
    "power": (4.01, None, 2.81, None),
    "protein": (4.27, None, 2.87, None),
    "wine": (0.62, None, 0.93, None),
    "yacht": (0.67, None, 1.25, None),
}
OF_NGBOOST = "20 splits, sd"  # random ones, 5 of protein; trained by NLL
#: method -> (figures, protocol): the splits, and what +- is; deep ensembles took 5 members and 40
#: epochs, MC dropout 4,000
PUBLISHED = {
    "ngb": (NGBOOST, OF_NGBOOST),
    "ngb-nll": (NGBOOST, OF_NGBOOST),
    "ngb-crps": (NGBOOST, OF_NGBOOST),
    "deep-ensemble": (DEEP_ENSEMBLE, "20 splits, sd"),
    "mc-dropout": (DROPOUT, "these splits"),
}
IDENTITY = ("set", "model", "split", "seed", "quick", "epochs")  # of a line of ``splits.jsonl``


def run(
    out: Path,
    *,
    seed: int = 0,
    quick: bool = False,
    data_dir: str | None = None,
    sets: str = ",".join(SETS),
    splits: str = "all",
    methods: str = ",".join(METHODS),
    epochs: str = str(EPOCHS),
) -> list[dict[str, Any]]:
    """Fit the methods on the published splits.

    Each complete split is a line of ``splits.jsonl``; a run that was stopped resumes from there.
    Several runs may share the file.

    Args:
        out: Folder of ``splits.jsonl``.
        seed: Seed of the fits.
        quick: Use one split of each set, 60 training rows and few steps.
        data_dir: Folder of the sets.
        sets: Names of sets, comma-separated.
        splits: Number of published splits to use, or "all".
        methods: Comma-separated: "ngb" (natural gradient boosting: CRPS, ten out-of-fold members,
            one temperature), "ngb-nll" and "ngb-crps" (as published), "mc-dropout",
            "deep-ensemble", "swag", "last-layer", "gp" (as in uci), "linear", and "stack" (ngb, gp
            and linear, mixed by their out-of-fold densities).
        epochs: Passes over the rows of the networks, or "published" (4,000, those of MC dropout).

    Returns:
        Rows with ``model``, ``set``, ``rmse``, ``nll``, ``crps``, ``coverage`` and ``width`` at
        90 %, ``coverage_cv`` and ``width_cv`` after calibration (means over splits), standard
        errors over splits, ``rank`` by NLL within the set, the published figures, and ``seconds``
        and ``seconds_cv``, CPU seconds of the fits and of the calibration, summed over splits.
        Fits that methods share count for each method, and for the calibration of the first.

    Raises:
        SettingError: If the data are missing, there are fewer splits than asked for, or epochs is
            no positive whole number.
        UnknownName: If there is no such set or method.
    """
    wanted = _known("method of this experiment", methods, tuple(METHODS))
    chosen = _known("set of this experiment", sets, SETS)
    setting = Setting(seed, quick, _epochs(epochs))
    folder = folder_of(data_dir)
    paths = {name: file_of(folder, name) for name in chosen}
    log = JsonLines(out / "splits.jsonl")
    known = {_key(record): record for record in log.read(*IDENTITY)}
    rows = []
    for name, path in paths.items():
        of_set = replace(setting, rows=MINI_BATCHES.get(name, 1.0))
        records: dict[str, list[dict[str, Any]]] = {model: [] for model in wanted}
        for number, train, test in splits_of(path, "1" if quick else splits):
            calibration = _calibration(train, of_set)
            for model in wanted:
                identity = (name, model, number, seed, quick, setting.epochs)
                if identity not in known:
                    record = dict(zip(IDENTITY, identity, strict=True))
                    record |= {"n": train.n + test.n, **_measured(model, calibration, test)}
                    log.append(record)
                    known[identity] = record
                records[model].append(known[identity])
        rows += _ranked([_row(name, model, records[model]) for model in wanted])
    return rows


def _known(what: str, given: str, names: tuple[str, ...]) -> list[str]:
    """Return the names in a comma-separated list.

    Raises:
        UnknownName: If one of them is not known.
    """
    found = [part.strip() for part in given.split(",")]
    for name in found:
        if name not in names:
            raise UnknownName(what, name, names)
    return list(dict.fromkeys(found))


def _epochs(given: str) -> int:
    if given == "published":
        return PUBLISHED_EPOCHS
    if not str(given).isdigit() or int(given) < 1:
        do = f"for example --epochs {EPOCHS}"
        raise SettingError("a number of epochs, or published", repr(given), do)
    return int(given)


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a split in ``splits.jsonl``."""
    return tuple(record[name] for name in IDENTITY)


def _calibration(train: Dataset, setting: Setting) -> Calibration:
    """Return the fits to the training rows, none of which has been made."""
    if setting.quick:
        train = train.rows(torch.arange(min(train.n, QUICK_ROWS)))
    return Calibration(Fits(train, setting))


def _measured(model: str, calibration: Calibration, test: Dataset) -> dict[str, Any]:
    """Fit a method, and measure its test predictions."""
    fitted = calibration.fits.of(model)
    prediction = fitted.predict(test.X)
    interval = prediction.interval(LEVEL)
    started = time.process_time()
    calibrated = calibration.interval(model, test.X, LEVEL)
    return {
        "how": fitted.how,
        "rmse": metrics.rmse(prediction, test.y),
        "nll": metrics.nll(prediction, test.y),
        "crps": metrics.mean_crps(prediction, test.y),
        "coverage": metrics.coverage(interval, test.y),
        "width": metrics.mean_width(interval),
        "coverage_cv": metrics.coverage(calibrated, test.y),
        "width_cv": metrics.mean_width(calibrated),
        "seconds": fitted.seconds,
        "seconds_cv": time.process_time() - started,
    }


def _row(name: str, model: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of one set and method: means over its splits."""
    figures, protocol = PUBLISHED.get(model, ({}, None))
    rmse, rmse_sd, nll, nll_sd = figures.get(name, (None,) * 4)
    row: dict[str, Any] = {
        "model": model,
        "how": records[0]["how"],
        "set": name,
        "n": records[0]["n"],
        "splits": len(records),
    }
    for key in ("rmse", "nll", "crps"):
        row |= {key: mean_of(records, key), f"{key}_se": standard_error_of(records, key)}
    row |= {"rank": 0, "published_rmse": rmse, "published_rmse_sd": rmse_sd}
    row |= {"published_nll": nll, "published_nll_sd": nll_sd, "protocol": protocol}
    for key in ("coverage", "width", "coverage_cv", "width_cv"):
        row[key] = mean_of(records, key)
    for key in ("seconds", "seconds_cv"):
        row[key] = sum(record[key] for record in records)
    return row


def _ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of one set with the rank of each by NLL."""
    order = sorted(range(len(rows)), key=lambda i: rows[i]["nll"])
    for rank, i in enumerate(order, 1):
        rows[i]["rank"] = rank
    return rows
