"""Figures show the values of the posterior, and drawing them changes no global state."""

from __future__ import annotations

import dataclasses
import warnings

import matplotlib as mpl
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import ppgp
from ppgp import inference, likelihoods, models, plots
from ppgp.diagnostics.simulation_based_calibration import SBC
from ppgp.errors import NotApplicable, PpgpWarning, UnknownName
from ppgp.posterior import Posterior

F64 = torch.float64


def data() -> ppgp.Dataset:
    X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=F64)
    return ppgp.Dataset(X, X[:, 0] + 0.3 * noise)


def fitted(how: inference.Inference) -> Posterior:
    return ppgp.fit(models.LinearRegression(), data(), how, progress=False)


@pytest.fixture(scope="module")
def chains() -> Posterior:
    source = fitted(inference.Laplace(draws=400))
    draws = {name: value.reshape(4, 100, *value.shape[2:]) for name, value in source.draws.items()}
    diverging = torch.zeros(4, 100, dtype=torch.bool)
    diverging[0, :7] = True
    stats = {"diverging": diverging}
    return Posterior(
        source.model, source.data, draws, inference.NUTS(), stats=stats, scaler=source.scaler
    )


def test_each_kind_gets_its_figures_and_nothing_global_changes(chains: Posterior) -> None:
    before, open_figures = dict(mpl.rcParams), plt.get_fignums()
    both = {"marginals", "predictive_check"}
    assert set(plots.suited(chains)) == {"trace", "rank", "pair", "loo"} | both
    laplace = fitted(inference.Laplace())
    assert set(plots.suited(laplace)) == {"k_hat"} | both
    svi = plots.suited(fitted(inference.SVI(steps=600)), laplace)
    assert set(svi) == {"k_hat", "elbo"} | both
    assert [t.get_text() for t in svi["marginals"].legends[0].get_texts()] == ["Laplace", "SVI"]
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_figures


def places(figure: Figure) -> set[int]:
    """Return the columns in which the panels of a figure stand."""
    found = set()
    for axis in figure.axes:
        spec = axis.get_subplotspec()
        assert spec is not None
        found.add(spec.colspan.start)
    return found


def test_panels_stand_in_so_many_columns(chains: Posterior) -> None:
    both = {"laplace": fitted(inference.Laplace()), "nuts": chains}
    for columns in (1, 3):
        assert places(plots.marginals(both, columns=columns)) == set(range(columns))
    comparison = ppgp.compare({"laplace": both["laplace"], "nuts": both["nuts"]})
    for columns in (1, 2):
        assert places(plots.differences(comparison, columns=columns)) == set(range(columns))
    with pytest.raises(ppgp.errors.SettingError, match="1 or 2 columns"):
        plots.differences(comparison, columns=3)
    with pytest.raises(ppgp.errors.SettingError, match="at least one column"):
        plots.marginals(both, columns=0)


def test_counts_and_groups_have_figures_of_their_own() -> None:
    rows = ppgp.Dataset(
        data().X, torch.arange(40) % 4, groups={"g": [str(i % 5) for i in range(40)]}
    )
    model = models.GLM(likelihoods.Poisson(), groups={"g": models.Varying()})
    found = plots.suited(ppgp.fit(model, rows, inference.MAP(), progress=False))
    assert set(found) == {"marginals", "predictive_check", "rootogram", "shrinkage"}
    # counts are drawn as steps, not as a smooth density
    styles = [line.get_drawstyle() for line in found["predictive_check"].axes[0].lines]
    assert styles[-2:] == ["steps-mid", "steps-mid"]


def test_divergences_are_counted_and_scalars_named(chains: Posterior) -> None:
    figure = plots.pair(chains, ["bias", "noise"])
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["draws", "divergences (7)"]
    (ranks,) = plots.rank(chains, ["bias"]).axes
    assert ranks.get_title() == "bias"
    # the number of a chain stands beside the middle of its own bars
    assert [text.get_text() for text in ranks.get_yticklabels()] == ["0", "1", "2", "3"]
    feet = sorted({bar.get_y() for bar in ranks.patches})
    assert len(feet) == 4
    for tick, foot, above in zip(ranks.get_yticks(), feet, [*feet[1:], np.inf], strict=True):
        assert foot < tick < above
    with pytest.raises(UnknownName, match="did you mean 'bias'"):
        plots.pair(chains, ["bais", "noise"])


def test_the_limit_of_k_hat_is_drawn_and_leave_one_out_counts_rows(chains: Posterior) -> None:
    laplace = fitted(inference.Laplace(draws=1000))
    left = plots.k_hat({"Laplace": laplace}).axes[0]
    assert left.lines[0].get_xdata()[0] == pytest.approx(ppgp.diagnose(laplace).k_hat)
    assert left.lines[1].get_xdata()[0] == pytest.approx(2 / 3)
    few = fitted(inference.Laplace(draws=100))
    both = plots.k_hat({"many": laplace, "few": few}).axes[0]
    limits = [line.get_xdata()[0] for line in both.lines if line.get_linestyle() == "--"]
    assert limits == pytest.approx([2 / 3, 1 - 1 / np.log10(100)])
    (of_rows,) = plots.loo(chains).axes
    assert "of 40 rows above the limit" in of_rows.get_title()
    assert of_rows.lines[0].get_ydata() == pytest.approx(ppgp.psis_loo(chains).k)


def program(y: torch.Tensor, observed: tuple[str, ...]) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=F64), 1.0))
    for name in observed:
        pyro.sample(name, dist.Normal(mean.expand(y.shape), 1.0), obs=y)


def of_program(*observed: str) -> Posterior:
    y = torch.linspace(-1, 1, 8, dtype=F64)
    how = inference.NUTS(chains=2, draws=50, warmup=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PpgpWarning)
        return ppgp.fit(program, {"y": y, "observed": observed}, how, progress=False)


def test_leave_one_out_shows_every_observed_site() -> None:
    posterior = of_program("y", "z")
    (axis,) = plots.loo(posterior).axes
    assert "of 16 rows above the limit" in axis.get_title()
    assert [line.get_label() for line in axis.lines[:2]] == ["y", "z"]
    for line in axis.lines[:2]:
        found = ppgp.psis_loo(posterior, str(line.get_label())).k
        assert line.get_ydata() == pytest.approx(found)
    assert "of 8 rows" in plots.loo(posterior, "z").axes[0].get_title()
    assert "loo" in plots.suited(posterior)
    with pytest.raises(NotApplicable, match="an observed site to leave rows of out"):
        plots.loo(of_program())


def test_the_bars_of_ranks_are_shares_of_the_draws_of_a_chain(chains: Posterior) -> None:
    (axis,) = plots.rank(chains, ["bias"]).axes
    ranks = chains.draws["bias"].flatten().argsort().argsort().reshape(chains.shape)
    bars = np.array([bar.get_height() for bar in axis.patches]).reshape(chains.chains, -1)
    bins = bars.shape[1]
    for k, heights in enumerate(bars):
        counts = torch.histc((ranks[k] + 1).double(), bins, 0, ranks.numel())
        assert heights == pytest.approx(counts.numpy() * bins / chains.shape[1])
        assert axis.lines[k].get_ydata()[0] == pytest.approx(2 * k + 1)  # a mean height


def test_independent_draws_have_no_traces_and_no_ranks() -> None:
    laplace = fitted(inference.Laplace())
    for draw in (plots.trace, plots.rank):
        with pytest.raises(NotApplicable, match="independent draws by Laplace"):
            draw(laplace)
    with pytest.raises(NotApplicable, match="fit by SVI"):
        plots.elbo(laplace)


def test_a_rootogram_hangs_bars_from_the_expected_counts() -> None:
    g = torch.Generator().manual_seed(2)
    X = torch.randn(300, 1, generator=g, dtype=F64)
    y = torch.poisson((0.5 + 0.4 * X[:, 0]).exp(), generator=g)
    weights = torch.randint(1, 4, (300,), generator=g).to(F64)
    table = ppgp.Dataset(X, y, weights=weights, target_name="visits")
    posterior = ppgp.fit(models.GLM(likelihoods.Poisson()), table, inference.MAP(), progress=False)
    axis = plots.rootogram(posterior).axes[0]
    rate = posterior.predict(X).mean
    counts = torch.arange(int(y.max()) + 1, dtype=F64)
    mass = torch.distributions.Poisson(rate).log_prob(counts[:, None]).exp()
    expected = (weights * mass).sum(1).sqrt()
    torch.testing.assert_close(torch.as_tensor(axis.lines[0].get_ydata()), expected)
    observed = torch.stack([weights[y == k].sum() for k in counts]).sqrt()
    heights = torch.tensor([bar.get_height() for bar in axis.patches], dtype=F64)
    ends = torch.tensor([bar.get_y() for bar in axis.patches], dtype=F64)
    torch.testing.assert_close(heights, observed)
    torch.testing.assert_close(ends, expected - observed)
    assert axis.get_xlabel() == "visits"
    wide = plots.rootogram(posterior, bars=3).axes[0]
    assert len(wide.patches) <= 3
    total = sum(bar.get_height() ** 2 for bar in wide.patches)
    assert total == pytest.approx(float(weights.sum()))
    assert "values per bar" in wide.get_xlabel()
    with pytest.raises(NotApplicable, match="counts for a rootogram"):
        plots.rootogram(fitted(inference.Laplace()))


def test_densities_stand_on_zero(chains: Posterior) -> None:
    figures = plots.marginals({"fit": chains}), plots.pair(chains), plots.trace(chains)
    for figure in figures:
        found = [axis for axis in figure.axes if axis.get_ylabel() == "density"]
        assert found
        assert {axis.get_ylim()[0] for axis in found} == {0.0}


def test_the_elbo_states_the_steps_outside_its_panel() -> None:
    posterior = fitted(inference.SVI(steps=600))
    history = np.linspace(-10, -9, 600)
    history[:3] = -1e6
    stats = {**posterior.stats, "elbo_history": history}
    axis = plots.elbo(dataclasses.replace(posterior, stats=stats)).axes[0]
    low, high = axis.get_ylim()
    hidden = int(((history < low) | (history > high)).sum())
    assert 3 <= hidden < 60
    assert axis.get_xlabel() == f"step ({hidden} of 600 lie outside the panel)"
    moving = axis.lines[1]
    assert moving.get_label() == "mean of 30 steps"
    assert moving.get_ydata()[-1] == pytest.approx(history[-30:].mean())


@pytest.mark.parametrize("slope", [0.0, 2.0])
def test_the_elbo_of_a_guide_that_is_the_posterior_is_a_flat_line(slope: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 1))
    data = ppgp.Dataset(x, slope * x[:, 0] + rng.normal(size=30))
    model = models.LinearRegression(noise=0.3)
    exact = ppgp.fit(model, data, inference.SVI(), progress=False)
    axis = plots.elbo(exact).axes[0]
    low, high = axis.get_ylim()
    (line,) = axis.lines
    middle = exact.stats["elbo"]
    np.testing.assert_allclose(np.asarray(line.get_ydata()), middle, atol=1e-3)
    assert (low + 1, high - 1) == pytest.approx((middle, middle), abs=1e-3)
    assert axis.get_xlabel() == "draw from the guide"
    title = axis.get_title().replace("\n", " ")
    assert title.endswith("LinearRegression by SVI: no step, as the first guide is the posterior")
    mean_field = ppgp.fit(
        models.LinearRegression(), data, inference.SVI("normal", steps=50), progress=False
    )
    assert plots.elbo(mean_field).axes[0].get_xlabel().startswith("step")


def test_calibration_states_the_scalars_that_leave_the_band() -> None:
    rng = np.random.default_rng(0)
    ranks = {"right": rng.integers(0, 100, 200), "narrow": 99 * rng.integers(0, 2, 200)}
    title = plots.sbc(SBC(ranks)).axes[0].get_title().replace("\n", " ")
    assert title.endswith("200 simulations: fails; 1 of 2 scalars leave the band")
