"""The angle of a turned face, by Gaussian processes, a network, and both together.

A report on deep kernels turns the 400 Olivetti photographs (Samaria & Harter 1994) into 2,000 copies within 45 degrees, trains on 80 %
of them, and gives the RMSE of six models, deep kernel learning (Wilson, Hu, Salakhutdinov & Xing 2016) the best with 1.687
degrees. Two things are easier there than they look, so that each model is also fitted under two stricter protocols: the black
corners of a turned frame give its angle away, and copies of one photograph lie on both sides of the split.

Of the 80 %, an eighth is kept for calibration and never trained on. The network is trained once a protocol, on the training rows
and their mirror images, and what it makes of an image is made odd: a mirror turns the sign of the angle, and of every feature.
"nn" is this network with its linear head, "dkl" a Gaussian process on its features, "svdkl" a sparse one
that goes on training the network, in mini-batches. "sdkl" are the report's algorithms for deep kernels with inducing inputs: these
move by gradient, or are placed again on the way, by k-means of the features or greedily by the bound. The
calibrated bands hold for exchangeable rows. Under "strict" the parts are drawn by photograph, so that they hold on average over
photographs too, but five copies share one, and the range that goes with 99 % is wider than the one printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from .. import conformal
from ..data.dataset import Dataset
from ..diagnostics import metrics
from ..errors import ConvergenceWarning
from ..files import write_figure
from ..inference import MAP, SVI
from ..inference.fitting import fit
from ..inference.interrupts import whole
from ..kernels import ARD, RBF, Deep
from ..kernels.networks import CNN
from ..kernels.pretraining import regressor
from ..likelihoods import Gaussian
from ..models import GP, SGPR, SVGP
from ..numerics.process_locks import silenced
from ..plots.common import COLOURS, panels
from ..posterior.prediction import Prediction
from ..priors import LogNormal
from .olivetti_data import PROTOCOLS, SCALE, Odd, Parts, mirrored, parts, photographs, turned
from .saved_rows import begun, done

LEVEL = 0.95
CONFIDENCE = 0.99  # of the range in which calibrated coverage lies
PUBLISHED = {"gp": 3.476, "nn": 2.570, "sgp": 4.775, "svgp": 5.886, "dkl": 1.687, "svdkl": 1.783}
CHANNELS = (16, 32, 32, 32)
EPOCHS = 30
INDUCING = 500  # of pixels
FEW = 100  # of features
AGAIN = 5  # steps after which inducing inputs are placed again
RATES = {
    "kernel.network": 1e-4,
    "": 0.05,
}  # a network trained beforehand needs care, hyperparameters at their medians speed
PIXELS = RBF(
    lengthscale=LogNormal(4.0, 1.0)
)  # two images of 4,096 standardised pixels are about 90 apart
FEATURES = LogNormal(0.0, 1.0)  # of a network lie in a ball, whatever their number
NOISE = LogNormal(-4.0, 2.0)

Law = Callable[[Tensor], Prediction]
Way = tuple[Law, str]


def run(
    out: Path, *, seed: int = 0, quick: bool = False, data_dir: str | Path | None = None
) -> list[dict[str, Any]]:
    """Rows with ``model``, ``how``, ``protocol``, ``mirrored``, ``rmse`` and widths in degrees, ``nll``, ``coverage`` of the 95 % bands,
    ``calibrated_coverage`` with the 99 % range where it belongs, ``seconds`` and the ``published`` RMSE.

    Figures ``olivetti-<protocol>.png`` in ``out``, and a line of ``rows.jsonl`` as each row is done. ``data_dir``: where scikit-learn
    keeps the faces. ``quick``: 80 small photographs.
    """
    images, angles = turned(photographs(data_dir, quick), seed)
    rows: list[dict[str, Any]] = []
    begun(out)
    for protocol in PROTOCOLS:
        data = parts(protocol, images, angles, seed + 1)
        bands = {}
        for name, way in _ways(data, seed, quick, protocol == "document").items():
            started = time.perf_counter()
            law, how = way()
            row, bands[name] = _row(name.split()[0], how, protocol, law, data, started)
            rows.append(row)
            done(out, row)
        write_figure(
            out / f"olivetti-{protocol}.png", _figure(bands, data.test.y * SCALE, protocol), dpi=110
        )
    return rows


def _ways(data: Parts, seed: int, quick: bool, algorithms: bool) -> dict[str, Callable[[], Way]]:
    """How each model is fitted, in the order of the rows; the network is trained for "nn", and the deep kernels have it from there."""
    steps, epochs, m, few, batch = (5, 2, 20, 10, 32) if quick else (60, EPOCHS, INDUCING, FEW, 128)
    train = data.train
    trained: list[Any] = []
    on_features: list[Any] = []

    def fitted(model: Any, how: Any, train: Any = train, init: Any = None) -> Any:
        with silenced(ConvergenceWarning):  # a search on a budget ends before it settles
            return whole(
                fit(model, train, how, seed=seed, progress=False, standardise=False, init=init)
            )

    def nn() -> Way:
        network = CNN(channels=CHANNELS, normalise=True, seed=seed)
        alone = regressor(
            network, mirrored(train).to(torch.float32), epochs=epochs, seed=seed
        ).double()
        trained.append(Odd(alone[0]))  # its features; the angle is a linear function of them

        def mean(X: Tensor) -> Tensor:
            return _in_blocks(Odd(alone), X)[:, 0]

        noise = (train.y - mean(train.X)).square().mean().sqrt()
        return lambda X: Prediction(
            Normal(mean(X), noise)
        ), f"adam, {epochs} epochs; training residuals"

    def gp() -> Way:
        return fitted(GP(PIXELS, noise=NOISE), MAP(steps=steps)).predict, "map"

    def sgp() -> Way:
        return fitted(
            SGPR(PIXELS, m, noise=NOISE, seed=seed), MAP(steps=steps)
        ).predict, f"map, {m} inducing inputs"

    def dkl() -> Way:
        # GP(Deep(network, ARD(RBF()), frozen=True)), with the features made once
        seen = Dataset(_in_blocks(trained[0], train.X), train.y)
        posterior = fitted(GP(ARD(RBF(lengthscale=FEATURES)), noise=NOISE), MAP(steps=steps), seen)
        on_features.append(posterior)
        return lambda X: posterior.predict(_in_blocks(trained[0], X)), "map, network held"

    def svgp() -> Way:
        how = SVI(steps=3 * steps, batch_size=batch, learning_rate=0.01)
        return fitted(
            SVGP(PIXELS, m, Gaussian(NOISE), learn=False, seed=seed), how
        ).predict, f"svi, batches of {batch}"

    def trained_on(make: Callable[[Deep], Any], how: Any) -> Any:
        """A model of a network that goes on learning; its hyperparameters begin where those of "dkl" ended. In
        single precision, in which images cost half as much."""
        deep = Deep(deepcopy(trained[0]).float(), ARD(RBF()))
        posterior = fitted(make(deep), how, train.to(torch.float32), on_features[0])
        return posterior.model, lambda X: posterior.predict(X.float())

    def svdkl() -> Way:
        how = SVI(steps=2 * steps, batch_size=batch, learning_rate=RATES)
        _, law = trained_on(
            lambda deep: SVGP(deep, few, Gaussian(NOISE), learn=False, seed=seed), how
        )
        return law, f"svi, batches of {batch}, network at 1e-4"

    def sdkl(**option: Any) -> Way:
        how = MAP("adam", steps=steps // 3, learning_rate=RATES)
        model, law = trained_on(lambda deep: SGPR(deep, few, noise=NOISE, seed=seed, **option), how)
        moved = "by gradient" if model.learn else f"{model.selection} every {model.reselect} steps"
        return law, f"adam, {few} inducing inputs {moved}"

    ways: dict[str, Callable[[], Way]] = {
        "gp": gp,
        "nn": nn,
        "sgp": sgp,
        "svgp": svgp,
        "dkl": dkl,
        "svdkl": svdkl,
    }
    if algorithms:
        ways["sdkl gradient"] = partial(sdkl, learn=True)
        ways["sdkl k-means"] = partial(sdkl, selection="kmeans", reselect=AGAIN)
        ways["sdkl greedy"] = partial(sdkl, selection="bound", reselect=AGAIN)
    return ways


def _in_blocks(network: Any, X: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([network(block) for block in X.split(128)])


def _row(
    name: str, how: str, protocol: str, law: Law, data: Parts, started: float
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    calibration, test = (
        replace(law(part.X), scale=SCALE) for part in (data.calibration, data.test)
    )
    truth = data.test.y * SCALE
    calibrator = conformal.calibrate(
        conformal.Normalized(), calibration, data.calibration.y * SCALE
    )
    own, region = test.interval(LEVEL), calibrator(test, level=LEVEL)
    low, high = calibrator.coverage_band(LEVEL, CONFIDENCE, len(truth))
    row = {
        "model": name,
        "how": how,
        "protocol": protocol,
        "mirrored": name in ("nn", "dkl", "svdkl", "sdkl"),  # the network saw mirrored rows
        "rmse": metrics.rmse(test, truth),
        "published": PUBLISHED.get(name) if protocol == "document" else None,
        "nll": metrics.nll(test, truth),
        "coverage": metrics.coverage(own, truth),
        "width": metrics.mean_width(own),
        "calibrated_coverage": metrics.coverage(region, truth),
        "calibrated_width": metrics.mean_width(region),
        "lowest": low,
        "highest": high,
        "n_train": data.train.n,
        "n_calibration": data.calibration.n,
        "n_test": data.test.n,
        "seconds": time.perf_counter() - started,
    }
    return row, (test.mean, own, region)


def _figure(bands: dict[str, tuple[Any, ...]], y: Tensor, protocol: str) -> Any:
    """What is predicted less the true angle, a panel a model: its own 95 % bands, and the calibrated ones; 0 lies in those that cover."""
    columns = 3
    figure, axes = panels(12, 3.4 * -(-len(bands) // columns), -(-len(bands) // columns), columns)
    for axis, (name, (mean, own, region)) in zip(axes.flat, bands.items(), strict=False):
        for r, colour, label, width in (
            (region, COLOURS[5], "calibrated", 2.2),
            (own, "#777777", "model's own", 0.9),
        ):
            lower, upper = r
            share = float(r.covers(y).double().mean())
            axis.vlines(
                y,
                lower - y,
                upper - y,
                color=colour,
                lw=width,
                label=f"{label}: covers {share:.1%}",
                zorder=1,
            )
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
    for axis in list(axes.flat)[len(bands) :]:
        axis.set_visible(False)
    figure.suptitle(f"{protocol}: {PROTOCOLS[protocol]}", fontsize=11)
    return figure
