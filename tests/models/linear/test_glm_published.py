"""Maximum likelihood of generalised linear models against published figures, to every digit shown.

Flat priors make MAP the maximum likelihood estimate, and the Laplace approximation has the standard
errors. The data ship with statsmodels, except for the counts of Dobson (1990), page 93.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special

import ppgp
from ppgp.data import Dataset
from ppgp.inference import MAP, Laplace
from ppgp.likelihoods import Binomial, Gamma, Likelihood, NegativeBinomial, Ordinal, Poisson
from ppgp.models import GLM
from ppgp.priors import Flat

FLAT = Flat()
#: Pearson's chi2 of ``scotland`` over 24 degrees of freedom, with which R's errors are made
DISPERSION = 0.0860228056 / 24


def table_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of a data set of statsmodels."""
    datasets = pytest.importorskip("statsmodels.datasets")
    found = getattr(datasets, name).load_pandas()
    return found.exog.to_numpy(dtype=float), found.endog.to_numpy(dtype=float)


def fitted(
    law: Likelihood, X: Any, y: Any, trials: Any = None, standardise: bool = True
) -> tuple[np.ndarray, np.ndarray, ppgp.Posterior]:
    """Return coefficients in data units, the intercept last, their standard errors, and the fit."""
    columns = {} if trials is None else {"trials": trials}
    bias = None if isinstance(law, Ordinal) else FLAT
    data, model = Dataset(X, y, **columns), GLM(law, weight=FLAT, bias=bias)
    how: dict[str, Any] = {"progress": False, "standardise": standardise}
    mode = ppgp.fit(model, data, MAP("newton"), **how)
    spread = ppgp.fit(model, data, Laplace(draws=2), **how)
    d, covariance = data.d, spread.stats["covariance"]
    unit = torch.eye(d + 1, dtype=torch.float64)
    unit = torch.cat([torch.zeros_like(unit[:1]), unit])
    draws = {"weight": unit[None, :, :d], "bias": unit[None, :, d]}
    errors = np.array([])
    if bias is not None:
        moved = laid(spread.model.coefficients(draws, spread.scaler, data.X))  # type: ignore[attr-defined]
        J = (moved[1:] - moved[:1]).mT
        errors = (J @ covariance @ J.mT).diagonal().sqrt().numpy()
    return laid(mode.coefficients())[0].numpy(), errors, mode


def laid(coefficients: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the coefficients of a chain side by side, [draw, p]."""
    rows = [v[0][:, None] if v.ndim == 2 else v[0] for v in coefficients.values()]
    return torch.cat(rows, 1)


def equal(found: np.ndarray, shown: str, units: float = 0.5000001) -> None:
    """Check every digit: numbers in text, within so many units of the last one printed."""
    figures = shown.split()
    assert len(found) == len(figures)
    for value, figure in zip(found, figures, strict=True):
        mantissa, _, exponent = figure.partition("e")
        decimals = len(mantissa.partition(".")[2])
        unit = 10.0 ** (int(exponent or 0) - decimals)
        assert abs(value - float(figure)) <= units * unit, (value, figure)


def close(errors: np.ndarray, shown: str) -> None:
    """Check standard errors of R, whose weights are those before its last step."""
    np.testing.assert_allclose(errors, [float(figure) for figure in shown.split()], rtol=1e-5)


def deviance(law: str, y: np.ndarray, mean: np.ndarray, trials: Any = 1.0) -> float:
    """Return twice the log likelihood ratio to the saturated model."""
    if law == "gamma":
        return float(2 * (-np.log(y / mean) + (y - mean) / mean).sum())
    if law == "shape 1":
        each = special.xlogy(y, y / mean) - (y + 1) * np.log((y + 1) / (mean + 1))
        return float(2 * each.sum())
    return float(
        2
        * (
            special.xlogy(y, y / mean) + special.xlogy(trials - y, (trials - y) / (trials - mean))
        ).sum()
    )


def log_likelihood(posterior: ppgp.Posterior) -> float:
    return float(posterior.log_likelihood().sum())


def test_dobson_poisson() -> None:
    """Dobson (1990), page 93: outcome and treatment of a randomised controlled trial."""
    y = np.array([18.0, 17, 15, 20, 10, 20, 25, 13, 12])
    outcome, treatment = np.tile(np.arange(3), 3), np.repeat(np.arange(3), 3)
    X = np.stack([outcome == 1, outcome == 2, treatment == 1, treatment == 2], 1).astype(float)
    for standardise in (True, False):
        found, errors, mode = fitted(Poisson(), X, y, standardise=standardise)
        equal(np.roll(found, 1), "3.045 -0.4543 -0.2930 0.0000 0.0000")
        equal(np.roll(errors, 1), ".1709 .2022 .1927 .2 .2")
        equal(np.array([log_likelihood(mode)]), "-23.3807")


def test_scotland_gamma_with_the_inverse_link() -> None:
    """Gill (2001), by R; the coefficients do not depend on the shape."""
    X, y = table_of("scotland")
    found, errors, mode = fitted(Gamma(shape=1 / DISPERSION, link="inverse"), X, y)
    equal(
        found,
        "4.961768e-05 .002034423 -7.181429e-05 1.118520e-04 -1.467515e-07 -5.186831e-04 "
        "-2.427175e-06 -.01776527",
    )
    close(
        errors,
        "1.621577e-05 5.320802e-04 2.711664e-05 4.057691e-05 1.236569e-07 2.402534e-04 "
        "7.460253e-07 1.147922e-02",
    )
    mean = mode.predict(X).mean.numpy()
    equal(np.array([deviance("gamma", y, mean)]), ".0873885")


def test_star98_binomial() -> None:
    """R: the shares of pupils above the national median in mathematics."""
    X, both = table_of("star98")
    y, trials = both[:, 0], both.sum(1)
    found, errors, mode = fitted(Binomial(), X, y, trials)
    equal(
        found,
        "-0.0168150366 0.0099254766 -0.0187242148 -0.0142385609 0.2544871730 0.2406936644 "
        "0.0804086739 -1.9521605027 -0.3340864748 -0.1690221685 0.0049167021 -0.0035799644 "
        "-0.0140765648 -0.0040049918 -0.0039063958 0.0917143006 0.0489898381 0.0080407389 "
        "0.0002220095 -0.0022492486 2.9588779262",
    )
    close(
        errors,
        "4.339467e-04 6.013714e-04 7.435499e-04 4.338655e-04 2.994576e-02 5.713824e-02 "
        "1.392359e-02 3.168109e-01 6.126411e-02 3.270139e-02 1.253877e-03 2.254633e-04 "
        "1.904573e-03 4.739838e-04 9.623650e-04 1.450923e-02 7.451666e-03 1.499497e-03 "
        "2.988794e-05 3.489838e-04 1.546712",
    )
    equal(np.array([log_likelihood(mode)]), "-2998.6126")
    mean = mode.predict(Dataset(X, y, trials=trials)).mean.numpy()
    equal(np.array([deviance("binomial", y, mean, trials)]), "4078.765")


def test_cpunish_poisson() -> None:
    """R: executions in 17 states, with VC100k96 in logs.

    The second coefficient is .0778180150427 in 40 digits.
    """
    X, y = table_of("cpunish")
    X[:, 3] = np.log(X[:, 3])
    found, errors, mode = fitted(Poisson(), X, y)
    equal(
        found, "2.611017e-04 .07781801 -.09493111 .2969349 2.301183 -18.72207 -6.801480", units=0.51
    )
    close(
        errors,
        "5.187132e-05 7.940193e-02 2.291926e-02 4.375164e-01 4.283826e-01 4.283961 4.146850",
    )
    equal(np.array([log_likelihood(mode)]), "-31.92733")


def test_committee_negative_binomial_of_shape_one() -> None:
    """R: bills assigned to committees, with STAFF in logs and its product with SUBS.

    Fisher scoring converges linearly here, and R stops 1e-4 short of the maximum, which is also
    found by Newton's method in 40 digits.
    """
    X, y = table_of("committee")
    X[:, 2] = np.log(X[:, 2])
    X = np.column_stack([X, X[:, 2] * X[:, 1]])
    found, _, mode = fitted(NegativeBinomial(shape=1.0), X, y)
    maximum = (
        "-.026818150576 1.25109695120 2.91079900404 -.347917996728 .006597931068 -.313044950338 "
        "-6.44869980877"
    )
    equal(found, maximum, units=20.0)
    by_r = [-0.0268147, 1.25103, 2.91071, -0.347996, 0.00659808, -0.313030, -6.44847]
    np.testing.assert_allclose(found, by_r, rtol=3e-4)
    equal(np.array([deviance("shape 1", y, mode.predict(X).mean.numpy())]), "5.615520")


APPLY = {
    "logit": "1.04766 -.05868 .61575 2.20332 4.29877",
    "probit": ".59811 .01016 .35816 1.29684 2.50285",
    "cloglog": ".51664 .10811 .33438 .87052 1.97445",
}


@pytest.mark.parametrize("link", list(APPLY))
def test_ucla_ordinal(link: str) -> None:
    """UCLA's students who apply to graduate school. R's polr stops 6e-4 short of the maximum."""
    package = pytest.importorskip("statsmodels.miscmodels")
    file = Path(package.__file__).parent / "tests" / "results" / "ologit_ucla.csv"
    if not file.exists():
        pytest.skip("this build of statsmodels has no test data")
    table = pd.read_csv(file)
    levels = ["unlikely", "somewhat likely", "very likely"]
    y = table["apply"].map({name: k for k, name in enumerate(levels)}).to_numpy(dtype=float)
    X = table[["pared", "public", "gpa"]].to_numpy(dtype=float)
    found, _, mode = fitted(Ordinal(link, cutpoints=FLAT), X, y)
    equal(found, APPLY[link])
    if link == "logit":
        equal(np.array([log_likelihood(mode)]), "-358.51244")
