"""The recipe of a posterior is used unchanged for its own rows, and refused on another scale."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from data_in_units import DATA, NEW, Z, quiet, same

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import SettingError
from ppgp.kernels import RBF
from ppgp.models import GP, SGPR


@quiet
def test_the_recipe_of_a_posterior_is_used_unchanged() -> None:
    model = SGPR(RBF(70.0), noise=1.5, Z=Z)
    once = ppgp.fit(model, DATA, inference.MAP(), progress=False)
    again = ppgp.fit(once.model, DATA, inference.MAP(), progress=False)
    assert again.model == once.model
    torch.testing.assert_close(again.model.Z, once.model.Z)
    same(once.predict(NEW), again.predict(NEW))


@quiet
def test_the_recipe_of_a_posterior_is_refused_without_standardisation() -> None:
    """Its numbers are not in data units; those of ``posterior.recipe`` are."""
    once = ppgp.fit(GP(RBF(70.0, 6.0), noise=1.5), DATA, inference.MAP(), progress=False)
    with pytest.raises(SettingError, match=r"posterior\.recipe"):
        ppgp.fit(once.model, DATA, inference.MAP(), progress=False, standardise=False)
    same(
        once.predict(NEW),
        ppgp.fit(once.recipe, DATA, inference.MAP(), progress=False, standardise=False).predict(
            NEW
        ),
    )
    ppgp.sbc(once.model, inference.Laplace(draws=20), 20, X=once.data.X[:8], progress=False)


@quiet
def test_the_recipe_of_a_posterior_is_refused_on_another_scale(tmp_path: Path) -> None:
    """Its numbers are on the scale of its own rows, on which a noise of 1.5 differs."""
    once = ppgp.fit(SGPR(RBF(70.0, 6.0), noise=1.5, Z=Z), DATA, inference.MAP(), progress=False)
    other = Dataset(2 * DATA.X, 3 * DATA.y)
    for result in (once, ppgp.load_posterior(once.save(tmp_path / "once.ppgp"))):
        with pytest.raises(SettingError, match=r"posterior\.recipe"):
            ppgp.fit(result.model, other, inference.MAP(), progress=False)
        again = ppgp.fit(
            result.model, Dataset(DATA.X.flip(0), DATA.y.flip(0)), inference.MAP(), progress=False
        )
        same(once.predict(NEW), again.predict(NEW))
    right = ppgp.fit(once.recipe, other, inference.MAP(), progress=False)
    assert float(right.model.noise) * float(right.scaler.y_sd) ** 2 == pytest.approx(1.5)
    # a user may declare a recipe standardised, for any rows
    declared = GP(RBF(1.0, 1.0), noise=0.1, standardised=True)
    assert ppgp.fit(declared, other, inference.MAP(), progress=False).model.noise == 0.1
