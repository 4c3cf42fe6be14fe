"""Columns with roles: how a table holds them, and how they reach a model and its predictions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

import ppgp
from ppgp import Dataset, inference, priors
from ppgp.data import load
from ppgp.data.roles import ROLES
from ppgp.density import Target
from ppgp.distributions import blocks
from ppgp.errors import DataError, NotApplicable, SettingError, UnknownName
from ppgp.models import Model
from ppgp.models.independent_rows import observed, predicted
from ppgp.models.sites import Theta, draw
from ppgp.posterior.loading import load_posterior
from ppgp.priors import PriorLike, Site, site
from ppgp.runtime.fingerprint import fingerprint

N = 12
X = np.arange(2.0 * N).reshape(N, 2) ** 1.3
Y = np.array([0.0, 2, 1, 3, 2, 4, 4, 3, 6, 8, 7, 9])
OFFSET = np.linspace(0.5, 2.0, N)
TRIALS = np.arange(10, 10 + N)
WEIGHTS = np.array([1.0, 2, 1, 1, 3, 1, 1, 0.5, 1, 1, 1, 2])
COUNTY = np.array(["cook", "ada", "cook", "bear"] * 3)
IDS = [f"row {i}" for i in range(N)]
COLUMNS: dict[str, Any] = {
    "noise_sd": np.linspace(0.1, 1.0, N),
    "right_censored": np.arange(N) % 3 == 0,
    "offset": OFFSET,
    "trials": TRIALS,
    "weights": WEIGHTS,
    "groups": {"county": COUNTY},
    "ids": IDS,
}
every_role = pytest.mark.parametrize("role", list(ROLES))


def table(*roles: str) -> Dataset:
    return Dataset(X, Y, **{role: COLUMNS[role] for role in roles})


def numbers(column: Any) -> list[Any]:
    if isinstance(column, dict):
        return [part.tolist() for part in column.values()]
    return list(column) if isinstance(column, tuple) else column.tolist()


def picked(column: Any, rows: list[int]) -> list[Any]:
    if isinstance(column, dict):
        return [part[rows].tolist() for part in column.values()]
    return [numbers(column)[i] for i in rows]


# -- a table with roles ------------------------------------------------------------------------


@every_role
def test_a_column_follows_its_rows(role: str) -> None:
    data, rows = table(role), [7, 2, 3]
    column = getattr(data, role)
    assert list(data.columns_with_roles) == [role]
    assert all(getattr(data, other) is None for other in ROLES if other != role)
    for index in (rows, torch.tensor(rows), np.array(rows)):
        assert numbers(getattr(data.rows(index), role)) == picked(column, rows)
    mask = torch.arange(N) < 4
    assert numbers(getattr(data.rows(mask), role)) == picked(column, [0, 1, 2, 3])
    assert numbers(getattr(data.rows(slice(1, 3)), role)) == picked(column, [1, 2])
    first, rest = data.split(0.5, seed=3)
    for part in (first, rest):
        places = [X[:, 0].tolist().index(x) for x in part.X[:, 0].tolist()]
        assert numbers(getattr(part, role)) == picked(column, places)


@every_role
def test_a_column_survives_a_scaler_and_a_change_of_dtype(role: str) -> None:
    data = table(role)
    scaled, scaler = data.standardised()
    by_y = float(scaler.y_sd) if role == "noise_sd" else 1.0
    for copy in (scaled, scaler(data)):
        if isinstance(getattr(data, role), Tensor):
            found = getattr(copy, role) * by_y
            torch.testing.assert_close(found.double(), getattr(data, role).double())
        else:
            assert numbers(getattr(copy, role)) == numbers(getattr(data, role))
    assert scaler.back(scaled).same_rows(data)
    narrow = data.to(torch.float32)
    wide = getattr(data, role)
    if isinstance(wide, Tensor):
        floating = wide.is_floating_point()
        assert getattr(narrow, role).dtype == (torch.float32 if floating else torch.bool)
    elif role == "groups":
        assert narrow.groups["county"].dtype == torch.int64  # type: ignore[index]
    assert narrow.same_rows(data)


@every_role
def test_other_columns_are_other_data(role: str) -> None:
    data, plain = table(role), Dataset(X, Y)
    order = list(range(1, N)) + [0]
    other = Dataset(X, Y, **{role: _reordered(COLUMNS[role], order)})
    compared = ROLES[role].compared
    assert data.same_rows(table(role))
    assert data.same_rows(plain) != compared
    assert plain.same_rows(data) != compared
    assert data.same_rows(other) != compared
    digests = {fingerprint(one.content) for one in (data, plain, other)}
    assert len(digests) == (1 if role == "ids" else 3)


def _reordered(column: Any, order: list[int]) -> Any:
    if isinstance(column, dict):
        return {name: part[order] for name, part in column.items()}
    return [column[i] for i in order]


@every_role
def test_the_program_receives_a_column_by_its_name(role: str) -> None:
    data, rows = table(role), torch.tensor([4, 1])
    whole, some = data.passed()[1], data.passed(data.tables(rows))[1]
    if role == "ids":
        assert whole == some == {"total": N}
        return
    assert whole.keys() == some.keys() == {"total", role}
    assert numbers(whole[role]) == numbers(getattr(data, role))
    assert numbers(some[role]) == numbers(getattr(data.rows(rows), role))
    drawn = data.passed(observed=False)[1]
    assert (role in drawn) == (role not in ("right_censored", "weights"))


def test_the_repr_names_the_roles() -> None:
    text = repr(table(*ROLES))
    assert "noise known, 4 right-censored, offset, trials, weights of sum 15.5, groups" in text
    assert "groups county, ids" in text


def test_labels_become_codes_in_the_order_of_their_levels() -> None:
    data = table("groups")
    assert data.group_levels == {"county": ("ada", "bear", "cook")}
    assert data.groups["county"].tolist() == [2, 0, 2, 1] * 3  # type: ignore[index]
    years = Dataset(X, Y, groups={"year": np.array([10.0, 9, 100, 9] * 3)})
    assert years.group_levels == {"year": ("9", "10", "100")}
    ordered = pd.Categorical(COUNTY, categories=["cook", "bear", "ada", "none"])
    frame = pd.DataFrame({"a": X[:, 0], "y": Y, "county": ordered})
    assert Dataset.from_frame(frame, "y", groups=["county"]).group_levels == {
        "county": ("cook", "bear", "ada", "none")
    }
    both = Dataset(X, Y, groups=pd.DataFrame({"county": COUNTY, "half": np.arange(N) % 2}))
    assert both.group_levels == {"county": ("ada", "bear", "cook"), "half": ("0", "1")}
    codes = Dataset(X, Y, groups={"g": [0, 1, -1] * 4}, group_levels={"g": ["a", "b"]})
    assert codes.groups["g"].tolist() == [0, 1, -1] * 4  # type: ignore[index]
    assert Dataset(X, Y, groups={}).groups is None


def test_one_number_stands_for_all_rows() -> None:
    data = Dataset(X, Y, offset=1.5, trials=20)
    assert data.offset.tolist() == [1.5] * N  # type: ignore[union-attr]
    assert data.trials.tolist() == [20] * N  # type: ignore[union-attr]


WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("offset", OFFSET[:5], DataError, r"offset with shape \[12\], one per row, got shape \[5\]"),
    ("offset", np.where(Y == 3, np.inf, 1), DataError, "finite offset.*rows 3, 7: for log"),
    ("trials", TRIALS + 0.5, DataError, "whole numbers >= 1 as trials, got others in rows 0, 1"),
    ("trials", TRIALS - 10, DataError, "whole numbers >= 1 as trials, got others in row 0"),
    ("trials", np.full(N, np.nan), DataError, "whole numbers >= 1 as trials"),
    ("trials", TRIALS[:, None].repeat(2, 1), DataError, r"trials with shape \[12\]"),
    ("weights", -WEIGHTS, DataError, "finite weights >= 0, got others in rows 0, 1"),
    ("weights", np.full(N, np.inf), DataError, "finite weights >= 0"),
    ("weights", np.zeros(N), DataError, "a weight above 0, got 0 in all 12 rows"),
    ("weights", 2.0, DataError, r"weights with shape \[12\], one per row, got shape \[\]"),
    ("groups", COUNTY, SettingError, r"groups as \{name: labels\}, got ndarray"),
    ("groups", {"county": COUNTY[:4]}, DataError, r"the groups county with shape \[12\]"),
    ("groups", {"c": [None, *COUNTY[1:]]}, DataError, "a label in every row.*none in row 0"),
    ("groups", {"c": X}, DataError, r"one label per row in the groups c, got shape \[12, 2\]"),
    ("ids", IDS[:3], DataError, r"ids with shape \[12\]"),
    ("ids", [None, *IDS[1:]], DataError, "a name of every row as ids, got none in row 0"),
]


@pytest.mark.parametrize(("role", "column", "kind", "words"), WRONG)
def test_wrong_columns_are_refused(
    role: str, column: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        Dataset(X, Y, **{role: column})


def test_codes_without_a_level_are_refused() -> None:
    with pytest.raises(DataError, match=r"codes 0 .. 1 in the groups g.*others in row 2"):
        Dataset(X, Y, groups={"g": [0, 1, 2] + [0] * 9}, group_levels={"g": ["a", "b"]})
    with pytest.raises(SettingError, match="levels of every grouping, got those of grouping h"):
        Dataset(X, Y, groups={"g": [0] * N}, group_levels={"h": ["a"]})


# -- frames and files --------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"a": X[:, 0], "b": X[:, 1], "hits": Y, "log_e": OFFSET, "tries": TRIALS, "often": WEIGHTS}
    | {"county": COUNTY, "half": np.arange(N) % 2, "who": IDS}
)
NAMED: dict[str, Any] = {"offset": "log_e", "trials": "tries", "weights": "often", "ids": "who"}
NAMED["groups"] = ["county", "half"]


def test_columns_of_a_frame_or_a_file_have_roles(tmp_path: Path) -> None:
    data = Dataset.from_frame(FRAME, "hits", **NAMED)
    assert data.feature_names == ("a", "b")
    assert data.names_of_roles == {role: NAMED[role] for role in NAMED if role != "groups"}
    assert numbers(data.groups) == [[2, 0, 2, 1] * 3, [0, 1] * 6]
    assert data.ids == tuple(IDS)
    FRAME.to_csv(tmp_path / "hits.csv", index=False)
    loaded = load(tmp_path / "hits.csv", target="hits", **NAMED)
    assert loaded.same_rows(data)
    assert loaded.ids == data.ids
    named = Dataset(FRAME[["a", "b"]], FRAME["hits"], offset=FRAME["log_e"])
    assert named.names_of_roles == {"offset": "log_e"}


def test_columns_that_cannot_have_a_role_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"offset column.*log_e"):
        Dataset.from_frame(FRAME, "hits", offset="loge")
    with pytest.raises(UnknownName, match="column of groups"):
        Dataset.from_frame(FRAME, "hits", groups=["count"])
    with pytest.raises(SettingError, match="weights in a column of its own, got the trials 'tries"):
        Dataset.from_frame(FRAME, "hits", trials="tries", weights="tries")
    with pytest.raises(SettingError, match=r"a list of columns as groups, got 'county'"):
        Dataset.from_frame(FRAME, "hits", groups="county")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="trials of a file"):
        load("iris", trials="a")


# -- a model that takes them ---------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Successes(Model):
    """Binomial y with an offset of the log-odds and one number per county; test of the roles."""

    weight: PriorLike = priors.Normal(0.0, 1.0)
    scales = "X"
    roles = ("offset", "trials", "groups", "weights")
    survey = 2

    def sites(self, d: int) -> dict[str, Site]:
        level = site("level", priors.Normal(0.0, 1.0), (3,))
        return {"weight": site("weight", self.weight, (d,)), "level": level}

    def distribution(
        self,
        theta: Theta,
        X: Tensor,
        offset: Tensor | None = None,
        trials: Tensor | None = None,
        groups: dict[str, Tensor] | None = None,
    ) -> Distribution:
        assert trials is not None
        assert groups is not None
        assert offset is not None
        assert len(trials) == len(offset) == len(groups["county"]) == len(X)
        code = groups["county"]
        level = torch.where(code >= 0, theta["level"][..., code.clamp_min(0)], 0.0)
        f = theta["weight"] @ X.mT + offset + level
        return dist.Binomial(trials, logits=f)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
        **columns: Any,
    ) -> Tensor:
        theta = draw(self.sites_at(X.shape[-1]), X)
        return observed(self.distribution(theta, X, **columns), X, y, total, weights)

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False, **columns: Any
    ) -> Distribution:
        return predicted(self.distribution, theta, X, joint, columns)


ROLES_OF_SUCCESSES: dict[str, Any] = {"offset": "log_e", "trials": "tries", "groups": ["county"]}
FRAME_OF_SUCCESSES = FRAME.drop(columns=["often", "half", "who"])
DATA = Dataset.from_frame(FRAME_OF_SUCCESSES, "hits", **ROLES_OF_SUCCESSES)


@pytest.fixture(scope="module")
def fitted() -> ppgp.Posterior:
    return ppgp.fit(Successes(), DATA, inference.Laplace(draws=20), progress=False)


def test_predict_finds_the_columns_by_name_or_in_a_table(fitted: ppgp.Posterior) -> None:
    columns = {"offset": OFFSET, "trials": TRIALS, "groups": {"county": COUNTY}}
    expected = fitted.predict(X, **columns)
    assert float(expected.variance.min()) > 0
    shuffled = FRAME_OF_SUCCESSES[["county", "tries", "b", "a", "log_e"]]
    for rows in (DATA, FRAME_OF_SUCCESSES, shuffled):
        assert torch.equal(fitted.predict(rows).mean, expected.mean)
    more = fitted.predict(X, **{**columns, "trials": 2 * TRIALS})
    torch.testing.assert_close(more.mean, 2 * expected.mean)
    assert torch.equal(fitted.predict(DATA, trials=2 * TRIALS).mean, more.mean)
    # sums over two columns and 20 draws are rounded in another order where there are fewer rows
    part = DATA.rows(slice(3, 5))
    torch.testing.assert_close(fitted.predict(part).mean, expected.mean[3:5], rtol=1e-13, atol=0.0)


def test_a_level_that_the_fit_does_not_know_has_the_code_minus_one(fitted: ppgp.Posterior) -> None:
    some = FRAME_OF_SUCCESSES[:2].assign(county=["nowhere", None])
    flat = {name: v.flatten(0, 1) for name, v in fitted.draws.items()}
    X_new = fitted.scaler.inputs(torch.tensor(X[:2]))
    f = flat["weight"] @ X_new.mT + torch.tensor(OFFSET[:2])
    expected = (f.sigmoid() * torch.tensor(TRIALS[:2])).mean(0)
    torch.testing.assert_close(fitted.predict(some).mean, expected)
    # the codes of another table are those of its own levels
    other = Dataset.from_frame(FRAME_OF_SUCCESSES[:2], "hits", **ROLES_OF_SUCCESSES)
    assert other.group_levels != DATA.group_levels
    first = fitted.predict(DATA).mean[:2]
    torch.testing.assert_close(fitted.predict(other).mean, first, rtol=1e-13, atol=0.0)


def test_predict_needs_what_the_fit_used(fitted: ppgp.Posterior) -> None:
    with pytest.raises(DataError, match="offset of the new rows, as the training rows have it"):
        fitted.predict(X)
    with pytest.raises(DataError, match="trials of the new rows"):
        fitted.predict(FRAME_OF_SUCCESSES.drop(columns="tries"))
    with pytest.raises(DataError, match="groups of the new rows"):
        fitted.predict(X, offset=0.0, trials=3)
    with pytest.raises(UnknownName, match="grouping"):
        fitted.predict(X, offset=0.0, trials=3, groups={"state": COUNTY})
    with pytest.raises(DataError, match=r"offset with shape \[12\]"):
        fitted.predict(DATA, offset=OFFSET[:3])
    with pytest.raises(NotApplicable, match="a model that takes known noise, got Successes"):
        fitted.predict(DATA, noise_sd=0.1)
    with pytest.raises(NotApplicable, match="X, joint, noise_sd, offset, trials and groups"):
        fitted.predict(DATA, exposure=0.1)


def test_new_rows_without_what_the_fit_did_not_have(fitted: ppgp.Posterior) -> None:
    @dataclass(frozen=True, repr=False)
    class Plain(Successes):
        def distribution(self, theta: Theta, X: Tensor, **columns: Any) -> Distribution:
            return dist.Poisson((theta["weight"] @ X.mT).exp())

    plain = ppgp.fit(Plain(), Dataset(X, Y), inference.MAP(), progress=False)
    with pytest.raises(DataError, match="new rows without offset, as the training rows have none"):
        plain.predict(X, offset=1.0)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    "how",
    [
        inference.MAP(),
        inference.MAP("adam", steps=4, batch_size=5),
        inference.MAP("adam", steps=4, starts=2, batch_size=5),
        inference.MAP("adam", steps=40, hold_out=0.3),
        inference.SVI(steps=4, batch_size=5),
        inference.SVI("lowrank", steps=4, draws=3),
        inference.NUTS(draws=4, warmup=4, chains=1, max_depth=2),
        inference.SGLD(draws=4, warmup=4, chains=1, batch_size=5),
        inference.Pathfinder(draws=4),
    ],
    ids=["map", "adam", "starts", "hold_out", "svi", "lowrank", "nuts", "sgld", "pathfinder"],
)
def test_every_method_slices_the_columns_with_the_rows(how: inference.Inference) -> None:
    posterior = ppgp.fit(Successes(), DATA, how, progress=False)
    assert posterior.log_likelihood().shape[-1] == N
    posterior.to_arviz(prior=2, predictive=True)


def test_the_object_of_arviz_holds_the_columns_and_the_names_of_the_rows() -> None:
    data = Dataset.from_frame(FRAME.drop(columns="half"), "hits", **NAMED | {"groups": ["county"]})
    posterior = ppgp.fit(Successes(), data, inference.MAP(), progress=False)
    constant = posterior.to_arviz()["constant_data"]
    assert constant["X"].coords["row"].to_numpy().tolist() == IDS
    for name, column in (("offset", OFFSET), ("trials", TRIALS), ("weights", WEIGHTS)):
        assert constant[name].dims == ("row",)
        assert constant[name].to_numpy().tolist() == column.tolist()
    assert constant["groups.county"].to_numpy().tolist() == [2, 0, 2, 1] * 3


def test_many_rows_are_predicted_in_blocks(
    fitted: ppgp.Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted.predict(DATA).mean
    monkeypatch.setattr(blocks, "BLOCK", 100)  # 5 rows of 20 draws
    # On some processors a matrix product rounds otherwise at another shape. The log-odds, sums of
    # 2 products of size up to 6, then differ by up to 12 eps, and their means relatively no more.
    rounding = 20 * torch.finfo(torch.float64).eps
    torch.testing.assert_close(fitted.predict(DATA).mean, whole, rtol=rounding, atol=0.0)


def test_a_file_holds_the_columns(fitted: ppgp.Posterior, tmp_path: Path) -> None:
    data = Dataset.from_frame(FRAME.drop(columns="half"), "hits", **NAMED | {"groups": ["county"]})
    posterior = ppgp.fit(Successes(), data, inference.MAP(), progress=False)
    loaded = load_posterior(posterior.save(tmp_path / "a.ppgp"), model=Successes())
    assert loaded.data.columns_with_roles.keys() == data.columns_with_roles.keys()
    assert loaded.data.same_rows(posterior.data)
    assert loaded.data.ids == data.ids
    assert loaded.data.group_levels == data.group_levels
    assert torch.equal(
        loaded.predict(FRAME.drop(columns="half")).mean, posterior.predict(data).mean
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_conformal_sets_and_metrics_use_the_columns_of_their_rows(fitted: ppgp.Posterior) -> None:
    cross = ppgp.cross_calibrate(Successes(), DATA, inference.MAP(), folds=3)
    assert len(cross(DATA).lower) == N  # type: ignore[arg-type]
    with pytest.raises(DataError, match="offset of the new rows"):
        cross(X)
    test, calibration = DATA.rows([0, 1, 2]), DATA.rows(slice(3, None))
    table = ppgp.compare({"a": fitted}, test=test, calibration=calibration)
    assert table is not None


def test_the_density_of_a_mini_batch_is_unbiased_with_weights() -> None:
    data = Dataset.from_frame(FRAME.drop(columns="half"), "hits", **NAMED | {"groups": ["county"]})
    target = Target(Successes(), data.standardised(scale_y=False)[0])
    z = target.start(seed=1, spread=0.3, compile=False)
    parts = [target.log_density(z, rows) for rows in torch.arange(N).split(4)]
    torch.testing.assert_close(torch.stack(parts).mean(), target.log_density(z))
    twice = data.rows(torch.arange(N).repeat_interleave(torch.tensor(WEIGHTS * 2).long()))
    doubled = Dataset(data.X, data.y, weights=2 * WEIGHTS, **data.for_prediction | _levels(data))
    repeated = Dataset(twice.X, twice.y, **twice.for_prediction | _levels(twice))
    torch.testing.assert_close(
        Target(Successes(), doubled).log_density(z), Target(Successes(), repeated).log_density(z)
    )


def _levels(data: Dataset) -> dict[str, Any]:
    return {"group_levels": data.group_levels}
