"""The report of ``ppgp compare``: a page, its figures, results.json and a NetCDF per posterior."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .. import files
from ..data.dataset import Dataset
from ..diagnostics.comparison import Comparison
from ..errors import StorageError
from ..posterior.arviz import netcdf
from ..posterior.posterior import Posterior
from .report_figures import figures_of, slug_of
from .report_page import page_of
from .results_file import rows_of, write_results

__all__ = ["write_report"]


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
    attempt(lambda: files.write(page, page_of(rows, about, [])))
    sections = []
    for slug, title, figure in figures_of(comparison, posteriors, names, test):
        data = io.BytesIO()
        figure.savefig(data, format="png", dpi=130)
        attempt(partial(files.write, out / "figures" / f"{slug}.png", data.getvalue(), folder=True))
        picture = base64.b64encode(data.getvalue()).decode()
        alt = html.escape(title)
        sections.append(f'<h2>{alt}</h2><img alt="{alt}" src="data:image/png;base64,{picture}">')
    attempt(lambda: files.write(page, page_of(rows, about, sections)))
    for name, posterior in posteriors.items():
        attempt(partial(_write_netcdf, out / f"{slug_of(name)}.nc", posterior))
    return page, list(dict.fromkeys(problems))


def _write_netcdf(path: Path, posterior: Posterior) -> None:
    files.write(path, netcdf(posterior.to_arviz()))
