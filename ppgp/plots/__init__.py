"""Figures of posteriors, predictions and regions.

Each function returns its matplotlib Figure, which a notebook shows as an image without any magic.
They use matplotlib's object interface, so that no global state changes: pyplot and rcParams are as
before. ``savefig`` and all other methods of a Figure work as usual.

Every figure of one panel takes ``ax=``, the Axes to draw in. It then draws there, adds nothing
elsewhere, and returns the Figure of these Axes, as statsmodels does. Its legend lies to the right
of the Axes, for which ``Figure(layout="constrained")`` leaves room. A figure of several panels, and
``surface``, which needs Axes of its own, have no ``ax``.

Names of columns and of y are those of the Dataset, or of a pandas Series that is passed. Figures of
draws state their scale, as a fit standardises by default.

The subject of a figure decides its file:

- ``chains``: Markov chains (traces, ranks, pairs of scalars with divergences).
- ``diagnostic_figures``: whether a posterior can be trusted (k-hat, leave-one-out, the ELBO,
  simulation-based calibration).
- ``sites``: the sites of several posteriors (marginals, differences from a reference).
- ``site_intervals``: their intervals (forest plot).
- ``sets``: intervals and sets of predictions (intervals, coverage, widths, functions of one input,
  online methods).
- ``interval_scores``: interval scores of predictions, by level.
- ``residual_figures``: residuals against predictions. ``pit_histogram``: the probability integral
  transform.
- ``maps``: predictions over two coordinates (maps of mean and sd, the surface). ``variograms``:
  empirical variograms, and the models fitted to them.
- ``forecasts``: predictions over time, as a fan of intervals.
- ``additive_figures``: the terms of a sum of kernels.
- ``kernel_figures``: kernel matrices, learned features and the directions of a metric.
  ``relevances``: lengthscales of columns.
- ``inducing_figures``: the inducing inputs among the rows.
- ``replicates``: data drawn from the prior or the posterior, against the data.
- ``counts``: counts against those that a fit expects (rootogram).
- ``groups``: coefficients that vary between groups of rows (shrinkage).
- ``labels``: predicted classes (reliability, decision regions).
- ``suited_figures``: the choice that suits one posterior.
- ``common``: colours, markers, panels and the Figure that notebooks show.
  ``densities``: densities within the bounds of a site. ``shown_scalars``: the scalars that a
  figure shows. ``table_columns``: the training table, and the names of its columns.
"""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .additive_figures import components
from .chains import pair, rank, trace
from .common import COLOURS, MARKERS, MOST_SITES
from .counts import rootogram
from .diagnostic_figures import elbo, k_hat, loo, sbc
from .forecasts import forecast
from .groups import shrinkage
from .inducing_figures import inducing
from .interval_scores import interval_score
from .kernel_figures import features, kernel_matrix, metric
from .labels import decision, reliability
from .maps import map_of, surface
from .pit_histogram import pit
from .relevances import relevance
from .replicates import predictive_check, prior_predictive
from .residual_figures import residuals
from .sets import coverage, function, intervals, online, widths
from .site_intervals import forest
from .sites import differences, marginals
from .suited_figures import suited
from .variograms import variogram

__all__ = [
    "COLOURS",
    "MARKERS",
    "MOST_SITES",
    "components",
    "coverage",
    "decision",
    "differences",
    "elbo",
    "features",
    "forecast",
    "forest",
    "function",
    "inducing",
    "interval_score",
    "intervals",
    "k_hat",
    "kernel_matrix",
    "loo",
    "map_of",
    "marginals",
    "metric",
    "online",
    "pair",
    "pit",
    "predictive_check",
    "prior_predictive",
    "rank",
    "relevance",
    "reliability",
    "residuals",
    "rootogram",
    "sbc",
    "shrinkage",
    "suited",
    "surface",
    "trace",
    "variogram",
    "widths",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__)
