"""The angle of a rotated face, by Gaussian processes, a network, and both together.

A report on deep kernels rotates the 400 Olivetti photographs (Samaria & Harter 1994) into 2,000
copies within 45 degrees, trains on 80 % of them, and gives the RMSE of six models. Deep kernel
learning (Wilson, Hu, Salakhutdinov & Xing 2016) is the best with 1.687 degrees. Two things make
this task easier than it looks: the black corners of a rotated frame reveal its angle, and copies
of one photograph lie on both sides of the split. Each model is therefore also fitted under two
stricter protocols.

One eighth of the 80 % is kept for calibration and is never trained on. The network is trained once
per protocol, on the training rows and their mirror images, and its output is made odd: a mirror
image changes the sign of the angle, and of every feature. The models are:

- "nn": this network with its linear head.
- "dkl": a Gaussian process on the features of the network.
- "svdkl": a sparse one, fitted in mini-batches, that goes on training the network.
- "sdkl": the report's algorithms for deep kernels with inducing inputs. These move by gradient, or
  are placed again during the fit, by k-means of the features or greedily by the bound.

The calibrated bands hold for exchangeable rows. Under the protocol "strict" the parts are drawn by
photograph, so that the bands hold on average over photographs too. But five copies share one
photograph, so that the true 99 % range of the coverage is wider than the one reported.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scipy import ndimage
from torch import Tensor

from .. import conformal
from ..data.dataset import Dataset
from ..data.files.loading import load
from ..files import write_figure
from ..metrics import metrics
from ..plots.common import COLOURS, panels
from ..posterior.region import Region
from ..runtime.seeding import permutation, standard_uniform
from . import start_rows
from .olivetti_models import QUICK, Budget, Fitters, Predictor

LIMIT = 45.0  # degrees either way
SCALE = LIMIT / 3**0.5  # standard deviation of the angles
COPIES = 5  # of each photograph
TEST, CALIBRATION = 0.2, 0.1  # shares of the rows; the rest is for training
LEVEL = 0.95  # of the bands
CONFIDENCE = 0.99  # of the range in which calibrated coverage lies
PUBLISHED = {"gp": 3.476, "nn": 2.570, "sgp": 4.775, "svgp": 5.886, "dkl": 1.687, "svdkl": 1.783}
ON_NETWORK = ("nn", "dkl", "svdkl", "sdkl")  # the network is trained on mirror images too

#: how each protocol prevents reading the angle from something other than the face
PROTOCOLS = {
    "document": "rows at random, whole frame",
    "disc": "rows at random, inscribed disc: the black corners of a turned frame "
    "give its angle away",
    "strict": "disc, and all copies of a photograph in one part",
}
#: predictive mean, the model's own interval, and the calibrated one
Bands = tuple[Tensor, Region, Region]


def run(
    out: Path, *, seed: int = 0, quick: bool = False, data_dir: str | Path | None = None
) -> list[dict[str, Any]]:
    """Fit every model under every protocol.

    Writes the figures ``olivetti-<protocol>.png``, and a line of ``rows.jsonl`` as each row is
    complete.

    Args:
        out: Folder of the figures and of ``rows.jsonl``.
        seed: Seed of the angles, the parts and the fits.
        quick: Use 80 small photographs and tiny budgets.
        data_dir: Folder in which scikit-learn keeps the faces; None lets scikit-learn download
            them.

    Returns:
        Rows with ``model``, ``how``, ``protocol``, ``mirrored``, ``rmse`` and widths in degrees,
        ``nll``, ``coverage`` of the 95 % bands, ``calibrated_coverage`` with its 99 % range
        (``lowest``, ``highest``), ``seconds`` and the ``published`` RMSE.
    """
    images, angles = turned(photographs(data_dir, quick), seed)
    rows: list[dict[str, Any]] = []
    log = start_rows(out)
    for protocol in PROTOCOLS:
        data = parts(protocol, images, angles, seed + 1)
        fitters = Fitters(data.train, seed, QUICK if quick else Budget())
        bands = {}
        for name, fit_model in fitters.by_name(protocol == "document").items():
            started = time.perf_counter()
            predictor, how = fit_model()
            row, bands[name] = _evaluate(name.split()[0], how, protocol, predictor, data)
            row["seconds"] = time.perf_counter() - started
            rows.append(row)
            log.append(row)
        figure = _figure_of(bands, data.test.y * SCALE, protocol)
        write_figure(out / f"olivetti-{protocol}.png", figure, dpi=110)
    return rows


@dataclass(frozen=True)
class Parts:
    """Training, calibration and test rows.

    The inputs are images [n, side^2], whose pixels are centred and scaled by those of ``train``.
    The targets are angles in units of ``SCALE`` degrees.
    """

    train: Dataset
    calibration: Dataset
    test: Dataset


def photographs(data_dir: str | Path | None, quick: bool) -> Tensor:
    """Return the photographs [400, 64, 64], with grey values in 0 .. 1.

    Args:
        data_dir: Scikit-learn's data folder, or a folder that contains it as ``olivetti``; None
            lets scikit-learn choose and download.
        quick: Return 80 photographs of 16 by 16 pixels.
    """
    if data_dir is not None and (Path(data_dir) / "olivetti").is_dir():
        data_dir = Path(data_dir) / "olivetti"
    faces = load("olivetti", data_home=data_dir).X
    faces = faces.reshape(-1, 64, 64)
    if quick:
        return faces[::5, ::4, ::4]
    return faces


def turned(faces: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Rotate each face COPIES times by random angles.

    The interpolation is bilinear, and pixels from outside the frame are black.

    Args:
        faces: Photographs [m, side, side].
        seed: Seed of the angles.

    Returns:
        Images [n, side, side], with the copies of a face next to each other, and angles [n] in
        degrees.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = standard_uniform(generator, COPIES * len(faces))
    angles = LIMIT * (2 * uniform - 1)
    images = []
    for i, angle in enumerate(angles.tolist()):
        face = faces[i // COPIES].numpy()
        images.append(torch.from_numpy(ndimage.rotate(face, angle, reshape=False, order=1)))
    return torch.stack(images), angles


def disc(side: int) -> Tensor:
    """Return the mask [side, side] of the pixels that no rotation moves out of the frame."""
    centred = torch.arange(side) - (side - 1) / 2
    return centred[:, None].square() + centred.square() <= ((side - 1) / 2) ** 2


def parts(protocol: str, images: Tensor, angles: Tensor, seed: int) -> Parts:
    """Split the rows into disjoint training, calibration and test rows.

    Args:
        protocol: A key of ``PROTOCOLS``.
        images: Images [n, side, side].
        angles: Angles [n] in degrees.
        seed: Seed of the split.
    """
    generator = torch.Generator().manual_seed(seed)
    group = COPIES if protocol == "strict" else 1
    order = permutation(generator, len(images) // group)
    rows = (group * order[:, None] + torch.arange(group)).flatten()
    n_test = group * round(TEST * len(order))
    n_held_out = group * round((TEST + CALIBRATION) * len(order))
    pieces = [rows[n_held_out:], rows[n_test:n_held_out], rows[:n_test]]
    if protocol != "document":
        images = images * disc(images.shape[-1])
    X, y = images.flatten(1), angles / SCALE
    centre, spread = X[pieces[0]].mean(), X[pieces[0]].std()
    return Parts(
        *(Dataset((X[piece] - centre) / spread, y[piece], target_name="angle") for piece in pieces)
    )


def _evaluate(
    name: str, how: str, protocol: str, predictor: Predictor, data: Parts
) -> tuple[dict[str, Any], Bands]:
    """Return the row of one fit, without its seconds, and the bands of its test rows."""
    calibration = replace(predictor(data.calibration.X), scale=SCALE)
    test = replace(predictor(data.test.X), scale=SCALE)
    truth = data.test.y * SCALE
    calibrator = conformal.calibrate(
        conformal.Normalized(), calibration, data.calibration.y * SCALE
    )
    own, calibrated = test.interval(LEVEL), calibrator(test, level=LEVEL)
    lowest, highest = calibrator.coverage_band(LEVEL, CONFIDENCE, len(truth))
    row = {
        "model": name,
        "how": how,
        "protocol": protocol,
        "mirrored": name in ON_NETWORK,
        "rmse": metrics.rmse(test, truth),
        "published": PUBLISHED.get(name) if protocol == "document" else None,
        "nll": metrics.nll(test, truth),
        "coverage": metrics.coverage(own, truth),
        "width": metrics.mean_width(own),
        "calibrated_coverage": metrics.coverage(calibrated, truth),
        "calibrated_width": metrics.mean_width(calibrated),
        "lowest": lowest,
        "highest": highest,
        "n_train": data.train.n,
        "n_calibration": data.calibration.n,
        "n_test": data.test.n,
    }
    return row, (test.mean, own, calibrated)


def _figure_of(bands: dict[str, Bands], y: Tensor, protocol: str) -> Any:
    """Draw the prediction error with its 95 % bands, one panel per model."""
    columns = 3
    lines = -(-len(bands) // columns)
    figure, axes = panels(12, 3.4 * lines, lines, columns)
    for axis, (name, band) in zip(axes.flat, bands.items(), strict=False):
        _draw_errors(axis, name, band, y)
    for axis in list(axes.flat)[len(bands) :]:
        axis.set_visible(False)
    figure.suptitle(f"{protocol}: {PROTOCOLS[protocol]}", fontsize=11)
    return figure


def _draw_errors(axis: Any, name: str, band: Bands, y: Tensor) -> None:
    """Draw errors and both bands of one model; a band covers a row if it contains 0."""
    mean, own, calibrated = band
    for region, colour, label, width in (
        (calibrated, COLOURS[5], "calibrated", 2.2),
        (own, "#777777", "model's own", 0.9),
    ):
        lower, upper = region
        share = float(region.covers(y).double().mean())
        label = f"{label}: covers {share:.1%}"
        axis.vlines(y, lower - y, upper - y, color=colour, lw=width, label=label, zorder=1)
    axis.plot(y, mean - y, ".", ms=2.5, color="black", zorder=3)
    axis.axhline(0, color=COLOURS[1], lw=0.8, zorder=2)
    rmse = float((mean - y).square().mean().sqrt())
    axis.set(
        title=f"{name}: RMSE {rmse:.2f} degrees",
        xlabel="angle (degrees)",
        ylabel="error, with 95 % bands",
    )
    axis.title.set_fontsize(10)
    axis.legend(frameon=False, fontsize=8, loc="upper left")
