"""Ctrl-C in a run of several fits: an interrupted fit ends the run."""

from __future__ import annotations

from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short

__all__ = ["raise_if_interrupted"]


def raise_if_interrupted(posterior: Posterior) -> Posterior:
    """Return the posterior itself, for a caller that goes on to another fit.

    Raises:
        KeyboardInterrupt: if Ctrl-C ended the fit early.
    """
    if cut_short(posterior.stats):
        raise KeyboardInterrupt("a fit was stopped before its end")
    return posterior
