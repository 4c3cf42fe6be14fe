"""A misspelt argument of any public record is refused with the nearest name."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from ppgp import conformal, errors, inference, kernels, learners, likelihoods, models, priors

FAMILIES = (models, kernels, likelihoods, inference, learners, priors, conformal)
BASES = (
    models.Model,
    kernels.Kernel,
    likelihoods.Likelihood,
    inference.Inference,
    learners.Learner,
    priors.Prior,
    conformal.Score,
)
PUBLIC = {
    f"{family.__name__}.{name}": getattr(family, name)
    for family in FAMILIES
    for name in family.__all__
    if isinstance(getattr(family, name), type) and issubclass(getattr(family, name), BASES)
}
CONCRETE = {name: kind for name, kind in PUBLIC.items() if kind not in BASES}
MISSPELT: list[tuple[Any, dict[str, Any], str]] = [
    (models.Vecchia, {"neighbors": 3}, "neighbours"),
    (models.SKI, {"grid_size": 30}, "grid"),
    (models.GP, {"kernal": kernels.RBF()}, "kernel"),
    (models.GLM, {"likelyhood": likelihoods.Poisson()}, "likelihood"),
    (kernels.RBF, {"lenghtscale": 1.0}, "lengthscale"),
    (inference.NUTS, {"drws": 3}, "draws"),
    (priors.Normal, {"scle": 3.0}, "scale"),
]


@pytest.mark.parametrize(("kind", "given", "meant"), MISSPELT)
def test_the_nearest_name_is_offered(kind: Any, given: dict[str, Any], meant: str) -> None:
    with pytest.raises(errors.UnknownArgument, match=f"did you mean '{meant}'") as caught:
        kind(**given)
    assert isinstance(caught.value, TypeError)
    assert kind.__name__ in str(caught.value)


@pytest.mark.parametrize("kind", [models.GP, models.StateSpaceGP, models.Vecchia])
def test_the_nearest_name_is_offered_beside_a_likelihood(kind: Any) -> None:
    with pytest.raises(errors.UnknownArgument, match=f"{kind.__name__}.*did you mean 'kernel'"):
        kind(kernal=kernels.RBF(), likelihood=likelihoods.Poisson(), latent="laplace")


@pytest.mark.parametrize("kind", CONCRETE.values(), ids=CONCRETE)
def test_every_public_record_refuses_an_argument_that_it_lacks(kind: Any) -> None:
    with pytest.raises(errors.UnknownArgument, match="no_such_argument"):
        kind(no_such_argument=1)


@pytest.mark.parametrize("kind", [models.SKI, kernels.RBF, likelihoods.StudentT])
def test_signatures_and_copies_are_as_before(kind: Any) -> None:
    parameters = [*inspect.signature(kind).parameters]
    assert parameters == [*inspect.signature(kind.__init__).parameters][1:]
    one = kind()
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one  # noqa: S301
