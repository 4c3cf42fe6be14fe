"""Ctrl-C in a run of several fits: a fit that was cut short is no fit, and the run ends there."""

from __future__ import annotations

from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short

__all__ = ["whole"]


def whole(posterior: Posterior) -> Posterior:
    """The posterior itself, for whoever goes on to another fit.

    Raises:
        KeyboardInterrupt: if the fit was cut short.
    """
    if cut_short(posterior.stats):
        raise KeyboardInterrupt("a fit was stopped before its end")
    return posterior
