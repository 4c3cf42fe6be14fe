"""Errors and warnings of the library.

Every error message states what was expected, what was given, and what the user can do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .wording import an as an
from .wording import counted as counted
from .wording import counted_are as counted_are
from .wording import listed as listed
from .wording import nearest as nearest
from .wording import own_class as own_class


class PpgpError(Exception):
    """The base class of all errors of this library.

    The message is "expected ..., got ...: ...".

    Attributes:
        expected: What the library expected.
        got: What it was given.
        do: What the user can do about it.
    """

    def __init__(self, expected: str, got: str, do: str) -> None:
        super().__init__(f"expected {expected}, got {got}: {do}")
        self.expected, self.got, self.do = expected, got, do

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that the error can be sent between processes."""
        return _unpickled, (type(self), self.expected, self.got, self.do)


def _unpickled(kind: type[PpgpError], expected: str, got: str, do: str) -> PpgpError:
    """Return an error of class ``kind`` from the parts of its message."""
    # the __new__ of MemoryError rejects the classes that derive from it and PpgpError
    error = BaseException.__new__(kind)
    PpgpError.__init__(error, expected, got, do)
    return error


class DataError(PpgpError, ValueError):
    """The data cannot be used: they hold NaN or text, have a wrong shape, or have no rows."""


class SettingError(PpgpError, ValueError):
    """An option has a value outside its range.

    Examples are a level of 95, a negative scale, or a mini-batch larger than the data.
    """


class UnknownName(PpgpError, LookupError):
    """A name is not in the list of known names.

    The message shows the list and the most similar name in it.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        near = nearest(name, known)
        hint = "known"
        if near is not None:
            hint = f"did you mean {near!r}? known"
        super().__init__(
            f"the name of {an(kind)}", repr(name), f"{hint}: {', '.join(known) or 'none'}"
        )


class UnknownArgument(UnknownName, TypeError):
    """A constructor has no argument of this name; the message offers the most similar one."""


class NotApplicable(PpgpError, TypeError):
    """The operation is impossible for this model; the message names one that supports it."""


class NotKnown(NotApplicable, AttributeError):
    """The object does not have the requested quantity.

    It is an AttributeError too, so that ``hasattr`` returns False and ``getattr`` its default.
    """


class StorageError(PpgpError, ValueError):
    """A file cannot be read or written.

    It was not written by this library, needs a class that the library may not load, or the
    operating system refuses to write it.
    """


class NumericalError(PpgpError, ArithmeticError):
    """A computation failed; the message names the rows or hyperparameters at fault."""


class ImproperPosterior(NumericalError):
    """The posterior density does not integrate to a finite number, so it cannot be sampled."""


class NotEnoughMemory(PpgpError, MemoryError):
    """The computation needs more memory than is available.

    The message gives both amounts and says what would fit.
    """


class LostRank(PpgpError, ConnectionError):
    """A process of a team has ended, or does not answer in time; the message names its rank.

    Args:
        ranks: The numbers of the lost processes; empty if they are not known.
        size: The number of processes of the team.
        step: How many steps of the fit were complete; None if it is not known.
        checkpoint: The file from which the same call continues; None if there is none.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        size: int,
        step: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.ranks, self.size, self.step, self.checkpoint = list(ranks), size, step, checkpoint
        who = listed(self.ranks, "rank") if ranks else "a rank"
        when = "" if step is None else f" after step {step}"
        do = "call fit, predict and save on every rank; if a process was killed, start all again"
        if checkpoint is not None:
            do = f"start all processes again: they continue from {checkpoint}"
        super().__init__(f"an answer from all {size} ranks", f"none from {who}{when}", do)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.ranks, self.size, self.step, self.checkpoint)

    def at(self, step: int | None = None, checkpoint: str | None = None) -> LostRank:
        """Return the error with the step and the checkpoint of the fit, as far as known."""
        step = self.step if step is None else step
        checkpoint = self.checkpoint if checkpoint is None else checkpoint
        return LostRank(self.ranks, self.size, step, checkpoint)


class PpgpWarning(UserWarning):
    """The base class of all warnings of this library."""


class DataWarning(PpgpWarning):
    """The data can be used, but something in them should be checked."""


class NumericalWarning(PpgpWarning):
    """A computation needed a remedy, such as jitter or eager evaluation.

    The message states the remedy and its size.
    """


class StorageWarning(PpgpWarning):
    """An intermediate file could not be written; the computation continues without it."""


class ConvergenceWarning(PpgpWarning):
    """An inference method stopped before its result can be trusted."""
