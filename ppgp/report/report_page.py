"""The page of the report: HTML that refers to no other file."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..diagnostics.comparison import Comparison
from ..posterior.posterior import Posterior
from ..posterior.summary import cut_short
from .report_html import items, listed_names, note, section
from .report_numbers import (
    convergence_section,
    coverage_section,
    errors_section,
    ranking_section,
)
from .report_style import POLICY, SCRIPT, STYLE
from .report_verdicts import verdict_section

__all__ = ["Content", "page_of"]

INTERRUPTED = "its search was stopped by Ctrl-C: the fit is interrupted"
NO_GUARANTEE = "Nothing is guaranteed: there are no calibration rows."


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
    posteriors: Mapping[str, Posterior]
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
