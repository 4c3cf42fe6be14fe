"""The log evidence and the information criteria of a fit, in the units of the data."""

from __future__ import annotations

import math
import warnings

from ..errors import DataWarning, NotKnown
from .fitted import Fitted


def log_evidence(fit: Fitted) -> float:
    """Return log p(y); see ``Posterior.log_evidence``.

    Raises:
        NotKnown: if the inference method did not compute it.
    """
    if "log_evidence" not in fit.stats:
        name = type(fit.how).__name__
        raise NotKnown("a method that knows the evidence", name, "fit by Laplace or Exact")
    return float(fit.stats["log_evidence"]) - fit.scaler.log_scale(fit.data)


def bic(fit: Fitted) -> float:
    """Return -2 log L + k log n at the mode. Schwarz (1978)."""
    log_likelihood, parameters, observations = _at_the_mode(fit, "bic")
    return -2 * log_likelihood + parameters * math.log(observations)


def aic(fit: Fitted) -> float:
    """Return -2 log L + 2 k at the mode. Akaike (1974)."""
    log_likelihood, parameters, _ = _at_the_mode(fit, "aic")
    return -2 * log_likelihood + 2 * parameters


def _at_the_mode(fit: Fitted, criterion: str) -> tuple[float, int, int]:
    """Return (log likelihood, free parameters, observations) at the fitted mode.

    Raises:
        NotKnown: if the fit has no mode, or nothing is observed.
    """
    stats = fit.stats
    if "log_likelihood" not in stats:
        name = type(fit.how).__name__
        raise NotKnown(f"a mode to compute the {criterion} at", name, "fit by MAP or Laplace")
    if not stats["observations"]:
        raise NotKnown(
            f"observed sites to compute the {criterion} of",
            "none, as in a program of pyro.factor alone",
            "write the likelihood of the data as pyro.sample(..., obs=)",
        )
    if "factors" in stats:
        said = (
            f"the {criterion} leaves out pyro.factor ({stats['factors']}), which may hold data; "
            "write data as pyro.sample(..., obs=)"
        )
        warnings.warn(said, DataWarning, stacklevel=4)
    log_likelihood = float(stats["log_likelihood"]) - fit.scaler.log_scale(fit.data)
    return log_likelihood, int(stats["parameters"]), int(stats["observations"])
