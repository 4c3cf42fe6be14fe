"""Build every notebook: ``python -m notebooks.build`` runs each .py (jupytext percent) and writes the .ipynb beside it."""

from __future__ import annotations

import os
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from ppgp.files import write

FOLDER = Path(__file__).parent
DATA = Path(os.environ.get("PPGP_DATA", "../shared/data"))  # what notebooks that ship no data read


def build(source: Path) -> Path:
    """Execute one source; the notebook carries its outputs, and no metadata of the machine that ran it."""
    notebook = jupytext.read(source)
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"
        cell.get("metadata", {}).pop("execution", None)
        if "outputs" in cell:  # notices of the machine that ran it
            cell["outputs"] = [o for o in cell["outputs"] if o.get("name") != "stderr"]
    return write(source.with_suffix(".ipynb"), nbformat.writes(notebook).rstrip("\n") + "\n")


def main() -> None:
    for source in sorted(FOLDER.glob("[0-9]*.py")):
        if "PPGP_DATA" in source.read_text() and not DATA.is_dir():
            print(
                f"{source.name} skipped: it needs the data of {DATA}, a folder that PPGP_DATA names"
            )
        else:
            print(build(source))


if __name__ == "__main__":
    main()
