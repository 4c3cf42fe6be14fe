"""Cholesky that explains its failures, and the Gaussian log density of exact GPs with its own gradient."""

from __future__ import annotations

import math
import warnings

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NumericalError, NumericalWarning, listed

LADDER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)  # jitter, relative to the mean of the diagonal
LOG_2PI = math.log(2 * math.pi)


def cholesky(
    C: Float[Tensor, "*batch n n"], what: str = "covariance"
) -> Float[Tensor, "*batch n n"]:
    """Lower Cholesky factor; a matrix that fails gets a growing jitter on its diagonal, and a warning says how much.

    The jitter is relative (a fraction of the mean of the diagonal), and in a batch only the matrices that fail get it.

    Raises:
        NumericalError: if the largest jitter does not suffice; the message names duplicate rows or the lengthscale.
    """
    L, info = torch.linalg.cholesky_ex(C)
    if not bool(info.any()):
        return L
    scale, failed = C.diagonal(dim1=-2, dim2=-1).mean(-1), info
    for relative in LADDER[1:]:
        jitter = torch.where(info != 0, relative * scale, torch.zeros_like(scale))
        trial, failed = torch.linalg.cholesky_ex(
            C + torch.diag_embed(jitter.unsqueeze(-1).expand(C.shape[:-1]))
        )
        if not bool(failed.any()):
            added = float(jitter.max())
            warnings.warn(
                f"the {what} was not positive definite; {added:.3g} ({relative:g} of its mean diagonal) was added to the diagonal",
                NumericalWarning,
                stacklevel=2,
            )
            return trial
    worst = C.reshape(-1, *C.shape[-2:])[int(failed.reshape(-1).argmax())]
    raise NumericalError(
        f"a positive definite {what}",
        f"one that fails even with {LADDER[-1]:g} of its mean diagonal added",
        _diagnose(worst.detach()),
    )


def _diagnose(C: Float[Tensor, "n n"]) -> str:
    if not bool(torch.isfinite(C).all()):
        bad = torch.nonzero(~torch.isfinite(C).all(1)).flatten().tolist()
        verb = "is" if len(bad) == 1 else "are"
        return f"its {listed(bad, 'row')} {verb} not finite; check X there and the hyperparameters"
    d = C.diagonal()
    if bool((d <= 0).any()):
        return f"entries {torch.nonzero(d <= 0).flatten().tolist()[:5]} of its diagonal are not positive; a variance must be"
    correlation = C / torch.sqrt(d[:, None] * d[None, :])
    n = len(C)
    off = correlation[~torch.eye(n, dtype=torch.bool, device=C.device)]
    if float(off.min()) > 0.999:
        return (
            "all rows look the same to the kernel; its lengthscale is far too long for these inputs"
        )
    twins = torch.nonzero(torch.triu(correlation > 1 - 1e-10, diagonal=1))
    if len(twins):
        pairs = ", ".join(f"{i} and {j}" for i, j in twins[:3].tolist())
        return f"rows {pairs} are duplicates; give the model some noise, or merge them"
    return "raise the noise, or shorten the lengthscale"


def factor_or_nan(C: Tensor) -> Tensor:
    """The Cholesky factor, NaN throughout where there is none, which a sampler takes for a divergence: a zero left on its diagonal
    would make the inverse raise."""
    L, info = torch.linalg.cholesky_ex(C)
    return L * torch.where(info == 0, 1.0, math.nan)[..., None, None].to(
        L
    )  # a product, so that gradients are NaN too


class _GaussianLogDensity(torch.autograd.Function):
    """log N(r; 0, C) with d/dC = (a a' - C^-1) / 2 and d/dr = -a, a = C^-1 r.

    One Cholesky and one inverse from it, n^3 flops in all; differentiating through the Cholesky costs about three
    times as much. Where gradients of the gradient are asked for, the backward pass recomputes from C, so that the
    second derivatives are right too.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(C: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        L, info = torch.linalg.cholesky_ex(C)
        # NaN on the diagonal alone, where factor_or_nan would read and write the whole matrix: all that follows is NaN
        L.diagonal(dim1=-2, dim2=-1).mul_(torch.where(info == 0, 1.0, math.nan)[..., None].to(L))
        w = torch.linalg.solve_triangular(L, r.unsqueeze(-1), upper=False)
        a = torch.linalg.solve_triangular(L.mT, w, upper=True).squeeze(
            -1
        )  # cholesky_solve would copy L
        half_log_det = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        value = -0.5 * w.square().sum((-2, -1)) - half_log_det - 0.5 * r.shape[-1] * LOG_2PI
        return value, L, a

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        C, r = inputs
        _, L, a = output
        ctx.mark_non_differentiable(L, a)
        ctx.save_for_backward(C, r, L, a)

    @staticmethod
    def backward(ctx, grad, _grad_L, _grad_a):  # type: ignore[no-untyped-def]
        C, r, L, a = ctx.saved_tensors
        if torch.is_grad_enabled():
            inverse = torch.cholesky_inverse(factor_or_nan(C))
            a = (inverse @ r.unsqueeze(-1)).squeeze(-1)
        else:
            inverse = torch.cholesky_inverse(L)
        if inverse.ndim == 2:  # one pass over the matrix instead of three
            slope = torch.addr(inverse, a, a, beta=-0.5, alpha=0.5)
        else:
            slope = 0.5 * (a.unsqueeze(-1) * a.unsqueeze(-2) - inverse)
        return slope * grad[..., None, None], -a * grad.unsqueeze(-1)


def gaussian_log_density(
    C: Float[Tensor, "*batch n n"], r: Float[Tensor, "*batch n"]
) -> Float[Tensor, "*batch"]:
    """log N(r; 0, C), right to second order; NaN (never an exception) where C is not positive definite.

    Rasmussen & Williams (2006), equations 5.8 and 5.9.
    """
    return _GaussianLogDensity.apply(C, r)[0]  # type: ignore[index]


def add_diagonal(K: Float[Tensor, "*b n n"], value: Tensor) -> Float[Tensor, "*batch n n"]:
    """K + diag(value); ``value`` and the diagonal [*batch, n] broadcast, so that one K may serve several values."""
    return K + torch.diag_embed(value.expand(torch.broadcast_shapes(value.shape, K.shape[:-1])))
