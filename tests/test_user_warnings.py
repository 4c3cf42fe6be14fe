"""Where a warning points, and what mistaken settings are told, in a process without type checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fresh_process import printed

import ppgp
from ppgp.conformal import Absolute
from ppgp.errors import DataError, SettingError
from ppgp.runtime.team import Team

#: a setting of another type than its annotation -> what the message says
SETTINGS = {
    "models.GP(mean='zero')": "write mean=0.0 for a mean of 0",
    "models.SVGP(mean='zero')": "write mean=0.0 for a mean of 0",
    "models.GP(noise='small')": "number for noise, got 'small'",
    "kernels.RBF(lengthscale=[1, 2.5])": "or ARD(RBF(lengthscale=(1, 2.5)))",
    "kernels.RBF(variance=[1.0])": "and otherwise one number",
    "inference.NUTS(chains=0)": "chains of NUTS, got 0: the default is 4",
    "inference.NUTS(warmup=-3)": "leave it out, and the method chooses it",
    "kernels.RBF()([[1.0]], [[1.0]])": "theta, {name: value}, first, got list",
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


def test_a_warning_in_a_pipeline_points_at_the_line_of_the_user(tmp_path: Path) -> None:
    said = printed(
        """
        import warnings, numpy as np, pandas as pd
        import ppgp
        frame = pd.DataFrame({"x": [1.0, np.nan, 3.0, 4.0], "y": [1.0, 2.0, 3.0, 5.0]})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame.pipe(ppgp.Dataset.from_frame, "y", missing="drop")
        print(*[(w.filename, w.lineno) for w in caught])
        """
    )
    assert " ".join(said) == "('<string>', 7)"


def test_a_level_and_a_dataset_are_refused_by_calibrate() -> None:
    prediction = ppgp.Prediction.from_points([0.0, 1.0, 2.0])
    with pytest.raises(SettingError, match=r"write calibrator\(prediction, level=0\.5\)"):
        ppgp.calibrate(Absolute(), prediction, [0.1, 1.2, 2.0], level=0.5)
    rows = ppgp.Dataset([[0.0], [1.0], [2.0]], [0.1, 1.2, 2.0])
    with pytest.raises(DataError, match=r"got a Dataset: pass its \.y"):
        ppgp.calibrate(Absolute(), prediction, rows)


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
    with pytest.raises(SettingError, match="a rank from 0 to size - 1, got rank 3 of 2"):
        Team(3, 2)
    with pytest.raises(SettingError, match="a whole number of at least 1 as size of a Team"):
        Team(0, 0)
