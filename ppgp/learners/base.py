"""The interface of all learners.

A learner is a record of options. ``begin`` starts a fit to the rows X [n, d]; ``add`` then fits K
outputs to K columns of targets, once per stage; ``tensors`` returns all stages as plain tensors, of
which ``predict`` is a pure function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..arguments import named_arguments
from ..errors import NotApplicable, NumericalError, SettingError
from ..numerics.finite import all_finite
from ..priors import with_plain_fields
from ..runtime.seeding import permutation

Tensors = Mapping[str, Tensor]


class Growing(ABC):
    """One fit in progress: the stages so far.

    Stage m depends only on X, the seed, m, its targets and its weights, and not on earlier stages.
    A fit that was killed continues bit-equal: ``begin`` it with the same arguments and ``restore``
    the tensors that ``tensors(torch.ones(m))`` returned after m stages.
    """

    @property
    @abstractmethod
    def stages(self) -> int:
        """The number of stages so far."""

    @abstractmethod
    def add(self, g: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Fit one more stage by least squares.

        Args:
            g: [K, n], the targets of the K outputs.
            weights: [K, n], the weight of each squared error; None: 1.

        Returns:
            The K outputs at the n rows, and at the rows held out: [K, n] and [K, v], or None if
            no rows are held out.

        Raises:
            NumericalError: If g or weights are not finite, or a weight is negative.
        """

    @abstractmethod
    def tensors(self, steps: Tensor) -> dict[str, Tensor]:
        """Return the first ``len(steps)`` stages, of which stage m is multiplied by ``steps[m]``.

        Args:
            steps: [stages], at most as many as there are stages.
        """

    @abstractmethod
    def restore(self, tensors: Tensors) -> None:
        """Take up the stages of ``tensors(torch.ones(m))`` of an equal fit, in place of its own.

        Args:
            tensors: What ``tensors`` returned.
        """


@named_arguments
class Learner(ABC):
    """A regression of K outputs [K, n] on X [n, d]: the base learner of boosting.

    Friedman (2001), algorithm 1. Outputs are in the units of the targets that it is given. A new
    one defines the methods below.

    Attributes:
        takes_missing: Whether X may hold NaN, which stands for a missing value.
        takes_categories: Whether columns of X may hold codes of categories.

    Raises:
        TypeError: If a subclass does not define the methods.

    Examples:
        Two stages, of which a prediction is the sum, here with a tenth of the second one:

        >>> import torch
        >>> from ppgp import learners
        >>> line = learners.Linear(penalty=0.0)
        >>> X = torch.tensor([[0.0], [1.0], [2.0]])
        >>> growing = line.begin(X, outputs=1)
        >>> at_rows, _ = growing.add(torch.tensor([[1.0, 3.0, 5.0]]))
        >>> at_rows, _ = growing.add(torch.tensor([[0.0, 1.0, 2.0]]))
        >>> stages = growing.tensors(torch.tensor([1.0, 0.1]))
        >>> line.predict(stages, X).round(decimals=4)
        tensor([[1.0000, 3.1000, 5.2000]])
    """

    takes_missing: ClassVar[bool] = False
    takes_categories: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert numbers to Python's; a subclass with its own ``__post_init__`` calls it first."""
        with_plain_fields(self)

    def bytes_per_stage(self, n: int, d: int) -> float:
        """Return the approximate number of bytes of one stage of one output, for n rows [n, d]."""
        return 0.0

    def check_storable(self) -> None:  # noqa: B027  most learners have nothing to refuse
        """Check that the tensors of a fit are all that a file needs.

        Raises:
            NotApplicable: If they are not.
        """

    def knowing(self, X: Tensor) -> Learner:
        """Return the learner for fits to parts of some rows.

        ``begin`` is then called with parts of them, and the learner may use what it knows of all
        rows: ``Trees`` lets no split depend on how far a row is from the next. The default is the
        learner itself.

        Args:
            X: [n, d], all rows.
        """
        return self

    @abstractmethod
    def begin(
        self,
        X: Tensor,
        outputs: int,
        *,
        valid: Tensor | None = None,
        rows: float = 1.0,
        seed: int = 0,
        categorical: tuple[int, ...] = (),
        threads: int = 1,
    ) -> Growing:
        """Start a fit.

        Args:
            X: [n, d], the rows.
            outputs: The number K of outputs.
            valid: [v, d], rows that are held out of the fit and predicted at every stage.
            rows: The share of the rows, drawn anew at every stage, that the stage is fitted to.
            seed: The seed that every random number follows from.
            categorical: The columns of X that hold codes of categories, 0, 1, 2, ...
            threads: The number of threads, which does not change the result.

        Raises:
            NotApplicable: If the learner needs a library that is not installed.
            NotEnoughMemory: If the fit does not fit in memory.
        """

    @abstractmethod
    def predict(self, tensors: Tensors, X: Tensor, until: int | None = None) -> Tensor:
        """Return the sum of the stages at the rows of X, [K, m].

        Args:
            tensors: What ``Growing.tensors`` returned; leading axes of draws are kept in the
                result.
            X: [m, d], the rows.
            until: How many stages to sum; None: all.
        """

    @abstractmethod
    def staged(self, tensors: Tensors, X: Tensor, every: int = 1) -> Iterator[Tensor]:
        """Yield the sum of the first ``every``, ``2 * every``, ... stages, and of all, [K, m].

        Args:
            tensors: Those of one draw, without leading axes.
            X: [m, d], the rows.
            every: The number of stages between two results.

        Raises:
            SettingError: If the tensors have leading axes and the learner needs those of one draw.
        """

    @abstractmethod
    def importance(self, tensors: Tensors, d: int) -> Tensor:
        """Return the importance of each column for each output, by the learner's measure, [K, d].

        Args:
            tensors: As of ``predict``.
            d: The number of columns of X.

        Raises:
            NotApplicable: If the learner has no measure.
        """


def check_whole(record: Any, name: str, low: int, high: int) -> None:
    """Raise SettingError unless a field is a whole number from ``low`` to ``high``."""
    value = getattr(record, name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        _refuse(record, name, f"a whole number from {low} to {high:,}")


def check_share(record: Any, name: str) -> None:
    """Raise SettingError unless a field is a number in (0, 1]."""
    value = getattr(record, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        _refuse(record, name, "a number above 0 and at most 1")


def check_flag(record: Any, name: str) -> None:
    """Raise SettingError unless a field is True or False."""
    if not isinstance(getattr(record, name), bool):
        _refuse(record, name, "True or False")


def _refuse(record: Any, name: str, expected: str) -> None:
    """Raise SettingError for a field."""
    default = next(field.default for field in fields(record) if field.name == name)
    raise SettingError(
        f"{expected} as {name} of {type(record).__name__}",
        repr(getattr(record, name)),
        f"the default is {default!r}",
    )


def refuse_categories(learner: Learner, categorical: tuple[int, ...]) -> None:
    """Raise NotApplicable if columns hold codes, which the learner would read as numbers."""
    if categorical:
        raise NotApplicable(
            "learners.Trees for columns of codes",
            f"learners.{type(learner).__name__}",
            "use Trees, or one column of 0 and 1 per category",
        )


def check_targets(g: Tensor, weights: Tensor | None) -> None:
    """Raise NumericalError unless targets and weights are finite, and weights not negative."""
    for what, values in (("targets", g), ("weights", weights)):
        if values is not None and not all_finite(values):
            raise NumericalError(
                f"finite {what} for a stage of the learner",
                "NaN or infinity",
                "look for outliers and ties in y, use a smaller learning_rate, or give a parameter "
                "of the likelihood as a number",
            )
    if weights is not None and bool((weights < 0).any()):
        raise NumericalError(
            "weights of at least 0", f"{float(weights.min()):.3g}", "use weights='unit'"
        )


def scaled(values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return values [K, n] with each row divided by a power of two, and the K exponents.

    The largest magnitude of a row is then in [1, 2), or 0.
    """
    array = values.detach().cpu().numpy().astype(np.float64, copy=False)
    powers = np.frexp(np.abs(array).max(1))[1] - 1
    return np.ldexp(array, -powers[:, None]), powers


def seed_of(seed: int, stage: int, k: int = 0) -> int:
    """Return the seed of output ``k`` of a stage, below 2^31."""
    numbers = np.random.SeedSequence([abs(seed), stage, k]).generate_state(1)
    return int(numbers[0] % (2**31 - 1))


def drawn_rows(n: int, share: float, seed: int, stage: int) -> Tensor:
    """Return which of n rows a stage is fitted to, [n], at least one."""
    generator = torch.Generator().manual_seed(seed_of(seed, stage))
    drawn = torch.zeros(n, dtype=torch.bool)
    drawn[permutation(generator, n)[: max(1, round(share * n))]] = True
    return drawn


def first_stages(wanted: Tensor | int | None, stages: int) -> int:
    """Return how many of the stages are wanted; None: all.

    Raises:
        SettingError: If there are not so many.
    """
    if wanted is None:
        return stages
    number = len(wanted) if isinstance(wanted, Tensor) else wanted
    if not 0 <= number <= stages:
        raise SettingError(f"at most {stages} stages", f"{number}", "fit more stages")
    return number
