"""What the table beside Pyro's NUTS is made with: functions without labels, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from programs_of_users import IN_ORDER, LABEL_FREE, PROGRAMS
from tool_modules import tool

import ppgp

beside, tables = tool("beside_pyro"), tool("tables_of_docs")

#: Programs in which figures of Pyro's run are off. Its NUTS gives weight 1 to each value of a
#: discrete site that a mask leaves out (capture and recapture); and 41 of its draws of exponential
#: smoothing diverge, of which a random walk of 400 chains has the 95 % quantile of sigma that ppgp
#: has, within .01.
DIFFER = {"capture_recapture", "exponential_smoothing"}


def drawn(seed: int, *event: int) -> torch.Tensor:
    """Return draws [chain, draw, *event]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, *event, generator=generator, dtype=torch.float64)


SWAPPED = [1, 0]
TURNED = [2, 0, 1]
MIXTURE = {"locs": drawn(0, 2), "weights": drawn(1, 2), "scale": drawn(2)}
TOPICS = {"topic": drawn(0, 2, 4), "share": drawn(1, 3, 2)}
CHAIN = {"loc": drawn(0, 2), "transition": drawn(1, 2, 2)}
NETWORK = {
    "first.weight": drawn(0, 3, 1),
    "first.bias": drawn(1, 3),
    "second.weight": drawn(2, 1, 3),
    "second.bias": drawn(3, 1),
    "sigma": drawn(4),
}
RENAMED = {
    "gaussian_mixture": (
        MIXTURE,
        MIXTURE | {name: MIXTURE[name][..., SWAPPED] for name in ("locs", "weights")},
    ),
    "topics": (
        TOPICS,
        {"topic": TOPICS["topic"][..., SWAPPED, :], "share": TOPICS["share"][..., SWAPPED]},
    ),
    "hidden_markov_model": (
        CHAIN,
        {
            "loc": CHAIN["loc"][..., SWAPPED],
            "transition": CHAIN["transition"][..., SWAPPED, :][..., SWAPPED],
        },
    ),
    "bayesian_network": (
        NETWORK,
        NETWORK
        | {
            "first.weight": -NETWORK["first.weight"][..., TURNED, :],  # tanh is odd
            "first.bias": -NETWORK["first.bias"][..., TURNED],
            "second.weight": -NETWORK["second.weight"][..., TURNED],
        },
    ),
}


@pytest.mark.parametrize("name", LABEL_FREE)
def test_other_labels_give_the_same_values(name: str) -> None:
    draws, renamed = RENAMED[name]
    found, of_renamed = LABEL_FREE[name](draws), LABEL_FREE[name](renamed)
    assert found.keys() == of_renamed.keys()
    for site, values in found.items():
        torch.testing.assert_close(values, of_renamed[site], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", IN_ORDER)
def test_draws_in_order_have_the_density_of_the_draws(name: str) -> None:
    users = PROGRAMS[name][1]()
    target = ppgp.density.Target(ppgp.models.Program(users.program), users.arguments)
    z = 0.5 * torch.randn(5, target.dim, generator=torch.Generator().manual_seed(0)).to(
        torch.float32
    )
    draws = {site: x[None] for site, x in target.constrain(z).items()}
    ordered = {site: x[0] for site, x in IN_ORDER[name](draws).items()}
    moved = target.unconstrain(ordered)
    assert not torch.allclose(moved, z)
    before, after = (
        torch.stack([target.log_density(row, jacobian=False) for row in rows])
        for rows in (z, moved)
    )
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-3)  # float32


def test_the_error_of_a_quantile_is_its_spread_over_repetitions() -> None:
    """Of independent draws; the sd of 400 quantiles is known to 4 %, the error to 2 %."""
    generator = np.random.default_rng(0)
    samples = generator.gamma(2.0, size=(400, 2, 500))
    for p in (0.05, 0.95):
        spread = np.quantile(samples.reshape(400, -1), p, axis=1).std(ddof=1)
        errors = [beside.quantile_error(x, p) for x in samples[:50]]
        assert np.mean(errors) == pytest.approx(spread, rel=0.2)


def test_equal_laws_agree_and_a_shift_is_seen() -> None:
    generator = np.random.default_rng(0)
    one, other = generator.normal(size=(2, 2, 1000, 3))
    z = beside.standardised(
        beside.summaries("equal", {"x": one}), beside.summaries("equal", {"x": other})
    )
    assert len(z) == 3 * 4
    assert max(map(abs, z.values())) < 4.5
    shifted = beside.summaries("equal", {"x": other + 0.5})
    assert beside.standardised(beside.summaries("equal", {"x": one}), shifted)["mean of x[0]"] < -8


def test_a_run_is_compared_with_the_figures_that_are_kept(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    record = {"draws": 1000, "jit": True, "seconds": 1.0, "processor": 1.0, "divergences": 0}
    for sampler in beside.SAMPLERS:
        path = tmp_path / f"scaled_prior.{sampler}.json"
        path.write_text(json.dumps(record))
        np.savez(path.with_suffix(".npz"), x=generator.normal(size=(2, 1000, 3)))
    both = beside.compared("scaled_prior", tmp_path)
    kept_run = beside.rounded(beside.loaded(tmp_path / "scaled_prior.Pyro.json", "scaled_prior"))
    found = beside.compared("scaled_prior", tmp_path, kept_run)
    assert found["largest"] == pytest.approx(both["largest"], rel=1e-3)  # of six digits
    assert beside.outcome(found) == "agree"
    assert beside.row(found)["ESS a second"] == ""  # times of another machine
    assert "0 of 12 z above 3" in beside.report({"scaled_prior": found})


def test_figures_of_pyro_are_kept_of_programs_as_they_are() -> None:
    """A program or data that were changed have another digest: the run is to be made again."""
    assert json.loads(beside.KEPT.read_text()).keys() == beside.kept().keys()


def test_the_page_shows_that_the_samplers_agree_and_how_fast_they_are() -> None:
    """Figures of one machine, as the command wrote them."""
    rows = tables.rows_of(tables.in_docs(beside.NAME))
    assert rows.keys() <= PROGRAMS.keys()
    assert {name for name, row in rows.items() if row["outcome"].startswith("differ")} <= DIFFER
    judged = {name: row for name, row in rows.items() if row["outcome"] == "agree"}
    assert len(judged) >= 45
    for column in ("ESS a second", "ESS a second of processor"):
        ratios = {name: float(row[column]) for name, row in judged.items()}
        assert np.exp(np.mean(np.log([*ratios.values()]))) >= 5
        assert min(ratios.values()) >= 1.5
