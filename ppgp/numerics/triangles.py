"""Products and solves with lower triangular matrices that skip the zeros.

A product takes the rows in blocks, each with the columns up to its diagonal: little more than half
the arithmetic of a full product. A solve has its right-hand side on the left of the matrix, where
BLAS reads tensors in row-major memory without a copy and returns such a tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn.functional import pad

__all__ = [
    "between_inverses",
    "inverse_of_product",
    "lower_half",
    "lower_times",
    "solved",
    "solved_transposed",
    "transposed_times",
]

BLOCK = 256  # rows; products of fewer are slower than the zeros they skip
SMALL = 128  # rows of a triangle that one solve inverts
#: rows from which several threads invert faster by products than by LAPACK's ``potri``, which runs
#: no faster on two threads than on one
BY_PRODUCTS = 500


def _blocks(m: int) -> list[tuple[int, int]]:
    """Return the first row of each block, and the row after its last."""
    return [(i, min(i + BLOCK, m)) for i in range(0, m, BLOCK)]


def lower_times(W: Tensor, X: Tensor) -> Tensor:
    """Return W X [..., m, b] of a lower triangular W [..., m, m] and X [..., m, b]."""
    parts = [W[..., i:j, :j] @ X[..., :j, :] for i, j in _blocks(W.shape[-1])]
    return _below_one_another(parts)


def transposed_times(W: Tensor, X: Tensor) -> Tensor:
    """Return W' X [..., m, b] of a lower triangular W [..., m, m] and X [..., m, b]."""
    parts = [W[..., i:, i:j].mT @ X[..., i:, :] for i, j in _blocks(W.shape[-1])]
    return _below_one_another(parts)


def lower_half(X: Tensor, Y: Tensor) -> Tensor:
    """Return the lower triangle of X Y' [..., m, m], of X and Y [..., m, b].

    What lies above the diagonal is not meant to be read: some of it is zero.
    """
    m = X.shape[-2]
    parts = [pad(X[..., i:j, :] @ Y[..., :j, :].mT, (0, m - j)) for i, j in _blocks(m)]
    return _below_one_another(parts)


def _below_one_another(parts: list[Tensor]) -> Tensor:
    """Return blocks of rows as one matrix; a single block without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, -2)


def solved(L: Tensor, B: Tensor) -> Tensor:
    """Return L^-1 B [..., m, b] of a lower triangular L [..., m, m]."""
    return torch.linalg.solve_triangular(L.mT, B.mT, upper=True, left=False).mT


def solved_transposed(L: Tensor, B: Tensor) -> Tensor:
    """Return L^-T B [..., m, b] of a lower triangular L [..., m, m]."""
    return torch.linalg.solve_triangular(L, B.mT, upper=False, left=False).mT


def between_inverses(L: Tensor, S: Tensor) -> Tensor:
    """Return X = L^-T S L^-1 [..., m, m], symmetric, of a symmetric S given by its lower triangle.

    With L and S in blocks, [[L1, 0], [L2, L3]] and [[S1, .], [S2, S3]], L'X L = S reads

        X3 = L3^-T S3 L3^-1,
        X2 = T L1^-1 with T = L3^-T S2 - X3 L2,
        X1 = L1^-T (S1 - T'L2 - L2'T - L2'X3 L2) L1^-1.

    Both triangular solves of the whole would take twice the arithmetic.

    Args:
        L: [..., m, m], lower triangular.
        S: [..., m, m], of which only the lower triangle is read.
    """
    m = L.shape[-1]
    if m <= BLOCK:
        whole = S.tril() + S.tril(-1).mT
        X = solved_transposed(L, solved_transposed(L, whole).mT)
        return 0.5 * (X + X.mT)
    h = m // 2
    L1, L2, L3 = L[..., :h, :h], L[..., h:, :h], L[..., h:, h:]
    X3 = between_inverses(L3, S[..., h:, h:])
    inner = X3 @ L2
    T = solved_transposed(L3, S[..., h:, :h]) - inner
    shared = (T + 0.5 * inner).mT @ L2
    X1 = between_inverses(L1, S[..., :h, :h] - shared - shared.mT)
    X2 = torch.linalg.solve_triangular(L1, T, upper=False, left=False)
    return torch.cat([torch.cat([X1, X2.mT], -1), torch.cat([X2, X3], -1)], -2)


def inverse_of_product(L: Tensor) -> Tensor:
    """Return (L L')^-1 [..., m, m] in row-major memory, of a lower triangular L [..., m, m].

    It comes from LAPACK, or with several threads and no derivatives from products of blocks.
    """
    m = L.shape[-1]
    plain = L.ndim == 2 and L.device.type == "cpu" and not is_functorch_wrapped_tensor(L)
    followed = torch.is_grad_enabled() and L.requires_grad
    if not plain or followed or m < BY_PRODUCTS or torch.get_num_threads() == 1:
        return torch.cholesky_inverse(L).mT
    M = _inverse(L)
    out = L.new_empty(m, m)
    for i in range(0, m, SMALL):
        j = min(i + SMALL, m)
        torch.mm(M[i:, i:j].mT, M[i:, :j], out=out[i:j, :j])
        out[:i, i:j] = out[i:j, :i].mT
    return out


def _inverse(L: Tensor) -> Tensor:
    """Return L^-1 [m, m] of a lower triangular L, in rows and columns up to the diagonal.

    Blocks of ``SMALL`` rows above the diagonal are not set.
    """
    inverse, half = torch.empty_like(L, memory_format=torch.contiguous_format), _half(len(L))
    scratch = L.new_empty(half * (len(L) - half))
    eye = torch.eye(min(SMALL, len(L)), dtype=L.dtype, device=L.device)

    def invert(L: Tensor, out: Tensor) -> None:
        m = len(L)
        if m <= SMALL:
            out.copy_(torch.linalg.solve_triangular(L, eye[:m, :m], upper=False))
            return
        h = _half(m)
        first, last, below = out[:h, :h], out[h:, h:], L[h:, :h]
        invert(L[:h, :h], first)
        invert(L[h:, h:], last)
        product = scratch[: h * (m - h)].view(m - h, h)
        for i in range(0, h, SMALL):
            torch.mm(below[:, i:], first[i:, i : i + SMALL], out=product[:, i : i + SMALL])
        for i in range(0, m - h, SMALL):
            j = min(i + SMALL, m - h)
            torch.mm(last[i:j, :j], product[:j], out=out[h + i : h + j, :h])
        out[h:, :h].neg_()

    invert(L, inverse)
    return inverse


def _half(m: int) -> int:
    """Return about half of m, a multiple of ``SMALL``."""
    return SMALL * ((m + SMALL) // (2 * SMALL))
