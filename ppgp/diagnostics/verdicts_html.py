"""What notebooks show of a Comparison and of a Diagnosis: verdicts and their reasons."""

from __future__ import annotations

from typing import Any

from ..display import tables as html

__all__ = ["comparison_as_html", "diagnosis_as_html"]

SHOWN = 20  # rows of a table
REASONS = ["reason", "predictions_reason"]  # columns that become sentences


def comparison_as_html(comparison: Any) -> str:
    """Return the HTML of a Comparison: a line for each posterior, and the reasons."""
    table = comparison.to_frame()
    reasons = [f"{name}: {text}" for name, text in comparison.reasons.items() if text]
    predicted = [f"{name}: {text}" for name, text in comparison.predictive_reasons.items() if text]
    parts = [html.frame(table.drop(columns=REASONS, errors="ignore"), SHOWN)]
    parts.append(html.items("Reasons", reasons))
    parts.append(html.items("Reasons, of predictions", predicted))
    if comparison.not_ranked:
        parts.append(html.sentence(f"not ranked: {comparison.not_ranked}"))
    return html.page("Comparison", f"{len(table)} posteriors", *parts)


def diagnosis_as_html(diagnosis: Any) -> str:
    """Return the HTML of a Diagnosis: the verdict, the findings and the worst scalars."""
    findings = [text for text in diagnosis.findings if text != diagnosis.reason]
    parts = [html.sentence(diagnosis.reason), html.items("Findings", findings)]
    parts.append(html.frame(diagnosis.worst_first, SHOWN))
    return html.page("Diagnosis", diagnosis.verdict, *parts)
