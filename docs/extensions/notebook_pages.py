"""Copies of the notebooks below ``docs/notebooks``: Sphinx reads pages of its own folder alone."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def copy_notebooks(app: Sphinx) -> None:
    """Copy the notebooks that changed, and remove copies of those that are gone."""
    folder = Path(app.srcdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    sources = {path.name: path.read_bytes() for path in NOTEBOOKS.glob("[0-9]*.ipynb")}
    for copy in folder.glob("*.ipynb"):
        if copy.name not in sources:
            copy.unlink()
    for name, content in sources.items():
        copy = folder / name
        if not copy.exists() or copy.read_bytes() != content:
            copy.write_bytes(content)


def setup(app: Sphinx) -> dict[str, bool]:
    """Copy before Sphinx looks for pages."""
    app.connect("builder-inited", copy_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
