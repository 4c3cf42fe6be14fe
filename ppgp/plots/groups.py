"""Figures of coefficients that vary between groups of rows."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from ..capabilities import GroupEffects, require
from ..errors import UnknownName
from ..posterior.posterior import Posterior, drawn_effects
from ..runtime.whole_numbers import check_whole_number
from .common import COLOURS, described, note_hidden, panels

MOST_LEVELS = 60
NO_POOLING = "no pooling: the rows of the group alone"


def shrinkage(
    posterior: Posterior, grouping: str | None = None, levels: int = MOST_LEVELS, seed: int = 0
) -> Figure:
    """Plot the coefficients of the groups, between those of no and of complete pooling.

    Dots are posterior means and bars 90 % intervals. Squares are what the rows of each group alone
    suggest (no pooling), and the line at 0 is complete pooling. Gelman & Hill (2007), section 12.2.
    Coefficients are in the units of the linear predictor, which are those of y without a link.

    Args:
        posterior: A fit of a model with coefficients that vary between groups of the rows X [n, d].
        grouping: Its name; None: the first.
        levels: The number of levels to show, those with the largest groups.
        seed: The seed of ``Posterior.effects``.

    Raises:
        NotApplicable: If no coefficients of the model vary between groups.
        UnknownName: If there is no such grouping.
        SettingError: If there is not at least one level to show.

    Examples:
        Partial pooling moves the coefficients of the two clinics towards 0.

        >>> import ppgp
        >>> from ppgp import inference, models, plots
        >>> clinic = ["a", "a", "a", "b", "b", "b"]
        >>> y = [1.2, 0.9, 1.1, -0.8, -1.0, -1.1]
        >>> data = ppgp.Dataset([[v] for v in range(6)], y, groups={"clinic": clinic})
        >>> model = models.GLM(groups={"clinic": models.Varying()})
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> axis = plots.shrinkage(posterior).axes[0]
        >>> [label.get_text() for label in axis.get_yticklabels()]
        ['b', 'a']
        >>> pooled, alone = (line.get_xdata() for line in axis.lines[1:])
        >>> bool((abs(pooled) < abs(alone)).all())
        True
    """
    check_whole_number("levels", levels, 1, f"the default is {MOST_LEVELS}")
    model = require(posterior.model, GroupEffects)
    names = model.effect_names()
    name = next(iter(names)) if grouping is None else grouping
    if name not in names:
        raise UnknownName("grouping", name, names)
    draws = drawn_effects(posterior, seed)[name].double()
    with torch.no_grad():
        alone = model.unpooled_effects(posterior.theta, posterior.data).get(name)
    codes, labels = posterior.data.groups[name], posterior.data.group_levels[name]
    sizes = torch.bincount(codes, minlength=len(labels))
    largest = sizes.argsort(descending=True, stable=True)[:levels]
    width, height = max(4.5, 4.0 * len(names[name])), 1.6 + 0.18 * len(largest)
    figure, axes = panels(width, height, 1, len(names[name]))
    for j, (axis, term) in enumerate(zip(axes.flat, names[name], strict=True)):
        middle = draws[:, largest, j].mean(0)
        order = middle.argsort()
        shown = largest[order]
        low, high = (draws[:, shown, j].quantile(q, 0) for q in (0.05, 0.95))
        middle, heights = middle[order], range(len(shown))
        axis.axvline(0.0, color="black", lw=0.8, label="complete pooling")
        axis.hlines(heights, low, high, color=COLOURS[0], lw=1.0, label="90% interval")
        axis.plot(middle, heights, "o", ms=3, color=COLOURS[0], label="partial pooling: mean")
        if alone is not None:
            raw = torch.where(sizes[shown] > 0, alone[shown, j].double(), torch.nan)
            axis.plot(raw, heights, "s", ms=4, mfc="none", color=COLOURS[1], label=NO_POOLING)
        axis.set_yticks(heights, [labels[k] for k in shown.tolist()], fontsize=7)
        axis.set_xlabel(f"{term} of {name}, relative to all groups", fontsize=9)
    handles, words = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.suptitle(f"Coefficients of {name}: {described(posterior)}", fontsize=10)
    shown_labels = [str(labels[k]) for k in largest.tolist()]
    note_hidden(figure, shown_labels, [str(label) for label in labels], "levels")
    return figure
