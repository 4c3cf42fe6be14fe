"""Optimisers of torch that do not import its compiler, which takes two seconds.

Torch hides some of their methods from the compiler, and imports it to do so. No step of this
package is compiled by it. Where a version of torch hides nothing, these are its own classes.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

__all__ = ["Adagrad", "Adam"]

Kind = TypeVar("Kind", bound=Optimizer)
HIDDEN = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def _seen(method: Any) -> Any:
    """Return what a method is before it is hidden."""
    return getattr(method, "__wrapped__", method)


def _without_compiler(kind: type[Kind]) -> type[Kind]:
    """Return a class of optimisers whose methods are as they are written."""
    methods: dict[str, Any] = {name: _seen(getattr(kind, name)) for name in HIDDEN}
    methods["step"] = torch.no_grad()(_seen(kind.step))
    own: Any = type(kind.__name__, (kind,), {"__module__": __name__, **methods})
    return own


#: Kingma & Ba (2015)
Adam: type[torch.optim.Adam] = _without_compiler(torch.optim.Adam)
#: Duchi, Hazan & Singer (2011)
Adagrad: type[torch.optim.Adagrad] = _without_compiler(torch.optim.Adagrad)
