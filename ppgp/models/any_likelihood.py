"""What a model of any likelihood takes from it."""

from __future__ import annotations

from ..display.overrides import computed
from ..likelihoods import Likelihood
from .base import Model


class AnyLikelihood(Model):
    """A model with a field ``likelihood``, which decides about the scale and the labels of y."""

    likelihood: Likelihood

    def _scales(self) -> str:
        """What ``fit`` may standardise, which depends on the likelihood."""
        return self.likelihood.scales

    scales = computed(_scales)

    @property
    def takes_labels(self) -> bool:
        return self.likelihood.takes_labels
