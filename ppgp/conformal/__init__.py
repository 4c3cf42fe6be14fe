"""Conformal prediction: one score or closed form a file; knows predictions and regions, never models or fits."""

from .absolute import Absolute
from .aps import APS, RAPS
from .density import Density
from .full_gp import deleted, deleted_low_rank, full_interval, full_system
from .lac import LAC
from .normalized import Normalized
from .online import ACI, PID, AgACI
from .pit import PIT
from .quantile import Quantile
from .risk import risk_control
from .score import Score
from .signed import Signed
from .split import Calibrator, calibrate
from .system import PredictiveSystem, predictive_system
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
    "deleted",
    "deleted_low_rank",
    "full_interval",
    "full_system",
    "predictive_system",
    "risk_control",
    "shift_weights",
]
