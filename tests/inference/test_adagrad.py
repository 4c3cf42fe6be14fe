"""AdaGrad: its recursion by hand, and the optima of Adam."""

from __future__ import annotations

import math

import pyro
import pyro.distributions as dist
import pytest
import torch

from ppgp import Dataset, Target, fit, stream
from ppgp.errors import SettingError
from ppgp.inference import MAP, SVI, Ensemble, Laplace
from ppgp.kernels import RBF
from ppgp.likelihoods import Poisson
from ppgp.models import GLM, GP, SGPR, SVGP, LinearRegression, LogisticRegression, Program

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
EPS = 1e-10  # of torch, added to the root


def rows(n: int = 200, family: str = "normal") -> Dataset:
    g = torch.Generator().manual_seed(3)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    f = X @ torch.tensor([1.0, -0.5], dtype=F64)
    if family == "normal":
        return Dataset(X, f + 0.5 * torch.randn(n, generator=g, dtype=F64))
    if family == "classes":
        return Dataset(X, (f > torch.randn(n, generator=g, dtype=F64)).to(F64))
    return Dataset(X, torch.poisson((0.5 * f + 1).exp(), generator=g))


def by_hand(target: Target, z: torch.Tensor, rates: list[float]) -> torch.Tensor:
    """Maximise by z + rate g / (sqrt(sum of g^2) + eps), one rate a step."""
    squares = torch.zeros_like(z)
    for rate in rates:
        _, g = target.value_and_grad(z, jacobian=False)
        squares = squares + g**2
        z = z + rate * g / (squares.sqrt() + EPS)
    return z


@quiet
@pytest.mark.parametrize(("schedule", "rate"), [(None, 0.5), ("cosine", 0.2), ("inverse", 0.3)])
def test_iterates_are_those_of_the_recursion(schedule, rate) -> None:
    steps = 25
    factors = {
        None: [1.0] * steps,
        "cosine": [0.01 + 0.495 * (1 + math.cos(math.pi * t / steps)) for t in range(steps)],
        "inverse": [1 / (1 + t / (0.05 * steps)) for t in range(steps)],
    }[schedule]
    model, data = LogisticRegression(), rows(60, "classes")
    target = Target(model, data, optimise_params=True)
    start = torch.zeros(target.dim, dtype=F64)
    given = None if schedule is None else rate  # the default rate is 0.5
    how = MAP("adagrad", steps=steps, learning_rate=given, schedule=schedule)
    posterior = how(target, init=start)
    expected = by_hand(target, start, [rate * factor for factor in factors])
    found = target.unconstrain({name: draw[0, 0] for name, draw in posterior.draws.items()})
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@quiet
def test_each_site_has_its_own_rate() -> None:
    target = Target(LogisticRegression(), rows(60, "classes"), optimise_params=True)
    start = torch.zeros(target.dim, dtype=F64)
    how = MAP("adagrad", steps=1, learning_rate={"weight": 0.3, "": 0.01})
    z = target.unconstrain({k: v[0, 0] for k, v in how(target, init=start).draws.items()})
    for name, s in target.slices.items():
        size = torch.full((s.stop - s.start,), 0.3 if name == "weight" else 0.01, dtype=F64)
        torch.testing.assert_close(z[s.start : s.stop].abs(), size, rtol=0, atol=1e-8)


MODELS = {
    "linear": (LinearRegression(), "normal"),
    "logistic": (LogisticRegression(), "classes"),
    "poisson": (GLM(Poisson()), "counts"),
}


@quiet
@pytest.mark.parametrize(("model", "family"), MODELS.values(), ids=MODELS)
def test_the_optimum_is_that_of_adam(model, family) -> None:
    data = rows(200, family)
    adam = fit(model, data, MAP("adam"), progress=False)
    spread = fit(model, data, Laplace(draws=400), progress=False)
    whole = fit(model, data, MAP("adagrad"), progress=False)
    for name, optimum in adam.draws.items():
        sd = spread.draws[name].std((0, 1))
        assert float(((whole.draws[name] - optimum).abs() / sd).max()) < 0.01, name


@quiet
@pytest.mark.parametrize(("model", "family"), MODELS.values(), ids=MODELS)
def test_the_optimum_in_mini_batches_is_that_of_adam(model, family) -> None:
    data = rows(200, family)
    adam = fit(model, data, MAP("adam"), progress=False)
    spread = fit(model, data, Laplace(draws=400), progress=False)
    how = MAP("adagrad", batch_size=100, steps=6000, schedule="cosine")
    some = fit(model, data, how, progress=False)
    for name, optimum in adam.draws.items():
        sd = spread.draws[name].std((0, 1))
        assert float(((some.draws[name] - optimum).abs() / sd).max()) < 0.1, name


@quiet
@pytest.mark.parametrize("guide", ["normal", "multivariate_normal"])
def test_a_guide_ends_where_adam_takes_it(guide) -> None:
    """The mean of z given y is (sum of y) / (n + 1), with variance 1 / (n + 1)."""

    def program(y):
        z = pyro.sample("z", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)

    y = torch.tensor([[1.0, 3.0], [2.0, 1.0], [3.0, 2.0]], dtype=F64)
    how = SVI(guide, optimizer="adagrad", steps=2000, particles=4, draws=4000)
    z = fit(program, {"y": y}, how, progress=False).draws["z"].reshape(-1, 2)
    # the error of 4,000 draws is .016 sd; the guide itself is off by .05 sd
    torch.testing.assert_close(z.mean(0), y.sum(0) / 4, rtol=0, atol=0.07)
    torch.testing.assert_close(z.std(0), torch.full((2,), 0.5, dtype=F64), rtol=0, atol=0.07)


@quiet
def test_svi_in_mini_batches() -> None:
    data = rows(200)
    exact = fit(LinearRegression(), data, SVI(method="deterministic"), progress=False)
    how = SVI(optimizer="adagrad", batch_size=50, patience=2500)
    found = fit(LinearRegression(), data, how, progress=False)
    for name, draws in exact.draws.items():
        mean, sd = draws.mean((0, 1)), draws.std((0, 1))
        assert float(((found.draws[name].mean((0, 1)) - mean).abs() / sd).max()) < 0.3, name
    assert abs(found.stats["elbo"] - exact.stats["elbo"]) < 0.3


@quiet
def test_a_bound_takes_it_for_the_sites_that_are_not_collapsed() -> None:
    data, model = rows(120), SVGP(RBF(), inducing=20)
    heights = {}
    for optimizer in ("adam", "adagrad"):
        rate = 0.5 if optimizer == "adagrad" else 0.05
        how = SVI(optimizer=optimizer, steps=150, learning_rate=rate)
        heights[optimizer] = fit(model, data, how, progress=False).stats["objective"]
    short = fit(model, data, SVI(optimizer="adagrad", steps=1), progress=False).stats["objective"]
    assert heights["adagrad"] > short + 0.1
    assert abs(heights["adagrad"] - heights["adam"]) < 1.0


@quiet
def test_members_abreast_equal_members_in_turn(monkeypatch) -> None:
    how = Ensemble(MAP("adagrad", steps=40, batch_size=16), members=3)
    abreast = fit(LinearRegression(), rows(40), how, progress=False)
    monkeypatch.setattr(MAP, "goes_abreast", lambda self, target: False)
    in_turn = fit(LinearRegression(), rows(40), how, progress=False)
    for name, value in in_turn.draws.items():
        torch.testing.assert_close(abreast.draws[name], value, rtol=1e-7, atol=1e-8)


@quiet
@pytest.mark.parametrize(
    "how",
    [
        MAP("adagrad", steps=60, batch_size=20),
        MAP("adagrad", steps=60),
        SVI(optimizer="adagrad", steps=60, batch_size=20),
        SVI(optimizer="adagrad", steps=60),
    ],
    ids=["in batches", "all rows", "guide in batches", "guide of all rows"],
)
def test_a_checkpoint_goes_on_where_it_stopped(how, tmp_path, monkeypatch) -> None:
    model, data = GLM(Poisson()), rows(80, "counts")
    whole = fit(model, data, how, progress=False)
    calls = 0
    real = torch.optim.Adagrad.step

    def interrupts(self, *args):
        nonlocal calls
        calls += 1
        if calls == 30:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(torch.optim.Adagrad, "step", interrupts)
    path = tmp_path / "fit.ckpt"
    fit(model, data, how, progress=False, checkpoint=path)
    again = fit(model, data, how, progress=False, checkpoint=path)
    for name, draws in whole.draws.items():
        torch.testing.assert_close(again.draws[name], draws, rtol=1e-12, atol=1e-12)


@quiet
def test_held_out_rows_stop_it() -> None:
    how = MAP("adagrad", steps=200, hold_out=0.2)
    assert fit(GP(RBF()), rows(60), how, progress=False).stats["held_out_step"] <= 200


@quiet
def test_streams_take_it(tmp_path) -> None:
    pd = pytest.importorskip("pandas")
    data = rows(300)
    frame = pd.DataFrame(data.X.numpy(), columns=["a", "b"]).assign(y=data.y.numpy())
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    for model in (LinearRegression(), SGPR(RBF(), inducing=10)):
        size = 50 if isinstance(model, LinearRegression) else None
        how = MAP("adagrad", steps=5, batch_size=size)
        found = fit(model, stream(path, target="y"), how, progress=False)
        assert all(bool(v.isfinite().all()) for v in found.draws.values())


def test_deterministic_steps_have_no_optimizer() -> None:
    with pytest.raises(SettingError, match="leave one of the two out"):
        SVI(method="deterministic", optimizer="adagrad")


def test_default_rates_depend_on_the_optimizer() -> None:
    rate = {name: SVI(optimizer=name)._options().rate for name in ("adam", "adagrad", "natural")}
    assert rate == {"adam": 0.02, "adagrad": 0.5, "natural": 0.02}
    target = Target(Program(lambda: pyro.sample("z", dist.Normal(0.0, 1.0))), {})
    assert MAP("adagrad").rates(target) == {"z": 0.5}
