"""The number of threads of an operation, in processes without this suite's limit."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ppgp.numerics import threads
from ppgp.numerics.threads import at_most, limited

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
several = pytest.mark.skipif(CORES < 2, reason="needs two cores")
POLICY = "from ppgp.numerics.openmp import wait_policy\nprint(wait_policy())\n"
IMPORTS = "import torch, ppgp\nfrom ppgp.numerics.threads import threads_for\n"


def run(code: str, **environment: str) -> list[str]:
    """Return the words that the code prints in a fresh process without this suite's limits."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "MKL_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP comes with torch's wheels on Linux")
def test_waiting_threads_sleep_where_ppgp_is_imported_first() -> None:
    code = "import os, ppgp, torch\nprint(os.environ.get('OMP_WAIT_POLICY'))\n"
    assert run(code + POLICY) == ["None", "passive"]


def test_the_callers_wait_policy_is_kept() -> None:
    assert run("import ppgp, torch\n" + POLICY, OMP_WAIT_POLICY="active") == ["active"]
    assert run("import torch, ppgp\n" + POLICY, OMP_WAIT_POLICY="PASSIVE") == ["passive"]


def test_one_thread_is_the_default_where_the_wait_policy_is_unknown() -> None:
    assert run(IMPORTS + "print(threads_for(1e12))\n" + POLICY) == ["1", "None"]


@several
def test_a_large_operation_gets_the_cores_of_the_affinity_mask() -> None:
    code = (
        "import ppgp\nfrom ppgp.numerics.threads import threads_for\n"
        "print(threads_for(1e12), threads_for(1e6))\n"
    )
    assert run(code) == [str(CORES), "1"]
    one_core = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    assert run(one_core + code) == ["1", "1"]


FIT = """
import ppgp, torch
from ppgp import Dataset, inference, models
from ppgp.target import Target

torch.set_num_threads({ceiling})
seen = []
gradient = Target.value_and_grad

def spy(self, *args, **kwargs):
    seen.append(torch.get_num_threads())
    return gradient(self, *args, **kwargs)

Target.value_and_grad = spy
g = torch.Generator().manual_seed(0)
X = torch.rand({n}, 1, generator=g, dtype=torch.float64)
data = Dataset(X, X[:, 0].sin())
posterior = ppgp.fit(models.GP(), data, inference.MAP("gd", steps=1), progress=False)
posterior.predict(X[:5]).quantile(0.5)
print(*set(seen), torch.get_num_threads())
"""


@several
@pytest.mark.parametrize(("n", "ceiling", "inside"), [(60, 2, 1), (600, 2, 2), (600, 1, 1)])
def test_the_threads_of_a_fit_depend_on_its_size_and_the_callers_limit(
    n: int, ceiling: int, inside: int
) -> None:
    code = "import warnings\nwarnings.simplefilter('ignore')\n" + FIT.format(n=n, ceiling=ceiling)
    assert run(code, OMP_WAIT_POLICY="active") == [str(inside), str(ceiling)]


@several
def test_sleeping_threads_pay_from_a_larger_size() -> None:
    code = (
        "import ppgp\nfrom ppgp.numerics.threads import threads_for\n"
        "print(threads_for(1000.0**3), threads_for(3000.0**3))\n"
    )
    assert run(code) == ["1", str(CORES)]
    assert run(code, OMP_WAIT_POLICY="active") == [str(CORES), str(CORES)]


@several
def test_sleeping_threads_pay_earlier_for_predictions_than_for_fits() -> None:
    code = """
import ppgp, torch
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
    assert run("import warnings\nwarnings.simplefilter('ignore')" + code) == ["1", "2"]


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch):
    """Simulate a machine on which two threads pay."""
    monkeypatch.setattr(threads, "wait_policy", lambda: "passive")
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
"""
    if not run(
        "import scipy.linalg, threadpoolctl\n"
        "print(*[i['num_threads'] for i in threadpoolctl.threadpool_info()"
        " if i['internal_api'] == 'openblas'])"
    ):
        pytest.skip("needs a NumPy with OpenBLAS")
    assert run(code) == ["1"]
