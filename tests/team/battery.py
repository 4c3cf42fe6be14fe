"""What a team computes: run alone or by torchrun, it writes its results as JSON for each rank."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import ppgp
from ppgp import errors, inference, kernels, likelihoods, models, networks, priors
from ppgp.data.stream import streamed_rows
from ppgp.data.stream.streamed_rows import StreamedRows
from ppgp.inference.base import draw_batch
from ppgp.inference.variational.collapsed_svi import JointSteps, NaturalSteps, _heights
from ppgp.numerics.cholesky import inducing_root
from tests.parquet_tables import columns_of, write

N, D, M = 601, 3, 12  # 601 rows: unequal shards in teams of two and three


def table(labels: bool = False) -> ppgp.Dataset:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(N, D)) * [1.0, 2.0, 0.5] + [0.0, 50.0, 1e6]
    f = np.sin(2 * X[:, 0]) + 0.3 * (X[:, 1] - 50)
    y = 1e6 + f + 0.3 * generator.normal(size=N)
    if labels:
        return ppgp.Dataset(X, classes_of_rows())
    return ppgp.Dataset(X, y)


def classes_of_rows() -> np.ndarray:
    generator = np.random.default_rng(2)
    return np.where(generator.normal(size=N) > 0.3, "yes", "no")


def write_files(folder: Path) -> None:
    """Write the Parquet files that the ranks read."""
    whole = table()
    columns = columns_of(whole.X.numpy(), whole.y.numpy())
    write(folder / "in groups" / "a.parquet", 90, **columns)
    write(folder / "in one group" / "a.parquet", N, **columns)
    write(folder / "classes" / "a.parquet", 90, **{**columns, "y": classes_of_rows()})
    even = {name: column[:600] for name, column in columns.items()}
    write(folder / "even" / "a.parquet", 100, **even)
    labels = np.array(["a", "c", "b"])[np.arange(9) // 3]
    write(folder / "labels" / "a.parquet", 3, x0=np.arange(9.0), y=labels)
    write(folder / "one row" / "a.parquet", x0=[1.0], y=[0.0])
    spoilt = {name: column.copy() for name, column in columns.items()}
    spoilt["x1"][150] = np.nan  # in the second row group, which rank 1 reads
    write(folder / "spoilt" / "a.parquet", 90, **spoilt)


def counts() -> ppgp.Dataset:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(N, D))
    return ppgp.Dataset(X, generator.poisson(np.exp(0.5 * X[:, 0])), weights=np.arange(N) % 3)


def sgpr(team, results):
    data, scaler = team.share(table()).standardised()
    results["scaler"] = [*scaler.x_mean.tolist(), *scaler.x_sd.tolist(), float(scaler.y_sd)]
    shard = team.share(table())
    results["mean of a recipe prepared outside fit"] = models.GP().prepare(shard).mean
    Z = data.shared.X[:M]
    recipe = models.SGPR(kernels.ARD(kernels.Matern(1.5)) + kernels.White(), Z=Z)
    model = recipe.prepare(data.shared)
    target = ppgp.Target(model, data)
    z = torch.linspace(-0.5, 0.5, target.dim, dtype=torch.float64)
    before = team.bytes_reduced
    value, gradient = target.value_and_grad(z)
    results["bytes of an evaluation"] = team.bytes_reduced - before
    results["parameters"] = target.dim
    results["bound"], results["slope of the bound"] = float(value), gradient.tolist()
    results["hessian of the bound"] = target.hessian(z).flatten().tolist()
    theta = target.constrain(z)
    solved = model._solved(theta, data)
    assert torch.equal(solved.L, inducing_root(model._marginal(theta, data.X, Z).Kmm))
    results["upper bound"] = float(solved.rows.upper(solved.noise))
    results["q(u)"] = solved.rows.posterior(solved.noise)[0].tolist()


def search(team, results):
    data = team.share(table())
    Z = table().X[:M]
    posterior = ppgp.fit(models.SGPR(Z=Z), data, inference.MAP(steps=50), progress=False)
    results["end of L-BFGS, bits"] = {k: v.flatten().tolist() for k, v in posterior.theta.items()}
    results["log density at the end"] = posterior.stats["log_density"]
    results["observations"] = posterior.stats["observations"]
    results["log likelihood"] = posterior.stats["log_likelihood"]
    new = table().X[:5] + torch.tensor([0.1, 0.0, 0.0])
    results["predictions"] = posterior.predict(new).mean.tolist()
    loo = posterior.model.loo(posterior.theta, posterior.data).mean[0]
    results["leave-one-out"] = team.rows_of_all(loo).tolist()
    laplace = ppgp.fit(models.SGPR(Z=Z), data, inference.Laplace(draws=50), progress=False)
    results["evidence by Laplace"] = laplace.stats["log_evidence"]


def places(team) -> ppgp.Dataset:
    """Return rows in two columns, whose extremes are not on rank 0."""
    generator = np.random.default_rng(3)
    X = np.sort(generator.uniform(size=(N, 2)), 0) @ np.array([[3.0, 0.5], [-1.0, 2.0]])
    y = 5.0 + np.sin(2 * X[:, 0]) + 0.2 * X[:, 1] + 0.1 * generator.normal(size=N)
    return ppgp.Dataset(X, y)


NEIGHBOURS = {
    "no drift": models.Vecchia(neighbours=8, drift="none", mean=priors.Normal(0.0, 1.0)),
    "a constant": models.Vecchia(neighbours=8),
    "a plane": models.Vecchia(kernels.ARD(kernels.Matern(1.5)), neighbours=8, drift=1),
}


def neighbours(team, results):
    """Vecchia: each rank computes the conditional densities of some rows of all."""
    whole, data = places(team), team.share(places(team))
    for name, recipe in NEIGHBOURS.items():
        rows = whole.standardised()[0]
        model = recipe.prepare(rows)
        target = ppgp.Target(model, rows.worked_on_by(team))
        _density_and_curvature(target, f"Vecchia with {name}", results)
        how = inference.MAP(steps=5)
        posterior = ppgp.fit(recipe, data, how, progress=False)
        results[f"observations of Vecchia with {name}"] = posterior.stats["observations"]
        end = posterior.predict(whole.X[:5] + 0.01).mean.tolist()
        results[f"end of Vecchia with {name}"] = end
        results[f"rows of Vecchia with {name}"] = posterior.data.n
    loo = posterior.model.loo(posterior.theta, posterior.data).mean[0]
    results["leave-one-out of Vecchia"] = loo.tolist()
    own = torch.arange(60) if team.alone else torch.arange(60).chunk(team.size)[team.rank]
    rows = whole.standardised()[0]
    model = NEIGHBOURS["no drift"].prepare(rows)
    target = ppgp.Target(model, rows.worked_on_by(team))
    z = torch.linspace(-0.5, 0.5, target.dim, dtype=torch.float64)
    value, gradient = target.value_and_grad(z, own)
    results["value of Vecchia on a batch"] = float(value)
    results["slope of Vecchia on a batch"] = gradient.tolist()
    every = team.rows_of_all(draw_batch(target, N // team.size, torch.Generator()))
    assert len(every.unique()) == len(every) == N // team.size * team.size
    how = inference.MAP("adam", steps=20, batch_size=100)
    path = Path(sys.argv[1]) / f"Vecchia of {team.size}.checkpoint"
    ends = [
        ppgp.fit(NEIGHBOURS["no drift"], data, how, progress=False, checkpoint=path).theta["noise"]
        for _ in range(2)
    ]
    assert torch.equal(*ends)
    if not team.alone:  # the batches are others than those of one process
        results["end of Vecchia by Adam"] = ends[0].tolist()


def rare_columns(team, results):
    """Vecchia with a column of the drift that is 0 in the rows of all ranks but one."""
    whole, rare = places(team), torch.zeros(N, 1, dtype=torch.float64)
    rare[7] = 1.0
    rows = ppgp.Dataset(torch.cat([whole.X, rare], 1), whole.y)
    model = models.Vecchia(neighbours=8, drift=(2,)).prepare(rows)
    target = ppgp.Target(model, rows.worked_on_by(team))
    _density_and_curvature(target, "Vecchia with a rare column", results)


def grids(team, results):
    """SKI: the sums over rows are those of all ranks."""
    data = team.share(places(team)).standardised()[0]
    recipes = {
        "a constant": models.SKI(grid=12),
        "a line": models.SKI(grid=12, mean=models.LinearMean()),
        "many nodes": models.SKI(grid=72),
        "many nodes and a line": models.SKI(grid=72, mean=models.LinearMean()),
        "a network": models.SKI(kernels.Deep(networks.MLP((4,), 2), kernels.RBF()), grid=8),
    }
    for name, recipe in recipes.items():
        model = recipe.prepare(data.shared)
        target = ppgp.Target(model, data, optimise_params=True)
        _density_and_curvature(target, f"SKI with {name}", results)
    few = places(team).rows(slice(0, 151))  # leave-one-out solves a system for each row
    for name in ("a line", "many nodes"):
        posterior = ppgp.fit(recipes[name], team.share(few), inference.MAP(steps=5), progress=False)
        results[f"observations of SKI with {name}"] = posterior.stats["observations"]
        end = posterior.predict(places(team).X[:5]).mean.tolist()
        results[f"end of SKI with {name}"] = end
        loo = posterior.model.loo(posterior.theta, posterior.data).mean[0]
        results[f"leave-one-out of SKI with {name}"] = team.rows_of_all(loo).tolist()


def _density_and_curvature(target, name, results):
    z = target.origin() + 0.3 * torch.arange(target.dim, dtype=torch.float64).cos()
    value, gradient = target.value_and_grad(z)
    results[f"value of {name}"], results[f"slope of {name}"] = float(value), gradient.tolist()
    results[f"log likelihood of {name}"] = list(target.log_likelihood(z))
    if target.dim < 10 and "many nodes" not in name:
        results[f"hessian of {name}"] = target.hessian(z).flatten().tolist()


def svgp(team, results):
    data, _ = team.share(table()).standardised()
    model = models.SVGP(Z=data.shared.X[:M], mean=0.0).prepare(data.shared)
    target = ppgp.Target(model, data, optimise_params=True, collapsed_elbo=True)
    z = target.origin() + 0.01 * torch.arange(target.dim, dtype=torch.float64).sin()
    value, gradient = target.value_and_grad(z, jacobian=False)
    results["elbo"], results["slope of the elbo"] = float(value), gradient.tolist()
    for rate in (1.0, 0.3):
        moved = z.clone()
        steps = NaturalSteps(target, model, data, moved)
        results[f"elbo before a step of {rate}"] = steps.step(moved, None, rate)
        results[f"natural step of {rate}"] = moved.tolist()


def half_batches(team, results):
    """A step on two half batches is that on their union."""
    whole = table().rows(slice(0, 600))
    data, _ = team.share(whole).standardised()
    model = models.SVGP(Z=data.shared.X[:M], mean=0.0, learn=False).prepare(data.shared)
    target = ppgp.Target(model, data, optimise_params=True, collapsed_elbo=True)
    own = torch.arange(120) % data.n if team.alone else torch.arange(120 // team.size)
    if team.alone:  # the same rows as those of two or three ranks: the first of each shard
        parts = int(sys.argv[2])
        own = torch.cat([600 * r // parts + torch.arange(120 // parts) for r in range(parts)])
    z = target.origin() + 0.01 * torch.arange(target.dim, dtype=torch.float64).sin()
    value, gradient = target.value_and_grad(z, own, jacobian=False)
    moved = z.clone()
    NaturalSteps(target, model, data, moved).step(moved, own, 0.1)
    results["elbo of a batch"], results["slope of a batch"] = float(value), gradient.tolist()
    results["natural step on a batch"] = moved.tolist()


def regressions(team, results):
    posterior = ppgp.fit(
        models.LinearRegression(), team.share(table()), inference.Laplace(), progress=False
    )
    results["evidence of a linear model"] = posterior.stats["log_evidence"]
    results["covariance of a linear model"] = posterior.stats["covariance"].flatten().tolist()
    posterior = ppgp.fit(
        models.LogisticRegression(),
        team.shard(table(labels=True).rows(own_rows(team))),
        inference.MAP("newton"),
        progress=False,
    )
    results["weights of a logistic model"] = posterior.theta["weight"].flatten().tolist()
    results["classes"] = list(posterior.data.classes)
    posterior = ppgp.fit(
        models.GLM(likelihoods.Poisson()),
        team.share(counts()),
        inference.MAP("newton"),
        progress=False,
    )
    results["weights of a Poisson model"] = posterior.theta["weight"].flatten().tolist()
    posterior = ppgp.fit(
        models.LogisticRegression(),
        team.share(table(labels=True)),
        inference.SVI("normal", method="deterministic"),
        progress=False,
    )
    results["elbo of deterministic SVI"] = posterior.stats["elbo"]


def own_rows(team) -> torch.Tensor:
    """Return the rows of this rank where rank 0 has one row."""
    if team.alone:
        return torch.arange(N)
    if team.rank == 0:
        return torch.arange(1)
    return torch.arange(1, N).tensor_split(team.size - 1)[team.rank - 1]


def labels_of_ranks(team, results):
    """Each rank sees other labels, which become one list of classes."""
    labels = np.array(["a", "c", "b"])[np.arange(9) // 3]
    X = np.arange(9.0)[:, None]
    mine = np.arange(9) if team.alone else np.arange(9).reshape(3, 3)[team.rank :: team.size]
    data = team.shard(ppgp.Dataset(X[mine.ravel()], labels[mine.ravel()]))
    results["labels"] = list(data.classes)
    codes = team.rows_of_all(torch.stack([data.X[:, 0], data.y], 1))
    results["codes of labels"] = codes[codes[:, 0].argsort(), 1].tolist()


def storage(team, results):
    data = team.share(table())
    posterior = ppgp.fit(models.SGPR(Z=table().X[:M]), data, inference.MAP(), progress=False)
    path = Path(sys.argv[1]) / f"posterior of {team.size}"
    posterior.save(path)
    new = table().X[:3]
    if team.rank == 0:
        again = ppgp.load_posterior(path)
        results["rows of the file"] = again.data.n
        results["predictions of the file"] = again.predict(new).mean.tolist()
    posterior.predict(new)  # its sums over rows are those of all ranks


def streams(team, results):
    """The rows of Parquet files, a portion of them at a time, against those in memory."""
    streamed_rows.PORTION = 70  # the ranks have other numbers of portions
    folder = Path(sys.argv[1])
    for name in ("in groups", "in one group"):  # one row group for all ranks
        whole = table()
        data, scaler = whole.standardised()
        stream = team.share(ppgp.stream(folder / name, "y"))
        results[f"rows of a stream {name}"] = stream.total
        results[f"mean of a stream {name}"] = stream.statistics().y_mean
        results[f"sds of a stream {name}"] = stream.statistics().sds.tolist()
        if not team.alone:
            sample = stream.sample(100)
            results[f"sample {name}"] = len(sample) - 100 in range(team.size)
            # the last digit of a mean of 1e6 is the tenth of a number on the scale of the model
            data = StreamedRows.of(stream, scaler(sample), scaler)
        _density(models.LinearRegression(), data, f"linear model, {name}", results)
        Z = torch.linspace(-1, 1, M, dtype=torch.float64)[:, None] * torch.ones(D).double()
        model = models.SVGP(Z=Z, mean=0.0).prepare(data.shared)
        _density(model, data, f"SVGP, {name}", results, True)
        sparse = models.SGPR(kernels.ARD(kernels.Matern(1.5)), Z=Z).prepare(data.shared)
        sparse = replace(sparse, mean=0.0)  # of the same rows
        _density(sparse, data, f"SGPR, {name}", results)
    whole = table(labels=True)
    data, scaler = whole.standardised()
    if not team.alone:
        stream = team.share(ppgp.stream(folder / "classes", "y"))
        data = StreamedRows.of(stream, scaler(stream.sample(100)), scaler)
    _density(models.LogisticRegression(), data, "logistic model, in groups", results)
    target = ppgp.Target(models.LogisticRegression(), data)
    curvature = target.curvature(target.origin() + 0.1)
    results["curvature of a stream"] = [part.flatten().tolist() for part in curvature[1:]]
    Z = table().X[:M]
    rows = table() if team.alone else team.share(ppgp.stream(folder / "in groups", "y"))
    posterior = ppgp.fit(models.SGPR(Z=Z), rows, inference.MAP(steps=50), progress=False)
    results["log density of SGPR on a stream at the end"] = posterior.stats["log_density"]
    results["predictions of SGPR on a stream"] = posterior.predict(Z + 0.1).mean.tolist()
    for how in (inference.MAP(), inference.MAP("newton")):
        rows = table() if team.alone else team.share(ppgp.stream(folder / "in groups", "y"))
        posterior = ppgp.fit(models.LinearRegression(), rows, how, progress=False)
        name = f"log density of a stream at the end of {how.optimizer}"
        results[name] = posterior.stats["log_density"]
        results[f"weights of a stream by {how.optimizer}"] = posterior.theta["weight"].tolist()
    if not team.alone:
        assert posterior.save(folder / f"streamed by {team.size}").exists() or team.rank


def _density(model, data, name, results, bound=False):
    target = ppgp.Target(model, data, optimise_params=bound, collapsed_elbo=bound)
    z = torch.linspace(-0.5, 0.5, target.dim, dtype=torch.float64)
    if bound:
        z = target.origin() + 0.01 * torch.arange(target.dim, dtype=torch.float64).sin()
        results[f"heights of {name}"] = _heights(target, model, data, z)
    else:
        value, count = target.log_likelihood(z)
        results[f"log likelihood of {name}"], results[f"count of {name}"] = value, count
    value, gradient = target.value_and_grad(z, jacobian=not bound)
    results[f"value of {name}"], results[f"slope of {name}"] = float(value), gradient.tolist()


def steps_on_streams(team, results):
    """Batches of whole shards, whose union are all rows: the steps are those on all rows."""
    stream = team.share(ppgp.stream(Path(sys.argv[1]) / "even", "y"))
    data = StreamedRows.of(stream, stream.sample(stream.total)).standardised()[0]
    Z = torch.linspace(-1, 1, M, dtype=torch.float64)[:, None] * torch.ones(D).double()
    model = models.SVGP(Z=Z, mean=0.0).prepare(data.shared)
    bound = ppgp.Target(model, data, optimise_params=True, collapsed_elbo=True)
    z = bound.origin()
    options = inference.SVI(batch_size=stream.n, learning_rate=0.05)._options()
    natural = NaturalSteps(bound, model, data, z)
    step = JointSteps(options, bound, natural, z, torch.Generator().manual_seed(0))
    results["values of steps on a stream"] = [step(0.05) for _ in range(4)]
    results["end of steps on a stream"] = z.tolist()


def fits_of_streams(team, results):
    """Labels that some ranks alone have; a fit that ends in mid-epoch and goes on."""
    folder = Path(sys.argv[1])
    stream = team.share(ppgp.stream(folder / "labels", "y"))
    results["labels of a stream"] = list(stream.classes)
    (rows,) = stream.chunks(N)
    codes = team.rows_of_all(torch.stack([rows.X[:, 0], rows.y], 1))
    results["codes of a stream"] = codes[codes[:, 0].argsort(), 1].tolist()
    if team.alone:
        return
    stream = team.share(ppgp.stream(folder / "in groups", "y"))
    fits = {
        "SVGP": (models.SVGP(inducing=M), inference.SVI(steps=30, batch_size=70)),
        "adam": (models.LinearRegression(), inference.MAP("adam", steps=30, batch_size=70)),
        "sgd": (models.LinearRegression(), inference.MAP("sgd", steps=30, batch_size=70)),
    }
    for name, (model, how) in fits.items():
        whole = ppgp.fit(model, stream, how, progress=False)
        path = folder / f"{name} of {team.size}.checkpoint"
        with stopped(after=11):
            ppgp.fit(model, stream, how, progress=False, checkpoint=path)
        again = ppgp.fit(model, stream, how, progress=False, checkpoint=path)
        for key, value in whole.theta.items():
            assert torch.equal(again.theta[key], value), (name, key)
            results[f"end of {name} on a stream: {key}"] = value.flatten().tolist()
        results[f"rows of {name}"] = whole.stats["rows"]


@contextmanager
def stopped(after: int):
    """End searches by Ctrl-C after so many steps, on all ranks alike."""
    draw, drawn = StreamedRows.draw, 0

    def some(*args):
        nonlocal drawn
        drawn += 1
        if drawn > after:
            raise KeyboardInterrupt
        return draw(*args)

    StreamedRows.draw = some
    try:
        yield
    finally:
        StreamedRows.draw = draw


def mistakes(team, results):
    """What each rank hears of a mistake: rank 0 an error, the others an exit with status 1."""
    if team.alone:
        return
    data, seed = team.share(table()), team.rank
    folder = Path(sys.argv[1])
    stream = team.share(ppgp.stream(folder / "in groups", "y"))
    shortest = min(stream.rows_of_ranks)
    small = models.LinearRegression()
    smallest = N // team.size
    cases = {
        "a GP": lambda: ppgp.fit(models.GP(), data, inference.MAP(), progress=False),
        "NUTS": lambda: ppgp.fit(small, data, inference.NUTS(), progress=False),
        "no method": lambda: ppgp.fit(small, data, progress=False),
        "methods": lambda: ppgp.fit(
            small, data, inference.MAP(("lbfgs", "newton", "adam")[team.rank]), progress=False
        ),
        "seeds": lambda: ppgp.fit(small, data, inference.MAP(), seed=seed, progress=False),
        "a shared part": lambda: team.share(data),
        "a frame": lambda: team.share([[1.0, 2.0]]),
        "other rows": lambda: team.share(table().rows(slice(0, 20 + team.rank))),
        "other tables": lambda: team.share(table().rows(slice(team.rank, 20 + team.rank))),
        "starts": lambda: ppgp.fit(
            small,
            data,
            inference.MAP(),
            init=torch.ones(5, dtype=torch.float64) * team.rank,
            progress=False,
        ),
        "checkpoints": lambda: ppgp.fit(
            small,
            data,
            inference.MAP("adam"),
            checkpoint=None if team.rank else Path(sys.argv[1]) / "of rank 0",
            progress=False,
        ),
        "models": lambda: ppgp.fit(
            models.LinearRegression(noise=1.0 + team.rank), data, inference.MAP(), progress=False
        ),
        "a batch": lambda: ppgp.fit(
            small, data, inference.MAP("adam", batch_size=smallest + 1), progress=False
        ),
        "columns": lambda: team.shard(ppgp.Dataset(np.ones((4, 2 + team.rank)), np.arange(4.0))),
        "rows": lambda: team.share(table().rows(slice(0, 1))),
        "NaN of a stream": lambda: team.share(ppgp.stream(folder / "spoilt", "y")),
        "other streams": lambda: team.share(
            ppgp.stream(folder / ("even" if team.rank else "in groups"), "y")
        ),
        "other columns of streams": lambda: team.shard(
            ppgp.stream(folder / "even", "y", ["x0"] if team.rank else None)
        ),
        "a batch of a stream": lambda: ppgp.fit(
            models.SVGP(), stream, inference.SVI(batch_size=shortest + 1), progress=False
        ),
        "NUTS on a stream": lambda: ppgp.fit(small, stream, inference.NUTS(), progress=False),
        "SGLD on a stream": lambda: ppgp.fit(small, stream, inference.SGLD(), progress=False),
        "few rows": lambda: team.share(ppgp.stream(folder / "one row", "y")),
        "targets of one rank": lambda: ppgp.fit(
            models.GLM(likelihoods.Poisson()),
            team.shard(bad_counts(team)),
            inference.MAP(),
            progress=False,
        ),
    }
    for name, call in cases.items():
        try:
            call()
        except errors.PpgpError as error:
            results[f"mistake: {name}"] = str(error)
        except SystemExit as error:
            results[f"mistake: {name}"] = error.code
        else:
            results[f"mistake: {name}"] = "none"


def bad_counts(team) -> ppgp.Dataset:
    y = np.arange(6.0)
    y[3] -= 10.0 * (team.rank == 1)
    return ppgp.Dataset(np.arange(6.0)[:, None], y)


def statistics(team, results):
    """Columns and weights at which statistics of the ranks do not add up by themselves."""
    X = np.random.default_rng(2).normal(size=(60, 4))
    X[:, 1] = np.where(np.arange(60) < 20, 0.1, np.nextafter(0.1, 1.0))  # one number up to rounding
    X[:, 2] = np.where(np.arange(60) < 30, np.nan, 5.0)  # none on rank 0
    X[:20, 3] = np.nan
    weights = np.full(60, 1e-3)  # whose sum is below 1
    data = ppgp.Dataset(X, X[:, 0], weights=weights, missing="keep")
    scaler = team.share(data).standardised()[1]
    results["statistics"] = [*scaler.x_mean.tolist(), *scaler.x_sd.tolist(), float(scaler.y_sd)]
    rows = ppgp.Dataset(np.sort(X[:, :1], 0), X[:, 0])  # each rank has another range
    how = inference.MAP("adam", steps=2, adversarial=0.01)
    posterior = ppgp.fit(models.NeuralRegression(), team.share(rows), how, progress=False)
    results["adversarial losses"] = posterior.stats["losses"].tolist()
    y = np.sort(X[:, 0]) > 0  # a rank of one class separates nothing
    flat = models.LogisticRegression(weight=ppgp.priors.Flat(), bias=ppgp.priors.Flat())
    rows = ppgp.Dataset(X[:, :1], y)
    posterior = ppgp.fit(flat, team.share(rows), inference.MAP(), progress=False)
    results["warnings"] = list(posterior.warnings)


PARTS = (
    sgpr,
    search,
    neighbours,
    rare_columns,
    grids,
    svgp,
    half_batches,
    regressions,
    labels_of_ranks,
    storage,
    streams,
    steps_on_streams,
    fits_of_streams,
    mistakes,
    statistics,
)


def main() -> None:
    team = ppgp.Team.of_environment(timeout=600)
    results: dict = {"size": team.size}
    for part in PARTS:
        part(team, results)
    path = Path(sys.argv[1]) / f"rank {team.rank} of {team.size}, {sys.argv[2]}.json"
    path.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
