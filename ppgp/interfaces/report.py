"""report: a folder with a page that opens by itself, its figures, results.json and one NetCDF a posterior."""

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
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}
th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left}
td.text{text-align:left}img{max-width:100%;margin:.5rem 0}.note{color:#666;font-size:13px}
"""


def rows_of(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
) -> list[dict[str, Any]]:
    """One flat record a posterior: model, how, interrupted, figures, seconds, verdict, reason, guarantee, warnings."""
    rows = []
    for name, figures in comparison.to_frame().iterrows():
        model, how = names[str(name)]
        region = comparison.regions.get(str(name))
        rows.append(
            {"model": model, "how": how, "interrupted": cut_short(posteriors[str(name)].stats)}
            | {str(k): _plain(v) for k, v in figures.items()}
            | {
                "guarantee": region.guarantee if region else None,
                "warnings": list(posteriors[str(name)].warnings),
            }
        )
    return rows


def _plain(value: Any) -> Any:
    """A JSON value; infinity, which JSON lacks, as text."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def write_results(out: Path, rows: list[dict[str, Any]], **about: Any) -> Path:
    """results.json: what was run, and ``rows``, one flat record for each row of the printed table."""
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
    """Write the folder; returns the path of index.html, and a sentence for each file that could not be written.

    The smallest and most telling files come first: results.json, the page without its pictures, the pictures, the page with
    them, the posteriors.

    Args:
        names: ``{posterior: (model, how)}``.
        about: what was run, for the head of the page and results.json.
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
        attempt(
            lambda name=name, posterior=posterior: _write_netcdf(
                out / f"{_slug(name)}.nc", posterior
            )
        )
    return page, list(dict.fromkeys(problems))


def _write_netcdf(path: Path, posterior: Posterior) -> None:
    files.write(path, netcdf(posterior.to_arviz()))


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def _figures(
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
    test: Dataset,
) -> list[tuple[str, str, Figure]]:
    figures: list[tuple[str, str, Figure]] = []
    if not comparison.latents.empty:
        figures.append(
            ("differences", "Approximations against NUTS", plots.differences(comparison))
        )
    for model in dict.fromkeys(m for m, _ in names.values()):
        mine = {names[n][1]: p for n, p in posteriors.items() if names[n][0] == model}
        if len(mine) > 1:
            figures.append(
                (f"marginals-{_slug(model)}", f"Marginals of {model}", plots.marginals(mine))
            )
        # the method to trust most stands for the model
        name = next(
            (n for n in names if names[n][0] == model and posteriors[n].mcmc),
            next(n for n in names if names[n][0] == model),
        )
        prediction = comparison.predictions[name]
        if prediction.kind == "classes":
            figures.append(
                (
                    f"reliability-{_slug(name)}",
                    f"Reliability of {name}",
                    plots.reliability(prediction, test.y),
                )
            )
        elif name in comparison.regions:
            region = comparison.regions[name]
            figure = plots.intervals(prediction, test.y, region, prediction.interval(region.level))
            figures.append(
                (
                    f"intervals-{_slug(name)}",
                    f"Intervals of {name}, before and after calibration",
                    figure,
                )
            )
        if posteriors[name].mcmc:
            figures.append(
                (f"trace-{_slug(name)}", f"Chains of {name}", plots.trace(posteriors[name]))
            )
    return figures


def _page(rows: list[dict[str, Any]], about: Mapping[str, Any], sections: list[str]) -> str:
    hidden = {"warnings", "guarantee"} | (
        set() if any(row["interrupted"] for row in rows) else {"interrupted"}
    )
    columns = [c for c in rows[0] if c not in hidden]
    head = "".join(f"<th>{html.escape(c.replace('_', ' '))}</th>" for c in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(c)) for c in columns) + "</tr>" for row in rows)
    said = "".join(
        f"<li>{html.escape(str(k))}: {html.escape(str(v))}</li>" for k, v in about.items()
    )
    guarantees = "".join(
        f"<li><b>{html.escape(row['model'])} {html.escape(row['how'])}</b>: {html.escape(row['guarantee'])}</li>"
        for row in rows
        if row["guarantee"]
    )
    problems = "".join(
        f"<li><b>{html.escape(r['model'])} {html.escape(r['how'])}</b>: {html.escape(w)}</li>"
        for r in rows
        for w in r["warnings"]
    )
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>ppgp report</title>",
        f"<style>{STYLE}</style></head><body><h1>ppgp compare</h1><ul>{said}</ul>",
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        "<p class='note'>coverage and width: the model's own interval; conformal: after calibration on rows that no fit has seen.</p>",
        f"<h2>What is guaranteed</h2><ul>{guarantees or '<li>nothing: no calibration rows</li>'}</ul>",
        f"<h2>Warnings</h2><ul>{problems}</ul>" if problems else "",
        *sections,
        "</body></html>\n",
    ]
    return "".join(parts)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"<td>{value:.4g}</td>"
    return f"<td class='text'>{html.escape('' if value is None else str(value))}</td>"
