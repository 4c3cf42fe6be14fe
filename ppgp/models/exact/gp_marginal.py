"""The marginal distribution of y under an exact GP, with the slopes of its kernel by formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...distributions.distributions import GPMarginal
from ...kernels import Kernel
from ...kernels.gram_slopes import gram, has_formulas
from ...kernels.row_distances import RowDistances
from ...numerics.cholesky import add_diagonal
from ...numerics.gaussian_log_density import gaussian_log_density, value_and_slopes
from ...priors import Param, Site


def gp_marginal(
    kernel: Kernel,
    theta: Mapping[str, Tensor],
    X: Tensor,
    loc: Tensor,
    noise: Tensor,
) -> GPMarginal:
    """Return N(loc, k(X, X) + diag(noise)), whose density has slopes by formula where it can.

    Args:
        kernel: The kernel.
        theta: {hyperparameter: [*batch, *event]}.
        X: [n, d].
        loc: [n], the mean.
        noise: [*batch, 1] or [*batch, n], the variances of the noise.
    """
    plain = X.dtype == torch.float64 and X.ndim == 2 and loc.ndim == 1 and noise.ndim == 1
    plain = plain and not X.requires_grad  # slopes are in the hyperparameters alone
    sites = kernel.sites(X.shape[-1])
    single = all(value.shape == _shape(sites[name]) for name, value in theta.items())
    if plain and single and has_formulas(kernel):
        return KernelMarginal(loc, Covariance(kernel, tuple(theta), X), (noise, *theta.values()))
    return GPMarginal(loc, add_diagonal(kernel(theta, X), noise))


def _shape(s: Site | Param) -> torch.Size:
    return torch.Size(s.shape) if isinstance(s, Site) else s.value.shape


@dataclass(frozen=True)
class Covariance:
    """k(X, X) + diag(noise) as a function of (noise, *hyperparameters).

    Args:
        kernel: The kernel.
        names: Of its hyperparameters.
        X: [n, d].
    """

    kernel: Kernel
    names: tuple[str, ...]
    X: Tensor

    def __call__(self, noise: Tensor, *values: Tensor) -> Tensor:
        """Return the covariance, [n, n], which torch can differentiate."""
        theta = dict(zip(self.names, values, strict=True))
        return add_diagonal(self.kernel(theta, self.X), noise)

    def density(
        self, r: Tensor, noise: Tensor, *values: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return log N(r; 0, covariance) and its slopes in r, the noise and the values."""
        theta = dict(zip(self.names, values, strict=True))
        found = gram(self.kernel, theta, RowDistances(self.X))
        # K may be the memory of a hyperparameter where it has one entry, and it is the same for
        # all points of a vmap where it has no hyperparameters
        in_place = len(r) > 1 and bool(self.names)
        value, W, a = value_and_slopes(found.K, noise, r, in_place)
        each = W.diagonal()
        of_noise = each.clone() if len(noise) > 1 else each.sum().reshape(1)
        slopes = found.slopes(W, True)  # last, as it overwrites W
        return value, (-a, of_noise, *(slopes[name] for name in self.names))


class KernelMarginal(GPMarginal):
    """The distribution of ``gp_marginal`` by formula.

    Args:
        loc: [n], the mean.
        covariance: The covariance as a function.
        arguments: The noise [1] or [n] and the hyperparameters.
        validate_args: Whether to check arguments, as in torch.
    """

    def __init__(
        self,
        loc: Tensor,
        covariance: Covariance,
        arguments: Sequence[Tensor],
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.covariance, self.arguments = loc, covariance, tuple(arguments)
        super(GPMarginal, self).__init__(torch.Size(), loc.shape[-1:], validate_args=validate_args)

    @cached_property
    def covariance_matrix(self) -> Tensor:
        return self.covariance(*self.arguments)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inputs = (value - self.loc, *self.arguments)
        # torch.jit.trace, by which Pyro compiles, knows no function with a backward pass of its own
        if inputs[0].ndim > 1 or not torch.is_grad_enabled() or torch.jit.is_tracing():
            return super().log_prob(value)
        outputs: Any = _LogDensity.apply(self.covariance, *inputs)
        return outputs[0]


class _LogDensity(torch.autograd.Function):
    """The density with the slopes that are computed beside it.

    Where second derivatives are requested, torch differentiates the density itself.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(covariance: Covariance, r: Tensor, *arguments: Tensor) -> Any:
        value, slopes = covariance.density(r, *arguments)
        return value, *slopes

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.covariance = inputs[0]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[1:], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        count = len(ctx.saved_tensors) // 2
        inputs, slopes = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        if torch.is_grad_enabled():
            value = gaussian_log_density(ctx.covariance(*inputs[1:]), inputs[0])
            free = [x for x in inputs if x.requires_grad]
            found = torch.autograd.grad(value, free, create_graph=True, materialize_grads=True)
            own = iter(found)
            slopes = [next(own) if x.requires_grad else torch.zeros_like(x) for x in inputs]
        return None, *(grad_outputs[0] * slope for slope in slopes)
