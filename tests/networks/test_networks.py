"""Networks of deep kernels: the modules that they build, and no side effects of training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from ppgp import Dataset
from ppgp.errors import SettingError, UnknownName
from ppgp.networks import networks
from ppgp.networks.networks import CNN, MLP, RADIUS, Network, module_of, training, width
from ppgp.networks.pretraining import pretrained, regressor


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("network", "d", "q"),
    [(MLP(), 5, 32), (MLP(hidden=(), out=2), 1, 2), (CNN(), 64, 16), (CNN(), 31**2, 16)],
)
def test_features_lie_in_the_ball_of_radius_2(network: Network, d: int, q: int) -> None:
    module = network.build(d).requires_grad_(False).eval()
    F = module(100.0 * rows(50, d))
    assert F.shape == (50, q)
    assert width(network, d) == q
    assert F.dtype == torch.float64
    assert float(F.norm(dim=1).max()) <= RADIUS * (1 + 1e-12)
    near = module(
        rows(50, d)
    )  # for inputs of unit scale, features are neither all alike nor all at the edge
    assert 0.1 < float(torch.pdist(near).median()) < 2 * RADIUS - 0.1


def test_building_twice_gives_the_same_weights_and_uses_no_other_random_numbers() -> None:
    state = torch.get_rng_state()
    one, two, other = MLP(seed=1).build(3), MLP(seed=1).build(3), MLP(seed=2).build(3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one[0].weight, other[0].weight)  # type: ignore[index]


def test_a_cnn_is_equivariant_to_shifts_of_the_image() -> None:
    """Shifting an image by one pooled cell (8 pixels) shifts the features of the last block."""
    convolution = nn.Sequential(*list(CNN().build(32 * 32).eval())[:10])
    image = torch.zeros(1, 32, 32, dtype=torch.float64)
    image[:, 10:14, 9:14] = rows(4, 5)
    moved = torch.roll(image, 8, dims=2)
    before, after = (convolution(x.reshape(1, -1)) for x in (image, moved))
    torch.testing.assert_close(before[..., :-1], after[..., 1:], rtol=1e-12, atol=1e-12)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, X = CNN(channels=(4, 4), out=3, normalise=True, dropout=0.0), rows(10, 64)
    whole = recipe.build(64).eval()
    monkeypatch.setattr(networks, "AT_ONCE", 3 * 4 * 64)
    split = recipe.build(64).eval()
    assert split.rows == 3
    assert list(split.state_dict()) == list(whole.state_dict())
    slopes = []
    for module in (whole, split):
        F = module(X)
        slopes.append(torch.autograd.grad(F.square().sum(), list(module.parameters())))
    torch.testing.assert_close(split(X), whole(X))
    torch.testing.assert_close(slopes[1], slopes[0])
    torch.testing.assert_close(
        split.train()(X), whole.train()(X)
    )  # statistics of the batch, all of it


def test_batch_normalisation_uses_the_batch_in_pretraining_and_running_moments_in_a_kernel() -> (
    None
):
    """In train mode the channels of the first block have mean 0 and variance 1.

    Training changes the running moments, and a kernel does not.
    """
    recipe, X = (
        CNN(channels=(4, 4), out=3, normalise=True),
        2.0 + 3.0 * rows(65, 64),
    )  # 65 rows: a batch of one is left over
    block = recipe.build(64).train()[:3]  # type: ignore[index]
    out = block(X)
    torch.testing.assert_close(
        out.mean((0, 2, 3)), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(
        out.var((0, 2, 3), correction=0), torch.ones(4, dtype=torch.float64), rtol=1e-4, atol=0
    )
    trained = pretrained(recipe, Dataset(X, X[:, 0]), epochs=3, standardise=False)
    _, moments = networks.weights(trained)
    assert float(moments["2.running_mean"].abs().max()) > 0.1
    kept = {name: value.clone() for name, value in moments.items()}
    with training():
        kernel = module_of(trained, 64)
        torch.testing.assert_close(kernel[:3](X)[:5], kernel[:3](X[:5]), rtol=1e-12, atol=1e-12)  # type: ignore[index]
    assert all(
        torch.equal(value, kept[name]) for name, value in networks.weights(trained)[1].items()
    )


def test_a_regressor_is_the_pretrained_network_with_its_head() -> None:
    data, _ = Dataset(rows(60, 2), rows(60, 1)[:, 0]).standardised()
    recipe = MLP(hidden=(8,), out=3)
    both = regressor(recipe, data, epochs=3, seed=2)
    alone = pretrained(recipe, data, epochs=3, seed=2, standardise=False)
    assert torch.equal(both[0](data.X), alone(data.X))
    assert both(data.X).shape == (60, 1)


@pytest.mark.parametrize("own", [False, True])
def test_pretraining_lowers_the_error_of_the_best_linear_head_and_changes_nothing_else(
    own: bool,
) -> None:
    X = rows(100, 2)
    data = Dataset(X, torch.sin(3 * X[:, 0]) * X[:, 1])
    recipe = MLP(hidden=(16,), out=4, dropout=0.0)
    network = recipe.build(2) if own else recipe
    before = [p.clone() for p in network.parameters()] if isinstance(network, nn.Module) else []
    state = torch.get_rng_state()
    one, two = (pretrained(network, data, epochs=200, seed=4, standardise=False) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    if isinstance(network, nn.Module):
        assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))

    def residual(module: nn.Module) -> float:
        with torch.no_grad():
            F = torch.cat([module(X), torch.ones(len(X), 1, dtype=X.dtype)], 1)
            return float(
                (data.y - F @ torch.linalg.lstsq(F, data.y[:, None]).solution[:, 0]).square().mean()
            )

    assert residual(one) < 0.5 * residual(recipe.build(2).eval())
    assert not one.training


def test_bad_options_are_refused() -> None:
    with pytest.raises(UnknownName, match="relu"):
        MLP(activation="rellu")
    for build in (
        lambda: MLP(dropout=1.0),
        lambda: MLP(hidden=(0,)),
        lambda: CNN(channels=()),
        lambda: MLP(out=True),
    ):
        with pytest.raises(SettingError):
            build()
    with pytest.raises(SettingError, match="epochs"):
        pretrained(MLP(), Dataset(rows(5, 2), rows(5, 1)[:, 0]), epochs=0)


def test_each_thread_has_a_module_of_its_own_on_the_same_numbers() -> None:
    """``functional_call`` puts the weights into the module while it runs.

    Two threads that share a module would mix their weights.
    """
    network = MLP((4,), 2, seed=5)
    here = module_of(network, 3)
    with ThreadPoolExecutor(1) as pool:
        there = pool.submit(module_of, network, 3).result()
    assert here is module_of(network, 3)
    assert here is not there
    assert all(a is b for a, b in zip(here.parameters(), there.parameters(), strict=True))
