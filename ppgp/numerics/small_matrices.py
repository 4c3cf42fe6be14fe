"""Products of many small matrices whose own axes come first: [s, s, *many].

Each product is a few operations on long contiguous vectors, in place of one call of a matrix
library per small matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def product(A: Tensor, B: Tensor) -> Tensor:
    """Return A B for A [s, k, *many] and B [k, q, *many]."""
    total = A[:, 0, None] * B[0]
    for k in range(1, len(B)):
        total = torch.addcmul(total, A[:, k, None], B[k])
    return total


def _ranges(blocks: Sequence[int]) -> Iterator[slice]:
    """Yield the rows of each block."""
    start = 0
    for size in blocks:
        yield slice(start, start + size)
        start += size


def block_product(A: Tensor, B: Tensor, blocks: Sequence[int]) -> Tensor:
    """Return A B for A [s, s, *many], which is block-diagonal, and B [s, q, *many]."""
    if len(blocks) == 1:
        return product(A, B)
    return torch.cat([product(A[rows, rows], B[rows]) for rows in _ranges(blocks)])


def blocks_of_product(A: Tensor, B: Tensor, blocks: Sequence[int]) -> Tensor:
    """Return the diagonal blocks of A B, [s, s, *many], and 0 elsewhere."""
    if len(blocks) == 1:
        return product(A, B)
    return block_diagonal([product(A[rows], B[:, rows]) for rows in _ranges(blocks)])


def block_diagonal(matrices: Sequence[Tensor]) -> Tensor:
    """Return a matrix with these square matrices [s_i, s_i, *many] on its diagonal."""
    sizes = [len(block) for block in matrices]
    rows = []
    for i, block in enumerate(matrices):
        before, after = sum(sizes[:i]), sum(sizes[i + 1 :])
        left = block.new_zeros(len(block), before, *block.shape[2:])
        right = block.new_zeros(len(block), after, *block.shape[2:])
        rows.append(torch.cat([left, block, right], 1))
    return torch.cat(rows)


def product_with_transpose(A: Tensor, B: Tensor) -> Tensor:
    """Return A B' for A [s, k, *many] and B [q, k, *many]."""
    return product(A, B.transpose(0, 1))


def product_of_transpose(A: Tensor, B: Tensor) -> Tensor:
    """Return A'B for A [k, s, *many] and B [k, q, *many]."""
    return product(A.transpose(0, 1), B)


def times_vector(A: Tensor, x: Tensor) -> Tensor:
    """Return A x for A [s, k, *many] and x [k, *many]."""
    total = A[:, 0] * x[0]
    for k in range(1, len(x)):
        total = torch.addcmul(total, A[:, k], x[k])
    return total


def outer(x: Tensor, y: Tensor) -> Tensor:
    """Return x y' for x [s, *many] and y [q, *many]."""
    return x[:, None] * y


def identity(like: Tensor) -> Tensor:
    """Return the identity in the shape of ``like`` [s, s, *many]."""
    eye = torch.eye(len(like), dtype=like.dtype, device=like.device)
    return eye.reshape(*eye.shape, *(1,) * (like.ndim - 2)).expand(like.shape)


def inverse(A: Tensor) -> Tensor:
    """Return the inverses of A [s, s, *many]; not finite where there is none."""
    if len(A) == 1:
        return 1 / A
    inverses = torch.linalg.inv_ex(A.movedim((0, 1), (-2, -1)))[0]
    return inverses.movedim((-2, -1), (0, 1)).contiguous()
