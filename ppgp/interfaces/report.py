"""The report of ``ppgp compare`` and ``ppgp report``.

It is a folder with a page, its figures, results.json and a NetCDF file per posterior.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from .. import files
from ..data.dataset import Dataset
from ..diagnostics.comparison import Comparison
from ..errors import StorageError
from ..posterior.arviz import netcdf
from ..posterior.posterior import Posterior
from .report_figures import ReportFigure, figures_of, slug_of
from .report_html import figure, note, section
from .report_page import Content, page_of
from .results_file import rows_of, write_results

__all__ = ["write_report"]

DPI = 150  # of figures


def write_report(
    out: str | Path,
    comparison: Comparison,
    posteriors: Mapping[str, Posterior],
    names: Mapping[str, tuple[str, str]],
    test: Dataset,
    title: str = "ppgp compare",
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
        title: The title of the page.
        **about: What was run, for the head of the page and results.json.

    Returns:
        The path of index.html, and one sentence per file that could not be written.
    """
    out = Path(out)
    page = out / "index.html"
    content = Content(title, about, comparison, posteriors, names, test.n)
    problems: list[str] = []

    def attempt(write: Callable[[], object]) -> None:
        try:
            write()
        except StorageError as error:
            problems.append(str(error))

    rows = rows_of(comparison, posteriors, names)
    attempt(lambda: write_results(out, rows, **about))
    attempt(lambda: files.write(page, page_of(content, [])))
    pictures: list[tuple[ReportFigure, str]] = []
    for one in figures_of(comparison, posteriors, names, test):
        data = io.BytesIO()
        one.figure.savefig(data, format="png", dpi=DPI)
        place = out / "figures" / f"{one.slug}.png"
        attempt(partial(files.write, place, data.getvalue(), folder=True))
        pictures.append((one, base64.b64encode(data.getvalue()).decode()))
    attempt(lambda: files.write(page, page_of(content, _sections(pictures))))
    for name, posterior in posteriors.items():
        attempt(partial(_write_netcdf, out / f"{slug_of(name)}.nc", posterior))
    return page, list(dict.fromkeys(problems))


def _sections(pictures: list[tuple[ReportFigure, str]]) -> list[str]:
    """Return one section of the page per group of figures, each a picture in base 64.

    A group of small figures has one caption.
    """
    sections = []
    for title, group in groupby(pictures, key=lambda pair: pair[0].section):
        of_section = list(group)
        first, _ = of_section[0]
        kind, below = "figures", ""
        if first.small:
            kind, below = "figures small", note(first.caption)
        parts = "".join(
            figure(one.title, "" if one.small else one.caption, picture)
            for one, picture in of_section
        )
        sections.append(section(title, f"<div class='{kind}'>{parts}</div>", below))
    return sections


def _write_netcdf(path: Path, posterior: Posterior) -> None:
    files.write(path, netcdf(posterior.to_arviz()))
