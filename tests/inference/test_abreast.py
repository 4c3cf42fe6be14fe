"""Members trained abreast equal members trained in turn, and adversarial steps their formula."""

from __future__ import annotations

import itertools

import pyro
import pyro.distributions as dist
import pytest
import torch

from ppgp import Dataset, fit
from ppgp.density import Target
from ppgp.errors import NotApplicable, SettingError
from ppgp.inference import MAP, Ensemble, ensemble
from ppgp.inference.optimise.map import reach_of
from ppgp.kernels import RBF
from ppgp.likelihoods import Gaussian
from ppgp.models import GP, LinearRegression, NeuralRegression
from ppgp.networks import MLP

F64 = torch.float64
NETWORK = MLP((6,), dropout=0.0, seed=1)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def rows(n: int = 40) -> Dataset:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(n, 2, generator=g, dtype=F64)
    return Dataset(X, torch.sin(2 * X[:, 0]) + 0.1 * torch.randn(n, generator=g, dtype=F64))


CASES = {
    "batches": (NeuralRegression(NETWORK), MAP("adam", steps=40, batch_size=16)),
    "all rows": (NeuralRegression(NETWORK, Gaussian()), MAP("adam", steps=40)),
    "adversarial": (
        NeuralRegression(NETWORK),
        MAP("adam", steps=40, batch_size=16, adversarial=0.01, schedule="cosine"),
    ),
    "rates": (
        NeuralRegression(NETWORK, Gaussian()),
        MAP("adam", steps=40, learning_rate={"network": 0.01, "noise": 0.1}),
    ),
    "linear": (LinearRegression(), MAP("adam", steps=40, batch_size=16)),
    "gp": (GP(RBF()), MAP("adam", steps=10)),
}


@quiet
@pytest.mark.parametrize(("model", "how"), CASES.values(), ids=CASES)
def test_members_abreast_equal_members_in_turn(model, how, monkeypatch) -> None:
    abreast = fit(model, rows(), Ensemble(how, members=3), seed=4, progress=False)
    monkeypatch.setattr(MAP, "goes_abreast", lambda self, target: False)
    in_turn = fit(model, rows(), Ensemble(how, members=3), seed=4, progress=False)
    for name, value in in_turn.draws.items():
        torch.testing.assert_close(abreast.draws[name], value, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(
        abreast.stats["log_density"], in_turn.stats["log_density"], rtol=1e-8, atol=1e-8
    )
    assert abreast.stats["seconds"].shape == (3,)


@quiet
def test_dropout_goes_in_turn() -> None:
    model = NeuralRegression(MLP((6,), dropout=0.3))
    data = rows()
    assert not MAP("adam").goes_abreast(Target(model.prepare(data), data))
    how = Ensemble(MAP("adam", steps=3, adversarial=0.01), members=2)
    assert fit(model, data, how, progress=False).draws["network.0.bias"].shape == (1, 2, 6)


@quiet
def test_a_member_that_diverges_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = rows(), NeuralRegression(NETWORK)
    own = ensemble._start

    def far(target: Target, seed: int):
        z = own(target, seed)
        return 1e300 * z if seed == 1 else z

    monkeypatch.setattr(ensemble, "_start", far)
    posterior = fit(model, data, Ensemble(MAP("adam", steps=10), members=3), progress=False)
    assert any("not finite at step 1" in sentence for sentence in posterior.warnings)
    assert bool(torch.isfinite(posterior.draws["network.0.weight"][0, [0, 2]]).all())


@quiet
def test_ctrl_c_keeps_all_members_at_the_point_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls = rows(), itertools.count()
    of_rows = Target.value_and_grad_of_rows

    def interrupted(*args, **options):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return of_rows(*args, **options)

    monkeypatch.setattr(Target, "value_and_grad_of_rows", interrupted)
    how = Ensemble(MAP("adam", steps=10), members=3)
    posterior = fit(NeuralRegression(NETWORK), data, how, progress=False)
    assert posterior.stats["interrupted"]
    assert posterior.draws["network.0.bias"].shape == (1, 3, 6)
    assert any("after 5 of 10 steps" in sentence for sentence in posterior.warnings)


def test_the_adversarial_loss_is_its_formula() -> None:
    """Linear regression: the slope of the log density by x is weight * residual / noise."""
    data = rows(10)
    target = Target(LinearRegression(), data)
    z = torch.tensor([0.5, -0.3, 0.2, -1.0], dtype=F64)
    theta = target.constrain(z)
    reach = reach_of(target, 0.01)
    spread = data.X.max(0).values - data.X.min(0).values
    torch.testing.assert_close(reach, 0.01 * spread)
    residual = data.y - data.X @ theta["weight"] - theta["bias"]
    slope = residual[:, None] * theta["weight"] / theta["noise"]
    moved = Dataset(data.X - reach * slope.sign(), data.y)
    here, there = target.value_and_grad(z), Target(LinearRegression(), moved).value_and_grad(z)
    assert float(there[0]) < float(here[0])
    found = target.value_and_grad_of_rows(z, None, reach=reach)
    torch.testing.assert_close(found, (here[0] + there[0], here[1] + there[1]))
    half = torch.tensor([3, 1, 4])
    plain = target.value_and_grad_of_rows(z, half)
    torch.testing.assert_close(plain, target.value_and_grad(z, half))


def program() -> None:
    pyro.sample("z", dist.Normal(0.0, 1.0))


def test_what_has_no_adversarial_rows_is_refused() -> None:
    data = rows()
    with pytest.raises(NotApplicable, match=r"independent rows .* got a GP: leave adversarial"):
        fit(GP(RBF()), data, MAP("adam", adversarial=0.01), progress=False)
    with pytest.raises(NotApplicable, match=r"smooth in X, .* got a program"):
        fit(program, {}, MAP("adam", adversarial=0.01), progress=False)
    with pytest.raises(SettingError, match="use optimizer='sgd' or 'adam'"):
        MAP(adversarial=0.01)
    with pytest.raises(SettingError, match="between 0 and 1"):
        MAP("adam", adversarial=2.0)
