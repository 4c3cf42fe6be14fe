"""Classification with probabilities averaged over the posterior, as a scikit-learn estimator."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from ..errors import PpgpError
from ..likelihoods import Ordinal
from ..posterior.prediction import Prediction
from ..posterior.region import Region
from ..recipes.parsing import with_groups
from ..runtime.levels import exact_level
from ..runtime.libraries import settings_unchanged
from .estimator_inputs import FROM_DTYPE, as_labels, columns_given, in_declared_order
from .probabilistic_fit import ProbabilisticEstimator, weights_of

with settings_unchanged():
    import numpy as np
    from sklearn.base import ClassifierMixin
    from sklearn.metrics import accuracy_score
    from sklearn.utils.multiclass import check_classification_targets

__all__ = ["ProbabilisticClassifier"]


class ProbabilisticClassifier(ClassifierMixin, ProbabilisticEstimator):
    """Classification with probabilities averaged over the posterior.

    It has the interface of scikit-learn (Buitinck et al. 2013) for X [n, d] and labels y [n]. NaN
    is a missing value where the model takes it, and is refused elsewhere.

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
        level: The level of ``predict_set`` where it is not told another.
        conformal: The conformal score, "lac", "aps" or "raps", by which label sets are calibrated
            on a quarter of the rows, as in ``ProbabilisticRegressor``; None: no calibration.

    Attributes:
        posterior_: The fitted Posterior.
        calibrator_: The Calibrator, None without ``conformal``.
        is_categorical_: A mask [d] of the columns of categories.
        levels_: ``{name: levels}`` of the columns that were text or categories.
        classes_: The K labels of y, sorted; ordered categories of pandas in their own order.

    Raises:
        UnknownName: By ``fit``, if there is no such model, method, likelihood or score.
        SettingError: By ``fit``, if the level is not in (0, 1).
        NotApplicable: By ``fit``, if the model does not take the likelihood or the method, or the
            score is not one of classes.
        DataError: By ``fit``, if the model is not one of classes.
        ValueError: By ``fit``, if y has one class, or too many for the model, and by scikit-learn's
            checks of X and y.

    Examples:
        >>> import numpy as np
        >>> from ppgp.estimators import ProbabilisticClassifier
        >>> X = np.arange(10.0)[:, None]
        >>> y = np.repeat(["calm", "storm"], 5)
        >>> model = ProbabilisticClassifier(how="map").fit(X, y)
        >>> model.predict([[0.0], [9.0]])
        array(['calm', 'storm'], dtype='<U5')
        >>> p = model.predict_proba([[0.0], [4.5], [9.0]])
        >>> p.shape, p[1].round(2)
        ((3, 2), array([0.5, 0.5]))
        >>> region = model.predict_set([[0.0], [4.5], [9.0]], level=0.8)
        >>> region.labels.sum(1).tolist()  # how many labels are in each set
        [1, 2, 1]
    """

    usual = "laplace"

    def __init__(
        self,
        model: Any = None,
        how: Any = None,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
        likelihood: Any = None,
        level: Any = 0.9,
        conformal: Any = None,
    ) -> None:
        super().__init__(model, how, seed, categorical_features, likelihood, level, conformal)

    def _model_alone(self, named: Any = None) -> Any:
        return super()._model_alone(self._named(named))

    def _named(self, named: Any) -> Any:
        return next(one for one in (named, self.model, "softmax") if one is not None)

    def _model(self, named: Any = None) -> Any:
        return super()._model(self._named(named))

    def _own_region(self, predictive: Prediction, level: float) -> Region:
        """Return the fewest labels that have the probability ``level`` together."""
        p = predictive.probabilities
        ranked, order = torch.sort(p, dim=-1, descending=True, stable=True)
        before = ranked.cumsum(-1) - ranked
        kept = before < float(exact_level(level))
        guarantee = "none beyond the model: the labels of the largest probabilities"
        labels = torch.empty_like(kept).scatter_(-1, order, kept)
        return Region(level, guarantee, labels=labels, classes=predictive.classes)

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
        self,
        X: Any,
        y: Any,
        *,
        offset: Any = None,
        weights: Any = None,
        groups: Any = None,
        **more: Any,
    ) -> ProbabilisticClassifier:
        """Fit to the inputs X [n, d] and the labels y [n].

        Args:
            X: Inputs [n, d].
            y: Labels [n].
            offset: [n], a known part of the linear predictor.
            weights: [n], how many rows each row counts as.
            groups: ``{grouping: labels [n]}``; the intercept of a GLM varies between the groups.
            **more: ``sample_weight`` [n], another name of ``weights``.

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
        weights = weights_of(weights, more)
        if weights is not None and len(np.unique(codes[np.asarray(weights) > 0])) < 2:
            got = "one class among the rows whose weight (sample_weight) is above 0"
            raise ValueError(f"y has {got}, classifier needs two or more")
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

    def predict_set(
        self, X: Any, level: Any = None, *, offset: Any = None, groups: Any = None
    ) -> Region:
        """Return a set of labels per row, and the sentence that holds.

        Args:
            X: Inputs [n, d].
            level: The coverage wanted, in (0, 1); None: that of the constructor.
            offset: [n], of the linear predictor, if the fit had one.
            groups: ``{grouping: labels [n]}``, if the fit had them.

        Returns:
            A Region whose ``labels`` are a mask [n, K], in the order of ``classes_``.
        """
        return self._region(X, level, columns_given(offset, None, groups))

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        groups: Any = None,
    ) -> float:
        """Return the accuracy; arguments as of ``predict_proba``, and weights [n]."""
        predicted = self.predict(X, **columns_given(offset, None, groups))
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))
