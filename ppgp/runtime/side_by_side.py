"""Independent pieces of one computation, side by side in Python threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from .threads import at_most, threads_allowed

#: multiplications of all pieces together from which a second thread pays: some 10 ms
PAYS_FROM = 1e8

Piece = TypeVar("Piece")


def side_by_side(
    function: Callable[[Piece], None],
    pieces: Sequence[Piece],
    *,
    work: float,
    at_once: int,
    device: torch.device,
) -> None:
    """Call ``function`` with each piece, in several threads where that is faster.

    Each thread runs torch on one thread. Where matrices are small, this is faster than several
    threads in each operation, which then wait for one another. There is one thread where gradients
    are on, and on a GPU. The results do not depend on the number of threads.

    Args:
        function: Piece -> None. It stores its result, in a place of its own for each piece.
        pieces: The pieces.
        work: The number of multiplications of all pieces together.
        at_once: The number of pieces that fit into memory at once.
        device: Where the function computes.

    Raises:
        Exception: What ``function`` raises at the first piece that fails.
    """
    number = min(at_once, len(pieces), threads_allowed())
    serial = torch.is_grad_enabled() or device.type != "cpu" or work < PAYS_FROM
    if number <= 1 or serial:
        for piece in pieces:
            function(piece)
        return
    inference = torch.is_inference_mode_enabled()

    def one(piece: Piece) -> None:
        # both modes belong to a thread
        with torch.inference_mode(inference), torch.no_grad(), at_most(1):
            function(piece)

    # the request of this thread keeps the caller's setting while those of the others come and go
    with at_most(1), ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(one, piece) for piece in pieces]
        try:
            for future in futures:
                future.result()
        except BaseException:  # Ctrl-C too: the pieces that have not begun are not needed
            pool.shutdown(wait=False, cancel_futures=True)
            raise
