"""scikit-learn estimators, one per task, around any model and inference method of the library."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from ..data.columns import name_of, names_of
from ..data.dataset import Dataset
from ..errors import ConvergenceWarning, PpgpError, Renamed
from ..inference.fitting import fit as fit_posterior
from ..inference.interrupts import raise_if_interrupted
from ..likelihoods import (
    Exponential,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Weibull,
    ZeroInflated,
)
from ..numerics.libraries import settings_unchanged
from ..numerics.process_locks import silenced
from ..posterior.prediction import Prediction
from ..target.capabilities import BoostedSum
from . import recipes
from .estimator_inputs import (
    FROM_DTYPE,
    as_codes,
    as_labels,
    categorical_places,
    columns_given,
    in_declared_order,
    validated,
    with_codes,
)
from .model_options import with_groups, with_likelihood
from .radial_basis import RBFFeatures

with settings_unchanged():
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

__all__ = ["ProbabilisticClassifier", "ProbabilisticRegressor", "RBFFeatures"]


POSITIVE_OR_COUNTS = (
    *(Exponential, Gamma, LogNormal, Weibull),
    *(NegativeBinomial, Poisson, ZeroInflated),
)


def _takes(model: Any, what: str) -> bool:
    """Return whether a model takes "missing" values, or codes of "categories"."""
    return bool(getattr(model, f"takes_{what}", False))


def _checks(model: Any) -> dict[str, Any]:
    """Return what rows are checked for: a model that takes missing values allows NaN."""
    return {
        "dtype": np.float64,
        "ensure_all_finite": "allow-nan" if _takes(model, "missing") else True,
    }


class _Probabilistic(BaseEstimator):
    """Common part: ``model``, ``likelihood`` and ``how`` are names, recipes, or the records.

    Attributes:
        usual: The method of models that have none of their own, where ``how`` is None.
    """

    usual = "map"

    def __init__(
        self,
        model: Any,
        how: Any,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
        likelihood: Any = None,
    ) -> None:
        self.model, self.how, self.seed = model, how, seed
        self.categorical_features, self.likelihood = categorical_features, likelihood

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(PpgpError):  # a recipe that cannot be read is for ``fit`` to refuse
            tags.input_tags.allow_nan = _takes(self._model(), "missing")
        return tags

    def _model(self, named: Any = None) -> Any:
        """Return the model that is given, or ``named``, with its likelihood."""
        given = self.model if named is None else named
        model = recipes.build_model(given) if isinstance(given, str) else given
        return with_likelihood(model, self.likelihood, str(given))

    def _rows(self, model: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
        """Return the validated rows and targets, after noting the columns of categories."""
        names_of(X)
        places = categorical_places(self.categorical_features, X, _takes(model, "categories"))
        X, self.levels_ = as_codes(X, places)
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
        how = self.how
        if how is None:
            name = self.model if isinstance(self.model, str) else ""
            how = recipes.own_how(name, model) or self.usual
        if isinstance(how, str):
            how = recipes.build_how(how)
        with silenced(ConvergenceWarning):  # posterior_.warnings keeps them
            self.posterior_ = fit_posterior(model, data, how, seed=self.seed, progress=False)
        if isinstance(model, BoostedSum):  # such as that a method fits no learners
            posterior = self.posterior_
            for sentence in posterior.model.check_fit(posterior.theta, posterior.data):
                warnings.warn(sentence, ConvergenceWarning, stacklevel=3)
        raise_if_interrupted(self.posterior_)  # so that Ctrl-C ends a grid search

    predict_law = Renamed("predict_distribution")

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
        check_is_fitted(self, "posterior_")
        checks = _checks(self.posterior_.model)
        rows = validated(self, with_codes(X, self.levels_), reset=False, **checks)
        return self.posterior_.predict(rows, **columns_given(offset, trials, groups))


class ProbabilisticRegressor(RegressorMixin, _Probabilistic):
    """Regression with a predictive distribution.

    NaN is a missing value where the model takes it, as "ngboost" does, and is refused elsewhere.

    Args:
        model: "gp", "linear", "ngboost", "deep-ensemble", another name that ``ppgp list`` prints,
            a recipe such as ``"GP(Matern(1.5))"``, or a model.
        how: The inference method: "map", "laplace", "svi", "nuts", another name that ``ppgp list``
            prints, a recipe, or an inference record. None: the model's own, such as natural
            gradient boosting of "ngboost"; "map" if it has none.
        seed: Seed of every random number.
        categorical_features: The columns that hold categories, for models that take them, such as
            "ngboost": names, numbers or a mask. Text and pandas' categories become codes; numbers
            are codes 0, 1, .... "from_dtype": the columns of pandas' categories, if the model
            takes them. None: no column.
        likelihood: The likelihood of a model that takes one, such as "glm", "gp" or "svgp":
            "poisson", "negative-binomial", "gamma", another name that ``ppgp list`` prints, a
            recipe, or a likelihood. None: the model's own.

    Attributes:
        posterior_: The fitted Posterior.
        is_categorical_: A mask [d] of the columns of categories.
        levels_: ``{name: levels}`` of the columns that were text or categories.
    """

    def __init__(
        self,
        model: Any = "gp",
        how: Any = None,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
        likelihood: Any = None,
    ) -> None:
        super().__init__(model, how, seed, categorical_features, likelihood)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(PpgpError):
            likelihood = getattr(self._model(), "likelihood", None)
            tags.target_tags.positive_only = isinstance(likelihood, POSITIVE_OR_COUNTS)
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        right_censored: Any = None,
        *,
        offset: Any = None,
        trials: Any = None,
        weights: Any = None,
        groups: Any = None,
    ) -> ProbabilisticRegressor:
        """Fit to the inputs X [n, d] and the targets y [n].

        Args:
            X: Inputs [n, d].
            y: Targets [n].
            right_censored: Flags [n], 1 where the target is only known to be exceeded, for models
                that take them, such as ``"Boosted(LogNormal(noise=Predicted()))"``. ``score``
                takes all targets as known.
            offset: [n], a known part of the linear predictor, such as the log of the exposure.
            trials: [n], the numbers of trials of a binomial likelihood.
            weights: [n], how many rows each row counts as.
            groups: ``{grouping: labels [n]}``; the intercept of a GLM varies between the groups.
        """
        model = self._model()
        rows, targets = self._rows(model, X, y, y_numeric=True)
        columns = columns_given(offset, trials, groups, weights)
        columns |= {"y": targets, "right_censored": right_censored}
        table = self._table(model, rows, y, **columns)
        self._fit(with_groups(model, table.groups or ()), table)
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        offset: Any = None,
        trials: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return the predictive mean.

        Args:
            X: Inputs [n, d].
            return_std: Whether to return the predictive standard deviation too.
            offset: [n], of the linear predictor, if the fit had one.
            trials: [n], if the fit had them.
            groups: ``{grouping: labels [n]}``, if the fit had them.

        Returns:
            The mean [n], or the mean and the standard deviation [n], noise included.
        """
        predictive = self.predict_distribution(X, offset=offset, trials=trials, groups=groups)
        mean = predictive.mean.numpy()
        if return_std:
            return mean, predictive.std.numpy()
        return mean


class ProbabilisticClassifier(ClassifierMixin, _Probabilistic):
    """Classification with probabilities averaged over the posterior.

    NaN is a missing value where the model takes it, and is refused elsewhere.

    Args:
        model: "logistic", "softmax", "ordinal" for ordered labels, "ngboost-classifier", another
            name that ``ppgp list`` prints, a recipe, or a model. None: "logistic" for two classes,
            and "softmax" for more.
        how: The inference method, as in ``ProbabilisticRegressor``; "laplace" if it is None and
            the model has no method of its own.
        seed: Seed of every random number.
        categorical_features: The columns that hold categories, for models that take them, such as
            "ngboost": names, numbers or a mask. Text and pandas' categories become codes; numbers
            are codes 0, 1, .... "from_dtype": the columns of pandas' categories, if the model
            takes them. None: no column.
        likelihood: The likelihood of a model that takes one, as in ``ProbabilisticRegressor``.

    Attributes:
        posterior_: The fitted Posterior.
        is_categorical_: A mask [d] of the columns of categories.
        levels_: ``{name: levels}`` of the columns that were text or categories.
        classes_: The K labels of y, sorted; ordered categories of pandas in their own order.
    """

    usual = "laplace"

    def __init__(
        self,
        model: Any = None,
        how: Any = None,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
        likelihood: Any = None,
    ) -> None:
        super().__init__(model, how, seed, categorical_features, likelihood)

    def _model(self, named: Any = None) -> Any:
        return super()._model(named or self.model or "softmax")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        with suppress(PpgpError):
            model = self._model()
            tags.classifier_tags.multi_class = not model.two_classes
            # labels that do not follow an order along one direction are predicted badly
            likelihood = getattr(model, "likelihood", None)
            tags.classifier_tags.poor_score = isinstance(likelihood, Ordinal)
        return tags

    def fit(
        self, X: Any, y: Any, *, offset: Any = None, weights: Any = None, groups: Any = None
    ) -> ProbabilisticClassifier:
        """Fit to the inputs X [n, d] and the labels y [n].

        Args:
            X: Inputs [n, d].
            y: Labels [n].
            offset: [n], a known part of the linear predictor.
            weights: [n], how many rows each row counts as.
            groups: ``{grouping: labels [n]}``; the intercept of a GLM varies between the groups.

        Raises:
            ValueError: If y has one class, or more than two and the model is one of two.
        """
        rows, labels = self._rows(self._model(), X, y)
        check_classification_targets(labels)
        self.classes_, codes = in_declared_order(labels, y)
        K = len(self.classes_)
        model = self._model("logistic" if self.model is None and K == 2 else None)
        if K < 2:
            raise ValueError(f"y has one class ({K}), classifier needs two or more")
        if K > 2 and model.two_classes:
            raise ValueError(
                f"Only binary classification is supported by {self.model}: y has more than two "
                f"classes ({K}); use model='softmax', or 'ordinal' for ordered labels"
            )
        columns = columns_given(offset, None, groups, weights)
        labelled = as_labels(self.classes_, codes, y)
        table = self._table(model, rows, y, **labelled, **columns)
        self._fit(with_groups(model, table.groups or ()), table)
        return self

    def predict_proba(self, X: Any, *, offset: Any = None, groups: Any = None) -> np.ndarray:
        """Return the probabilities [n, K] of the labels, in the order of ``classes_``.

        Args:
            X: Inputs [n, d].
            offset: [n], of the linear predictor, if the fit had one.
            groups: ``{grouping: labels [n]}``, if the fit had them.
        """
        predictive = self.predict_distribution(X, offset=offset, groups=groups)
        return predictive.probabilities.numpy()

    def predict(self, X: Any, *, offset: Any = None, groups: Any = None) -> np.ndarray:
        """Return the most probable label [n] of each row; arguments as of ``predict_proba``."""
        chosen = self.predict_proba(X, offset=offset, groups=groups).argmax(1)
        return self.classes_[chosen]
