"""ppgp: write a model once as a Pyro program, fit it any way, see which answer to trust, get intervals with a guarantee.

Everything public is imported on first use, so that ``import ppgp`` and ``ppgp --help`` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "Comparison": "comparison",
    "Diagnosis": "diagnosis",
    "Dataset": "data",
    "Posterior": "posterior",
    "Prediction": "prediction",
    "Region": "region",
    "Target": "target",
    "block_kriging": "blocks",
    "calibrate": "conformal",
    "check_network": "network_check",
    "compare": "comparison",
    "conformal_bayes": "calibration",
    "cross_calibrate": "calibration",
    "diagnose": "diagnosis",
    "discretised": "blocks",
    "empirical_variogram": "variogram",
    "fit": "fitting",
    "fit_variogram": "variogram_fit",
    "full_conformal": "calibration",
    "load": "loading",
    "load_posterior": "loading",
    "predictive_system": "conformal",
    "psis_loo": "leave_one_out",
    "sbc": "validation",
    "stacking_weights": "leave_one_out",
}
_MODULES = (
    "conformal",
    "data",
    "diagnostics",
    "errors",
    "inference",
    "kernels",
    "likelihoods",
    "metrics",
    "models",
    "networks",
    "plots",
    "priors",
    "target",
)

__all__ = [*_NAMES, *_MODULES]

if TYPE_CHECKING:
    from . import (
        conformal,
        data,
        diagnostics,
        errors,
        inference,
        kernels,
        likelihoods,
        metrics,
        models,
        networks,
        plots,
        priors,
        target,
    )
    from .blocks import block_kriging, discretised
    from .calibration import conformal_bayes, cross_calibrate, full_conformal
    from .comparison import Comparison, compare
    from .conformal import calibrate, predictive_system
    from .data import Dataset
    from .diagnosis import Diagnosis, diagnose
    from .fitting import fit
    from .leave_one_out import psis_loo, stacking_weights
    from .loading import load, load_posterior
    from .network_check import check_network
    from .posterior import Posterior
    from .prediction import Prediction
    from .region import Region
    from .target import Target
    from .validation import sbc
    from .variogram import empirical_variogram
    from .variogram_fit import fit_variogram


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
