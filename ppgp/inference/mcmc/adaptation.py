"""How chains adapt to the shape of the posterior during the warm-up.

The covariance is estimated from all chains together, in windows of doubling length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...density.target import Target
from ..optimise.expansion import laplace_preconditioner

DENSE_UP_TO = 200  # dimensions with a full covariance; above, it is diagonal
#: Transitions before the covariance is first estimated; each later window is twice as long.
FIRST_WINDOW = 75


def preconditioner(target: Target, z: Tensor) -> dict[str, Tensor]:
    """Return the preconditioner that chains z [chain, p] start with.

    Returns:
        ``origin`` [p] and ``root`` [p, p] of the Laplace approximation, or of a unit normal where
        the density has no gradient; in many dimensions a diagonal ``root`` [p] of ones; and empty
        ``moments``: the count, the sum, and the sum of outer products (or of squares).
    """
    p = target.dim
    if p <= DENSE_UP_TO and target.out_of_torch is not None:
        root = torch.eye(p).to(z)
        return {"origin": z[0].clone(), "root": root, "moments": z.new_zeros(1 + p + p * p)}
    if p <= DENSE_UP_TO:
        with target.same_noise(0):
            origin, root = laplace_preconditioner(target.on_sample, z[0])
        return {"origin": origin, "root": root, "moments": z.new_zeros(1 + p + p * p)}
    return {
        "origin": z[0].clone(),
        "root": torch.ones_like(z[0]),
        "moments": z.new_zeros(1 + 2 * p),
    }


def apply(root: Tensor, w: Tensor) -> Tensor:
    """Return root w for rows w [chain, p]; a root [p] is a diagonal."""
    return w * root if root.ndim == 1 else w @ root.mT


def apply_transpose(root: Tensor, g: Tensor) -> Tensor:
    """Return root' g for rows g [chain, p]."""
    return g * root if root.ndim == 1 else g @ root


def gather(state: dict[str, Tensor]) -> None:
    """Add the current positions of the chains to the moments."""
    centred = state["z"] - state["origin"]  # avoids the cancellation of large means
    second = centred.mT @ centred if state["root"].ndim == 2 else centred.square().sum(0)
    count = centred.new_full((1,), float(len(centred)))
    state["moments"] = state["moments"] + torch.cat([count, centred.sum(0), second.reshape(-1)])


def learn_root(state: dict[str, Tensor]) -> None:
    """Take the root of the covariance of the gathered positions, and empty the moments.

    A full covariance is shrunk towards its diagonal, the more so the fewer positions there are.
    """
    moments, p = state["moments"], state["z"].shape[-1]
    count, total, second = moments[0], moments[1 : 1 + p], moments[1 + p :]
    least = torch.finfo(moments.dtype).tiny
    if state["root"].ndim == 1:
        state["root"] = ((second - total.square() / count) / (count - 1)).clamp_min(least).sqrt()
    else:
        covariance = (second.reshape(p, p) - torch.outer(total, total) / count) / (count - 1)
        diagonal = covariance.diagonal().clamp_min(least)
        keep = count / (count + 5.0 * p)
        shrunk = keep * covariance + (1 - keep) * torch.diag(diagonal)
        root, failed = torch.linalg.cholesky_ex(shrunk)
        if int(failed):
            root = torch.diag(diagonal.sqrt())
        state["root"] = root
    state["moments"] = torch.zeros_like(moments)


def window_ends(transitions: int) -> set[int]:
    """Return the transitions, of the first so many, after which the covariance is estimated."""
    ends: set[int] = set()
    end, length = 0, FIRST_WINDOW
    while end + length <= transitions:
        end += length
        length *= 2
        if end + length > transitions:  # the last window takes what is left
            ends.add(transitions)
        else:
            ends.add(end)
    return ends
