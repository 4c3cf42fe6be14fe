"""Averages of posteriors: weights by evidence, the mixture, updates and files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import LogNormal, Normal, Poisson, StudentT

import ppgp
from ppgp import Prediction, inference, kernels, likelihoods, models, plots
from ppgp.distributions.weighted_mixture import weighted
from ppgp.errors import DataError, NotApplicable, NotKnown, SettingError, StorageError, UnknownName

TIMES = torch.arange(12, dtype=torch.float64)
VALUES = 3 + 0.4 * TIMES + torch.cos(5 * TIMES)
DATA = ppgp.Dataset(TIMES[:, None], VALUES)
AHEAD = [[12.0], [14.5]]
#: kernels of numbers alone, so that the evidence is known in closed form
KERNELS = {
    "walk": kernels.Matern(0.5, variance=4.0, lengthscale=9.0),
    "smooth": kernels.Matern(2.5, variance=4.0, lengthscale=9.0),
    "wave": kernels.Cosine(2.0, 3.0),
}


def fitted(data: ppgp.Dataset = DATA) -> dict[str, ppgp.Posterior]:
    """Return one fit per kernel; nothing is estimated."""
    found = {}
    for name, kernel in KERNELS.items():
        model = models.StateSpaceGP(kernel, noise=0.5, mean=4.0)
        found[name] = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
    return found


def dense_evidence(name: str, X: torch.Tensor, y: torch.Tensor) -> float:
    """Return log N(y; 4, K + noise I) by SciPy."""
    K = KERNELS[name]({}, X[:, None]).numpy() + 0.5 * np.eye(len(X))
    return float(stats.multivariate_normal(np.full(len(X), 4.0), K).logpdf(y.numpy()))


def test_weights_are_proportional_to_the_evidence() -> None:
    average = ppgp.average(fitted())
    logs = np.array([dense_evidence(name, TIMES, VALUES) for name in KERNELS])
    expected = np.exp(logs - logs.max())
    assert average.weights.numpy() == pytest.approx(expected / expected.sum(), rel=1e-6)
    assert average.best == list(KERNELS)[int(logs.argmax())]
    assert average.names == tuple(KERNELS)
    assert repr(average).startswith("<Average of 3 posteriors by evidence: ")


def test_the_prediction_is_the_mixture_of_those_of_the_posteriors() -> None:
    fits = fitted()
    weights = [0.5, 0.3, 0.2]
    average = ppgp.average(list(fits.values()), by=weights)
    prediction = average.predict(AHEAD)
    each = [fit.predict(AHEAD) for fit in fits.values()]
    y = torch.tensor([7.0, 10.0], dtype=torch.float64)
    mixed = {
        name: sum(w * getattr(p, name)(y) for w, p in zip(weights, each, strict=True))
        for name in ("cdf",)
    }
    mean = sum(w * p.mean for w, p in zip(weights, each, strict=True))
    pairs = zip(weights, each, strict=True)
    variance = sum(w * (p.variance + (p.mean - mean).square()) for w, p in pairs)
    density = sum(w * p.log_prob(y).exp() for w, p in zip(weights, each, strict=True))
    assert torch.allclose(prediction.cdf(y), torch.as_tensor(mixed["cdf"]), rtol=1e-12)
    assert torch.allclose(prediction.mean, torch.as_tensor(mean), rtol=1e-12)
    assert torch.allclose(prediction.variance, torch.as_tensor(variance), rtol=1e-10)
    assert torch.allclose(prediction.log_prob(y), torch.as_tensor(density).log(), rtol=1e-10)
    lower, upper = prediction.interval(0.9)
    assert torch.allclose(prediction.cdf(lower), torch.full((2,), 0.05).double(), atol=1e-9)
    assert torch.allclose(prediction.cdf(upper), torch.full((2,), 0.95).double(), atol=1e-9)
    latent = sum(w * f.latent(AHEAD).mean for w, f in zip(weights, fits.values(), strict=True))
    assert torch.allclose(average.latent(AHEAD).mean, torch.as_tensor(latent), rtol=1e-12)


def test_training_rows_are_recognised() -> None:
    average = ppgp.average(fitted())
    assert bool(average.predict(DATA.X).in_training_with(VALUES).all())
    assert not bool(average.predict(AHEAD).in_training_with([1.0, 2.0]).any())


def test_an_update_gives_the_average_of_fits_to_all_rows() -> None:
    """No hyperparameter is estimated, so that the two are the same posterior."""
    first = ppgp.average(fitted(ppgp.Dataset(TIMES[:8, None], VALUES[:8])))
    updated = first.update(TIMES[8:, None], VALUES[8:])
    whole = ppgp.average(fitted())
    assert torch.allclose(updated.weights, whole.weights, rtol=1e-8)
    assert torch.allclose(updated.predict(AHEAD).mean, whole.predict(AHEAD).mean, rtol=1e-8)
    by_table = first.update(ppgp.Dataset(TIMES[8:, None], VALUES[8:]))
    assert torch.allclose(by_table.weights, updated.weights, rtol=1e-12)


def test_a_file_gives_the_same_average(tmp_path: Path) -> None:
    average = ppgp.average(fitted())
    again = ppgp.Average.load(average.save(tmp_path / "average.safetensors"))
    assert again.names == average.names
    assert torch.equal(again.weights, average.weights)
    assert torch.equal(again.predict(AHEAD).mean, average.predict(AHEAD).mean)
    assert repr(again) == repr(average)
    with pytest.raises(StorageError, match=r"an average of posteriors.*Average\.save"):
        ppgp.Average.load(average["walk"].save(tmp_path / "one.safetensors"))
    with pytest.raises(StorageError, match="a Posterior in the file"):
        ppgp.load_posterior(tmp_path / "average.safetensors")


def test_a_file_with_other_weights_is_refused(tmp_path: Path) -> None:
    average = ppgp.average(fitted())
    forged = ppgp.Average(average.posteriors, average.weights[:2])
    with pytest.raises(StorageError, match="one weight for each posterior"):
        ppgp.Average.load(forged.save(tmp_path / "forged.safetensors"))


def test_sets_calibrated_on_an_average_are_of_its_predictions() -> None:
    average = ppgp.average(fitted())
    new = torch.arange(12.0, 40.0).double()[:, None]
    calibrator = ppgp.calibrate(
        ppgp.conformal.Absolute(), average.predict(new), torch.zeros(28).double()
    )
    assert "exchangeable rows" in calibrator(average.predict(AHEAD), 0.9).guarantee
    other = ppgp.average(average.posteriors, by=[0.2, 0.4, 0.4])
    assert "another fit" in calibrator(other.predict(AHEAD), 0.9).guarantee


def test_classes_are_averaged_by_their_probabilities() -> None:
    x = torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None]
    data = ppgp.Dataset(x, (x[:, 0] > 0).double(), classes=("no", "yes"))
    fits = [
        ppgp.fit(models.LogisticRegression(weight=w), data, inference.MAP(), progress=False)
        for w in (0.5, 3.0)
    ]
    prediction = ppgp.average(fits, by=[0.25, 0.75]).predict([[0.7]])
    each = [fit.predict([[0.7]]).probabilities for fit in fits]
    assert torch.allclose(prediction.probabilities, 0.25 * each[0] + 0.75 * each[1])
    assert prediction.classes == ("no", "yes")


def of_rows(law: Any) -> Any:
    """Return a law of two rows under one draw."""
    return law.expand((1, 2))


FAMILIES = {
    "several families": (
        [of_rows(Normal(0.5, 0.4)), of_rows(LogNormal(0.1, 0.3)), of_rows(StudentT(6.0, 1.0, 0.2))],
        [(1.0, 2.0), (0.0, 3.0), (0.0, 1.0)],
        [stats.norm(2.0, 0.8), stats.lognorm(0.3, scale=3 * np.exp(0.1)), stats.t(6.0, 1.0, 0.2)],
    ),
    "counts": (
        [of_rows(Poisson(torch.tensor(3.0))), of_rows(Poisson(torch.tensor(8.0)))],
        [(0.0, 1.0), (0.0, 1.0)],
        [stats.poisson(3.0), stats.poisson(8.0)],
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_mixture_of_families_has_the_figures_of_scipy(name: str) -> None:
    laws, units, exact = FAMILIES[name]
    w = np.array([0.5, 0.3, 0.2][: len(laws)])
    w = w / w.sum()
    prediction = Prediction(weighted(laws, torch.tensor(w), units))
    y = np.array([2.0, 4.0])
    density = [(e.pmf if name == "counts" else e.pdf)(y) for e in exact]
    means = np.array([e.mean() for e in exact])
    mean = w @ means
    variance = w @ np.array([e.var() + (e.mean() - mean) ** 2 for e in exact])
    single = {"rel": 1e-5}  # the distributions are of single precision
    assert prediction.cdf(y).numpy() == pytest.approx(w @ [e.cdf(y) for e in exact], **single)
    assert prediction.log_prob(y).exp().numpy() == pytest.approx(w @ density, **single)
    assert prediction.mean.numpy() == pytest.approx([mean] * 2, **single)
    assert prediction.variance.numpy() == pytest.approx([variance] * 2, **single)
    k = 20_000
    drawn = prediction.sample(k, seed=1)[:, 0].double().numpy()
    assert abs(drawn.mean() - mean) < 5 * np.sqrt(variance / k)
    middle = prediction.quantile(0.5)
    assert bool((prediction.cdf(middle) >= 0.5 - 1e-5).all())
    assert len(prediction[[1]].crps([3.0])) == 1


def test_figures_of_a_mixture_of_families_are_those_of_a_normal_mixture() -> None:
    """CRPS and tails of two normals, as FamilyMixture and in the closed forms of normals."""
    laws = [of_rows(Normal(0.0, 1.0)), of_rows(Normal(3.0, 0.5)), of_rows(StudentT(1e9, 1.0, 2.0))]
    units = [(0.0, 1.0)] * 3
    weights = torch.tensor([0.4, 0.5, 0.1])
    found = Prediction(weighted(laws, weights, units))
    laws[2] = of_rows(Normal(1.0, 2.0))
    closed = Prediction(weighted(laws, weights, units))
    assert "FamilyMixture" in repr(found)
    assert "NormalMixture" in repr(closed)
    y = [0.5, 2.0]
    assert torch.allclose(found.crps(y), closed.crps(y), rtol=1e-3)
    assert torch.allclose(found.quantile(0.1), closed.quantile(0.1), atol=1e-3)


def test_what_cannot_be_averaged_is_refused() -> None:
    fits = fitted()
    with pytest.raises(SettingError, match="one posterior or more"):
        ppgp.average({})
    with pytest.raises(SettingError, match="posteriors, in a list or by name"):
        ppgp.average([fits["walk"], 3])
    with pytest.raises(SettingError, match='by="evidence", or weights'):
        ppgp.average(fits, by="stacking")
    with pytest.raises(DataError, match="3 weights of 0 or more that sum to 1"):
        ppgp.average(fits, by=[0.5, 0.6, 0.1])
    other = fitted(ppgp.Dataset(TIMES[:8, None], VALUES[:8]))
    with pytest.raises(DataError, match="same training rows"):
        ppgp.average([fits["walk"], other["walk"]])
    average = ppgp.average(fits)
    with pytest.raises(NotApplicable, match="joint=True"):
        average.predict(AHEAD, joint=True)
    with pytest.raises(UnknownName, match="posterior"):
        average["walks"]
    slow = ppgp.fit(models.LinearRegression(), DATA, inference.SVI(steps=20), progress=False)
    with pytest.raises(NotKnown, match="knows the evidence"):
        ppgp.average([fits["walk"], slow])
    broken = ppgp.Posterior(**{**vars_of(fits["walk"]), "stats": {"log_evidence": np.nan}})
    with pytest.raises(DataError, match="a finite log evidence of each posterior"):
        ppgp.average([broken])


def vars_of(posterior: ppgp.Posterior) -> dict[str, Any]:
    """Return the init fields of a posterior."""
    names = ("model", "data", "draws", "how", "params", "seconds", "warnings", "scaler", "recipe")
    return {name: getattr(posterior, name) for name in names}


def test_predictions_of_other_kinds_are_refused() -> None:
    data = ppgp.Dataset(TIMES[:, None], TIMES)
    recipes = [models.LinearRegression(), models.GLM(likelihoods.Poisson())]
    fits = [ppgp.fit(recipe, data, inference.MAP(), progress=False) for recipe in recipes]
    with pytest.raises(NotApplicable, match="predictions of one kind, got continuous and count"):
        ppgp.average(fits, by=[0.5, 0.5]).predict(AHEAD)
    weights = torch.tensor([0.5, 0.5])
    gamma = torch.distributions.Gamma(torch.ones(1, 2), torch.ones(1, 2))
    with pytest.raises(NotApplicable, match="a family of distributions that has the units of y"):
        weighted([gamma, gamma], weights, [(1.0, 2.0)] * 2)


def test_weights_that_are_not_known_are_refused() -> None:
    pair = list(fitted().values())[:2]
    with pytest.raises(DataError, match="2 weights of 0 or more"):
        ppgp.average(pair, by=[np.nan, np.nan])


def test_f_of_models_of_y_and_of_log_y_is_not_averaged() -> None:
    log = models.StateSpaceGP(kernels.Matern(1.5), log=True)
    fits = [
        ppgp.fit(model, DATA, inference.MAP(starts=1), progress=False)
        for model in (log, models.StateSpaceGP(kernels.Matern(1.5)))
    ]
    both = ppgp.average(fits, by=[0.5, 0.5])
    with pytest.raises(NotApplicable, match="f in one unit"):
        both.latent(AHEAD)
    with pytest.raises(NotApplicable, match="parts in one unit"):
        both.components(AHEAD)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_summary_has_the_weights_first_and_the_summaries_of_the_posteriors() -> None:
    recipe = models.LinearRegression()
    fits = {
        "point": ppgp.fit(recipe, DATA, inference.MAP(), progress=False),
        "chains": ppgp.fit(
            recipe, DATA, inference.NUTS(chains=2, warmup=50, draws=50), progress=False
        ),
        "unused": ppgp.fit(recipe, DATA, inference.Laplace(draws=50), progress=False),
    }
    average = ppgp.average(fits, by=[0.2, 0.79999, 0.00001])
    for units in ("model", "data"):
        found = average.summary(units)
        assert list(dict.fromkeys(found.index.get_level_values(0))) == ["chains", "point"]
        assert found.columns[0] == "weight"
        for name, weight in (("chains", 0.8), ("point", 0.2)):
            own, part = fits[name].summary(units), found.loc[name]
            assert part["weight"].tolist() == pytest.approx([weight] * len(own), abs=1e-4)
            np.testing.assert_array_equal(part[own.columns], own)
            assert found.index.names == ["posterior", own.index.name]
        assert found.loc["point", "r_hat"].isna().all()
    with pytest.raises(UnknownName):
        average.summary("miles")


# -- diagnose, compare and report take an average --------------------------------------------------


def test_the_diagnosis_of_an_average_is_the_worst_of_its_posteriors() -> None:
    recipe = models.LinearRegression()
    fits = {
        "exact": ppgp.fit(recipe, DATA, inference.Exact(), progress=False),
        "point": ppgp.fit(recipe, DATA, inference.MAP(), progress=False),
        "unused": ppgp.fit(recipe, DATA, inference.Laplace(draws=50), progress=False),
    }
    average = ppgp.average(fits, by=[0.6, 0.4, 0.0])
    found = ppgp.diagnose(average)
    assert found.verdict == "unjudged"
    assert found.reason == "point: one point: it has no spread to judge"
    assert found.findings == (
        "point: one point: it has no spread to judge: fit by Laplace, or by NUTS, and compare",
    )
    own = ppgp.diagnose(fits["exact"]).table
    assert float(found.table.at["exact: bias", "mean"]) == float(own.at["bias", "mean"])
    assert len(found.table) == 2 * len(own)
    alone = ppgp.diagnose(ppgp.average({"exact": fits["exact"]}, by=[1.0]))
    assert (alone.verdict, alone.reason) == ("agrees", "draws of the posterior itself")
    with pytest.raises(NotApplicable, match="one posterior beside a reference"):
        ppgp.diagnose(average, fits["exact"])


def test_an_average_is_ranked_by_its_predictions_of_test_rows() -> None:
    fits = fitted()
    average = ppgp.average(fits)
    later = torch.arange(12.0, 20.0, dtype=torch.float64)
    test = ppgp.Dataset(later[:, None], 3 + 0.4 * later + torch.cos(5 * later))
    found = ppgp.compare({"average": average, "walk": fits["walk"]}, test=test)
    prediction = average.predict(test.X)
    nll = -prediction.log_prob(test.y).mean()
    assert found.predictive.at["average", "nll"] == pytest.approx(float(nll))
    assert found.verdicts["average"] == "unjudged"
    assert found.reasons["average"].startswith("an average of several models: ppgp.diagnose")
    assert found.ranking is not None
    assert found.ranking.at["average", "elpd"] == pytest.approx(-8 * float(nll))
    assert ppgp.compare({"average": average, "walk": fits["walk"]}).ranking is None


def test_an_average_keeps_its_warnings_and_seconds_in_its_file(tmp_path: Path) -> None:
    average = replace(ppgp.average(fitted()), warnings=("one sentence",), took=3.5)
    again = ppgp.Average.load(average.save(tmp_path / "average.ppgp"))
    assert again.warnings == ("one sentence",)
    assert again.seconds == 3.5
    plain = ppgp.average(fitted())
    loaded = ppgp.Average.load(plain.save(tmp_path / "plain.ppgp"))
    assert loaded.seconds == sum(each.seconds for each in plain.posteriors.values())


def test_the_figure_that_suits_an_average_is_that_of_its_components() -> None:
    kernel = kernels.Matern(1.5, 4.0, 9.0) + kernels.Cosine(2.0, 3.0)
    model = models.StateSpaceGP(kernel, noise=0.5, mean=4.0)
    fit = ppgp.fit(model, DATA, inference.MAP(), progress=False, standardise=False)
    assert list(plots.suited(ppgp.average({"a": fit, "b": fit}, by=[0.5, 0.5]))) == ["components"]
