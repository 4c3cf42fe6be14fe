"""Formulas: the design of statsmodels, the same design for new tables, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import ppgp
from ppgp import likelihoods as laws
from ppgp.data import formula_design
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.inference import MAP
from ppgp.models import GLM, Varying
from ppgp.posterior import Posterior
from ppgp.priors import Flat

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
pytest.importorskip("formulaic")
FLAT = Flat()
HOW: dict[str, Any] = {"progress": False}


def table(n: int = 90) -> pd.DataFrame:
    g = np.random.default_rng(1)
    x, z = g.normal(size=n) + 3.0, g.choice(["low", "mid", "top"], n)
    rate = np.exp(0.3 * x + 0.4 * (z == "top"))
    return pd.DataFrame(
        {
            "visits": g.poisson(rate).astype(float),
            "x": x,
            "z": z,
            "exposure": g.normal(size=n) * 0.1,
            "clinic": g.choice(["a", "b", "c", "d"], n),
            "note": "text",
        }
    )


def fit(formula: str, frame: pd.DataFrame, **options: Any) -> Posterior:
    model, data = GLM.from_formula(formula, frame, laws.Poisson(), FLAT, FLAT, **options)
    return ppgp.fit(model, data, MAP("newton"), **HOW)


@pytest.mark.parametrize(
    "formula",
    ["visits ~ x + C(z)", "visits ~ x * z", "visits ~ center(x) + np.log(x + 10) + I(x**2)"],
)
def test_a_formula_has_the_design_and_the_predictions_of_statsmodels(formula: str) -> None:
    frame = table()
    posterior = fit(formula, frame, offset="exposure")
    other = smf.glm(formula, frame, family=sm.families.Poisson(), offset=frame["exposure"]).fit(
        tol=1e-13, tol_criterion="params"
    )
    found = posterior.coefficients("model")
    np.testing.assert_allclose(np.sort(found["estimate"]), np.sort(other.params), rtol=1e-6)
    np.testing.assert_allclose(np.sort(found["se"]), np.sort(other.bse), rtol=1e-6)
    new = table(200).tail(20).sample(7, random_state=1)
    expected = other.predict(new, offset=new["exposure"])
    np.testing.assert_allclose(posterior.predict(new).mean, expected, rtol=1e-7)
    one = new.iloc[:1]  # one level, and another mean of x
    np.testing.assert_allclose(posterior.predict(one).mean, expected[:1], rtol=1e-7)


def test_the_design_is_kept_with_the_rows() -> None:
    frame = table()
    model, data = GLM.from_formula("visits ~ x + C(z)", frame, laws.Poisson())
    assert data.feature_names == ("x", "C(z)[T.mid]", "C(z)[T.top]")
    assert data.target_name == "visits"
    part = data.split(0.5)[0].to(torch.float32)
    posterior = ppgp.fit(model, part, MAP("newton"), **HOW)
    assert posterior.scaler.back(posterior.data).design is data.design
    columns = data.design(frame)
    assert list(columns.columns) == list(data.feature_names)
    same = posterior.predict(columns).mean
    torch.testing.assert_close(posterior.predict(frame).mean, same)
    torch.testing.assert_close(posterior.predict(data).mean, same)


def test_a_loaded_posterior_takes_the_columns_of_the_design(tmp_path: Path) -> None:
    frame = table()
    model, data = GLM.from_formula("visits ~ C(z)", frame, laws.Poisson(), offset="exposure")
    posterior = ppgp.fit(model, data, MAP("newton"), **HOW)
    back = ppgp.load_posterior(posterior.save(tmp_path / "fit.safetensors"))
    with pytest.raises(UnknownName, match=r"C\(z\)\[T.mid\]"):
        back.predict(frame)
    found = back.predict(data.design(frame)).mean
    torch.testing.assert_close(found, posterior.predict(frame).mean)


def test_roles_groups_and_targets() -> None:
    frame = table()
    frame["n"] = frame["visits"] + 3
    model, data = GLM.from_formula(
        "visits ~ x", frame, laws.Binomial(), trials="n", weights="x", ids="clinic"
    )
    assert model.likelihood == laws.Binomial()
    assert data.trials is not None
    assert data.ids == tuple(frame["clinic"])
    groups = {"clinic": Varying("1 + x")}
    model, data = GLM.from_formula("visits ~ x", frame, groups=groups)
    assert type(model).__name__ == "Multilevel"
    posterior = ppgp.fit(model, data, MAP(), **HOW)
    expected = posterior.predict(data).mean
    torch.testing.assert_close(posterior.predict(frame).mean, expected)
    _, data = GLM.from_formula("np.log(x) ~ visits", frame)
    np.testing.assert_allclose(data.y, np.log(frame["x"]))
    _, data = GLM.from_formula("z ~ x", frame, laws.Categorical())
    assert data.classes == ("low", "mid", "top")


def test_a_dot_stands_for_the_other_columns() -> None:
    frame = table().drop(columns=["clinic", "note"])
    _, data = GLM.from_formula("visits ~ .", frame, laws.Poisson(), offset="exposure")
    assert data.feature_names == ("x", "z[T.mid]", "z[T.top]")


def test_columns_of_every_type_of_pandas() -> None:
    frame = table()
    for kind in (object, "string", "category"):
        _, data = GLM.from_formula("visits ~ z", frame.astype({"z": kind}), laws.Poisson())
        assert data.feature_names == ("z[T.mid]", "z[T.top]")
        torch.testing.assert_close(data.X[:, 1], torch.tensor(frame["z"] == "top").to(data.X))
    _, data = GLM.from_formula("visits ~ x", frame.astype({"visits": "Int64"}), laws.Poisson())
    np.testing.assert_array_equal(data.y, frame["visits"])


def test_new_rows_beyond_the_knots_of_a_spline_are_refused() -> None:
    frame = table()
    _, data = GLM.from_formula("visits ~ bs(x, df=4)", frame, laws.Poisson())
    with pytest.raises(DataError, match=r"new rows on which the formula can be .* beyond"):
        data.design(frame.assign(x=99.0))


def test_a_loaded_posterior_says_what_its_file_does_not_hold(tmp_path: Path) -> None:
    frame = table()
    model, data = GLM.from_formula("visits ~ center(x) + C(z)", frame, laws.Poisson())
    posterior = ppgp.fit(model, data, MAP("newton"), **HOW)
    posterior.save(tmp_path / "glm.safetensors")
    loaded = ppgp.load_posterior(tmp_path / "glm.safetensors")
    with pytest.raises(UnknownName, match=r"which no file holds, pass data.design\(rows\)"):
        loaded.predict(frame[:3])
    found = loaded.predict(data.design(frame[:3])).mean
    torch.testing.assert_close(found, posterior.predict(frame[:3]).mean)


def test_without_an_intercept() -> None:
    frame = table()
    model, data = GLM.from_formula("visits ~ 0 + C(z)", frame, laws.Poisson(), FLAT)
    assert model.bias == 0.0
    posterior = ppgp.fit(model, data, MAP("newton"), standardise=False, **HOW)
    means = frame.groupby("z")["visits"].mean()
    np.testing.assert_allclose(posterior.coefficients()["weight"][0, 0].exp(), means, rtol=1e-8)
    with pytest.raises(SettingError, match="no bias"):
        GLM.from_formula("visits ~ x - 1", frame, bias=FLAT)
    model, _ = GLM.from_formula("z ~ x", frame, laws.Ordinal())
    assert model.bias is None


def test_refusals() -> None:
    frame = table()
    for formula, error, said in (
        ("visits ~ x +* z", SettingError, "incorrectly used"),
        ("~ x", SettingError, "one target"),
        ("visits ~ 1", SettingError, "terms besides the intercept"),
        ("visits + x ~ z", SettingError, "one target"),
        ("C(z) ~ x", SettingError, "one column as the target"),
        ("visits ~ xx", UnknownName, "did you mean 'x'"),
        ("visits ~ log(clinic)", SettingError, "can evaluate"),
        ("visits ~ x + offset(exposure)", SettingError, "pass offset="),
        (
            "visits ~ x + (1 + x | clinic)",
            SettingError,
            r"groups=\{'clinic': Varying\('1 \+ x'\)\}",
        ),
    ):
        with pytest.raises(error, match=said):
            GLM.from_formula(formula, frame)
    with pytest.raises(UnknownName, match="exposure"):
        GLM.from_formula("visits ~ x", frame, offset="exposures")
    with pytest.raises(DataError, match="a pandas DataFrame"):
        GLM.from_formula("visits ~ x", frame.to_numpy())
    frame.loc[4, "z"] = None
    with pytest.raises(DataError, match="none of z in row 4"):
        GLM.from_formula("visits ~ z", frame)


def test_a_level_that_was_not_seen_is_refused() -> None:
    frame = table()
    posterior = fit("visits ~ x + C(z)", frame)
    new = frame.head(3).assign(z=["low", "best", "top"])
    with pytest.raises(DataError, match=r"levels of the training rows.*'best'"):
        posterior.predict(new)
    with pytest.raises(UnknownName, match="column of the formula"):
        posterior.predict(new.drop(columns="x"))


def test_without_formulaic_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(formula_design, "imported", missing)
    formula_design._formulaic.cache_clear()
    with pytest.raises(NotApplicable, match=r'pip install "ppgp\[formula\]"'):
        GLM.from_formula("visits ~ x", table())
