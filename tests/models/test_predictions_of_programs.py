"""What `predict` of a program takes and returns: units, sizes, deterministic values, arguments."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Predictive
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import DataError, DataWarning, NotApplicable, NotKnown, SettingError
from ppgp.models import Program

F64 = torch.float64
DRAWS = 500


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def at(program: Any, data: dict[str, Any], **draws: Tensor) -> ppgp.Posterior:
    """Return a posterior with the given draws, [draw, ...]."""
    kept = {name: value[None] for name, value in draws.items()}
    return ppgp.Posterior(Program(program), data, kept, inference.Laplace())


def agrees(prediction: ppgp.Prediction, draws: Tensor) -> None:
    """Compare mean and sd with those of draws [draw, n], within their Monte Carlo errors."""
    k = len(draws)
    sd = draws.std(0)
    both = math.sqrt(1 / k + 1 / prediction.draws)
    assert bool(((prediction.mean - draws.mean(0)).abs() < 4.5 * sd * both).all())
    # the error of an sd of draws with the tails of a normal or lighter
    assert bool(((prediction.std / sd - 1).abs() < 4.5 * both).all())


# -- units ---------------------------------------------------------------------------------------

TRIED = numbers(45, 45, 45)
HITS = numbers(18, 12, 6)


def players(tried: Tensor, hits: Tensor | None = None) -> None:
    skill = pyro.sample("skill", dist.Gamma(number(8), number(2)))
    with pyro.plate("players", len(tried)):
        rate = pyro.sample("rate", dist.Beta(skill, number(8)))
        pyro.sample("hits", dist.Binomial(tried, rate), obs=hits)


def draws_of_players() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    skill = 3 + torch.rand(DRAWS, generator=generator, dtype=F64)
    rate = numbers(0.4, 0.28, 0.15) + 0.05 * torch.rand(DRAWS, 3, generator=generator, dtype=F64)
    return {"skill": skill, "rate": rate}


def test_the_same_players_have_their_rates_in_another_season() -> None:
    draws = draws_of_players()
    posterior = at(players, {"tried": TRIED, "hits": HITS}, **draws)
    season = numbers(400, 300, 200)
    pyro.set_rng_seed(0)
    reference = Predictive(players, draws)(season)["hits"]
    agrees(posterior.predict(tried=season, local="same"), reference)
    agrees(posterior.predict(tried=TRIED), Predictive(players, draws)(TRIED)["hits"])


def test_new_players_have_rates_from_their_prior() -> None:
    draws = draws_of_players()
    posterior = at(players, {"tried": TRIED, "hits": HITS}, **draws)
    pyro.set_rng_seed(1)
    without = {"skill": draws["skill"]}
    for season, word in ((torch.full((5,), 40.0, dtype=F64), None), (numbers(9, 80, 200), "new")):
        reference = Predictive(players, without)(season)["hits"]
        agrees(posterior.predict(tried=season, local=word), reference)
    agrees(posterior.predict(tried=TRIED, local="new"), Predictive(players, without)(TRIED)["hits"])


def test_the_word_is_asked_for_where_both_can_be_meant() -> None:
    posterior = at(players, {"tried": TRIED, "hits": HITS}, **draws_of_players())
    with pytest.raises(NotApplicable, match=r"local='same' or local='new'.*fitted 'rate' of each"):
        posterior.predict(tried=TRIED + 1)
    with pytest.raises(DataError, match=r"as many units .* \[3\] at 'rate', got \[2\]"):
        posterior.predict(tried=TRIED[:2], local="same")
    with pytest.raises(SettingError, match="local='same' for the units of the fit"):
        posterior.predict(tried=TRIED, local="fit")
    data = ppgp.Dataset(np.arange(6.0)[:, None], np.arange(6.0) % 4)
    table = ppgp.fit(ppgp.models.LinearRegression(), data, inference.Exact(draws=10))
    with pytest.raises(NotApplicable, match="local"):
        table.predict(data.X, local="new")


def test_discrete_sites_never_ask() -> None:
    def mixture(x: Tensor, y: Tensor | None = None) -> None:
        p = pyro.sample("p", dist.Beta(number(2), number(2)))
        with pyro.plate("rows", len(x)):
            k = pyro.sample("k", dist.Bernoulli(p))
            pyro.sample("y", dist.Normal(x + 5 * k, number(0.3)), obs=y)

    posterior = at(
        mixture, {"x": numbers(0, 0), "y": numbers(0, 5)}, p=torch.full((50,), 0.3).to(F64)
    )
    x = numbers(1, 1)
    prior = posterior.predict(x=x)["y"].mean
    assert bool(((prior - 2.5).abs() < 4 * 5 * math.sqrt(0.21 / 1000)).all())
    both = posterior.predict(x=x, local="same")
    with pytest.raises(
        NotKnown, match=r"got those of sites 'k', 'y': take .* predictions\['y'\].mean"
    ):
        _ = both.mean
    with pytest.raises(AttributeError, match="mode"):
        _ = both.mode
    with pytest.raises(NotApplicable, match="a number for k to have a mean"):
        _ = both["k"].mean
    known = both["y"].mean
    torch.testing.assert_close(known, numbers(1, 6), atol=1e-6, rtol=0)


def test_an_argument_named_local_is_passed_by_arguments() -> None:
    def program(local: Tensor, y: Tensor | None = None) -> None:
        with pyro.plate("rows", len(local)):
            own = pyro.sample("own", dist.Normal(number(0), 1.0))
            pyro.sample("y", dist.Normal(local + own, number(0.1)), obs=y)

    own = numbers(-1, 1).expand(20, 2)
    posterior = at(program, {"local": numbers(0, 0), "y": numbers(-1, 1)}, own=own)
    shifted = posterior.predict(arguments={"local": numbers(5, 5)}, local="same")
    torch.testing.assert_close(shifted.mean, numbers(4, 6))


# -- sizes ---------------------------------------------------------------------------------------


def counts(data: Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(number(2), number(1)))
    with pyro.plate("rows", len(data)):
        pyro.sample("y", dist.Poisson(rate), obs=data)


def test_data_of_the_same_size_are_drawn_where_the_argument_sets_it() -> None:
    generator = torch.Generator().manual_seed(2)
    rate = 1 + torch.rand(DRAWS, generator=generator, dtype=F64)
    posterior = at(counts, {"data": numbers(0, 3, 1, 2)}, rate=rate)
    pyro.set_rng_seed(0)

    def unobserved(n: int) -> None:
        own = pyro.sample("rate", dist.Gamma(number(2), number(1)))
        with pyro.plate("rows", n):
            pyro.sample("y", dist.Poisson(own))

    again = posterior.predict()
    assert len(again) == 4
    agrees(again, Predictive(unobserved, {"rate": rate})(4)["y"])
    assert again.in_training_with(numbers(0, 3, 1, 2)).all()
    with pytest.warns(
        DataWarning, match="of 'data' the shape is used and the values are not"
    ) as told:
        other = posterior.predict(data=numbers(100, 100, 100, 100, 100, 100))
    assert len(told) == 1
    assert len(other) == 6
    torch.testing.assert_close(other.mean[:4], again.mean)


def test_other_sizes_ask_for_the_shape_and_do_not_turn_in_circles() -> None:
    def program(x: Tensor, y: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(slope * x, number(0.1)), obs=y)

    posterior = at(program, {"x": numbers(1, 2, 3), "y": numbers(2, 4, 6)}, slope=numbers(2, 2))
    torch.testing.assert_close(posterior.predict(x=numbers(5, 6, 7)).mean, numbers(10, 12, 14))
    with pytest.raises(DataError, match=r"'y' with as many rows .* pass y=, of which the shape"):
        posterior.predict(x=numbers(5, 6))
    with pytest.warns(DataWarning, match="of 'y' the shape"):
        assert posterior.predict(x=numbers(5, 6), y=numbers(0, 0)).mean.tolist() == [10, 12]
    with pytest.raises(DataError, match=r"none as 'x'.*call predict\(x=\.\.\.\)"):
        posterior.predict()
    with pytest.raises(NotApplicable, match=r"arguments among \['x', 'y'\]"):
        posterior.predict(z=1.0)


def test_a_part_of_an_argument_may_be_observed() -> None:
    def program(table: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(table)):
            pyro.sample("y", dist.Normal(slope * table[:, 0], number(0.1)), obs=table[:, 1])

    table = torch.stack([numbers(1, 2, 3), numbers(2, 4, 6)], 1)
    posterior = at(program, {"table": table}, slope=numbers(2, 2.5))
    torch.testing.assert_close(posterior.predict().mean, 2.25 * numbers(1, 2, 3))
    with pytest.warns(DataWarning, match="of 'table' the shape"):
        posterior.predict(table=table[:2])


def test_a_program_with_data_of_its_own_predicts_them() -> None:
    data = numbers(0.5, -0.5, 1.0)

    def program() -> None:
        mean = pyro.sample("mean", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", 3):
            pyro.sample("y", dist.Normal(mean, number(0.5)), obs=data)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = at(program, {}, mean=numbers(0.2, 0.4)).predict()
    torch.testing.assert_close(found.mean, numbers(0.3, 0.3, 0.3))


def test_a_program_without_data_is_one_sentence() -> None:
    def program() -> None:
        x = pyro.sample("x", dist.Normal(number(0), 1.0))
        pyro.factor("potential", -(x**2))

    with pytest.raises(NotApplicable, match="a site of the program that was not drawn"):
        at(program, {}, x=numbers(0.2)).predict()


# -- values and distributions --------------------------------------------------------------------


def test_values_of_deterministic_sites_come_with_the_prediction() -> None:
    def program(x: Tensor, y: Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(number(0), 1.0))
        line = pyro.deterministic("line", slope * x)
        pyro.deterministic("square", slope**2)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(line, number(0.1)), obs=y)

    data = {"x": numbers(1, 2, 3), "y": numbers(2, 4, 6)}
    posterior = ppgp.fit(program, data, inference.Laplace(draws=50), progress=False)
    slope = posterior.theta["slope"]
    new = numbers(4, 5)
    found = posterior.predict(x=new)
    assert set(found.deterministic) == {"line", "square"}
    torch.testing.assert_close(found.deterministic["line"], slope[:, None] * new)
    torch.testing.assert_close(found.deterministic["square"], slope**2)
    pyro.set_rng_seed(0)
    reference = Predictive(program, {"slope": slope}, return_sites=["line"])(new)["line"]
    torch.testing.assert_close(found.deterministic["line"], reference.squeeze(1))


def test_ordered_categories_have_probabilities() -> None:
    def program(x: Tensor, y: Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(x)):
            law = dist.OrderedLogistic(slope * x, numbers(-1, 1))
            pyro.sample("y", law, obs=y)

    x = numbers(-1, 0, 2)
    posterior = at(program, {"x": x, "y": torch.tensor([0, 1, 2])}, slope=numbers(0.5, 1.5))
    laws = [dist.OrderedLogistic(s * x, numbers(-1, 1)).probs for s in (0.5, 1.5)]
    found = posterior.predict(x=x)
    torch.testing.assert_close(found.probabilities, (laws[0] + laws[1]) / 2)
    assert found.probabilities.shape == (3, 3)


# -- frames --------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 1.1, 1.9, 3.2]})


def by_name(d: Any) -> None:
    b = pyro.sample("b", dist.Normal(number(0), 1.0))
    with pyro.plate("rows", len(d)):
        x, y = (torch.as_tensor(d[name].to_numpy().copy()) for name in ("x", "y"))
        pyro.sample("y", dist.Normal(b * x, number(0.2)), obs=y)


@pytest.mark.parametrize("frame", [FRAME, polars.from_pandas(FRAME)], ids=["pandas", "polars"])
def test_a_program_may_read_the_columns_of_a_frame(frame: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = ppgp.fit(by_name, {"d": frame}, inference.Laplace(draws=400), progress=False)
    x, y = (torch.tensor(FRAME[name].to_numpy()) for name in ("x", "y"))
    exact = float((x @ y / 0.04) / (x @ x / 0.04 + 1))
    sd = float((x @ x / 0.04 + 1) ** -0.5)
    assert abs(float(posterior.draws["b"].mean()) - exact) < 4 * sd / 400**0.5
    assert len(posterior.predict()) == 4
    with pytest.warns(DataWarning, match="of 'd' the shape"):
        two = posterior.predict(d=frame[:2])
    assert len(two) == 2


def test_frames_are_tensors_of_their_columns_for_other_programs() -> None:
    def program(X: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(X @ w, number(0.2)), obs=y)

    posterior = ppgp.fit(
        program, {"X": FRAME, "y": FRAME["y"]}, inference.Laplace(draws=5), progress=False
    )
    assert isinstance(posterior.data["X"], Tensor)
    assert len(posterior.predict(X=FRAME[:3])) == 3


# -- other numbers of units, columns and values ----------------------------------------------------


def change_point(data: Tensor) -> None:
    rates = pyro.sample("rates", dist.Exponential(torch.ones(2, dtype=F64)).to_event(1))
    when = torch.ones(len(data), dtype=F64) / len(data)
    tau = pyro.sample("tau", dist.Categorical(when))
    with pyro.plate("years", len(data)):
        before = torch.arange(len(data)) < tau
        pyro.sample("y", dist.Poisson(torch.where(before, rates[0], rates[1])), obs=data)


@pytest.mark.filterwarnings("ignore::ppgp.errors.DataWarning")
def test_a_discrete_site_with_fewer_values_is_new_or_refused() -> None:
    data = numbers(*[5] * 6, *[1] * 4)
    posterior = at(change_point, {"data": data}, rates=numbers(5, 1).expand(40, 2))
    for word in (None, "same"):
        with pytest.raises(DataError, match=r"as many values of 'tau' as in the fit, 10, got 4"):
            posterior.predict(data=data[:4], local=word)
    new = posterior.predict(data=data[:4], local="new")
    uniform = new["tau"].probabilities
    torch.testing.assert_close(uniform, torch.full((1, 4), 0.25, dtype=F64))
    # tau > t has the probability (3 - t) / 4
    mean = 1 + 4 * numbers(3, 2, 1, 0) / 4
    error = 4.5 * 2 / new["y"].draws ** 0.5
    assert bool(((new["y"].mean - mean).abs() < error).all())
    longer = posterior.predict(data=torch.zeros(12, dtype=F64))["y"].mean
    assert bool((longer[:4] > 4).all())
    assert bool((longer[8:] < 1.5).all())


def mixture_of_rows(data: Tensor) -> None:
    share = pyro.sample("share", dist.Beta(number(2), number(2)))
    with pyro.plate("rows", len(data)):
        k = pyro.sample("k", dist.Bernoulli(share))
        pyro.sample("y", dist.Normal(6 * k, number(0.3)), obs=data)


@pytest.mark.filterwarnings("ignore::ppgp.errors.DataWarning")
def test_another_number_of_rows_has_new_discrete_sites() -> None:
    posterior = at(
        mixture_of_rows, {"data": numbers(0, 6, 6)}, share=torch.full((40,), 0.3).to(F64)
    )
    again = posterior.predict()["y"].mean
    torch.testing.assert_close(again, numbers(0, 6, 6), atol=1e-6, rtol=0)
    for word in (None, "new"):
        new = posterior.predict(data=torch.zeros(5, dtype=F64), local=word)["y"]
        error = 4.5 * 6 * math.sqrt(0.21 / new.draws)
        assert bool(((new.mean - 1.8).abs() < error).all())
    with pytest.raises(DataError, match=r"as many units .* \[3\] at 'k', got \[5\]"):
        posterior.predict(data=torch.zeros(5, dtype=F64), local="same")


def classes_of_groups(y: Tensor | None = None, groups: int = 2, rows: int = 3) -> None:
    share = pyro.sample("share", dist.Beta(number(2), number(2)))
    with pyro.plate("groups", groups):
        k = pyro.sample("k", dist.Bernoulli(share))
        with pyro.plate("rows", rows):
            pyro.sample("y", dist.Normal(6 * k, number(0.3)), obs=y)


def test_another_number_of_groups_has_new_discrete_sites() -> None:
    y = numbers(0, 6).expand(3, 2)
    posterior = at(classes_of_groups, {"y": y}, share=torch.full((40,), 0.3).to(F64))
    same = posterior.predict()["y"].mean.reshape(3, 2)
    torch.testing.assert_close(same, y, atol=1e-6, rtol=0)
    longer = posterior.predict(rows=5)["y"].mean.reshape(5, 2)
    torch.testing.assert_close(longer, numbers(0, 6).expand(5, 2), atol=1e-6, rtol=0)
    for word in (None, "new"):
        new = posterior.predict(groups=5, local=word)
        assert new["k"].probabilities.shape == (5, 2)
        mean = new["y"].mean.reshape(3, 5)
        error = 4.5 * 6 * math.sqrt(0.21 / new["y"].draws)
        assert bool(((mean - 1.8).abs() < error).all())
        # the rows of a group share its class
        torch.testing.assert_close(mean, mean[:1].expand(3, 5), atol=1e-9, rtol=0)
    with pytest.raises(DataError, match=r"as many units .* \[2\] at 'k', got \[5\]"):
        posterior.predict(groups=5, local="same")


def by_a_factor(x: Tensor, y: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(number(0), 1.0))
    pyro.factor("ll", dist.Normal(slope * x, 1.0).log_prob(y).sum())


def test_data_in_a_factor_alone_are_not_predicted() -> None:
    x, y = numbers(1, 2, 3), numbers(0.5, 1, 2)
    posterior = at(by_a_factor, {"x": x, "y": y}, slope=numbers(*[0.5] * 5))
    said = (
        r"to be predicted, got none beside pyro\.factor \('ll'\), which has no distribution of "
        r"data: observe y by pyro\.sample\(\.\.\., obs=y\), with a distribution of your own if no "
        r"other one fits$"
    )
    each: list[dict[str, Any]] = [{}, {"x": x}, {"x": x, "y": y}]
    for arguments in each:
        with pytest.raises(NotApplicable, match=said):
            posterior.predict(**arguments)


def test_a_program_without_data_names_no_factor() -> None:
    def prior(n: int) -> None:
        pyro.sample("a", dist.Normal(torch.zeros(n, dtype=F64), 1.0).to_event(1))

    posterior = at(prior, {"n": 2}, a=torch.zeros(5, 2, dtype=F64))
    with pytest.raises(NotApplicable, match=r"got none: observe y by pyro\.sample\(.*obs=y\)$"):
        posterior.predict(n=2)


def factors(y: Tensor) -> None:
    loading = pyro.sample("loading", dist.Normal(torch.zeros(3, dtype=F64), 1.0).to_event(1))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("z", dist.Normal(number(0), 1.0))
        pyro.sample("y", dist.Normal(z[:, None] * loading, number(0.1)).to_event(1), obs=y)


@pytest.mark.filterwarnings("ignore::ppgp.errors.DataWarning")
def test_rows_of_several_numbers_have_units_of_their_own() -> None:
    loading, z = numbers(1, 2, -1), numbers(-1, 0.5)
    posterior = at(
        factors, {"y": z[:, None] * loading}, loading=loading.expand(40, 3), z=z.expand(40, 2)
    )
    torch.testing.assert_close(posterior.predict().mean, z[:, None] * loading)
    for count, word in ((4, None), (4, "new"), (2, "new")):
        new = posterior.predict(y=torch.zeros(count, 3, dtype=F64), local=word)
        sd = (loading.square() + 0.01).sqrt()
        runs = new.each.draws
        assert new.shape == (count, 3)
        assert bool((new.mean.abs() < 4.5 * sd / runs**0.5).all())
        assert bool(((new.std / sd - 1).abs() < 4.5 / runs**0.5).all())


def crossed(answers: Tensor) -> None:
    people, items = answers.shape
    with pyro.plate("items", items, dim=-1):
        hard = pyro.sample("hard", dist.Normal(number(0), 1.0))
    with pyro.plate("people", people, dim=-2):
        skill = pyro.sample("skill", dist.Normal(number(0), 2.0))
    with pyro.plate("both", people, dim=-2), pyro.plate("all", items, dim=-1):
        pyro.sample("y", dist.Normal(skill - hard, number(0.1)), obs=answers)


@pytest.mark.filterwarnings("ignore::ppgp.errors.DataWarning")
def test_new_people_of_another_plate_ask_for_the_word() -> None:
    hard, skill = numbers(0, 1, 2), numbers(-1, 1)[:, None]
    posterior = at(
        crossed, {"answers": skill - hard}, hard=hard.expand(40, 3), skill=skill.expand(40, 2, 1)
    )
    five = torch.zeros(5, 3, dtype=F64)
    with pytest.raises(DataError, match=r"write local='new' if all elements of plate 'people' are"):
        posterior.predict(answers=five)
    new = posterior.predict(answers=five, local="new")
    mean, runs = new.mean.reshape(5, 3), new.draws
    assert bool(((mean + hard).abs() < 4.5 * 2.01 / runs**0.5).all())


def test_other_columns_are_one_sentence() -> None:
    def program(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(x.shape[1], dtype=F64), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, number(0.1)), obs=y)

    x = torch.eye(3, dtype=F64)
    posterior = at(program, {"x": x, "y": numbers(1, 2, 3)}, w=numbers(1, 2, 3).expand(5, 3))
    with pytest.raises(DataError, match=r"'w' of shape \[3\].*belong to columns .* of the fit"):
        posterior.predict(x=x[:, :2])
    with pytest.raises(DataError, match="belong to columns"):
        posterior.predict(x=x[:, :2], local="new")


def test_a_mask_of_other_rows_is_one_sentence() -> None:
    def program(x: Tensor, seen: Tensor, y: Tensor | None = None) -> None:
        b = pyro.sample("b", dist.Normal(number(0), 1.0))
        with pyro.plate("rows", len(x)), pyro.poutine.mask(mask=seen):
            pyro.sample("y", dist.Normal(b * x, number(0.1)), obs=y)

    x, seen = numbers(1, 2, 3, 4), torch.tensor([True, False, True, True])
    posterior = at(program, {"x": x, "seen": seen, "y": x}, b=numbers(1, 1))
    assert len(posterior.predict(x=x[:3], seen=seen[:3])) == 3
    with pytest.raises(DataError, match=r"a mask of 'y' with its shape, \[4\], got \[3\]"):
        posterior.predict(x=x, seen=seen[:3])


def test_plates_of_a_fixed_size_are_one_sentence() -> None:
    def program(tried: Tensor, y: Tensor | None = None) -> None:
        with pyro.plate("variants", 2):
            p = pyro.sample("p", dist.Beta(number(1), number(1)))
            pyro.sample("y", dist.Binomial(tried, p), obs=y)

    posterior = at(
        program, {"tried": numbers(10, 20), "y": numbers(3, 9)}, p=numbers(0.3, 0.4)[None]
    )
    for word in (None, "new"):
        with pytest.raises(DataError, match=r"tried of shape \[3\], \[2\] in the fit .* as by len"):
            posterior.predict(tried=numbers(1, 2, 3), local=word)


# -- numbers that obs_mask makes latent ------------------------------------------------------------


def imputing(x: Tensor, y: Tensor | None = None) -> None:
    mean = pyro.sample("mean", dist.Normal(number(0), 2.0))
    with pyro.plate("rows", len(x)):
        known = pyro.sample("x", dist.Normal(mean, 1.0), obs=x, obs_mask=~x.isnan())
        pyro.sample("y", dist.Normal(3 * known, number(0.1)), obs=y)


def test_new_rows_have_imputed_covariates() -> None:
    x = numbers(0.5, math.nan, 2)
    data = {"x": x, "y": numbers(1.5, 3, 6)}
    posterior = ppgp.fit(imputing, data, inference.Laplace(draws=400), progress=False)
    found = posterior.draws["x"][0]  # the covariate with its imputed numbers
    torch.testing.assert_close(found[:, [0, 2]], x[[0, 2]].expand(400, 2))
    assert abs(float(found[:, 1].mean()) - 1) < 0.05
    new = posterior.predict(x=numbers(1, math.nan, 0, -1))
    mean = posterior.draws["mean"][0]
    sd = 3 * (mean.var() + 1).sqrt()
    torch.testing.assert_close(new.mean[[0, 2, 3]], numbers(3, 0, -3))
    assert abs(float(new.mean[1] - 3 * mean.mean())) < 4.5 * float(sd) * (2 / 400) ** 0.5
    assert abs(float(new.std[1] / sd) - 1) < 4.5 / 400**0.5


def test_rows_of_the_fit_with_nan_are_the_same_rows() -> None:
    x = numbers(0.5, math.nan, 2)
    data = {"x": x, "y": numbers(1.5, 3, 6)}
    posterior = ppgp.fit(imputing, data, inference.Laplace(draws=50), progress=False)
    found = posterior.predict(x=x.clone())  # the imputed number of the fit is kept
    torch.testing.assert_close(found.mean, 3 * posterior.draws["x"][0].mean(0))


def test_new_rows_with_data_on_imputed_numbers_are_refused() -> None:
    def program(x: Tensor, w: Tensor, y: Tensor | None = None) -> None:
        mean = pyro.sample("mean", dist.Normal(number(0), 2.0))
        with pyro.plate("rows", len(x)):
            known = pyro.sample("x", dist.Normal(mean, 1.0), obs=x, obs_mask=~x.isnan())
            pyro.sample("w", dist.Normal(known, 1.0), obs=w)
            pyro.sample("y", dist.Normal(known, number(0.1)), obs=y)

    x = numbers(0.5, math.nan, 2)
    data = {"x": x, "w": numbers(1, 1, 2), "y": numbers(0, 1, 2)}
    posterior = ppgp.fit(program, data, inference.Laplace(draws=20), progress=False)
    with pytest.raises(NotApplicable, match=r"'w' observed at new rows that have 'x_unobserved'"):
        posterior.predict(x=x[:2], w=numbers(3, 3))


def test_a_site_that_obs_mask_makes_latent_is_predicted() -> None:
    def program(x: Tensor, y: Tensor | None = None, seen: Tensor | None = None) -> None:
        b = pyro.sample("b", dist.Normal(number(0), 2.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(b * x, number(0.1)), obs=y, obs_mask=seen)

    x, seen = numbers(1, 2, 3), torch.tensor([True, False, True])
    data = {"x": x, "y": numbers(2, math.nan, 6), "seen": seen}
    posterior = ppgp.fit(program, data, inference.Laplace(draws=100), progress=False)
    b = posterior.draws["b"][0]
    for new in (x, numbers(5, 6, 7, 8)):
        torch.testing.assert_close(posterior.predict(x=new).mean, b.mean() * new)
