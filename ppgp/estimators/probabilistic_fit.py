"""What the probabilistic estimators share: rows, the fit, and calibration of its predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..capabilities import BoostedSum
from ..conformal import Score, calibrate
from ..conformal.scores.base import not_a_score
from ..data.columns import name_of, names_of
from ..data.dataset import Dataset
from ..data.entries.arrays import as_pandas
from ..data.roles import refuse_censored, refuse_weights
from ..display.user_warnings import warn
from ..errors import ConvergenceWarning, DataError, PpgpError, SettingError, UnknownName
from ..inference.fitting.fit import fit as fit_posterior
from ..inference.runs import raise_if_interrupted
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..recipes import parsing as recipes
from ..recipes.parsing import with_likelihood
from ..runtime.levels import exact_level
from ..runtime.libraries import settings_unchanged
from ..runtime.process_locks import silenced
from .estimator_inputs import (
    FROM_DTYPE,
    as_codes,
    categorical_places,
    columns_given,
    refuse_text,
    validated,
    with_codes,
)

with settings_unchanged():
    import numpy as np
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted

__all__ = ["ProbabilisticEstimator", "weights_of"]

CALIBRATION = 0.25  # share of the rows that calibrate
FEWEST = 2
SEPARATOR = "__"  # of the names of options inside models and methods
WRAPPED = ("kernel", "children")  # fields through which a wrapper is transparent


def _takes(model: Any, what: str) -> bool:
    """Return whether a model takes "missing" values, or codes of "categories"."""
    return bool(getattr(model, f"takes_{what}", False))


def _checks(model: Any) -> dict[str, Any]:
    """Return what rows are checked for: a model that takes missing values allows NaN."""
    return {
        "dtype": np.float64,
        "ensure_all_finite": "allow-nan" if _takes(model, "missing") else True,
    }


def _halves(data: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Return the rows that calibrate, and those that are fitted."""
    if data.n < FEWEST:
        do = "give more rows, or leave conformal out"
        raise DataError("rows to fit and others to calibrate", f"n_samples={data.n}", do)
    size = min(max(1, math.ceil(CALIBRATION * data.n)), data.n - 1)
    order = np.random.default_rng(seed).permutation(data.n)
    return data.rows(np.sort(order[:size])), data.rows(np.sort(order[size:]))


def _options_in(record: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of the fields of a record and of the records and tuples inside it.

    A model is a frozen record of priors, numbers and other records.
    What a wrapper holds has two paths: ``kernel__kernel__lengthscale`` and ``kernel__lengthscale``.
    """
    if isinstance(record, tuple):
        named = [(str(k), value) for k, value in enumerate(record) if is_dataclass(value)]
    elif is_dataclass(record) and not isinstance(record, type):
        named = [
            (field.name, getattr(record, field.name)) for field in fields(record) if field.init
        ]
    else:
        return
    for name, value in named:
        yield path + name, value
        yield from _options_in(value, path + name + SEPARATOR)
        if path and name in WRAPPED:
            yield from _options_in(value, path)


def _changed(record: Any, path: Sequence[str], value: Any) -> Any:
    """Return a copy of a record with one option changed.

    Args:
        record: A record, or a tuple of records.
        path: The names of the fields, from the outermost in. Wrappers are transparent: the
            lengthscale of ``ARD(RBF())`` is that of the RBF.
        value: The new value; text is read as in ``--set`` of the command line.

    Raises:
        UnknownName: If there is no such option.
    """
    if isinstance(value, str):
        return recipes.changed(record, ".".join(path), value)
    head, rest = path[0], path[1:]
    copy: Any = replace
    if isinstance(record, tuple):
        if not head.isdigit() or int(head) >= len(record):
            raise UnknownName("term", head, map(str, range(len(record))))
        terms = list(record)
        terms[int(head)] = _changed(terms[int(head)], rest, value) if rest else value
        return tuple(terms)
    known = [field.name for field in fields(record)] if is_dataclass(record) else []
    if head in known:
        new = _changed(getattr(record, head), rest, value) if rest else value
        return copy(record, **{head: new})
    for inner in WRAPPED:
        if inner in known:
            return copy(record, **{inner: _changed(getattr(record, inner), path, value)})
    raise UnknownName(f"option of {type(record).__name__}", head, known)


class ProbabilisticEstimator(BaseEstimator):
    """Common part: ``model``, ``likelihood`` and ``how`` are names, recipes, or the records.

    ``get_params`` and ``set_params`` reach into them; a name or a recipe that gets an option
    becomes the record that it stands for.

    Attributes:
        usual: The method of models that have none of their own, where ``how`` is None.
    """

    usual = "map"
    #: a request by this name, which is no argument of every fit, as not every model weighs rows
    __metadata_request__fit = {"sample_weight": None}

    def __init__(
        self,
        model: Any,
        how: Any,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
        likelihood: Any = None,
        level: Any = 0.9,
        conformal: Any = None,
    ) -> None:
        self.model, self.how, self.seed = model, how, seed
        self.categorical_features, self.likelihood = categorical_features, likelihood
        self.level, self.conformal = level, conformal

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(PpgpError):  # a recipe that cannot be read is for ``fit`` to refuse
            tags.input_tags.allow_nan = _takes(self._model(), "missing")
        return tags

    def _records(self) -> Mapping[str, Callable[[], Any]]:
        """Return ``{parameter: () -> record}`` of the parameters that are records."""
        built: dict[str, Callable[[], Any]] = {"model": self._model_alone, "how": self._method}
        if self.likelihood is not None:
            built["likelihood"] = self._likelihood
        return built

    def _model_alone(self, named: Any = None) -> Any:
        """Return the model that is given, or ``named``, with its own likelihood."""
        given = self.model if named is None else named
        return recipes.build_model(given) if isinstance(given, str) else given

    def _likelihood(self) -> Any:
        given = self.likelihood
        return recipes.build_likelihood(given) if isinstance(given, str) else given

    def _method(self, model: Any = None) -> Any:
        """Return the inference method: that given, the model's own, or the usual one."""
        how = self.how
        if how is None:
            name = self.model if isinstance(self.model, str) else ""
            record = self._model_alone() if model is None else model
            # what is no model at all is for ``fit`` to refuse
            own = recipes.own_how(name, record) if hasattr(record, "own_method") else ""
            how = own or self.usual
        return recipes.build_how(how) if isinstance(how, str) else how

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Args:
            deep: Whether to add the options inside models and methods.
        """
        found = super().get_params(deep=deep)
        if not deep:
            return found
        for name, record in self._records().items():
            try:
                built = record()
            except PpgpError:  # a recipe that cannot be read is for ``fit`` to refuse
                continue
            found |= {name + SEPARATOR + path: value for path, value in _options_in(built)}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters, such as ``model__kernel__lengthscale=0.5``, and return the estimator.

        Raises:
            UnknownName: If a model or method has no such option.
        """
        named = self.model
        records = self._records()
        inside = {name: value for name, value in params.items() if SEPARATOR in name}
        super().set_params(**{name: value for name, value in params.items() if name not in inside})
        for name, value in inside.items():
            head, *path = name.split(SEPARATOR)
            if head not in records:
                raise UnknownName("parameter with options", head, records)
            setattr(self, head, _changed(records[head](), path, value))
        became_record = isinstance(named, str) and not isinstance(self.model, str)
        if became_record and "model" not in params and self.how is None:
            # the record does not know the method of the name that it replaces
            self.how = recipes.HOW_OF_MODEL.get(named)
        return self

    def _model(self, named: Any = None) -> Any:
        """Return the model that is given, or ``named``, with its likelihood."""
        given = self.model if named is None else named
        return with_likelihood(self._model_alone(given), self.likelihood, str(given))

    def _rows(self, model: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        """Return the validated rows and targets, after noting the columns of categories."""
        X = as_pandas(X)
        names_of(X)
        places = categorical_places(self.categorical_features, X, _takes(model, "categories"))
        X, self.levels_ = as_codes(X, places)
        if _takes(model, "categories"):
            refuse_text(X, "make it .astype('category'), or name it in categorical_features")
        rows, targets = validated(self, X, y, **_checks(model), **options)
        self.is_categorical_ = np.isin(np.arange(rows.shape[1]), places)
        return rows, targets

    def _table(self, model: Any, X: Any, given: Any, **more: Any) -> Dataset:
        """Return a Dataset with the names that the data frame and the series had."""
        columns = getattr(self, "feature_names_in_", None)
        if columns is not None:
            columns = columns.tolist()
        places = np.flatnonzero(self.is_categorical_).tolist()
        if places:
            more["categorical"] = places
            if len(self.levels_) == len(places):
                more["levels"] = list(self.levels_.values())
        missing = "keep" if _takes(model, "missing") else "refuse"
        more |= {"feature_names": columns, "target_name": name_of(given)}
        return Dataset(X, missing=missing, **more)

    def _fit(self, model: Any, data: Dataset) -> None:
        exact_level(self.level)
        score = self._score()
        left_out = None
        if score is not None:
            refuse_censored(data, "conformal prediction")
            refuse_weights(data, "conformal prediction")
            left_out, data = _halves(data, self.seed)
        how = self._method(model)
        model = deepcopy(model)  # a record keeps results of computations, and ``model`` must not
        with silenced(ConvergenceWarning):  # posterior_.warnings keeps them
            self.posterior_ = fit_posterior(model, data, how, seed=self.seed, progress=False)
        self.calibrator_ = None
        if score is not None and left_out is not None:
            known: Any = self.posterior_.predict(left_out)
            # these rows are known to be new: equal pairs of rows are no sign of the contrary
            known = replace(known.by_row, in_training=None)
            self.calibrator_ = calibrate(score, known, left_out.y)
        if isinstance(model, BoostedSum):  # such as that a method fits no learners
            posterior = self.posterior_
            for sentence in posterior.model.check_fit(posterior.theta, posterior.data):
                warn(sentence, ConvergenceWarning)
        raise_if_interrupted(self.posterior_)  # so that Ctrl-C ends a grid search

    def predict_distribution(
        self, X: Any, *, offset: Any = None, trials: Any = None, groups: Any = None
    ) -> Prediction:
        """Return the predictive distribution of y at the rows of X.

        Args:
            X: Inputs [n, d].
            offset: [n], of the linear predictor, if the fit had one.
            trials: [n], if the fit had them.
            groups: ``{grouping: labels [n]}``, if the fit had them.

        Returns:
            A Prediction, with quantiles, intervals and scores.
        """
        return self._prediction(X, columns_given(offset, trials, groups))

    def _prediction(self, X: Any, columns: Mapping[str, Any], joint: bool = False) -> Prediction:
        """Return the prediction of rows and of their columns with roles."""
        check_is_fitted(self, "posterior_")
        checks = _checks(self.posterior_.model)
        rows = validated(self, with_codes(X, self.levels_), reset=False, **checks)
        return self.posterior_.predict(rows, joint=joint, **columns)

    def _score(self) -> Score | None:
        """Return the conformal score, or None."""
        score = self.conformal
        if isinstance(score, str):
            return recipes.build_score(score)
        if not (score is None or isinstance(score, Score)):
            raise not_a_score(score)
        return score

    def _region(self, X: Any, level: Any, columns: Mapping[str, Any]) -> Region:
        """Return the calibrated sets of new rows, or those of the model alone."""
        predictive = self._prediction(X, columns).by_row
        level = self.level if level is None else level
        if self.calibrator_ is None:
            return self._own_region(predictive, level)
        return self.calibrator_(predictive, level)

    def _own_region(self, predictive: Prediction, level: float) -> Region:
        return predictive.interval(level)


def weights_of(weights: Any, more: Mapping[str, Any]) -> Any:
    """Return the frequency weights of rows: ``weights``, or ``sample_weight`` among ``more``.

    Raises:
        SettingError: If both are given.
        TypeError: If there is anything else.
    """
    for name in more:
        if name != "sample_weight":
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
    given = more.get("sample_weight")
    if given is None:
        return weights
    if weights is not None:
        raise SettingError("weights or sample_weight", "both", "leave one of them out")
    return given
