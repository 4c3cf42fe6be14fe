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
from ppgp.errors import DataError, DataWarning, NotApplicable, UnknownName
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
    with pytest.raises(UnknownName, match="did you mean 'same'"):
        posterior.predict(tried=TRIED, local="sam")
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
    known = posterior.predict(x=x, local="same")["y"].mean
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
