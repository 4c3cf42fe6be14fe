"""Asking a model for a capability: whether it has one, or the error that says what to use.

``capabilities`` lists them.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, TypeVar

from ..errors import NotApplicable

__all__ = ["Capability", "require", "supports"]


class Capability(ABC):
    """Something that a model can do besides its density and its predictions.

    What only some kernels or likelihoods can do is one too, beside their family: ``Markov`` and
    ``Scored``.
    """

    #: what an error states as expected, and what to do without it
    wanted: ClassVar[str]
    advice: ClassVar[str]

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        """Return the error to raise if the options rule the capability out; None otherwise."""
        return None


C = TypeVar("C", bound=Capability)


def supports(model: object, capability: type[Capability]) -> bool:
    """Return whether the model has the capability under its options."""
    return isinstance(model, capability) and model.lacks(capability) is None


def require(model: object, capability: type[C]) -> C:
    """Return the model, typed as the capability.

    Raises:
        NotApplicable: If it lacks the capability; the message says what to use instead.
    """
    if not isinstance(model, capability):
        name = "a Pyro program" if type(model).__name__ == "Program" else type(model).__name__
        raise NotApplicable(capability.wanted, name, capability.advice)
    reason = model.lacks(capability)
    if reason is not None:
        raise reason
    return model
