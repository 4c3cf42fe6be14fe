"""Nonconformity scores and the sets they invert to, one score per file."""

from .absolute import Absolute
from .aps import APS, RAPS
from .base import Score
from .density import Density
from .lac import LAC
from .normalized import Normalized
from .pit import PIT
from .quantile import Quantile
from .signed import Signed

__all__ = [
    "APS",
    "LAC",
    "PIT",
    "RAPS",
    "Absolute",
    "Density",
    "Normalized",
    "Quantile",
    "Score",
    "Signed",
]
