"""What a newcomer tries first is refused, or warned of, with advice that works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor

import ppgp
from ppgp import Dataset, conformal, inference, kernels, learners, likelihoods, metrics, models
from ppgp.diagnostics.stacking import stacking_weights
from ppgp.errors import (
    ConvergenceWarning,
    DataError,
    DataWarning,
    NotApplicable,
    NotKnown,
    PpgpError,
    SettingError,
    StorageError,
)
from ppgp.estimators import ProbabilisticRegressor
from ppgp.likelihoods import Predicted
from ppgp.posterior.posterior import Posterior

BOOSTING: Any = inference.NaturalGradientBoosting  # Any: arguments of types that are refused
FIT: Any = ppgp.fit
COMPARE: Any = ppgp.compare
WEIGHTS: Any = stacking_weights
DROPOUT: Any = inference.MCDropout
GAUSSIAN: Any = likelihoods.Gaussian
SHORT = BOOSTING(steps=3, folds=2, temperature=False)
ALONE = BOOSTING(steps=3, folds=None, temperature=False)
pytestmark = [
    pytest.mark.filterwarnings("ignore:the score at the rows held out"),
    pytest.mark.usefixtures("types_unchecked"),
]


def rows(n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(n, 3, generator=g, dtype=torch.float64)
    return X, X[:, 0] + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)


X, Y = rows()
DATA = Dataset(X, Y)


@pytest.fixture(scope="module")
def boosted() -> Posterior:
    return ppgp.fit(models.Boosted(), DATA, SHORT, progress=False)


@pytest.fixture(scope="module")
def network() -> Posterior:
    how = inference.MAP("adam", steps=3)
    return ppgp.fit(models.NeuralRegression(), DATA, how, progress=False)


def fitted(model: models.Model | None = None, how: Any = ALONE, data: Any = DATA) -> Posterior:
    return ppgp.fit(model or models.Boosted(), data, how, progress=False)


def refusal(kind: type[PpgpError], call: Callable[[], Any], *facts: str) -> None:
    """Check that a call is refused by a message of one line that contains the facts."""
    with pytest.raises(kind) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert [fact for fact in facts if fact not in sentence] == [], sentence


# -- what a boosted posterior, or a network, has instead ------------------------------------------


def test_a_boosted_posterior_has_out_of_fold_predictions_instead(boosted: Posterior) -> None:
    refusal(NotApplicable, boosted.loo, "out_of_fold()")
    for name in ("aic", "bic", "log_evidence"):
        refusal(NotKnown, lambda name=name: getattr(boosted, name), "out_of_fold()")
    assert "out_of_fold()" in ppgp.diagnose(boosted).findings[-1]


def test_a_network_has_cv_plus_by_refits_instead(network: Posterior) -> None:
    for call in (lambda: ppgp.cross_calibrate(network), network.out_of_fold, network.importance):
        refusal(NotApplicable, call, "cross_calibrate(posterior.recipe, data, how)")


@pytest.mark.parametrize("every", [0, -3, 2.5, True])
def test_stages_between_predictions_are_counted(boosted: Posterior, every: Any) -> None:
    refusal(SettingError, lambda: next(boosted.staged(X, every)), "at least 1", repr(every))
    assert len(list(boosted.staged(X, int(np.int64(2))))) == 2


# -- fits that learn nothing -----------------------------------------------------------------------


def test_a_share_that_is_no_row_is_refused() -> None:
    refusal(SettingError, lambda: fitted(how=BOOSTING(rows=0.001)), "0.001 of", "use rows of")
    one_row = BOOSTING(rows=1.01 / 40, steps=3, folds=None)
    with pytest.warns(ConvergenceWarning, match="depends on x"):  # a tree of one row is constant
        assert fitted(how=one_row).shape == (1, 1)


@pytest.mark.parametrize("learner", [learners.Trees(min_rows=150), learners.Linear(1e9)])
def test_a_fit_that_does_not_depend_on_x_says_so(learner: learners.Learner) -> None:
    noise = torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match="no stage that was kept depends on x"):
        posterior = fitted(models.Boosted(learner=learner), data=Dataset(X, noise))
    assert float(posterior.importance().to_numpy().sum()) == 0.0


def test_targets_that_are_all_censored_are_refused() -> None:
    data = Dataset(X, Y.exp(), right_censored=np.ones(40))
    model = models.Boosted(likelihoods.LogNormal(noise=Predicted()))
    how = BOOSTING(steps=3, folds=None, score="nll")
    refusal(DataError, lambda: fitted(model, how, data), "not censored", "add rows")


def test_fewer_iterates_than_rank_are_warned_of() -> None:
    how = inference.SWAG(steps=3, rank=20, draws=5, base=inference.MAP("adam", steps=5))
    with pytest.warns(ConvergenceWarning, match=r"3 iterates were recorded, fewer than rank = 20"):
        fitted(models.LinearRegression(), how)


def test_an_estimator_does_not_hide_that_nothing_was_boosted() -> None:
    with pytest.warns(ConvergenceWarning, match="no learners"):
        ProbabilisticRegressor("ngboost", how="map").fit(X.numpy(), Y.numpy())


# -- arguments -------------------------------------------------------------------------------------


def test_weights_and_coverage_of_predictions(boosted: Posterior) -> None:
    prediction = boosted.predict(X)
    for wrong in ([boosted, boosted], [prediction, prediction], prediction, []):
        refusal(DataError, lambda wrong=wrong: WEIGHTS(wrong), "p.log_prob(y)")
    refusal(DataError, lambda: stacking_weights(torch.zeros(4)), "shape [4]")
    table = torch.stack([prediction.log_prob(Y), prediction.log_prob(Y) - 1])
    expected = stacking_weights(table)
    assert torch.equal(stacking_weights(list(table)), expected)
    assert torch.equal(stacking_weights(table.numpy()), expected)
    for metric in (lambda: metrics.coverage(prediction, Y), lambda: metrics.mean_width(prediction)):
        refusal(NotApplicable, metric, "a Prediction", "prediction.interval(0.9)")


def test_seeds_and_paths() -> None:
    refusal(SettingError, lambda: FIT(models.Boosted(), DATA, ALONE, seed=1.5), "seed", "1.5")
    refusal(SettingError, lambda: FIT(models.Boosted(), DATA, ALONE, checkpoint=3), "a path")
    assert FIT(models.Boosted(), DATA, ALONE, seed=np.int64(2), progress=False).draws


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: BOOSTING(learning_rate=0), ("learning_rate", "got 0", "above 0 and at most 1")),
        (lambda: BOOSTING(rows=float("nan")), ("rows", "got nan", "above 0 and at most 1")),
        (lambda: inference.Ensemble(inference.MAP), ("base of Ensemble", "call it: MAP()")),
        (lambda: DROPOUT(rates=0.1), ("a tuple as rates", "write (0.1,)")),
        (lambda: DROPOUT(rates=[0.1, 0.2]), ("write (0.1, 0.2)",)),
        (
            lambda: GAUSSIAN(noise=Predicted),
            ("noise of Gaussian", "call it: Predicted"),
        ),
        (lambda: models.Boosted(GAUSSIAN), ("call it: Gaussian()",)),
    ],
)
def test_options(call: Callable[[], Any], facts: tuple[str, ...]) -> None:
    refusal(SettingError, call, *facts)


def test_a_score_that_a_likelihood_lacks() -> None:
    law = likelihoods.StudentT(df=Predicted(), scale=Predicted())
    refusal(NotApplicable, lambda: fitted(models.Boosted(law)), "score='nll'")


# -- data ------------------------------------------------------------------------------------------


TWO: Any = 2


def test_columns_by_number() -> None:
    refusal(SettingError, lambda: Dataset(X, Y, categorical=[7]), "columns 0 to 2", "column 7")
    refusal(SettingError, lambda: Dataset(X, Y, categorical=TWO), "a list", "got 2")


@pytest.mark.parametrize("flags", ["yes", ["yes", "no"] * 20])
def test_flags_of_text(flags: Any) -> None:
    refusal(DataError, lambda: Dataset(X, Y, right_censored=flags), "flags 0 or 1", "pass 1 where")


def test_levels_name_all_codes() -> None:
    codes = torch.arange(40, dtype=torch.float64)[:, None] % 4
    call = lambda: Dataset(codes, Y, categorical=[0], levels=[["a", "b"]])  # noqa: E731
    refusal(DataError, call, "up to 2 in column 0", "rows 3, 7", "levels")
    assert Dataset(codes, Y, categorical=[0], levels=[list("abcd")]).levels == (tuple("abcd"),)


def test_numbers_in_a_column_of_text_are_warned_of() -> None:
    frame = pd.DataFrame({"a": ["u", "v"] * 20, "y": Y.numpy()})
    posterior = fitted(data=Dataset.from_frame(frame, "y", categories="codes"))
    with pytest.warns(DataWarning, match="column a holds numbers, none of them among its levels"):
        posterior.predict(pd.DataFrame({"a": [0, 1]}))
    assert len(posterior.predict(pd.DataFrame({"a": ["w"]}))) == 1


def test_missing_values_and_categories_name_what_takes_them() -> None:
    holes = torch.where(X > 1, torch.nan, X)
    refusal(DataError, lambda: Dataset(holes, Y), "drop or impute", "missing='keep'")
    frame = pd.DataFrame({"a": ["u", "v"] * 20, "y": Y.numpy()})
    refusal(DataError, lambda: Dataset.from_frame(frame, "y"), "one_hot", "categories='codes'")


def test_a_learner_that_takes_no_codes_is_named() -> None:
    data = Dataset(X.abs().floor(), Y, categorical=[0])
    model = models.Boosted(learner=learners.Linear())
    refusal(NotApplicable, lambda: fitted(model, data=data), "a learner", "Linear of Boosted")


# -- objects of the user ---------------------------------------------------------------------------


def test_a_regressor_is_loaded_as_the_instance_that_was_fitted(tmp_path: Path) -> None:
    tree, path = DecisionTreeRegressor(max_depth=3), tmp_path / "trees.safetensors"
    fitted(models.Boosted(learner=learners.Estimator(tree))).save(path)
    load = ppgp.load_posterior
    refusal(StorageError, lambda: load(path), "model=DecisionTreeRegressor(max_depth=3)")
    refusal(StorageError, lambda: load(path, model=DecisionTreeRegressor), "(max_depth=3)")
    assert load(path, model=DecisionTreeRegressor(max_depth=3)).shape == (1, 1)


def test_builds_that_do_not_fit_their_functions() -> None:
    normal = torch.distributions.Normal

    def two(f: torch.Tensor) -> Any:
        return normal(f[..., 0, :], f[..., 1, :].exp())

    def not_mapped(f: torch.Tensor) -> Any:
        return normal(f[..., 0, :], f[..., 1, :], validate_args=True)

    one = models.Boosted(likelihoods.FromDistribution(two))
    refusal(SettingError, lambda: fitted(one), "reads 1 function", "pass parameters=")
    other = models.Boosted(likelihoods.FromDistribution(not_mapped, 2))
    refusal(SettingError, lambda: fitted(other), "parameter scale", ".exp()")


# -- objects of several outputs, names of classes, classes of priors -------------------------------


def test_one_of_several_outputs_is_to_be_picked() -> None:
    prediction = ppgp.Prediction.from_points(Y)
    several: Any = {"u": prediction}
    facts = ("got a dict", "such as predictions['u']")
    refusal(NotApplicable, lambda: ppgp.calibrate(conformal.Absolute(), several, Y), *facts)
    posterior = fitted(models.LinearRegression(), inference.MAP())
    several = {"m": ppgp.MultiPosterior({"u": posterior})}
    refusal(SettingError, lambda: COMPARE(several), "a MultiPosterior as 'm'", "posterior['u']")


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_names_of_classes_are_to_be_codes(kind: Any) -> None:
    prediction = ppgp.Prediction.from_probabilities([[0.1, 0.9]] * 4, classes=["a", "b"])
    facts = ("codes of classes as y, got the name 'a'", "[classes.index(name) for name in y]")
    labels = kind(["a", "b", "a", "b"])
    refusal(DataError, lambda: ppgp.calibrate(conformal.LAC(), prediction, labels), *facts)
    assert len(ppgp.calibrate(conformal.LAC(), prediction, kind([0, 1, 0, 1]))) == 4


def test_a_class_or_a_text_in_place_of_a_prior() -> None:
    for given, fact in ((torch.distributions.Gamma, "call it: Gamma(...)"), ("a", "LogNormal(")):
        kernel: Any = kernels.RBF
        refusal(SettingError, lambda given=given, kernel=kernel: kernel(lengthscale=given), fact)
