"""Coefficients that vary between groups: against published fits, and as models of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import ppgp
from ppgp import inference, models
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.diagnostics.choice_of_reference import same_model
from ppgp.errors import (
    ConvergenceWarning,
    DataError,
    NotApplicable,
    SettingError,
    UnknownName,
)
from ppgp.likelihoods import Categorical, Gaussian, Poisson
from ppgp.models import GLM, Varying
from ppgp.plots import shrinkage
from ppgp.priors import Flat, HalfCauchy, HalfNormal, InUnitsOfData, Normal

# Davies & Goldsmith (1972), yields of dyestuff from six batches
DYESTUFF = [
    [1545, 1440, 1440, 1520, 1580],
    [1540, 1555, 1490, 1560, 1495],
    [1595, 1550, 1605, 1510, 1560],
    [1445, 1440, 1595, 1465, 1545],
    [1595, 1630, 1515, 1635, 1625],
    [1520, 1455, 1450, 1480, 1445],
]
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SCHOOL_SD = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
EXACT = {"bias": (4.397, 3.318), "tau": (3.598, 3.220), 0: (6.212, 5.593), 7: (4.854, 5.291)}
NO_NOISE = 1e-9  # beside the known noise

ROW = np.arange(90)
GROUP = ROW % 9
SLOPE = 2 + 1.5 * np.sin(1.7 * ROW + 0.3)
LINE = 1 + 0.5 * SLOPE + 1.1 * np.cos(2.1 * GROUP) + 0.6 * np.sin(3.3 * GROUP + 1) * SLOPE
WAVES = LINE + np.sin(12.9898 * ROW) * np.cos(4.1 * ROW)
COUNTS = np.round(np.exp(0.4 + 0.2 * SLOPE + 0.5 * np.cos(2.1 * GROUP)))
LEVELS = np.array([f"level {g}" for g in GROUP])


def table(y: Any = WAVES, groups: Any = LEVELS, **options: Any) -> Dataset:
    return Dataset(SLOPE[:, None], y, ["x"], groups={"g": groups}, **options)


def flat(terms: str = "1 + x") -> models.Model:
    return GLM(Gaussian(Flat()), Flat(), Flat(), groups={"g": Varying(terms, Flat())})


def fit(model: models.Model, data: Dataset, how: Any = None, **options: Any) -> ppgp.Posterior:
    how = inference.MAP() if how is None else how
    return ppgp.fit(model, data, how, progress=False, **options)


def values(posterior: ppgp.Posterior) -> dict[str, np.ndarray]:
    return {name: v[0, 0].numpy() for name, v in posterior.draws_in("data").items()}


def schools() -> tuple[models.Model, Dataset]:
    model = GLM(
        Gaussian(NO_NOISE), 0.0, Normal(0.0, 5.0), groups={"school": Varying("1", HalfCauchy(5.0))}
    )
    groups = {"school": [str(i) for i in range(8)]}
    return model, Dataset(np.zeros((8, 1)), SCHOOLS, noise_sd=SCHOOL_SD, groups=groups)


def test_dyestuff_has_the_maximum_likelihood_of_lme4() -> None:
    """Bates et al. (2015), fm1ML: 1527.5, sds 37.26 and 49.51, deviance 327.3."""
    y = np.array(DYESTUFF, dtype=float).ravel()
    data = Dataset(np.zeros((30, 1)), y, groups={"g": np.repeat(list("ABCDEF"), 5)})
    model = GLM(Gaussian(Flat()), 0.0, Flat(), groups={"g": Varying("1", Flat())})
    posterior = fit(model, data, standardise=False)
    found = values(posterior)
    assert float(found["bias"]) == pytest.approx(1527.5, abs=0.01)
    assert float(found["g.sd"][0]) == pytest.approx(37.260, abs=6e-4)
    assert float(found["noise"]) ** 0.5 == pytest.approx(49.510, abs=6e-4)
    target = Target(posterior.model, posterior.data)
    density = float(target.log_density(target.unconstrain(posterior.theta)[0], jacobian=False))
    assert -2 * density == pytest.approx(327.3, abs=0.05)


@pytest.mark.parametrize("standardise", [True, False])
def test_random_slopes_have_the_maximum_likelihood_of_statsmodels(standardise: bool) -> None:
    """MixedLM of version 0.14 with free variances and no covariance, by BFGS."""
    found = values(fit(flat(), table(), standardise=standardise))
    assert float(found["bias"]) == pytest.approx(0.902906, abs=3e-6)
    assert found["weight"] == pytest.approx([0.602659], abs=3e-6)
    assert found["g.sd"] ** 2 == pytest.approx([0.53747, 0.49029], abs=3e-4)
    assert float(found["noise"]) == pytest.approx(0.25583, abs=2e-5)


def test_the_likelihood_at_the_optimum_is_that_of_statsmodels() -> None:
    posterior = fit(flat(), table(), standardise=False)
    target = Target(posterior.model, posterior.data)
    density = target.log_density(target.unconstrain(posterior.theta)[0], jacobian=False)
    assert float(density) == pytest.approx(-94.8746227, abs=1e-6)


def test_names_of_levels_and_order_of_rows_change_nothing() -> None:
    order = np.random.default_rng(0).permutation(90)
    other = Dataset(
        SLOPE[order, None], WAVES[order], ["x"], groups={"g": [f"{9 - g}" for g in GROUP[order]]}
    )
    first, second = values(fit(flat(), table())), values(fit(flat(), other))
    for name, value in first.items():
        assert value == pytest.approx(second[name], rel=1e-4)


def test_new_groups_are_partially_pooled() -> None:
    """Their variance is that of the groups and of the noise, beside that of the line."""
    model = GLM(Gaussian(0.25), 0.5, 1.0, groups={"g": Varying("1 + x", (0.7, 0.4))})
    posterior = fit(model, table())
    rows = np.array([[1.5], [1.5]])
    found = posterior.predict(rows, groups={"g": ["level 0", "another"]})
    assert float(found.mean[1]) == pytest.approx(1.75)
    assert float(found.std[1]) ** 2 == pytest.approx(0.25 + 0.49 + 0.16 * 1.5**2)
    Z = np.c_[np.ones(10), SLOPE[GROUP == 0]]
    S = np.diag([0.49, 0.16])
    C = Z @ S @ Z.T + 0.25 * np.eye(10)
    z = np.array([1.0, 1.5])
    gain = np.linalg.solve(C, Z @ S @ z)
    residual = WAVES[GROUP == 0] - 1 - 0.5 * SLOPE[GROUP == 0]
    assert float(found.mean[0]) == pytest.approx(1.75 + gain @ residual)
    assert float(found.std[0]) ** 2 == pytest.approx(0.25 + z @ S @ z - gain @ (Z @ S @ z))
    joint = posterior.predict(rows, groups={"g": ["level 0", "another"]}, joint=True)
    assert joint.mean == pytest.approx(found.mean)
    assert joint.std == pytest.approx(found.std)


@pytest.mark.parametrize("treatment", ["integrated", "sampled"])
def test_new_groups_of_counts_are_averaged_over(treatment: str) -> None:
    model = GLM(Poisson(), 0.2, 0.4, groups={"g": Varying("1", 0.5)}, effects=treatment)
    posterior = fit(model, table(COUNTS), inference.Laplace(draws=3))
    new = posterior.predict([[1.0]], groups={"g": ["another"]})
    assert float(new.mean[0]) == pytest.approx(np.exp(0.6 + 0.125), rel=1e-3)


def test_sampled_and_integrated_counts_have_the_same_effects() -> None:
    """Laplace over u is close to its joint Laplace at fixed sds, whose mode is the same."""
    options: Any = {"weight": 0.2, "bias": 0.4, "groups": {"g": Varying("1 + x", (0.5, 0.1))}}
    data = table(COUNTS)
    integrated = fit(GLM(Poisson(), **options), data)
    assert integrated.certain
    mode = fit(GLM(Poisson(), effects="sampled", **options), data, inference.MAP())
    exact = mode.effects()["g"][0, 0]
    model: Any = integrated.model
    found = model._given_rows({}, integrated.data).mean
    factors = torch.tensor(model.units.factors((-1, 0)))
    assert (found * factors).numpy() == pytest.approx(exact.numpy(), abs=1e-5)
    draws = torch.stack([integrated.effects(seed)["g"][0, 0] for seed in range(400)])
    spread = model._given_rows({}, integrated.data).covariance.diagonal(dim1=1, dim2=2).sqrt()
    error = 5 * spread * factors / 20
    assert bool(((draws.mean(0) - exact).abs() < error).all())


def test_the_treatment_follows_the_method() -> None:
    def treated(model: Any, how: Any) -> str:
        return model.for_method(how).effects

    counts = GLM(Poisson(), groups={"g": Varying()})
    assert treated(counts, inference.MAP()) == treated(counts, inference.Laplace()) == "integrated"
    assert treated(counts, inference.NUTS()) == treated(counts, inference.SVI()) == "sampled"
    assert treated(GLM(groups={"g": Varying()}), inference.NUTS()) == "integrated"
    assert treated(GLM(groups={"g": Varying()}, effects="sampled"), inference.MAP()) == "sampled"


def test_numbers_are_in_the_units_of_the_data() -> None:
    sd = InUnitsOfData(HalfNormal((2.0, 3.0)))
    for given, expected in (((0.7, 0.4), (0.7, 0.4)), (sd, None)):
        model = GLM(Gaussian(0.25), 0.5, 1.0, groups={"g": Varying("1 + x", given)})
        ready: Any = fit(model, table()).model
        unit = float(np.std(WAVES, ddof=1)), float(np.std(SLOPE, ddof=1))
        if expected is None:
            assert ready.groupings[0].sd.scale == pytest.approx(
                (2 / unit[0], 3 * unit[1] / unit[0]), rel=0.01
            )
        else:
            assert ready.groupings[0].sd == pytest.approx(
                (0.7 / unit[0], 0.4 * unit[1] / unit[0]), rel=0.01
            )


def test_effects_have_names_in_tables_figures_and_arviz(tmp_path: Path) -> None:
    two = {"g": LEVELS, "half": np.where(ROW < 45, "first", "second")}
    data = Dataset(SLOPE[:, None], WAVES, ["x"], groups=two)
    model = GLM(groups={"g": Varying("1 + x"), "half": Varying()})
    posterior = fit(model, data, inference.Laplace(draws=20))
    assert posterior.effects()["g"].shape == (1, 20, 9, 2)
    rows = posterior.effects_table()
    assert len(rows) == 20
    assert rows.loc[("g", "level 3", "x"), "5%"] < rows.loc[("g", "level 3", "x"), "95%"]
    tree = posterior.to_arviz()
    effect = tree.posterior["g.effect"]
    assert effect.dims == ("chain", "draw", "g", "g.term")
    assert list(effect["g"].values) == sorted(set(LEVELS))
    assert list(effect["g.term"].values) == ["intercept", "x"]
    assert len(shrinkage(posterior).axes) == 2
    assert len(shrinkage(posterior, "half").axes) == 1
    with pytest.raises(UnknownName, match="grouping"):
        shrinkage(posterior, "county")
    again = ppgp.load_posterior(posterior.save(tmp_path / "fit"))
    rows = data.rows(slice(0, 4))
    torch.testing.assert_close(again.predict(rows).mean, posterior.predict(rows).mean)
    assert again.model == posterior.model


def test_rows_of_one_group_are_correlated_and_pointwise_densities_are_leave_one_out() -> None:
    posterior = fit(flat("1"), table(), standardise=False)
    density = posterior.pointwise()["y"][0, 0]
    found = values(posterior)
    C: Any = found["g.sd"][0] ** 2 * (GROUP[:, None] == GROUP) + found["noise"] * np.eye(90)
    inverse = np.linalg.inv(C)
    residual = WAVES - found["bias"] - found["weight"][0] * SLOPE
    d = inverse.diagonal()
    exact = stats.norm.logpdf(WAVES, WAVES - inverse @ residual / d, d**-0.5)
    assert density.numpy() == pytest.approx(exact)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SettingError, match="Varying"):
        GLM(groups={})
    with pytest.raises(SettingError, match="different terms"):
        Varying("1 + 1")
    with pytest.raises(UnknownName, match="treatment"):
        GLM(groups={"g": Varying()}, effects="exact")
    with pytest.raises(SettingError, match="Varying"):
        GLM(effects="sampled")
    with pytest.raises(NotApplicable, match="one linear predictor"):
        GLM(Categorical(), groups={"g": Varying()})
    with pytest.raises(UnknownName, match="column"):
        fit(GLM(groups={"g": Varying("1 + floor")}), table())
    with pytest.raises(SettingError, match="positive sds"):
        Varying(sd=-1.0)
    with pytest.raises(SettingError, match="leave '0' and '- 1' out"):
        fit(GLM(groups={"g": Varying("0 + floor")}), table())
    with pytest.raises(SettingError, match=r"groups=\{'county': Varying\('1 \+ floor'\)\}"):
        Varying("1 | county")
    with pytest.raises(UnknownName, match="grouping of the Dataset, got 'county': known: g"):
        fit(GLM(groups={"county": Varying()}), table())
    with pytest.raises(NotApplicable, match="coefficients that vary"):
        fit(GLM(), table())
    with pytest.raises(DataError, match="groups"):
        fit(GLM(groups={"g": Varying()}), Dataset(SLOPE[:, None], WAVES))
    with pytest.raises(NotApplicable, match="without groups"):
        fit(GLM(groups={"g": Varying()}), table(), inference.Exact())
    unknown = Dataset(
        SLOPE[:20, None],
        WAVES[:20],
        groups={"g": torch.full((20,), -1)},
        group_levels={"g": ("a", "b")},
    )
    with pytest.raises(DataError, match="a level of g in every row"):
        fit(GLM(groups={"g": Varying()}), unknown)


def test_flat_sds_need_groups_of_several_rows_and_predict_no_new_group() -> None:
    with pytest.raises(DataError, match="several rows"):
        fit(flat("1"), table(groups=ROW))
    posterior = fit(flat("1"), table())
    with pytest.raises(DataError, match="flat"):
        posterior.predict([[1.0]], groups={"g": ["another"]})
    alone = LEVELS.copy()
    alone[0] = "alone"
    with pytest.warns(ConvergenceWarning, match=r"1 group of g \(alone\) of one row"):
        fit(flat("1"), table(groups=alone))


def test_the_posterior_of_eight_schools_has_the_density_of_quadrature() -> None:
    """The mean of tau by quadrature over our density is the exact one."""
    model, data = schools()
    target = Target(model.for_method(None).prepare(data), data)

    def density(mu: float, tau: float) -> float:
        whole = torch.tensor([mu, tau], dtype=torch.float64)
        z = target.unconstrain({"bias": whole[:1], "school.sd": whole[None, 1:]})[0]
        return float(target.log_density(z, jacobian=False))

    def exact(mu: float, tau: float) -> float:
        sd = np.sqrt(SCHOOL_SD**2 + tau**2)
        prior = stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, 0, 5)
        return float(stats.norm.logpdf(SCHOOLS, mu, sd).sum() + prior)

    for at in ((0.0, 1.0), (4.4, 3.6), (10.0, 30.0)):
        assert density(*at) == pytest.approx(exact(*at), abs=1e-8)
    area = integrate.quad(lambda t: np.exp(_given_tau(t)[0] + 30), 0, 400, limit=400)[0]
    mean = integrate.quad(lambda t: t * np.exp(_given_tau(t)[0] + 30), 0, 400, limit=400)[0] / area
    assert mean == pytest.approx(EXACT["tau"][0], abs=6e-2)


def _given_tau(tau: float) -> tuple[float, float]:
    """Return log p(y, tau) and the mean of mu given tau."""
    weight = 1 / (SCHOOL_SD**2 + tau**2)
    precision = weight.sum() + 1 / 25
    mean = (weight @ SCHOOLS) / precision
    fit = stats.norm.logpdf(SCHOOLS, mean, weight**-0.5).sum()
    prior = stats.norm.logpdf(mean, 0, 5) + stats.halfcauchy.logpdf(tau, 0, 5)
    return float(fit + prior - 0.5 * np.log(precision)), float(mean)


def test_fits_of_one_table_with_groups_have_one_density() -> None:
    posteriors = [fit(flat("1"), table(), standardise=False) for _ in range(2)]
    other = fit(flat("1"), table(groups=LEVELS[::-1]), standardise=False)
    assert same_model(*posteriors)
    assert not same_model(posteriors[0], other)


@pytest.mark.slow
def test_eight_schools_by_nuts() -> None:
    model, data = schools()
    posterior = fit(
        model, data, inference.NUTS(chains=4, draws=2000, warmup=1000), standardise=False
    )
    table = posterior.summary()
    theta = posterior.draws["bias"][..., None] + posterior.effects()["school"][..., 0]
    found = {"bias": posterior.draws["bias"], "tau": posterior.draws["school.sd"][..., 0]}
    ess = float(table["ess_bulk"].min())
    for name, (mean, sd) in EXACT.items():
        x = theta[..., name] if isinstance(name, int) else found[name]
        assert abs(float(x.mean()) - mean) < 4 * sd / ess**0.5 + 5e-4
        assert float(x.std()) == pytest.approx(sd, rel=0.15)


@pytest.mark.slow
def test_the_referee_warns_of_laplace_on_eight_schools() -> None:
    model, data = schools()
    how = {
        "NUTS": inference.NUTS(chains=4, draws=1000, warmup=1000),
        "Laplace": inference.Laplace(),
    }
    several = {name: fit(model, data, one, standardise=False) for name, one in how.items()}
    verdicts = ppgp.compare(several).verdicts
    assert verdicts["Laplace"] != "agrees"


@pytest.mark.slow
def test_the_weights_of_mean_field_on_eight_schools_are_heavy() -> None:
    """A mean-field guide has the mean of mu to 0.1 sd, but too few small values of tau.

    Less than 2 % of its tau are below 0.25, the exact 5 % quantile. Its importance weights show it
    without reference draws.
    """
    model, data = schools()
    posterior = fit(model, data, inference.SVI("normal", draws=4000), standardise=False)
    tau = posterior.draws["school.sd"]
    assert abs(float(posterior.draws["bias"].mean()) - EXACT["bias"][0]) < 0.1 * EXACT["bias"][1]
    assert float((tau < 0.25).double().mean()) < 0.02
    assert ppgp.diagnose(posterior).verdict == "do not use"
