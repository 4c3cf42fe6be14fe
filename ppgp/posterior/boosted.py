"""What a boosted fit knows besides its predictions: its stages, its folds and its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..capabilities import BoostedSum, require
from ..data.dataset import Dataset
from ..distributions.univariate import parameters, rebuilt
from ..errors import NotApplicable, SettingError
from .fitted import Fitted
from .model_inputs import model_inputs
from .predicting import in_data_units
from .prediction import Prediction

OUT_OF_FOLD = "out of fold"
INSTEAD = (
    "take posterior.out_of_fold() of a fit with folds: metrics and log_prob of predictions by "
    "members that have not seen the row"
)


class BoostedMethods:
    """Methods of a Posterior by ``NaturalGradientBoosting``."""

    def staged(self: Any, X: Any, every: int = 10) -> Iterator[Prediction]:
        """Yield the predictions after ``every``, ``2 * every``, ... stages, and after all.

        A member with fewer stages stays where it has ended.

        Args:
            X: The new rows [m, d].
            every: The number of stages between two predictions, at least 1.

        Raises:
            NotApplicable: If the posterior was not boosted.
            SettingError: If ``every`` is no such number.
        """
        model, rows = _boosted(self), model_inputs(self, X)
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            wanted = "a whole number of at least 1 as every of staged"
            raise SettingError(wanted, repr(every), "for example every=10")
        every = int(every)
        members = [model.tensors_of(one) for one in draws_of(self)]
        each = zip_longest(*(model.learner.staged(one, rows, every) for one in members))
        sums: list[Tensor] = []
        for partial in each:
            sums = [p if p is not None else sums[j] for j, p in enumerate(partial)]
            f = model.from_start(self.theta, torch.stack(sums).to(rows))
            yield in_data_units(self, model.distribution_at(self.theta, f), rows, "staged")

    def importance(self: Any) -> Any:
        """Return a pandas DataFrame: the importance of each column for each function of x.

        It has one row per column of X and one column per function, each of which sums to 1, or to 0
        where the function does not depend on X, and is averaged over the members. Trees measure how
        much the splits of a column reduced the squared error, and Linear the squares of its
        coefficients.

        Raises:
            NotApplicable: If the posterior was not boosted, or its learner has no such measure.
        """
        import pandas as pd

        model = _boosted(self)
        d = self.data.d
        gains = model.learner.importance(model.tensors_of(self.theta), d).mean(0)
        shares = gains / gains.sum(-1, keepdim=True).clamp_min(torch.finfo(gains.dtype).tiny)
        names = self.data.feature_names or [f"x{j}" for j in range(d)]
        likelihood = model.likelihood
        predicted = [f"{likelihood.scale_of(name)} {name}" for name in likelihood.predicted]
        functions = ["f", *predicted]
        if len(functions) != len(shares):
            functions = [f"f[{k}]" for k in range(len(shares))]
        return pd.DataFrame(shares.mT.numpy(), index=list(names), columns=functions)

    def out_of_fold(self: Any) -> Prediction:
        """Return the distribution of each training row by the member not trained on its fold.

        Its log densities serve ``stacking_weights``, and ``cross_calibrate`` takes it without
        another fit. All rows count as training rows, as other members were trained on them:
        ``calibrate`` on them guarantees no coverage. A Prediction knows no flags: ``log_prob`` and
        ``metrics.nll`` take a right-censored target as the time of an event, so that they need the
        rows that are not censored.

        Raises:
            NotApplicable: If the posterior was not boosted with folds.
        """
        model, fold = _boosted(self), folds_of(self)
        with torch.no_grad():
            everywhere = model.predict(
                self.theta, self.data.X, self.data, **self.data.for_prediction
            )
        rows = torch.arange(len(fold))
        own = _one_draw_per_row(everywhere, fold, rows)
        prediction = in_data_units(self, own, self.data.X, OUT_OF_FOLD)
        return replace(prediction, in_training=torch.ones(len(fold), dtype=torch.bool))


def is_boosted(fit: Fitted) -> bool:
    """Return whether a posterior is a sum of learners."""
    return isinstance(fit.model, BoostedSum) and bool(fit.model.tensors_of(fit.draws))


def _boosted(fit: Fitted) -> Any:
    """Return the model of a boosted posterior.

    Raises:
        NotApplicable: If it was not boosted.
    """
    if fit.data.is_table and not isinstance(fit.model, BoostedSum):
        raise NotApplicable(
            BoostedSum.expected,
            type(fit.model).__name__,
            "fit models.Boosted(likelihood, learner); for CV+ of this model call "
            "cross_calibrate(posterior.recipe, data, how)",
        )
    model: Any = require(fit.model, BoostedSum)
    if not model.tensors_of(fit.draws):
        raise NotApplicable(
            "a posterior by NaturalGradientBoosting",
            f"one by {type(fit.how).__name__}, which has no learners",
            "fit the model by inference.NaturalGradientBoosting()",
        )
    return model


def folds_of(fit: Fitted) -> Tensor:
    """Return the fold of each training row, [n].

    Raises:
        NotApplicable: If the posterior has no folds.
    """
    _boosted(fit)
    if "fold" not in fit.params:
        raise NotApplicable(
            "a posterior with folds",
            "one without",
            "fit by NaturalGradientBoosting(folds=5), to its end",
        )
    return fit.params["fold"]


def draws_of(fit: Fitted) -> list[dict[str, Tensor]]:
    """Return {site: [*event]} of each draw."""
    flat = {name: value.flatten(0, 1) for name, value in fit.draws.items()}
    return [{name: v[j] for name, v in flat.items()} for j in range(len(flat["start"]))]


def members_of(fit: Any) -> list[tuple[Any, Tensor, Dataset]]:
    """Return, per fold, the posterior of the member without it, the rows' numbers, and the rows."""
    fold = folds_of(fit)
    members = []
    for j in range(int(fold.max()) + 1):
        rows = torch.nonzero(fold == j).flatten()
        draws = {name: value[:, j : j + 1] for name, value in fit.draws.items()}
        members.append((replace(fit, draws=draws), rows, fit.data.rows(rows)))
    return members


def _one_draw_per_row(distribution: Any, draw: Tensor, rows: Tensor) -> Any:
    """Return the distribution [1, n] whose row i is that of its own draw."""
    chosen = {name: v[draw, rows][None] for name, v in parameters(distribution).items()}
    return rebuilt(distribution, chosen)
