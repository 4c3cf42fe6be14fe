"""The site of the documentation builds without a warning, and needs no network to be read."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
import site_pages
from browser import BROWSER, BROWSERS, chromium

import ppgp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NEEDED = ("sphinx", "pydata_sphinx_theme", "myst_nb", "sphinx_copybutton")
READ = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "notebooks")
NAMES: dict[str, Any] = runpy.run_path(str(DOCS / "extensions" / "public_names.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from a copy of what it reads, with warnings as errors."""
    for name in NEEDED:
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("site")
    ignored = shutil.ignore_patterns("build", "__pycache__", "ppgp.*.rst")
    for name in READ:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder)
    arguments = ["-W", "--keep-going", "-q", "-b", "html", "docs", "html"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def inventory(file: Path) -> set[str]:
    """Return the names of the Python objects in an inventory of Sphinx."""
    content = file.read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(content).decode().splitlines()
    return {line.split()[0] for line in lines if line.split()[1].startswith("py:")}


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    names = NAMES["public_names"]()
    assert len(names) > 200
    assert not set(names) - inventory(site / "objects.inv")


@pytest.mark.slow
def test_no_link_within_the_site_is_dead(site: Path) -> None:
    pages = site_pages.read_pages(site)
    assert len(pages) > 250
    assert not site_pages.dead_links(pages)


@pytest.mark.slow
def test_a_page_requests_nothing_of_another_server(site: Path) -> None:
    assert not site_pages.requests_to_others(site, site_pages.read_pages(site))


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is installed")
def test_the_search_works_from_the_disk(site: Path, tmp_path: Path) -> None:
    """It finds the page of a model, and asks no server: none can be found here."""
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    done = chromium(site / "search.html", tmp_path, "--dump-dom", offline, query="?q=kriging")
    assert 'href="api/ppgp.models.Kriging.html' in done.stdout
    assert not re.findall(r"CONSOLE.*(?:Uncaught|Failed|blocked|ERR_).*", done.stderr)


@pytest.mark.slow
def test_the_site_has_every_notebook_and_program_of_the_gallery(site: Path) -> None:
    for notebook in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").is_file()
    page = site_pages.read_pages(site)[(site / "gallery.html").resolve()]
    for program in (ROOT / "notebooks" / "gallery").glob("[0-9]*.py"):
        assert program.stem.partition("_")[2].replace("_", "-") in page.ids


@pytest.mark.slow
def test_formulas_are_mathml(site: Path) -> None:
    text = (site / "notation.html").read_text(encoding="utf-8")
    assert text.count("<math") > 10
    assert "MathJax" not in text


def test_requests_and_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<head><script src="https://cdn.test/a.js"></script>'
        '<link rel="stylesheet" href="//b/c.css">'
        '<link rel="canonical" href="https://own.test"><style>@import "https://d/e.css";</style>'
        '</head><img src="figure.png"><a href="b.html">b</a><a href="b.html#place">p</a>'
        '<a href="b.html#none">n</a><a href="c.html">c</a><a href="https://test">t</a>'
    )
    (tmp_path / "b.html").write_text('<p id="place"></p>')
    (tmp_path / "f.css").write_text("@font-face { src: url('https://fonts.test/f.woff2'); }")
    (tmp_path / "g.js").write_text('load("https://cdn.jsdelivr.net/x")')
    pages = site_pages.read_pages(tmp_path)
    assert site_pages.dead_links(pages) == ["a.html: b.html#none", "a.html: c.html"]
    found = site_pages.requests_to_others(tmp_path, pages)
    assert [one.partition(": ")[2] for one in found] == [
        "https://cdn.test/a.js",
        "//b/c.css",
        "https://fonts.test/f.woff2",
        "https://cdn.jsdelivr.net",
        "https://d/e.css",
    ]


def test_the_reference_lists_the_names_of_the_package() -> None:
    listed = re.findall(r"^   (\w+)$", (DOCS / "api" / "ppgp.md").read_text(), re.MULTILINE)
    modules = re.findall(r"^   ppgp\.(\w+)$", (DOCS / "api" / "index.md").read_text(), re.MULTILINE)
    assert sorted([*listed, *modules]) == sorted(ppgp.__all__)


def test_the_page_of_the_installation_names_every_extra() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    page = (DOCS / "installation.md").read_text(encoding="utf-8")
    for extra in settings["project"]["optional-dependencies"]:
        assert f"`{extra}`" in page
