"""Rows held out of MAP: where the search ends, the data of its posterior, and refusals."""

from __future__ import annotations

import pytest
import torch

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import NotApplicable, SettingError
from ppgp.kernels import RBF, Deep
from ppgp.models import GP, LinearRegression
from ppgp.networks.networks import MLP

F64 = torch.float64
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")


def noise_mostly(n: int, seed: int) -> Dataset:
    """Return a noisy slope and nine irrelevant columns, which a network overfits at once."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 10, generator=generator, dtype=F64)
    return Dataset(X, X[:, 0] + torch.randn(n, generator=generator, dtype=F64))


DEEP = GP(Deep(MLP(hidden=(32,), out=8, dropout=0.0), RBF()))


@quiet
@pytest.mark.parametrize(
    "how",
    [
        inference.MAP(steps=60, hold_out=0.25),
        inference.MAP("adam", steps=100, learning_rate=0.02, hold_out=0.25),
        inference.MAP("sgd", steps=60, batch_size=60, learning_rate=0.02, hold_out=0.25),
    ],
    ids=lambda how: how.optimizer,
)
def test_the_point_is_the_best_evaluated_and_the_posterior_has_all_rows(
    how: inference.MAP,
) -> None:
    data = noise_mostly(80, 0)
    posterior = ppgp.fit(DEEP, data, how, seed=2, progress=False)
    path = posterior.stats["held_out_nlpd"]
    every = 1 if how.optimizer == "lbfgs" else how.steps // 50
    assert posterior.stats["held_out_step"] == every * (int(path.argmin()) + 1)
    assert posterior.data.n == 80
    held = torch.randperm(80, generator=torch.Generator().manual_seed(2))
    rest, out = posterior.data.rows(held[20:]), posterior.data.rows(held[:20])
    predictive = posterior.model.predict(posterior.theta, out.X, rest)
    assert -float(predictive.log_prob(out.y).mean()) == pytest.approx(float(path.min()), rel=1e-9)


@quiet
def test_held_out_rows_improve_the_predictions_of_a_deep_kernel() -> None:
    """New rows are more probable after early stopping, by 4 standard errors."""
    train, test = noise_mostly(100, 0), noise_mostly(500, 1)
    ends = [
        ppgp.fit(DEEP, train, inference.MAP(steps=200, hold_out=share), progress=False)
        .predict(test.X)
        .log_prob(test.y)
        for share in (0.2, None)
    ]
    gain = ends[0] - ends[1]
    assert float(gain.mean()) > 4 * float(gain.std()) / len(gain) ** 0.5


@quiet
def test_lbfgs_on_more_weights_than_rows_warns_and_other_fits_do_not() -> None:
    data = noise_mostly(40, 0)
    notes = ppgp.fit(DEEP, data, inference.MAP(steps=30), progress=False).warnings
    assert any("weights of a network to 40 rows" in note for note in notes)
    for model, how in (
        (DEEP, inference.MAP(hold_out=0.2)),
        (DEEP, inference.MAP("adam", steps=3)),
        (GP(Deep(DEEP.kernel.network, RBF(), frozen=True)), inference.MAP()),  # type: ignore[attr-defined]
    ):
        assert not any(
            "weights of a network" in note
            for note in ppgp.fit(model, data, how, progress=False).warnings
        )


def test_impossible_hold_outs_are_refused() -> None:
    data = noise_mostly(20, 0)
    for build in (
        lambda: inference.MAP("newton", hold_out=0.1),
        lambda: inference.MAP(hold_out=1.5),
    ):
        with pytest.raises(SettingError, match="hold_out"):
            build()
    with pytest.raises(SettingError, match="held out"):
        ppgp.fit(LinearRegression(), data, inference.MAP(hold_out=0.01), progress=False)

    def program(x: torch.Tensor) -> None:
        import pyro
        import pyro.distributions as dist

        pyro.sample("a", dist.Normal(0.0, 1.0))

    with pytest.raises(NotApplicable, match="hold rows out"):
        ppgp.fit(program, {"x": data.y}, inference.MAP(hold_out=0.2), progress=False)
