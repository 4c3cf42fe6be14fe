"""Fits and predictions in several threads of Python equal those of one thread.

The tests run in processes of their own, without the limits of the suite.
"""

from __future__ import annotations

from fresh_process import printed

PROGRAMS = """
import faulthandler, sys, warnings
from concurrent.futures import ThreadPoolExecutor
warnings.simplefilter("ignore")
import ppgp, pyro, torch
import pyro.distributions as dist
from ppgp import Dataset, inference, kernels, models, networks

sys.setswitchinterval(1e-4)
g = torch.Generator().manual_seed(0)
X = torch.rand(30, 2, generator=g, dtype=torch.float64)
data = Dataset(X, torch.sin(3 * X[:, 0]) + 0.1 * torch.randn(30, generator=g, dtype=torch.float64))


def line(x, y=None):
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)


def branch(x, y=None):  # cannot be compiled
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))
    if slope > 0.1:
        slope = slope + 0.01
    with pyro.plate("rows", len(x)):
        return pyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)


arguments = dict(x=data.X[:, 0], y=data.y)
"""

FITS = """
jobs = [
    (models.LinearRegression(), data, inference.NUTS(draws=20, warmup=20, chains=2)),
    (branch, arguments, inference.NUTS(draws=20, warmup=20, chains=2)),
    (line, arguments, inference.SVI(steps=20, draws=20, guide="iaf")),
    (line, arguments, inference.SVI(steps=20, draws=20)),
    (models.GP(), data, inference.MAP()),
    (line, arguments, inference.Laplace(draws=20)),
]


def fitted(job):
    posterior = ppgp.fit(*job, seed=3, progress=False)
    prediction = posterior.predict(**({"x": data.X[:, 0]} if callable(job[0]) else {"X": data.X}))
    if isinstance(prediction, dict):
        prediction = prediction["y"]
    numbers = {**posterior.draws, **posterior.params, "y": prediction.sample(3, seed=1)}
    return numbers, posterior.warnings


def same(a, b):
    if a[1] != b[1] or a[0].keys() != b[0].keys():
        return False
    return all(torch.equal(a[0][k], b[0][k]) for k in a[0])


alone = [fitted(job) for job in jobs]
filters, stream = list(warnings.filters), torch.get_rng_state()
with ThreadPoolExecutor(4) as pool:
    together = list(pool.map(fitted, jobs * 2))
print(*(same(a, b) for a, b in zip(alone * 2, together)))
print(all(same(fitted(job), a) for job, a in zip(jobs, alone)))
print(
    warnings.filters == filters,
    torch.equal(stream, torch.get_rng_state()),
    len(pyro.poutine.runtime._PYRO_STACK),
)
print(len(pyro.get_param_store()))
"""


def test_concurrent_fits_equal_single_ones() -> None:
    assert printed(PROGRAMS + FITS) == ["True"] * 12 + ["True", "True", "True", "0", "0"]


PREDICTIONS = """
posteriors = {
    "line": ppgp.fit(line, arguments, inference.Laplace(draws=20), progress=False),
    "gp": ppgp.fit(models.GP(), data, inference.Laplace(draws=20), progress=False),
    "network": ppgp.fit(
        models.GP(kernels.Deep(networks.MLP((8,), 2), kernels.RBF())),
        data,
        inference.MAP(steps=3),
        progress=False,
    ),
}


def drawn(name):
    posterior = posteriors[name]
    if name == "line":
        return posterior.predict(x=data.X[:, 0]).sample(5, seed=1)
    return posterior.predict(data.X).sample(5, seed=1)


stream = torch.get_rng_state()
for name in posteriors:
    alone = drawn(name)
    with ThreadPoolExecutor(8) as pool:
        print(sum(not torch.equal(alone, result) for result in pool.map(drawn, [name] * 200)))
print(torch.equal(stream, torch.get_rng_state()))
"""


def test_draws_from_predictions_in_eight_threads_equal_those_of_one() -> None:
    assert printed(PROGRAMS + PREDICTIONS) == ["0", "0", "0", "True"]


FORKED = """
import multiprocessing, os, warnings
warnings.simplefilter("ignore")
import ppgp, torch
from ppgp import Dataset, inference, models

torch.set_num_threads(2)
g = torch.Generator().manual_seed(0)
X = torch.rand(600, 1, generator=g, dtype=torch.float64)
data = Dataset(X, X[:, 0].sin())


def fitted():
    posterior = ppgp.fit(models.GP(), data, inference.MAP("gd", steps=1), progress=False)
    posterior.predict(X).quantile(0.9)
    (torch.ones(600, 600) @ torch.ones(600, 600)).sum()


def child():
    fitted()
    print(torch.get_num_threads(), flush=True)


fitted()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print(process.exitcode, torch.get_num_threads())
"""


def test_a_fit_in_a_process_forked_after_a_fit_ends() -> None:
    assert printed(FORKED, seconds=600) == ["1", "0", "2"]


BESIDE = """
import os, threading
import ppgp, pyro, torch
import pyro.distributions as dist
from ppgp.density.handlers import Run, quietly

def program(y):
    m = pyro.sample("m", dist.Normal(torch.zeros(()), 10.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)

inside, over = threading.Event(), threading.Event()

def other():
    with quietly(), Run({"m": torch.tensor(-50.0)}):
        inside.set()
        over.wait()

thread = threading.Thread(target=other)
thread.start()
inside.wait()
child = os.fork()
if not child:
    fitted = ppgp.fit(program, {"y": torch.full((100,), 5.0)}, ppgp.inference.MAP(), progress=False)
    stack = pyro.poutine.runtime._PYRO_STACK
    print(round(float(fitted.draws["m"].mean()), 1), len(stack), flush=True)
    os._exit(0)
os.waitpid(child, 0)
over.set()
thread.join()
"""


def test_a_child_forked_beside_a_fit_does_not_inherit_its_handlers() -> None:
    assert printed(BESIDE, seconds=600) == ["5.0", "0"]
