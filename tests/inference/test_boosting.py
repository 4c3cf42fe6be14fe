"""Natural gradient boosting: invariances, reproducibility, folds, and what it refuses."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold, KFold
from torch import Tensor

import ppgp
from ppgp import Dataset, fit, learners, likelihoods, models
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, NotEnoughMemory, SettingError
from ppgp.inference import MAP, Ensemble, NaturalGradientBoosting
from ppgp.inference.boosting import stages
from ppgp.inference.boosting.natural_gradient import check_memory
from ppgp.likelihoods import Predicted
from ppgp.posterior.posterior import Posterior

F64 = torch.float64
pytestmark = pytest.mark.filterwarnings("ignore:the score at the rows held out")
SHORT = NaturalGradientBoosting(steps=15, folds=None)


def rows(n: int = 150, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return X and y, whose mean and noise depend on x."""
    g = torch.Generator().manual_seed(seed)
    X = 4 * torch.rand(n, 3, generator=g, dtype=F64)
    sd = 0.05 + 0.5 * torch.sigmoid(4 * (X[:, 0] - 2))
    return X, torch.sin(3 * X[:, 0]) + X[:, 1] + sd * torch.randn(n, generator=g, dtype=F64)


def boosted(
    X: Tensor,
    y: Tensor,
    how: NaturalGradientBoosting = SHORT,
    likelihood: likelihoods.Likelihood | None = None,
    **options: object,
) -> Posterior:
    model = models.Boosted(likelihood or likelihoods.Gaussian(noise=Predicted()))
    return fit(model, Dataset(X, y), how, progress=False, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("c", [1e160, 1e-165])
def test_spreads_whose_square_is_no_float_are_refused(c: float) -> None:
    X, y = rows(30)
    with pytest.raises(DataError, match="targets whose spread lies between"):
        boosted(X, c * y)


# -- invariances --------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["nll", "crps"])
@pytest.mark.parametrize("c", [2.0**20, 2.0**-13])
def test_a_power_of_two_in_the_units_of_y_changes_no_bit(c: float, score: str) -> None:
    X, y = rows()
    how = replace(SHORT, score=score)
    one, two = boosted(X, y, how), boosted(X, c * y, how)
    for name in ("feature", "threshold", "value"):
        assert torch.equal(one.draws[f"trees.{name}"], two.draws[f"trees.{name}"])
    first, second = one.predict(X), two.predict(X)
    assert torch.equal(second.mean, c * first.mean)
    assert torch.equal(second.std, c * first.std)


@pytest.mark.parametrize(("a", "c"), [(3.0, 1e-4), (-7e6, 1e6)])
@pytest.mark.parametrize("law", ["gaussian", "laplace", "student"])
def test_training_is_equivariant_under_y_to_a_plus_c_y(law: str, a: float, c: float) -> None:
    likelihood = {
        "gaussian": likelihoods.Gaussian(noise=Predicted()),
        "laplace": likelihoods.Laplace(scale=Predicted()),
        "student": likelihoods.StudentT(df=5.0, scale=Predicted()),
    }[law]
    X, y = rows()
    one = boosted(X, y, likelihood=likelihood, standardise=False).predict(X)
    two = boosted(X, a + c * y, likelihood=likelihood, standardise=False).predict(X)
    # slopes of the Laplace law saturate, so that two splits may be equally good: rounding chooses
    share = 1.0 if law != "laplace" else 0.98
    same_mean = torch.isclose((two.mean - a) / c, one.mean, rtol=1e-4, atol=1e-4)
    same_std = torch.isclose(two.std / c, one.std, rtol=1e-4, atol=1e-4)
    assert float((same_mean & same_std).to(F64).mean()) >= share


@pytest.mark.parametrize("law", ["LogNormal", "Gamma", "Weibull"])
def test_training_on_positive_targets_is_equivariant_under_y_to_c_y(law: str) -> None:
    field = "noise" if law == "LogNormal" else "shape"
    likelihood = getattr(likelihoods, law)(**{field: Predicted()})
    X, y = rows()
    y = y.exp()
    one = boosted(X, y, likelihood=likelihood, standardise=False)
    for c in (1e-4, 1e6):
        two = boosted(X, c * y, likelihood=likelihood, standardise=False)
        expected = one.predict(X).quantile(0.3)
        torch.testing.assert_close(two.predict(X).quantile(0.3) / c, expected, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("weights", ["unit", "metric"])
def test_the_score_never_rises(weights: str) -> None:
    X, y = rows()
    law = likelihoods.Gaussian(noise=Predicted())
    settings = stages.Settings(
        law, "crps", learners.Trees(), 0.1, 0.7, weights == "metric", "halving", 30, 50
    )
    run = stages.Fit(settings, stages.Rows(X, y), 0)
    values = [run.value]
    while not run.ended:
        run.advance()
        values.append(run.value)
    scores = np.array(values) / len(y)
    assert bool((np.diff(scores) <= 1e-12).all())
    assert scores[-1] < 0.7 * scores[0]


def test_the_first_stage_is_a_step_along_the_natural_gradient() -> None:
    """With one leaf per row the learners return the targets, and the step is exact."""
    X, y = rows(40)
    law = likelihoods.Gaussian(noise=Predicted())
    learner = learners.Trees(leaves=64, min_rows=1, columns=1.0)
    settings = stages.Settings(law, "nll", learner, 0.25, 1.0, False, None, 1, 50)
    run = stages.Fit(settings, stages.Rows(X, y), 0)
    before = run.f.clone()
    run.advance()
    expected = before - 0.25 * law.natural({}, before, y)
    torch.testing.assert_close(run.f, expected, rtol=1e-5, atol=1e-5)


def test_with_a_fixed_variance_it_is_least_squares_boosting() -> None:
    """Natural gradients of the mean are residuals, as in any gradient boosting."""
    X, y = rows(400)
    how = NaturalGradientBoosting(score="nll", steps=50, learning_rate=0.1, rows=1.0, folds=None)
    model = models.Boosted(likelihoods.Gaussian(noise=0.25), learners.Trees(columns=1.0))
    posterior = fit(model, Dataset(X, y), how, progress=False)
    peer = HistGradientBoostingRegressor(
        max_iter=50, max_leaf_nodes=32, min_samples_leaf=5, max_bins=255, early_stopping=False
    )
    new, truth = rows(2000, seed=1)
    theirs = peer.fit(X.numpy(), y.numpy()).predict(new.numpy())
    ours = float((posterior.predict(new).mean - truth).square().mean())
    assert ours == pytest.approx(float(((theirs - truth.numpy()) ** 2).mean()), rel=0.1)


# -- reproducibility ------------------------------------------------------------------------------


def same(one: Posterior, two: Posterior) -> bool:
    return all(torch.equal(value, two.draws[name]) for name, value in one.draws.items())


def test_the_number_of_threads_changes_no_bit() -> None:
    X, y = rows()
    before = torch.get_num_threads()
    try:
        fits = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            fits.append(boosted(X, y, NaturalGradientBoosting(steps=10, folds=2)))
    finally:
        torch.set_num_threads(before)
    assert same(fits[0], fits[1])
    assert same(fits[0], fits[2])


def test_a_killed_run_continues_to_the_same_bits(tmp_path: Path) -> None:
    X, y = rows()
    how = NaturalGradientBoosting(steps=25, folds=2)
    whole = boosted(X, y, how)
    path = tmp_path / "run.ckpt"
    taken, advance = [0], stages.Fit.advance

    def interrupted(self: stages.Fit) -> None:
        taken[0] += 1
        if taken[0] == 40:  # in the second fit
            raise RuntimeError("killed")
        advance(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ppgp.inference.checkpoint.EVERY", 0.0)
        patch.setattr(stages.Fit, "advance", interrupted)
        with pytest.raises(RuntimeError, match="killed"):
            boosted(X, y, how, checkpoint=path)
    assert path.exists()
    assert same(boosted(X, y, how, checkpoint=path), whole)


def test_saved_predictions_need_no_lightgbm_and_are_bit_equal(tmp_path: Path) -> None:
    X, y = rows()
    posterior = boosted(X, y, NaturalGradientBoosting(steps=10, folds=2))
    path = posterior.save(tmp_path / "boosted.ppgp")
    np.save(tmp_path / "X.npy", X.numpy())
    code = (
        "import sys; sys.modules['lightgbm'] = None\n"
        "import numpy as np, ppgp\n"
        f"X = np.load({str(tmp_path / 'X.npy')!r})\n"
        f"q = ppgp.load_posterior({str(path)!r}).predict(X)\n"
        f"np.save({str(tmp_path / 'q.npy')!r}, np.stack([q.mean.numpy(), q.std.numpy()]))\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    prediction = posterior.predict(X)
    found = torch.from_numpy(np.load(tmp_path / "q.npy"))
    assert torch.equal(found, torch.stack([prediction.mean, prediction.std]))


def test_a_fit_goes_on_from_another() -> None:
    X, y = rows()
    how = NaturalGradientBoosting(steps=10, folds=2, stopping="fold")
    first = boosted(X, y, how)
    more = boosted(X, y, replace(how, steps=20), init=first)
    assert bool((more.stats["stages"] > first.stats["stages"]).all())
    assert bool((more.stats["held_out_score"] < first.stats["held_out_score"]).all())
    other = rows(seed=4)
    with pytest.raises(NotApplicable, match="these rows"):
        boosted(*other, how, init=first)


# -- folds ----------------------------------------------------------------------------------------


def member(posterior: Posterior, j: int) -> Posterior:
    """Return the posterior of one member."""
    draws = {name: value[:, j : j + 1] for name, value in posterior.draws.items()}
    return replace(posterior, draws=draws)


def test_out_of_fold_predictions_are_those_of_the_member_without_the_row() -> None:
    X, y = rows()
    posterior = boosted(X, y, NaturalGradientBoosting(steps=10, folds=3))
    fold, found = posterior.params["fold"], posterior.out_of_fold()
    for j in range(3):
        alone = member(posterior, j).predict(X)
        mine = fold == j
        assert torch.equal(found.mean[mine], alone.mean[mine])
        assert torch.equal(found.log_prob(y)[mine], alone.log_prob(y)[mine])


def test_a_member_knows_nothing_of_its_fold() -> None:
    """The theorem of CV+ needs it: other targets in the fold leave the member as it is."""
    X, y = rows()
    how = NaturalGradientBoosting(steps=10, folds=3)
    one = boosted(X, y, how)
    changed = torch.where(one.params["fold"] == 1, y.flip(0), y)
    two = boosted(X, changed, how)
    assert torch.equal(member(one, 1).predict(X).std, member(two, 1).predict(X).std)
    assert not torch.equal(member(one, 0).predict(X).std, member(two, 0).predict(X).std)


def test_cv_plus_needs_no_further_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(80)
    posterior = boosted(X, y, NaturalGradientBoosting(steps=20))
    loose = boosted(X, y, NaturalGradientBoosting(steps=20, stopping="fold"))
    fits: list[object] = []
    monkeypatch.setattr(stages.Fit, "advance", lambda self: fits.append(self))
    by_prediction = ppgp.cross_calibrate(posterior.out_of_fold(), score=ppgp.conformal.Absolute())
    by_posterior = ppgp.cross_calibrate(posterior, score=ppgp.conformal.Absolute())
    region = by_prediction(X[:20], 0.9)
    assert not fits
    assert torch.equal(region.lower, by_posterior(X[:20], 0.9).lower)
    assert "coverage >=" in region.guarantee
    sentence = ppgp.cross_calibrate(loose)(X[:5], 0.9).guarantee
    assert sentence.startswith("heuristic")


def test_calibration_on_out_of_fold_rows_guarantees_nothing() -> None:
    X, y = rows(80)
    posterior = boosted(X, y, NaturalGradientBoosting(steps=10))
    with pytest.warns(ppgp.errors.PpgpWarning):
        calibrator = ppgp.calibrate(ppgp.conformal.Absolute(), posterior.out_of_fold(), y)
    region = calibrator(posterior.out_of_fold(), 0.9)
    assert "coverage >=" not in region.guarantee


def test_folds_are_numbers_labels_splitters_or_pairs() -> None:
    X, y = rows(60)
    groups = np.arange(60) % 4
    short = NaturalGradientBoosting(steps=2)
    labelled = boosted(X, y, replace(short, folds=tuple(groups.tolist())))
    assert torch.equal(labelled.params["fold"], torch.as_tensor(groups))
    pairs = tuple(GroupKFold(4).split(X.numpy(), y.numpy(), groups))
    assert int(boosted(X, y, replace(short, folds=pairs)).params["fold"].max()) == 3
    assert boosted(X, y, replace(short, folds=KFold(3))).shape == (1, 3)
    for wrong in (1, 40, "five", tuple([0] * 60), KFold):
        with pytest.raises(SettingError):
            boosted(X, y, replace(short, folds=wrong))
    with pytest.raises(SettingError, match=r"GroupKFold: .*groups.*: pass one label per row"):
        boosted(X, y, replace(short, folds=GroupKFold(4)))


# -- what it is, and what it refuses ---------------------------------------------------------------


def test_one_fit_is_one_draw_without_epistemic_variance() -> None:
    X, y = rows()
    posterior = boosted(X, y)
    assert posterior.shape == (1, 1)
    assert bool((posterior.predict(X).epistemic == 0).all())
    assert not any("trees" in str(name) for name in posterior.summary().index)


def test_members_of_an_ensemble_are_draws() -> None:
    X, y = rows()
    posterior = fit(
        models.Boosted(), Dataset(X, y), Ensemble(replace(SHORT, steps=5), 3), progress=False
    )
    assert posterior.shape == (1, 3)
    assert bool((posterior.predict(X).epistemic > 0).any())


def test_an_ensemble_of_folds_has_all_their_members_and_no_folds() -> None:
    X, y = rows()
    base = NaturalGradientBoosting(steps=4, folds=2)
    with pytest.warns(ConvergenceWarning, match="still improved"):
        posterior = fit(models.Boosted(), Dataset(X, y), Ensemble(base, 3), progress=False)
    assert posterior.shape == (1, 6)
    with pytest.raises(NotApplicable, match="folds"):
        posterior.out_of_fold()


def test_other_methods_fit_one_distribution_for_all_rows_and_say_so() -> None:
    X, y = rows()
    with pytest.warns(ConvergenceWarning, match="no learners"):
        posterior = fit(models.Boosted(), Dataset(X, y), MAP(), progress=False)
    mean, sd = posterior.predict(X[:1]).mean, posterior.predict(X[:1]).std
    torch.testing.assert_close(mean, y.mean()[None], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sd, y.std(correction=0)[None], rtol=1e-5, atol=1e-5)
    with pytest.raises(NotApplicable, match="NaturalGradientBoosting"):
        next(posterior.staged(X))
    with pytest.raises(NotApplicable, match="folds"):
        boosted(X, y).out_of_fold()


def test_the_last_staged_prediction_is_the_prediction() -> None:
    X, y = rows()
    posterior = boosted(X, y, NaturalGradientBoosting(steps=12, folds=2))
    *_, last = posterior.staged(X, every=5)
    torch.testing.assert_close(last.mean, posterior.predict(X).mean, rtol=1e-12, atol=1e-12)
    shares = posterior.importance()
    assert list(shares.columns) == ["f", "log noise"]
    np.testing.assert_allclose(shares.sum(), 1.0)
    assert shares["f"].idxmin() == "x2"  # y does not depend on it


@pytest.mark.parametrize("classes", [2, 4])
def test_classes(classes: int) -> None:
    X, y = rows(400)
    codes = torch.bucketize(y, torch.quantile(y, torch.linspace(0, 1, classes + 1)[1:-1].to(F64)))
    likelihood = likelihoods.Bernoulli() if classes == 2 else likelihoods.Categorical()
    posterior = boosted(X, codes.to(F64), NaturalGradientBoosting(steps=30, folds=2), likelihood)
    new, value = rows(1000, seed=1)
    truth = torch.bucketize(
        value, torch.quantile(y, torch.linspace(0, 1, classes + 1)[1:-1].to(F64))
    )
    found = posterior.predict(new).log_prob(truth.to(F64)).mean()
    assert float(found) > -0.75 * math.log(classes)


def test_a_constant_column_and_other_learners() -> None:
    X, y = rows()
    X = torch.cat([X, torch.ones(len(X), 1, dtype=F64)], 1)
    assert bool(torch.isfinite(boosted(X, y).predict(X).mean).all())
    model = models.Boosted(learner=learners.Linear(1.0))
    posterior = fit(model, Dataset(X, y), SHORT, progress=False)
    assert bool(torch.isfinite(posterior.predict(X).log_prob(y)).all())


def test_what_cannot_be_boosted_is_refused() -> None:
    X, y = rows()
    with pytest.raises(NotApplicable, match=r"noise=Predicted\(\)"):
        boosted(X, y, likelihood=likelihoods.Gaussian())
    with pytest.raises(NotApplicable, match="sum of learners"):
        fit(models.LinearRegression(), Dataset(X, y), SHORT, progress=False)
    with pytest.raises(DataError, match="positive"):
        boosted(X, y - 100, likelihood=likelihoods.Gamma(shape=Predicted()))
    law = likelihoods.StudentT(df=Predicted(), scale=Predicted())
    with pytest.raises(NotApplicable, match="nll"):
        boosted(X, y, likelihood=law)
    with pytest.raises(SettingError, match="hold_out"):
        NaturalGradientBoosting(hold_out=0.2)


@pytest.mark.parametrize("name", ["Exponential", "Gamma", "LogNormal", "Weibull"])
@pytest.mark.parametrize("wrong", [0.0, -1.5])
def test_positive_laws_name_the_target_that_is_not_positive(name: str, wrong: float) -> None:
    X, y = rows(30)
    y = y.exp()
    y[7] = wrong
    field = {"LogNormal": "noise", "Exponential": None}.get(name, "shape")
    law = getattr(likelihoods, name)(**({field: Predicted()} if field else {}))
    with pytest.raises(DataError, match=f"positive targets in y, got {wrong:g} in row 7"):
        boosted(X, y, likelihood=law)


@pytest.mark.parametrize("law", [likelihoods.Bernoulli(), likelihoods.Categorical()])
def test_one_class_alone_is_refused(law: likelihoods.Likelihood) -> None:
    X, _ = rows(30)
    with pytest.raises(DataError, match="rows of at least two classes, got only 1"):
        boosted(X, torch.ones(30, dtype=F64), likelihood=law)


@pytest.mark.parametrize("learner", [learners.Trees(), learners.Linear(1.0)])
def test_steps_that_do_not_fit_into_memory_are_refused(learner: learners.Learner) -> None:
    X, y = rows()
    how = NaturalGradientBoosting(steps=2 * 10**9, folds=3)
    with pytest.raises(NotEnoughMemory, match=r"use at most [\d,]+ steps"):
        fit(models.Boosted(learner=learner), Dataset(X, y), how, progress=False)


def test_advice_on_memory_is_a_number_of_steps_that_fits() -> None:
    with pytest.raises(NotEnoughMemory) as refused:
        check_memory(learners.Trees(), 10_000, 5, 3, 10**12, 5)
    steps = int(re.search(r"at most ([\d,]+) steps", str(refused.value))[1].replace(",", ""))  # type: ignore[index]
    assert steps > 1000
    check_memory(learners.Trees(), 10_000, 5, 3, steps, 5)
    with pytest.raises(NotEnoughMemory, match="fewer classes"):
        check_memory(learners.Trees(), 10**9, 5, 10**5, 1, 1)


@pytest.mark.parametrize(
    "how", [SHORT, NaturalGradientBoosting(steps=15, folds=2)], ids=["one", "folds"]
)
@pytest.mark.parametrize("stage", [8, 20])
def test_ctrl_c_keeps_the_stages_so_far(
    how: NaturalGradientBoosting, stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, advance = [0], stages.Fit.advance

    def interrupted(self: stages.Fit) -> None:
        taken[0] += 1
        if taken[0] == min(stage, 8 if how is SHORT else stage):
            raise KeyboardInterrupt
        advance(self)

    monkeypatch.setattr(stages.Fit, "advance", interrupted)
    X, y = rows()
    with pytest.warns(ConvergenceWarning, match="Ctrl-C: 1 of"):
        posterior = boosted(X, y, how)
    assert posterior.stats["interrupted"]
    assert "fold" not in posterior.params
    assert bool(torch.isfinite(posterior.predict(X).log_prob(y)).all())


def test_pure_noise_may_end_without_a_stage() -> None:
    g = torch.Generator().manual_seed(0)
    X, y = torch.randn(60, 2, generator=g, dtype=F64), torch.randn(60, generator=g, dtype=F64)
    how = NaturalGradientBoosting(steps=30, learning_rate=0.9, folds=3)
    posterior = boosted(X, y, how)
    assert bool((posterior.stats["stages"] == 0).any())
    assert bool(torch.isfinite(posterior.predict(X).log_prob(y)).all())
    assert len(list(posterior.staged(X))) >= 1
    alone = member(posterior, int(posterior.stats["stages"][0].argmin()))
    constant = list(alone.staged(X))
    assert len(constant) == 1
    assert torch.equal(constant[0].mean, alone.predict(X).mean)
