"""Cholesky factors with jitter and explained failures."""

from __future__ import annotations

import math
import re

import torch
from jaxtyping import Float
from torch import Tensor

from ..display.user_warnings import warn
from ..errors import NumericalError, NumericalWarning, listed
from .shapes import broadcast_shapes

LADDER = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)  # jitter, relative to the mean of the diagonal
JITTER = 1e-8  # relative to the mean of the diagonal of Kmm, for inducing inputs that coincide
JITTER_SINGLE = 1e-4  # the same in float32, whose rounding error is 1e-7
LOG_2PI = math.log(2 * math.pi)
#: what torch says of a matrix without a factor or an inverse
NO_FACTOR = re.compile(
    r"^(RuntimeError: )?(torch\.)?(linalg\.)?\w+: .*(because the input|division by zero)",
    re.MULTILINE,
)


def lacks_factor(error: BaseException) -> bool:
    """Return whether an error says that a matrix has no factor or no inverse.

    Eagerly this is ``torch.linalg.LinAlgError``; TorchScript raises a RuntimeError that holds the
    message.
    """
    if isinstance(error, torch.linalg.LinAlgError):
        return True
    if type(error) is not RuntimeError:
        return False
    return bool("TorchScript interpreter" in str(error) and NO_FACTOR.search(str(error)))


def cholesky(
    C: Float[Tensor, "*batch n n"], what: str = "covariance"
) -> Float[Tensor, "*batch n n"]:
    """Compute the lower Cholesky factor of a matrix, with jitter where it is needed.

    A matrix that is not positive definite gets increasing jitter on its diagonal, and a
    NumericalWarning states the amount. The jitter is relative to the mean of the diagonal. In a
    batch, only the matrices that fail get it.

    Args:
        C: [*batch, n, n], symmetric matrices.
        what: What the matrix is called in messages.

    Returns:
        [*batch, n, n], the lower triangular factors.

    Raises:
        NumericalError: If the largest jitter does not suffice; the message names duplicate rows or
            the lengthscale.
    """
    return cholesky_and_jitter(C, what)[0]


def cholesky_and_jitter(
    C: Float[Tensor, "*batch n n"], what: str = "covariance"
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch"]]:
    """Compute the factor of ``cholesky``, and the jitter that it holds.

    Args:
        C: See ``cholesky``.
        what: See ``cholesky``.

    Returns:
        The factors of C + jitter I, and the jitter [*batch], 0 where none was needed.

    Raises:
        NumericalError: See ``cholesky``.
    """
    L, info = torch.linalg.cholesky_ex(C)
    if not bool(info.any()):
        return L, C.new_zeros(C.shape[:-2])
    scale, failed = C.diagonal(dim1=-2, dim2=-1).mean(-1), info
    for relative in LADDER[1:]:
        jitter = torch.where(info != 0, relative * scale, torch.zeros_like(scale))
        diagonal = torch.diag_embed(jitter.unsqueeze(-1).expand(C.shape[:-1]))
        trial, failed = torch.linalg.cholesky_ex(C + diagonal)
        if not bool(failed.any()):
            added = float(jitter.max())
            warn(
                f"the {what} was not positive definite; {added:.3g} ({relative:g} of its mean "
                "diagonal) was added to the diagonal",
                NumericalWarning,
            )
            return trial, jitter
    worst = C.reshape(-1, *C.shape[-2:])[int(failed.reshape(-1).argmax())]
    raise NumericalError(
        f"a positive definite {what}",
        f"one that fails even with {LADDER[-1]:g} of its mean diagonal added",
        _remedy(worst.detach()),
    )


def _remedy(C: Float[Tensor, "n n"]) -> str:
    """Return why a matrix is not positive definite and what to do about it."""
    if not bool(torch.isfinite(C).all()):
        bad = torch.nonzero(~torch.isfinite(C).all(1)).flatten().tolist()
        verb = "is" if len(bad) == 1 else "are"
        return f"its {listed(bad, 'row')} {verb} not finite; check X there and the hyperparameters"
    d = C.diagonal()
    if bool((d <= 0).any()):
        bad = torch.nonzero(d <= 0).flatten().tolist()
        return f"entries {bad[:5]} of its diagonal are not positive; a variance must be"
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
    """Return the Cholesky factor of C, or NaN throughout where C is not positive definite.

    A sampler treats NaN as a divergence. A zero left on the diagonal would make the inverse raise.
    """
    L, info = torch.linalg.cholesky_ex(C)
    # a product, so that gradients are NaN too
    return L * torch.where(info == 0, 1.0, math.nan)[..., None, None].to(L)


def inducing_root(Kmm: Tensor) -> Tensor:
    """Return L of Kmm with its jitter, or NaN where there is none.

    A sampler treats NaN as a divergence.
    """
    return factor_or_nan(jittered(Kmm))


def jittered(Kmm: Tensor) -> Tensor:
    """Return Kmm with jitter on its diagonal, which can only loosen the bound."""
    relative = JITTER if Kmm.dtype == torch.float64 else JITTER_SINGLE
    diagonal = Kmm.diagonal(dim1=-2, dim2=-1)
    diagonal = diagonal + relative * diagonal.mean(-1)[..., None]
    return torch.diagonal_scatter(Kmm, diagonal, dim1=-2, dim2=-1)


def add_diagonal(K: Float[Tensor, "*b n n"], value: Tensor) -> Float[Tensor, "*batch n n"]:
    """Return K + diag(value).

    ``value`` and the diagonal [*batch, n] broadcast, so that one K may serve several values.
    """
    return K + torch.diag_embed(value.expand(broadcast_shapes(value.shape, K.shape[:-1])))


def at_least_rounding(variance: Tensor, prior: Tensor) -> Tensor:
    """Return the variance [*b, m] of f, or the rounding error of its prior variance if larger.

    A prior variance can be 0, such as that of Linear at the origin. The least result is the
    smallest normal number.

    Args:
        variance: [*b, m], a difference from the prior variance.
        prior: [*b, m].
    """
    numbers = torch.finfo(prior.dtype)
    return torch.maximum(variance, (prior * numbers.eps).clamp_min(numbers.tiny))
