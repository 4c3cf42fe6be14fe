"""Orders of rows, and the nearest earlier rows, against comparisons of all pairs."""

from __future__ import annotations

import pytest
import torch

from ppgp.errors import SettingError
from ppgp.models.neighbours.nearest_rows import nearest_earlier, nearest_rows, order_of_rows


def rows(n: int, d: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "d", "k"), [(700, 2, 10), (600, 5, 3), (40, 1, 60), (2, 2, 1), (1, 2, 3), (300, 12, 4)]
)
def test_the_nearest_rows_are_those_of_all_pairs(n: int, d: int, k: int) -> None:
    X = rows(n, d)
    found = nearest_earlier(X, k)
    distance = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist")
    for i in range(n):
        expected = distance[i, :i].sort().indices[:k]
        assert found[i, : len(expected)].tolist() == expected.tolist()
        assert (found[i, len(expected) :] == -1).all()


def test_equal_rows_are_neighbours_of_one_another() -> None:
    X = rows(300, 2)[:20].repeat(30, 1)
    found = nearest_earlier(X, 8)
    late = torch.arange(200, 600)
    assert (found[late] < late[:, None]).all()
    assert (found[late] >= 0).all()
    torch.testing.assert_close(X[found[late]], X[late][:, None].expand(-1, 8, -1))


@pytest.mark.parametrize("d", [3, 12])
def test_the_nearest_rows_of_new_places(d: int) -> None:
    X, places = rows(200, d), rows(15, d, seed=1)
    expected = torch.cdist(places, X).sort(dim=1).indices
    assert nearest_rows(X, places, 6).tolist() == expected[:, :6].tolist()
    assert nearest_rows(X, places, 1).tolist() == expected[:, :1].tolist()
    assert nearest_rows(X, places, 900).shape == (15, 200)


def test_orders_are_permutations_by_their_seed() -> None:
    X = rows(100, 2)
    for name in ("random", "maximin"):
        order = order_of_rows(X, name, 3)
        assert sorted(order.tolist()) == list(range(100))
        assert torch.equal(order, order_of_rows(X, name, 3))
        assert not torch.equal(order, order_of_rows(X, name, 4))
    with pytest.raises(SettingError, match="random or maximin"):
        order_of_rows(X, "sorted", 0)


def test_maximin_rows_are_at_least_half_as_far_apart_as_they_can_be() -> None:
    X = torch.cat([rows(400, 2), rows(20, 2)])
    X = X[order_of_rows(X, "maximin", 0)]
    distance = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist")
    for i in range(1, 400):
        from_earlier = distance[i:, :i].amin(1)
        assert from_earlier[0] >= from_earlier.max() / 2
    assert (distance[400:, :400].amin(1) == 0).all()  # equal rows come last
