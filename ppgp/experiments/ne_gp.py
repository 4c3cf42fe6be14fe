"""Neural-enhanced Gaussian processes, exact and sparse: coverage and width of their intervals before and after calibration.

A report in Portuguese puts a 64-64-32 perceptron under an exact and under a sparse variational Gaussian process, and compares the
intervals of each with those that conformal prediction makes of them. It names architecture, kernel and score, and neither data,
splits, level, steps nor figures: those here are this module's own. Deep kernels: Wilson, Hu, Salakhutdinov & Xing (2016); natural
gradients beside Adam: Salimbeni, Eleftheriadis & Hensman (2018); score: Romano, Patterson & Candes (2019).

Two things are done both ways. The report's score is clipped at 0, so that intervals can only widen ("widened"); without the clip
they can narrow too ("calibrated"). And its intervals are made of the latent variance, without that of the noise ("latent"): they
hold f, not y.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch

from .. import conformal
from ..data.dataset import Dataset
from ..diagnostics import metrics
from ..errors import ConvergenceWarning, DataWarning
from ..files import write_figure
from ..inference import MAP, SVI, Inference
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..kernels import RBF, Deep
from ..kernels.networks import MLP
from ..models import GP, SVGP, Model
from ..numerics.process_locks import silenced
from ..posterior.posterior import Posterior
from .animations import bands_before_and_after, points_coming
from .heteroscedastic_data import dots, table, uneven
from .saved_rows import append_rows, start_rows

SETS = ("concrete", "power")
LEVELS = (0.9, 0.95)
PARTS = (0.6, 0.2, 0.2)  # to fit, to calibrate, to test
SPLITS = 5
ROWS = 1000  # of the synthetic set, drawn anew for each split
EXACT_ROWS = 1000  # at most so many of the training rows go into the exact process
RATES = {"kernel.network": 0.003, "": 0.03}
STEPS = {"ne-gp": 200, "ne-svgp": 600}
BATCH = 128
FEATURES = Deep(MLP((64, 64), 32, dropout=0.1), RBF())
MODELS: dict[str, Model] = {"ne-gp": GP(FEATURES), "ne-svgp": SVGP(FEATURES)}
SCORES = {"calibrated": conformal.Quantile(), "widened": conformal.Quantile(widen_only=True)}


def run(
    out: Path, *, seed: int = 0, quick: bool = False, data_dir: str | Path | None = None
) -> list[dict[str, Any]]:
    """Rows with ``model``, ``how``, ``set``, ``level``, ``rmse``, ``nll``, and coverage and width of four intervals: the model's own
    (``coverage``, ``width``), ``latent_coverage``, ``calibrated_*`` and ``widened_*``. Means over random splits; ``*_se`` are their
    standard errors (None for one split; splits of one table overlap, so that they are somewhat too small there). "map" is by Adam.

    Figures ``ne-gp.png``, ``points.gif`` and ``conformal.gif`` in ``out``, and lines of ``rows.jsonl`` as each set is done. ``data_dir``: the folder of concrete.npz and power.npz
    (``X``, ``y``), or the one that has it as ``uci``; without it the synthetic set alone is run. ``quick``: one split of few rows.
    """
    tables = _tables(data_dir)
    start_rows(out)
    rows: list[dict[str, Any]] = []
    shown: dict[str, Posterior] = {}
    for name, given in [("uneven", None), *tables.items()]:
        found: dict[tuple[str, float], list[dict[str, float]]] = {}
        for split in range(1 if quick else SPLITS):
            each = seed + split
            data = uneven(ROWS, each) if given is None else given
            train, calibration, test = (
                d.rows(slice(0, 60 if quick else None)) for d in data.split(*PARTS, seed=each)
            )
            for model, how in _ways(train.n, quick).items():
                posterior = _fitted(MODELS[model], train, how, each)
                for level, figures in _figures(posterior, calibration, test).items():
                    found.setdefault((model, level), []).append(figures)
                if given is None and split == 0:
                    shown[model] = posterior
        new = [_row(name, model, level, figures) for (model, level), figures in found.items()]
        append_rows(out, *new)
        rows += new
    write_figure(out / "ne-gp.png", dots(rows), dpi=120)
    points_coming(out / "points.gif", seed, quick)
    bands_before_and_after(
        out / "conformal.gif", shown, uneven(2 * ROWS, seed + SPLITS), LEVELS[0], quick
    )
    return rows


def _tables(data_dir: str | Path | None) -> dict[str, Dataset]:
    """The sets that are there; a warning names the others."""
    tables = {name: table(data_dir, name) for name in SETS}
    missing = [f"{name}.npz" for name, found in tables.items() if found is None]
    if missing:
        warnings.warn(
            f"not run, for want of {' and '.join(missing)} (arrays X and y; UCI's tables 165, Concrete Compressive Strength, and 294, "
            "Combined Cycle Power Plant, from archive.ics.uci.edu): pass --data-dir with their folder",
            DataWarning,
            stacklevel=3,
        )
    return {name: found for name, found in tables.items() if found is not None}


def _ways(n: int, quick: bool) -> dict[str, Inference]:
    steps = dict.fromkeys(STEPS, 15) if quick else STEPS
    return {
        "ne-gp": MAP("adam", steps=steps["ne-gp"], learning_rate=RATES, schedule="cosine"),
        "ne-svgp": SVI(steps=steps["ne-svgp"], learning_rate=RATES, batch_size=min(BATCH, n)),
    }


def _fitted(model: Model, train: Dataset, how: Inference, seed: int) -> Posterior:
    rows = train.rows(slice(0, EXACT_ROWS)) if isinstance(how, MAP) else train
    with silenced(ConvergenceWarning):  # a search on a budget ends before it settles
        return whole(fit(model, rows, how, seed=seed, progress=False))


def _figures(
    posterior: Posterior, calibration: Dataset, test: Dataset
) -> dict[float, dict[str, float]]:
    """What one fit is worth, a record a level."""
    started = time.perf_counter()
    prediction, seen, latent = (
        posterior.predict(test.X),
        posterior.predict(calibration.X),
        posterior.latent(test.X),
    )
    calibrators = {
        name: conformal.calibrate(score, seen, calibration.y) for name, score in SCORES.items()
    }
    every = {"rmse": metrics.rmse(prediction, test.y), "nll": metrics.nll(prediction, test.y)}
    out = {}
    for level in LEVELS:
        regions = {"": prediction.interval(level), "latent_": latent.interval(level)}
        regions |= {
            f"{name}_": calibrator(prediction, level=level)
            for name, calibrator in calibrators.items()
        }
        figures = {
            f"{name}coverage": metrics.coverage(region, test.y) for name, region in regions.items()
        }
        figures |= {f"{name}width": metrics.mean_width(region) for name, region in regions.items()}
        sizes = {"n_train": posterior.data.n, "n_calibration": calibration.n, "n_test": test.n}
        out[level] = (
            figures | every | sizes | {"seconds": posterior.seconds + time.perf_counter() - started}
        )
    return out


def _row(name: str, model: str, level: float, figures: list[dict[str, float]]) -> dict[str, Any]:
    columns = {
        key: torch.tensor([float(one[key]) for one in figures], dtype=torch.float64)
        for key in figures[0]
    }
    means = {key: float(values.mean()) for key, values in columns.items()}
    errors = {
        key: float(v.std() / len(v) ** 0.5) if len(v) > 1 else None for key, v in columns.items()
    }
    measured = ("coverage", "width", "latent_coverage")
    measured += tuple(f"{score}_{figure}" for score in SCORES for figure in ("coverage", "width"))
    row: dict[str, Any] = {
        "model": model,
        "how": "map" if model == "ne-gp" else "svi",
        "set": name,
        "level": level,
    }
    for key in (*measured, "rmse", "nll"):
        row |= {key: means[key], f"{key}_se": errors[key]}
    sizes = {key: int(means[key]) for key in ("n_train", "n_calibration", "n_test")}
    return row | sizes | {"splits": len(figures)} | {"seconds": means["seconds"]}
