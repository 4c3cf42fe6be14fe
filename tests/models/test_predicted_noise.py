"""SVGP whose noise is a function of x."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ppgp import Dataset, fit
from ppgp.errors import NotApplicable
from ppgp.inference import SVI
from ppgp.kernels import RBF
from ppgp.likelihoods import Gaussian, Likelihood, Predicted
from ppgp.models import SVGP
from ppgp.posterior.posterior import Posterior
from ppgp.priors import LogNormal

F64 = torch.float64
UNIT = 1000.0  # of y


def rows(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return X, y, and the sd of its noise, from .05 to .5 units."""
    g = torch.Generator().manual_seed(seed)
    X = 4 * torch.rand(n, 1, generator=g, dtype=F64)
    sd = UNIT * (0.05 + 0.45 * torch.sigmoid(4 * (X[:, 0] - 2)))
    return X, UNIT * torch.sin(3 * X[:, 0]) + sd * torch.randn(n, generator=g, dtype=F64), sd


def fitted(likelihood: Likelihood, steps: int = 120, **options: bool) -> Posterior:
    X, y, _ = rows(200, 0)
    model = SVGP(RBF(), inducing=15, likelihood=likelihood)
    return fit(model, Dataset(X, y), SVI(steps=steps), progress=False, **options)


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_noise_as_a_function_of_x_is_found() -> None:
    """Its log score is near that of the truth, and far from that of one noise for all rows."""
    X, y, sd = rows(2000, 1)
    truth = torch.distributions.Normal(UNIT * torch.sin(3 * X[:, 0]), sd).log_prob(y)
    scores = {}
    for likelihood in (Gaussian(), Gaussian(noise=Predicted())):
        gap = truth - fitted(likelihood).predict(X).log_prob(y)
        scores[likelihood.latents] = float(gap.mean()), float(gap.std()) / len(gap) ** 0.5
    one, two = scores[1], scores[2]
    assert two[0] < 0.12 + 3 * two[1]
    assert one[0] > two[0] + 0.3


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_the_units_of_y_do_not_matter_without_standardising() -> None:
    """The GP of the log noise has no unit, whatever the variance of the kernel."""
    g = torch.linspace(0, 4, 30, dtype=F64)[:, None]
    recipe = Gaussian(noise=Predicted(LogNormal(8.0, 2.0)))
    model = SVGP(RBF(variance=UNIT**2, lengthscale=0.5), 20, recipe, mean=0.0)
    X, y, _ = rows(200, 0)
    posterior = fit(model, Dataset(X, y), SVI(steps=100), progress=False, standardise=False)
    sd = posterior.predict(g).std
    assert float(sd[:8].mean()) < 0.35 * float(sd[-8:].mean())


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_what_has_no_closed_form_is_refused_and_the_mean_function_is_not() -> None:
    posterior = fitted(Gaussian(noise=Predicted()), steps=20)
    X = rows(5, 3)[0]
    with pytest.raises(NotApplicable, match="one variance"):
        posterior.predict(X, joint=True)
    assert posterior.latent(X).mean.shape == (5,)
