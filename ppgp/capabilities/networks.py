"""Capabilities of models that are networks; ``capabilities`` lists all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn

from ..data.dataset import Dataset
from .base import Capability

__all__ = ["GaussianNetwork", "NetworkWeights"]

Theta = Mapping[str, Tensor]


class NetworkWeights(Capability):
    """Sites that are the weights of a network, and that searches start at random weights."""

    wanted = "a model that is a network"
    advice = "use models.NeuralRegression"

    @abstractmethod
    def initial_weights(self, data: Dataset, seed: int) -> dict[str, Tensor]:
        """Return {site: initial weights} from a seed."""

    @abstractmethod
    def network_module(self, d: int) -> tuple[str, nn.Module]:
        """Return the prefix of the sites, and the module that ``functions_of_rows`` runs."""


class GaussianNetwork(Capability):
    """A network of dense layers, whose output is the mean of y, with one variance of the noise."""

    wanted = "a network of dense layers with Gaussian noise of one variance"
    advice = "use NUTS, or models.NeuralRegression(MLP(), Gaussian())"

    @abstractmethod
    def dense_layers(self, d: int) -> list[tuple[str, str]]:
        """Return the sites of the weight [out, in] and the bias [out] of each layer, in order."""

    @abstractmethod
    def activation(self, x: Tensor) -> Tensor:
        """Return the values of hidden units, given their inputs."""

    @abstractmethod
    def noise_number(self) -> float | None:
        """Return the variance of the noise; None if it is the site ``noise``."""
