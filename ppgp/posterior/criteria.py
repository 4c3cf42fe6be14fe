"""Properties of a Posterior: its log evidence and its information criteria."""

from __future__ import annotations

import math

from ..display.user_warnings import warn
from ..errors import DataWarning, NotKnown
from .boosted import INSTEAD, is_boosted
from .fitted import Fitted


def log_evidence(self: Fitted) -> float:
    """The log evidence log p(y), in the units of the data.

    Under ``Flat`` priors it is the integral against density 1 on the scale of the model. With a
    flat bias, ``log_evidence`` on standardised data is log(y_sd) lower than with
    ``standardise=False``. Compare models on one scale.

    Raises:
        NotApplicable: If the inference method did not compute it.
    """
    if "log_evidence" not in self.stats:
        name = type(self.how).__name__
        do = INSTEAD if is_boosted(self) else "fit by Laplace or Exact"
        raise NotKnown("a method that knows the evidence", name, do)
    return float(self.stats["log_evidence"]) - self.scaler.log_scale(self.data)


def bic(self: Fitted) -> float:
    """-2 log L + k log n at the mode; smaller is better. Schwarz (1978).

    k is the number of free parameters. L is the likelihood at the fitted mode, which is the
    maximum of the likelihood if the priors are ``Flat``.

    Raises:
        NotApplicable: If the posterior is not from MAP or Laplace, or nothing is observed.
    """
    log_likelihood, parameters, observations = _at_the_mode(self, "bic")
    return -2 * log_likelihood + parameters * math.log(observations)


def aic(self: Fitted) -> float:
    """-2 log L + 2 k at the mode; smaller is better. Akaike (1974).

    k and L are those of ``bic``.

    Raises:
        NotApplicable: If the posterior is not from MAP or Laplace, or nothing is observed.
    """
    log_likelihood, parameters, _ = _at_the_mode(self, "aic")
    return -2 * log_likelihood + 2 * parameters


def _at_the_mode(fit: Fitted, criterion: str) -> tuple[float, int, int]:
    """Return (log likelihood, free parameters, observations) at the fitted mode.

    Raises:
        NotKnown: If the fit has no mode, or nothing is observed.
    """
    stats = fit.stats
    if "log_likelihood" not in stats:
        name = type(fit.how).__name__
        do = INSTEAD if is_boosted(fit) else "fit by MAP or Laplace"
        raise NotKnown(f"a mode to compute the {criterion} at", name, do)
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
        warn(said, DataWarning)
    log_likelihood = float(stats["log_likelihood"]) - fit.scaler.log_scale(fit.data)
    return log_likelihood, int(stats["parameters"]), int(stats["observations"])
