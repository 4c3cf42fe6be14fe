"""A network of dense layers as functions of z, for methods that know how it is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...capabilities import GaussianNetwork
from ...density.target import Target
from ...runtime.seeding import standard_uniform

AT_ONCE = 2**22  # numbers in the values of the units of several draws
Layers = Sequence[tuple[Tensor, Tensor]]


class Dense:
    """The layers of a network in z [*draw, p].

    Args:
        model: The model, whose network has one output.
        target: Its density.
    """

    def __init__(self, model: GaussianNetwork, target: Target) -> None:
        self.model, self.target = model, target
        self.names = model.dense_layers(target.data.d)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape [out, in] of the weight of each layer."""
        return [tuple(self.target.slices[W].event) for W, _ in self.names]

    def layers(self, z: Tensor) -> Layers:
        """Return the weights [*draw, out, in] and biases [*draw, out] of z [*draw, p]."""
        slices = self.target.slices
        return [(slices[W].of(z), slices[b].of(z)) for W, b in self.names]

    def laid(self, first: Tensor, layers: Layers) -> Tensor:
        """Return z [draw, p] = first [p] with these layers."""
        z = first.expand(len(layers[0][0]), -1).clone()
        for names, values in zip(self.names, layers, strict=True):
            for name, value in zip(names, values, strict=True):
                s = self.target.slices[name]
                z[:, s.start : s.stop] = value.flatten(1)
        return z

    def put_noise(self, z: Tensor, noise: float) -> None:
        """Write the variance of the noise into z [draw, p], unless it is a fixed number."""
        if "noise" in self.target.slices:
            s = self.target.slices["noise"]
            z[:, s.start : s.stop] = s.transform.inv(z.new_tensor(noise))

    def forward(
        self, layers: Layers, X: Tensor, thin: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the output [*draw, n] of layers [*draw, ...]; ``thin`` acts before every layer."""
        x = X
        for i, (W, b) in enumerate(layers):
            if i:
                x = self.model.activation(x)
            x = (x if thin is None else thin(x)) @ W.mT + b[..., None, :]
        return x[..., 0]

    def features(self, layers: Layers, X: Tensor) -> Tensor:
        """Return the values of the last hidden units, [*draw, n, unit]; X if there are none."""
        x = X
        for W, b in layers[:-1]:
            x = self.model.activation(x @ W.mT + b[..., None, :])
        return x

    def thinned(self, z: Tensor, rate: float, draws: int, generator: torch.Generator) -> Tensor:
        """Return draws [draw, p] of z [p]: inputs of layers are left out at random.

        The columns of each weight are multiplied by Bernoulli(1 - rate) / (1 - rate).
        """
        layers = []
        for W, b in self.layers(z):
            u = standard_uniform(generator, draws, 1, W.shape[-1])
            kept = (u >= rate).to(W) / (1 - rate)
            layers.append((W * kept, b.expand(draws, -1)))
        return self.laid(z, layers)

    def means(self, z: Tensor, X: Tensor) -> Tensor:
        """Return the output at X under draws z [draw, p], [draw, n]."""
        units = max(out for out, _ in self.shapes)
        size = max(1, AT_ONCE // (len(X) * units))
        with torch.no_grad():
            return torch.cat([self.forward(self.layers(some), X) for some in z.split(size)])
