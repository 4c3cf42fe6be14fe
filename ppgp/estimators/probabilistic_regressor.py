"""Regression with a predictive distribution, as a scikit-learn estimator."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..errors import NotApplicable, PpgpError, SettingError
from ..likelihoods import (
    Exponential,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Poisson,
    Weibull,
    ZeroInflated,
)
from ..posterior.prediction import covariance
from ..posterior.region import Region
from ..recipes.parsing import with_groups
from ..runtime.libraries import settings_unchanged
from .estimator_inputs import FROM_DTYPE, columns_given
from .probabilistic_fit import ProbabilisticEstimator, weights_of

with settings_unchanged():
    import numpy as np
    from sklearn.base import RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils import check_random_state

__all__ = ["ProbabilisticRegressor"]

POSITIVE_OR_COUNTS = (
    *(Exponential, Gamma, LogNormal, Weibull),
    *(NegativeBinomial, Poisson, ZeroInflated),
)


class ProbabilisticRegressor(RegressorMixin, ProbabilisticEstimator):
    """Regression with a predictive distribution.

    It has the interface of scikit-learn (Buitinck et al. 2013) for X [n, d] and y [n]. Predictions
    are in the units of y. NaN is a missing value where the model takes it, as "ngboost" does, and
    is refused elsewhere.

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
        level: The level of ``predict_interval`` where it is not told another.
        conformal: The conformal score, such as "quantile" or "normalized" (see ``ppgp list``), by
            which intervals are calibrated on a quarter of the rows, at random, which the fit does
            not use: coverage is then guaranteed for exchangeable rows. None: no calibration, and
            intervals of the model.

    Names of options inside the model and the method are parameters too, for a grid search:
    ``model__kernel__lengthscale``, ``how__draws``. With scikit-learn's metadata routing,
    ``offset``, ``trials``, ``weights``, ``groups``, ``right_censored`` and ``sample_weight`` are
    requested as usual.

    Attributes:
        posterior_: The fitted Posterior.
        calibrator_: The Calibrator, None without ``conformal``.
        is_categorical_: A mask [d] of the columns of categories.
        levels_: ``{name: levels}`` of the columns that were text or categories.

    Raises:
        UnknownName: By ``fit``, if there is no such model, method, likelihood or score.
        SettingError: By ``fit``, if the level is not in (0, 1), or y does not suit the model.
        NotApplicable: By ``fit``, if the model does not take the likelihood or the method, or an
            argument is no record.
        DataError: By ``fit``, if the columns of categories hold other numbers than codes, or there
            are too few rows to calibrate.
        ValueError: By scikit-learn's checks of X and y.

    Examples:
        >>> import numpy as np
        >>> from sklearn.model_selection import cross_val_score
        >>> from ppgp.estimators import ProbabilisticRegressor
        >>> X = np.linspace(0, 4, 30)[:, None]
        >>> y = 2 * X[:, 0] + 0.1 * np.cos(40 * X[:, 0])
        >>> model = ProbabilisticRegressor("linear", "exact").fit(X, y)
        >>> mean, sd = model.predict([[10.0]], return_std=True)
        >>> bool(abs(mean[0] - 20) < 0.5), bool(0.05 < sd[0] < 0.3)
        (True, True)
        >>> lower, upper = model.predict_interval([[10.0]], level=0.99)
        >>> bool(lower < 20 < upper)
        True
        >>> scores = cross_val_score(model, X, y, cv=3)
        >>> scores.shape, bool(scores.min() > 0.9)
        ((3,), True)
    """

    def __init__(
        self,
        model: Any = "gp",
        how: Any = None,
        seed: Any = 0,
        categorical_features: Any = FROM_DTYPE,
        likelihood: Any = None,
        level: Any = 0.9,
        conformal: Any = None,
    ) -> None:
        super().__init__(model, how, seed, categorical_features, likelihood, level, conformal)

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
        **more: Any,
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
            **more: ``sample_weight`` [n], another name of ``weights``. Models that cannot weigh
                rows refuse both.
        """
        model = self._model()
        rows, targets = self._rows(model, X, y, y_numeric=True)
        columns = columns_given(offset, trials, groups, weights_of(weights, more))
        columns |= {"y": targets, "right_censored": right_censored}
        table = self._table(model, rows, y, **columns)
        self._fit(with_groups(model, table.groups or ()), table)
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        offset: Any = None,
        trials: Any = None,
        groups: Any = None,
    ) -> Any:
        """Return the predictive mean.

        Args:
            X: Inputs [n, d].
            return_std: Whether to return the predictive standard deviation too.
            return_cov: Whether to return the covariance between rows too, for models that have a
                joint prediction.
            offset: [n], of the linear predictor, if the fit had one.
            trials: [n], if the fit had them.
            groups: ``{grouping: labels [n]}``, if the fit had them.

        Returns:
            The mean [n], or the mean and the standard deviation [n] or the covariance [n, n], noise
            included.

        Raises:
            SettingError: If both are asked for.
            NotApplicable: If the model has no joint prediction.
        """
        if return_std and return_cov:
            do = "the square root of its diagonal is the standard deviation"
            raise SettingError("return_std or return_cov", "both", do)
        columns = columns_given(offset, trials, groups)
        if return_cov:
            joint = self._prediction(X, columns, joint=True)
            return joint.mean.numpy(), covariance(joint).numpy()
        predictive = self._prediction(X, columns)
        mean = predictive.mean.numpy()
        if return_std:
            return mean, predictive.std.numpy()
        return mean

    def predict_interval(
        self,
        X: Any,
        level: Any = None,
        *,
        offset: Any = None,
        trials: Any = None,
        groups: Any = None,
    ) -> Region:
        """Return an interval per row: ``lower, upper = region``, and the sentence that holds.

        Args:
            X: Inputs [n, d].
            level: The coverage wanted, in (0, 1); None: that of the constructor.
            offset: [n], of the linear predictor, if the fit had one.
            trials: [n], if the fit had them.
            groups: ``{grouping: labels [n]}``, if the fit had them.
        """
        return self._region(X, level, columns_given(offset, trials, groups))

    def predict_quantile(
        self, X: Any, p: Any, *, offset: Any = None, trials: Any = None, groups: Any = None
    ) -> np.ndarray:
        """Return predictive quantiles of the model, which are not calibrated.

        Args:
            X: Inputs [n, d].
            p: A probability in (0, 1), or k of them.
            offset: [n], of the linear predictor, if the fit had one.
            trials: [n], if the fit had them.
            groups: ``{grouping: labels [n]}``, if the fit had them.

        Returns:
            [n], or [n, k] for k probabilities.
        """
        predictive = self._prediction(X, columns_given(offset, trials, groups))
        return predictive.quantile(p).mT.numpy() if np.ndim(p) else predictive.quantile(p).numpy()

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        *,
        offset: Any = None,
        trials: Any = None,
        groups: Any = None,
    ) -> np.ndarray:
        """Return draws of y [n, n_samples], jointly over the rows where the model can.

        Args:
            X: Inputs [n, d].
            n_samples: The number of draws.
            random_state: A seed or a RandomState, as in scikit-learn.
            offset: [n], of the linear predictor, if the fit had one.
            trials: [n], if the fit had them.
            groups: ``{grouping: labels [n]}``, if the fit had them.
        """
        columns = columns_given(offset, trials, groups)
        try:
            predictive = self._prediction(X, columns, joint=True)
        except NotApplicable:
            predictive = self._prediction(X, columns)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return predictive.sample(n_samples, seed).numpy().T

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        trials: Any = None,
        groups: Any = None,
    ) -> float:
        """Return R^2 of the predictive mean; arguments as of ``predict``, and weights [n]."""
        predicted = self.predict(X, **columns_given(offset, trials, groups))
        return float(r2_score(y, predicted, sample_weight=sample_weight))
