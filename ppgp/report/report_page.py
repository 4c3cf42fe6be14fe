"""The page of the report: HTML that refers to no other file."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..diagnostics.comparison import Comparison
from ..posterior.averaging import Average
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from .report_html import items, listed_names, note, section
from .report_numbers import (
    convergence_section,
    coverage_section,
    errors_section,
    ranking_section,
)
from .report_verdicts import verdict_section

__all__ = ["Content", "page_of"]

INTERRUPTED = "its search was stopped by Ctrl-C: the fit is interrupted"
NO_GUARANTEE = "Nothing is guaranteed: there are no calibration rows."

#: what a browser may load: nothing but what the page holds itself
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)

STYLE = """
:root{color-scheme:light dark;--text:#1d1f23;--dim:#5b616b;--page:#fff;--card:#f6f7f9;
--line:#d9dce1;--good:#17663a;--fair:#7a4d00;--bad:#a3221b;--link:#0b57a4}
@media (prefers-color-scheme:dark){:root{--text:#e6e8ea;--dim:#a8aeb8;--page:#15171a;
--card:#1f2226;--line:#3a3f46;--good:#74d69b;--fair:#f0bd62;--bad:#ff9189;--link:#86bdf5}
figure img{filter:brightness(.88)}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:0 auto;padding:1.5rem 1rem 3rem;
color:var(--text);background:var(--page);overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .5rem}
h2{font-size:1.25rem;line-height:1.3;margin:2.2rem 0 .6rem;padding-top:.6rem;
border-top:1px solid var(--line)}
p,ul{margin:.5rem 0;max-width:56rem}ul{padding-left:1.3rem}
.facts{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;margin:0 0 1rem;color:var(--dim);
font-size:.875rem}
.facts div{display:flex;gap:.4rem}.facts dt::after{content:":"}
.facts dd{margin:0;color:var(--text)}
.note,.about{color:var(--dim);font-size:.875rem}
dl.words{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;margin:.6rem 0;
max-width:56rem;font-size:.9rem}dl.words dt{font-weight:600}dl.words dd{margin:0}
table{border-collapse:collapse;width:100%;font-size:.875rem;margin:.8rem 0}
th,td{padding:.4rem .5rem;border-bottom:1px solid var(--line);vertical-align:top;text-align:left;
font-weight:400}
tbody th{font-weight:600;min-width:5.5rem}
thead th{vertical-align:bottom;border-bottom:2px solid var(--line)}
th.number,td.number{text-align:right;font-variant-numeric:tabular-nums;
overflow-wrap:normal}
td.number small{overflow-wrap:anywhere}
thead button{font:inherit;font-weight:600;color:inherit;background:none;
border:0;padding:0;text-align:inherit;overflow-wrap:normal}
.live thead button{cursor:pointer}
.live thead button:hover{color:var(--link);text-decoration:underline}
.live thead button:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.live th[aria-sort] button::after{content:" \\2191"}
.live th[aria-sort=descending] button::after{content:" \\2193"}
small{display:block;font-size:.8125rem;color:var(--dim);margin-top:.15rem}
.good{color:var(--good)}.fair{color:var(--fair)}.bad{color:var(--bad)}
.verdicts td{width:31%}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));
gap:1.2rem;align-items:start}
.figures.small{grid-template-columns:repeat(auto-fill,minmax(min(100%,21rem),1fr))}
figure{margin:0;min-width:0;max-width:40rem}
figure img{display:block;width:100%;height:auto;background:#fff;border:1px solid var(--line);
border-radius:4px;padding:.3rem}
figcaption{font-size:.8125rem;color:var(--dim);margin-top:.3rem}
figcaption strong{color:var(--text)}
@media screen and (max-width:700px){
body{padding:1rem .75rem 2rem}
table,tbody,tr,td,tbody th{display:block;width:auto}
thead tr{display:flex;flex-wrap:wrap;gap:.2rem .9rem;padding-bottom:.5rem}
thead tr::before{content:"Sort by:";color:var(--dim)}
table:not(.live) thead{display:none}
thead th,thead th.number{display:block;border:0;padding:.1rem 0}
thead button{text-decoration:underline}
tbody tr{border:1px solid var(--line);border-radius:6px;background:var(--card);
padding:.5rem .7rem;margin:.6rem 0}
tbody th,td{border:0;padding:.15rem 0}
tbody th{font-size:1rem}
td.number{display:flex;justify-content:space-between;gap:1rem}
td.number:has(div:empty),td.text:has(div:empty){display:none}
td::before{content:attr(data-label);color:var(--dim);text-align:left}
td.text::before{display:block;margin-top:.2rem}
.verdicts td{width:auto}dl.words{grid-template-columns:1fr;gap:0}dl.words dd{margin-bottom:.4rem}
}
@media print{
:root{color-scheme:light;--text:#000;--dim:#444;--page:#fff;--card:#fff;--line:#999;
--good:#0b4d27;--fair:#5c3a00;--bad:#7d1510}
@page{margin:15mm}
body{font-size:10pt;max-width:none;padding:0}
h2{break-after:avoid}tr,figure,li{break-inside:avoid}thead{display:table-header-group}
th,td{padding:.25rem .35rem}table{font-size:8.5pt}
.figures{display:block}figure{max-width:16cm;margin-bottom:5mm}
.figures.small figure{display:inline-block;width:48%;vertical-align:top;margin-right:1%}
figure img{filter:none;width:auto;max-width:100%;max-height:21cm}
.live th[aria-sort] button::after{content:""}
}
"""

SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  const sort = (column) => {
    const heading = headings[column];
    const down = heading.getAttribute("aria-sort") === "ascending";
    const key = (row) => row.cells[column].dataset.key;
    const rows = [...body.rows].sort((a, b) => {
      const missing = (key(a) === "") - (key(b) === "");
      return missing || (down ? compare(key(b), key(a)) : compare(key(a), key(b)));
    });
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  };
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => sort(column));
  });
  table.classList.add("live");
}
"""


@dataclass(frozen=True, eq=False)
class Content:
    """What the page shows.

    Attributes:
        title: The command and what it read.
        about: What was run, by name.
        comparison: The comparison of the posteriors.
        posteriors: The posteriors by name.
        pairs: The pair ``(model, method)`` of each posterior.
        n_test: The number of test rows.
    """

    title: str
    about: Mapping[str, Any]
    comparison: Comparison
    posteriors: Mapping[str, Posterior | Average]
    pairs: Mapping[str, tuple[str, str]]
    n_test: int

    @property
    def names(self) -> list[str]:
        """The posteriors, the best first where they are ranked."""
        ranking = self.comparison.ranking
        if ranking is None:
            return list(self.posteriors)
        return [str(name) for name in ranking.index]


def page_of(content: Content, figures: Sequence[str]) -> str:
    """Return the page as HTML that refers to no other file.

    Args:
        content: What the page shows.
        figures: The sections with figures, as HTML.
    """
    title = html.escape(content.title)
    comparison, names, n_test = content.comparison, content.names, content.n_test
    body = [
        f"<h1>{title}</h1>",
        _facts({**content.about, **_models_and_methods(content.pairs)}),
        verdict_section(comparison, names),
        ranking_section(comparison, n_test),
        coverage_section(comparison, names, n_test, float(content.about.get("level", 0.9))),
        _guarantees(content),
        errors_section(comparison, names),
        convergence_section(content.posteriors, content.pairs, names),
        _warnings(content),
        *figures,
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<link rel='icon' href='data:,'><title>{title}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _models_and_methods(pairs: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return the models and the methods by name, of which the name of a posterior consists."""
    models, methods = (
        ", ".join(dict.fromkeys(names)) for names in zip(*pairs.values(), strict=True)
    )
    return {"models": models, "methods": methods}


def _facts(about: Mapping[str, Any]) -> str:
    """Return what was run, as a list of terms."""
    facts = "".join(
        f"<div><dt>{html.escape(str(key))}</dt><dd>{html.escape(str(value))}</dd></div>"
        for key, value in about.items()
    )
    return f"<dl class='facts'>{facts}</dl>"


def _guarantees(content: Content) -> str:
    """Return the section with each sentence that is guaranteed, stated once."""
    regions = content.comparison.regions
    title = "What is guaranteed"
    if not regions:
        return section(title, note(NO_GUARANTEE))
    by_sentence: dict[str, list[str]] = {}
    for name in content.names:
        if name in regions:
            by_sentence.setdefault(regions[name].guarantee, []).append(name)
    return section(
        title,
        _about_names(by_sentence, len(content.names)),
        note(
            "It holds for the conformal sets, on average over calibration and test rows, whatever "
            "the model; the own intervals of a posterior have no guarantee beyond their model."
        ),
    )


def _warnings(content: Content) -> str:
    """Return the section with the warnings of the fits; "" where there are none."""
    by_sentence: dict[str, list[str]] = {}
    for name in content.names:
        posterior = content.posteriors[name]
        interrupted = [INTERRUPTED] if cut_short(posterior.stats) else []
        for sentence in dict.fromkeys([*interrupted, *posterior.warnings]):
            by_sentence.setdefault(sentence, []).append(name)
    if not by_sentence:
        return ""
    return section("Warnings", _about_names(by_sentence, len(content.names)))


def _about_names(by_sentence: Mapping[str, list[str]], total: int) -> str:
    """Return a list of sentences, each with the posteriors that it is about."""
    return items((words, listed_names(names, total)) for words, names in by_sentence.items())
