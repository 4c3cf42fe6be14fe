"""Every model with every method on a table in float32: what float64 does, in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import pytest
import torch
from samples import MODELS, data_for, every_model, name_of
from test_pairs import HOWS
from torch import Tensor

import ppgp
from ppgp import inference, likelihoods, models, networks, priors
from ppgp.capabilities import Candidates, supports
from ppgp.data import Dataset
from ppgp.density.target import Target
from ppgp.errors import NotApplicable, NotKnown
from ppgp.inference import MAP, Inference
from ppgp.kernels import Matern
from ppgp.models import Model
from ppgp.models.linear import grouped_effects
from ppgp.posterior.posterior import Posterior

ROWS = 10
F32, F64 = torch.float32, torch.float64
EPS = 2.0**-24  # the largest relative error of a rounding to float32
#: draws that are no params of the data's dtype: trees are stored with the digits of their splits
OF_TREES = "trees."
#: models whose joint density has no mode that a search of 1000 steps reaches, in float64 either
NO_MODE = ("SVGP", "NeuralRegression")
#: posterior standard deviations by which the mode moves, as the covariance of inducing values has a
#: jitter of 1e-4 in float32 and of less in float64
LARGER_JITTER = {"SGPR": 0.03}
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
every_method = pytest.mark.parametrize("how", HOWS, ids=lambda h: type(h).__name__)


@cache
def table(number: int, dtype: torch.dtype) -> Dataset:
    """Return one table for both dtypes: numbers that float32 holds."""
    return data_for(MODELS[number], ROWS).to(F32).to(dtype)


def fitted(model: Model, how: Inference, dtype: torch.dtype) -> Posterior | None:
    """Return the fit; None if the method does not apply to the model."""
    data = table(MODELS.index(model), dtype)
    try:
        return ppgp.fit(model, data, how, progress=False)
    except NotApplicable:
        return None


def figures(posterior: Posterior, new: Dataset) -> dict[str, Callable[[], Any]]:
    """Return what a posterior computes of three rows and of its own, by name."""
    prediction = posterior.predict(new)
    numbers: dict[str, Callable[[], Any]] = {
        "log_prob": lambda: prediction.log_prob(new.y),
        "latent": lambda: posterior.latent(new).mean,
        "sample": lambda: prediction.sample(2),
        "psis_loo": lambda: ppgp.psis_loo(posterior).elpd,
        "to_arviz": lambda: posterior.to_arviz(),
        "summary": lambda: posterior.summary(),
    }
    if prediction.kind == "classes":
        numbers["probabilities"] = lambda: prediction.probabilities
    else:
        numbers["mean"] = lambda: prediction.mean
        numbers["interval"] = lambda: torch.stack([*prediction.interval(0.9)])
    return numbers


def computed(posterior: Posterior, new: Dataset) -> dict[str, Any]:
    """Return what ``figures`` are; the class of the refusal of those that do not apply."""
    found: dict[str, Any] = {}
    for name, compute in figures(posterior, new).items():
        try:
            found[name] = compute()
        except (NotApplicable, NotKnown) as error:  # neither can be built without advice
            found[name] = type(error)
    return found


@pytest.mark.usefixtures("shared_graphs")
@quiet
@every_method
@every_model
def test_float32_does_what_float64_does(model: Model, how: Inference) -> None:
    single = fitted(model, how, F32)
    if single is None:  # and float64 is no better
        assert fitted(model, how, F64) is None
        return
    for name, draws in single.draws.items():
        assert bool(torch.isfinite(draws).all()), name
        if draws.is_floating_point() and not name.startswith(OF_TREES):
            assert draws.dtype == F32, name
    assert all(v.dtype in (F32, torch.int64) for v in single.params.values())
    found = computed(single, table(MODELS.index(model), F32).rows(slice(0, 3)))
    for name, value in found.items():
        if isinstance(value, Tensor):
            assert value.dtype == F32, name
            assert bool(torch.isfinite(value).all()), name
    refused = {name for name, value in found.items() if isinstance(value, type)}
    if refused:
        double = fitted(model, how, F64)
        assert double is not None
        same = computed(double, table(MODELS.index(model), F64).rows(slice(0, 3)))
        assert refused == {name for name, value in same.items() if isinstance(value, type)}


@pytest.mark.usefixtures("shared_graphs")
@quiet
@every_model
def test_the_mode_in_float32_is_that_in_float64(model: Model) -> None:
    """In float64, the density at the mode of float32 is within p d^2 / 2 of its maximum.

    So far below the maximum a normal density has a point that is d posterior standard deviations
    off in each of p directions. A search in float32 cannot tell points apart whose densities
    differ by less than rounding, which is 6e-8 of the density: d = sqrt(2 * 6e-8 * |density|).
    """
    if name_of(model) in NO_MODE:
        return
    if supports(model, Candidates):  # rounding may decide between two of similar evidence
        model = replace(cast(Any, model), kernel=Matern(2.5))
    single, double = (data_for(model).to(F32).to(dtype) for dtype in (F32, F64))
    at_single, at_double = (
        ppgp.fit(model, data, inference.MAP(), progress=False) for data in (single, double)
    )
    target = Target(at_double.model, at_double.data, optimise_params=True)
    assert at_single.draws.keys() == at_double.draws.keys()
    densities = []
    for posterior in (at_single, at_double):
        values = {name: posterior.theta[name][0].to(F64) for name in target.slices}
        with torch.no_grad():
            densities.append(float(target.log_density(target.unconstrain(values), jacobian=False)))
    off = max(1e-3, 2 * (EPS * abs(densities[1])) ** 0.5, LARGER_JITTER.get(name_of(model), 0.0))
    assert densities[0] > densities[1] - target.dim * off**2 / 2
    predicted = [
        p.predict(d.rows(slice(0, 5))) for p, d in ((at_single, single), (at_double, double))
    ]
    if predicted[1].kind != "classes":
        apart = (predicted[0].mean.double() - predicted[1].mean).abs() / predicted[1].std
        assert float(apart.max()) < off * target.dim**0.5


@quiet
@pytest.mark.parametrize("name", ["GLM", "LogisticRegression", "SoftmaxRegression"])
def test_newtons_method_ends_in_float32(name: str) -> None:
    """Its steps are as few as in float64, up to one."""
    model = next(model for model in MODELS if name_of(model) == name)
    single, double = (
        ppgp.fit(model, data_for(model).to(F32).to(dtype), MAP("newton"), progress=False)
        for dtype in (F32, F64)
    )
    assert not single.warnings
    assert float(single.stats["steps"]) <= float(double.stats["steps"]) + 1


@quiet
def test_the_mode_of_groups_ends_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's steps to the mode of the effects are as few as in float64."""
    model = next(model for model in MODELS if name_of(model) == "Multilevel-Poisson")
    counts, whole = [0], grouped_effects._ascended

    def counted(*arguments: Any) -> Any:
        counts[-1] += 1
        return whole(*arguments)

    monkeypatch.setattr(grouped_effects, "_ascended", counted)
    for dtype in (F64, F32):
        counts.append(0)
        ppgp.fit(model, data_for(model).to(F32).to(dtype), MAP(steps=2), progress=False)
    assert 0 < counts[-1] <= 1.5 * counts[-2]


DROPOUT = models.NeuralRegression(
    networks.MLP((3,), dropout=0.05, activation="tanh"), likelihoods.Gaussian()
)
ONE_NOISE = models.NeuralRegression(networks.MLP((3,), activation="tanh"), likelihoods.Gaussian())
CONDITIONAL = models.LinearRegression(noise=priors.InverseGamma(2.0, 1.0))
NETWORK = MODELS[[name_of(m) for m in MODELS].index("NeuralRegression")]
OPTIONS: dict[str, tuple[Model, Inference]] = {
    "MC dropout": (DROPOUT, inference.MCDropout().quick()),
    "Kronecker factors": (NETWORK, inference.Laplace(structure="kron").quick()),
    "last layer": (ONE_NOISE, inference.Laplace(structure="last_layer").quick()),
    "natural gradient boosting": (models.Boosted(), inference.NaturalGradientBoosting().quick()),
    "Gibbs": (CONDITIONAL, inference.Gibbs().quick()),
    "ensemble of adam": (NETWORK, inference.Ensemble(inference.MAP("adam"), members=2).quick()),
}


@quiet
@pytest.mark.parametrize(("model", "how"), OPTIONS.values(), ids=OPTIONS)
def test_options_of_methods_work_in_float32(model: Model, how: Inference) -> None:
    data = data_for(model).to(F32)
    posterior = ppgp.fit(model, data, how, progress=False)
    for name, draws in posterior.draws.items():
        assert bool(torch.isfinite(draws).all()), name
        assert draws.dtype == F32 or name.startswith(OF_TREES), name
    prediction = posterior.predict(data.X[:3])
    for value in (prediction.mean, prediction.std, prediction.log_prob(data.y[:3])):
        assert value.dtype == F32
        assert bool(torch.isfinite(value).all())
