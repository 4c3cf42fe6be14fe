"""Coefficients of linear and class models in data units, standardised or not."""

from __future__ import annotations

import pytest
import torch
from data_in_units import CLASSES, DATA, LABELS, NEW, predictions, quiet, same

import ppgp
from ppgp import Dataset, inference, priors
from ppgp.errors import SettingError
from ppgp.models import LinearRegression, LogisticRegression, Model, SoftmaxRegression
from ppgp.priors import InUnitsOfData, Normal


@quiet
def test_a_bias_in_data_units_beside_free_weights_is_refused() -> None:
    for model, data in (
        (LinearRegression(bias=0.0), DATA),
        (LogisticRegression(bias=InUnitsOfData(Normal())), LABELS),
    ):
        with pytest.raises(SettingError, match="standardise=False"):
            ppgp.fit(model, data, inference.MAP(), progress=False)
        ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)


@quiet
def test_softmax_coefficients_in_the_units_of_the_data() -> None:
    for model in (
        SoftmaxRegression(),
        SoftmaxRegression(bias=priors.Flat()),
        SoftmaxRegression(0.02, classes=3),
    ):
        fitted = ppgp.fit(model, CLASSES, inference.MAP(steps=5), progress=False)
        values = {k: x[:, 0] for k, x in fitted.draws_in("data").items()}
        assert {k: x.shape for k, x in values.items()} == {
            k: x[:, 0].shape for k, x in fitted.draws.items()
        }
        ready = ppgp.fit(
            model, CLASSES, inference.MAP(steps=1), progress=False, standardise=False
        ).model
        torch.testing.assert_close(
            ready.predict(values, NEW, CLASSES).probs[0], fitted.predict(NEW).probabilities
        )


@quiet
@pytest.mark.parametrize(
    ("model", "data"), [(LinearRegression(), DATA), (SoftmaxRegression(), CLASSES)]
)
def test_coefficients_in_data_units_are_exported_to_arviz(model: Model, data: Dataset) -> None:
    """The export also works without draws from the prior."""
    posterior = ppgp.fit(model, data, inference.MAP(steps=2), progress=False)
    for draws in (0, 3):
        tree = posterior.to_arviz(units="data", log_likelihood=False, prior=draws)
        torch.testing.assert_close(
            torch.as_tensor(tree.posterior["weight"].values), posterior.draws_in("data")["weight"]
        )


@quiet
@pytest.mark.parametrize("conjugate", [False, True])
def test_priors_of_coefficients_are_the_same_on_both_scales(conjugate: bool) -> None:
    """In closed form; a flat bias is the same on every scale."""
    noise = InUnitsOfData(priors.InverseGamma(3.0, 10.0))
    model = LinearRegression(
        InUnitsOfData(Normal(0.3, 0.5)), priors.Flat(), noise, conjugate=conjugate
    )
    same(*predictions(model, DATA, inference.Exact(draws=4000)), rtol=1e-5 if conjugate else 1e-3)


@quiet
def test_a_flat_bias_is_also_flat_in_data_units() -> None:
    for model, data in (
        (LinearRegression, DATA),
        (LogisticRegression, LABELS),
        (SoftmaxRegression, CLASSES),
    ):
        one, two = (
            ppgp.fit(model(bias=bias), data, inference.MAP(), progress=False).draws["bias"]
            for bias in (priors.Flat(), InUnitsOfData(priors.Flat()))
        )
        torch.testing.assert_close(one, two)


@quiet
def test_the_evidence_under_a_flat_bias_depends_on_the_scale() -> None:
    """Density 1 per unit of the model's scale is log(y_sd) less than density 1 per unit of y."""
    recipe = LinearRegression(InUnitsOfData(Normal(0.0, 3.0)), InUnitsOfData(priors.Flat()), 2.0)
    scaled, plain = (
        ppgp.fit(recipe, DATA, inference.Exact(), progress=False, standardise=s)
        for s in (True, False)
    )
    assert not scaled.scaler.is_identity
    assert plain.log_evidence - scaled.log_evidence == pytest.approx(
        float(scaled.scaler.y_sd.log())
    )
