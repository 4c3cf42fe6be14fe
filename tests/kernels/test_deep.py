"""Deep kernels: gradients, params, dropout and storage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from deep_examples import SMALL, Identity, cliff, quiet
from torch import Tensor, nn

import ppgp
from ppgp import Dataset, inference
from ppgp.density import Target
from ppgp.errors import SettingError, StorageError, UnknownName
from ppgp.kernels import ARD, RBF, Deep, Kernel, Linear, Matern, Scale
from ppgp.models import GP
from ppgp.networks.networks import MLP, drops_out, training
from ppgp.networks.pretraining import pretrained
from ppgp.priors import LogNormal, Normal
from ppgp.runtime.seeding import seeded


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize(
    "inner", [RBF(), ARD(Matern(1.5, lengthscale=LogNormal(0.0, 1.0))), Linear() + RBF()], ids=repr
)
def test_with_the_identity_as_network_it_is_the_inner_kernel(inner: Kernel) -> None:
    data = cliff(12, 0)
    deep = Deep(Identity(), inner)
    assert list(deep.sites(2)) == list(inner.sites(2))
    theta = {
        name: torch.full(s.shape, 0.8, dtype=torch.float64) for name, s in inner.sites(2).items()
    }
    X, Z = data.X[:7], data.X[7:]
    for call in (lambda k: k(theta, X), lambda k: k(theta, X, Z), lambda k: k.diag(theta, X)):
        torch.testing.assert_close(call(deep), call(inner), rtol=0, atol=0)
    fits = [ppgp.fit(GP(k), data, inference.MAP(), progress=False) for k in (deep, inner)]
    torch.testing.assert_close(
        fits[0].predict(Z).mean, fits[1].predict(Z).mean, rtol=1e-9, atol=1e-9
    )


def test_features_are_those_of_the_module() -> None:
    X = cliff(9, 0).X
    torch.testing.assert_close(
        Deep(SMALL, RBF()).features({}, X), SMALL.build(2).eval()(X), rtol=0, atol=0
    )


def test_the_gradient_reaches_the_network_and_is_correct() -> None:
    target = Target(
        GP(Deep(MLP(hidden=(4,), out=2, activation="tanh"), RBF())),
        cliff(10, 0),
        optimise_params=True,
    )
    names = [name for name in target.slices if name.startswith("kernel.network.")]
    assert names == [
        f"kernel.network.{layer}.{part}" for layer in (0, 3) for part in ("weight", "bias")
    ]
    z = target.start()
    _, gradient = target.value_and_grad(z)
    for name in names:
        s = target.slices[name]
        i = s.start
        assert bool((gradient[s.start : s.stop] != 0).any())
        step = torch.zeros_like(z)
        step[i] = 1e-5
        slope = (target.log_density(z + step) - target.log_density(z - step)) / 2e-5
        assert float(gradient[i]) == pytest.approx(float(slope), rel=1e-5, abs=1e-6)


@quiet
@pytest.mark.parametrize(
    "how",
    [
        inference.MAP(steps=10),
        inference.MAP(optimizer="adam", steps=10),
        inference.MAP(optimizer="gd", steps=5),
        inference.SVI(steps=10, draws=20),
        inference.SVI(guide="normal", steps=10, draws=20),
    ],
    ids=repr,
)
def test_two_fits_with_one_seed_are_identical_and_the_recipe_is_never_trained(
    how: inference.Inference,
) -> None:
    data = cliff(20, 0)
    mine = SMALL.build(2).requires_grad_(True)
    before = state_of(mine)
    recipe = GP(Deep(mine, RBF()))
    one, two = (ppgp.fit(recipe, data, how, seed=3, progress=False) for _ in range(2))
    assert all(torch.equal(one.theta[name], two.theta[name]) for name in one.theta)
    moved = [
        name
        for name, p in one.params.items()
        if not torch.equal(p, before[name.removeprefix("kernel.network.")])
    ]
    assert moved
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())
    assert mine.training
    assert torch.equal(one.predict(data.X).mean, one.predict(data.X).mean)  # no unit is dropped out


def test_later_training_of_a_users_module_does_not_change_the_kernel() -> None:
    mine = SMALL.build(2)
    deep, X = Deep(mine, RBF()), cliff(5, 0).X
    before = deep.features({}, X)
    with torch.no_grad():
        mine[0].weight.mul_(2.0)
    assert torch.equal(deep.features({}, X), before)


def test_feature_space_of_a_deep_kernel() -> None:
    data = cliff(9, 0)
    deep, X, Z = Deep(SMALL, ARD(RBF())), data.X[:6], data.X[6:]
    theta = {
        "variance": torch.tensor(0.7, dtype=torch.float64),
        "lengthscale": torch.full((3,), 0.8, dtype=torch.float64),
    }
    inner, hyper, (A, B) = deep.to_feature_space(theta, X, Z)
    torch.testing.assert_close(inner(hyper, A, B), deep(theta, X, Z), rtol=1e-12, atol=1e-12)
    plain, same, tables = RBF().to_feature_space(theta, X, Z)
    assert (plain, same) == (RBF(), theta)
    assert all(torch.equal(a, b) for a, b in zip(tables, (X, Z), strict=True))


def test_dropout_acts_inside_training_only() -> None:
    X, deep = cliff(9, 0).X, Deep(MLP(dropout=0.5), RBF())
    eval_mode = deep.features({}, X)
    with seeded(0), training():
        assert not torch.equal(deep.features({}, X), eval_mode)
    assert torch.equal(deep.features({}, X), eval_mode)
    assert drops_out(GP(Scale(deep)))
    assert not drops_out(GP(Deep(MLP(dropout=0.0), RBF())))
    assert drops_out(GP(Deep(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), RBF())))


def test_it_beats_the_plain_kernel_on_a_step() -> None:
    train, test = cliff(120, 0), cliff(400, 1)
    network = MLP(hidden=(16, 16), out=4)
    rates = {"kernel.network": 0.01, "": 0.05}
    deep = ppgp.fit(
        GP(Deep(network, RBF())),
        train,
        inference.MAP("adam", steps=400, learning_rate=rates),
        progress=False,
    )
    plain = ppgp.fit(GP(RBF()), train, inference.MAP(), progress=False)
    gain = deep.predict(test.X).log_prob(test.y) - plain.predict(test.X).log_prob(test.y)
    # paired over the test rows: 4 standard errors above 0
    assert float(gain.mean()) > 4 * float(gain.std()) / len(gain) ** 0.5


def test_a_learning_rate_may_be_given_per_prefix_of_names() -> None:
    target = Target(GP(Deep(SMALL, RBF())), cliff(10, 0), optimise_params=True)
    rates = inference.MAP(
        "adam", learning_rate={"kernel.network": 0.01, "kernel.network.0.bias": 0.2, "": 0.5}
    ).rates(target)
    assert rates["kernel.network.0.weight"] == 0.01
    assert rates["kernel.network.0.bias"] == 0.2
    assert rates["noise"] == 0.5
    with pytest.raises(UnknownName, match=r"kernel\.net"):
        inference.MAP("adam", learning_rate={"kernel.net": 0.1, "": 0.5}).rates(target)


@quiet
def test_with_a_prior_the_weights_are_sites() -> None:
    data = cliff(12, 0)
    model = GP(Deep(MLP(hidden=(3,), out=2, activation="tanh"), RBF(), prior=Normal(0.0, 1.0)))
    posterior = ppgp.fit(model, data, inference.SVI(steps=20, draws=20), progress=False)
    assert posterior.draws["kernel.network.0.weight"].shape == (1, 20, 3, 2)
    assert not posterior.params
    distribution = model.predict(posterior.theta, data.X[:4], posterior.data)
    for i in (0, 13):  # each draw gives the prediction of that draw alone
        alone = model.predict(
            {k: v[i : i + 1] for k, v in posterior.theta.items()}, data.X[:4], posterior.data
        )
        torch.testing.assert_close(distribution.mean[i], alone.mean[0], rtol=1e-9, atol=1e-9)
    start = Target(model, data).constrain(Target(model, data).origin())["kernel.network.0.weight"]
    torch.testing.assert_close(start, model.kernel.network.build(2)[0].weight.detach())  # type: ignore[attr-defined]


@quiet
def test_buffers_are_params_that_stay_constant() -> None:
    data = cliff(20, 0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh())
    net[1].running_mean.add_(0.3)  # type: ignore[union-attr,operator]
    posterior = ppgp.fit(GP(Deep(net, RBF())), data, inference.MAP("adam", steps=5), progress=False)
    torch.testing.assert_close(
        posterior.params["kernel.network.1.running_mean"],
        torch.full((4,), 0.3, dtype=torch.float64),
    )
    assert "kernel.network.1.num_batches_tracked" not in posterior.params


def test_a_frozen_network_is_not_optimised_and_is_saved(tmp_path: Path) -> None:
    """The fit is that of the kernel on the features."""
    data = cliff(30, 0)
    net = pretrained(SMALL, data, epochs=5)
    recipe = GP(Deep(net, ARD(RBF()), frozen=True))
    target = Target(recipe, data, optimise_params=True)
    assert not any("network" in name for name in target.slices)
    assert not drops_out(recipe)
    ours = ppgp.fit(recipe, data, inference.MAP(), progress=False, standardise=False)
    features = Dataset(net(data.X), data.y)
    alone = GP(ARD(RBF(lengthscale=LogNormal(0.0, 1.0))))  # the median does not grow with features
    theirs = ppgp.fit(alone, features, inference.MAP(), progress=False, standardise=False)
    torch.testing.assert_close(
        ours.predict(data.X).mean, theirs.predict(features.X).mean, rtol=1e-6, atol=1e-6
    )
    assert all(
        torch.equal(ours.params[f"kernel.network.{name}"], p) for name, p in net.named_parameters()
    )
    again = ppgp.load_posterior(ours.save(tmp_path / "ours"), model=recipe)
    torch.testing.assert_close(
        again.predict(data.X).mean, ours.predict(data.X).mean, rtol=0, atol=0
    )
    with pytest.raises(SettingError, match="frozen"):
        Deep(net, RBF(), prior=Normal(0.0, 1.0), frozen=True)


@quiet
def test_save_and_load(tmp_path: Path) -> None:
    data = cliff(20, 0)
    how = inference.MAP(steps=5)
    ours = ppgp.fit(GP(Deep(SMALL, RBF())), data, how, progress=False)
    again = ppgp.load_posterior(ours.save(tmp_path / "ours"))
    assert again.model == ours.model
    torch.testing.assert_close(
        again.predict(data.X).mean, ours.predict(data.X).mean, rtol=0, atol=0
    )

    recipe = GP(Scale(Deep(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), RBF(variance=1.0))))
    theirs = ppgp.fit(recipe, data, how, progress=False)
    path = theirs.save(tmp_path / "theirs")
    with pytest.raises(StorageError, match="Sequential"):
        ppgp.load_posterior(path)
    again = ppgp.load_posterior(path, model=recipe)
    torch.testing.assert_close(
        again.predict(data.X).mean, theirs.predict(data.X).mean, rtol=0, atol=0
    )
    for other in (nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Sequential(nn.Tanh())):
        with pytest.raises(StorageError, match="pass the recipe"):
            ppgp.load_posterior(path, model=other)


def test_a_pretrained_network_starts_at_a_higher_density() -> None:
    data, _ = cliff(80, 0).standardised()
    start = [
        float(target.value_and_grad(target.start())[0])
        for network in (SMALL, pretrained(SMALL, data, epochs=40))
        for target in [Target(GP(Deep(network, RBF())), data, optimise_params=True)]
    ]
    assert start[1] > start[0]


def test_float32_data_give_a_float32_fit() -> None:
    data = cliff(15, 0)
    single = Dataset(data.X.float(), data.y.float())
    posterior = ppgp.fit(
        GP(Deep(SMALL, RBF(lengthscale=LogNormal(0.0, 0.5)))),
        single,
        inference.MAP("adam", steps=3),
        progress=False,
    )
    assert {v.dtype for v in posterior.theta.values()} == {torch.float32}
    assert posterior.predict(single.X).mean.dtype == torch.float32
