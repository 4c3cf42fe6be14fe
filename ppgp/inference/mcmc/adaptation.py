"""What chains learn while they warm up: the shape of the posterior, from all chains together, in windows of doubling length."""

from __future__ import annotations

import torch
from torch import Tensor

from ...target.target import Target
from ..optimise.laplace import laplace_frame

DENSE_UP_TO = 200  # dimensions of a full covariance; beyond, its diagonal
FIRST_WINDOW = (
    75  # transitions before the shape is first learnt; each window after is twice as long
)


def preconditioner(target: Target, z: Tensor) -> dict[str, Tensor]:
    """``origin`` and ``root`` of the Laplace approximation, and empty ``moments``: count, sum, sum of outer products (or squares)."""
    p = target.dim
    if p <= DENSE_UP_TO:
        with target.same_noise(0):
            origin, root = laplace_frame(target, z[0])
        return {"origin": origin, "root": root, "moments": z.new_zeros(1 + p + p * p)}
    return {
        "origin": z[0].clone(),
        "root": torch.ones_like(z[0]),
        "moments": z.new_zeros(1 + 2 * p),
    }


def apply(root: Tensor, w: Tensor) -> Tensor:
    """root w for rows w [chain, p]; a root [p] is a diagonal."""
    return w * root if root.ndim == 1 else w @ root.mT


def apply_transpose(root: Tensor, g: Tensor) -> Tensor:
    """root' g for rows g [chain, p]."""
    return g * root if root.ndim == 1 else g @ root


def gather(state: dict[str, Tensor]) -> None:
    """Count where the chains stand."""
    centred = state["z"] - state["origin"]  # against the cancellation of large means
    second = centred.mT @ centred if state["root"].ndim == 2 else centred.square().sum(0)
    count = centred.new_full((1,), float(len(centred)))
    state["moments"] = state["moments"] + torch.cat([count, centred.sum(0), second.reshape(-1)])


def learn_root(state: dict[str, Tensor]) -> None:
    """Take the shape of what was gathered, pulled towards its diagonal the more the fewer rows there are, and start anew."""
    moments, p = state["moments"], state["z"].shape[-1]
    count, total, second = moments[0], moments[1 : 1 + p], moments[1 + p :]
    least = torch.finfo(moments.dtype).tiny
    if state["root"].ndim == 1:
        state["root"] = ((second - total.square() / count) / (count - 1)).clamp_min(least).sqrt()
    else:
        covariance = (second.reshape(p, p) - torch.outer(total, total) / count) / (count - 1)
        diagonal = covariance.diagonal().clamp_min(least)
        keep = count / (count + 5.0 * p)
        root, failed = torch.linalg.cholesky_ex(
            keep * covariance + (1 - keep) * torch.diag(diagonal)
        )
        state["root"] = root if int(failed) == 0 else torch.diag(diagonal.sqrt())
    state["moments"] = torch.zeros_like(moments)


def window_ends(quiet: int) -> set[int]:
    """The transitions, out of the first ``quiet``, after which the shape is learnt."""
    ends, end, length = set(), 0, FIRST_WINDOW
    while end + length <= quiet:
        end += length
        length *= 2
        ends.add(end if end + length <= quiet else quiet)
    return ends
