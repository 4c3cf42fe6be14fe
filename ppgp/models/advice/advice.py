"""Which Gaussian process suits a table: ``advise``, and the sentences of errors that name another.

The rules are those of ``suitability``, and the seconds those of ``costs``. Nothing here imports a
model, so that every model can ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...data.dataset import Dataset
from ...errors import DataError, SettingError, an
from ...kernels import Deep, Kernel
from ...kernels.base import check_kernel
from ...kernels.state_space import lacking
from ...likelihoods import Categorical, Gaussian, Likelihood
from ...likelihoods.base import check_is_likelihood
from ...networks.networks import width
from ...numerics.complete_grid import complete_grid
from ...runtime.memory import readable_size
from . import costs
from .suitability import EVERY, EXACT, MOST_ROWS, RULES, TAKE, Facts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Advice", "Option", "advise", "instead_of", "smoothness_of"]

#: what each model is with another likelihood than Gaussian noise
LATENT = {
    "GP": "LatentGP",
    "StateSpaceGP": "LatentStateSpaceGP",
    "Vecchia": "LatentVecchia",
}
ROUGH_LEAVES = ("Exponential", "Spherical", "LinearVariogram")

MOST_NAMED = 3  # models that a sentence names


@dataclass(frozen=True)
class Option:
    """One model in an ``Advice``.

    Attributes:
        model: The name of the class in ``ppgp.models``.
        suits: Whether it suits the data.
        reason: Why, or why not.
        recipe: How it is written, where ``kernel`` stands for a kernel.
        seconds: About how long a fit by MAP takes on one thread (SVGP: by SVI in mini-batches),
            right within a factor of a few; NaN if the model does not apply.
        memory: About how many bytes the fit holds; NaN if the model does not apply.
        exact: Whether it approximates nothing.
    """

    model: str
    suits: bool
    reason: str
    recipe: str
    seconds: float
    memory: float
    exact: bool


@dataclass(frozen=True)
class Advice:
    """The result of ``advise``: the Gaussian processes of this library, the most suitable first.

    It prints as a table.

    Attributes:
        n: The number of rows.
        d: The number of columns.
        options: One per model.
        note: A sentence about y; "" if there is none.
    """

    n: int
    d: int
    options: tuple[Option, ...]
    note: str = ""

    @property
    def suited(self) -> tuple[Option, ...]:
        """The models that suit, the best first: SVGP at least, unless it refuses a column."""
        return tuple(option for option in self.options if option.suits)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per model."""
        import pandas as pd

        return pd.DataFrame([vars(option) for option in self.options]).set_index("model")

    def __str__(self) -> str:
        header = ("model", "suits", "seconds", "memory", "reason")
        rows: list[tuple[str, ...]] = [header]
        for option in self.options:
            suits = "yes" if option.suits else "no"
            took, held = about(option.seconds), "-"
            if not math.isnan(option.memory):
                held = readable_size(option.memory)
            rows.append((option.model, suits, took, held, option.reason))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            "  ".join(entry.ljust(w) for entry, w in zip(row[:4], widths, strict=True))
            + f"  {row[4]}"
            for row in rows
        ]
        lines.append("seconds: about what a fit by MAP takes; of SVGP, by SVI")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)


def about(seconds: float) -> str:
    """Return a rough time in words: "0.2 s", "40 s", "3 min", "5 h", "20 days"; "-" for NaN."""
    if math.isnan(seconds):
        return "-"
    for unit, size, least in (("days", 86400.0, 2.0), ("h", 3600.0, 2.0), ("min", 60.0, 2.0)):
        if seconds >= least * size:
            return f"{_one_digit(seconds / size)} {unit}"
    return f"{_one_digit(seconds)} s"


def _one_digit(number: float) -> str:
    """Return a positive number rounded to one digit, without an exponent."""
    power = math.floor(math.log10(max(number, 1e-3)))
    rounded = round(number / 10.0**power) * 10.0**power
    return f"{rounded:,.{max(0, -power)}f}"


def smoothness_of(kernel: Kernel) -> float:
    """Return the nu of the Matern kernel as rough as this one; infinite for a smooth one.

    A sum is as rough as its roughest term. White counts as noise.
    """
    inner = getattr(kernel, "children", None) or [getattr(kernel, "kernel", None)]
    found = [smoothness_of(child) for child in inner if isinstance(child, Kernel)]
    if found:
        return min(found)
    if type(kernel).__name__ in ROUGH_LEAVES:
        return 0.5
    return float(getattr(kernel, "nu", math.inf))


def advise(
    data: Dataset | None = None,
    *,
    n: int | None = None,
    d: int | None = None,
    likelihood: Likelihood | None = None,
    kernel: Kernel | None = None,
    smoothness: float | None = None,
) -> Advice:
    """Return which Gaussian process suits some data, with the seconds that a fit takes.

    The models are GP, StateSpaceGP (one column; Hartikainen & Sarkka 2010), GridGP (complete
    grids; Saatci 2011), Vecchia (places; Vecchia 1988), SKI (a grid of nodes; Wilson & Nickisch
    2015), SGPR and SVGP (inducing inputs; Titsias 2009, Hensman, Fusi & Lawrence 2013). Exact ones
    come first, then approximations.

    Args:
        data: The table of X [n, d] and y [n]: its rows, columns, labels and the roles of columns,
            and whether its rows form a complete grid. None: pass ``n`` and ``d``.
        n: The number of rows, if there is no table.
        d: The number of columns, if there is no table.
        likelihood: The distribution of y given f; None: Gaussian noise, or for labels that of
            classes.
        kernel: The kernel, which tells the smoothness.
        smoothness: The order nu of the Matern kernel that is as rough as the function, 0.5 to
            infinity (RBF), if there is no kernel. None: not known.

    Returns:
        An Advice, which prints as a table.

    Raises:
        SettingError: If there is neither a table nor n and d, or there are both; for numbers out
            of range; or if ``likelihood`` or ``kernel`` is none.

    Examples:
        >>> import ppgp
        >>> from ppgp import kernels, likelihoods
        >>> [option.model for option in ppgp.advise(n=500, d=8).suited]
        ['GP', 'Vecchia', 'SGPR', 'SVGP']
        >>> counts = ppgp.advise(n=100_000, d=3, likelihood=likelihoods.Poisson())
        >>> [option.model for option in counts.suited]
        ['Vecchia', 'SVGP']
        >>> print(ppgp.advise(n=100_000, d=1, kernel=kernels.Matern(1.5)))
        model         suits  seconds  memory   reason
        StateSpaceGP  yes    3 s      134 MB   exact in O(n)
        Vecchia       yes    50 s     48.8 MB  each row given its 30 nearest: ...
        ...
        GP            no     20 days  720 GB   costs O(n^3): for up to 5,000 rows
        ...
    """
    if (data is None) == (n is None or d is None) or (data is not None and (n or d)):
        raise SettingError(
            "a Dataset, or the numbers n of rows and d of columns",
            f"data={data!r}, n={n!r} and d={d!r}",
            "call advise(data), or advise(n=10_000, d=2)",
        )
    if data is not None and not isinstance(data, Dataset):
        do = "call advise(Dataset(X, y)), or advise(n=10_000, d=2)"
        raise SettingError("a Dataset as data", an(type(data).__name__), do)
    if likelihood is not None:
        check_is_likelihood(likelihood, "likelihoods.Poisson()")
    if smoothness is not None and not smoothness > 0:
        wanted, do = "a smoothness above 0", "for example 1.5, that of Matern(1.5)"
        raise SettingError(wanted, repr(smoothness), do)
    if data is not None:
        facts = _facts_of(data, likelihood)
    else:
        several, gaussian = _kind(likelihood)
        facts = Facts(int(n or 0), int(d or 0), gaussian, several)
    if facts.n < 1 or facts.d < 1:
        got = f"n={n!r} and d={d!r}"
        raise SettingError("at least one row and one column", got, "for example n=10_000, d=2")
    advice = _ranked(_with_kernel(facts, kernel, smoothness))
    if data is not None and likelihood is None and _looks_like_counts(data):
        note = "y holds whole numbers: if they are counts, add likelihood=likelihoods.Poisson()"
        return replace(advice, note=note)
    return advice


def _looks_like_counts(data: Dataset) -> bool:
    """Return whether y holds whole numbers from 0, more than two, and no labels."""
    y = data.y
    if data.classes is not None or y.ndim != 1:
        return False
    whole = bool((y >= 0).all()) and bool((y == y.round()).all())
    return whole and len(y.unique()) > 2


def _with_kernel(facts: Facts, kernel: Kernel | None, smoothness: float | None) -> Facts:
    """Return the facts with those of the kernel."""
    if kernel is None:
        return replace(facts, smoothness=smoothness)
    lacks = lacking(check_kernel(kernel))
    features = width(kernel.network, facts.d) if isinstance(kernel, Deep) else None
    return replace(
        facts,
        features=features,
        smoothness=smoothness_of(kernel) if smoothness is None else smoothness,
        lacks_states=None if lacks is None else lacks.got,
    )


def instead_of(model: str, d: int, n: int | None = None, **known: Any) -> str:
    """Return what to fit in place of a model: "fit GP(kernel), or SVGP(kernel)".

    Args:
        model: The name of the class that does not suit.
        d: The number of columns.
        n: The number of rows; None: the sentence tells few rows from many.
        known: What else ``advise`` takes.
    """
    if n is None:
        few, many = (_first(model, rows, d, 1, known) for rows in (1_000, 100_000))
        if few == many:
            return f"fit {few}"
        return f"fit {few}, or {many} to more than {MOST_ROWS:,} rows"
    return f"fit {_first(model, n, d, MOST_NAMED, known)}"


def _first(model: str, n: int, d: int, most: int, known: dict[str, Any]) -> str:
    """Return the recipes of the models that suit best, apart from one: "A, or B"."""
    suited = advise(n=n, d=d, **known).suited
    recipes = [option.recipe for option in suited if option.model != model]
    return ", or ".join(recipes[:most])


def _kind(likelihood: Likelihood | None) -> tuple[bool, bool]:
    """Return whether it has several functions of x, and whether it is Gaussian noise."""
    several = isinstance(likelihood, Categorical) or bool(getattr(likelihood, "predicted", ()))
    return several, likelihood is None or (isinstance(likelihood, Gaussian) and not several)


def _facts_of(data: Dataset, likelihood: Likelihood | None) -> Facts:
    """Return the facts of a table."""
    several, gaussian = _kind(likelihood)
    if likelihood is None and data.classes is not None:
        several, gaussian = len(data.classes) > 2, False
    try:
        grid = tuple(complete_grid(data.X, [[k] for k in range(data.d)], "").shape)
    except DataError:
        grid = None
    roles = [*data.columns_with_roles]
    if data.missing == "keep" and bool(data.X.isnan().any()):
        roles.append("missing values")
    if data.categorical:
        roles.append("codes of categories")
    return Facts(data.n, data.d, gaussian, several, grid, tuple(roles))


def _ranked(facts: Facts) -> Advice:
    """Return the options, those that suit first, and among them the exact ones, by seconds."""
    options = [_option(name, facts) for name in EVERY]

    def key(option: Option) -> tuple[bool, bool, float]:
        place: float = EVERY.index(option.model)
        if option.exact and option.suits:
            place = option.seconds
        return not option.suits, not option.exact, place

    return Advice(facts.n, facts.d, tuple(sorted(options, key=key)))


def _option(name: str, facts: Facts) -> Option:
    """Return what there is to say of one model."""
    suits, reason = RULES[name](facts)
    if name in LATENT and not facts.gaussian and suits:
        reason = f"{reason}, with f by Laplace's method"
    takers = {role: TAKE.get(role, ()) for role in facts.roles}
    refused = [role for role, models in takers.items() if name not in models]
    if "noise_sd" in facts.roles and not facts.gaussian:
        refused.append("noise_sd")
    if suits and refused:
        suits, reason = False, f"takes no {refused[0]}"
    costed = name if facts.gaussian else LATENT.get(name, name)
    applies = suits or name in ("GP", "SVGP", "SGPR")
    seconds = costs.seconds(costed, facts.n, facts.d) if applies else math.nan
    memory = costs.memory(costed, facts.n, facts.d) if applies else math.nan
    exact = name in EXACT and facts.gaussian
    return Option(name, suits, reason, _recipe(name, facts), seconds, memory, exact)


def _recipe(name: str, facts: Facts) -> str:
    """Return how the model is written."""
    options = "kernel" if facts.gaussian else "kernel, likelihood=..."
    if name == "SVGP":
        return f"SVGP({options}) by SVI(batch_size=1000)"
    if name == "GridGP":
        return "GridGP(kernels)"
    return f"{name}({options})"
