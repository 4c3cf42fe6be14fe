"""Kronecker factors of the Gauss-Newton matrix of each Linear and Conv2d layer of a network.

A layer multiplies its inputs a, after a 1 for its bias, by its weights W [out, in]. With g the
derivatives of the outputs of the network by those of the layer, times a root of the Fisher
information of the likelihood, its block of the matrix is the sum of (a a') kron (g g') over the
rows. The factors are the mean A of a a' and the sum G of g g'. Martens & Grosse (2015). For a
convolution the mean and the sum are also over the positions in the image, with a the patch there.
Grosse & Martens (2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, unfold

from ...capabilities import NetworkWeights, require
from ...data.roles import at_rows
from ...density.layout import Slice
from ...density.target import Target
from ...runtime.seeding import seeded
from .curvature_of_rows import CurvatureOfRows

AT_ONCE = 2**22  # numbers in the inputs and outputs of layers at a chunk of rows
Call = tuple[Tensor, Tensor]
Factors = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Layer:
    """A Linear or Conv2d layer, and its place in z.

    Attributes:
        name: The name of the module in the network.
        weight: The place of its weight [out, ...].
        bias: The place of its bias [out]; None if it has none.
    """

    name: str
    weight: Slice
    bias: Slice | None

    def of(self, z: Tensor) -> Tensor:
        """Return the weights in z [*draw, p] as matrices [*draw, out, in], the bias last."""
        parts = [self.weight.of(z).flatten(z.ndim)]
        if self.bias is not None:
            parts.append(self.bias.of(z)[..., None])
        return torch.cat(parts, -1)

    def put(self, z: Tensor, W: Tensor) -> None:
        """Write matrices [*draw, out, in] into z [*draw, p]."""
        if self.bias is not None:
            z[..., self.bias.start : self.bias.stop] = W[..., -1]
            W = W[..., :-1]
        z[..., self.weight.start : self.weight.stop] = W.flatten(-2)

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        """Return what the weights multiply, [row, position, in]."""
        if isinstance(module, nn.Conv2d):
            a = unfold(_padded(module, x), module.kernel_size, module.dilation, 0, module.stride).mT
        else:
            a = x.reshape(len(x), -1, x.shape[-1])
        if self.bias is None:
            return a
        return torch.cat([a, a.new_ones(*a.shape[:-1], 1)], -1)


def _padded(module: nn.Conv2d, x: Tensor) -> Tensor:
    """Return images [row, channel, ...] with the padding of a convolution."""
    if isinstance(module.padding, str):
        sides = module._reversed_padding_repeated_twice
    else:
        high, wide = module.padding
        sides = [wide, wide, high, high]
    mode = module.padding_mode
    return pad(x, sides, "constant" if mode == "zeros" else mode)


def _slopes(module: nn.Module, g: Tensor) -> Tensor:
    """Return derivatives by the outputs of a layer as [row, position, out]."""
    if isinstance(module, nn.Conv2d):
        return g.flatten(2).mT
    return g.reshape(len(g), -1, g.shape[-1])


def factored(module: nn.Module) -> bool:
    """Return whether a module multiplies its inputs by one matrix."""
    if isinstance(module, nn.Conv2d):
        return module.groups == 1
    return isinstance(module, nn.Linear)


def layers_of(target: Target) -> list[Layer]:
    """Return the Linear and Conv2d layers of a network.

    Raises:
        NotApplicable: If the model is no network.
    """
    prefix, module = require(target.model, NetworkWeights).network_module(target.data.d)
    found = []
    for name, part in module.named_modules():
        weight = target.slices.get(f"{prefix}.{name}.weight" if name else f"{prefix}.weight")
        bias = target.slices.get(f"{prefix}.{name}.bias" if name else f"{prefix}.bias")
        if factored(part) and weight is not None:
            found.append(Layer(name, weight, bias))
    return found


class KroneckerFactors:
    """The factors of layers at any weights and rows.

    Args:
        curvature: The Gauss-Newton matrix.
        layers: The layers of the network.
    """

    def __init__(self, curvature: CurvatureOfRows, layers: Sequence[Layer]) -> None:
        self.curvature, self.layers = curvature, layers
        self._size: int | None = None

    def at(
        self, z: Tensor, rows: Tensor | None = None, generator: torch.Generator | None = None
    ) -> list[Factors]:
        """Return A [in, in] and G [out, out] of each layer at z [p].

        Args:
            z: The weights.
            rows: The indices of some rows; None for all.
            generator: Of random signs. With it, the sum over the columns of the root of the
                information is replaced by one combination of the columns, which has the same mean.
        """
        data, z = self.curvature.target.data, z.detach()
        if rows is None:
            rows = torch.arange(data.n, device=data.X.device)
        sums, count = [(z.new_zeros(()), z.new_zeros(()))] * len(self.layers), 0.0
        for some in rows.split(self._rows_at_once(z)):
            w = at_rows(data.weights, some)
            each = self._sums(z, data.X[some], w, generator)
            sums = [(A + B, G + H) for (A, G), (B, H) in zip(sums, each, strict=True)]
            count += len(some) if w is None else float(w.sum())
        return [(A / count, G) for A, G in sums]

    def _rows_at_once(self, z: Tensor) -> int:
        """Return the number of rows at which the layers hold few enough numbers."""
        if self._size is None:
            # a stream of its own: the units that drop out here are not those of the caller's seed
            stream = seeded(0, z.device)
            with torch.enable_grad(), stream, self._recorded() as recorded:
                self.curvature.functions(z, self.curvature.target.data.X[:1])
            numbers = 1
            for layer, (module, calls) in zip(self.layers, recorded, strict=True):
                numbers += sum(layer.inputs(module, a).numel() + s.numel() for a, s in calls)
            self._size = max(1, AT_ONCE // numbers)
        return self._size

    def _sums(
        self, z: Tensor, X: Tensor, weights: Tensor | None, generator: torch.Generator | None
    ) -> list[Factors]:
        """Return for some rows the sum of a a' per position, and the sum of g g'."""
        with torch.enable_grad(), self._recorded() as recorded:
            f = self.curvature.functions(z.detach().requires_grad_(), X)
            metric = self.curvature.metric(z, f.detach(), weights)
            outputs = [s for _, calls in recorded for _, s in calls]
            slopes = [
                iter(torch.autograd.grad(f, outputs, v.mT, True, materialize_grads=True))
                for v in directions(metric, generator)
            ]
        found = []
        for layer, (module, calls) in zip(self.layers, recorded, strict=True):
            n_out, n_in = layer.of(z).shape
            A, G = z.new_zeros(n_in, n_in), z.new_zeros(n_out, n_out)
            positions, first = 0, 0
            for x, _ in calls:
                a = layer.inputs(module, x)
                left = a
                if weights is not None:
                    left = _of_call(weights, first, len(a))[:, None, None] * a
                A += left.flatten(0, 1).mT @ a.flatten(0, 1)
                for each in slopes:
                    g = _slopes(module, next(each)).flatten(0, 1)
                    G += g.mT @ g
                positions, first = positions + a.shape[0] * a.shape[1], first + len(a)
            found.append((A * (len(X) / max(1, positions)), G))
        return found

    @contextmanager
    def _recorded(self) -> Iterator[list[tuple[nn.Module, list[Call]]]]:
        """Record the inputs and outputs of each call of each layer inside the block."""
        target = self.curvature.target
        _, network = require(target.model, NetworkWeights).network_module(target.data.d)
        with ExitStack() as stack:
            yield [
                stack.enter_context(_calls_of(network.get_submodule(layer.name)))
                for layer in self.layers
            ]


@contextmanager
def _calls_of(module: nn.Module) -> Iterator[tuple[nn.Module, list[Call]]]:
    """Record the inputs and outputs of each call of a module inside the block."""
    calls: list[Call] = []

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append((inputs[0].detach(), output))
        return output.clone()  # an activation may change its input in place

    hook = module.register_forward_hook(record)
    try:
        yield module, calls
    finally:
        hook.remove()


def _of_call(weights: Tensor, first: int, count: int) -> Tensor:
    """Return the weights [count] of the rows of a call, ``first`` rows after the first call's."""
    if count > len(weights):  # several rows of the layer for each row
        return weights.repeat_interleave(count // len(weights))
    return weights[(first + torch.arange(count, device=weights.device)) % len(weights)]


def directions(metric: Tensor, generator: torch.Generator | None) -> list[Tensor]:
    """Return vectors v [n, K] whose sum of v v' is the metric [n, K, K], or has it as its mean.

    Args:
        metric: Positive semidefinite matrices.
        generator: Of random signs of the columns of a root, which are then added up.
    """
    if metric.shape[-1] == 1:
        return [metric[..., 0].clamp_min(0.0).sqrt()]
    values, vectors = torch.linalg.eigh(metric)
    root = vectors * values.clamp_min(0.0).sqrt()[..., None, :]
    if generator is None:
        return list(root.unbind(-1))
    heads = torch.randint(2, root.shape[:-1], generator=generator, device="cpu")
    return [(root * (2.0 * heads - 1.0).to(root)[:, None, :]).sum(-1)]
