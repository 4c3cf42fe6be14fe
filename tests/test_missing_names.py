"""What is said about a name that a public module does not have."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from fresh_process import printed

import ppgp
from ppgp import inference, kernels, likelihoods, models


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("GP", "ppgp.models.GP"),
        ("Gp", "ppgp.models.GP"),
        ("NUTS", "ppgp.inference.NUTS"),
        ("StudentT", "ppgp.likelihoods.StudentT or ppgp.priors.StudentT"),
    ],
)
def test_the_place_of_a_class(name: str, places: str) -> None:
    with pytest.raises(AttributeError, match=rf"it is {re.escape(places)}$"):
        getattr(ppgp, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'Nothing'$"):
        ppgp.Nothing


@pytest.mark.parametrize(
    ("module", "name", "near"),
    [
        (inference, "ADVI", "SVI"),
        (inference, "Nuts", "NUTS"),
        (likelihoods, "Normal", "Gaussian"),
        (kernels, "Maternn", "Matern"),
        (kernels, "MaternKernel", "Matern"),
        (kernels, "RBFKernel", "RBF"),
        (models, "BayesianLinear", None),
        (ppgp, "calibrated", "calibrate"),
        (ppgp, "dataset", "Dataset"),
    ],
)
def test_the_nearest_name_is_offered(module: ModuleType, name: str, near: str | None) -> None:
    own = module.__name__
    offer = f": did you mean {own}.{near}?" if near else ""
    message = f"module '{own}' has no attribute '{name}'{offer}"
    with pytest.raises(AttributeError, match=f"^{re.escape(message)}$") as caught:
        getattr(module, name)
    assert caught.value.name == name
    assert not hasattr(module, name)


def test_no_module_is_imported_in_search_of_a_name() -> None:
    code = """
        import sys, ppgp
        print(hasattr(ppgp, "Gp"), hasattr(ppgp, "Nothing"), "torch" in sys.modules)
    """
    assert printed(code) == ["False", "False", "False"]
