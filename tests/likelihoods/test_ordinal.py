"""The likelihood of ordered classes: its links, its cutpoints and their priors."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from panels import nodes_and_weights
from scipy import stats
from torch import Tensor

import ppgp
from ppgp import inference, models, priors
from ppgp.data import Dataset
from ppgp.distributions.ordered_links import LINKS
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.likelihoods import Bernoulli, Ordinal
from ppgp.likelihoods.ordinal import FlatCutpoints, InducedDirichlet
from ppgp.runtime.seeding import seeded

F64 = torch.float64
CUTS = (-0.4, 0.3, 1.5)
CDFS = {
    "logit": stats.logistic.cdf,
    "probit": stats.norm.cdf,
    "cloglog": lambda z: -np.expm1(-np.exp(z)),
}
each = pytest.mark.parametrize("link", list(LINKS))


def number(x: object) -> Tensor:
    return torch.tensor(x, dtype=F64)


def masses(link: str, f: float) -> np.ndarray:
    edges = np.concatenate([[0.0], CDFS[link](np.array(CUTS) - f), [1.0]])
    return np.diff(edges)


@each
def test_probabilities_are_differences_of_the_cdf(link: str) -> None:
    law = Ordinal(link, CUTS)
    f = number([-2.0, 0.0, 0.7, 3.0])
    p = law.distribution({}, f).probs  # type: ignore[attr-defined]
    np.testing.assert_allclose(p.numpy(), [masses(link, float(v)) for v in f], 1e-9, 1e-15)


@each
def test_two_classes_are_a_bernoulli(link: str) -> None:
    if link == "cloglog":
        return
    f, y = number([[-9.0, 0.3, 25.0]]), number([1.0, 0.0, 0.0])
    ours, theirs = Ordinal(link, (0.0,)), Bernoulli(link)
    for one, other in zip(ours.slopes({}, f, y), theirs.slopes({}, f, y), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(ours.score({}, f, y), theirs.score({}, f, y), rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.metric({}, f), theirs.metric({}, f), rtol=1e-9, atol=0)


@each
@pytest.mark.parametrize("width", [1e-6, 1e-3, 0.5, 40.0])
def test_a_narrow_class_far_out_keeps_its_digits(link: str, width: float) -> None:
    centres = [-25.0, -3.0, -1e-4, 0.0, 2.0, 25.0]
    if link == "cloglog":
        centres[-1] = 5.0  # exp(-exp(25)) is 0
    cdf = {
        "logit": lambda z: 1 / (1 + mp.exp(-z)),
        "probit": mp.ncdf,
        "cloglog": lambda z: 1 - mp.exp(-mp.exp(z)),
    }[link]
    for centre in centres:
        low, high = centre - width / 2, centre + width / 2
        z = number([[low], [high]])
        with mp.workdps(400):
            exact = float(mp.log(cdf(mp.mpf(high)) - cdf(mp.mpf(low))))
        found = float(LINKS[link].log_masses(z)[1])
        assert found == pytest.approx(exact, rel=1e-9, abs=1e-9)


@each
@pytest.mark.parametrize("y", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("sd", [0.4, 1.2])
def test_averages_over_f_are_integrals(link: str, y: float, sd: float) -> None:
    law, m = Ordinal(link, CUTS), 0.4
    inputs = {}, number([m]), number([sd**2])

    edges = sorted([m - 11 * sd, *CUTS, m + 9 * sd])
    f, weights = (torch.as_tensor(x) for x in nodes_and_weights(edges, parts=40))
    weights = weights * torch.as_tensor(stats.norm.pdf(f, m, sd))
    log_mass = law.distribution({}, f).log_prob(torch.full_like(f, y))
    found = float(law.expected(*inputs, number([y])))
    assert found == pytest.approx(float(weights @ log_mass), rel=1e-5)
    density = float(law.marginal(*inputs).log_prob(number([y])).exp())
    assert density == pytest.approx(float(weights @ log_mass.exp()), rel=1e-8)


@pytest.mark.parametrize("sd", [5.0, 40.0])
def test_averages_over_a_very_uncertain_f(sd: float) -> None:
    law, m = Ordinal("logit", CUTS), 2.0
    edges = sorted([-12.0, *((c - m) / sd for c in CUTS), 12.0])
    t, weights = (torch.as_tensor(x) for x in nodes_and_weights(edges, parts=400))
    weights = weights * torch.as_tensor(stats.norm.pdf(t))
    for k in range(4):
        y = number([float(k)])
        log_mass = law.distribution({}, m + sd * t).log_prob(y.expand(len(t)))
        exact = float(weights @ log_mass)
        found = float(law.expected({}, number([m]), number([sd**2]), y))
        assert found == pytest.approx(exact, rel=1e-6)


@each
def test_the_information_and_the_ranked_probability_score_are_sums(link: str) -> None:
    law, h = Ordinal(link, CUTS), 1e-3
    for f in (-1.0, 0.2, 2.5):
        p, at = masses(link, f), number([[f]])
        slope = (8 * (masses(link, f + h) - masses(link, f - h))) / (12 * h)
        slope -= (masses(link, f + 2 * h) - masses(link, f - 2 * h)) / (12 * h)
        assert float(law.metric({}, at)) == pytest.approx((slope**2 / p).sum(), rel=1e-7)
        F, by_f = p.cumsum()[:-1], slope.cumsum()[:-1]
        assert float(law.metric({}, at, "crps")) == pytest.approx(2 * (by_f**2).sum(), rel=1e-7)
        for y in range(4):
            step = (np.arange(3) >= y).astype(float)
            score = float(law.score({}, at, number([float(y)]), "crps"))
            assert score == pytest.approx(((F - step) ** 2).sum(), rel=1e-10)
            slope_of = float(law.gradient({}, at, number([float(y)]), "crps"))
            assert slope_of == pytest.approx(2 * ((F - step) * by_f).sum(), rel=1e-7, abs=1e-10)


# -- cutpoints ------------------------------------------------------------------------------------


@each
def test_the_prior_of_the_cutpoints_is_that_of_the_shares(link: str) -> None:
    """Its mass is 1, and its mean shares are those of the Dirichlet distribution."""
    prior = InducedDirichlet(number([2.5, 2.5, 2.5]), link)
    quantile = LINKS[link].quantile

    def density(u: float, v: float) -> float:  # over the shares, by the change of variables
        c = quantile(number([u, v]))
        return float(prior.log_prob(c) - LINKS[link].log_pdf(c).sum(-1))

    for u, v in ((0.2, 0.5), (0.01, 0.9), (0.33, 0.34)):
        exact = stats.dirichlet([2.5] * 3).logpdf([u, v - u, 1 - v])
        assert density(u, v) == pytest.approx(exact, rel=1e-9)
    with seeded(0):
        draws = prior.sample(torch.Size([50_000]))
    assert bool((draws[:, 1:] > draws[:, :-1]).all())
    shares = LINKS[link].log_masses(draws[..., None])[..., 0].exp()
    error = shares.std(0) / math.sqrt(len(draws))
    assert bool(((shares.mean(0) - 1 / 3).abs() < 4 * error).all())


def test_flat_cutpoints_have_no_density_and_start_at_equal_shares() -> None:
    prior = Ordinal("logit", priors.Flat(), 3).sites()["cutpoints"].distribution(number(0.0))
    assert isinstance(prior, FlatCutpoints)
    start = prior.sample()
    torch.testing.assert_close(start, torch.logit(number([1 / 3, 2 / 3])))
    assert float(prior.log_prob(start)) == 0.0


def simulated(link: str, n: int = 400) -> Dataset:
    g = torch.Generator().manual_seed(4)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    p = Ordinal(link, CUTS).distribution({}, 1.2 * X[:, 0]).probs  # type: ignore[attr-defined]
    y = torch.multinomial(p, 1, generator=g)[:, 0].to(F64)
    return Dataset(X, y)


@pytest.mark.filterwarnings("ignore:this is the joint mode")
@each
def test_maximum_likelihood_of_the_cutpoints_gives_the_shares(link: str) -> None:
    """Of a distribution for all rows: f is held at 0, and the cutpoints alone are found."""
    data = simulated(link)
    Z = data.X[:1]
    kernel = ppgp.kernels.RBF(1e-12, 1.0)
    for prior in (priors.Flat(), priors.Dirichlet(1.0)):
        law = Ordinal(link, prior)
        model = models.SVGP(kernel, likelihood=law, Z=Z, learn=False)
        fitted = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
        found = fitted.draws["cutpoints"].reshape(-1)
        counts = torch.bincount(data.y.long()).double()
        shares = (counts / counts.sum()).cumsum(0)[:-1]
        torch.testing.assert_close(
            found, LINKS[link].quantile(shares), rtol=0, atol=1e-3 + 0.02 * (prior != priors.Flat())
        )


@pytest.mark.filterwarnings("ignore:no learners", "ignore:the score at the rows held out")
@each
def test_numbers_at_the_shares_start_boosting(link: str) -> None:
    data = simulated(link)
    law = Ordinal(link).at_shares(data)
    assert law.classes == 4
    assert float(law.initial(data.y).abs().max()) < 0.02
    how = inference.NaturalGradientBoosting(steps=60, folds=None)
    posterior = ppgp.fit(models.Boosted(law), data, how, progress=False)
    prediction = posterior.predict(data.X)
    assert prediction.probabilities.shape == (data.n, 4)
    alone = ppgp.fit(models.Boosted(law), data, inference.MAP(), progress=False)
    better = prediction.log_prob(data.y).mean() - alone.predict(data.X).log_prob(data.y).mean()
    assert float(better) > 0.1
    with pytest.raises(NotApplicable, match="at_shares"):
        ppgp.fit(models.Boosted(Ordinal(link)), data, how, progress=False)


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_networks_and_sparse_processes_have_ordered_labels() -> None:
    data = simulated("logit", 60)
    named = Dataset(data.X, data.y, classes=("poor", "fair", "good", "best"))
    for model, how in (
        (models.NeuralRegression(likelihood=Ordinal()), inference.MAP("adam", steps=30)),
        (models.SVGP(likelihood=Ordinal(), inducing=10), inference.SVI(steps=30)),
    ):
        posterior = ppgp.fit(model, named, how, progress=False)
        cutpoints = posterior.draws["cutpoints"]
        assert bool((cutpoints.diff(dim=-1) > 0).all())
        prediction = posterior.predict(data.X[:5])
        assert prediction.probabilities.shape == (5, 4)
        assert prediction.classes == ("poor", "fair", "good", "best")


# -- what is refused ------------------------------------------------------------------------------


def test_an_empty_category_is_named() -> None:
    X = torch.zeros(4, 1, dtype=F64)
    gap = Dataset(X, number([0.0, 2.0, 3.0, 2.0]))
    named = Dataset(X, gap.y, classes=("a", "b", "c", "d"))
    for data, name in ((gap, "1"), (named, "'b'")):
        with pytest.raises(DataError, match=f"none of category {name}"):
            Ordinal().prepare(data)
    with pytest.raises(DataError, match="none of category 4"):
        Ordinal(cutpoints=priors.Flat(), classes=5).prepare(
            Dataset(X, number([0.0, 1.0, 2.0, 3.0]))
        )
    assert Ordinal(classes=4).prepare(gap).classes == 4  # the prior determines its cutpoint
    assert Ordinal(cutpoints=(0.0, 1.0, 2.0)).prepare(gap).classes == 4
    with pytest.raises(DataError, match="labels 0 to 3"):
        Ordinal(classes=4).prepare(Dataset(X, number([0.0, 1.5, 2.0, 3.0])))


def test_bad_settings_are_named() -> None:
    with pytest.raises(UnknownName, match="loglog"):
        Ordinal("loglog")
    with pytest.raises(SettingError, match="increasing"):
        Ordinal(cutpoints=(1.0, 1.0))
    with pytest.raises(SettingError, match="one cutpoint less"):
        Ordinal(cutpoints=(1.0, 2.0), classes=5)
    with pytest.raises(SettingError, match="prior of cutpoints"):
        Ordinal(cutpoints=priors.Normal())
    with pytest.raises(SettingError, match="number of classes"):
        Ordinal().sites()
    assert Ordinal(cutpoints=0.5).classes == 2


@pytest.mark.parametrize("gap", [1.0, 0.01])
@pytest.mark.parametrize("sd", [0.3, 1.0, 3.0])
def test_averages_of_proportional_hazards_over_an_uncertain_f(sd: float, gap: float) -> None:
    law = Ordinal(link="cloglog", cutpoints=(-gap, gap))
    z = np.linspace(-12, 12, 20_001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for mean in (-2.0, 0.0, 1.5):
        found = law.marginal({}, number([mean]), number([sd**2])).probs[0]
        rates = [np.exp(c - mean - sd * z) for c in (-gap, gap)]
        below = np.array([weights @ -np.expm1(-rate) for rate in rates])
        exact = [below[0], weights @ (np.exp(-rates[0]) - np.exp(-rates[1])), 1 - below[1]]
        torch.testing.assert_close(found, number(exact), rtol=1e-9, atol=1e-12)
