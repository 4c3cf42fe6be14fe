"""The mixture against enumeration of all assignments, a published example, and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import ppgp
from ppgp import diagnostics
from ppgp.data import Dataset
from ppgp.distributions.distributions import NormalMixture
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ppgp.inference import MAP, NUTS, Exact, Gibbs, Laplace
from ppgp.models import GaussianMixture
from ppgp.priors import InUnitsOfData, InverseGamma, LogNormal, Normal

F64 = torch.float64


def table(n: int = 9) -> Dataset:
    generator = torch.Generator().manual_seed(1)
    e = torch.randn(n, generator=generator, dtype=F64)
    y = torch.where(torch.arange(n) < n // 2, 0.5 * e - 1.2, 0.5 * e + 1.0)
    return Dataset(torch.arange(n, dtype=F64)[:, None], y)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    "how", [Gibbs(draws=2000), NUTS(draws=1000, warmup=500)], ids=["gibbs", "nuts"]
)
@pytest.mark.parametrize("model", [GaussianMixture(2), GaussianMixture(2, variance=1.0)], ids=repr)
def test_samplers_agree_with_enumeration_after_relabelling(
    model: GaussianMixture, how: Gibbs | NUTS
) -> None:
    data = table()
    exact = ppgp.fit(model, data, Exact(draws=20_000), standardise=False, progress=False)
    ours = ppgp.fit(model, data, how, standardise=False, progress=False)
    for (_, x), (_, y) in zip(
        diagnostics.scalars(ours.draws),
        diagnostics.scalars({k: exact.draws[k] for k in ours.draws}),
        strict=True,
    ):
        # compare quantiles, because the variances have heavy tails
        for q in (0.1, 0.5, 0.9):
            at = np.quantile(y, q)
            size = diagnostics.ess(x)
            assert abs(float((x <= at).mean()) - q) < 4.5 * np.sqrt(
                q * (1 - q) * (1 / size + 1 / y.size)
            )


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_the_evidence_is_the_sum_over_all_assignments() -> None:
    """Three rows, two components, unit variance, means N(0, 4): eight normal densities."""
    y = np.array([0.3, -1.1, 0.2])
    data = Dataset([[0.0], [1.0], [2.0]], y)
    posterior = ppgp.fit(
        GaussianMixture(2, Normal(0.0, 2.0), 1.0), data, Exact(), standardise=False, progress=False
    )
    total = 0.0
    for code in range(8):
        z = np.array([code >> i & 1 for i in range(3)])
        covariance = np.eye(3) + 4.0 * (z[:, None] == z[None, :])
        counts = np.bincount(z, minlength=2)
        weight = (
            np.prod([np.arange(1, c + 1).prod() for c in counts]) / 24.0
        )  # Dirichlet(1, 1): n_0! n_1! / (n + 1)!
        total += weight * stats.multivariate_normal(np.zeros(3), covariance).pdf(y)
    assert posterior.log_evidence == pytest.approx(np.log(total), rel=1e-10)


def test_the_evidence_with_unknown_variances_equals_quadrature() -> None:
    """Two equal rows: integrate a normal density over the mean and the variance."""
    data = Dataset([[0.0], [1.0]], [0.4, 0.4])
    prior = InverseGamma(3.0, 1.0)
    posterior = ppgp.density.Target(GaussianMixture(2), data).model.exact(
        data, 10, torch.Generator().manual_seed(0)
    )
    v = stats.invgamma(3.0, scale=1.0).ppf((np.arange(200_000) + 0.5) / 200_000)
    apart = np.mean(stats.norm(0, np.sqrt(1 + v)).pdf(0.4)) ** 2
    together = np.mean(
        stats.norm(0, np.sqrt(1 + v / 2)).pdf(0.4) / np.sqrt(2 * np.pi * v * 2) * 1.0
    )  # two equal rows: their mean has variance 1 + v / 2, their difference is 0
    assert posterior[2] == pytest.approx(np.log(2 / 3 * together + 1 / 3 * apart), abs=1e-4)
    assert prior == GaussianMixture(2).variance


def test_the_distribution_equals_scipy() -> None:
    p, m, s = (torch.tensor(v, dtype=F64) for v in ([0.2, 0.8], [-1.0, 2.0], [0.5, 1.5]))
    distribution = NormalMixture(p, m, s)
    x = torch.linspace(-4, 6, 11, dtype=F64)
    parts = [stats.norm(float(a), float(b)) for a, b in zip(m, s, strict=True)]
    density = 0.2 * parts[0].pdf(x) + 0.8 * parts[1].pdf(x)
    np.testing.assert_allclose(distribution.log_prob(x).exp(), density, rtol=1e-12)
    np.testing.assert_allclose(
        distribution.cdf(x), 0.2 * parts[0].cdf(x) + 0.8 * parts[1].cdf(x), rtol=1e-12
    )
    draws = distribution.expand((20_000,)).sample()
    assert float(draws.mean()) == pytest.approx(
        float(distribution.mean), abs=5 * float(distribution.variance.sqrt()) / 20_000**0.5
    )
    kurtosis = float((draws - draws.mean()).pow(4).mean() / draws.var() ** 2)
    error = float(distribution.variance) * ((kurtosis - 1) / 20_000) ** 0.5
    assert float(draws.var()) == pytest.approx(float(distribution.variance), abs=5 * error)


@pytest.mark.filterwarnings("ignore:R-hat:ppgp.errors.ConvergenceWarning")
def test_well_separated_components_are_recovered_and_predicted() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.cat(
        [
            torch.randn(60, generator=generator, dtype=F64),
            10 + 2 * torch.randn(40, generator=generator, dtype=F64),
        ]
    )
    data = Dataset(torch.zeros(100, 1, dtype=F64) + torch.arange(100)[:, None], y)
    for how in (MAP(), Laplace(), Gibbs(draws=300), NUTS(draws=150, warmup=200)):
        posterior = ppgp.fit(GaussianMixture(2), data, how, progress=False)
        assert not any("labels" in sentence for sentence in posterior.warnings)
        scaler = posterior.scaler
        assert not scaler.is_identity
        means = posterior.draws["mean"].mean((0, 1)) * scaler.y_sd + scaler.y_mean
        assert means.tolist() == pytest.approx([0.0, 10.0], abs=1.2)
        distribution = posterior.predict(data.X[:1])
        assert float(distribution.cdf([5.0])) == pytest.approx(0.6, abs=0.06)
        assert float(distribution.quantile(0.3)) < 2 < 8 < float(distribution.quantile(0.8))


def test_label_switching_is_corrected_and_reported() -> None:
    with pytest.warns(ConvergenceWarning, match="labels switched"):
        posterior = ppgp.fit(
            GaussianMixture(2, variance=1.0), table(), Gibbs(), standardise=False, progress=False
        )
    mean = posterior.draws["mean"]
    assert bool((mean[..., 0] <= mean[..., 1]).all())
    shares = GaussianMixture(2, variance=1.0).responsibilities(posterior.theta, table().y)
    torch.testing.assert_close(shares.sum(-1), torch.ones(9, dtype=F64))
    assert float(shares[:4, 0].mean()) > float(shares[4:, 0].mean())


def test_what_is_not_supported_raises_a_clear_error() -> None:
    with pytest.raises(SettingError, match="at least 2"):
        GaussianMixture(1)
    with pytest.raises(NotApplicable, match="Gibbs or NUTS"):
        ppgp.fit(GaussianMixture(2), table(60), Exact(), progress=False)
    with pytest.raises(NotApplicable, match="InverseGamma"):
        ppgp.fit(GaussianMixture(2, variance=LogNormal()), table(), Gibbs(), progress=False)
    with pytest.raises(DataError, match="at least 5 rows"):
        ppgp.fit(GaussianMixture(5), table(4), Gibbs(), progress=False)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("variances", [(1.0, 9.0), (9.0, 1.0)])
def test_components_distinguished_by_a_tuple_keep_their_order(
    variances: tuple[float, float],
) -> None:
    """Sorting them by their means would give them the variances of one another."""
    generator = torch.Generator().manual_seed(0)
    e = torch.randn(300, generator=generator, dtype=F64)
    y = torch.cat([e[:210], 6 + 3 * e[210:]])
    wide = variances.index(9.0)
    recipe = GaussianMixture(mean=InUnitsOfData(Normal(0.0, 10.0)), variance=variances)
    for how in (MAP(), Gibbs(draws=50, chains=1)):
        posterior = ppgp.fit(
            recipe, Dataset(torch.arange(300.0, dtype=F64)[:, None], y), how, progress=False
        )
        mean, proportion = posterior.draws_in("data")["mean"], posterior.draws["proportion"]
        assert float(mean[..., wide].mean()) == pytest.approx(6.0, abs=1.2)
        assert float(mean[..., 1 - wide].mean()) == pytest.approx(0.0, abs=0.3)
        assert float(proportion[..., wide].mean()) == pytest.approx(0.3, abs=0.1)


def test_exact_refuses_one_variance_per_component() -> None:
    recipe = GaussianMixture(variance=(1.0, 9.0))
    data = Dataset(torch.arange(5.0, dtype=F64)[:, None], torch.arange(5.0, dtype=F64))
    with pytest.raises(SettingError):
        ppgp.fit(recipe, data, Exact(draws=10), progress=False)
