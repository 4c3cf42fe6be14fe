"""MAP("kfac"): its steps beside dense matrices, and its searches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ppgp
from ppgp import Dataset
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference import MAP
from ppgp.inference.optimise import kfac
from ppgp.inference.optimise.curvature_of_rows import CurvatureOfRows
from ppgp.likelihoods import Categorical, Gaussian
from ppgp.models import GP, LogisticRegression, NeuralRegression
from ppgp.networks import CNN, MLP
from ppgp.priors import Flat, HalfNormal, Normal

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
PRIOR = Normal(0.0, 1.0)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 2, generator=GENERATOR, dtype=F64)
Y = torch.sin(2 * X[:, 0]) + 0.3 * torch.randn(40, generator=GENERATOR, dtype=F64)
CLASSES = (Y > 0).to(F64) + (Y > 0.6).to(F64)
IMAGES = torch.randn(40, 16, generator=GENERATOR, dtype=F64)
TANH = MLP((3,), dropout=0.0, activation="tanh")


def target_of(model: Any, y: Tensor = Y, x: Tensor = X) -> Target:
    data = Dataset(x, y)
    return Target(model.prepare(data), data, True, compile=False)


def moved(target: Target, steps: int = 1, **options: Any) -> tuple[Tensor, Tensor]:
    """Return the start z [p] and the end of a search."""
    posterior = MAP("kfac", steps=steps, starts=1, **options)(target)
    return target.start(0, jacobian=False), target.unconstrain(posterior.draws)[0, 0]


def test_the_step_is_by_the_inverse_of_the_damped_product() -> None:
    """Martens & Grosse (2015), equation 27: the damping of the factors is balanced."""
    A, G = (x @ x.mT for x in torch.randn(2, 3, 5, generator=GENERATOR, dtype=F64))
    A, G = A, G[:2, :2]
    damped = kfac._Damped()
    damped.add((A, G), 0.09)
    slope = torch.randn(2, 3, generator=GENERATOR, dtype=F64)
    ratio = float(torch.sqrt((torch.trace(A) / 3) / (torch.trace(G) / 2)))
    left = A + 0.3 * ratio * torch.eye(3, dtype=F64)
    right = G + 0.3 / ratio * torch.eye(2, dtype=F64)
    expected = torch.linalg.solve(torch.kron(right, left), slope.flatten())
    torch.testing.assert_close(damped.solve(slope).flatten(), expected)
    damped.add((3 * A, 3 * G), 0.09)  # the mean of two is 2 A
    assert damped.means is not None
    torch.testing.assert_close(damped.means[0], 2 * A)
    for _ in range(200):
        damped.add((A, G), 0.09)
    torch.testing.assert_close(damped.means[0], A, rtol=1e-3, atol=0.0)


def test_one_step_solves_linear_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without damping it is Newton's step, as the product is the whole matrix."""
    monkeypatch.setattr(kfac, "DAMPING", 1e-14)
    monkeypatch.setattr(kfac, "LARGEST_MOVE", math.inf)
    target = target_of(NeuralRegression(MLP(()), Gaussian(noise=0.2), Flat()))
    _, z = moved(target, learning_rate=1.0)
    Phi = torch.cat([X, torch.ones(40, 1, dtype=F64)], 1)
    expected = torch.linalg.lstsq(Phi, Y[:, None]).solution[:, 0]
    found = torch.cat(
        [target.slices[f"network.0.{name}"].of(z).flatten() for name in ("weight", "bias")]
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_a_step_moves_the_distribution_no_further_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half step' F step per row, in a network of one layer and one output: F is the product."""
    target = target_of(NeuralRegression(MLP(()), Gaussian(noise=0.01), Flat()), 100 * Y)
    monkeypatch.setattr(kfac, "DAMPING", 1e-14)
    z0, z = moved(target, learning_rate=1.0)
    F = CurvatureOfRows(target, False).matrix(z0)
    assert float(0.5 * (z - z0) @ F @ (z - z0)) / 40 == pytest.approx(kfac.LARGEST_MOVE, rel=1e-6)


def test_other_sites_move_by_adam() -> None:
    target = target_of(NeuralRegression(TANH, Gaussian(), PRIOR))
    z0, z = moved(target)
    noise = target.slices["noise"].start
    assert float((z - z0)[noise].abs()) == pytest.approx(kfac.RATE_OF_OTHERS, rel=1e-4)
    _, z = moved(target, learning_rate={"network": 0.01, "": 0.2})
    assert float((z - z0)[noise].abs()) == pytest.approx(0.2, rel=1e-4)
    normed = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1)).double()
    target = target_of(NeuralRegression(normed, Gaussian(noise=0.1), PRIOR))
    z0, z = moved(target)
    scale = target.slices["network.1.weight"]
    step = (z - z0)[scale.start : scale.stop].abs()
    torch.testing.assert_close(step, torch.full_like(step, kfac.RATE_OF_OTHERS), rtol=1e-3, atol=0)


@quiet
@pytest.mark.parametrize(
    ("network", "options"),
    [
        (TANH, {}),
        (TANH, {"batch_size": 16, "schedule": "cosine"}),
        (MLP((5, 4), dropout=0.2), {"batch_size": 16}),
        (CNN((2,), dropout=0.0), {"batch_size": 16}),
    ],
    ids=["all rows", "mini-batches", "dropout", "CNN"],
)
def test_the_density_rises_and_the_seed_decides(network: Any, options: dict[str, Any]) -> None:
    x = IMAGES if isinstance(network, CNN) else X
    target = target_of(NeuralRegression(network, Categorical(), PRIOR), CLASSES, x)
    how = MAP("kfac", steps=15, starts=1, **options)
    start = float(target.log_density(target.start(0, jacobian=False), jacobian=False))
    one, again = how(target, seed=3), how(target, seed=3)
    assert one.stats["log_density"] > start
    assert one.stats["log_density"] == again.stats["log_density"]
    assert len(one.stats["losses"]) == 15


@quiet
def test_rows_can_be_held_out() -> None:
    how = MAP("kfac", steps=10, hold_out=0.25, batch_size=10)
    posterior = ppgp.fit(NeuralRegression(TANH, Gaussian()), Dataset(X, Y), how, progress=False)
    assert len(posterior.stats["held_out_nlpd"])


def test_what_is_no_such_network_is_refused() -> None:
    labels = (Y > 0).to(F64)
    cases: list[tuple[str, Any, Tensor]] = [
        ("a model that is a network, got GP", GP(), Y),
        ("a model that is a network, got Logis", LogisticRegression(PRIOR, PRIOR), labels),
        ("Linear or Conv2d", NeuralRegression(TANH, Gaussian(noise=0.1), HalfNormal(1.0)), Y),
    ]
    for sentence, model, y in cases:
        with pytest.raises(NotApplicable, match=sentence):
            MAP("kfac", steps=1)(target_of(model, y))
