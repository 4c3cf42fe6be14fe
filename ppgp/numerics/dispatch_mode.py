"""The base of what watches the operations of torch inside a block."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchMode"]


class DispatchMode(TorchDispatchMode):
    """A mode of torch whose first use does not import torch._dynamo.

    The import takes 1.5 s and sets an environment variable.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing compiles ``__torch_dispatch__``."""
        return False
