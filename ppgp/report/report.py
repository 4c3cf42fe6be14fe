"""The report of ``ppgp compare`` and ``ppgp report``.

It is a folder with a page, its figures, results.json and a NetCDF file per posterior.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from .. import files
from ..data.dataset import Dataset
from ..diagnostics.comparison import Comparison
from ..errors import StorageError
from ..posterior.arviz import netcdf
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from .report_figures import ReportFigure, figures_of, slug_of
from .report_html import figure, note, section
from .report_page import Content, page_of
from .results_file import rows_of, write_results

__all__ = ["saved_if_it_fails", "write_report"]

DPI = 150  # of figures


def write_report(
    out: str | Path,
    comparison: Comparison,
    posteriors: Mapping[str, Posterior | Average],
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
        The path of index.html, and one sentence per file that could not be written or drawn.
    """
    out = Path(out)
    page = out / "index.html"
    content = Content(title, about, comparison, posteriors, names, test.n)
    problems: list[str] = []

    def attempt(path: Path, write: Callable[[], object]) -> None:
        try:
            write()
        except StorageError as error:
            problems.append(str(error))
        except Exception as error:  # the fits took minutes, and the other files show them
            problems.append(f"{path.name}: {type(error).__name__}: {error}")

    rows = rows_of(comparison, posteriors, names)
    attempt(out / "results.json", lambda: write_results(out, rows, **about))
    attempt(page, lambda: files.write(page, page_of(content, [])))
    pictures: list[tuple[ReportFigure, str]] = []
    for one in figures_of(comparison, posteriors, names, test, problems):
        path = out / "figures" / f"{one.slug}.png"
        attempt(path, partial(_write_figure, path, one, pictures))
    attempt(page, lambda: files.write(page, page_of(content, _sections(pictures))))
    for name, posterior in _one_by_one(posteriors):
        path = out / f"{slug_of(name)}.nc"
        attempt(path, partial(_write_netcdf, path, posterior))
    return page, list(dict.fromkeys(problems))


def _one_by_one(
    posteriors: Mapping[str, Posterior | Average],
) -> Iterator[tuple[str, Posterior]]:
    """Yield the posteriors by name, and in place of an average those that it predicts with."""
    for name, one in posteriors.items():
        if isinstance(one, Average):
            for part, posterior in one.used().items():
                yield f"{name} {part}", posterior
        else:
            yield name, one


@contextmanager
def saved_if_it_fails(out: Path, posteriors: Mapping[str, Posterior | Average]) -> Iterator[None]:
    """Save the posteriors in a folder if the work inside fails, and raise its error.

    ``ppgp report`` takes the files. After Ctrl-C they are saved as well.
    """
    try:
        yield
    except BaseException:
        for name, posterior in posteriors.items():
            try:
                out.mkdir(parents=True, exist_ok=True)
                path = posterior.save(out / f"{slug_of(name)}.safetensors")
                typer.echo(f"saved, for `ppgp report`: {path}", err=True)
            except Exception as error:  # the others are saved all the same
                typer.echo(f"not saved: {name}: {error}", err=True)
        raise


def _write_figure(path: Path, one: ReportFigure, pictures: list[tuple[ReportFigure, str]]) -> None:
    """Write the file of a figure, and add its picture in base 64 to those of the page."""
    data = io.BytesIO()
    one.figure.savefig(data, format="png", dpi=DPI)
    pictures.append((one, base64.b64encode(data.getvalue()).decode()))
    files.write(path, data.getvalue(), folder=True)


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
