"""What a model of any likelihood takes from it."""

from __future__ import annotations

from ..likelihoods import Likelihood
from .base import Model


class AnyLikelihood(Model):
    """A model with a field ``likelihood``, which decides about the scale and the labels of y."""

    likelihood: Likelihood

    @property
    def scales(self) -> str:  # type: ignore[override] # a constant of other models
        """What ``fit`` may standardise, which depends on the likelihood."""
        return self.likelihood.scales

    @property
    def takes_labels(self) -> bool:
        return self.likelihood.takes_labels
