"""Data that do not suit a generalised linear model are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forked import ppgp as command
from jaxtyping import config

import ppgp
from ppgp import Dataset, inference
from ppgp.cli.data_options import in_the_shell
from ppgp.errors import PpgpError
from ppgp.likelihoods import (
    Beta,
    Binomial,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
    ZeroInflated,
)
from ppgp.models import GLM, GP, Varying
from ppgp.priors import Flat

N = 24
X = np.random.default_rng(0).normal(size=(N, 2))
COUNTS = np.arange(N) % 5 + 0.0
SHARES = (np.arange(N) + 0.5) / N
CODES = np.arange(N) % 4 + 0.0
THREE = [f"level {i % 3}" for i in range(N)]
NAMED = pd.Series(pd.Categorical.from_codes([0, 2, 3] * 8, list("abcd"), ordered=True))
SEPARATED = np.digitize(X[:, 0], [-0.5, 0.5])
ALONE = {"g": [f"level {i}" for i in range(N)]}


def with_one(values: np.ndarray, value: float) -> np.ndarray:
    changed = values.copy()
    changed[7] = value
    return changed


def fit(model: Any, y: Any, **columns: Any) -> ppgp.Posterior:
    return ppgp.fit(model, Dataset(X, y, **columns), inference.MAP(), progress=False)


def a_new_group() -> None:
    y = COUNTS + X[:, 0]
    posterior = fit(GLM(Gaussian(), groups={"g": Varying("1", Flat())}), y, groups={"g": THREE})
    posterior.predict(X[:1], groups={"g": ["another"]})


COUNTED = (Poisson(), NegativeBinomial(), ZeroInflated(Poisson()), Binomial(9))
#: what is wrong -> (a call, words of its message)
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    **{
        f"{value} of {type(law).__name__}": (
            lambda law=law, value=value: fit(GLM(law), with_one(COUNTS, value)),
            f"counts 0, 1, 2, ... in y, got {value:g} in row 7",
        )
        for law in COUNTED
        for value in (-1.0, 0.5)
    },
    "more events than trials": (
        lambda: fit(GLM(Binomial()), with_one(COUNTS, 6.0), trials=5),
        "got 6 of 5 in row 7",
    ),
    "trials of Poisson": (lambda: fit(GLM(Poisson()), COUNTS, trials=9), "use GLM(Binomial())"),
    "rows of one category": (
        lambda: fit(GLM(Ordinal()), np.zeros(N), classes=["a", "b", "c"]),
        "rows of several categories in y, got rows of one alone",
    ),
    "more categories than classes": (
        lambda: fit(GLM(Ordinal(classes=2)), NAMED),
        "at most 2 labels in y, got 4: a, b, c, d",
    ),
    "one class": (lambda: Ordinal(classes=1), "a number of classes 2, 3, ..., got 1"),
    "the dispersion of ordered classes": (
        lambda: fit(GLM(Ordinal()), CODES).dispersion_check(),
        "numbers or trials for a check of the dispersion",
    ),
    "labels of a GP": (
        lambda: fit(GP(), THREE),
        "SVGP(likelihood=Categorical()) for more",
    ),
    "shares in place of events": (
        lambda: fit(GLM(Binomial()), SHARES, trials=5),
        "pass the number of events as y",
    ),
    "no trials": (lambda: fit(GLM(Binomial()), COUNTS), "pass Dataset(trials=)"),
    "0 of Gamma": (lambda: fit(GLM(Gamma()), COUNTS), "positive targets in y, got 0 in row 0"),
    "0 of Beta": (lambda: fit(GLM(Beta()), with_one(SHARES, 0.0)), "got 0 in row 7"),
    "1 of Beta": (lambda: fit(GLM(Beta()), with_one(SHARES, 1.0)), "got 1 in row 7"),
    "no rows of a code": (
        lambda: fit(GLM(Ordinal()), np.where(CODES == 1, 2.0, CODES)),
        "none of category 1: merge it",
    ),
    "no rows of a name": (lambda: fit(GLM(Ordinal()), NAMED), "none of category 'b': merge it"),
    "codes from 1": (lambda: fit(GLM(Ordinal()), CODES + 1), "number the categories from 0"),
    "an intercept beside cutpoints": (
        lambda: GLM(Ordinal(), bias=Flat()),
        "no intercept beside cutpoints",
    ),
    "eta below 0": (
        lambda: fit(GLM(Gamma(link="inverse"), weight=5.0, bias=0.0), SHARES),
        "eta is positive in every row",
    ),
    "separated classes": (
        lambda: fit(GLM(Ordinal(cutpoints=Flat()), weight=Flat()), SEPARATED),
        "classes that the inputs separate perfectly",
    ),
    "groups of one row": (
        lambda: fit(GLM(Poisson(), groups={"g": Varying("1", Flat())}), COUNTS, groups=ALONE),
        "24 groups of one row: give sd a prior",
    ),
    "a new group": (a_new_group, "another in row 0: fit with a prior"),
}


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("case", CASES)
def test_what_does_not_suit_the_model_is_one_sentence(case: str) -> None:
    call, words = CASES[case]
    with pytest.raises(PpgpError) as caught:
        call()
    sentence = str(caught.value)
    assert words in sentence
    assert sentence.startswith("expected ")
    assert "\n" not in sentence


def test_trials_of_each_row_belong_to_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no checks of types
    trials: Any = [5] * N
    with pytest.raises(PpgpError, match=r"got a list: pass Dataset\(trials=\) for one per row"):
        Binomial(trials=trials)


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        (
            "pass Dataset(trials=), or Binomial(trials=) for",
            "pass --trials, or Binomial(trials=) for",
        ),
        ("use GP, or a Dataset without noise_sd", "use GP, or leave --noise-sd out"),
        ("write Dataset(X, y, groups={name: labels})", "name its column with --groups"),
        ("name every label once in classes=", "name every label once in --classes "),
        (
            "order pass labels as pandas' ordered categories",
            "order name them in order with --classes",
        ),
    ],
)
def test_advice_on_the_command_line_names_its_options(python: str, shell: str) -> None:
    assert in_the_shell(python) == shell


@pytest.mark.parametrize(
    ("words", "y", "advice"),
    [
        ("glm --likelihood poisson", with_one(COUNTS, -1.0), "got -1 in row 7"),
        ("glm --likelihood poisson --trials n", COUNTS, "or leave --trials out"),
        ("glm --likelihood binomial", COUNTS, "pass --trials"),
        ("ordinal", CODES + 1, "name them in order with --classes"),
    ],
)
def test_the_command_line_says_the_same(
    words: str, y: np.ndarray, advice: str, tmp_path: Path
) -> None:
    pd.DataFrame({"a": X[:, 0], "n": 9.0, "y": y}).to_csv(tmp_path / "rows.csv", index=False)
    done = command("fit", "rows.csv", "--target", "y", "--model", *words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ppgp: expected ")
    assert advice in done.stderr
    assert done.stderr.count("\n") == 1
