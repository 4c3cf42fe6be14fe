"""A graph is freed when nothing refers to it."""

from __future__ import annotations

import ctypes
import gc
import inspect
import linecache
import sys
from pathlib import Path

import forked
import psutil
import pytest
import torch
from torch.fx import graph_module

from ppgp import Dataset, kernels, models
from ppgp.density import Target


def resident() -> float:
    """Return the memory in MB, without free memory that the allocator holds."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss / 1e6


def compile_and_run() -> None:
    X = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    data = Dataset(X, X[:, 0].sin())
    target = Target(models.GP(kernels.RBF()).prepare(data), data)
    for _ in range(4):  # TorchScript optimises in the second call
        target.value_and_grad(target.origin())


GROWTH = """
for _ in range(6):  # the first fill caches of torch's own
    compile_and_run()
before = resident()
for _ in range(6):
    compile_and_run()
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident size as Linux has it")
def test_compiling_again_and_again_takes_no_more_memory(tmp_path: Path) -> None:
    """The process is a new one: one with other tests behind it may grow by itself."""
    imports = "import ctypes, gc, psutil, torch\nfrom ppgp import Dataset, kernels, models\n"
    functions = inspect.getsource(resident) + inspect.getsource(compile_and_run)
    code = f"{imports}from ppgp.density import Target\n{functions}{GROWTH}"
    done = forked.run(code, cwd=tmp_path, seconds=900)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4.0  # 12 MB where what was traced stays registered


def test_no_source_text_stays() -> None:
    compile_and_run()
    before = set(graph_module._loader.eval_cache), set(linecache.cache)
    compile_and_run()
    assert set(graph_module._loader.eval_cache) == before[0]
    assert not {name for name in set(linecache.cache) - before[1] if "eval_with_key" in name}
