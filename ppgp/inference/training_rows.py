"""Training rows that a model cannot take, and recipes of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..data.dataset import Dataset
from ..data.entries.entries import misspelt
from ..data.input_checks import check_inputs
from ..data.roles import refuse_role
from ..data.scaler import Scaler
from ..errors import DataError, NotApplicable, SettingError, counted
from ..models import Model

__all__ = ["check_training_rows", "refuse_another_scale"]

FEWEST_ROWS = 3


def check_training_rows(model: Model, data: Dataset) -> None:
    """Refuse data that a model cannot take: few rows, labels, columns with roles, NaN or codes."""
    if data.total < FEWEST_ROWS:
        raise DataError(
            f"at least {FEWEST_ROWS} rows to fit a model",
            counted(data.total, "sample"),  # the word that scikit-learn's checks look for
            "collect more rows",
        )
    if data.classes is not None and not model.takes_labels:
        _refuse_labels(model, data.classes)
    for name in data.columns_with_roles:
        refuse_role(model, name, f"a Dataset without {name}")
    if data.missing == "keep" and not model.takes_missing:
        check_inputs(data.X, data.feature_names)
    if data.categorical and not model.takes_categories:
        what, name, do = "model", type(model).__name__, ""
        learner = getattr(model, "learner", None)
        if learner is not None:
            what, name = "learner", f"{type(learner).__name__} of {name}"
            do = "use learners.Trees(), or "
        raise NotApplicable(
            f"a {what} that takes columns of codes",
            f"{name}, which would read the codes as numbers",
            f"{do}make one column of 0 and 1 per category: "
            "Dataset.from_frame(categories='one-hot')",
        )


def _refuse_labels(model: Model, classes: Sequence[Any]) -> None:
    """Raise DataError for labels in y and a model of numbers."""
    labels = ", ".join(map(str, classes[:4]))
    if len(classes) > 4:
        labels += ", ..."
    name = type(model).__name__
    do = (
        "use LogisticRegression or GP(likelihood=Bernoulli()) for two classes, SoftmaxRegression "
        "or SVGP(likelihood=Categorical()) for more"
    )
    likelihood = getattr(model, "likelihood", None)
    if likelihood is not None:
        name += f" with likelihood {likelihood!r}"
        do = "pass likelihood=Bernoulli() for two classes or Categorical() for more"
    found = misspelt(classes)
    if found is not None:
        do = found.do
    raise DataError(
        f"numbers in y for {name}", f"the labels {labels}", f"{do}, or a target with numbers"
    )


def refuse_another_scale(model: Model, scaler: Scaler, standardise: bool) -> None:
    """Raise SettingError for the recipe of a posterior and rows of another scale.

    Its numbers were converted with another Scaler.
    """
    if not standardise:
        raise SettingError(
            "a recipe in the units of the data with standardise=False",
            "one on the standardised scale",
            "pass posterior.recipe, which is in the units of the data, "
            "or leave standardise=False out",
        )
    if model.made_for is None:
        return
    before = model.made_for[1]
    if not before.is_identity and not before.like(scaler):
        raise SettingError(
            "posterior.recipe, which is in the units of the data, for other rows than those of "
            "the posterior",
            "posterior.model, whose numbers are on the scale of its own rows",
            "fit posterior.recipe",
        )
