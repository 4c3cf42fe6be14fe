"""Use given values in place of the parameters of a network.

``pyro.module`` and ``PyroModule`` call ``pyro.param`` for each parameter and ignore what it
returns: the network computes with its own. Here each operation of torch on such a parameter
receives the value instead, and the network itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode


class NetworkParams(TorchFunctionMode):
    """Inside the block, operations on the parameters that were ``put`` see their values."""

    def __init__(self) -> None:
        super().__init__()
        # the parameter is kept beside its value, so that no other object gets its id
        self._values: dict[int, tuple[Parameter, Tensor]] = {}

    def put(self, parameter: Parameter, value: Tensor) -> None:
        """Use the value in place of the parameter."""
        self._values[id(parameter)] = parameter, value

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*self._with_values(args), **self._with_values(dict(kwargs or {})))

    def _with_values(self, given: Any) -> Any:
        if isinstance(given, Parameter):
            return self._values.get(id(given), (None, given))[1]
        if type(given) in (tuple, list):
            return type(given)(map(self._with_values, given))
        if type(given) is dict:
            return {key: self._with_values(each) for key, each in given.items()}
        return given
