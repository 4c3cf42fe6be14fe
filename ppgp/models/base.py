"""The interface of every model, and how its sites become Pyro statements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, TypeVar, cast

import pyro
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from ..data.dataset import Dataset, Scaler
from ..errors import NotApplicable, Renamed, SettingError, an, counted, take_renamed_method
from ..likelihoods.target_checks import distinct
from ..numerics.blocks import law_by_rows
from ..priors import Param, Site, in_units_of_data, value_of, with_plain_numbers
from .sites import Theta, draw

M = TypeVar("M", bound="Model")


class Model:
    """A recipe: priors and structure, frozen; no data, no mode, no fitted tensors. Plain Pyro accepts it.

    A new model gives ``sites``, and ``distribution`` where its rows are independent given theta; otherwise ``model`` and
    ``predict`` themselves. ``theta`` is ``{site: [draw, *event]}``. What only some models can do is a class of
    ``target.capabilities`` that they inherit too.
    """

    #: what may be standardised: "Xy", "X" (counts, classes), "y" (no inputs) or "" (where units mean something)
    scales: ClassVar[str] = "Xy"
    #: whether ``Dataset.noise_sd`` is part of the law of y: then predict and gaussian take the ``noise_sd`` [m] of new rows too
    known_noise: ClassVar[bool] = False
    #: sites that predict integrates out in closed form when their params are there
    collapsed: ClassVar[tuple[str, ...]] = ()
    #: sites that are the values of a latent function: their joint mode with its hyperparameters is no fit
    latent_values: ClassVar[tuple[str, ...]] = ()
    #: whether the posterior density has one mode under the priors that the model is used with
    one_mode: ClassVar[bool] = False
    #: what the density of y is where all hyperparameters are numbers: "log_evidence", "elbo" (a lower bound on it), or None
    density_at_numbers: str | None = "log_evidence"
    #: rows that are enough to see which sites there are; None: all rows at once, as their law is one
    survey: int | None = None

    #: the recipe as it was given, which ``prepare`` made this one from; None: this one
    given: ClassVar[Model | None] = None
    #: the rows that ``prepare`` made it ready for, on their scale, and the Scaler that made that; None: it was not made ready
    made_for: ClassVar[tuple[Dataset, Scaler | None] | None] = None
    #: whether numbers and inducing inputs are on the scale of the model already, as in the recipe of a posterior: ``fit`` takes
    #: them as they stand
    standardised = False

    def __post_init__(self) -> None:
        """Called first by a ``__post_init__`` of one's own."""
        with_plain_numbers(self)

    def __repr__(self) -> str:
        names = [f.name for f in fields(cast(Any, self)) if f.repr]
        if not self.standardised and "standardised" in names:
            names.remove("standardised")
        options = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({options})"

    def sites(self, d: int) -> Mapping[str, Site | Param]:
        """{name: Site} for inputs of d columns."""
        raise NotImplementedError

    def in_units(self, scaler: Scaler) -> Model:
        """This recipe on the scale that the scaler makes of the data. What is in their units, a number or a prior inside
        ``InUnitsOfData``, is put on that scale; other priors are on it already.

        Raises:
            SettingError: if something has no equivalent there, or the model does not say what units its sites have.
        """
        written = (
            [f.name for f in fields(self) if "PriorLike" in str(f.type)]
            if is_dataclass(self)
            else []
        )
        given = [name for name in written if in_units_of_data(getattr(self, name))]
        if given and not scaler.identity:
            do = "write in_units for it, or pass standardise=False to fit"
            raise SettingError(
                f"{an(type(self).__name__)} that says what unit {given[0]} has",
                "no method in_units",
                do,
            )
        return self

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        """Draws {site: [chain, draw, *event]} in the units of the data; None where they have no equivalent."""
        return dict.fromkeys(draws)

    def prepare(self, data: Dataset) -> Model:
        """This recipe made ready for these data; raises where they do not fit it."""
        return self

    def check(self, data: Dataset) -> None:
        """Raises where these data do not fit it, as ``prepare`` does; overridden where that is work."""
        self.prepare(data)

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """{site: value} where a search begins; sites left out begin in the middle of the unconstrained scale."""
        return {}

    def step_scales(self, theta: Theta) -> dict[str, Tensor]:
        """{param: what counts as a step of each of its coordinates} near one draw theta; 1 for what is left out."""
        return {}

    def chunked(self, data: Dataset) -> bool:
        """Whether the density goes over rows in chunks so large that there is nothing to gain by compiling."""
        return False

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Sentences on what a fit has made of the model; [] where nothing is wrong."""
        return []

    def check_identifiability(self, data: Dataset) -> list[str]:
        """Sentences on what these data cannot determine under these priors; [] where there is nothing."""
        return []

    def relabel(self, draws: dict[str, Tensor]) -> tuple[dict[str, Tensor], str | None]:
        """Draws {site: [chain, draw, *event]} with labels made comparable, and a sentence if that changed any."""
        return draws, None

    def work(self, n: int, d: int) -> float:
        """About how many multiplications one evaluation of the density takes on n rows of d columns.

        The number of threads follows from it (``numerics.threads``), so the order of magnitude is
        enough: each number of a site counts once per row, that of a convolution once per pixel.
        """
        shapes = [s.shape for s in self.sites(d).values()]
        return n * (d * d + sum(math.prod(s) * (d if len(s) == 4 else 1) for s in shapes))

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Raises NotEnoughMemory where one evaluation of the density on n rows at once, with its gradient, does not fit; ``like`` has
        the dtype and the device."""

    law = Renamed("distribution")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        take_renamed_method(cls, "law", "distribution")

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        """The law of each y given theta, batch [*draw, n]: the likelihood, row by row."""
        raise NotImplementedError

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        """The Pyro program: X [n, d], y [n]; ``total`` is the number of rows that a mini-batch was taken from."""
        theta = draw(self.sites(X.shape[-1]), X)
        with pyro.plate("rows", total or len(X), subsample=X):
            return pyro.sample("y", self.distribution(theta, X), obs=y)  # type: ignore[arg-type]

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        """The law of y at X, batch [draw, n]; ``joint``: batch [draw], event [n]."""
        draws = max((len(value) for value in theta.values() if value.ndim), default=1)
        law = (
            self.distribution(theta, X)
            if joint
            else law_by_rows(lambda rows: self.distribution(theta, rows), X, draws)
        )
        law = law if len(law.batch_shape) == 2 else law.expand(torch.Size([1, len(X)]))
        return Independent(law, 1) if joint else law

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """{"y": log p(y_i given theta), [draw, n]}."""
        return {"y": self.predict(theta, data.X, data).log_prob(data.y)}

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        """theta[name], or the number that this recipe fixes the field ``name`` to."""
        prior = getattr(self, name)
        return value_of(theta, name, 0.0 if prior is None else prior, like)


def as_given(model: Model) -> Model:
    """The recipe before it was made ready for a table: what any fit to other rows starts from."""
    return model if model.given is None else model.given


def made_from(ready: M, recipe: Model, rows: tuple[Dataset, Scaler | None] | None = None) -> M:
    """``ready`` with the recipe that it was made from and the rows that it was made for in its memory; neither its fields nor ``==``
    know of them. ``rows`` None: those of the recipe."""
    if ready is not recipe:
        object.__setattr__(ready, "given", as_given(recipe))
        object.__setattr__(ready, "made_for", recipe.made_for if rows is None else rows)
    return ready


def full_batch_only(model: Model, X: Tensor, total: int | None, instead: str) -> None:
    """Refuse a mini-batch where the likelihood is one joint law of all rows.

    Raises:
        NotApplicable: naming what can be mini-batched.
    """
    if total is not None and total != len(X):
        raise NotApplicable(
            f"all {total} rows at once for {type(model).__name__}",
            f"a mini-batch of {len(X)}",
            instead,
        )


def with_fixed(
    model: Model, draws: Theta, shapes: Mapping[str, tuple[int, ...]], like: Tensor
) -> list[Tensor]:
    """The sites of ``shapes`` as [chain, draw, *shape], one fixed to a number in every draw alike."""
    every = next((v.shape[:2] for v in draws.values()), torch.Size([1, 1]))
    found = []
    for name, shape in shapes.items():
        value = model.value(draws, name, like)
        found.append(value if name in draws else value.expand(*every, *shape))
    return found


def linear(weight: Tensor, bias: Tensor, X: Tensor) -> Tensor:
    """X weight + bias, [*draw, n], from weight [*draw, d] (or one number for all) and bias [*draw]."""
    return weight.expand(*weight.shape[:-1], X.shape[-1]) @ X.mT + bias[..., None]


def check_labels(model: Model, data: Dataset, classes: int) -> None:
    """Refuse targets that are not the codes 0 .. classes - 1.

    Raises:
        SettingError: naming the values found.
    """
    values, shown = distinct(data)
    if any(v not in range(classes) for v in values) or (
        data.classes is not None and len(data.classes) > classes
    ):
        raise SettingError(
            f"labels {' and '.join(map(str, range(classes)))} in y for {type(model).__name__}",
            f"{counted(len(values), 'value')}: {shown}",
            "recode y to those labels, or choose a model for such targets",
        )
