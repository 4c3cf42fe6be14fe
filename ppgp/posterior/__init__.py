"""Posterior, Prediction and Region; convergence statistics, export to ArviZ, and saved files.

A file holds every init field of ``posterior.Posterior``: ``encoding`` writes its values as JSON and
tensors, ``storage`` the file, and ``loading`` reads both and checks each field. A new field
therefore needs a default, so that older files open, and a line in ``_facts`` of ``loading``.
"""

from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .averaging import Average
from .multi import MultiPosterior
from .posterior import Posterior
from .prediction import Prediction
from .region import Region

__all__ = ["Average", "MultiPosterior", "Posterior", "Prediction", "Region"]
