"""Errors and warnings of the library.

Every error message states what was expected, what was given, and what the user can do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .display.wording import an as an
from .display.wording import counted as counted
from .display.wording import counted_are as counted_are
from .display.wording import listed as listed
from .display.wording import nearest as nearest
from .display.wording import own_class as own_class


class PpgpError(Exception):
    """The base class of all errors of this library.

    The message is "expected ..., got ...: ...".

    Attributes:
        expected: What the library expected.
        got: What it was given.
        do: What the user can do about it.

    Examples:
        >>> import ppgp
        >>> try:
        ...     ppgp.priors.Normal(0.0, -1.0)
        ... except ppgp.errors.PpgpError as error:
        ...     print(error.expected, "/", error.got, "/", error.do)
        a positive number as scale of Normal / -1.0 / change it
    """

    def __init__(self, expected: str, got: str = "", do: str = "") -> None:
        # Pyro's trace raises an error again by its class and one text, the message with the shapes
        whole = not (got or do)
        super().__init__(expected if whole else f"expected {expected}, got {got}: {do}")
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
    """The data cannot be used: they hold NaN or text, have a wrong shape, or have no rows.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [1.0, 2.5, 3.0])
        >>> ppgp.fit(models.GLM(likelihoods.Poisson()), data, inference.MAP(), progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.DataError: expected counts 0, 1, 2, ... in y, got 2.5 in row 1: choose another
        likelihood, or round y
    """


class SettingError(PpgpError, ValueError):
    """An option has a value outside its range.

    Examples are a level of 95, a negative scale, or a mini-batch larger than the data.

    Examples:
        >>> from ppgp import priors
        >>> priors.Uniform(2.0, 1.0)
        Traceback (most recent call last):
            ...
        ppgp.errors.SettingError: expected low < high in Uniform, got low=2.0, high=1.0: swap or
        widen them
    """


class UnknownName(PpgpError, LookupError):
    """A name is not in the list of known names.

    The message shows the list and the most similar name in it.

    Args:
        kind: What the name is of, in the singular, such as "link".
        name: The name that is unknown.
        known: The known names.

    Examples:
        >>> from ppgp import likelihoods
        >>> likelihoods.Bernoulli(link="problt")
        Traceback (most recent call last):
            ...
        ppgp.errors.UnknownName: expected the name of a link, got 'problt': did you mean 'probit'?
        known: logit, probit
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        near = nearest(str(name), known)  # a user may pass a number in place of a name
        hint = "known"
        if near is not None:
            hint = f"did you mean {near!r}? known"
        super().__init__(
            f"the name of {an(kind)}", repr(name), f"{hint}: {', '.join(known) or 'none'}"
        )


class UnknownArgument(UnknownName, TypeError):
    """A constructor has no argument of this name; the message offers the most similar one.

    Examples:
        It is a TypeError too, as Python's own error of an unknown argument is:

        >>> from ppgp import priors
        >>> priors.Normal(scal=2.0)
        Traceback (most recent call last):
            ...
        ppgp.errors.UnknownArgument: expected the name of an argument of Normal, got 'scal': did you
        mean 'scale'? known: loc, scale
    """


class NotApplicable(PpgpError, TypeError):
    """The operation is impossible for this model; the message names one that supports it.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [1.0, 2.5, 3.0])
        >>> ppgp.fit(models.GP(), data, inference.Exact(), progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.NotApplicable: expected a model with a closed-form posterior, got GP: use NUTS,
        or Laplace for an approximation
    """


class NotKnown(NotApplicable, AttributeError):
    """The object does not have the requested quantity.

    It is an AttributeError too, so that ``hasattr`` returns False and ``getattr`` its default.

    Examples:
        Draws in closed form have no mode, at which the criterion is computed:

        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [1.0, 2.5, 3.0])
        >>> posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
        >>> hasattr(posterior, "bic"), hasattr(posterior, "log_evidence")
        (False, True)
        >>> posterior.bic
        Traceback (most recent call last):
            ...
        ppgp.errors.NotKnown: expected a mode to compute the bic at, got Exact: fit by MAP or
            Laplace
    """

    def __init__(self, expected: str, got: str, do: str) -> None:
        super().__init__(expected, got, do)
        self.obj = None  # Python offers attributes of it with similar names, such as aic for bic


class StorageError(PpgpError, ValueError):
    """A file cannot be read or written.

    It was not written by this library, needs a class that the library may not load, or the
    operating system refuses to write it.

    Examples:
        >>> from pathlib import Path
        >>> import ppgp
        >>> Path("notes.txt").write_text("not a posterior")
        15
        >>> ppgp.load_posterior("notes.txt")
        Traceback (most recent call last):
            ...
        ppgp.errors.StorageError: expected a saved posterior, got notes.txt, another kind of file:
            ...
    """


class NumericalError(PpgpError, ArithmeticError):
    """A computation failed; the message names the rows or hyperparameters at fault.

    Examples:
        With the inverse link the mean is 1 / f, and a search cannot begin at f = -1:

        >>> import torch
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> likelihood = likelihoods.Gamma(shape=2.0, link="inverse")
        >>> model = models.GLM(likelihood, weight=priors.Flat(), bias=priors.Flat())
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
        >>> how, weight_and_bias = inference.MAP("newton"), torch.tensor([0.0, -1.0])
        >>> ppgp.fit(model, data, how, init=weight_and_bias, progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.NumericalError: expected a start where the density is finite, got one where it
        is not, such as eta <= 0 with the inverse link: pass another init, or use another link
    """


class ImproperPosterior(NumericalError):
    """The posterior density does not integrate to a finite number, so it cannot be sampled.

    Gelman et al. (2013), section 2.8.

    Examples:
        Counts that are all 0 do not bound the log of the rate from below, nor does a flat prior:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> model = models.GLM(likelihoods.Poisson(), weight=0.0, bias=priors.Flat())
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0, 0, 0])
        >>> ppgp.fit(model, data, inference.Laplace(), progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.ImproperPosterior: expected a proper posterior, got a density that does not fall
        however far bias goes: ...
    """


class NotEnoughMemory(PpgpError, MemoryError):
    """The computation needs more memory than is available.

    The message gives both amounts and says what would fit.

    Examples:
        >>> import numpy as np
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> rows = np.arange(1_000_000.0)
        >>> data = ppgp.Dataset(rows[:, None], rows)
        >>> ppgp.fit(models.GP(), data, inference.MAP(), progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.NotEnoughMemory: expected at most ... for the covariance of 1,000,000 rows, the
        memory that there is, got 72 TB: fit SKI(kernel), ...
    """


class LostRank(PpgpError, ConnectionError):
    """A process of a team has ended, or does not answer in time; the message names its rank.

    Args:
        ranks: The numbers of the lost processes; empty if they are not known.
        size: The number of processes of the team.
        step: How many steps of the fit were complete; None if it is not known.
        checkpoint: The file from which the same call continues; None if there is none.

    Examples:
        >>> from ppgp.errors import LostRank
        >>> error = LostRank([1], 2).at(step=100, checkpoint="fit.checkpoint")
        >>> print(error)
        expected an answer from all 2 ranks, got none from rank 1 after step 100: start all
            processes
        again: they continue from fit.checkpoint
        >>> error.ranks, error.step
        ([1], 100)
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
    """The base class of all warnings of this library.

    Examples:
        A script stops at any of them if they are errors:

        >>> import warnings
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [4.0]], [1.0, 2.5, 3.0, 3.5])
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", ppgp.errors.PpgpWarning)
        ...     ppgp.fit(models.GP(), data, inference.MAP(steps=1), progress=False)
        Traceback (most recent call last):
            ...
        ppgp.errors.ConvergenceWarning: the search ended after ...
    """


class DataWarning(PpgpWarning):
    """The data can be used, but something in them should be checked.

    Examples:
        >>> import warnings
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> X = [[1.0, 7.0], [2.0, 7.0], [4.0, 7.0]]
        >>> data = ppgp.Dataset(X, [1.0, 2.0, 3.0], ["dose", "batch"])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     posterior = ppgp.fit(
        ...         models.LinearRegression(), data, inference.Exact(), progress=False
        ...     )
        >>> [(one.category.__name__, str(one.message)) for one in caught]
        [('DataWarning', 'column batch of X constant: centred, not scaled; ...')]
    """


class NumericalWarning(PpgpWarning):
    """A computation needed a remedy, such as jitter or eager evaluation.

    The message states the remedy and its size.

    Examples:
        >>> import warnings
        >>> import ppgp
        >>> from ppgp import models
        >>> data = ppgp.Dataset([[0.0]] * 10 + [[1.0]] * 10, [1.0] * 10 + [2.0] * 10)
        >>> model = models.SGPR(inducing=5, selection="conditional_variance")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     ready = model.prepare(data)
        >>> print(caught[0].category.__name__, caught[0].message)
        NumericalWarning 2 inducing inputs were placed where 5 were asked for: ...
        >>> len(ready.Z)
        2
    """


class StorageWarning(PpgpWarning):
    """An intermediate file could not be written; the computation continues without it.

    Examples:
        A run that shall stop where its checkpoint cannot be written makes an error of the warning.
        Here the file could be written:

        >>> import warnings
        >>> from pathlib import Path
        >>> import ppgp
        >>> from ppgp import errors, inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [4.0]], [1.0, 2.5, 3.0, 3.5])
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", errors.StorageWarning)
        ...     posterior = ppgp.fit(
        ...         models.GP(), data, inference.MAP(), progress=False, checkpoint="run.checkpoint"
        ...     )
        >>> Path("run.checkpoint").is_file()
        True
    """


class ConvergenceWarning(PpgpWarning):
    """An inference method stopped before its result can be trusted.

    Examples:
        ``posterior.warnings`` has the same sentences:

        >>> import warnings
        >>> import ppgp
        >>> from ppgp import inference, models
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [4.0]], [1.0, 2.5, 3.0, 3.5])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     posterior = ppgp.fit(models.GP(), data, inference.MAP(steps=1), progress=False)
        >>> [one.category.__name__ for one in caught]
        ['ConvergenceWarning']
        >>> posterior.warnings == (str(caught[0].message),)
        True
        >>> print(posterior.warnings[0])
        the search ended after ... raise steps, or check the priors
    """
