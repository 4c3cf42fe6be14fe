"""Conformal prediction: one score a file; knows predictions and regions, never models or fits."""

from .absolute import Absolute
from .lac import LAC
from .normalized import Normalized
from .quantile import Quantile
from .score import Score
from .split import Calibrator, calibrate

__all__ = ["LAC", "Absolute", "Calibrator", "Normalized", "Quantile", "Score", "calibrate"]
