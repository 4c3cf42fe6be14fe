"""Every model with every method on a table in float32: what float64 does, in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from samples import MODELS, data_for, every_model, name_of
from test_pairs import HOWS
from torch import Tensor

import ppgp
from ppgp import inference, likelihoods, models
from ppgp.data import Dataset
from ppgp.errors import NotApplicable, NotKnown, PpgpError
from ppgp.inference import Inference
from ppgp.models import Model
from ppgp.posterior.posterior import Posterior

ROWS = 10
F32, F64 = torch.float32, torch.float64
EPS = 2.0**-24  # the largest relative error of a rounding to float32
#: draws that are no params of the data's dtype: trees are stored with the digits of their splits
OF_TREES = "trees."
#: methods whose result is a point or a closed form, without random numbers that a rounding turns
DETERMINISTIC = (inference.MAP, inference.Exact)
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
        except (NotApplicable, NotKnown) as error:
            assert error.do  # advice
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
