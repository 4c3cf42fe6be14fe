"""The number of threads of an operation, in processes without this suite's limit."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ppgp.runtime import threads
from ppgp.runtime.threads import at_most, limited

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
several = pytest.mark.skipif(CORES < 2, reason="needs two cores")
POLICY = "from ppgp.runtime.openmp import wait_policy\nprint(wait_policy())\n"
IMPORTS = "import torch, ppgp\nfrom ppgp.runtime.threads import threads_for\n"
SIZES = """
from ppgp.runtime.threads import threads_for
print(*[threads_for(work) for work in (1e6, 1000.0**3, 3000.0**3, 1e12)])
"""


def run(code: str, **environment: str) -> list[str]:
    """Return the lines that the code prints in a fresh process without this suite's limits."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "MKL_"))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout.splitlines()


PREDICTIONS = """
from ppgp import kernels, models

class Kernel(kernels.RBF):
    def gram(self, h, X1, X2):
        seen.append(torch.get_num_threads())
        return super().gram(h, X1, X2)

seen = []
g = torch.Generator().manual_seed(0)
X = torch.rand(300, 1, generator=g, dtype=torch.float64)
model = models.GP(Kernel(1.0, 0.2), noise=0.1, mean=0.0)
posterior = ppgp.fit(model, ppgp.Dataset(X, X[:, 0].sin()), progress=False)
for rows in (5, 2000):
    seen.clear()
    posterior.predict(torch.rand(rows, 1, generator=g, dtype=torch.float64)).mean
    print(*sorted(set(seen)))
"""


@pytest.fixture(scope="module")
def passive() -> list[str]:
    """Return the policy in the environment, the policy, threads by size, and of predictions."""
    code = "import os, ppgp, torch\nprint(os.environ.get('OMP_WAIT_POLICY'))\n"
    return run(code + POLICY + SIZES + PREDICTIONS)


FITS = [(60, 2, 1), (600, 2, 2), (600, 1, 1)]  # rows, limit of the caller, threads of the fit
FIT = f"""
from ppgp import Dataset, inference, models
from ppgp.density import Target

gradient = Target.value_and_grad

def spy(self, *args, **kwargs):
    seen.append(torch.get_num_threads())
    return gradient(self, *args, **kwargs)

Target.value_and_grad = spy
for n, ceiling, _ in {FITS}:
    torch.set_num_threads(ceiling)
    seen = []
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 1, generator=g, dtype=torch.float64)
    data = Dataset(X, X[:, 0].sin())
    posterior = ppgp.fit(models.GP(), data, inference.MAP("gd", steps=1), progress=False)
    posterior.predict(X[:5]).quantile(0.5)
    print(*set(seen), torch.get_num_threads())
"""


@pytest.fixture(scope="module")
def active() -> list[str]:
    """Return the policy, threads by size, and those of each fit and after it."""
    return run("import ppgp, torch\n" + POLICY + SIZES + FIT, OMP_WAIT_POLICY="active")


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP comes with torch's wheels on Linux")
def test_waiting_threads_sleep_where_ppgp_is_imported_first(passive: list[str]) -> None:
    assert passive[:2] == ["None", "passive"]


def test_the_callers_wait_policy_is_kept(active: list[str]) -> None:
    assert active[0] == "active"
    assert run("import torch, ppgp\n" + POLICY, OMP_WAIT_POLICY="PASSIVE") == ["passive"]


def test_one_thread_is_the_default_where_the_wait_policy_is_unknown() -> None:
    assert run(IMPORTS + "print(threads_for(1e12))\n" + POLICY) == ["1", "None"]


@several
def test_a_large_operation_gets_the_cores_of_the_affinity_mask(passive: list[str]) -> None:
    small, *_, large = passive[2].split()
    assert (small, large) == ("1", str(CORES))
    one_core = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    assert run(one_core + "import ppgp\n" + SIZES) == ["1 1 1 1"]


@several
@pytest.mark.parametrize("case", range(len(FITS)), ids=lambda i: "{}-{}-{}".format(*FITS[i]))
def test_the_threads_of_a_fit_depend_on_its_size_and_the_callers_limit(
    active: list[str], case: int
) -> None:
    _, ceiling, inside = FITS[case]
    assert active[2 + case] == f"{inside} {ceiling}"


@several
def test_sleeping_threads_pay_from_a_larger_size(passive: list[str], active: list[str]) -> None:
    assert passive[2].split()[1:3] == ["1", str(CORES)]
    assert active[1].split()[1:3] == [str(CORES), str(CORES)]


@several
def test_sleeping_threads_pay_earlier_for_predictions_than_for_fits(passive: list[str]) -> None:
    assert passive[3:] == ["1", "2"]


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch):
    """Simulate a machine on which two threads pay."""
    monkeypatch.setattr(threads, "WAIT_POLICY", "passive")
    monkeypatch.setattr(threads, "available_cores", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_innermost_request_decides_and_the_setting_is_restored(two_threads: None) -> None:
    with limited(1.0):
        assert torch.get_num_threads() == 1
        with limited(1e12):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_at_most_holds_for_everything_inside(two_threads: None) -> None:
    with at_most(1), limited(1e12):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_the_setting_is_restored_after_an_error(two_threads: None) -> None:
    with pytest.raises(ZeroDivisionError), limited(1.0):
        1 / 0
    assert torch.get_num_threads() == 2


def test_the_setting_is_restored_whatever_the_order_of_threads(two_threads: None) -> None:
    def work(k: int) -> int:
        with limited(1.0 if k % 2 else 1e12):
            torch.ones(50, 50) @ torch.ones(50, 50)
        return torch.get_num_threads()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(200))) == {2}
    assert torch.get_num_threads() == 2


@several
def test_chains_in_forked_processes_keep_numpys_blas_on_one_thread() -> None:
    """A second thread of OpenBLAS spins on the core of another chain after each small product."""
    code = """
import torch, ppgp, threadpoolctl
from ppgp.inference.mcmc import nutpie_chains

class Run:
    def whole_chain(self, number, report):
        libraries = threadpoolctl.threadpool_info()
        return [i["num_threads"] for i in libraries if i["internal_api"] == "openblas"]

counts = []
nutpie_chains._forked(Run(), [0, 1], 2, None, lambda chain, found: counts.extend(found))
print(*sorted(set(counts)))
import scipy.linalg
print(sum(i["internal_api"] == "openblas" for i in threadpoolctl.threadpool_info()))
"""
    counts, openblas = run(code)
    if not int(openblas):
        pytest.skip("needs a NumPy with OpenBLAS")
    assert counts == "1"
