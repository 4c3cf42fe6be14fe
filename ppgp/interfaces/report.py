"""The report of ``ppgp compare``: a page, its figures, results.json and a NetCDF per posterior."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import files, plots
from ..data.dataset import Dataset
from ..diagnostics.comparison import Comparison
from ..errors import StorageError
from ..posterior.arviz import netcdf
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short

__all__ = ["rows_of", "write_report", "write_results"]

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}
th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
td.text{text-align:left}img{max-width:100%;margin:.5rem 0}.note{color:#666;font-size:13px}
"""


def rows_of(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
) -> list[dict[str, Any]]:
    """Return one flat record per posterior.

    A record holds the model, the method, whether the fit was interrupted, the numbers of the
    comparison with their verdicts and reasons, the guarantee, and the warnings.

    Args:
        comparison: The comparison of the posteriors.
        posteriors: The posteriors by name.
        names: The pair ``(model, method)`` of each posterior.
    """
    rows = []
    for label, values in comparison.to_frame().iterrows():
        name = str(label)
        model, how = names[name]
        region = comparison.regions.get(name)
        row: dict[str, Any] = {"model": model, "how": how}
        row["interrupted"] = cut_short(posteriors[name].stats)
        row |= {str(key): _json_value(value) for key, value in values.items()}
        row["guarantee"] = region.guarantee if region else None
        row["warnings"] = list(posteriors[name].warnings)
        rows.append(row)
    return rows


def _json_value(value: Any) -> Any:
    """Return a JSON value: NaN becomes None, and infinity, which JSON lacks, text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def write_results(out: Path, rows: list[dict[str, Any]], **about: Any) -> Path:
    """Write results.json and return its path.

    Args:
        out: The folder, which is made if it is missing.
        rows: One flat record per row of the printed table.
        **about: What was run.

    Raises:
        StorageError: If the file cannot be written.
    """
    return files.write(
        out / "results.json", json.dumps({**about, "rows": rows}, indent=2) + "\n", folder=True
    )


def write_report(
    out: str | Path,
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
    test: Dataset,
    **about: Any,
) -> tuple[Path, list[str]]:
    """Write the report.

    The smallest and most informative files come first, in case the disk fills up: results.json,
    the page without its figures, the figures, the page with them, the posteriors as NetCDF.

    Args:
        out: The folder of the report.
        comparison: The comparison of the posteriors.
        posteriors: The posteriors by name.
        names: The pair ``(model, method)`` of each posterior.
        test: The test rows, for the figures.
        **about: What was run, for the head of the page and results.json.

    Returns:
        The path of index.html, and one sentence per file that could not be written.
    """
    out = Path(out)
    page = out / "index.html"
    rows = rows_of(comparison, posteriors, names)
    problems: list[str] = []

    def attempt(write: Callable[[], object]) -> None:
        try:
            write()
        except StorageError as error:
            problems.append(str(error))

    attempt(lambda: write_results(out, rows, **about))
    attempt(lambda: files.write(page, _page(rows, about, [])))
    sections = []
    for slug, title, figure in _figures(comparison, posteriors, names, test):
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=130)
        attempt(partial(files.write, out / "figures" / f"{slug}.png", data.getvalue(), folder=True))
        picture = base64.b64encode(data.getvalue()).decode()
        alt = html.escape(title)
        sections.append(f'<h2>{alt}</h2><img alt="{alt}" src="data:image/png;base64,{picture}">')
    attempt(lambda: files.write(page, _page(rows, about, sections)))
    for name, posterior in posteriors.items():
        attempt(partial(_write_netcdf, out / f"{_slug(name)}.nc", posterior))
    return page, list(dict.fromkeys(problems))


def _write_netcdf(path: Path, posterior: Posterior) -> None:
    files.write(path, netcdf(posterior.to_arviz()))


def _slug(name: str) -> str:
    """Return the name as part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in name)


#: name of a file, title, figure
TitledFigure = tuple[str, str, Figure]


def _figures(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
    test: Dataset,
) -> list[TitledFigure]:
    """Return the figures of the report, in the order in which the page shows them."""
    figures: list[TitledFigure] = []
    if not comparison.sites.empty:
        title = "Approximations against NUTS"
        figures.append(("differences", title, plots.differences(comparison)))
    for model in dict.fromkeys(model for model, _ in names.values()):
        of_model = [name for name in names if names[name][0] == model]
        by_method = {
            names[name][1]: posterior
            for name, posterior in posteriors.items()
            if names[name][0] == model
        }
        if len(by_method) > 1:
            title = f"Marginals of {model}"
            figures.append((f"marginals-{_slug(model)}", title, plots.marginals(by_method)))
        # MCMC, if there is one, is the method to trust most, and represents the model
        shown = next((name for name in of_model if posteriors[name].mcmc), of_model[0])
        figures += _figures_of_one(comparison, shown, posteriors[shown], test)
    return figures


def _figures_of_one(
    comparison: Comparison, name: str, posterior: Posterior, test: Dataset
) -> list[TitledFigure]:
    """Return the figures of one posterior: its predictions of the test rows, and its chains."""
    figures: list[TitledFigure] = []
    slug = _slug(name)
    prediction = comparison.predictions[name]
    if prediction.kind == "classes":
        figure = plots.reliability(prediction, test.y)
        figures.append((f"reliability-{slug}", f"Reliability of {name}", figure))
    elif name in comparison.regions:
        region = comparison.regions[name]
        own = prediction.interval(region.level)
        figure = plots.intervals(prediction, test.y, region, own)
        title = f"Intervals of {name}, before and after calibration"
        figures.append((f"intervals-{slug}", title, figure))
    if posterior.mcmc:
        figures.append((f"trace-{slug}", f"Chains of {name}", plots.trace(posterior)))
    return figures


def _page(rows: list[dict[str, Any]], about: Mapping[str, Any], sections: list[str]) -> str:
    """Return the page as HTML that refers to no other file."""
    hidden = {"warnings", "guarantee"}
    if not any(row["interrupted"] for row in rows):
        hidden.add("interrupted")
    columns = [column for column in rows[0] if column not in hidden]
    head = "".join(f"<th>{html.escape(column.replace('_', ' '))}</th>" for column in columns)
    body = "".join(_line(row, columns) for row in rows)
    facts = "".join(
        f"<li>{html.escape(str(key))}: {html.escape(str(value))}</li>"
        for key, value in about.items()
    )
    guarantees = "".join(_item(row, row["guarantee"]) for row in rows if row["guarantee"])
    warned = "".join(_item(row, warning) for row in rows for warning in row["warnings"])
    if not guarantees:
        guarantees = "<li>nothing: no calibration rows</li>"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>ppgp report</title>",
        f"<style>{STYLE}</style></head><body><h1>ppgp compare</h1><ul>{facts}</ul>",
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        "<p class='note'>coverage and width: the model's own interval; conformal: after "
        "calibration on rows that are not training rows.</p>",
        f"<h2>What is guaranteed</h2><ul>{guarantees}</ul>",
    ]
    if warned:
        parts.append(f"<h2>Warnings</h2><ul>{warned}</ul>")
    return "".join([*parts, *sections, "</body></html>\n"])


def _item(row: Mapping[str, Any], text: str) -> str:
    """Return a list item about one posterior."""
    title = f"{html.escape(row['model'])} {html.escape(row['how'])}"
    return f"<li><b>{title}</b>: {html.escape(text)}</li>"


def _line(row: Mapping[str, Any], columns: list[str]) -> str:
    """Return a line of the table."""
    cells = "".join(_cell(row.get(column)) for column in columns)
    return f"<tr>{cells}</tr>"


def _cell(value: Any) -> str:
    """Return a cell of the table: numbers with four digits, anything else as text."""
    if isinstance(value, float):
        return f"<td>{value:.4g}</td>"
    if value is None:
        value = ""
    return f"<td class='text'>{html.escape(str(value))}</td>"
