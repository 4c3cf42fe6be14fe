"""Run the tests in other environments than .venv: each is made in .venv-elsewhere.

    python tests/tools/environments.py elsewhere   # make test-elsewhere: gates
    python tests/tools/environments.py farthest    # make test-farthest: gates, in one run
    python tests/tools/environments.py newest      # make newest: writes constraints-newest.txt
    python tests/tools/environments.py report      # make report-newest: reports, gates nothing
    python tests/tools/environments.py lowest      # make test-lowest: the lower bounds
    python tests/tools/environments.py extras      # make test-extras: each extra alone

It needs Python 3.11 and no other package. The variables PYTHON311, PYTHON312 and PYTHON313
name interpreters that are neither on the path nor among those of pyenv. An environment is
installed anew only where what it is made from has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-elsewhere"
PROJECT = ROOT / "pyproject.toml"
PINNED = ROOT / "constraints.txt"
NEWEST = ROOT / "constraints-newest.txt"
TORCH = "torch==2.13.0"  # what constraints-newest.txt holds back
NEW_PYTHONS = ("3.13", "3.12")  # the first that is there runs the newest versions
#: what the tests need besides the library, where an extra is alone
TOOLS = ("pytest", "pytest-benchmark", "beartype", "hypothesis")
#: the tests of each extra, and what they need besides, such as a peer to compare with
EXTRAS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "boost": (
        ("tests/learners", "tests/inference/test_boosting.py", "tests/inference/test_ties.py"),
        (),
    ),
    "dask": (("tests/inference/test_sweeps_on_workers.py", "-k", "dask"), ()),
    "ray": (("tests/inference/test_sweeps_on_workers.py", "-k", "ray"), ()),
    "excel": (("tests/cli/test_cli_tables.py",), ()),
    "llvm": (("tests/density/test_machine_code.py",), ()),
    "formula": (
        ("tests/models/linear/test_glm_formula.py", "tests/data/test_order_of_labels.py"),
        ("statsmodels",),
    ),
    "notebook": (
        ("tests/runtime/test_progress.py", "tests/display/test_in_a_kernel.py"),
        ("nbclient", "ipykernel"),
    ),
}

NAME = re.compile(r"[A-Za-z0-9._-]+")
BOUND = re.compile(r">=\s*([\w.]+)")


# ---- what pyproject.toml says


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    return tomllib.loads(PROJECT.read_text())["project"]


def canonical(requirement: str) -> str:
    """Return the name of a requirement as registries compare names."""
    found = NAME.match(requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def lower_bounds(requirements: list[str]) -> dict[str, str]:
    """Return {name: the least version} of requirements; of two for one name the first.

    Raises:
        ValueError: if a requirement has no lower bound.
    """
    bounds: dict[str, str] = {}
    for requirement in requirements:
        found = BOUND.search(requirement.partition(";")[0])
        if found is None:
            raise ValueError(f"expected a lower bound, got {requirement!r}: write NAME>=VERSION")
        bounds.setdefault(canonical(requirement), found[1])
    return bounds


def bounds_of_users() -> dict[str, str]:
    """Return the lower bounds of the dependencies and of the extras that users install."""
    table = project()
    requirements = list(table["dependencies"])
    for extra in EXTRAS:
        requirements += table["optional-dependencies"][extra]
    return lower_bounds(requirements)


# ---- interpreters and environments


def interpreters(version: str) -> Iterator[Path]:
    """Yield where the interpreter of a version may be, such as "3.13"."""
    named = os.environ.get("PYTHON" + version.replace(".", ""))
    if named:
        yield Path(shutil.which(named) or named)
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{version}*/bin/python"), reverse=True)


def interpreter(version: str) -> Path | None:
    """Return an interpreter of this version that makes environments; None: there is none."""
    code = "import ensurepip, sys, venv; print('{}.{}'.format(*sys.version_info))"
    for path in interpreters(version):
        try:
            said = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.strip() == version:
            return path
    return None


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    inside = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    return folder / inside


@dataclass(frozen=True)
class Environment:
    """An environment in .venv-elsewhere.

    Attributes:
        name: of its folder.
        python: the interpreter that it is made with.
        packages: what pip installs.
        constraints: a file of versions; None: the newest.
    """

    name: str
    python: Path
    packages: tuple[str, ...]
    constraints: Path | None = None

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    def recipe(self) -> str:
        """Return what an installation depends on."""
        versions = self.constraints.read_text() if self.constraints else ""
        parts = [str(self.python), *self.packages, PROJECT.read_text(), versions]
        return "\n".join(parts)

    def ready(self, anew: bool = False) -> Path:
        """Install the environment where it is not there yet; return its interpreter.

        Raises:
            subprocess.CalledProcessError: if pip fails.
        """
        stamp = self.folder / "made-from.txt"
        python = python_of(self.folder)
        if not anew and stamp.exists() and stamp.read_text() == self.recipe():
            return python
        shutil.rmtree(self.folder, ignore_errors=True)
        started = time.monotonic()
        # a newer pip installs in half the time
        subprocess.run([self.python, "-m", "venv", "--upgrade-deps", self.folder], check=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        options = ["--no-compile"]  # Python compiles the modules that are imported, and keeps them
        if self.constraints is not None:
            options += ["--constraint", str(self.constraints)]
        subprocess.run([*pip, *options, *self.packages], check=True, cwd=ROOT)
        stamp.write_text(self.recipe())
        print(f"{self.name}: installed in {time.monotonic() - started:.0f} s", flush=True)
        return python


def needed(version: str) -> Path:
    """Return the interpreter of a version.

    Raises:
        SystemExit: if there is none.
    """
    found = interpreter(version)
    if found is None:
        variable = f"PYTHON{version.replace('.', '')}"
        raise SystemExit(f"expected Python {version}, got none: install it, or set {variable}")
    return found


# ---- what libraries report, and the settings that hold them back

REPORT = """
import json, platform
import numpy, scipy.linalg, sklearn, torch, threadpoolctl
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core
import arviz
blas = {}
for pool in threadpoolctl.threadpool_info():
    if pool["internal_api"] == "openblas":
        blas[pool["filepath"].split("/")[-2].split(".")[0]] = pool.get("architecture")
features = core.__cpu_features__
print(json.dumps({
    "python": platform.python_version(),
    "versions": {library.__name__: library.__version__ for library in (torch, numpy, arviz)},
    "torch": torch.backends.cpu.get_cpu_capability(),
    "baseline": core.__cpu_baseline__,
    "dispatched": [name for name in core.__cpu_dispatch__ if features.get(name)],
    "openblas": blas,
}))
"""


def reported(python: Path, environ: dict[str, str]) -> dict[str, Any]:
    """Return what torch, NumPy and OpenBLAS say of the processor under these variables."""
    said = subprocess.run(
        [python, "-W", "ignore", "-c", REPORT],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(said.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Instructions:
    """The instructions of older processors.

    Attributes:
        name: of torch's variable ATEN_CPU_CAPABILITY.
        mkl: the value of MKL_ENABLE_INSTRUCTIONS.
        openblas: the processor that OpenBLAS takes this one for.
        numpy: the features of NumPy that stay.
    """

    name: str
    mkl: str
    openblas: str
    numpy: tuple[str, ...]

    def variables(self, here: dict[str, Any]) -> dict[str, str]:
        """Return the variables, with those features alone that this NumPy knows and uses here."""
        dropped = [name for name in here["dispatched"] if name not in self.numpy]
        return {
            "ATEN_CPU_CAPABILITY": self.name,
            "MKL_ENABLE_INSTRUCTIONS": self.mkl,
            "OPENBLAS_CORETYPE": self.openblas,
            "NPY_DISABLE_CPU_FEATURES": " ".join(dropped),
        }

    def hold(self, said: dict[str, Any]) -> bool:
        """Return whether the libraries report these instructions."""
        processors = set(said["openblas"].values())
        return said["torch"] == self.name.upper() and processors <= {self.openblas}


OLD = ("SSE", "SSE2", "SSE3", "SSSE3", "SSE41", "SSE42", "POPCNT", "X86_V2")
OLDER = (
    Instructions("default", "SSE4_2", "Nehalem", OLD),
    Instructions("avx2", "AVX2", "Haswell", (*OLD, "AVX", "F16C", "FMA3", "AVX2", "X86_V3")),
)


# ---- runs


@dataclass
class Summary:
    """What was run, for the lines at the end."""

    lines: list[str] = field(default_factory=list)
    failed: bool = False

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        """Time a part; one that cannot be installed or run has failed."""
        print(f"==== {title}", flush=True)
        started = time.monotonic()
        result = "passed"
        try:
            yield
        except subprocess.CalledProcessError as error:
            self.failed = True
            result = f"FAILED (exit status {error.returncode})"
        took = time.monotonic() - started
        self.lines.append(f"{title}: {result}, {took / 60:.1f} min")

    def skip(self, title: str, why: str) -> None:
        """Say that a part is not run, in a line that runners count as skipped."""
        print(f"==== {title}: skipped, {why}\n0 passed, 0 failed, 1 skipped", flush=True)
        self.lines.append(f"{title}: skipped, {why}")

    def end(self) -> int:
        """Print the parts and return the exit status."""
        print("\n".join(["==== parts", *self.lines]), flush=True)
        return int(self.failed)


def run_tests(python: Path, arguments: list[str], environ: dict[str, str] | None = None) -> None:
    """Run pytest from the root of the project.

    Raises:
        subprocess.CalledProcessError: if a test fails, or none is there.
    """
    variables = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"} | (environ or {})
    variables.pop("PYTHONPATH", None)
    subprocess.run([python, "-m", "pytest", "-q", *arguments], cwd=ROOT, env=variables, check=True)


def shown(said: dict[str, Any]) -> str:
    """Return what libraries report, as one line."""
    versions = ", ".join(f"{name} {version}" for name, version in said["versions"].items())
    features = " ".join([*said["baseline"], *said["dispatched"]])
    blas = ", ".join(f"{owner} {kind}" for owner, kind in said["openblas"].items())
    return (
        f"Python {said['python']}, {versions}; torch: {said['torch']}; NumPy: {features}; "
        f"OpenBLAS: {blas}"
    )


FAST = ["-n", "2", "-m", "not slow"]


def variables_held(
    summary: Summary, title: str, python: Path, here: dict[str, Any], instructions: Instructions
) -> dict[str, str] | None:
    """Return the variables that hold the instructions; None, and a line, where they do not.

    Args:
        summary: What was run.
        title: Of the part that needs them.
        python: The interpreter.
        here: What its libraries report without variables.
        instructions: Those of the processor.
    """
    variables = instructions.variables(here)
    said = reported(python, variables)
    if instructions.hold(said):
        print(shown(said), flush=True)
        return variables
    summary.skip(title, f"this {platform.machine()} does not run them: {shown(said)}")
    return None


def older_processors(summary: Summary, options: argparse.Namespace) -> None:
    """Run the fast tests with the instructions of older processors."""
    pinned = Environment("pinned", needed("3.11"), ("--editable", ".[test]"), PINNED)
    python, here = None, {}
    with summary.part("Python 3.11, constraints.txt: made"):
        python = pinned.ready()
        here = reported(python, {})
        print(shown(here), flush=True)
    if python is None:
        return
    for instructions in OLDER:
        title = f"Python 3.11, instructions of {instructions.name}"
        variables = variables_held(summary, title, python, here, instructions)
        if variables is None:
            continue
        with summary.part(title):
            run_tests(python, [*FAST, *options.pytest], {**variables, "PPGP_CHECK_TYPES": "0"})


def newest_python(
    summary: Summary, options: argparse.Namespace, instructions: Instructions | None = None
) -> None:
    """Run the fast tests on a new Python with the versions of constraints-newest.txt.

    Args:
        summary: What was run.
        options: Of the command line.
        instructions: Those of an older processor, where this one can be held to them; None: all.
    """
    title = f"Python {' or '.join(NEW_PYTHONS)}, {NEWEST.name}"
    found = next(((v, path) for v in NEW_PYTHONS if (path := interpreter(v)) is not None), None)
    if found is None:
        summary.skip(title, "no such Python is here")
        return
    version, path = found
    with summary.part(f"Python {version}, {NEWEST.name}"):
        environment = Environment("newest", path, ("--editable", ".[test]"), NEWEST)
        python = environment.ready()
        here = reported(python, {})
        print(shown(here), flush=True)
        variables = None
        if instructions is not None:
            part = f"instructions of {instructions.name}"
            variables = variables_held(summary, part, python, here, instructions)
        run_tests(python, [*FAST, *options.pytest], variables)


def elsewhere(options: argparse.Namespace) -> int:
    """Gate: older processors, and the newest versions of a new Python."""
    summary = Summary()
    older_processors(summary, options)
    newest_python(summary, options)
    return summary.end()


def farthest(options: argparse.Namespace) -> int:
    """Gate: the environment least like .venv, the newest versions on the oldest processor."""
    summary = Summary()
    newest_python(summary, options, OLDER[0])
    return summary.end()


def frozen(python: Path) -> list[str]:
    """Return the versions that an environment holds."""
    said = subprocess.run(
        [python, "-m", "pip", "freeze", "--exclude-editable"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(said.stdout.splitlines(), key=str.lower)


def new_environment(name: str, *packages: str) -> Environment:
    """Return an environment of the newest versions on the newest Python that is here."""
    path = next((path for v in NEW_PYTHONS if (path := interpreter(v)) is not None), None)
    if path is None:
        raise SystemExit(f"expected Python {' or '.join(NEW_PYTHONS)}, got none: install one")
    return Environment(name, path, packages)


def newest(options: argparse.Namespace) -> int:
    """Write constraints-newest.txt: the newest of everything but torch."""
    python = new_environment("refreshed", TORCH, "--editable", ".[test,notebook]").ready(anew=True)
    versions = frozen(python)
    NEWEST.write_text("\n".join(versions) + "\n")
    print(f"{NEWEST.name}: {len(versions)} versions")
    shutil.rmtree(FOLDER / "refreshed")
    return 0


def report(options: argparse.Namespace) -> int:
    """Report how the fast tests go with the newest of everything, torch too; gate nothing."""
    summary = Summary()
    with summary.part("the newest of everything"):
        python = new_environment("of-today", "--editable", ".[test]").ready(anew=True)
        print(shown(reported(python, {})), flush=True)
        pinned = set(NEWEST.read_text().splitlines()) if NEWEST.exists() else set()
        print("newer: " + ", ".join(line for line in frozen(python) if line not in pinned))
        run_tests(python, [*FAST, *options.pytest])
    summary.end()
    return 0


def lowest(options: argparse.Namespace) -> int:
    """Run the fast tests with exactly the lower bounds of all dependencies."""
    bounds = bounds_of_users()
    FOLDER.mkdir(exist_ok=True)
    constraints = FOLDER / "lower-bounds.txt"
    constraints.write_text("".join(f"{name}=={least}\n" for name, least in bounds.items()))
    print(f"lower bounds: {', '.join(constraints.read_text().split())}")
    extras = ",".join(["test", *EXTRAS])
    summary = Summary()
    with summary.part("lower bounds, Python 3.11"):
        packages = ("--editable", f".[{extras}]")
        python = Environment("lowest", needed("3.11"), packages, constraints).ready()
        print(shown(reported(python, {})), flush=True)
        run_tests(python, [*FAST, *options.pytest])
    return summary.end()


def extras(options: argparse.Namespace) -> int:
    """Install each extra alone and run its tests."""
    summary = Summary()
    for extra, (tests, peers) in EXTRAS.items():
        if options.only and extra not in options.only:
            continue
        with summary.part(f"extra {extra}"):
            packages = ("--editable", f".[{extra}]", *TOOLS, *peers)
            environment = Environment("extra", needed("3.11"), packages, PINNED)
            python = environment.ready()
            pinned = {canonical(line) for line in PINNED.read_text().splitlines()}
            free = [line for line in frozen(python) if canonical(line) not in pinned]
            print(f"not in {PINNED.name}: {', '.join(free) or 'nothing'}", flush=True)
            run_tests(python, [*tests, *options.pytest])
    return summary.end()


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {"elsewhere": elsewhere, "newest": newest, "report": report, "lowest": lowest}
    commands |= {"farthest": farthest, "extras": extras}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--only", nargs="*", choices=EXTRAS, help="these extras alone")
    parser.add_argument("--pytest", type=shlex.split, default=[], help="more words for pytest")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the compiled modules serve all processes
    raise SystemExit(commands[options.command](options))


if __name__ == "__main__":
    main()
