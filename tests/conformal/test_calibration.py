"""Conformal methods that fit models: full conformal, CV+, jackknife+ and conformal Bayes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import conformal, inference, kernels, models, priors
from ppgp.data import Dataset
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ppgp.posterior.region import Region

quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
GENERATOR = torch.Generator().manual_seed(0)


def rows(n: int, d: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return X, torch.sin(X[:, 0]) + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64)


def test_full_conformal_equals_brute_force_in_the_units_of_the_data() -> None:
    X, y = rows(25, 1, GENERATOR)
    data = Dataset(X, 100 + 7 * y)
    posterior = ppgp.fit(models.GP(), data, inference.MAP(), progress=False)
    region = ppgp.full_conformal(posterior, X[:3] + 0.1, level=0.8, split=None)
    one = {k: v[0] for k, v in posterior.theta.items()}
    scaler = posterior.scaler
    assert not scaler.is_identity
    table = torch.cat([posterior.data.X, scaler.inputs(X[:3] + 0.1)])
    kernel = kernels.RBF()
    full = kernel(
        {"variance": one["kernel.variance"], "lengthscale": one["kernel.lengthscale"]}, table
    ) + one["noise"] * torch.eye(28)
    assert region.lower is not None
    for row in range(3):
        for t, inside in (
            (float(region.lower[row]) + 1e-6, True),
            (float(region.lower[row]) - 1e-6, False),
        ):
            index = [*range(25), 25 + row]
            inverse = torch.linalg.inv(full[index][:, index])
            values = torch.cat(
                [posterior.data.y, scaler.targets(torch.tensor([t], dtype=torch.float64))]
            )
            score = (inverse @ values).abs() / inverse.diagonal().sqrt()
            assert (1 + int((score[:-1] >= score[-1]).sum()) > 0.2 * 26) == inside
    assert region.guarantee.startswith("heuristic")


@quiet
@pytest.mark.slow
def test_full_conformal_with_a_split_covers_where_fitted_hyperparameters_do_not() -> None:
    """Maximum likelihood, one lengthscale per column, five columns, thirty rows, level 0.8."""
    model = models.GP(
        kernels.ARD(kernels.RBF(variance=priors.Flat(), lengthscale=priors.Flat())),
        noise=priors.Flat(start=0.1),
    )
    naive, split = [], []
    for seed in range(30):
        X, y = rows(130, 5, torch.Generator().manual_seed(100 + seed))
        posterior = ppgp.fit(
            model, Dataset(X[:30], y[:30]), inference.MAP(steps=200, starts=1), progress=False
        )
        for found, share in ((naive, None), (split, 0.3)):
            region = ppgp.full_conformal(posterior, X[30:], level=0.8, split=share, seed=seed)
            found.append(float(region.covers(y[30:]).double().mean()))
    error = 3 * np.std(split) / math.sqrt(len(split))
    print(
        f"split {np.mean(split):.3f} +- {error / 3:.3f}, "
        f"fitted on the ranked rows {np.mean(naive):.3f}"
    )
    assert np.mean(split) >= 0.8 - error
    assert np.mean(naive) <= 0.8 - 3 * np.std(naive) / math.sqrt(len(naive))


def test_the_predictive_system_of_a_gp_has_the_interval_of_its_steps() -> None:
    X, y = rows(40, 1, torch.Generator().manual_seed(3))
    posterior = ppgp.fit(models.GP(), Dataset(X, y), inference.MAP(), progress=False)
    from ppgp.conformal.full_conformal_sets import full_system_of

    system = full_system_of(posterior, X[:5] + 0.01, seed=1)
    assert (len(system), system.n) == (5, 28)
    cdf = system.cdf(torch.linspace(-4, 4, 50, dtype=torch.float64)[:, None].expand(50, 5))
    assert bool((cdf.diff(dim=0) >= 0).all())
    assert "exchangeable" in system.interval(0.8).guarantee


@quiet
def test_full_conformal_rejects_bad_arguments() -> None:
    X, y = rows(12, 2, torch.Generator().manual_seed(4))
    posterior = ppgp.fit(models.LinearRegression(), Dataset(X, y), inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="jointly Gaussian, such as GP"):
        ppgp.full_conformal(posterior, X)
    gp = ppgp.fit(models.GP(), Dataset(X, y), inference.MAP(), progress=False)
    with pytest.raises(SettingError, match=r"split in \(0, 1\)"):
        ppgp.full_conformal(gp, X, split=1.5)
    with pytest.raises(DataError, match="at least 3 rows to fit"):
        ppgp.full_conformal(gp, X, split=0.1)
    assert "infinite" in ppgp.full_conformal(gp, X, level=0.95).guarantee


# -- CV+ and jackknife+ --


@quiet
def test_jackknife_plus_equals_its_definition() -> None:
    X, y = rows(14, 1, torch.Generator().manual_seed(5))
    data, model, how = Dataset(X, y), models.LinearRegression(noise=0.25), inference.MAP()
    region = ppgp.cross_calibrate(
        model, data, how, conformal.Absolute(), folds=None, fixed_beforehand=True
    )(X[:2] + 0.3, level=0.8)
    low, high = [], []
    for i in range(14):
        kept = torch.arange(14) != i
        fit = ppgp.fit(model, data.rows(kept), how, progress=False)
        residual = float((fit.predict(X[i : i + 1]).mean - y[i]).abs())
        mean = fit.predict(X[:2] + 0.3).mean
        low.append(mean - residual)
        high.append(mean + residual)
    # floor(0.2 * 15) = 3 and ceil(0.8 * 15) = 12
    torch.testing.assert_close(
        region.lower, torch.stack(low).sort(0).values[2], rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(
        region.upper, torch.stack(high).sort(0).values[11], rtol=1e-6, atol=1e-6
    )
    assert region.guarantee.startswith("coverage >= 0.6 ")


@quiet
def test_cv_plus_guarantees_what_its_folds_allow_and_works_for_labels() -> None:
    X, y = rows(40, 2, torch.Generator().manual_seed(6))
    cross = ppgp.cross_calibrate(
        models.LinearRegression(noise=0.25), Dataset(X, y), inference.MAP(), folds=5
    )
    cost = min(2 * (1 - 1 / 5) / (40 / 5 + 1), (1 - 5 / 40) / 6)
    assert cross.promised(0.9) == pytest.approx(0.8 - cost)
    assert float(cross(X, level=0.9).covers(y).double().mean()) > 0.7
    labels = Dataset(X, (X[:, 0] + 0.5 * y > 0).double())
    sets = ppgp.cross_calibrate(models.LogisticRegression(), labels, inference.MAP(), folds=4)(
        X, level=0.8
    )
    assert sets.labels is not None
    assert float(sets.covers(labels.y).double().mean()) >= 0.8
    with pytest.raises(SettingError, match="between 2 and n = 40 folds"):
        ppgp.cross_calibrate(models.LinearRegression(), Dataset(X, y), folds=1)


def one_size_but(first: int, folds: int) -> list[int]:
    return [first] + [2] * (folds - 1)


@pytest.mark.parametrize(
    "sizes",
    [[11] * 3 + [10] * 7, [4] * 4 + [3] * 8, [3, 2, 2], [2] * 30 + [1] * 40, one_size_but(22, 20)],
    ids=len,
)
def test_unequal_folds_have_the_bound_that_holds_for_them(sizes: list[int]) -> None:
    """The second, smaller cost of theorem 4 needs folds of one size; the first holds for any.

    The number of the last folds divides that of their rows.
    """
    n, folds = sum(sizes), len(sizes)
    parts = torch.arange(n).split(sizes)
    found = SimpleNamespace(n=n, posteriors=(None,) * folds, held_out=parts)
    promised = conformal.cross.CrossCalibrator.promised(cast(Any, found), 0.9)
    assert promised == pytest.approx(0.8 - 2 * (1 - 1 / folds) / (n / folds + 1))


# -- conformal Bayes --


def exact_p(F: Tensor, y: Tensor, new: Tensor, t: Tensor, noise: float) -> Tensor:
    """Return the p-values of candidates t at one row, by conjugate refits with each of them."""
    values = []
    table = torch.cat([F, new[None]])
    precision = table.mT @ table / noise + torch.eye(F.shape[1])
    covariance = torch.linalg.inv(precision)
    variance = ((table @ covariance) * table).sum(1) + noise
    for candidate in t.tolist():
        target = torch.cat([y, torch.tensor([candidate], dtype=y.dtype)])
        mean = table @ (covariance @ table.mT @ target / noise)
        log_density = -0.5 * (target - mean).square() / variance - 0.5 * variance.log()
        values.append((1 + int((log_density[:-1] <= log_density[-1]).sum())) / len(target))
    return torch.tensor(values)


@quiet
def test_conformal_bayes_equals_refits_on_conjugate_linear_regression() -> None:
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    y = X[:, 0] - 0.5 * X[:, 1] + 0.5 * torch.randn(60, generator=generator, dtype=torch.float64)
    new = torch.randn(10, 2, generator=generator, dtype=torch.float64)
    posterior = ppgp.fit(
        models.LinearRegression(noise=0.25),
        Dataset(X, y),
        inference.Exact(draws=4000),
        seed=1,
        progress=False,
        standardise=False,
    )
    region = ppgp.conformal_bayes(posterior, new, level=0.8)
    F, G = (torch.cat([x, torch.ones(len(x), 1)], 1) for x in (X, new))
    grid = torch.linspace(-4, 4, 161, dtype=torch.float64)
    covered = torch.stack([region.covers(t.expand(10)) for t in grid])
    different = 0
    for j in range(10):
        wanted = exact_p(F, y, G[j], grid, 0.25) > 0.2
        different += int((wanted != covered[:, j]).sum())
    assert different / (161 * 10) < 0.01
    assert "k-hat" in region.guarantee


@quiet
def test_conformal_bayes_covers_on_a_misspecified_model_where_plain_bayes_covers_half() -> None:
    """The noise is fixed at about a quarter of its variance."""
    own, calibrated = [], []
    for seed in range(25):
        X, y = rows(100, 1, torch.Generator().manual_seed(200 + seed))
        data = Dataset(X[:60], y[:60])
        posterior = ppgp.fit(
            models.LinearRegression(noise=0.06),
            data,
            inference.Laplace(draws=250),
            progress=False,
            standardise=False,
        )
        own.append(float(posterior.predict(X[60:]).interval(0.8).covers(y[60:]).double().mean()))
        calibrated.append(
            float(ppgp.conformal_bayes(posterior, X[60:], level=0.8).covers(y[60:]).double().mean())
        )
    error = 3 * np.std(calibrated) / 5
    assert np.mean(own) < 0.6
    assert np.mean(calibrated) >= 0.8 - error


@quiet
def test_conformal_bayes_of_single_precision_data() -> None:
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(30, 1, generator=generator)
    y = X[:, 0] + 0.1 * torch.randn(30, generator=generator)
    how = inference.Laplace(draws=400)
    posteriors = [
        ppgp.fit(models.LinearRegression(), Dataset(a, b), how, progress=False)
        for a, b in ((X, y), (X.double(), y.double()))
    ]
    single, double = (ppgp.conformal_bayes(one, X[:3].to(one.data.X), 0.8) for one in posteriors)
    width = double.upper - double.lower
    assert bool(((single.lower - double.lower).abs() < 0.2 * width).all())
    assert bool(((single.upper - double.upper).abs() < 0.2 * width).all())


def test_labels_are_enumerated_and_covered() -> None:
    hits: list[float] = []
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(90, 2, generator=generator, dtype=torch.float64)
        y = (torch.rand(90, generator=generator) < torch.sigmoid(2 * X[:, 0])).double()
        posterior = ppgp.fit(
            models.LogisticRegression(),
            Dataset(X[:50], y[:50]),
            inference.Laplace(),
            progress=False,
        )
        region: Region = ppgp.conformal_bayes(posterior, X[50:], level=0.8)
        assert region.labels is not None
        hits.append(float(region.covers(y[50:]).double().mean()))
    assert np.mean(hits) >= 0.8 - 3 * np.std(hits) / math.sqrt(20)


@quiet
def test_conformal_bayes_rejects_models_it_does_not_apply_to() -> None:
    X, y = rows(20, 1, torch.Generator().manual_seed(8))
    with pytest.raises(NotApplicable, match="use full_conformal for a GP"):
        ppgp.conformal_bayes(
            ppgp.fit(models.GP(), Dataset(X, y), inference.MAP(), progress=False), X
        )
    with pytest.raises(NotApplicable, match="at least 100 draws"):
        ppgp.conformal_bayes(
            ppgp.fit(models.LinearRegression(), Dataset(X, y), inference.MAP(), progress=False), X
        )


def test_unreliable_weights_are_reported() -> None:
    """The posterior given a candidate far away is where the fit has no draws."""
    generator = torch.Generator().manual_seed(9)
    X = torch.randn(15, 1, generator=generator, dtype=torch.float64)
    y = 0.1 * torch.randn(15, generator=generator, dtype=torch.float64)
    posterior = ppgp.fit(
        models.LinearRegression(noise=1e-4),
        Dataset(X, y),
        inference.Laplace(draws=200),
        progress=False,
        standardise=False,
    )
    with pytest.warns(ConvergenceWarning, match="k-hat"):
        region = ppgp.conformal_bayes(posterior, torch.tensor([[300.0]]), level=0.8)
    assert region.guarantee.startswith("heuristic")
