"""The bands of coverage that `ppgp calibrate` and the figure of coverage state."""

from __future__ import annotations

import pandas as pd
import torch
from matplotlib.figure import Figure

import ppgp
from ppgp import Dataset, Posterior, conformal, inference, models, plots
from ppgp.cli.score_comparison import ScoreComparison


def table(labels: bool, n: int = 120) -> pd.DataFrame:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    if labels:  # two places and labels: scores repeat
        x = (x > 0).double()
        y = (torch.rand(n, generator=generator) < 0.8).double()
    else:
        y = x + torch.randn(n, generator=generator, dtype=torch.float64)
    return pd.DataFrame({"x": x, "y": y})


def fitted(frame: pd.DataFrame, labels: bool) -> Posterior:
    model = models.LogisticRegression() if labels else models.LinearRegression()
    data = Dataset(frame[["x"]][:40], frame["y"][:40], target_name="y")
    return ppgp.fit(model, data, inference.MAP(), progress=False)


def bands(labels: bool, scores: list[str]) -> dict[str, str]:
    frame = table(labels)
    comparison = ScoreComparison(fitted(frame, labels), frame[40:], "y", None, 0)
    return {row["score"]: row["band"] for row in comparison.rows(scores, 0.8)}


def test_each_score_has_its_own_band() -> None:
    found = bands(False, ["absolute", "signed", "Quantile(widen_only=True)"])
    low, _, high = found.pop("absolute").partition(" .. ")
    assert 0.5 < float(low) < 0.8 < float(high) < 1
    assert set(found.values()) == {"-"}


def test_scores_that_tie_have_no_band() -> None:
    assert set(bands(True, ["lac"]).values()) == {"-"}


def labels_of(figure: Figure) -> list[str]:
    return figure.axes[0].get_legend_handles_labels()[1]


def test_the_figure_of_coverage_has_a_band_where_one_is_known() -> None:
    frame = table(False)
    posterior, y = fitted(frame, False), torch.tensor(frame["y"].tolist(), dtype=torch.float64)
    old, new = posterior.predict(frame[["x"]][40:80]), posterior.predict(frame[["x"]][80:])
    scores = {"absolute": conformal.Absolute(), "signed": conformal.Signed()}
    calibrators = {name: conformal.calibrate(s, old, y[40:80]) for name, s in scores.items()}
    shown = labels_of(plots.coverage(calibrators, new, y[80:]))
    band = "90% band of conformal\ncoverage, at each level"
    assert band in shown
    assert "signed (band not known)" in shown
    assert "absolute" in shown
    calibrators.pop("absolute")
    assert band not in labels_of(plots.coverage(calibrators, new, y[80:]))
