"""The default prior of lengthscales under ARD: its median is sqrt(d), which fits no worse."""

from __future__ import annotations

import pytest
import torch

import ppgp
from ppgp import inference, kernels, metrics, models, priors
from ppgp.kernels import ARD, RBF, Deep, Matern, Scale, Subspace
from ppgp.networks.networks import MLP
from ppgp.priors import LogNormal, Site

LIKE = torch.zeros(1, dtype=torch.float64)


def median(kernel: kernels.Kernel, d: int) -> list[float]:
    s = kernel.sites(d)["lengthscale"]
    assert isinstance(s, Site)
    distribution = s.distribution(LIKE)
    loc = distribution.base_dist.loc if s.shape else distribution.loc  # type: ignore[attr-defined]
    return loc.exp().flatten().tolist()


@pytest.mark.parametrize(
    ("kernel", "d", "expected"),
    [
        (ARD(RBF()), 9, [3.0] * 9),
        (ARD(RBF()), 1, [1.0]),
        (Scale(ARD(Matern(1.5))), 4, [2.0] * 4),
        (ARD(Scale(RBF())), 4, [2.0] * 4),
        (Subspace(ARD(RBF()), [0, 2, 3, 5]), 9, [2.0] * 4),
        (RBF(), 9, [1.0]),  # one lengthscale for all columns: the data say enough about it
        (ARD(RBF(lengthscale=LogNormal(0.0, 1.0))), 9, [1.0] * 9),  # the prior of the user is kept
        (ARD(RBF(lengthscale=priors.Lengthscale(1.0))), 4, [2 * 2.718281828459045] * 4),
        (
            Deep(MLP((4,), 9), ARD(RBF())),
            3,
            [1.0] * 9,
        ),  # features lie in a ball, whatever their number
    ],
    ids=repr,
)
def test_the_median_grows_with_the_number_of_columns_under_ard(
    kernel: kernels.Kernel, d: int, expected: list[float]
) -> None:
    assert median(kernel, d) == pytest.approx(expected)


def test_one_number_per_column_is_accepted_and_another_count_refused() -> None:
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = ARD(RBF(1.3, (0.5, 2.0)))
    expected = RBF(1.3, 1.0)({}, X / torch.tensor([0.5, 2.0], dtype=torch.float64))
    torch.testing.assert_close(kernel({}, X), expected)
    assert eval(repr(kernel), vars(kernels)) == kernel
    with pytest.raises(ppgp.errors.SettingError, match="3"):
        kernel.sites(3)
    with pytest.raises(ppgp.errors.SettingError):
        RBF(1.3, (0.5, 2.0)).sites(2)
    data = ppgp.Dataset(100 * X, X[:, 0].sin())
    fitted = ppgp.fit(
        models.GP(ARD(RBF(1.3, (50.0, 200.0))), noise=0.1), data, inference.MAP(), progress=False
    )
    assert fitted.shape == (1, 1)


def test_many_columns_are_fitted_no_worse_than_by_a_median_of_one() -> None:
    """Diabetes data, ten columns, 150 rows: RMSE in the units of y, and log densities."""
    train, test = ppgp.load("diabetes").split(0.35, seed=1)
    figures = []
    for prior in (priors.Lengthscale(), LogNormal(0.0, 1.0)):
        model = models.GP(ARD(RBF(lengthscale=prior)))
        prediction = ppgp.fit(model, train, inference.MAP(), progress=False).predict(test.X)
        figures.append((metrics.rmse(prediction, test.y), metrics.nll(prediction, test.y)))
    assert figures[0][0] < figures[1][0]
    assert figures[0][1] < figures[1][1]
