"""Where a warning points, and what mistaken settings are told, in a process without type checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fresh_process import printed

import ppgp
from ppgp import models
from ppgp.errors import SettingError
from ppgp.numerics.team import Team

#: a setting of another type than its annotation -> what the message says
SETTINGS = {
    "models.GP(mean='zero')": "write mean=0.0 for a mean of 0",
    "models.SVGP(mean='zero')": "write mean=0.0 for a mean of 0",
    "models.GP(noise='small')": "number for noise, got 'small'",
    "kernels.RBF(lengthscale=[1, 2.5])": "write a tuple, (1.0, 2.5)",
    "inference.NUTS(chains=0)": "chains of NUTS, got 0: the default is 4",
    "kernels.RBF()({}, [[1.0]])": "a tensor [n, d] as X1, got list",
}


def test_a_warning_points_at_the_line_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n1,2\n,3\n4,5\n6,8\n")
    said = printed(
        f"""
        import warnings, ppgp
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ppgp.load({str(path)!r}, target="y", missing="drop")
        print(*[(w.filename, w.lineno, str(w.message)) for w in caught])
        """
    )
    assert " ".join(said).startswith("('<string>', 5, 'dropped 1 of 4 rows")


def test_what_a_setting_of_another_type_is_told() -> None:
    said = printed(
        f"""
        import json
        from ppgp import inference, kernels, models
        from ppgp.errors import SettingError
        said = []
        for setting in {list(SETTINGS)!r}:
            try:
                eval(setting)
            except SettingError as error:
                said.append(str(error))
        print(json.dumps(said))
        """
    )
    messages = json.loads(" ".join(said))
    for message, words in zip(messages, SETTINGS.values(), strict=True):
        assert words in message


def test_numbers_out_of_range() -> None:
    with pytest.raises(SettingError, match="at least 0 for noise, got -1: fix it at 0 or above"):
        models.GP(noise=-1)
    with pytest.raises(SettingError, match="a rank from 0 to size - 1, got rank 3 of 2"):
        Team(3, 2)


@pytest.mark.parametrize(("name", "place"), [("GP", "models"), ("NUTS", "inference")])
def test_the_place_of_a_class(name: str, place: str) -> None:
    with pytest.raises(AttributeError, match=rf"it is {re.escape(f'ppgp.{place}.{name}')}$"):
        getattr(ppgp, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'Nothing'$"):
        ppgp.Nothing
