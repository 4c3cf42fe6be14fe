"""Gaussian processes and Bayesian regression in Pyro, with conformal prediction.

A model is written once as a Pyro program and fitted by any method. ``compare`` and ``diagnose``
report which posterior to trust, and ``calibrate`` gives intervals with a coverage guarantee.

Public names are imported on first use, so that ``import ppgp`` and ``ppgp --help`` do not wait for
torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .display.missing_names import hints, place_of
from .runtime.openmp import load_passively

__version__ = "0.1.0"

load_passively()

#: public class or function -> its module
_NAMES = {
    "Average": "posterior.averaging",
    "Comparison": "diagnostics.comparison",
    "Diagnosis": "diagnostics.diagnosis",
    "Dataset": "data.dataset",
    "MultiPosterior": "posterior.multi",
    "Posterior": "posterior.posterior",
    "Prediction": "posterior.prediction",
    "Region": "posterior.region",
    "Target": "density.target",
    "Team": "runtime.team",
    "VectorPrediction": "posterior.vector_prediction",
    "advise": "models.advice.advice",
    "average": "posterior.averaging",
    "block_kriging": "geostatistics.kriging_of_blocks",
    "calibrate": "conformal.split",
    "check_network": "diagnostics.network_check",
    "compare": "diagnostics.comparison",
    "conformal_bayes": "conformal.bayes",
    "cross_calibrate": "conformal.cross",
    "diagnose": "diagnostics.diagnosis",
    "discretised": "geostatistics.kriging_of_blocks",
    "empirical_variogram": "geostatistics.variogram",
    "fit": "inference.fitting.fit",
    "fit_candidates": "inference.fitting.candidates",
    "fit_variogram": "geostatistics.variogram_fit",
    "from_guide": "inference.fitting.from_guide",
    "full_conformal": "conformal.full_conformal_sets",
    "load": "data.files.loading",
    "load_posterior": "posterior.loading",
    "predictive_system": "conformal.predictive_systems",
    "psis_loo": "diagnostics.leave_one_out",
    "scan": "density.graph.scanning",
    "sbc": "diagnostics.simulation_based_calibration",
    "stacking_weights": "diagnostics.stacking",
    "stream": "data.stream.stream",
}
#: public modules
_MODULES = (
    "acquisition",
    "conformal",
    "data",
    "density",
    "diagnostics",
    "errors",
    "estimators",
    "inference",
    "kernels",
    "learners",
    "likelihoods",
    "metrics",
    "models",
    "networks",
    "plots",
    "priors",
    "recipes",
)

__all__ = [*_NAMES, *_MODULES]

if TYPE_CHECKING:
    from . import (
        acquisition,
        conformal,
        data,
        density,
        diagnostics,
        errors,
        estimators,
        inference,
        kernels,
        learners,
        likelihoods,
        metrics,
        models,
        networks,
        plots,
        priors,
        recipes,
    )
    from .conformal.bayes import conformal_bayes
    from .conformal.cross import cross_calibrate
    from .conformal.full_conformal_sets import full_conformal
    from .conformal.predictive_systems import predictive_system
    from .conformal.split import calibrate
    from .data.dataset import Dataset
    from .data.files.loading import load
    from .data.stream.stream import stream
    from .density.graph.scanning import scan
    from .density.target import Target
    from .diagnostics.comparison import Comparison, compare
    from .diagnostics.diagnosis import Diagnosis, diagnose
    from .diagnostics.leave_one_out import psis_loo
    from .diagnostics.network_check import check_network
    from .diagnostics.simulation_based_calibration import sbc
    from .diagnostics.stacking import stacking_weights
    from .geostatistics.kriging_of_blocks import block_kriging, discretised
    from .geostatistics.variogram import empirical_variogram
    from .geostatistics.variogram_fit import fit_variogram
    from .inference.fitting.candidates import fit_candidates
    from .inference.fitting.fit import fit
    from .inference.fitting.from_guide import from_guide
    from .models.advice.advice import advise
    from .posterior.averaging import Average, average
    from .posterior.loading import load_posterior
    from .posterior.multi import MultiPosterior
    from .posterior.posterior import Posterior
    from .posterior.prediction import Prediction
    from .posterior.region import Region
    from .posterior.vector_prediction import VectorPrediction
    from .runtime.team import Team


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        found = getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
        globals()[name] = found  # looked up once
        return found
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    place = None
    is_own = name.casefold() in {each.casefold() for each in __all__}
    if not name.startswith("_") and not is_own:
        place = place_of(name, __name__, _MODULES)
    if place is not None:
        message = f"module {__name__!r} has no attribute {name!r}: it is {place}"
        raise AttributeError(message, name=name)
    return hints(__name__, __all__, {"target": "density"})(name)


def __dir__() -> list[str]:
    return sorted(__all__)
