"""The histogram of the probability integral transform."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from ..diagnostics.simulation_based_calibration import smallest_p
from ..errors import SettingError
from ..posterior.prediction import Prediction
from ..runtime.levels import exact_level
from .common import COLOURS, legend, panel, percent, set_title

SAMPLES = 4000  # simulated histograms for the simultaneous band


def pit(
    prediction: Prediction,
    y: Any,
    bins: int = 10,
    level: float = 0.95,
    seed: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Plot the histogram of the probability integral transform P(Y <= y), with a simultaneous band.

    Under the true predictive distribution of independent rows it is flat: all bins lie within the
    band together with probability ``level``. A hump means intervals that are too wide, a valley
    ones that are too narrow, a slope a bias. Gneiting, Balabdaoui & Raftery (2007). The horizontal
    axis is a probability.

    Args:
        prediction: The prediction of n rows that the fit has not seen.
        y: The targets [n].
        bins: The number of bins, at least two.
        level: The probability of the band.
        seed: The seed of the transform of counts.
        ax: The axes to draw in; None: those of a new figure.

    Raises:
        SettingError: If there are fewer than two bins, the level is not in (0, 1), or ``ax`` is not
            one Axes.
        NotApplicable: If y is a class.
        DataError: If there is not one y per row.

    Examples:
        The noise sd of this model is ten times too large: every y lies in the middle.

        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> x = np.arange(40.0)
        >>> y = x + 0.1 * np.tile([-1.0, 1.0], 20)
        >>> data = ppgp.Dataset(x[:20, None], y[:20])
        >>> options = {"standardise": False, "progress": False}
        >>> model = models.LinearRegression(noise=1.0)
        >>> posterior = ppgp.fit(model, data, inference.Exact(), **options)
        >>> axis = plots.pit(posterior.predict(x[20:, None]), y[20:], bins=3).axes[0]
        >>> print(axis.get_title())
        PIT of 20 rows: 3 of 3 bins outside the band
        >>> [float(bar.get_height()) for bar in axis.containers[0]]
        [0.0, 3.0, 0.0]
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 2:
        raise SettingError("at least two bins", repr(bins), "for example 10")
    u = prediction.pit(y, seed).double().cpu().numpy()
    counts, edges = np.histogram(u, bins=bins, range=(0.0, 1.0))
    lower, upper = band_of_counts(len(u), bins, float(exact_level(level)))
    density = bins / len(u)
    figure, axis = panel(ax, 6.5, 3.4)
    label = f"{percent(level)} band of all bins"
    axis.axhspan(lower * density, upper * density, color="#DDDDDD", lw=0, label=label, zorder=0)
    axis.axhline(1.0, color="black", lw=0.8, label="calibrated")
    style: dict[str, Any] = {"align": "edge", "edgecolor": COLOURS[0], "facecolor": "none"}
    axis.bar(edges[:-1], counts * density, 1 / bins, lw=1.4, label="rows", **style)
    axis.set(xlabel="predictive probability P(Y <= y)", ylabel="density", xlim=(-0.02, 1.02))
    axis.set_ylim(0.0, 1.08 * max(float(counts.max()), upper) * density)
    outside = int(((counts < lower) | (counts > upper)).sum())
    title = f"PIT of {len(u)} rows: {outside} of {bins} bins outside the band"
    set_title(axis, title)
    legend(axis)
    return figure


@lru_cache(maxsize=8)
def band_of_counts(n: int, bins: int, level: float) -> tuple[int, int]:
    """Return the simultaneous band of the counts of n uniforms in bins of equal width.

    The pointwise level of binomial bands is adjusted by simulation, as in Sailynoja, Buerkner &
    Vehtari (2022), algorithm 1.

    Args:
        n: The number of uniforms.
        bins: The number of bins.
        level: The probability that all counts lie within the band.

    Returns:
        The smallest and the largest count within the band.
    """
    counts = np.random.default_rng(0).multinomial(n, np.full(bins, 1 / bins), size=SAMPLES)
    least = smallest_p(counts, n, np.full(bins, 1 / bins))
    # a little lower, as rounding must not exclude the count whose p-value it is
    gamma = (1 - 1e-9) * float(np.quantile(least, 1 - level))
    lower, upper = (stats.binom.ppf(p, n, 1 / bins) for p in (gamma / 2, 1 - gamma / 2))
    return int(lower), int(upper)
