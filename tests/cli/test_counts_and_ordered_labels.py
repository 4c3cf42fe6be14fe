"""Counts, trials, groups and ordered labels in the estimators and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forked import ppgp as command
from sklearn.datasets import load_iris
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import cross_val_score
from statsmodels.miscmodels.ordinal_model import OrderedModel

import ppgp
from ppgp import likelihoods, models
from ppgp.errors import DataError, NotApplicable, UnknownName
from ppgp.estimators import ProbabilisticClassifier, ProbabilisticRegressor
from ppgp.priors import Flat

ORDER = ["small", "medium", "large"]
FLAT: Any = "GLM(Poisson(), weight=Flat(), bias=Flat())"


def rows(n: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    frame["log_exposure"] = np.log(rng.uniform(1, 5, n))
    frame["k"] = rng.poisson(np.exp(frame["log_exposure"] + 0.4 * frame["a"]))
    frame["trials"] = rng.integers(3, 9, n)
    frame["wins"] = rng.binomial(frame["trials"], 1 / (1 + np.exp(-frame["a"])))
    frame["site"] = rng.choice(list("pqrs"), n)
    cut = pd.cut(frame["a"] + rng.logistic(size=n), [-99, -1, 1, 99], labels=ORDER)
    frame["size"] = cut.astype(str)
    return frame


FRAME = rows()
X = FRAME[["a", "b"]]


# -- the estimators -------------------------------------------------------------------------------


def test_counts_under_flat_priors_are_the_poisson_regression_of_scikit_learn() -> None:
    found = ProbabilisticRegressor(FLAT).fit(X, FRAME["k"])
    peer = PoissonRegressor(alpha=0, tol=1e-10, max_iter=1000).fit(X, FRAME["k"])
    assert found.predict(X) == pytest.approx(peer.predict(X), rel=1e-5)


def test_columns_with_roles_are_those_of_a_dataset() -> None:
    offset, groups = FRAME["log_exposure"], {"site": FRAME["site"]}
    found = ProbabilisticRegressor("glm", "map", likelihood="poisson")
    found.fit(X, FRAME["k"], offset=offset, weights=np.ones(len(X)), groups=groups)
    assert isinstance(found.posterior_.model, models.Multilevel)
    posterior = ppgp.fit(
        models.GLM(likelihoods.Poisson(), groups={"site": models.Varying("1")}),
        ppgp.Dataset(X, FRAME["k"], offset=offset, groups=groups),
        found.posterior_.how,
        progress=False,
    )
    new = {"offset": offset[:3], "groups": {"site": ["p", "q", "elsewhere"]}}
    expected = posterior.predict(X[:3], **new)
    assert found.predict(X[:3], **new) == pytest.approx(expected.mean.numpy(), rel=1e-3)
    with pytest.raises(DataError, match="offset of the new rows"):
        found.predict(X)


def test_trials_are_those_of_each_row() -> None:
    model = "GLM(Binomial(), weight=Flat(), bias=Flat())"
    found = ProbabilisticRegressor(model).fit(X, FRAME["wins"], trials=FRAME["trials"])
    one, ten = (found.predict(X[:1], trials=count) for count in (1, 10))
    assert ten[0] == pytest.approx(10 * one[0])
    share = found.predict(X, trials=FRAME["trials"]).sum() / FRAME["wins"].sum()
    assert share == pytest.approx(1.0, rel=1e-5)  # the score of the intercept is 0


@pytest.mark.filterwarnings("ignore:the labels of y are texts")
@pytest.mark.parametrize("labels", ["sizes", "numbers", "letters"])
def test_ordered_labels_are_the_ordered_model_of_statsmodels(labels: str) -> None:
    codes = pd.Series(pd.Categorical(FRAME["size"], ORDER).codes)
    y: Any = {
        "sizes": pd.Series(pd.Categorical(FRAME["size"], ORDER, ordered=True)),
        "numbers": 10 * codes + 5,
        "letters": codes.map(dict(enumerate("xyz"))),
    }[labels]
    classes = {"sizes": ORDER, "numbers": [5, 15, 25], "letters": list("xyz")}[labels]
    model = models.GLM(likelihoods.Ordinal(cutpoints=Flat()), weight=Flat())
    found = ProbabilisticClassifier(model, "map").fit(X, y)
    assert found.classes_.tolist() == classes
    peer = OrderedModel(codes.to_numpy(), X.to_numpy(), distr="logit").fit(
        method="bfgs", disp=0, gtol=1e-6
    )
    assert found.predict_proba(X) == pytest.approx(peer.predict(), abs=2e-5)
    assert set(found.predict(X)) <= set(classes)


def test_more_than_two_classes() -> None:
    inputs, species = load_iris(return_X_y=True, as_frame=True)
    names = species.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    found = ProbabilisticClassifier(how="map").fit(inputs, names)
    assert isinstance(found.posterior_.model, models.SoftmaxRegression)
    assert found.predict_proba(inputs).shape == (150, 3)
    assert cross_val_score(ProbabilisticClassifier(how="map"), inputs, names, cv=3).min() > 0.9
    two = ProbabilisticClassifier(how="map").fit(inputs[:100], names[:100])
    assert isinstance(two.posterior_.model, models.LogisticRegression)
    with pytest.raises(ValueError, match="use model='softmax'"):
        ProbabilisticClassifier("logistic").fit(inputs, names)


def test_a_likelihood_needs_a_model_that_takes_one() -> None:
    with pytest.raises(NotApplicable, match="got linear: use glm, gp, svgp"):
        ProbabilisticRegressor("linear", likelihood="poisson").fit(X, FRAME["k"])
    with pytest.raises(UnknownName, match="did you mean 'poisson'"):
        ProbabilisticRegressor("glm", likelihood="poison").fit(X, FRAME["k"])
    latent = ProbabilisticClassifier("gp", "map", likelihood="bernoulli").fit(X, FRAME["k"] > 2)
    assert isinstance(latent.posterior_.model, models.LatentGP)


# -- the command line -----------------------------------------------------------------------------


def run(folder: Path, words: str, columns: list[str]) -> str:
    """Run a command on ``rows.csv`` with some columns of the rows; return what it printed."""
    FRAME[columns].to_csv(folder / "rows.csv", index=False)
    done = command(*words.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(folder: Path, words: str, columns: list[str]) -> str:
    FRAME[columns].to_csv(folder / "rows.csv", index=False)
    done = command(*words.split(), cwd=folder)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("ppgp: expected "), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_the_likelihood_and_the_offset_are_options(tmp_path: Path) -> None:
    words = "fit rows.csv --target k --model glm --likelihood poisson --offset log_exposure"
    columns = ["a", "b", "log_exposure", "k"]
    run(tmp_path, f"{words} --how map --out q.safetensors --no-progress", columns)
    posterior = ppgp.load_posterior(tmp_path / "q.safetensors")
    assert posterior.model.likelihood == likelihoods.Poisson()
    run(tmp_path, "predict q.safetensors rows.csv --out p.csv", columns)
    data = ppgp.Dataset(X, FRAME["k"], offset=FRAME["log_exposure"])
    expected = ppgp.fit(models.GLM(likelihoods.Poisson()), data, posterior.how, progress=False)
    found = pd.read_csv(tmp_path / "p.csv")["mean"].to_numpy()
    assert found == pytest.approx(expected.predict(data).mean.numpy(), rel=1e-6)
    sentence = refusal(tmp_path, words.replace("glm", "linear"), columns)
    assert "expected a model that takes a likelihood, got linear" in sentence
    sentence = refusal(tmp_path, f"{words}x", columns)
    assert "did you mean 'log_exposure'" in sentence


def test_groups_of_a_glm_have_intercepts_of_their_own(tmp_path: Path) -> None:
    words = "fit rows.csv --target wins --model glm --likelihood binomial --trials trials"
    words += " --groups site --how map --out q.safetensors --no-progress"
    columns = ["a", "b", "trials", "site", "wins"]
    assert "site.sd" in run(tmp_path, words, columns)
    model = ppgp.load_posterior(tmp_path / "q.safetensors").model
    assert model.groups == {"site": models.Varying("1")}
    run(tmp_path, "predict q.safetensors rows.csv --out p.csv", columns)
    assert len(pd.read_csv(tmp_path / "p.csv")) == len(FRAME)


def test_labels_have_the_order_that_is_given(tmp_path: Path) -> None:
    words = "fit rows.csv --target size --model ordinal --how laplace --out q.safetensors"
    words += " --no-progress --classes"
    columns = ["a", "b", "size"]
    run(tmp_path, f"{words} small,medium,large", columns)
    run(tmp_path, "predict q.safetensors rows.csv --calibration rows.csv --out p.csv", columns)
    found = pd.read_csv(tmp_path / "p.csv")
    assert found.columns.tolist() == ["p(small)", "p(medium)", "p(large)", "set"]
    assert np.corrcoef(FRAME["a"], found["p(large)"] - found["p(small)"])[0, 1] > 0.9
    sentence = refusal(tmp_path, f"{words} small,large", columns)
    assert "expected the labels small, large in size, got medium" in sentence
    sentence = refusal(tmp_path, f"{words} small,medium,large,huge", columns)
    assert "none of category 'huge'" in sentence
