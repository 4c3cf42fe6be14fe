"""Networks of deep kernels, and their training before the fit."""

from .networks import CNN, MLP, Network, training
from .pretraining import pretrained, regressor

__all__ = ["CNN", "MLP", "Network", "pretrained", "regressor", "training"]
