"""Every model with every method: finite draws and a valid Prediction, or a refusal with advice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from samples import data_for, every_model

import ppgp
from ppgp import inference
from ppgp.errors import NotApplicable
from ppgp.inference import Inference
from ppgp.inference.mcmc.chains import Chains
from ppgp.models import Model

ROWS = 10


def shortest(how: Inference) -> Inference:
    """Return the method with its quick budget, of fewer and shorter transitions if it has any."""
    how = how.quick()
    if isinstance(how, inference.NUTS):
        how = replace(how, max_depth=3)
    if isinstance(how, inference.HMC):
        how = replace(how, trajectory=0.5)
    return replace(how, draws=4, warmup=6) if isinstance(how, Chains | inference.NUTS) else how


HOWS = [shortest(getattr(inference, n)()) for n in inference.__all__ if n != "Inference"]


@pytest.mark.usefixtures("shared_graphs")
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("how", HOWS, ids=lambda h: type(h).__name__)
@every_model
def test_every_model_with_every_method(model: Model, how: Inference) -> None:
    data = data_for(model, ROWS)
    try:
        posterior = ppgp.fit(model, data, how, progress=False)
    except NotApplicable:  # cannot be built without advice
        return
    assert all(bool(torch.isfinite(v).all()) for v in posterior.draws.values())
    prediction = posterior.predict(data.rows(slice(0, 3)))
    figure = prediction.probabilities if prediction.kind == "classes" else prediction.mean
    assert len(figure) == 3
    assert bool(torch.isfinite(figure).all())
    assert bool(torch.isfinite(prediction.log_prob(data.y[:3])).all())
    assert posterior.seconds > 0
