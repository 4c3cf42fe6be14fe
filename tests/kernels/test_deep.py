"""Deep kernels: the network is reached, the recipe is not; what it is for, and how it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import NumericalError, SettingError, StorageError, UnknownName
from ppgp.kernels import ARD, RBF, Deep, Kernel, Linear, Matern, Scale
from ppgp.kernels.networks import CNN, MLP, drops_out, module_of, training
from ppgp.kernels.pretraining import pretrained
from ppgp.models import GP, SGPR, SVGP, Kriging
from ppgp.numerics.seeding import seeded
from ppgp.priors import LogNormal, Normal, Site
from ppgp.target import Target

SMALL = MLP(hidden=(8,), out=3)
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


def cliff(n: int, seed: int) -> Dataset:
    """A step along a diagonal, and a slope: a stationary kernel must be short everywhere to be steep there."""
    generator = torch.Generator().manual_seed(seed)
    X = 4 * torch.rand(n, 2, generator=generator, dtype=torch.float64) - 2
    noise = 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return Dataset(X, torch.where(X.sum(1) > 0.3, 1.0, -1.0) + 0.2 * X[:, 0] + noise)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


class Identity(nn.Module):
    """No weights: the features are the inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    "inner", [RBF(), ARD(Matern(1.5, lengthscale=LogNormal(0.0, 1.0))), Linear() + RBF()], ids=repr
)
def test_with_the_identity_for_a_network_it_is_the_kernel(inner: Kernel) -> None:
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


def test_the_gradient_reaches_the_network_and_is_right() -> None:
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


def test_later_training_of_ones_own_module_does_not_change_the_kernel() -> None:
    mine = SMALL.build(2)
    deep, X = Deep(mine, RBF()), cliff(5, 0).X
    before = deep.features({}, X)
    with torch.no_grad():
        mine[0].weight.mul_(2.0)
    assert torch.equal(deep.features({}, X), before)


def test_what_a_deep_kernel_sees_is_its_features() -> None:
    data = cliff(9, 0)
    deep, X, Z = Deep(SMALL, ARD(RBF())), data.X[:6], data.X[6:]
    theta = {
        "variance": torch.tensor(0.7, dtype=torch.float64),
        "lengthscale": torch.full((3,), 0.8, dtype=torch.float64),
    }
    inner, hyper, (A, B) = deep.to_feature_space(theta, X, Z)
    torch.testing.assert_close(inner(hyper, A, B), deep(theta, X, Z), rtol=1e-12, atol=1e-12)
    plain, same, tables = RBF().seen(theta, X, Z)
    assert (plain, same) == (RBF(), theta)
    assert all(torch.equal(a, b) for a, b in zip(tables, (X, Z), strict=True))


def test_units_drop_out_inside_training_alone() -> None:
    X, deep = cliff(9, 0).X, Deep(MLP(dropout=0.5), RBF())
    eval_mode = deep.features({}, X)
    with seeded(0), training():
        assert not torch.equal(deep.features({}, X), eval_mode)
    assert torch.equal(deep.features({}, X), eval_mode)
    assert drops_out(GP(Scale(deep)))
    assert not drops_out(GP(Deep(MLP(dropout=0.0), RBF())))
    assert drops_out(GP(Deep(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), RBF())))


def test_it_beats_the_plain_kernel_where_one_lengthscale_cannot_serve() -> None:
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


def test_a_learning_rate_may_be_given_to_all_under_a_name() -> None:
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
    law = model.predict(posterior.theta, data.X[:4], posterior.data)
    for i in (0, 13):  # draw by draw it is the prediction of that draw alone
        alone = model.predict(
            {k: v[i : i + 1] for k, v in posterior.theta.items()}, data.X[:4], posterior.data
        )
        torch.testing.assert_close(law.mean[i], alone.mean[0], rtol=1e-9, atol=1e-9)
    start = Target(model, data).constrain(Target(model, data).origin())["kernel.network.0.weight"]
    torch.testing.assert_close(start, model.kernel.network.build(2)[0].weight.detach())  # type: ignore[attr-defined]


@quiet
def test_buffers_are_params_that_nothing_moves() -> None:
    data = cliff(20, 0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh())
    net[1].running_mean.add_(0.3)  # type: ignore[union-attr,operator]
    posterior = ppgp.fit(GP(Deep(net, RBF())), data, inference.MAP("adam", steps=5), progress=False)
    torch.testing.assert_close(
        posterior.params["kernel.network.1.running_mean"],
        torch.full((4,), 0.3, dtype=torch.float64),
    )
    assert "kernel.network.1.num_batches_tracked" not in posterior.params


def test_a_frozen_network_is_no_part_of_the_search_and_stays_in_the_file(tmp_path: Path) -> None:
    """The fit is that of the kernel on the features."""
    data = cliff(30, 0)
    net = pretrained(SMALL, data, epochs=5)
    recipe = GP(Deep(net, ARD(RBF()), frozen=True))
    target = Target(recipe, data, optimise_params=True)
    assert not any("network" in name for name in target.slices)
    assert not drops_out(recipe)
    ours = ppgp.fit(recipe, data, inference.MAP(), progress=False, standardise=False)
    features = Dataset(net(data.X), data.y)
    alone = GP(ARD(RBF(lengthscale=LogNormal(0.0, 1.0))))  # of features the median does not grow
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


def test_a_pretrained_network_starts_higher() -> None:
    data, _ = cliff(80, 0).standardised()
    start = [
        float(target.value_and_grad(target.start())[0])
        for network in (SMALL, pretrained(SMALL, data, epochs=40))
        for target in [Target(GP(Deep(network, RBF())), data, optimise_params=True)]
    ]
    assert start[1] > start[0]


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_network_that_starts_collapsed_is_refused(value: float) -> None:
    net = nn.Linear(2, 2)
    nn.init.zeros_(net.weight)
    nn.init.constant_(net.bias, value)
    with pytest.raises(NumericalError, match="same features in all rows"):
        ppgp.fit(GP(Deep(net, RBF())), cliff(10, 0), inference.MAP(), progress=False)


def test_a_network_that_starts_with_nan_is_refused() -> None:
    net = nn.Linear(2, 2)
    nn.init.constant_(net.bias, float("nan"))
    with pytest.raises(NumericalError, match="not finite"):
        ppgp.fit(GP(Deep(net, RBF())), cliff(10, 0), inference.MAP(), progress=False)


def test_a_fit_that_ends_collapsed_says_so() -> None:
    model, data = GP(Deep(SMALL, RBF()) + Linear()), cliff(10, 0)
    theta = {
        f"kernel.0.network.{name}": torch.zeros_like(p)
        for name, p in module_of(SMALL, 2).named_parameters()
    }
    assert any("same features in all rows" in sentence for sentence in model.check_fit(theta, data))
    assert model.check_fit({}, data) == []
    theta["kernel.0.network.0.bias"] = torch.full((8,), float("nan"), dtype=torch.float64)
    assert any("not finite" in sentence for sentence in model.check_fit(theta, data))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SettingError, match="a network and a kernel"):
        Deep(RBF(), RBF())
    with pytest.raises(SettingError, match="rows of 2 columns"):
        Deep(nn.Linear(3, 2), RBF()).sites(2)
    with pytest.raises(SettingError, match=r"\[n, d\] to features"):
        Deep(nn.Flatten(0), RBF()).sites(2)
    with pytest.raises(SettingError, match="one network"):
        Deep(MLP(), Deep(MLP(), RBF())).sites(2)
    with pytest.raises(SettingError, match="square images"):
        Deep(CNN(), RBF()).sites(65)


def test_float32_data_make_a_float32_fit() -> None:
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


@pytest.mark.parametrize("build", [GP, SGPR, SVGP, Kriging])
def test_every_model_minds_its_network(build: Any) -> None:
    data = cliff(30, 0)
    with pytest.raises(NumericalError, match="before the fit"):
        build(Deep(Broken(), RBF())).prepare(data)
    site = "variogram" if build is Kriging else "kernel"
    bayesian = build(Deep(SMALL, RBF(), prior=Normal(0.0, 1.0)))
    assert (
        float(bayesian.start(data)[f"{site}.network.0.weight"].abs().max()) > 0
    )  # 0, the middle of the prior, is a saddle
    weights = {
        f"{site}.network.{name}": torch.zeros_like(w)
        for name, w in module_of(SMALL, 2).named_parameters()
    }
    assert any(
        "same features" in sentence
        for sentence in build(Deep(SMALL, RBF())).check_fit(weights, data)
    )


class Broken(nn.Module):
    """Features that are no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * float("nan")


@pytest.mark.parametrize("prior", [None, Normal(0.0, 1.0)], ids=["params", "sites"])
def test_kriging_goes_over_draws_and_not_over_weights(prior: Any) -> None:
    """Three draws of the range; the weights have a draw axis only where they are drawn."""
    data, model = (
        cliff(20, 0),
        Kriging(Deep(SMALL, RBF(1.0)), nugget=0.1, drift="none", neighbours=19),
    )
    generator, shapes = (
        torch.Generator().manual_seed(0),
        {k: s.shape for k, s in model.sites(2).items() if s.shape},
    )
    weights = {
        k: torch.randn(shape, generator=generator, dtype=torch.float64)
        for k, shape in shapes.items()
    }
    if prior is not None:
        model = Kriging(Deep(SMALL, RBF(1.0), prior=prior), nugget=0.1, drift="none", neighbours=19)
    lengths = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    theta = {
        **{k: w if prior is None else w.expand(3, *w.shape) for k, w in weights.items()},
        "variogram.lengthscale": lengths,
    }
    own = {k.replace("variogram", "kernel"): v for k, v in theta.items()}
    gp = GP(Deep(SMALL, RBF(1.0), prior=prior), noise=0.1)
    new = cliff(4, 1).X
    near = torch.cdist(new, data.X).argsort(1)[:, :19]
    alone = [
        gp.predict(own, x[None], data.rows(rows)).mean for x, rows in zip(new, near, strict=True)
    ]
    torch.testing.assert_close(model.predict(theta, new, data).mean, torch.cat(alone, 1))
    everywhere = Kriging(model.variogram, nugget=0.1, drift="none")
    torch.testing.assert_close(
        everywhere.predict(theta, new, data).mean, gp.predict(own, new, data).mean
    )
    torch.testing.assert_close(
        everywhere.gaussian(theta, new, data)[0], gp.gaussian(own, new, data)[0]
    )


class Counted(nn.Module):
    """Squares the columns, and keeps how many rows it was asked about in ``asked``."""

    def __init__(self, asked: list[int]) -> None:
        super().__init__()
        self.asked = asked

    def forward(self, X: Tensor) -> Tensor:
        self.asked.append(len(X))
        return X.square()

    def __deepcopy__(self, memo: object) -> Counted:
        return Counted(self.asked)


@pytest.mark.parametrize("selection", ["kmeans", "bound", "conditional_variance"])
def test_inducing_inputs_are_placed_by_one_look_through_the_network(selection: str) -> None:
    data, asked = cliff(60, 0), list[int]()
    model = SGPR(Deep(Counted(asked), ARD(RBF())), 10, selection=selection).prepare(data)
    theta = {
        name: torch.ones(s.shape, dtype=torch.float64)
        for name, s in model.sites(data.d).items()
        if isinstance(s, Site)
    }
    asked.clear()
    Z = model.reselected(theta, data).Z
    assert asked == [data.n]
    assert Z is not None
    assert all(bool((row == data.X).all(1).any()) for row in Z)


@pytest.mark.parametrize("selection", ["conditional_variance", "bound"])
@pytest.mark.parametrize(
    "kernel", [ARD(RBF()), Deep(Identity(), ARD(RBF()))], ids=["plain", "deep"]
)
def test_greedy_selection_in_single_precision_takes_the_rows_that_double_takes(
    kernel: Kernel, selection: str
) -> None:
    x = torch.linspace(-1, 1, 200, dtype=torch.float32)[:, None]
    found = []
    for dtype in (torch.float32, torch.float64):
        data = Dataset(x.to(dtype), x[:, 0].sin().to(dtype))
        theta = {"kernel.variance": 1.0, "kernel.lengthscale": [0.5], "noise": 0.01}
        model = SGPR(kernel, 10, selection=selection).prepare(data)
        found.append(
            model.reselected(
                {name: torch.tensor(value, dtype=dtype) for name, value in theta.items()}, data
            ).Z
        )
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0].double(), found[1], rtol=0, atol=0)


@quiet
def test_a_network_that_starts_dead_or_saturated_is_refused_with_a_way_out() -> None:
    """Rectified units without biases are dead on one side of 0; the ways out that the sentence names work."""
    years = 2000.0 + torch.linspace(0.0, 20.0, 30, dtype=torch.float64)[:, None]
    data = Dataset(years, (years[:, 0] / 3).sin())
    recipe = GP(Deep(MLP((16,), 4), RBF()))
    with pytest.raises(NumericalError, match=r"mean of .*standardise"):
        recipe.prepare(data)
    assert type(recipe.prepare(data.standardised()[0])) is GP
    for model in (
        recipe,
        SGPR(recipe.kernel, 5),
    ):  # and fit, which standardises, does not ask it of X as it is
        assert ppgp.fit(model, data, inference.MAP(steps=1), progress=False).stats["steps"] >= 0
    positive = Dataset(years - 1999.0, data.y)
    seeds = [
        seed for seed in range(8) if Deep(MLP((1,), 4, seed=seed), RBF()).check_fit({}, positive.X)
    ]
    assert 0 < len(seeds) < 8
    with pytest.raises(NumericalError, match="another seed"):
        GP(Deep(MLP((1,), 4, seed=seeds[0]), RBF())).prepare(positive)
