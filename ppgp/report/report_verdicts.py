"""The verdicts of the report: is a posterior faithful to its reference, do predictions differ.

The words of ``ppgp.compare`` ("agrees", "do not use", ...) judge draws and predictions alike. On
the page each of the two has a question and answers of its own, as draws that differ from those of
the reference may still give the same predictions.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from ..diagnostics.comparison import Comparison
from ..diagnostics.ranking import AS_GOOD, BEST, WORSE
from ..diagnostics.verdicts import AGREES, REFERENCE, REJECTED, SPREAD, UNJUDGED
from .report_html import BAD, FAIR, GOOD, PLAIN, Cell, answer, section, table, text

__all__ = ["DIFFER", "FAITHFUL", "summary", "use_of", "verdict_section"]

#: word of a verdict -> (answer, colour), the best first
FAITHFUL = {
    REFERENCE: ("the reference", PLAIN),
    AGREES: ("faithful", GOOD),
    SPREAD: ("faithful in means, not in spread", FAIR),
    REJECTED: ("not faithful", BAD),
    UNJUDGED: ("not judged", PLAIN),
}
DIFFER = {
    REFERENCE: ("the reference", PLAIN),
    AGREES: ("no difference that matters", GOOD),
    SPREAD: ("same means, other spread", FAIR),
    REJECTED: ("different predictions", BAD),
    UNJUDGED: ("not judged", PLAIN),
}
#: word of a verdict -> (what to use, what not to use); "hyperparameters" are all uncertain numbers
OF_DRAWS = {
    AGREES: ("its hyperparameters", ""),
    SPREAD: ("means of its hyperparameters", "their spread"),
    REJECTED: ("", "its hyperparameters"),
}
OF_PREDICTIONS = {
    AGREES: ("its predictions", ""),
    SPREAD: ("means of its predictions", "its own intervals"),
    REJECTED: ("", "its predictions"),
}
QUESTIONS = {
    "Is the posterior faithful?": "Compares the draws of all uncertain numbers of the model "
    "(hyperparameters, coefficients) with the draws of the reference. “Not faithful”: the mean of "
    "one of them is off by more than 0.1 sd of the reference, beyond Monte Carlo error, so that "
    "these draws should not be interpreted. It does not say that the predictions are wrong. The "
    "column “verdict” that the command prints calls this “do not use”.",
    "Do the predictions differ?": "Compares the predictive distributions of the test rows with "
    "those of the reference. Where they do not differ, the predictions may be used even if the "
    "posterior is not faithful. It does not say that predictions are good: the ranking and the "
    "errors below do.",
    "The reference": "The posterior from Markov chains, such as those of NUTS, of the same model. "
    "A model without such chains is not judged. Posteriors that equal the reference in "
    "distribution are called different with probability 0.01 at most. Numbers after ± are Monte "
    "Carlo standard errors.",
}


def use_of(faithful: str, differ: str | None) -> tuple[str, str]:
    """Return what a posterior may be used for, and what it should not be used for.

    Args:
        faithful: The verdict on the draws.
        differ: The verdict on the predictions; None: there are none.
    """
    if faithful == REFERENCE:
        return "its hyperparameters and its predictions", ""
    pairs = [OF_DRAWS.get(faithful), OF_PREDICTIONS.get(differ or "")]
    known = [pair for pair in pairs if pair is not None]
    use = " and ".join(good for good, _ in known if good)
    avoid = " or ".join(bad for _, bad in known if bad)
    return use, avoid


def verdict_section(comparison: Comparison, names: Sequence[str]) -> str:
    """Return the section with both verdicts on each posterior.

    Args:
        comparison: The comparison.
        names: The posteriors, in the order of the rows.
    """
    questions = list(QUESTIONS)[:2]
    if not comparison.predictive_verdicts:
        questions = questions[:1]
    rows = [_row(comparison, name) for name in names]
    explained = "".join(
        f"<dt>{term}</dt><dd>{html.escape(words)}</dd>" for term, words in QUESTIONS.items()
    )
    return section(
        "Verdict",
        *(f"<p>{html.escape(sentence)}</p>" for sentence in summary(comparison, names)),
        table(["Posterior", *questions, "What to use"], rows, "verdicts"),
        f"<dl class='words'>{explained}</dl>",
    )


def _row(comparison: Comparison, name: str) -> list[Cell]:
    """Return the cells of one posterior."""
    word, differ = comparison.verdicts[name], comparison.predictive_verdicts.get(name)
    cells = [text(name), _answer(FAITHFUL, word, comparison.reasons[name])]
    if differ is not None:
        cells.append(_answer(DIFFER, differ, comparison.predictive_reasons[name]))
    use, avoid = use_of(word, differ)
    words = "not known"
    if use:
        words = use
    elif avoid:
        words = "nothing"
    reason = f"not {avoid}" if avoid else ""
    if word == REFERENCE:
        reason = "the others are judged by it"
    cells.append(answer(words, PLAIN, reason, _rank(FAITHFUL, word)))
    return cells


def _answer(answers: Mapping[str, tuple[str, str]], word: str, reason: str) -> Cell:
    """Return the cell of one answer; a reference with a warning of its own has a colour."""
    words, tone = answers[word]
    if word == REFERENCE and reason.startswith("but"):
        tone = FAIR
    return answer(words, tone, reason, _rank(answers, word))


def _rank(answers: Mapping[str, tuple[str, str]], word: str) -> int:
    return list(answers).index(word)


def summary(comparison: Comparison, names: Sequence[str]) -> list[str]:
    """Return what the verdicts and the ranking say, in a few sentences.

    Args:
        comparison: The comparison.
        names: The posteriors, the best first where they are ranked.
    """
    sentences = []
    if comparison.ranking is not None:
        sentences.append(_ranked(comparison.ranking["ranking"].to_dict(), names))
    words = {name: comparison.verdicts[name] for name in names}
    if all(word == UNJUDGED for word in words.values()):
        sentences.append("No posterior is judged here; the table states what is missing.")
        return sentences
    differ = comparison.predictive_verdicts
    groups = {
        "Reference, to which the others are compared": [n for n in names if words[n] == REFERENCE],
        "Faithful to the reference": [n for n in names if words[n] == AGREES],
        "Predictions as those of the reference, but draws that are not faithful": [
            n for n in names if words[n] in (SPREAD, REJECTED) and differ.get(n) == AGREES
        ],
        "Predictions that differ from those of the reference": [
            n for n in names if differ.get(n) in (SPREAD, REJECTED)
        ],
    }
    sentences += [f"{what}: {', '.join(found)}." for what, found in groups.items() if found]
    return sentences


def _ranked(conclusions: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the ranking as one sentence."""
    groups = {"Best predictions": BEST, AS_GOOD: AS_GOOD, WORSE: WORSE}
    parts = []
    for what, conclusion in groups.items():
        found = [name for name in names if conclusions[name] == conclusion]
        if found:
            parts.append(f"{what}: {', '.join(found)}")
    return "; ".join(parts) + "."
