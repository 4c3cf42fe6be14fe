"""Edge cases of rounding, ties, zeros and units, which decide whether a guarantee is kept."""

from __future__ import annotations

import pytest
import torch
from pyro.distributions import Binomial, Categorical, Gamma, Normal, Poisson
from torch import Tensor

import ppgp
from ppgp import Prediction, inference, kernels, models, priors
from ppgp import conformal as C
from ppgp.conformal.online import PastScores
from ppgp.conformal.pid_control import bound_of_steps
from ppgp.conformal.split import weighted_threshold
from ppgp.data import Dataset
from ppgp.diagnostics import comparison
from ppgp.errors import DataError, NotApplicable, SettingError

F64 = torch.float64


def one_normal(mean: float, sd: float, rows: int) -> Prediction:
    return Prediction(
        Normal(torch.full((1, rows), mean, dtype=F64), torch.full((1, rows), sd, dtype=F64))
    )


@pytest.mark.parametrize(
    "score",
    [C.PIT(), C.Density(), C.Normalized(), C.Signed(normalized=True), C.Absolute(), C.Quantile()],
)
@pytest.mark.parametrize("seed", range(12))
def test_an_atom_of_y_at_the_threshold_is_not_lost_to_rounding(score: C.Score, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mean = (1 + 4 * torch.rand(1, generator=generator, dtype=F64)).item()
    sd = (1 + torch.rand(1, generator=generator)).item()
    y = torch.randint(1, 6, (299,), generator=generator).to(F64)
    calibrator = C.calibrate(score, one_normal(mean, sd, 99), y[:99])
    region = calibrator(one_normal(mean, sd, 200), level=0.9)
    scores = score.score(one_normal(mean, sd, 200), y[99:], 0.9)
    by_score = (scores <= C.split.threshold(calibrator.scores(0.9), 0.9)).reshape(200, -1).all(1)
    assert bool((region.covers(y[99:]) >= by_score).all())


def test_shift_weights_depend_on_the_row_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(500, 1, generator=generator, dtype=F64)
    b = torch.randn(500, 1, generator=generator, dtype=F64) + 1
    X = torch.tensor([[-2.0], [0.0], [2.0]], dtype=F64)
    together = C.shift_weights(a, b, X)
    alone = torch.cat([C.shift_weights(a, b, x[None]) for x in X])
    torch.testing.assert_close(together, alone)
    assert float(together[2]) > 4 * float(together[1]) > 16 * float(together[0])


@pytest.mark.parametrize(
    "scores", [torch.ones(2000), torch.cat([0.1 * torch.rand(200), torch.ones(3000)])]
)
def test_pid_covers_constant_scores(scores: Tensor) -> None:
    found = C.PID(C.Absolute(), 0.9)(one_normal(0.0, 1.0, len(scores)), scores.to(F64))
    assert float((~found.errors[-1500:]).double().mean()) == pytest.approx(0.9, abs=0.05)


def test_online_methods_take_float32() -> None:
    predictive = Prediction(Normal(torch.zeros(1, 50), torch.ones(1, 50)))
    for method in (
        C.ACI(C.Absolute(), 0.9, rate=0.5),
        C.AgACI(C.Absolute()),
        C.PID(C.Absolute(), saturation=10.0),
    ):
        assert len(method(predictive, torch.randn(50)).thresholds) == 50


NEVER_EMPTY = [
    C.ACI(C.LAC(keep_best=True), 0.9, rate=0.05),
    C.AgACI(C.LAC(keep_best=True)),
    C.PID(C.LAC(keep_best=True)),
]


@pytest.mark.parametrize("method", NEVER_EMPTY, ids=repr)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_online_methods_keep_sets_that_are_never_empty(method: C.ACI, share: float) -> None:
    """The most probable label is right but for a share of the rows, all of them late.

    The share missed is bounded from above.
    """
    probs = torch.tensor([[0.9, 0.1]], dtype=F64).expand(3000, 2)[None]
    y = torch.cat(
        [
            torch.zeros(2000),
            (torch.rand(1000, generator=torch.Generator().manual_seed(0)) < 3 * share).to(F64),
        ]
    )
    found = method(Prediction(Categorical(probs=probs)), y)
    assert not bool(found.region.empty.any())
    assert torch.equal(found.region.covers(y), ~found.errors)
    if isinstance(method, C.ACI):
        assert found.coverage >= 0.9 - method.bound(3000)
        assert ">= 0.9 -" in found.region.guarantee


def test_online_methods_keep_intervals_that_are_only_widened() -> None:
    predictive = one_normal(0.0, 1.0, 400)
    own = predictive.interval(0.8)
    for method in (
        C.ACI(C.Quantile(widen_only=True), 0.8, rate=0.3),
        C.PID(C.Quantile(widen_only=True), 0.8),
    ):
        y = 0.01 * torch.randn(400, generator=torch.Generator().manual_seed(1), dtype=F64)
        found = method(predictive, y)
        assert bool((found.region.width >= own.width).all())
        assert torch.equal(found.region.covers(y), ~found.errors)


def test_a_bound_that_reaches_coverage_0_is_not_stated() -> None:
    few = C.ACI(C.Absolute(), 0.9, rate=0.01)(one_normal(0.0, 1.0, 20), torch.zeros(20))
    assert few.region.guarantee.startswith("heuristic")
    assert "+-" not in few.region.guarantee


def test_online_methods_refuse_calibration_rows_with_another_score() -> None:
    predictive, y = one_normal(0.0, 1.0, 30), torch.linspace(-1, 1, 30, dtype=F64)
    for method in (C.ACI(C.Absolute()), C.AgACI(C.Absolute()), C.PID(C.Absolute())):
        with pytest.raises(SettingError, match=r"Absolute\(\).*Normalized\(\)"):
            method(predictive, y, calibration=C.calibrate(C.Normalized(), predictive, y))
        for more in ({"groups": ["a"] * 30}, {"weights": torch.ones(30)}):
            with pytest.raises(NotApplicable):
                method(predictive, y, calibration=C.calibrate(C.Absolute(), predictive, y, **more))


@pytest.mark.parametrize("fall", [1.0, 1e4])
def test_the_bound_of_pid_holds_where_the_scale_falls(fall: float) -> None:
    """The bound of steps that follow the scale depends on their variation.

    Where the bound exceeds the level, the guarantee is heuristic.
    """
    y = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=F64)
    y[2000:] /= fall
    found = C.PID(C.Absolute(), 0.9)(one_normal(0.0, 1.0, 4000), y)
    heuristic = found.region.guarantee.startswith("heuristic")
    assert heuristic == (fall > 1)
    if not heuristic:
        bound = float(found.region.guarantee.split("+- ")[1].split()[0])
        assert abs(found.coverage - 0.9) <= bound < 0.5


def test_the_bound_for_steps_of_any_size_holds_on_an_adversarial_sequence() -> None:
    generator = torch.Generator().manual_seed(0)
    steps = (torch.rand(300, generator=generator, dtype=F64) + 0.2).cumsum(0).rsqrt().tolist()
    for kind in range(3):
        q, scores, missed = 0.5, [], []
        for t, step in enumerate(steps):
            # scores that the threshold misses, if it can
            s = (float(q < 0.99), float(t % 2), min(max(q + 1e-9, 0.0), 1.0))[kind]
            scores.append(s)
            missed.append(float(s > q))
            q += step * (missed[-1] - 0.1)
        deviation = abs(sum(missed) / len(missed) - 0.1)
        assert deviation <= bound_of_steps(steps, [0.5, *scores]) + 1e-12
    assert bound_of_steps([0.1] * 100, [0.0, 1.0]) == pytest.approx((1 + 0.1) / (0.1 * 100))
    assert bound_of_steps([0.1], [0.0, float("inf")]) == float("inf")


@pytest.mark.parametrize(("level", "n"), [(0.7, 9), (0.85, 19)])
def test_the_first_online_threshold_is_that_of_split_conformal(level: float, n: int) -> None:
    ranks = list(map(float, range(1, n + 1)))
    assert PastScores(ranks, None).threshold(1 - level) == C.split.rank(n, level)


@pytest.mark.parametrize("unit", ["median", "width"])
def test_quantiles_of_counts_that_have_no_width(unit: str) -> None:
    def predictive(n: int) -> Prediction:
        return Prediction(Poisson(torch.full((1, n), 0.5, dtype=F64)))

    y = torch.poisson(torch.full((200,), 0.5), generator=torch.Generator().manual_seed(0)).to(F64)
    region = C.calibrate(C.Quantile(unit=unit), predictive(200), y)(predictive(5), level=0.9)
    assert region.lower is not None
    assert bool((region.lower <= 0).all())
    assert bool(torch.isfinite(region.width).all())
    few = C.calibrate(C.Quantile(unit=unit), predictive(5), torch.ones(5))(predictive(3), level=0.9)
    assert bool(few.infinite.all())
    assert not bool(few.empty.any())


def test_a_gap_of_little_probability_is_found() -> None:
    loc = torch.tensor([[-5.0], [0.0], [7.0]], dtype=F64)
    scale = torch.tensor([[0.1], [1.0], [3.0]], dtype=F64)
    predictive, y = Prediction(Normal(loc, scale)), torch.tensor([-3.8], dtype=F64)
    assert float(C.Density().score(predictive, y, 0.9)) > 5
    region = C.Density().region(predictive, torch.tensor(5.0, dtype=F64), 0.9)
    assert not bool(region.covers(y))
    assert region.pieces is not None
    assert len(region.pieces[0]) == 2


def test_randomised_label_sets_do_not_depend_on_the_batch() -> None:
    logits = torch.randn(1000, 101, generator=torch.Generator().manual_seed(0), dtype=F64)
    predictive = Prediction(Categorical(logits=torch.stack([logits, -logits], -1)))
    together = C.APS().scores(predictive)
    alone = torch.cat([C.APS().scores(predictive[i : i + 1]) for i in range(101)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


def test_weights_of_0_give_an_infinite_threshold() -> None:
    q = weighted_threshold(
        torch.tensor([1.0, 2.0], dtype=F64),
        0.9,
        torch.zeros(2, dtype=F64),
        torch.zeros(1, dtype=F64),
    )
    assert bool(torch.isposinf(q).all())


@pytest.mark.parametrize(("n", "ones", "risk"), [(139, 27, 0.2), (179, 53, 0.3)])
def test_a_risk_that_is_met_exactly_counts_as_met(n: int, ones: int, risk: float) -> None:
    losses = torch.zeros(n, 2, dtype=F64)
    losses[:ones, 0] = 1
    assert C.risk_control(losses, [0.0, 1.0], risk).index == 0


def test_quantiles_of_bounded_counts_and_at_extreme_probabilities() -> None:
    predictive = Prediction(Binomial(10, probs=torch.full((1, 2), 0.5, dtype=F64)))
    assert predictive.quantile(0.9995).tolist() == [10.0, 10.0]
    assert bool(torch.isfinite(predictive.crps(torch.tensor([3.0, 12.0]))).all())
    assert bool(
        torch.isfinite(
            Prediction(Normal(torch.zeros(1, 2), torch.ones(1, 2))).quantile(1 - 1e-9)
        ).all()
    )
    assert float(Prediction(Gamma(torch.full((1, 1), 0.05, dtype=F64), 1.0)).quantile(0.05)) >= 0


@pytest.mark.parametrize("y", [-3.0, 4.5, 2.0])
def test_the_crps_of_counts_is_the_integral_for_any_y(y: float) -> None:
    predictive = Prediction(Poisson(torch.tensor([[2.0], [9.0]], dtype=F64)))
    x = torch.linspace(-5, 60, 65_001, dtype=F64)[:-1] + 0.0005
    step = predictive.cdf(x.floor().clamp_min(-1)[:, None])[:, 0]
    integral = float(((step - (x >= y).to(F64)).square() * 0.001).sum())
    assert float(predictive.crps(torch.tensor([y]))) == pytest.approx(integral, abs=2e-3)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        C.VennAbers([0.0, 1.0], [0.0, 1.0])([float("nan")])
    with pytest.raises(SettingError, match="window"):
        C.ACI(C.Absolute(), window=0)
    with pytest.raises(DataError, match="infinity"):
        C.predictive_system(one_normal(0.0, 1.0, 3), [0.0, 1.0, float("inf")])
    region = C.calibrate(C.Absolute(), one_normal(0.0, 1.0, 9), torch.zeros(9))(
        one_normal(0.0, 1.0, 1), level=0.9999999
    )
    assert "0.9999999" in region.guarantee


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_conformal_bayes_of_an_exact_posterior_covers() -> None:
    """The density of a candidate is that given each draw, like the likelihood of the data."""
    covered = []
    model = models.LinearRegression(priors.Normal(0.0, 1.0), 0.0, priors.LogNormal(-1.0, 1.0))
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(40, 8, generator=generator, dtype=F64)
        w = torch.randn(8, generator=generator, dtype=F64)
        e = torch.randn(40, generator=generator, dtype=F64)
        y = X @ w + 0.5 * e
        posterior = ppgp.fit(
            model,
            Dataset(X[:25], y[:25]),
            inference.Exact(draws=250),
            progress=False,
            standardise=False,
        )
        region = ppgp.conformal_bayes(posterior, X[25:], 0.8)
        covered.append(float(region.covers(y[25:]).double().mean()))
    mean = torch.tensor(covered)
    assert float(mean.mean()) >= 0.8 - 3 * float(mean.std()) / len(covered) ** 0.5


def test_posteriors_of_other_models_or_data_are_not_judged_by_one_another() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(25, 1, generator=generator, dtype=F64)
    data = Dataset(X, torch.sin(X[:, 0]))
    how = inference.NUTS(draws=60, warmup=100, chains=2)
    with pytest.warns(ppgp.errors.ConvergenceWarning):
        fits = {
            "rbf": ppgp.fit(models.GP(kernels.RBF()), data, how, progress=False),
            "matern": ppgp.fit(models.GP(kernels.Matern(0.5)), data, how, progress=False),
            "other": ppgp.fit(
                models.GP(kernels.RBF()), Dataset(X, torch.cos(X[:, 0])), how, progress=False
            ),
        }
    assert set(comparison.compare(fits).verdicts.values()) == {"reference"}


def test_a_direction_is_flat_in_its_own_units() -> None:
    data = Dataset(
        torch.tensor([[1e5, 1.0], [-1e5, 2.0], [3e5, -1.0], [0.0, 0.5]], dtype=F64),
        [1.0, 2.0, -1.0, 0.3],
    )
    model = models.LinearRegression(priors.Normal(0.0, 1.0), 0.0, 1.0)
    laplace, exact = (
        ppgp.fit(model, data, how, standardise=False, progress=False)
        for how in (inference.Laplace(), inference.Exact())
    )
    assert laplace.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    assert not laplace.warnings


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e7, 1e12])
def test_least_squares_in_any_units(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(50, 2, generator=generator, dtype=F64)
    y = scale * (3 * X[:, 0] + torch.randn(50, generator=generator, dtype=F64))
    flat = priors.Flat()
    posterior = ppgp.fit(
        models.LinearRegression(flat, flat, flat),
        Dataset(X, y),
        inference.MAP(),
        standardise=False,
        progress=False,
    )
    A = torch.cat([X, torch.ones(50, 1, dtype=F64)], 1)
    w = torch.linalg.lstsq(A, y[:, None]).solution[:, 0]
    torch.testing.assert_close(
        posterior.draws["weight"][0, 0] / scale, w[:2] / scale, rtol=1e-6, atol=1e-9
    )
    residual = float((y - A @ w).square().mean())
    assert float(posterior.draws["noise"]) == pytest.approx(residual, rel=1e-4)


def test_kernels_equal_their_variance_on_the_diagonal_in_float32() -> None:
    X = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    for kernel in (
        kernels.RBF(1.0, 0.005),
        kernels.Matern(1.5, 1.0, 0.005),
        kernels.RationalQuadratic(1.0, 0.005, 1.0),
    ):
        assert torch.equal(kernel({}, X).diagonal(), torch.ones(30))
