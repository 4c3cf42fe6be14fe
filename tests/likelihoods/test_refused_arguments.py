"""Arguments that a likelihood cannot have are refused where they are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from ppgp import likelihoods, priors
from ppgp.errors import SettingError, UnknownArgument
from ppgp.likelihoods import Binomial, Categorical, FromDistribution, Ordinal, Poisson, Predicted

pytestmark = pytest.mark.usefixtures("types_unchecked")


def zero_inflated(probability: Any) -> likelihoods.ZeroInflated:
    return likelihoods.ZeroInflated(Poisson(), probability)


REFUSED: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], str]] = {
    "classes": (Categorical, (1, 0, -1, 2.5, "a", True), "number of classes 2, 3"),
    "ordered classes": (lambda k: Ordinal(classes=k), (1, 2.5, True), "number of classes 2, 3"),
    "cutpoints": (
        lambda c: Ordinal(cutpoints=c),
        ([0.0, 1.0], (), "a", None, (0.0, math.nan), priors.Normal()),
        "a tuple of increasing numbers",
    ),
    "trials": (Binomial, (True, "a", math.inf, 2.5), "number of trials"),
    "probability": (zero_inflated, ("a", None, (), (0.5, 1.5), 0, 1), "probability above 0"),
    "level of a probability": (
        lambda level: zero_inflated(Predicted(level)),
        ("a", 1.5, priors.LogNormal()),
        "probability above 0",
    ),
    "functions": (
        lambda k: FromDistribution(lambda f: f, k),
        ("a", 1.5, 0, True),
        "number of parameters of at least 1",
    ),
}


@pytest.mark.parametrize(
    ("make", "value", "words"),
    [(make, value, words) for make, values, words in REFUSED.values() for value in values],
    ids=[f"{name}: {value}" for name, (_, values, _) in REFUSED.items() for value in values],
)
def test_a_value_outside_its_range(make: Callable[[Any], Any], value: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        make(value)


def test_values_inside_their_range() -> None:
    assert Categorical(2).latents == 2
    assert Ordinal(cutpoints=0.5).cutpoints == (0.5,)
    assert Ordinal(cutpoints=(0.0, 1.0)).classes == 3
    assert Binomial(3.0).trials == 3
    assert zero_inflated(0.5).probability == 0.5
    assert zero_inflated(Predicted()).predicted == ("probability",)
    assert FromDistribution(lambda f: f, 2).latents == 2


def test_a_misspelt_argument_of_predicted() -> None:
    with pytest.raises(UnknownArgument, match="did you mean 'level'"):
        Predicted(levle=1.0)  # type: ignore[call-arg]
