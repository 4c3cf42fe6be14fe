"""The report in a browser: nothing is wider than the page, no error, no request, tables sort."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import BROWSER, BROWSERS, chromium
from small_reports import compared, fits, parts, written

WIDTHS = (1200, 800, 400)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is installed"),
]

#: what a copy of the page runs first
WATCH = """<script>
const seen = {errors: []};
addEventListener("error", (event) => seen.errors.push(event.message));
addEventListener("securitypolicyviolation", (event) => seen.errors.push(event.blockedURI));
</script>"""

#: what it runs last: it sorts every table by every column, and measures every element
MEASURE = """<script>
addEventListener("load", () => {
  const column = (table, place) =>
    [...table.tBodies[0].rows].map((row) => row.cells[place].dataset.key);
  seen.width = document.documentElement.clientWidth;
  seen.sorted = [...document.querySelectorAll("table")].flatMap((table) =>
    [...table.querySelectorAll("thead button")].map((button, place) => {
      button.click();
      const up = column(table, place);
      button.click();
      return [up, column(table, place)];
    }));
  seen.wide = [...document.querySelectorAll("body *")].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width && (box.right > seen.width + 0.5 || box.left < -0.5);
  }).map((element) => element.outerHTML.slice(0, 200));
  seen.cut = [...document.querySelectorAll("body *")].filter((element) =>
    element.clientWidth && element.scrollWidth > element.clientWidth + 1
  ).map((element) => element.outerHTML.slice(0, 200));
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name)
    .filter((name) => !name.startsWith("data:"));
  seen.images = [...document.images].map((image) => image.naturalWidth);
  parent.postMessage(JSON.stringify(seen), "*");
});
</script>"""

#: a page with another one in a frame, as a window of a browser is 500 pixels wide at least
FRAME = """<!doctype html><html style="color-scheme:light dark"><body style="margin:0">
<pre id="seen"></pre><script>
addEventListener("message", (event) => document.getElementById("seen").append(event.data));
</script><iframe src="{source}" style="border:0;width:{width}px;height:2900px"></iframe>
</body></html>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    train, *_ = parts()
    posteriors = fits(train, diverging=3)
    written(folder, compared(posteriors), posteriors)
    return folder / "index.html"


def framed(page: Path, folder: Path, width: int) -> Path:
    """Write a page that shows another one in a frame of this width."""
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(source=page.as_uri(), width=width))
    return frame


def seen_at(page: Path, width: int, folder: Path) -> dict[str, Any]:
    """Return what a copy of the page measures of itself."""
    source = page.read_text()
    copy = folder / "copy.html"
    source = source.replace("<head>", f"<head>{WATCH}", 1)
    copy.write_text(source.replace("</body>", f"{MEASURE}</body>", 1))
    done = chromium(framed(copy, folder, width), folder, "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_element_is_wider_than_the_page(page: Path, width: int, tmp_path: Path) -> None:
    seen = seen_at(page, width, tmp_path)
    assert seen["width"] == width
    assert seen["errors"] == []
    assert seen["wide"] == []
    assert seen["cut"] == []
    assert seen["requests"] == []
    assert seen["images"]
    assert min(seen["images"]) > 300


def test_tables_sort_by_every_column(page: Path, tmp_path: Path) -> None:
    """Numbers sort as numbers, words as words, and what is missing comes last."""
    sorted_columns = seen_at(page, 1200, tmp_path)["sorted"]
    assert len(sorted_columns) > 20
    for up, down in sorted_columns:
        known = [key for key in up if key]
        assert up == known + [""] * (len(up) - len(known))
        assert [key for key in down if key] == known[::-1] or len(set(known)) < len(known)
        try:
            values = [float(key) for key in known]
        except ValueError:
            assert known == sorted(known)
        else:
            assert values == sorted(values)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_follows_the_colours_that_the_reader_prefers(
    page: Path, width: int, scheme: str, tmp_path: Path
) -> None:
    from PIL import Image

    picture = tmp_path / f"{scheme}-{width}.png"
    options = [f"--screenshot={picture}"]
    if scheme == "dark":
        options += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    chromium(framed(page, tmp_path, width), tmp_path, *options)
    with Image.open(picture) as image:
        light = float(np.asarray(image.convert("L"))[60, width // 2])
    assert (light > 200) == (scheme == "light")


def test_it_prints(page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    chromium(page, tmp_path, f"--print-to-pdf={paper}")
    assert paper.read_bytes().startswith(b"%PDF")
