"""Neural-enhanced Gaussian processes: coverage and width before and after calibration.

A report in Portuguese puts a 64-64-32 perceptron under an exact and under a sparse variational
Gaussian process, and compares the intervals of each with those of conformal prediction. It states
the architecture, the kernel and the score, but neither data, splits, level, steps nor numbers:
those here are this module's own. Deep kernels: Wilson, Hu, Salakhutdinov & Xing (2016); natural
gradients beside Adam: Salimbeni, Eleftheriadis & Hensman (2018); score: Romano, Patterson & Candes
(2019).

Two choices of the report are compared with their alternative:

- Its score is clipped at 0, so that intervals can only widen ("widened"). Without the clip they
  can narrow too ("calibrated").
- Its intervals use the latent variance without that of the noise ("latent"): they cover f, not y.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from .. import conformal
from ..data.dataset import Dataset
from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, DataWarning
from ..files import write_figure
from ..inference import MAP, SVI, Inference
from ..inference.fitting.fit import fit
from ..inference.runs import raise_if_interrupted
from ..kernels import RBF, Deep
from ..metrics import metrics
from ..models import GP, SVGP, Model
from ..networks.networks import MLP
from ..posterior.posterior import Posterior
from ..runtime.process_locks import silenced
from . import start_rows
from .animations import bands_before_and_after, points_coming
from .heteroscedastic_data import dots, table, uneven

SETS = ("concrete", "power")
LEVELS = (0.9, 0.95)
PARTS = (0.6, 0.2, 0.2)  # to fit, to calibrate, to test
SPLITS = 5
ROWS = 1000  # of the synthetic set, which is drawn anew for each split
EXACT_ROWS = 1000  # most training rows of the exact process
RATES = {"kernel.network": 0.003, "": 0.03}
STEPS = {"ne-gp": 200, "ne-svgp": 600}
HOW = {"ne-gp": "map", "ne-svgp": "svi"}
BATCH = 128
FEATURES = Deep(MLP((64, 64), 32, dropout=0.1), RBF())
MODELS: dict[str, Model] = {"ne-gp": GP(FEATURES), "ne-svgp": SVGP(FEATURES)}
SCORES = {"calibrated": conformal.Quantile(), "widened": conformal.Quantile(widen_only=True)}


def run(
    out: Path, *, seed: int = 0, quick: bool = False, data_dir: str | Path | None = None
) -> list[dict[str, Any]]:
    """Fit both models on random splits of each set, and measure four intervals.

    Writes the figures ``ne-gp.png``, ``points.gif`` and ``conformal.gif``, and lines of
    ``rows.jsonl`` as each set is complete.

    Args:
        out: Folder of the figures and of ``rows.jsonl``.
        seed: Seed of the data, the splits and the fits.
        quick: Use one split of few rows.
        data_dir: Folder of concrete.npz and power.npz (arrays ``X`` and ``y``), or the folder that
            contains it as ``uci``. Without it only the synthetic set is used.

    Returns:
        Rows with ``model``, ``how`` ("map" is by Adam), ``set``, ``level``, ``rmse``, ``nll``, and
        the coverage and width of four intervals: the model's own (``coverage``, ``width``),
        ``latent_coverage``, ``calibrated_*`` and ``widened_*``. Numbers are means over splits.
        ``*_se`` are their standard errors, None for one split. The splits of a table overlap, so
        that its standard errors are somewhat too small.
    """
    tables = _tables(data_dir)
    seeds = range(seed, seed + SPLITS)
    if quick:
        seeds = seeds[:1]
    log = start_rows(out)
    rows: list[dict[str, Any]] = []
    shown: dict[str, Posterior] = {}
    for name, given in [("uneven", None), *tables.items()]:
        metrics_of: dict[tuple[str, float], list[dict[str, float]]] = {}
        for each in seeds:
            data = uneven(ROWS, each) if given is None else given
            train, calibration, test = _parts(data, each, quick)
            for model, how in _methods(train.n, quick).items():
                posterior = _fit(MODELS[model], train, how, each)
                for level, of_level in _metrics(posterior, calibration, test).items():
                    metrics_of.setdefault((model, level), []).append(of_level)
                if given is None and each == seed:
                    shown[model] = posterior
        new = [_row(name, model, level, each) for (model, level), each in metrics_of.items()]
        log.append(*new)
        rows += new
    write_figure(out / "ne-gp.png", dots(rows), dpi=120)
    points_coming(out / "points.gif", seed, quick)
    fresh = uneven(2 * ROWS, seed + SPLITS)
    bands_before_and_after(out / "conformal.gif", shown, fresh, LEVELS[0], quick)
    return rows


def _tables(data_dir: str | Path | None) -> dict[str, Dataset]:
    """Return the tables whose files are there; a warning names the others."""
    tables: dict[str, Dataset] = {}
    missing: list[str] = []
    for name in SETS:
        read = table(data_dir, name)
        if read is None:
            missing.append(f"{name}.npz")
        else:
            tables[name] = read
    if missing:
        warn(
            f"{' and '.join(missing)} not found, so these sets are not run (arrays X and y; UCI's "
            "tables 165, Concrete Compressive Strength, and 294, Combined Cycle Power Plant, from "
            "archive.ics.uci.edu): pass --data-dir with their folder",
            DataWarning,
        )
    return tables


def _parts(data: Dataset, seed: int, quick: bool) -> list[Dataset]:
    """Return training, calibration and test rows; at most 60 each if ``quick``."""
    parts = data.split(*PARTS, seed=seed)
    if quick:
        parts = [part.rows(slice(0, 60)) for part in parts]
    return list(parts)


def _methods(n: int, quick: bool) -> dict[str, Inference]:
    """Return the inference method of each model, for n training rows."""
    steps = STEPS
    if quick:
        steps = dict.fromkeys(STEPS, 15)
    return {
        "ne-gp": MAP("adam", steps=steps["ne-gp"], learning_rate=RATES, schedule="cosine"),
        "ne-svgp": SVI(steps=steps["ne-svgp"], learning_rate=RATES, batch_size=min(BATCH, n)),
    }


def _fit(model: Model, train: Dataset, how: Inference, seed: int) -> Posterior:
    """Fit without the warnings of a search that its budget ends early."""
    if isinstance(how, MAP):
        train = train.rows(slice(0, EXACT_ROWS))
    with silenced(ConvergenceWarning):
        return raise_if_interrupted(fit(model, train, how, seed=seed, progress=False))


def _metrics(
    posterior: Posterior, calibration: Dataset, test: Dataset
) -> dict[float, dict[str, float]]:
    """Return the metrics of one fit, one record per level."""
    started = time.perf_counter()
    prediction = posterior.predict(test.X)
    of_calibration = posterior.predict(calibration.X)
    latent = posterior.latent(test.X)
    calibrators = {
        name: conformal.calibrate(score, of_calibration, calibration.y)
        for name, score in SCORES.items()
    }
    shared = {
        "rmse": metrics.rmse(prediction, test.y),
        "nll": metrics.nll(prediction, test.y),
        "n_train": posterior.data.n,
        "n_calibration": calibration.n,
        "n_test": test.n,
    }
    records = {}
    for level in LEVELS:
        regions = {"": prediction.interval(level), "latent_": latent.interval(level)}
        for name, calibrator in calibrators.items():
            regions[f"{name}_"] = calibrator(prediction, level=level)
        record: dict[str, float] = {}
        for name, region in regions.items():
            record[f"{name}coverage"] = metrics.coverage(region, test.y)
            record[f"{name}width"] = metrics.mean_width(region)
        seconds = posterior.seconds + time.perf_counter() - started
        records[level] = record | shared | {"seconds": seconds}
    return records


def _row(name: str, model: str, level: float, by_split: list[dict[str, float]]) -> dict[str, Any]:
    """Return the row of one model and level: means over the splits, and their standard errors."""
    columns = {
        key: torch.tensor([float(of_split[key]) for of_split in by_split], dtype=torch.float64)
        for key in by_split[0]
    }
    means = {key: float(values.mean()) for key, values in columns.items()}
    measured = ["coverage", "width", "latent_coverage"]
    for score in SCORES:
        measured += [f"{score}_coverage", f"{score}_width"]
    row: dict[str, Any] = {
        "model": model,
        "how": HOW[model],
        "set": name,
        "level": level,
    }
    for key in (*measured, "rmse", "nll"):
        row[key] = means[key]
        row[f"{key}_se"] = _standard_error(columns[key])
    sizes = {key: int(means[key]) for key in ("n_train", "n_calibration", "n_test")}
    return row | sizes | {"splits": len(by_split), "seconds": means["seconds"]}


def _standard_error(values: torch.Tensor) -> float | None:
    """Return the standard error of the mean; None for one value."""
    if len(values) == 1:
        return None
    return float(values.std() / len(values) ** 0.5)
