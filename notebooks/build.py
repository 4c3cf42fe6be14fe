"""Build the notebooks: run each .py (jupytext's percent format) and write its .ipynb beside it.

``python -m notebooks.build`` builds all of them, ``python -m notebooks.build 01_quickstart`` one.
A notebook that reads a published data set is built only where the set is there (docs/data.md), so
that its stored outputs are never those of simulated rows.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

from ppgp import errors
from ppgp.files import write

FOLDER = Path(__file__).parent
DATA = Path(os.environ.get("PPGP_DATA") or FOLDER.parent / "data").absolute()
#: notebooks that read a published data set -> its file
READERS = {
    "02_gaussian_processes": "bike/day.csv",
    "03_kriging": "kriging/meuse.csv",
    "13_shift": "beijing_air/beijing_air_clean.npz",
}
#: the names of the library's own warnings
WARNINGS = [
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.PpgpWarning)
]
WIDTH = 100  # characters of a line of a warning


def own_warnings(text: str) -> str:
    """Return the library's warnings in this standard error, without the place of the call.

    Each sentence is there once: how often Python repeats it depends on what ran before. Progress
    bars and notices of the machine are left out.
    """
    found = re.findall(rf"^.*:\d+: ((?:{'|'.join(WARNINGS)}): .*)$", text, re.MULTILINE)
    once = dict.fromkeys(found)
    return "".join(textwrap.fill(one, WIDTH, break_on_hyphens=False) + "\n" for one in once)


def shown(outputs: list[Any]) -> list[Any]:
    """Return the outputs of a cell that its notebook stores."""
    for output in outputs:
        if output.get("name") == "stderr":
            output["text"] = own_warnings(output["text"])
    return [output for output in outputs if output.get("name") != "stderr" or output["text"]]


def build(source: Path) -> Path:
    """Run one source and return the path of its notebook, which has no metadata of the machine."""
    notebook = jupytext.read(source)
    client = NotebookClient(notebook, timeout=900, kernel_name="python3", coalesce_streams=True)
    client.execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{index}"
        cell.get("metadata", {}).pop("execution", None)
        if "outputs" in cell:
            cell["outputs"] = shown(cell["outputs"])
    return write(source.with_suffix(".ipynb"), nbformat.writes(notebook).rstrip("\n") + "\n")


def sources(names: list[str]) -> list[Path]:
    """Return the sources of these names, or of all notebooks if no name is given.

    Raises:
        SettingError: If there is no notebook of a name.
    """
    found = {path.stem: path for path in sorted(FOLDER.glob("[0-9]*.py"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        do = f"pass some of {', '.join(found)}"
        raise errors.SettingError("names of notebooks", ", ".join(unknown), do)
    return [found[name] for name in names or found]


def main(names: list[str]) -> None:
    """Build the notebooks whose data set is there, and name those that are skipped."""
    os.environ["PPGP_DATA"] = str(DATA)  # the kernels inherit it
    for source in sources(names):
        file = READERS.get(source.stem)
        if file is not None and not (DATA / file).is_file():
            print(f"{source.name} skipped: {DATA} has no {file} (docs/data.md)")
        else:
            print(build(source))


if __name__ == "__main__":
    main(sys.argv[1:])
