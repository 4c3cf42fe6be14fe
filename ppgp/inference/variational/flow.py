"""The inverse autoregressive flow, in the dtype of the model."""

from __future__ import annotations

import torch
from pyro.distributions.transforms import AffineAutoregressive
from pyro.distributions.transforms.utils import clamp_preserve_gradients
from pyro.nn import AutoRegressiveNN
from torch import Tensor

__all__ = ["Flow"]

UNITS = 8  # of each hidden layer, besides one for each coordinate


class Flow(AffineAutoregressive):
    """Pyro's affine autoregressive transform, whose inverse has the dtype of its argument.

    Kingma et al. (2016). The inverse of Pyro begins with zeros of torch's default dtype.

    Args:
        dim: The number of coordinates d.
        like: A tensor whose dtype and device the network has.
    """

    def __init__(self, dim: int, like: Tensor) -> None:
        network = AutoRegressiveNN(dim, [dim + UNITS, dim + UNITS])
        super().__init__(network.to(like))

    def _inverse(self, y: Tensor) -> Tensor:
        """Return x [*, d] of y [*, d].

        Each of the d passes makes one more coordinate exact, as it depends on those before it.
        """
        x = log_scale = torch.zeros_like(y)
        for _ in range(y.shape[-1]):
            mean, log_scale = self.arn(x)
            log_scale = clamp_preserve_gradients(
                log_scale, self.log_scale_min_clip, self.log_scale_max_clip
            )
            x = (y - mean) * torch.exp(-log_scale)
        self._cached_log_scale = log_scale
        return x
