"""Results that several predictions of one fit share, kept in memory up to a limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from torch import Tensor

from .memory import SMALL, available

LIMIT = 2**29  # bytes kept per fit
SHARE = 0.1  # of the available memory that one result may take

Result = TypeVar("Result", bound=tuple[Tensor, ...])


@dataclass(eq=False, repr=False)
class ResultCache:
    """A small store of tensors that are expensive to compute.

    Several threads may use it at once. A copy and a pickle of it are empty, so that they cost
    nothing.

    Args:
        limit: The bytes that are kept; 0 keeps nothing.
    """

    limit: int = LIMIT
    size: int = field(default=0, init=False)
    _results: dict[Hashable, tuple[Any, tuple[Tensor, ...]]] = field(
        default_factory=dict, init=False
    )
    _lock: Any = field(default_factory=threading.Lock, init=False)

    def get(
        self,
        key: Hashable,
        compute: Callable[[], Result],
        inputs: Mapping[str, Tensor] = MappingProxyType({}),
        alike: bool = False,
    ) -> Result:
        """Return the result for ``key`` and ``inputs``, computed if it is not kept.

        The first results are kept, as far as they fit into the limit and into ``SHARE`` of the
        available memory. That is taken to be ``memory.SMALL`` at least, without a look.

        Args:
            key: A name of the result.
            compute: () -> the result.
            inputs: What the result is computed from. If one of them was replaced or changed in
                place, this is another result.
            alike: Whether other processes compute the result together with this one, so that all
                keep the same ones, whatever memory each has available.
        """
        full = _full(key, inputs)
        kept: Any = self._results.get(full)
        if kept is not None:
            return kept[1]
        result = compute()
        size = sum(tensor.numel() * tensor.element_size() for tensor in result)
        if size > self.limit - self.size:
            return result
        few = alike or size <= SHARE * SMALL
        if few or size <= SHARE * available(result[0].device):
            with self._lock:  # another thread may have kept it, or have filled the store
                if full not in self._results and self.size + size <= self.limit:
                    # while the inputs are held, no other tensor has their addresses
                    self._results[full] = (inputs, result)
                    self.size += size
        return result

    def found(
        self, key: Hashable, inputs: Mapping[str, Tensor] = MappingProxyType({})
    ) -> tuple[Tensor, ...] | None:
        """Return the result that is kept for ``key`` and ``inputs``, or None; see ``get``."""
        entry = self._results.get(_full(key, inputs))
        return None if entry is None else entry[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return ResultCache, (self.limit,)


def _full(key: Hashable, inputs: Mapping[str, Tensor]) -> Hashable:
    """Return the key together with the addresses and the versions of the inputs."""
    return (key, *((name, t.data_ptr(), t.shape, t._version) for name, t in inputs.items()))
