"""What notebooks show of a Posterior: model, method, scalars and warnings."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

from ..display import tables as html
from .scalar_names import scalar_names, scalars
from .summary import cut_short, table_of
from .units_of_draws import draws_in, scale_of

__all__ = ["as_html", "several_as_html"]

SHOWN = 20  # scalars


def as_html(posterior: Any) -> str:
    """Return the HTML of a Posterior."""
    model, how = type(posterior.model).__name__, type(posterior.how).__name__
    chains, draws = posterior.shape
    count = f"{draws:,}"
    if posterior.mcmc:
        count = f"{chains:,} chains of {draws:,}"
    facts = {
        "model": repr(posterior.model),
        "method": repr(posterior.how),
        "data": repr(posterior.data) if posterior.data.is_table else "",
        "draws": count,
        "optimised": ", ".join(posterior.params),
        "seconds": f"{posterior.seconds:.1f}",
        "interrupted": "yes" if cut_short(posterior.stats) else "",
    }
    parts = [html.facts(facts), _summary(posterior)]
    parts.append(html.items("Warnings", posterior.warnings))
    return html.page("Posterior", f"{model} by {how}", *parts)


def _summary(posterior: Any) -> str:
    """Return the summary of the first scalars, in the units of the data."""
    draws, left = draws_in("data", posterior.draws, posterior.model, posterior.scaler)
    names = scalar_names(draws, posterior)
    total = sum(map(len, names.values()))
    if not total:
        return ""
    sites = {name: site for site, of_site in names.items() for name in of_site}
    shown = {
        name: torch.from_numpy(x.copy()) for name, x in islice(scalars(draws, posterior), SHOWN)
    }
    table = table_of(
        shown,
        {name: [name] for name in shown},
        [name for name in shown if sites[name] in left],
        scale_of("data", posterior.scaler),
        posterior.chains if posterior.mcmc else 0,
        [name for name in shown if sites[name] in posterior.circular],
    )
    if posterior.shape == (1, 1):  # a point has no spread
        table = table[["mean"]].rename(columns={"mean": "value"})
    return html.frame(table, SHOWN) + html.more(total - len(shown), "scalar")


def several_as_html(posteriors: Any) -> str:
    """Return the HTML of a MultiPosterior: a line for each output."""
    rows = []
    for name, each in posteriors.items():
        model, how = type(each.model).__name__, type(each.how).__name__
        rows.append((name, model, how, f"{each.seconds:.1f}", "; ".join(each.warnings)))
    lines = html.table(("output", "model", "method", "seconds", "warnings"), rows)
    return html.page("MultiPosterior", f"{len(rows)} outputs", lines)
