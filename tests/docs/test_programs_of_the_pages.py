"""The programs of the documentation run: ours, and those of other libraries that are installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from ppgp.recipes.members import members

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: page of docs/coming-from -> the package of the other library
PACKAGES = {
    "gpytorch": "gpytorch",
    "mapie": "mapie",
    "numpyro": "numpyro",
    "pyro": "pyro",
    "scikit-learn": "sklearn",
}
QUICK = {"installation"}
COMING_FROM = sorted((DOCS / "coming-from").glob("*.md"))
PAGES = sorted([*DOCS.glob("*.md"), *(DOCS / "guide").glob("*.md")])


def blocks(page: Path) -> list[str]:
    """Return the programs of a page, which run one after the other."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def programs(page: Path) -> dict[str, str]:
    """Return the programs of a page of two libraries: "ours", "theirs" and what both "share".

    A heading that begins with "In" says whose the blocks below it are.
    """
    found = {"ours": "", "theirs": "", "shared": ""}
    for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        whose = "shared"
        if section.startswith("In "):
            whose = "ours" if section.startswith("In ppgp") else "theirs"
        found[whose] += "\n".join(BLOCK.findall(section))
    return found


def run(code: str, folder: Path) -> None:
    """Run a program, which must end well and print something."""
    done = forked.run(code, cwd=folder, seconds=1500)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def of_page(page: Path) -> object:
    """Return a page as a parameter, slow unless its programs take less than a few seconds."""
    marks = () if page.stem in QUICK else (pytest.mark.slow,)
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.parametrize("page", [of_page(page) for page in PAGES if blocks(page)])
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path) -> None:
    code = "\n".join(blocks(page))
    if "wells.csv" in code:  # which a command of the page writes
        subprocess.run([sys.executable, str(DOCS / "wells.py")], cwd=tmp_path, check=True)
    run(code, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_our_program_runs(name: str, tmp_path: Path) -> None:
    found = programs(DOCS / "coming-from" / f"{name}.md")
    run(f"{found['shared']}\n{found['ours']}", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "package"), PACKAGES.items())
def test_the_program_of_the_other_library_runs(name: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    found = programs(DOCS / "coming-from" / f"{name}.md")
    run(f"{found['shared']}\n{found['theirs']}", tmp_path)


def test_every_page_of_two_libraries_has_a_program_of_each() -> None:
    assert {page.stem for page in COMING_FROM} == {"index", *PACKAGES}
    for name in PACKAGES:
        found = programs(DOCS / "coming-from" / f"{name}.md")
        assert found["ours"], name
        assert found["theirs"], name
        assert "ppgp" not in found["theirs"], name
        for program in found.values():
            compile(program, name, "exec")


def test_the_page_for_users_of_pyro_runs_what_takes_a_trained_guide() -> None:
    assert "ppgp.from_guide(" in programs(DOCS / "coming-from" / "pyro.md")["ours"]


@pytest.mark.parametrize("family", sorted(set(members()) - {"experiments"}))
def test_the_guide_names_every_member_of_a_family(family: str) -> None:
    pages = [DOCS / "choose.md", *(DOCS / "guide").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert not [name for name in members()[family] if not re.search(rf"\b{name}\b", text)]


def test_every_family_has_a_page_with_a_program() -> None:
    pages = sorted((DOCS / "guide").glob("*.md"))
    listed = (DOCS / "guide" / "index.md").read_text(encoding="utf-8")
    for page in pages:
        if page.stem != "index":
            assert blocks(page), page.name
            assert f"]({page.name})" in listed, page.name
