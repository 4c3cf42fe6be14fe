"""The ranking of different models: by test rows, by leave-one-out, and beside ArviZ."""

from __future__ import annotations

from dataclasses import replace

import either_arviz
import numpy as np
import pytest
import torch

import ppgp
from ppgp import Dataset, inference, kernels, likelihoods, models
from ppgp.diagnostics.leave_one_out import leave_one_out
from ppgp.diagnostics.ranking import ranking_of
from ppgp.errors import DataError, NotApplicable
from ppgp.models import LinearRegression
from ppgp.posterior.arviz import arviz
from ppgp.posterior.posterior import Posterior

F64 = torch.float64
N = 30


def rows(seed: int, n: int = N) -> Dataset:
    """Return rows whose y is a smooth wave of the first column, with noise of sd 0.2."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 2, generator=generator, dtype=F64)
    noise = torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, 5 + 3 * (torch.sin(2 * X[:, 0]) + 0.2 * noise))


@pytest.fixture(scope="module")
def gps() -> dict[str, Posterior]:
    """Return three kernels by MAP; the wave is no line, and the second column does not matter."""
    own = {
        "line": kernels.Linear(),
        "wave": kernels.Subspace(kernels.RBF(), [0]),
        "noise": kernels.Subspace(kernels.RBF(), [1]),
    }
    return {
        name: ppgp.fit(models.GP(kernel), rows(0), inference.MAP(), progress=False)
        for name, kernel in own.items()
    }


def test_points_of_a_gp_have_the_closed_form(gps: dict[str, Posterior]) -> None:
    """Each row is predicted from the others by the formula of a conditional normal."""
    posterior, data = gps["wave"], rows(0)
    values = {name: float(v.squeeze()) for name, v in posterior.draws_in("data").items()}
    x, y = data.X[:, 0].numpy(), data.y.numpy()
    distance = (x[:, None] - x) / values["kernel.lengthscale"]
    K = values["kernel.variance"] * np.exp(-0.5 * distance**2) + values["noise"] * np.eye(N)
    expected = []
    for i in range(N):
        rest = np.arange(N) != i
        weights = np.linalg.solve(K[np.ix_(rest, rest)], K[rest, i])
        mean = y.mean() + weights @ (y[rest] - y.mean())
        variance = K[i, i] - weights @ K[rest, i]
        expected.append(-0.5 * (np.log(2 * np.pi * variance) + (y[i] - mean) ** 2 / variance))
    found = leave_one_out(posterior)
    np.testing.assert_allclose(found.pointwise, expected, rtol=1e-7)
    assert found.method == "closed form"
    assert "closed form" in repr(found)
    table = ppgp.compare({"wave": posterior}, loo=True).to_frame()
    assert table.loc["wave", "elpd_loo"] == pytest.approx(sum(expected))
    assert table.loc["wave", "loo_method"] == "closed form"


def test_draws_of_a_gp_are_weighted_by_psis() -> None:
    model = models.GP(kernels.RBF())
    posterior = ppgp.fit(model, rows(0), inference.Laplace(draws=400), progress=False)
    found = leave_one_out(posterior)
    assert found.method == "PSIS"
    np.testing.assert_array_equal(found.pointwise, ppgp.psis_loo(posterior).pointwise)


def test_draws_of_unknown_density_have_the_mixture_of_the_closed_forms() -> None:
    how = inference.Laplace(draws=20)
    posterior = ppgp.fit(models.GP(kernels.RBF()), rows(0), how, progress=False)
    posterior = replace(posterior, stats={})
    expected = posterior.loo().log_prob(rows(0).y)
    with pytest.raises(NotApplicable):
        ppgp.psis_loo(posterior)
    np.testing.assert_allclose(leave_one_out(posterior).pointwise, expected.numpy(), rtol=1e-9)


def test_kernels_are_ranked_without_test_rows_and_with_them(gps: dict[str, Posterior]) -> None:
    table = ppgp.compare(gps).ranking
    assert table is not None
    assert table.index[0] == "wave"
    assert table["ranking"].tolist() == ["best", "worse", "worse"]
    assert table.loc["wave", "weight"] > 0.9
    test = rows(1, 40)
    on_test = ppgp.compare(gps, test=test)
    assert on_test.ranking is not None
    for name, posterior in gps.items():
        expected = float(posterior.predict(test.X).log_prob(test.y).sum())
        assert on_test.ranking.loc[name, "elpd"] == pytest.approx(expected)
    frame = on_test.to_frame()
    assert frame.index.tolist() == on_test.ranking.index.tolist()
    assert frame["rank"].tolist() == [1, 2, 3]


def test_one_model_fitted_twice_is_not_ranked(gps: dict[str, Posterior]) -> None:
    again = ppgp.fit(gps["wave"].recipe, rows(0), inference.Laplace(), progress=False)
    assert ppgp.compare({"map": gps["wave"], "laplace": again}).ranking is None


@pytest.mark.filterwarnings("ignore")  # of ArviZ: shapes of Pareto, and pandas
def test_the_ranking_is_that_of_arviz() -> None:
    """Differences and stacking weights agree; ArviZ divides the variance by n."""
    data = rows(0)
    posteriors = {}
    for name, columns in {"first": [0], "second": [1], "both": [0, 1]}.items():
        train = Dataset(data.X[:, columns], data.y)
        how = inference.Exact(draws=900)
        posteriors[name] = ppgp.fit(LinearRegression(), train, how, progress=False)
    found = ppgp.compare(posteriors).ranking
    assert found is not None
    az = arviz()
    each = {k: az.loo(p.to_arviz(), pointwise=True, reff=1.0) for k, p in posteriors.items()}
    theirs = either_arviz.comparison(each)
    assert found.index.tolist() == theirs.index.tolist()
    for name in posteriors:
        mine, other = found.loc[name], theirs.loc[name]
        assert mine["elpd_difference"] == pytest.approx(-abs(float(other["elpd_diff"])), abs=1e-6)
        error = float(other["dse"]) * np.sqrt(N / (N - 1))
        assert mine["elpd_difference_se"] == pytest.approx(error, abs=1e-6)
        assert mine["weight"] == pytest.approx(float(other["weight"]), abs=1e-3)


def test_small_and_uncertain_differences_are_as_good() -> None:
    best = np.zeros(100)
    noise = np.resize([1.0, -1.0], 100)
    table = ranking_of(
        {
            "small": best - 0.03,  # 3 nats, the same in every row
            "uncertain": best - 0.1 + noise,  # 10 nats, with a standard error of 10.05
            "worse": best - 0.3 + noise,  # 30 nats
            "none": np.full(100, np.nan),
            "best": best,
        }
    )
    assert table["ranking"].to_dict() == {
        "best": "best",
        "small": "as good as the best",
        "uncertain": "as good as the best",
        "worse": "worse",
        "none": "not ranked",
    }
    assert table.loc["uncertain", "elpd_difference_se"] == pytest.approx(100 / np.sqrt(99))


def test_a_model_that_calls_a_row_impossible_is_the_last() -> None:
    never = np.array([0.5, -np.inf, 0.5])
    table = ranking_of({"never": never, "good": np.zeros(3), "none": np.full(3, np.nan)})
    assert table["rank"].to_dict()["never"] == 2
    assert table.loc["never", "elpd_difference"] == -np.inf
    assert table.loc["never", "ranking"] == "worse"
    gain = np.exp(0.5) - 1  # 2 log(1 + gain w) + log(1 - w) is largest at this weight
    assert table.loc["never", "weight"] == pytest.approx((2 * gain - 1) / (3 * gain), abs=1e-4)
    assert table.loc["none", "ranking"] == "not ranked"
    both = ranking_of({"a": never, "b": never[::-1] - 1.0})
    assert both["ranking"].tolist() == ["best", "as good as the best"]


def test_stacking_weights_of_posteriors_are_those_of_their_densities(
    gps: dict[str, Posterior],
) -> None:
    densities = torch.stack([p.loo().log_prob(rows(0).y) for p in gps.values()])
    expected = ppgp.stacking_weights(densities)
    torch.testing.assert_close(ppgp.stacking_weights(gps), expected, atol=1e-6, rtol=0.0)
    by_place = ppgp.stacking_weights(list(gps.values()))
    torch.testing.assert_close(by_place, expected, atol=1e-6, rtol=0.0)


def test_models_of_other_rows_are_neither_ranked_nor_stacked(gps: dict[str, Posterior]) -> None:
    other = ppgp.fit(models.GP(kernels.RBF()), rows(1), inference.MAP(), progress=False)
    assert ppgp.compare({"wave": gps["wave"], "other": other}).ranking is None
    with pytest.raises(DataError, match="same training rows"):
        ppgp.stacking_weights([gps["wave"], other])
    with pytest.raises(DataError, match="a Tensor among them"):
        ppgp.stacking_weights([gps["wave"], torch.zeros(N)])


def test_models_of_other_rows_have_a_reason_in_place_of_a_ranking(
    gps: dict[str, Posterior],
) -> None:
    other = ppgp.fit(models.GP(kernels.RBF()), rows(1), inference.MAP(), progress=False)
    found = ppgp.compare({"wave": gps["wave"], "other": other})
    assert found.ranking is None
    assert found.not_ranked.startswith("the training rows differ: fit all models to the same rows")
    assert repr(found).endswith(f"not ranked: {found.not_ranked}")
    ranked = ppgp.compare(gps)
    assert ranked.not_ranked == ""
    assert "not ranked" not in repr(ranked)


def line(n: int) -> Posterior:
    data = Dataset(LINE.X[:n], LINE.y[:n])
    how = inference.Exact(draws=200)
    return ppgp.fit(models.LinearRegression(), data, how, progress=False)


LINE = Dataset(
    torch.linspace(0, 1, 40, dtype=torch.float64)[:, None],
    torch.sin(torch.arange(40, dtype=torch.float64)) + torch.linspace(0, 2, 40).double(),
)


def test_one_model_fitted_to_other_rows_has_a_reason_or_a_ranking() -> None:
    posteriors = {"all": line(40), "some": line(30)}
    found = ppgp.compare(posteriors)
    assert found.ranking is None
    assert found.not_ranked.startswith("the training rows differ")
    test = Dataset(LINE.X + 0.01, LINE.y + 0.1)
    ranked = ppgp.compare(posteriors, test=test)
    assert ranked.ranking is not None
    assert ranked.not_ranked == ""
    in_cm = Dataset(LINE.X, 100 * LINE.y)
    how = inference.Exact(draws=200)
    other = ppgp.fit(models.LinearRegression(), in_cm, how, progress=False)
    assert ppgp.compare({"m": line(40), "cm": other}).not_ranked.startswith("the training rows")
    named = ppgp.compare(posteriors, reference="all")
    assert named.reasons["some"].endswith("the reference was fitted to other rows")


def test_the_same_rows_in_single_precision_are_ranked() -> None:
    single = Dataset(LINE.X.float(), LINE.y.float())
    how = inference.Exact(draws=200)
    other = ppgp.fit(models.LinearRegression(), single, how, progress=False)
    found = ppgp.compare({"double": line(40), "single": other})
    assert found.ranking is not None
    assert abs(float(found.ranking["elpd_difference"].min())) < 1.0


def test_densities_and_probabilities_are_not_ranked() -> None:
    counts = Dataset(LINE.X, (3 + LINE.y).round().clamp_min(0))
    how = inference.Laplace(draws=200)
    recipes = {"normal": models.LinearRegression(), "poisson": models.GLM(likelihoods.Poisson())}
    posteriors = {name: ppgp.fit(m, counts, how, progress=False) for name, m in recipes.items()}
    for test in (None, Dataset(LINE.X + 0.01, counts.y)):
        found = ppgp.compare(posteriors, test=test)
        assert found.ranking is None
        assert found.not_ranked.endswith("some models take y as continuous and some as count")
