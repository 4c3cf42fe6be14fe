"""The base of what watches or records the operations of torch inside a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchMode"]


class DispatchMode(TorchDispatchMode):
    """A mode of torch whose first use does not import torch._dynamo.

    The import takes 1.5 s and sets an environment variable.

    Attributes:
        records: Whether it records operations, and then the call of a function as one of them.
        takes_calls: Whether functions may be called in what it records.
    """

    records = False
    takes_calls = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing compiles ``__torch_dispatch__``."""
        return False

    def call(self, function: Callable[..., Any], *tensors: Tensor) -> Any:
        """Return what a function of tensors returns, as one operation in what is recorded."""
        return function(*tensors)

    def varies(self, x: Tensor) -> bool:
        """Return whether the values of a tensor may differ where what is recorded runs again."""
        return True
