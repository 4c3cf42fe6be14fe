"""What the page of the report says of verdicts, ranking, coverage, guarantees and convergence."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom
from small_reports import LEVEL, compared, fits, pairs_of, parts

import ppgp
from ppgp import Posterior, inference, models
from ppgp.diagnostics import verdicts
from ppgp.diagnostics.comparison import Comparison, compare
from ppgp.report import report, results_file
from ppgp.report.report_figures import figures_of
from ppgp.report.report_html import number
from ppgp.report.report_page import Content, page_of
from ppgp.report.report_verdicts import DIFFER, FAITHFUL, use_of
from tests.plots.legible import problems_of


@pytest.fixture(scope="module")
def posteriors() -> dict[str, Posterior]:
    return fits(parts()[0], diverging=3)


@pytest.fixture(scope="module")
def comparison(posteriors: dict[str, Posterior]) -> Comparison:
    return compared(posteriors)


def page(comparison: Comparison, posteriors: dict[str, Posterior]) -> str:
    pairs = pairs_of(posteriors)
    about = {"data": "a & b <c>", "level": LEVEL}
    return page_of(Content("ppgp compare", about, comparison, posteriors, pairs, 50), [])


@pytest.fixture(scope="module")
def source(comparison: Comparison, posteriors: dict[str, Posterior]) -> str:
    return page(comparison, posteriors)


def table(source: str, title: str) -> dict[str, dict[str, str]]:
    """Return ``{posterior: {heading: text}}`` of the table of a section."""
    section = source.partition(f"<h2>{title}")[2].partition("</section>")[0]
    body = section.partition("<tbody>")[2].partition("</tbody>")[0]
    found = {}
    for row in body.split("</tr>")[:-1]:
        cells = re.findall(r"data-label='(.*?)' data-key='.*?'><div>(.*?)</div>", row)
        (_, name), *others = cells
        found[name] = {label: html.unescape(re.sub("<.*?>", " ", text)) for label, text in others}
    return found


def test_each_verdict_has_the_answer_of_its_question(source: str, comparison: Comparison) -> None:
    shown = table(source, "Verdict")
    assert set(shown) == set(comparison.verdicts)
    for name, cells in shown.items():
        faithful, _ = FAITHFUL[comparison.verdicts[name]]
        differ, _ = DIFFER[comparison.predictive_verdicts[name]]
        assert faithful in cells["Is the posterior faithful?"]
        reason = comparison.reasons[name].replace("+-", "±")
        assert reason in cells["Is the posterior faithful?"]
        assert differ in cells["Do the predictions differ?"]
        assert comparison.predictive_reasons[name] in cells["Do the predictions differ?"]
    assert comparison.verdicts["line nuts"] == "reference"
    assert comparison.verdicts["flat map"] == "unjudged"
    assert source.index("<h2>Verdict") < source.index("<h2>Ranking")
    assert "<p>Reference, to which the others are compared: line nuts.</p>" in source
    assert "<dt>methods</dt><dd>nuts, laplace, map</dd>" in source


def test_every_word_has_answers() -> None:
    words = {*verdicts.SEVERITY, verdicts.UNJUDGED, verdicts.REFERENCE}
    assert set(FAITHFUL) == set(DIFFER) == words


@pytest.mark.parametrize(
    ("faithful", "differ", "use", "avoid"),
    [
        ("agrees", "agrees", "its hyperparameters and its predictions", ""),
        ("do not use", "agrees", "its predictions", "its hyperparameters"),
        ("do not use", "do not use", "", "its hyperparameters or its predictions"),
        (
            "means agree, spread does not",
            "means agree, spread does not",
            "means of its hyperparameters and means of its predictions",
            "their spread or its own intervals",
        ),
        ("unjudged", "unjudged", "", ""),
        ("agrees", None, "its hyperparameters", ""),
    ],
)
def test_what_a_posterior_may_be_used_for(
    faithful: str, differ: str | None, use: str, avoid: str
) -> None:
    assert use_of(faithful, differ) == (use, avoid)


def test_the_ranking_says_which_differences_are_noise(source: str, comparison: Comparison) -> None:
    shown = table(source, "Ranking")
    ranking = comparison.ranking
    assert ranking is not None
    assert list(shown) == list(ranking.index)
    assert "worse" in shown["flat map"]["Conclusion"]
    of_both = shown["line map"]["Conclusion"] + shown["line nuts"]["Conclusion"]
    assert "as good as the best" in of_both
    for name, row in ranking.iterrows():
        numbers = f"{row['elpd_difference']:.2f} ± {row['elpd_difference_se']:.2f}"
        assert shown[str(name)]["Difference from the best"] == numbers
        assert float(shown[str(name)]["elpd"]) == pytest.approx(row["elpd"], abs=0.006)
    assert "worse: flat map." in source


def test_posteriors_of_one_model_are_not_ranked(posteriors: dict[str, Posterior]) -> None:
    of_one = {name: one for name, one in posteriors.items() if name != "flat map"}
    found = page(compared(of_one), of_one)
    assert "All posteriors are of one model" in found


def test_the_band_is_that_of_the_share_of_covered_test_rows(
    source: str, comparison: Comparison
) -> None:
    """The share is binomial, given a coverage whose distribution is Beta(k, n + 1 - k)."""
    n, rows = 40, 50
    k = math.ceil((n + 1) * LEVEL)
    grid = (np.arange(20_000) + 0.5) / 20_000
    weights = beta.pdf(grid, k, n + 1 - k) / 20_000
    mass = binom.pmf(np.arange(rows + 1)[:, None], rows, grid) @ weights
    below = mass.cumsum()
    expected = tuple(int(np.searchsorted(below, share)) / rows for share in (0.05, 0.95))
    assert set(comparison.coverage_bands) == set(comparison.regions)
    for band in comparison.coverage_bands.values():
        assert band == pytest.approx(expected)
    low, high = expected
    shown = table(source, "Coverage")
    for name, cells in shown.items():
        covered = comparison.predictive["conformal_coverage"][name]
        place = "inside" if low <= covered <= high else "outside"
        assert cells["Band for 50 test rows"] == f"{low:.3f} to {high:.3f}, {place}"


def test_coverage_lies_in_the_band_as_often_as_it_says(comparison: Comparison) -> None:
    n, rows, splits = 40, 50, 4000
    generator = torch.Generator().manual_seed(0)
    k = math.ceil((n + 1) * LEVEL)
    scores = torch.rand(splits, n + rows, generator=generator)
    threshold = scores[:, :n].sort(1).values[:, k - 1 : k]
    covered = (scores[:, n:] <= threshold).double().mean(1)
    low, high = comparison.coverage_bands["line map"]
    inside = float(((covered >= low - 1e-9) & (covered <= high + 1e-9)).double().mean())
    below, above = (float(share.double().mean()) for share in (covered < low, covered > high))
    assert 0.9 <= inside < 0.96
    assert max(below, above) <= 0.055


def test_no_band_where_the_guarantee_is_heuristic(posteriors: dict[str, Posterior]) -> None:
    _, calibration, _ = parts()
    with pytest.warns(match="calibration rows"):
        found = compare(posteriors, test=calibration, calibration=calibration, level=LEVEL)
    assert found.coverage_bands == {}
    shown = table(page(found, posteriors), "Coverage")
    assert {cells["Band for 50 test rows"] for cells in shown.values()} == {"not known"}


def test_a_guarantee_is_stated_once(source: str, comparison: Comparison) -> None:
    sentence = html.escape(comparison.regions["line map"].guarantee)
    assert source.count(sentence) == 1
    assert f"{sentence} <span class='about'>(all posteriors)" in source


def test_guarantees_that_differ_name_their_posteriors(
    posteriors: dict[str, Posterior], comparison: Comparison
) -> None:
    other = replace(comparison.regions["line map"], guarantee="heuristic: as I say")
    changed = replace(comparison, regions={**comparison.regions, "line map": other})
    found = page(changed, posteriors)
    assert "heuristic: as I say <span class='about'>(line map)" in found
    assert "(all posteriors)" not in found


def test_without_calibration_rows_nothing_is_guaranteed(posteriors: dict[str, Posterior]) -> None:
    found = page(compared(posteriors, calibrated=False), posteriors)
    assert "Nothing is guaranteed" in found
    assert "Conformal coverage" not in found


def test_convergence_is_stated_where_it_has_a_meaning(source: str) -> None:
    shown = table(source, "Convergence")
    chains, point = shown["line nuts"], shown["line map"]
    assert chains["Draws"] == "4 chains of 500"
    assert 0.99 < float(chains["Largest R-hat"]) < 1.01
    assert 1000 < float(chains["Least bulk ESS"]) < 4000
    assert chains["Divergences"].split() == ["✗", "3", "(0.1%)"]
    assert not chains["k-hat"]
    assert re.fullmatch(r"-?\d\.\d\d \(limit 0\.\d\d\)", shown["line laplace"]["k-hat"])
    assert point["Draws"] == "a point"
    assert not any(point[name] for name in ("Largest R-hat", "Divergences", "k-hat"))


def test_chains_that_disagree_are_marked(
    posteriors: dict[str, Posterior], comparison: Comparison
) -> None:
    chains = posteriors["line nuts"]
    apart = {name: value.clone() for name, value in chains.draws.items()}
    apart["noise"][0] += 5
    found = page(comparison, {**posteriors, "line nuts": replace(chains, draws=apart)})
    cell = table(found, "Convergence")["line nuts"]["Largest R-hat"]
    assert cell.strip().startswith("✗")
    assert cell.endswith("of noise ")


def test_a_warning_is_stated_once_with_its_posteriors(
    posteriors: dict[str, Posterior], comparison: Comparison
) -> None:
    warned = {
        name: replace(one, warnings=("the search ended early",)) if "map" in name else one
        for name, one in posteriors.items()
    }
    found = page(comparison, warned)
    assert found.count("the search ended early") == 1
    assert "<h2>Warnings" in found


def test_the_page_refers_to_nothing_else(source: str) -> None:
    assert "a &amp; b &lt;c&gt;" in source
    assert "name='viewport'" in source
    assert "default-src 'none'" in source
    assert not re.search(r"(src|href)=['\"](?!data:)", source)
    assert "http:" not in source
    assert "https:" not in source


def test_classes_have_accuracy_and_label_sets_but_no_intervals_of_their_own() -> None:
    labelled = [replace(part, y=(part.y > 0).double()) for part in parts()]
    train, calibration, test = labelled
    point = ppgp.fit(models.LogisticRegression(), train, inference.MAP(), progress=False)
    of_classes = {"logistic map": point}
    found = compare(of_classes, test=test, calibration=calibration, level=LEVEL)
    source = page(found, of_classes)
    errors = table(source, "Errors")["logistic map"]
    assert float(errors["Accuracy"]) == pytest.approx(found.predictive["accuracy"].iloc[0])
    assert "RMSE" not in errors
    coverage = table(source, "Coverage")["logistic map"]
    expected = found.predictive["conformal_coverage"].iloc[0]
    assert float(coverage["Conformal coverage"].strip("✓≈ ")) == pytest.approx(expected, abs=6e-4)
    assert "Coverage of its own intervals" not in coverage
    assert "No posterior is judged here" in source


@pytest.mark.parametrize(
    ("value", "shown"),
    [(53.1, "53.10"), (1234.0, "1234"), (0.5, "0.5000"), (123456.0, "1.235e+05"), (0.0, "0.000")],
)
def test_numbers_have_four_digits(value: float, shown: str) -> None:
    assert number(value).content == shown


def test_the_text_of_each_figure_can_be_read(
    comparison: Comparison, posteriors: dict[str, Posterior]
) -> None:
    figures = figures_of(comparison, posteriors, pairs_of(posteriors), parts()[2], [])
    assert {one.slug: problems_of(one.figure) for one in figures if problems_of(one.figure)} == {}
    captions = {one.slug: one.caption for one in figures}
    assert captions["intervals-line-nuts"].endswith("those of 2 other posteriors of this model.")
    assert "Not shown" not in captions["intervals-flat-map"]
    marginals = next(one.figure for one in figures if one.slug == "marginals-line")
    words = [text.get_text() for text in marginals.legends[0].get_texts()]
    assert words == ["nuts", "laplace", "map"]


@pytest.mark.parametrize(
    ("value", "key"), [(2.5, "2.5"), (-math.inf, "-Infinity"), (math.nan, ""), (None, "")]
)
def test_numbers_sort_as_in_javascript(value: float | None, key: str) -> None:
    assert number(value).key == key


def test_a_report_lacks_only_the_parts_that_fail(
    tmp_path: Path,
    posteriors: dict[str, Posterior],
    comparison: Comparison,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Minutes of sampling were lost to the first figure that raised."""

    def fail(*_: object, **__: object) -> None:
        raise AttributeError("module has no attribute 'x'")

    monkeypatch.setattr(ppgp.plots, "trace", fail)
    monkeypatch.setattr(report, "netcdf", fail)
    names = pairs_of(posteriors)
    *_, test = parts()
    path, problems = report.write_report(tmp_path, comparison, posteriors, names, test)
    why = "AttributeError: module has no attribute 'x'"
    of_files = [f"{name.replace(' ', '-')}.nc: {why}" for name in posteriors]
    assert problems == [f"chains of line nuts: {why}", *of_files]
    page = path.read_text()
    assert "<h2>Marginals" in page
    assert "<h2>Chains" not in page
    assert not (tmp_path / "figures" / "trace-line-nuts.png").exists()


def test_posteriors_are_saved_if_the_comparison_fails(
    tmp_path: Path, posteriors: dict[str, Posterior], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made"
    with pytest.raises(ZeroDivisionError), report.saved_if_it_fails(folder, posteriors):
        1 / 0
    for name, posterior in posteriors.items():
        saved = ppgp.load_posterior(folder / f"{name.replace(' ', '-')}.safetensors")
        assert torch.equal(saved.draws["bias"], posterior.draws["bias"])
    assert capsys.readouterr().err.count("saved, for `ppgp report`: ") == len(posteriors)
    with report.saved_if_it_fails(tmp_path / "none", posteriors):
        pass
    assert not (tmp_path / "none").exists()


def test_results_hold_the_band(
    tmp_path: Path, posteriors: dict[str, Posterior], comparison: Comparison
) -> None:
    rows = results_file.rows_of(comparison, posteriors, pairs_of(posteriors))
    results_file.write_results(tmp_path, rows)
    found = json.loads((tmp_path / "results.json").read_text())["rows"]
    for row in found:
        name = f"{row['model']} {row['how']}"
        assert tuple(row["conformal_band"]) == comparison.coverage_bands[name]
        assert "posterior" not in row
