"""What the pages of a built site refer to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: tag -> its attribute with an address that a browser requests without a click
REQUESTED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
#: relations of ``link`` that a browser does not request
NOT_REQUESTED = {"author", "canonical", "help", "index", "next", "prev", "search"}
IN_STYLES = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")
SERVERS_OF_SCRIPTS = re.compile(
    r"https?://[\w.]*(?:cdn|cdnjs|jsdelivr|unpkg|googleapis|gstatic|mathjax)[\w.]*"
)


@dataclass
class Page(HTMLParser):
    """A page that was read.

    Attributes:
        ids: the names of its places.
        links: the addresses of its links.
        requests: the addresses that a browser requests to show it.
    """

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down what one tag refers to."""
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        relations = set(given.get("rel", "").split())
        if tag == "link" and relations & NOT_REQUESTED:
            return
        address = given.get(REQUESTED.get(tag, ""), "")
        if address:
            self.requests.append(address)


def read_pages(site: Path) -> dict[Path, Page]:
    """Return {file: page} of all pages of a site."""
    pages = {}
    for file in site.rglob("*.html"):
        page = Page()
        page.feed(file.read_text(encoding="utf-8"))
        pages[file.resolve()] = page
    return pages


def outside(address: str) -> bool:
    """Return whether an address is on another server."""
    return bool(urlsplit(address).netloc)


def dead_links(pages: dict[Path, Page]) -> list[str]:
    """Return the links within a site that lead to no file, or to no place of a page."""
    dead = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            goal = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = unquote(parts.fragment)
            missing = not goal.is_file()
            if goal in pages and place and place != "top":
                missing = place not in pages[goal].ids
            if missing:
                dead.append(f"{file.name}: {link}")
    return dead


def requests_to_others(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Return the scripts, styles, fonts and images that a site requests from other servers."""
    found = [
        f"{file.name}: {address}"
        for file, page in pages.items()
        for address in page.requests
        if outside(address)
    ]
    for pattern, suffix in ((IN_STYLES, "*.css"), (SERVERS_OF_SCRIPTS, "*.js")):
        for file in site.rglob(suffix):
            text = file.read_text(encoding="utf-8")
            found += [f"{file.name}: {one}" for one in pattern.findall(text)]
    for file in pages:
        text = file.read_text(encoding="utf-8")
        for style in re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL):
            found += [f"{file.name}: {one}" for one in IN_STYLES.findall(style)]
    return found
