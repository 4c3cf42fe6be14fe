"""The base of what watches the operations of torch inside a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchMode", "RecordsCalls"]


class DispatchMode(TorchDispatchMode):
    """A mode of torch whose first use does not import torch._dynamo.

    The import takes 1.5 s and sets an environment variable.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing compiles ``__torch_dispatch__``."""
        return False


class RecordsCalls(DispatchMode):
    """A mode that records operations, and can record the call of a function as one of them.

    Attributes:
        takes_calls: Whether functions may be called in what it records.
    """

    takes_calls = True

    def call(self, function: Callable[..., Any], *tensors: Tensor) -> Any:
        """Return what a function of tensors returns, and record it as one operation."""
        raise NotImplementedError

    def varies(self, x: Tensor) -> bool:
        """Return whether the values of a tensor depend on the arguments or are random."""
        raise NotImplementedError
