"""Standard errors of generalised linear models against statsmodels, and their laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp.data import Dataset
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError, UnknownName
from ppgp.inference import MAP, Laplace
from ppgp.likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    Gamma,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Predicted,
    ZeroInflated,
)
from ppgp.models import GLM, LogisticRegression, Varying
from ppgp.posterior import Posterior
from ppgp.priors import Flat

sm = pytest.importorskip("statsmodels.api")
pytestmark = pytest.mark.filterwarnings("ignore:The InversePower link function")
FLAT = Flat()
N = 60


def inputs(n: int = N) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, 2)) * [2.0, 0.5] + [10.0, -1.0]


def fit(law: Likelihood, X: Any, y: Any, how: Any = None, **columns: Any) -> Posterior:
    bias = None if isinstance(law, Ordinal) else FLAT
    data, how = Dataset(X, y, **columns), how or MAP("newton")
    return ppgp.fit(GLM(law, FLAT, bias), data, how, progress=False)


def case(name: str) -> tuple[Likelihood, Any, np.ndarray, dict[str, Any]]:
    """Return a likelihood, the family of statsmodels, targets and columns."""
    X, g, families = inputs(), np.random.default_rng(2), sm.families
    eta = 0.1 * X[:, 0] - 0.4 * X[:, 1] - 0.6
    mean = np.exp(eta)
    if name == "gaussian":
        return Gaussian(), families.Gaussian(), eta + g.normal(size=N) * (0.2 + mean / 5), {}
    if name == "gamma":
        log = families.Gamma(families.links.Log())
        return Gamma(), log, g.gamma(2.0, mean / 2), {}
    if name == "gamma, inverse":
        return Gamma(link="inverse"), families.Gamma(), g.gamma(30.0, mean / 30), {}
    if name == "binomial":
        trials = g.integers(1, 9, N).astype(float)
        y = g.binomial(trials.astype(int), 1 / (1 + np.exp(-eta))).astype(float)
        return Binomial(), families.Binomial(), y, {"trials": trials}
    if name == "bernoulli":
        y = (g.random(N) < 1 / (1 + np.exp(-eta))).astype(float)
        return Bernoulli(), families.Binomial(), y, {}
    if name == "negative binomial":
        y = g.negative_binomial(2.0, 2 / (2 + mean)).astype(float)
        return NegativeBinomial(2.0), families.NegativeBinomial(alpha=0.5), y, {}
    offset = g.normal(size=N) * 0.3
    weights = g.integers(1, 4, N).astype(float)
    y = g.negative_binomial(2.0, 2 / (2 + mean * np.exp(offset))).astype(float)
    return Poisson(), families.Poisson(), y, {"offset": offset, "weights": weights}


def peer(family: Any, y: np.ndarray, columns: dict[str, Any], **options: Any) -> Any:
    trials = columns.get("trials")
    target = y if trials is None else np.column_stack([y, trials - y])
    known = {"offset": columns.get("offset"), "freq_weights": columns.get("weights")}
    model = sm.GLM(target, sm.add_constant(inputs()), family=family, **known)
    return model.fit(tol=1e-13, tol_criterion="params", maxiter=200, **options)


NAMES = (
    "gaussian",
    "gamma",
    "gamma, inverse",
    "binomial",
    "bernoulli",
    "negative binomial",
    "poisson",
)
every_case = pytest.mark.parametrize("name", NAMES)


def same(table: pd.DataFrame, other: Any, rtol: float = 1e-8) -> None:
    np.testing.assert_allclose(table["estimate"], other.params, rtol=rtol)
    np.testing.assert_allclose(table["se"], other.bse, rtol=rtol)


@every_case
def test_the_model_s_standard_errors(name: str) -> None:
    """Those of R's summary.glm: Fisher information, and Pearson's dispersion."""
    law, family, y, columns = case(name)
    posterior, other = fit(law, inputs(), y, **columns), peer(family, y, columns)
    table = posterior.coefficients("model", level=0.9)
    same(table, other)
    assert list(table.index) == ["intercept", "x0", "x1"]
    np.testing.assert_allclose(table["z"], other.tvalues, rtol=1e-8)
    np.testing.assert_allclose(table["p"], other.pvalues, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(table[["5%", "95%"]], other.conf_int(0.1), rtol=1e-7)


@every_case
def test_robust_standard_errors(name: str) -> None:
    law, family, y, columns = case(name)
    posterior = fit(law, inputs(), y, **columns)
    same(posterior.coefficients("HC0"), peer(family, y, columns, cov_type="HC0"))
    clusters = np.arange(N) % 11
    if "weights" in columns:  # statsmodels takes each row as one in n
        return
    options = {"cov_type": "cluster", "cov_kwds": {"groups": clusters}}
    same(posterior.coefficients(clusters), peer(family, y, columns, **options))


def test_hc3_of_least_squares() -> None:
    _, _, y, _ = case("gaussian")
    posterior = fit(Gaussian(), inputs(), y)
    same(posterior.coefficients("HC3"), sm.OLS(y, sm.add_constant(inputs())).fit(cov_type="HC3"))


@every_case
def test_hc3_divides_scores_by_one_minus_leverage(name: str) -> None:
    """statsmodels' "HC3" of a GLM is its HC0, but its hat matrix has the leverages."""
    law, family, y, columns = case(name)
    other = peer(family, y, columns)
    A = sm.add_constant(inputs())
    h = other.get_influence(observed=False).hat_matrix_diag
    w = columns.get("weights", np.ones(N))
    bread = np.linalg.inv(-other.model.hessian(other.params, scale=1.0, observed=True))
    scores = other.model.score_obs(other.params, scale=1.0)
    unit, h = scores / w[:, None], h / w
    meat = (unit * (w / (1 - h) ** 2)[:, None]).T @ unit
    assert A.shape == unit.shape
    error = np.sqrt(np.diag(bread @ meat @ bread))
    table = fit(law, inputs(), y, **columns).coefficients("HC3")
    np.testing.assert_allclose(table["se"], error, rtol=1e-7)


def test_a_shape_that_is_estimated_too() -> None:
    """The errors of the coefficients allow for that of the shape."""
    _, _, y, _ = case("negative binomial")
    X, clusters = inputs(), np.arange(N) // 6
    posterior = fit(NegativeBinomial(FLAT), X, y)
    model = sm.NegativeBinomial(y, sm.add_constant(X))
    start = [*posterior.coefficients("model")["estimate"], 0.5]
    for kind, options in (
        ("HC0", {"cov_type": "HC0"}),
        (clusters, {"cov_type": "cluster", "cov_kwds": {"groups": clusters}}),
    ):
        other = model.fit(start, method="newton", tol=1e-14, maxiter=100, disp=0, **options)
        table = posterior.coefficients(kind)
        np.testing.assert_allclose(table["estimate"], other.params[:3], rtol=1e-7)
        np.testing.assert_allclose(table["se"], other.bse[:3], rtol=1e-6)


def test_ordered_classes() -> None:
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    X, g = inputs(200), np.random.default_rng(3)
    y = np.digitize(X @ [0.4, -0.6] + g.logistic(size=200), [3.5, 5.0, 6.5])
    table = fit(Ordinal(cutpoints=FLAT), X, y).coefficients("model")
    assert list(table.index) == ["x0", "x1", "0|1", "1|2", "2|3"]
    # statsmodels takes slopes by differences, so that its steps stay above about 1e-10
    other = OrderedModel(y, X, distr="logit").fit(method="newton", disp=0, tol=1e-8)
    np.testing.assert_allclose(table["estimate"][:3], other.params[:3], rtol=1e-6)
    np.testing.assert_allclose(table["se"][:3], other.bse[:3], rtol=1e-6)
    ratios = fit(Ordinal(cutpoints=FLAT), X, y).coefficients("model", exponentiate=True)
    assert list(ratios.index) == ["x0", "x1"]


@pytest.mark.parametrize("kind", ["model", "HC0", "HC3", "clusters"])
def test_a_weight_of_two_is_the_row_twice(kind: str) -> None:
    law, _, y, columns = case("poisson")
    columns["weights"] = np.arange(N) % 4.0  # ``fit`` leaves out rows of weight 0
    kept, rows = np.flatnonzero(np.arange(N) % 4), np.repeat(np.arange(N), np.arange(N) % 4)
    clusters = np.arange(N) % 7
    here = fit(law, inputs(), y, **columns)
    there = fit(law, inputs()[rows], y[rows], offset=columns["offset"][rows])
    one, two = (
        posterior.coefficients(labels if kind == "clusters" else kind)
        for posterior, labels in ((here, clusters[kept]), (there, clusters[rows]))
    )
    np.testing.assert_allclose(one, two, rtol=1e-8)
    assert here.deviance == pytest.approx(there.deviance, rel=1e-9)
    assert here.dispersion_check().df == there.dispersion_check().df


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gaussian", "model"), ("gaussian", "HC3"), ("gamma", "model"), ("poisson", "HC3")],
)
def test_the_scale_of_the_fit_changes_nothing(name: str, kind: str) -> None:
    law, _, y, columns = case(name)
    model, data = GLM(law, FLAT, FLAT), Dataset(inputs(), y, **columns)
    one, two = (
        ppgp.fit(model, data, MAP("newton"), progress=False, standardise=standardise)
        for standardise in (True, False)
    )
    tables = one.coefficients(kind), two.coefficients(kind)
    np.testing.assert_allclose(*tables, rtol=1e-6, atol=1e-9)
    on_scale = one.coefficients(kind, units="model")
    unit = float(one.scaler.y_sd) if name == "gaussian" else 1.0
    factor = unit / one.scaler.x_sd.numpy()
    np.testing.assert_allclose(on_scale["se"][1:] * factor, tables[0]["se"][1:], rtol=1e-8)


def test_single_precision_and_fixed_coefficients() -> None:
    law, _, y, _ = case("poisson")
    single = fit(law, torch.tensor(inputs(), dtype=torch.float32), y)
    table = fit(law, inputs(), y).coefficients("HC3")
    np.testing.assert_allclose(single.coefficients("HC3"), table, rtol=1e-3, atol=1e-5)
    model = GLM(law, FLAT, 0.5)
    data = Dataset(inputs(), y)
    fixed = ppgp.fit(model, data, MAP("newton"), progress=False, standardise=False)
    table = fixed.coefficients("model")
    assert table.loc["intercept", "estimate"] == 0.5
    assert table.loc["intercept", "se"] == 0.0
    assert np.isnan(table.loc["intercept", "z"])
    other = sm.GLM(y, inputs(), family=sm.families.Poisson(), offset=np.full(N, 0.5)).fit(tol=1e-14)
    same(table.drop(index="intercept"), other)


def test_quasi_likelihood_and_a_known_dispersion() -> None:
    law, family, y, _ = case("poisson")
    posterior = fit(law, inputs(), y)
    same(posterior.coefficients("model", dispersion="pearson"), peer(family, y, {}, scale="X2"))
    plain, twice = (posterior.coefficients("model", dispersion=d)["se"] for d in (None, 4.0))
    np.testing.assert_allclose(twice, 2 * plain)
    _, family, y, _ = case("gaussian")
    known = fit(Gaussian(), inputs(), y).coefficients("model", dispersion=0.09)
    same(known, peer(family, y, {}, scale=0.09))
    number = fit(Gaussian(0.09), inputs(), y).coefficients("model")
    np.testing.assert_allclose(number, known, rtol=1e-8)


@pytest.mark.slow
def test_a_uniform_probability_of_zero_is_maximum_likelihood() -> None:
    sm = pytest.importorskip("statsmodels.api")
    g = np.random.default_rng(4)
    x = g.normal(size=300)
    y = np.where(g.uniform(size=300) < 0.3, 0, g.poisson(np.exp(1 + 0.3 * x))).astype(float)
    peer = sm.ZeroInflatedPoisson(y, sm.add_constant(x)).fit(disp=0, maxiter=500)
    found = fit(ZeroInflated(Poisson()), x[:, None], y).coefficients("model")
    np.testing.assert_allclose(found["estimate"], peer.params[1:], rtol=1e-4)
    # statsmodels takes the Hessian, whose ratio to the information is 1 + O(n^-1/2)
    np.testing.assert_allclose(found["se"], peer.bse[1:], rtol=2 / 300**0.5)


def test_ratios_are_exponentials() -> None:
    law, _, y, columns = case("binomial")
    posterior = fit(law, inputs(), y, **columns)
    plain, ratios = (posterior.coefficients("model", exponentiate=e) for e in (False, True))
    assert ratios.index.name == "odds ratio, units of the data"
    assert "se" not in ratios
    for column in ("estimate", "2.5%", "97.5%"):
        np.testing.assert_allclose(ratios[column], np.exp(plain[column]))
    np.testing.assert_allclose(ratios["p"], plain["p"])


def test_tables_of_draws() -> None:
    law, _, y, columns = case("poisson")
    posterior = fit(law, inputs(), y, Laplace(draws=500), **columns)
    table = posterior.coefficients("draws", level=0.8, exponentiate=True)
    assert list(table.columns) == ["mean", "sd", "10%", "50%", "90%"]
    weight = posterior.coefficients()["weight"][0, :, 1].exp().numpy()
    shown = [weight.mean(), weight.std(ddof=1), *np.quantile(weight, [0.1, 0.5, 0.9])]
    np.testing.assert_allclose(table.loc["x1"], shown)
    assert table.index.name == "rate ratio, units of the data"


@pytest.mark.slow
def test_rate_ratios_beside_groups_and_of_logistic_regression() -> None:
    X, y = inputs(), case("poisson")[2]
    data = Dataset(X, y, groups={"g": np.arange(N) % 5})
    model = GLM(Poisson(), groups={"g": Varying()})
    posterior = ppgp.fit(model, data, Laplace(draws=50), progress=False)
    table = posterior.coefficients("draws", exponentiate=True)
    assert list(table.index) == ["intercept", "x0", "x1"]
    with pytest.raises(NotApplicable, match="got coefficients that vary between groups"):
        posterior.coefficients("model")
    labels = Dataset(X, case("bernoulli")[2])
    logistic = ppgp.fit(LogisticRegression(), labels, Laplace(draws=50), progress=False)
    assert "odds ratio" in logistic.coefficients("draws", exponentiate=True).index.name


def test_several_functions_have_names() -> None:
    _, _, y, _ = case("gaussian")
    posterior = fit(Gaussian(Predicted()), inputs(), y)
    table = posterior.coefficients("HC0")
    assert list(table.index[3:]) == [f"log noise: {name}" for name in ("intercept", "x0", "x1")]
    with pytest.raises(NotApplicable, match="leverages of HC3"):
        posterior.coefficients("HC3")
    classes = Dataset(inputs(), np.arange(N) % 3)
    several = ppgp.fit(GLM(Categorical()), classes, Laplace(draws=5), progress=False)
    assert list(several.coefficients("draws").index[:3]) == ["0: intercept", "0: x0", "0: x1"]


def test_clusters_by_the_column_of_ids() -> None:
    law, _, y, _ = case("poisson")
    names = [f"c{i % 9}" for i in range(N)]
    posterior = fit(law, inputs(), y, ids=names)
    pd.testing.assert_frame_equal(posterior.coefficients("ids"), posterior.coefficients(names))


def test_refusals() -> None:
    law, _, y, _ = case("poisson")
    posterior, data = fit(law, inputs(), y), Dataset(inputs(), y)
    for bad, error, said in (
        ({"covariance": "HC4"}, UnknownName, "HC0"),
        ({"covariance": "ids"}, UnknownName, "covariance, or column of clusters"),
        ({"covariance": np.zeros(N)}, DataError, "at least two clusters"),
        ({"covariance": np.zeros(3)}, DataError, "one cluster per row"),
        ({"covariance": "HC3", "dispersion": 1.0}, SettingError, "robust"),
        ({"covariance": "model", "dispersion": -1.0}, SettingError, "positive number"),
        ({"covariance": "model", "level": 95}, SettingError, "write 0.95"),
        ({"covariance": "model", "units": "metres"}, UnknownName, "units"),
        ({"exponentiate": True}, SettingError, "a covariance"),
    ):
        with pytest.raises(error, match=said):
            posterior.coefficients(**bad)
    proper = ppgp.fit(GLM(Poisson()), data, MAP("newton"), progress=False)
    with pytest.raises(NotApplicable, match=r"weight ~ Normal.*Laplace or NUTS"):
        proper.coefficients("model")
    with pytest.raises(NotApplicable, match="fit by MAP"):
        fit(law, inputs(), y, Laplace(draws=5)).coefficients("model")
    with pytest.raises(NotApplicable, match="shape ~ LogNormal"):
        fit(NegativeBinomial(), inputs(), y).coefficients("HC0")
    with pytest.raises(NotApplicable, match="log or logit link"):
        fit(Gaussian(), inputs(), y).coefficients("model", exponentiate=True)
    column = np.column_stack([inputs(), np.arange(N) == 0])
    with pytest.raises(DataError, match="leverages below 1"):
        fit(Gaussian(), column, y).coefficients("HC3")


def test_a_search_that_ended_early_warns() -> None:
    law, _, y, _ = case("poisson")
    with pytest.warns(ConvergenceWarning, match="had not converged"):
        posterior = fit(law, inputs(), y, MAP("newton", steps=1))
    with pytest.warns(ConvergenceWarning, match="not those of maximum likelihood"):
        posterior.coefficients("model")
    assert torch.isfinite(posterior.draws["weight"]).all()
