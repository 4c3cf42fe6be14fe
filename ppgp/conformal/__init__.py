"""Conformal prediction: scores, calibration, online methods and closed forms.

What this module exports works on predictions and regions. The methods that fit models stand in
``bayes``, ``cross``, ``past_origins`` and ``full_conformal_sets``.
"""

from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .adaptive import ACI
from .aggregated_adaptive import AgACI
from .control_of_risk import risk_control
from .full_conformal_closed_form import (
    full_interval,
    full_system,
    leave_one_out_parts,
    leave_one_out_parts_low_rank,
)
from .pid_control import PID
from .predictive_systems import PredictiveSystem, predictive_system
from .scores.absolute import Absolute
from .scores.aps import APS, RAPS
from .scores.base import Score
from .scores.density import Density
from .scores.lac import LAC
from .scores.normalized import Normalized
from .scores.pit import PIT
from .scores.quantile import Quantile
from .scores.signed import Signed
from .split import Calibrator, calibrate
from .venn_abers import VennAbers
from .weights import Decay, shift_weights

__all__ = [
    "ACI",
    "APS",
    "LAC",
    "PID",
    "PIT",
    "RAPS",
    "Absolute",
    "AgACI",
    "Calibrator",
    "Decay",
    "Density",
    "Normalized",
    "PredictiveSystem",
    "Quantile",
    "Score",
    "Signed",
    "VennAbers",
    "calibrate",
    "full_interval",
    "full_system",
    "leave_one_out_parts",
    "leave_one_out_parts_low_rank",
    "predictive_system",
    "risk_control",
    "shift_weights",
]
