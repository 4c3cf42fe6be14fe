"""Every error has one sentence: what was expected, what was given, what to do."""

from __future__ import annotations

import inspect

import pytest

from ppgp import errors
from ppgp.errors import LostRank, PpgpError, PpgpWarning, UnknownName, an, counted, listed, nearest

OWN = [c for c in vars(errors).values() if getattr(c, "__module__", None) == errors.__name__]
CLASSES = [c for c in OWN if inspect.isclass(c) and issubclass(c, BaseException)]
ERRORS = [c for c in CLASSES if issubclass(c, PpgpError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_message_is_one_sentence_of_expected_got_and_do(kind: type[PpgpError]) -> None:
    arguments = {
        UnknownName: ("target column", "progresion", ["age"]),
        LostRank: ([1], 2),
    }
    error = kind(*arguments.get(kind, ("a level in (0, 1)", "95", "write 0.95")))
    assert str(error) == f"expected {error.expected}, got {error.got}: {error.do}"
    assert "\n" not in str(error)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_is_a_documented_error_or_warning(kind: type) -> None:
    assert issubclass(kind, PpgpError | PpgpWarning)
    assert kind.__doc__


@pytest.mark.parametrize("kind", [c for c in ERRORS if c is not PpgpError])
def test_an_error_is_also_a_builtin_error(kind: type[PpgpError]) -> None:
    builtin = ValueError | TypeError | LookupError | ArithmeticError | MemoryError
    assert issubclass(kind, builtin | ConnectionError)


def test_the_error_for_an_unknown_name_offers_the_nearest() -> None:
    assert str(UnknownName("data set", "diabtes", ["iris", "diabetes"])) == (
        "expected the name of a data set, got 'diabtes': did you mean 'diabetes'? "
        "known: iris, diabetes"
    )


def test_the_error_for_a_name_unlike_any_other_lists_the_known_names() -> None:
    assert str(UnknownName("data set", "zzz", ["iris"])).endswith("got 'zzz': known: iris")
    assert str(UnknownName("data set", "zzz", [])).endswith("known: none")


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("optimizer", "an optimizer"),
        ("row", "a row"),
        ("unit of Quantile", "a unit of Quantile"),
        ("'iris'", "an 'iris'"),
        ("one-hot column", "a one-hot column"),
    ],
)
def test_the_article_follows_the_sound(words: str, phrase: str) -> None:
    assert an(words) == phrase


def test_singular_and_plural() -> None:
    assert [counted(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [listed(list(range(n)), "row") for n in (1, 2)] == ["row 0", "rows 0, 1"]
    assert listed(list(range(7)), "row").endswith("4, ... (7 in all)")
    assert "an activation" in str(UnknownName("activation", "rel", ["relu"]))


def test_a_name_cut_short_is_nearer_than_one_of_like_letters() -> None:
    assert nearest("abs", ["aps", "absolute"]) == "absolute"
    assert nearest("ABS", ["absolute-of-all", "Absolute"]) == "Absolute"
    assert nearest("ab", ["abcdefgh", "ax"]) == "ax"
