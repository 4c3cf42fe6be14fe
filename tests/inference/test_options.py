"""Every inference record refuses options that their annotations do not allow."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch

from ppgp import inference
from ppgp.errors import SettingError, UnknownName
from ppgp.inference import Inference

RECORDS = [getattr(inference, n)() for n in inference.__all__ if n != "Inference"]
OPTIONS = [(record, f.name) for record in RECORDS for f in fields(record)]
HOSTILE: list[Any] = [
    None,
    True,
    math.inf,
    -math.inf,
    math.nan,
    0,
    -1,
    10**400,
    1j,
    "a",
    "",
    b"lbfgs",
    [],
    [3],
    {},
    {"": None},
    {"": math.inf},
    {3: 0.1},
    object(),
    np.array([1, 2]),
    np.bool_(True),
    torch.tensor(3),
]
#: options whose default is no None and that take it: no search, no folds
NONE_ALLOWED = ("search", "folds")
each_option = pytest.mark.parametrize(
    ("record", "name"), OPTIONS, ids=lambda v: v if isinstance(v, str) else type(v).__name__
)


def made(record: Inference, **options: Any) -> Any:
    """Call ``dataclasses.replace`` without the type checks of the test run."""
    new = copy.copy(record)
    for name, value in options.items():
        object.__setattr__(new, name, value)
    new.__post_init__()
    return new


def plain(value: Any) -> bool:
    """Whether a value has a type that the annotation of some option allows."""
    numbers = value.values() if isinstance(value, Mapping) else [value]
    return (
        value is None
        or isinstance(value, str | Inference | bool)
        or all(type(v) in (int, float) for v in numbers)
    )


@each_option
def test_a_hostile_value_is_refused_or_converted(record: Inference, name: str) -> None:
    default = getattr(record, name)
    for value in HOSTILE:
        try:
            new = made(record, **{name: value})
        except (SettingError, UnknownName) as error:
            sentence = str(error)
            assert name in sentence
        else:
            result = getattr(new, name)
            assert result == value
            assert plain(result)
            assert (
                default is None
                or isinstance(result, type(default))
                or (result is None and name in NONE_ALLOWED)
                or (name == "guide" and callable(result))
            )


@each_option
def test_numpy_numbers_and_words_become_plain_ones(record: Inference, name: str) -> None:
    default = getattr(record, name)
    given = np.str_(default) if isinstance(default, str) else np.asarray(default)[()]
    if isinstance(default, int | float):
        new = made(record, **{name: given})
        assert type(getattr(new, name)) is type(default)
        assert new == record
        assert repr(new) == repr(record)


def test_options_that_once_caused_raw_errors_are_refused() -> None:
    sampler, search, guided = inference.NUTS(), inference.MAP(), inference.SVI()
    refused: list[tuple[Inference, dict[str, Any], type[Exception]]] = [
        (inference.HMC(), {"trajectory": "a"}, SettingError),
        (inference.HMC(), {"trajectory": math.inf}, SettingError),
        (sampler, {"draws": None}, SettingError),
        (inference.Ensemble(), {"base": "map"}, SettingError),
        (guided, {"guide": []}, SettingError),
        (search, {"learning_rate": {}}, SettingError),
        (search, {"learning_rate": {"": None}}, SettingError),
        (search, {"optimizer": "lbgfs"}, UnknownName),
        (guided, {"guide": "normall"}, UnknownName),
        (sampler, {"metric": "dense"}, UnknownName),
    ]
    for record, options, error in refused:
        with pytest.raises(error):
            made(record, **options)
    assert made(sampler, draws=np.int64(3)).draws == 3
    assert made(search, learning_rate={"": np.float32(0.5)}).learning_rate == {"": 0.5}


def test_a_users_own_record_is_checked_against_its_annotations() -> None:
    @dataclass(frozen=True)
    class Own(Inference):
        sweeps: int = 3
        weight: float = 0.5
        notes: dict[str, Any] | None = None

    assert Own(np.int32(4)).sweeps == 4  # type: ignore[arg-type]
    for options in ({"sweeps": 2.5}, {"weight": "a"}, {"notes": 3}):
        with pytest.raises(SettingError, match="of Own"):
            Own(**options)  # type: ignore[arg-type]
