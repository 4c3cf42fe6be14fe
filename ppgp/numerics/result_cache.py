"""Results that several predictions of one fit share, kept in memory up to a limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from torch import Tensor

from .available_memory import available
from .memory import SMALL

LIMIT = 2**29  # bytes kept per fit
SHARE = 0.1  # of the available memory that one result may take


class ResultCache:
    """A small store of tensors that are expensive to compute.

    A copy and a pickle of it are empty, so that they cost nothing.

    Args:
        limit: the bytes that are kept; 0 keeps nothing.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit, self.size = limit, 0
        self._results: dict[Hashable, tuple[Tensor, ...]] = {}

    def get(self, key: Hashable, compute: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Return the result for ``key``, computed if it is not kept.

        The first results are kept, as far as they fit into the limit and into ``SHARE`` of the
        available memory. That is taken to be ``memory.SMALL`` at least, without a look.
        """
        result = self._results.get(key)
        if result is not None:
            return result
        result = compute()
        size = sum(tensor.numel() * tensor.element_size() for tensor in result)
        fits = self.size + size <= self.limit
        if fits and (size <= SHARE * SMALL or size <= SHARE * available(result[0].device)):
            self._results[key] = result
            self.size += size
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return ResultCache, (self.limit,)


def version_of(tensors: Mapping[str, Tensor]) -> Hashable:
    """Return what changes when one of the tensors is replaced or changed in place."""
    return tuple((name, t.data_ptr(), t.shape, t._version) for name, t in tensors.items())
