"""Generalised linear models from a formula and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...data.dataset import Dataset
from ...data.entries.arrays import as_pandas
from ...data.formula_design import design_of
from ...errors import SettingError, UnknownName
from ...likelihoods import Gaussian, Likelihood, Ordinal
from ...priors import Normal, PriorLike
from .varying import Varying

WEIGHT = Normal(0.0, 1.0)


def from_formula(
    cls: Any,
    formula: str,
    table: Any,
    likelihood: Likelihood | None = None,
    weight: PriorLike = WEIGHT,
    bias: PriorLike | None = None,
    *,
    groups: Mapping[str, Varying] | None = None,
    effects: str | None = None,
    offset: str | None = None,
    trials: str | None = None,
    weights: str | None = None,
    ids: str | None = None,
) -> tuple[Any, Dataset]:
    """Return a GLM and the Dataset of a formula: ``model, data = GLM.from_formula(...)``.

    The formula is in Wilkinson's notation as formulaic reads it: "y ~ x + C(z)", "log(y) ~ x * z",
    "y ~ bs(x, df=4)", and "y ~ ." for all other columns without a role. formulaic is the extra
    ``ppgp[formula]``. Its expressions are Python code: do not evaluate a formula that you do not
    trust.

    ``predict`` of a fit to the Dataset takes tables with the variables of the formula: categories
    have the levels of the training rows, and functions such as ``center`` their constants.
    ``data.design(table)`` makes these columns. A file of a posterior holds no formula, so that
    ``predict`` of a loaded one takes ``data.design(table)``.

    Args:
        cls: GLM.
        formula: "target ~ terms". A formula without intercept ("- 1") fixes the bias to 0, and
            ``fit`` then needs ``standardise=False``.
        table: A pandas DataFrame.
        likelihood: As of ``GLM``; None: Gaussian.
        weight: As of ``GLM``.
        bias: As of ``GLM``.
        groups: As of ``GLM``: {column of the table: Varying(...)}, whose terms are columns of the
            design.
        effects: As of ``GLM``.
        offset: The column of the offset of the linear predictor.
        trials: The column of the numbers of trials.
        weights: The column of the frequency weights.
        ids: The column with the names of the rows.

    Returns:
        The model and the Dataset.

    Raises:
        NotApplicable: If formulaic is not installed.
        SettingError: If the formula cannot be read, has not one target or no terms, or if a bias is
            given beside a formula without an intercept.
        UnknownName: If the table lacks a column.
        DataError: If the table is no DataFrame, or a variable has missing values.
    """
    roles = {"offset": offset, "trials": trials, "weights": weights, "ids": ids}
    named = {role: name for role, name in roles.items() if name is not None}
    others = (*named.values(), *(groups or {}))
    table = as_pandas(table)
    columns = getattr(table, "columns", others)
    for name in others:
        if name not in columns:
            raise UnknownName("column", str(name), map(str, columns))
    design, inputs, target, name = design_of(formula, table, others)
    law = Gaussian() if likelihood is None else likelihood
    if not design.intercept and not isinstance(law, Ordinal):
        if bias is not None:
            do = "leave out '- 1' in the formula"
            raise SettingError("no bias beside a formula without an intercept", repr(bias), do)
        bias = 0.0
    data = Dataset(
        inputs.to_numpy(dtype=float),
        target,
        feature_names=design.names,
        target_name=name,
        groups={one: table[one] for one in groups} if groups else None,
        role_names=named,
        **{role: table[column].to_numpy() for role, column in named.items()},
    )
    options = {} if groups is None else {"groups": groups, "effects": effects}
    return cls(law, weight, bias, **options), data.with_design(design)
