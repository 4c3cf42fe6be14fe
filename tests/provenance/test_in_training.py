"""Which rows count as training rows, and that no guarantee is stated from such rows."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.stats import betabinom, binom
from torch import Tensor

import ppgp
from ppgp import conformal, inference, models
from ppgp.data import Dataset
from ppgp.errors import DataWarning
from ppgp.provenance.provenance import same_rows

quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def table(n: int, seed: int = 0) -> np.ndarray:
    """Return columns in several units: years, heavy tails, zeros, categories, extreme numbers."""
    rng = np.random.default_rng(seed)
    columns = [
        rng.normal(2010, 5, n),
        rng.exponential(3, n) ** 3,
        np.where(rng.random(n) < 0.6, 0.0, rng.normal(size=n)),
        rng.integers(0, 3, n),
        rng.normal(size=n) * 1e-9,
        rng.normal(size=n) * 1e6,
    ]
    return np.column_stack(columns).astype(float)


def through_csv(rows: np.ndarray) -> np.ndarray:
    text = pd.DataFrame(rows).to_csv(index=False, float_format="%.9g")
    return pd.read_csv(io.StringIO(text)).to_numpy(dtype=float)


@pytest.mark.parametrize(
    "written",
    [
        lambda rows: rows,
        lambda rows: rows.astype(np.float32).astype(float),
        through_csv,
        lambda rows: np.where(rows == 0, -0.0, rows),
        lambda rows: (10 * rows) / 10,
        lambda rows: rows + 5e-6 * rows.std(0),
    ],
    ids=[
        "as they are",
        "float32",
        "csv",
        "negative zero",
        "times 10 and back",
        "half the tolerance",
    ],
)
def test_rows_are_recognised_however_they_were_written(
    written: Callable[[np.ndarray], np.ndarray],
) -> None:
    rows = table(400)
    new = written(rows)
    np.testing.assert_array_equal(same_rows(rows, new[::-1]), True)
    assert (
        same_rows(rows, np.concatenate([new[7:8], table(60, 1)])).tolist() == [True] + [False] * 60
    )


def test_rows_that_differ_by_more_than_rounding_are_different() -> None:
    rows = table(400)
    for column in range(rows.shape[1]):
        new = rows.copy()
        new[:, column] += 2e-3 * rows[:, column].std() * np.where(np.arange(400) % 2, 1, -1)
        assert not same_rows(rows, new)[rows[:, column] != 0].any()


def fresh(family: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if family == "categories":
        return np.column_stack([rng.integers(0, 3, (n, 2)), rng.random(n) < 0.4]).astype(float)
    if family == "categories, y a number":
        return np.column_stack([rng.integers(0, 3, (n, 2)), rng.normal(size=n)])
    if family == "labels":
        return np.column_stack([rng.normal(size=(n, 2)), rng.random(n) < 0.4])
    if family == "rounded":
        x = rng.gamma(2, 1, n)
        return np.column_stack([x, 3 * x + rng.normal(size=n)]).round(1)
    if family == "counts":
        return np.column_stack(
            [rng.integers(1990, 2020, n), rng.integers(1, 13, n), rng.poisson(5, n)]
        ).astype(float)
    if family == "no inputs":
        return rng.normal(size=(n, 1))
    if family == "sorted":
        rows = rng.integers(0, 2, (n, 2)).astype(float)
        return rows[np.lexsort(rows.T)]
    return rng.standard_t(1, (n, 3))


FAMILIES = [
    "categories",
    "categories, y a number",
    "labels",
    "rounded",
    "counts",
    "no inputs",
    "sorted",
    "heavy tails",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_new_rows_do_not_count_as_training_rows(family: str) -> None:
    """So many matches are too many where chance gives them once in a thousand times.

    Two tolerances are tried.
    """
    tries, false = 100, 0
    for seed in range(tries):
        rng = np.random.default_rng(seed)
        false += bool(same_rows(fresh(family, 200, rng), fresh(family, 80, rng)).any())
    assert false <= binom.ppf(0.999, tries, 4e-3)


def test_a_few_copies_in_a_thousand_rows_are_attributed_to_chance() -> None:
    """Two rows repeat 2 times in 1,000: 500 rows of the training table may hold none of them."""
    tries, false = 12, 0
    for seed in range(tries):
        rng = np.random.default_rng(seed)
        atoms, rows = rng.normal(size=(2, 3)), rng.normal(size=(5000, 3))
        again = rng.random(5000) < 2e-3
        rows[again] = atoms[rng.integers(0, 2, again.sum())]
        false += bool(same_rows(rows[:3500], rows[3500:]).any())
    assert false <= binom.ppf(0.999, tries, 4e-3)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "sorted"])
def test_training_rows_in_their_order_are_recognised_in_every_family(family: str) -> None:
    rows = fresh(family, 200, np.random.default_rng(1))
    assert same_rows(rows, rows).all()
    assert same_rows(rows, rows[:100]).all()


@pytest.mark.parametrize(
    "family", ["categories, y a number", "labels", "counts", "no inputs", "heavy tails"]
)
def test_a_sample_of_the_training_rows_is_recognised(family: str) -> None:
    rng = np.random.default_rng(2)
    rows = fresh(family, 200, rng)
    assert same_rows(rows, rows[rng.permutation(200)[:80]]).all()


def linear(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return X, X[:, 0] + torch.randn(n, generator=generator, dtype=torch.float64)


def test_the_same_inputs_with_another_y_are_not_training_rows() -> None:
    X, y = linear(60, 2, 0)
    categories = X.sign()
    for inputs in (X, categories):
        posterior = ppgp.fit(
            models.LinearRegression(), Dataset(inputs, y), inference.MAP(), progress=False
        )
        again = linear(60, 2, 1)[1]
        assert not posterior.predict(inputs).in_training_with(again).any()
        assert (
            "heuristic"
            not in ppgp.calibrate(conformal.Absolute(), posterior.predict(inputs), again)(
                posterior.predict(X[:2]), 0.8
            ).guarantee
        )


def test_training_rows_are_recognised_in_single_precision_and_after_a_slice() -> None:
    X, y = linear(60, 2, 0)
    X = 2000 + 7 * X
    posterior = ppgp.fit(
        models.LinearRegression(), Dataset(X, 50 + y), inference.MAP(), progress=False
    )
    new, target = linear(20, 2, 3)
    predictive = posterior.predict(torch.cat([2000 + 7 * new, X[:5].float().double()]))
    both = torch.cat([50 + target, 50 + y[:5]])
    assert predictive.in_training_with(both).tolist() == [False] * 20 + [True] * 5
    assert predictive[18:22].in_training_with(both[18:22]).tolist() == [False, False, True, True]
    with pytest.warns(DataWarning, match="5 of 25"):
        calibrator = ppgp.calibrate(conformal.Absolute(), predictive, both)
    assert calibrator(predictive, 0.8).guarantee.startswith("heuristic")
    assert (
        ppgp.predictive_system(predictive, both)(predictive)
        .interval(0.8)
        .guarantee.startswith("heuristic")
    )


def guaranteed(guarantee: str) -> bool:
    return not guarantee.startswith("heuristic")


def covered(
    make: Callable[[int], tuple[ppgp.Region, Tensor]], repeats: int
) -> tuple[int, int, bool]:
    """Return the rows covered, the rows in all, and whether a region stated a guarantee."""
    hits, total, claims = 0, 0, False
    for seed in range(repeats):
        region, y = make(seed)
        hits += int(region.covers(y).sum())
        total += len(y)
        claims |= guaranteed(region.guarantee)
    return hits, total, claims


@quiet
def test_leave_one_out_of_the_training_rows_is_heuristic() -> None:
    """The plain jackknife covers less than .8: 19 rows, 5 columns, maximum likelihood."""
    free = ppgp.priors.Flat
    kernel = ppgp.kernels.ARD(ppgp.kernels.RBF(variance=free(), lengthscale=free()))
    model = models.GP(kernel, noise=free(start=0.1))

    def make(seed: int) -> tuple[ppgp.Region, Tensor]:
        X, y = linear(119, 5, seed)
        posterior = ppgp.fit(
            model, Dataset(X[:19], y[:19]), inference.MAP(steps=40), progress=False
        )
        calibrator = ppgp.calibrate(conformal.Absolute(), posterior.loo(), y[:19])
        system = ppgp.predictive_system(posterior.loo(), y[:19])(posterior.predict(X[19:]))
        assert not guaranteed(system.interval(0.8).guarantee)
        assert bool(posterior.loo().in_training_with(y[:19]).all())
        return calibrator(posterior.predict(X[19:]), 0.8), y[19:]

    hits, total, claims = covered(make, 5)
    assert hits / total < 0.78
    assert not claims


def program(x: Tensor, y: Tensor | None = None) -> None:
    weight = pyro.sample(
        "weight", dist.Normal(torch.zeros(x.shape[1], dtype=x.dtype), 10.0).to_event(1)
    )
    noise = pyro.sample("noise", dist.LogNormal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("obs", dist.Normal(x @ weight, noise), obs=y)


@quiet
def test_a_program_calibrated_on_its_training_rows_is_heuristic() -> None:
    """20 rows of 10 columns: residuals of the training rows are too small."""

    def make(seed: int) -> tuple[ppgp.Region, Tensor]:
        X, y = linear(120, 10, seed)
        posterior = ppgp.fit(program, {"x": X[:20], "y": y[:20]}, inference.MAP(), progress=False)
        predictive = posterior.predict(x=X[:20])
        return ppgp.calibrate(conformal.Absolute(), predictive, y[:20])(
            posterior.predict(x=X[20:]), 0.8
        ), y[20:]

    hits, total, claims = covered(make, 6)
    assert hits / total < 0.75
    assert not claims


@quiet
def test_a_program_calibrated_on_new_rows_states_its_level_and_covers() -> None:
    repeats, rows, n = 12, 100, 39

    def make(seed: int) -> tuple[ppgp.Region, Tensor]:
        X, y = linear(20 + n + rows, 10, seed)
        posterior = ppgp.fit(
            program, {"x": X[:20], "y": y[:20]}, inference.MAP(steps=50), progress=False
        )
        predictive = posterior.predict(x=X[20 : 20 + n])
        region = ppgp.calibrate(conformal.Absolute(), predictive, y[20 : 20 + n])(
            posterior.predict(x=X[20 + n :]), 0.8
        )
        assert guaranteed(region.guarantee)
        return region, y[20 + n :]

    hits, total, _ = covered(make, repeats)
    one = betabinom(rows, 32, 8)  # k = 32 of n + 1 = 40
    assert abs(hits / total - one.mean() / rows) <= 4 * one.std() / rows / repeats**0.5


def several(x: Tensor, group: Tensor, a: Tensor | None = None, b: Tensor | None = None) -> None:
    weight = pyro.sample("weight", dist.Normal(torch.zeros(3, dtype=x.dtype), 10.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("count", dist.Normal(weight[group], 1.0), obs=a)
        pyro.sample("size", dist.Normal(x * weight[0], 1.0), obs=b)


@quiet
def test_the_training_rows_of_each_of_two_observed_sites_are_recognised() -> None:
    generator = torch.Generator().manual_seed(0)
    X, a, b = torch.randn(3, 30, generator=generator, dtype=torch.float64)
    group = torch.arange(30) % 3
    posterior = ppgp.fit(
        several, {"x": X, "group": group, "a": a, "b": b}, inference.MAP(), progress=False
    )
    both = posterior.predict(x=X, group=group)
    assert bool(both["count"].in_training_with(a).all())
    assert bool(both["size"].in_training_with(b).all())
    assert not bool(both["size"].in_training_with(a).any())
    assert bool(posterior.predict(x=X, group=group, a=a).in_training_with(b).all())


@pytest.mark.parametrize("trained", [True, False])
def test_rows_that_cannot_be_told_from_training_rows_are_named_in_the_guarantee(
    trained: bool,
) -> None:
    """With one x and three values of y, training rows and new rows are the same rows."""
    x, y = np.ones((18, 1)), np.repeat([1.0, 2.0, 3.0], 6)
    data = Dataset(np.r_[x, np.zeros((3, 1))], np.r_[y, 0.0, 0.5, 0.7])
    posterior = ppgp.fit(models.LinearRegression(), data, inference.Exact(), progress=False)
    own = y if trained else np.resize([3.0, 1.0, 2.0, 2.0], 18)
    prediction, new = posterior.predict(x), posterior.predict([[1.0]])
    condition = "if the fit did not use these rows: 18 of 18 equal training rows"
    calibrator = ppgp.calibrate(conformal.Absolute(), prediction, own)
    for guarantee in (
        calibrator(new, level=0.8).guarantee,
        ppgp.predictive_system(prediction, own)(new).guarantee,
    ):
        assert condition in guarantee
    few = posterior.predict(np.r_[x[:4], np.full((14, 1), 2.0)])
    some = ppgp.calibrate(conformal.Absolute(), few, np.r_[own[:4], np.arange(14.0) + 0.25])
    assert "4 of 18 equal training rows" in some(new, level=0.8).guarantee
    assert "equal training rows" not in some(new, level=0.75).guarantee
    groups = np.arange(18) % 2
    by_group = ppgp.calibrate(conformal.Absolute(), prediction, own, groups=groups)
    assert condition in by_group(new, level=0.8, groups=[0]).guarantee
    others = own + np.random.default_rng(0).normal(size=18)
    told = ppgp.calibrate(conformal.Absolute(), prediction, others)
    assert told(new, level=0.8).guarantee == "marginal coverage >= 0.8 (exchangeable rows)"
