"""Tables as they occur in practice: a clean one, and what may have been done to it.

Each has a fate: ``same`` must be read as the clean table, ``refused`` must be met with one
sentence, ``either`` with one of the two, and ``any`` may give another answer. Elsewhere, a command
that exits with 0 and another answer has misread the table silently.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Rows = list[list[str]]
NAMES = ["age", "height", "dose", "y"]


@dataclass(frozen=True)
class Hostile:
    """The bytes of a file, what was done to it, and its fate."""

    kind: str
    content: bytes
    fate: str


def clean(random_numbers: random.Random, n: int = 24) -> Rows:
    """Return a header and rows of three inputs and a target."""
    rows = [list(NAMES)]
    for _ in range(n):
        x = [
            random_numbers.gauss(40, 10),
            random_numbers.gauss(1.7, 0.1),
            random_numbers.gauss(0, 1),
        ]
        y = 0.1 * x[0] + 5 * x[1] - x[2] + random_numbers.gauss(0, 0.2)
        rows.append([repr(v) for v in (*x, y)])
    return rows


def text(rows: Rows, separator: str = ",", end: str = "\n") -> str:
    return "".join(separator.join(row) + end for row in rows)


def _at(rows: Rows, r: random.Random, value: str, column: int | None = None) -> bytes:
    """Return the table with one entry changed."""
    changed = [list(row) for row in rows]
    changed[r.randrange(1, len(rows))][r.randrange(3) if column is None else column] = value
    return text(changed).encode()


def _everywhere(rows: Rows, column: int, value: Callable[[int], str]) -> bytes:
    """Return the table with one column changed."""
    changed = [rows[0]]
    for i, row in enumerate(rows[1:]):
        changed.append([*row[:column], value(i), *row[column + 1 :]])
    return text(changed).encode()


def _line(rows: Rows, r: random.Random, change: Callable[[str], str]) -> bytes:
    """Return the table with one line changed."""
    lines = text(rows).splitlines()
    i = r.randrange(1, len(lines))
    lines[i] = change(lines[i])
    return ("\n".join(lines) + "\n").encode()


def _mixed_ends(rows: Rows, r: random.Random) -> bytes:
    return "".join(",".join(row) + r.choice(["\n", "\r\n", "\r"]) for row in rows).encode()


def _blank_lines(rows: Rows, r: random.Random) -> bytes:
    lines = text(rows).splitlines()
    for _ in range(4):
        lines.insert(r.randrange(len(lines) + 1), r.choice(["", " ", "   "]))
    return ("\n".join(lines) + "\n").encode()


def _some_quoted(rows: Rows, r: random.Random) -> bytes:
    return text([[f'"{v}"' if r.random() < 0.5 else v for v in row] for row in rows]).encode()


def _renamed(rows: Rows, names: list[str]) -> Rows:
    return [names, *rows[1:]]


def _cut(rows: Rows, r: random.Random) -> bytes:
    whole = text(rows).encode()
    return whole[: r.randrange(20, len(whole) - 1)]


def _noise(rows: Rows, r: random.Random) -> bytes:
    content = bytearray(text(rows).encode())
    for _ in range(r.randrange(1, 6)):
        content[r.randrange(len(content))] = r.randrange(256)
    return bytes(content)


SPOILED = [
    *"?-.",
    "n.a.",
    "missing",
    "1.2.3",
    "12kg",
    "1e",
    "0x10",
    "--1",
    "1,5",
    "<0.1",
    "$5",
    "50%",
    "ja",
    "[1]",
    "\t",
]
MISSING = [
    "",
    "NA",
    "NaN",
    "nan",
    "null",
    "None",
    "N/A",
    "#N/A",
    "<NA>",
    "inf",
    "-inf",
    "Infinity",
    "1e999",
    "-1e999",
]
DATES = ["2024-01-31", "31.01.2024", "01/31/2024", "2024-01-31T12:00:00Z", "12:30", "Jan 5"]

Change = Callable[[Rows, random.Random], bytes]

#: (what is done, the table's fate, the function that does it)
CHANGES: list[tuple[str, str, Change]] = [
    ("nothing", "same", lambda t, r: text(t).encode()),
    ("a mark at the beginning", "same", lambda t, r: b"\xef\xbb\xbf" + text(t).encode()),
    ("Windows line ends", "same", lambda t, r: text(t, end="\r\n").encode()),
    ("old line ends", "same", lambda t, r: text(t, end="\r").encode()),
    ("mixed line ends", "same", _mixed_ends),
    ("blank lines", "same", _blank_lines),
    ("no line end at the end", "same", lambda t, r: text(t).rstrip("\n").encode()),
    ("quotes", "same", _some_quoted),
    ("a mark and quotes", "same", lambda t, r: b"\xef\xbb\xbf" + _some_quoted(t, r)),
    (
        "columns in another order",
        "same",
        lambda t, r: text([[row[i] for i in (2, 0, 3, 1)] for row in t]).encode(),
    ),
    (
        "digits beyond what a float holds",
        "same",
        lambda t, r: text([t[0], *([v + "0" * 30 for v in row] for row in t[1:])]).encode(),
    ),
    (
        "spaces around numbers",
        "either",
        lambda t, r: text([t[0], *([f" {v} " for v in row] for row in t[1:])]).encode(),
    ),
    (
        "spaces around names",
        "either",
        lambda t, r: text(_renamed(t, [f" {v}" for v in t[0]])).encode(),
    ),
    (
        "a separator at the end of all rows",
        "refused",
        lambda t, r: text([t[0], *([*row, ""] for row in t[1:])]).encode(),
    ),
    (
        "a separator at the end of all lines",
        "either",
        lambda t, r: text([[*row, ""] for row in t]).encode(),
    ),
    (
        "a separator at the end of one row",
        "refused",
        lambda t, r: _line(t, r, lambda line: line + ","),
    ),
    ("a field too many", "refused", lambda t, r: _line(t, r, lambda line: "1," + line)),
    ("a field too few", "refused", lambda t, r: _line(t, r, lambda line: line.partition(",")[2])),
    ("decimal commas", "refused", lambda t, r: text(t).replace(".", ",").encode()),
    ("semicolons", "refused", lambda t, r: text(t, separator=";").encode()),
    ("tabs", "refused", lambda t, r: text(t, separator="\t").encode()),
    (
        "a name twice",
        "refused",
        lambda t, r: text(_renamed(t, ["age", "dose", "dose", "y"])).encode(),
    ),
    (
        "the target's name twice",
        "refused",
        lambda t, r: text(_renamed(t, ["age", "height", "y", "y"])).encode(),
    ),
    ("all names alike", "refused", lambda t, r: text(_renamed(t, ["y"] * 4)).encode()),
    ("no names", "refused", lambda t, r: text(t[1:]).encode()),
    ("empty names", "any", lambda t, r: text(_renamed(t, ["", "", "", "y"])).encode()),
    ("a header alone", "refused", lambda t, r: text(t[:1]).encode()),
    ("nothing at all", "refused", lambda t, r: b""),
    ("blank lines alone", "refused", lambda t, r: b"\n \n\r\n"),
    ("a line before the header", "refused", lambda t, r: b"exported by hand\n" + text(t).encode()),
    ("a header in the middle", "refused", lambda t, r: text([*t[:9], t[0], *t[9:]]).encode()),
    ("UTF-16", "refused", lambda t, r: text(t).encode("utf-16")),
    ("UTF-32", "refused", lambda t, r: text(t).encode("utf-32")),
    ("Latin-1", "refused", lambda t, r: _at(t, r, "é").decode().encode("latin-1")),
    ("a NUL byte", "refused", lambda t, r: _at(t, r, "1\0")),
    ("NUL bytes alone", "refused", lambda t, r: b"\0" * 500),
    ("a quote that never ends", "refused", lambda t, r: _at(t, r, '"1')),
    ("text", "refused", lambda t, r: _at(t, r, r.choice(SPOILED))),
    ("a missing input", "refused", lambda t, r: _at(t, r, r.choice(MISSING))),
    ("a missing target", "target", lambda t, r: _at(t, r, r.choice(MISSING), 3)),
    ("a date", "refused", lambda t, r: _at(t, r, r.choice(DATES))),
    (
        "a column of dates",
        "refused",
        lambda t, r: _everywhere(t, r.randrange(3), lambda i: f"2024-02-{i + 1:02d}"),
    ),
    (
        "a column of text",
        "refused",
        lambda t, r: _everywhere(t, r.randrange(3), lambda i: "ab"[i % 2]),
    ),
    (
        "a column of missing numbers",
        "refused",
        lambda t, r: _everywhere(t, r.randrange(3), lambda i: ""),
    ),
    ("an integer beyond floats", "refused", lambda t, r: _at(t, r, "1" + "0" * 400)),
    ("a very long field", "refused", lambda t, r: _at(t, r, "x" * 300_000)),
    (
        "a huge number",
        "any",
        lambda t, r: _at(
            t, r, r.choice(["1e300", "-1e200", "1" + "0" * 25, "1.7976931348623157e308"])
        ),
    ),
    ("a tiny number", "any", lambda t, r: _at(t, r, r.choice(["1e-300", "5e-324", "-1e-200"]))),
    (
        "a huge column",
        "any",
        lambda t, r: _everywhere(
            t, r.randrange(4), lambda i: f"{i + 1}e{r.choice([160, 250, 300])}"
        ),
    ),
    (
        "true and false",
        "any",
        lambda t, r: _everywhere(t, r.randrange(3), lambda i: str(i % 2 == 0)),
    ),
    ("cut off", "any", _cut),
    ("bytes at random", "any", _noise),
]


def generated(seed: int, count: int) -> list[Hostile]:
    """Return ``count`` tables, with every kind about equally often."""
    r = random.Random(seed)
    found = []
    for i in range(count):
        kind, fate, change = CHANGES[i % len(CHANGES)]
        if count < len(CHANGES):
            kind, fate, change = r.choice(CHANGES)
        found.append(Hostile(kind, change(clean(random.Random(1)), r), fate))
    return found
