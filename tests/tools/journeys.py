"""Count the functions, files and checks of ppgp that a row of data crosses.

    python tests/tools/journeys.py            # the counts
    python tests/tools/journeys.py --checks   # and the checks that are called most often

The journeys are those of one user: a Dataset, a fit of a GP by MAP and by NUTS, a prediction,
a calibration and a region. A function counts once, lambdas and comprehensions not at all. Two
counts of checks: functions of a name such as ``check_rows`` or ``refuse_text``, in the thread of
the user; and functions whose body raises an error of ppgp, in all threads. The latter is told apart
for one evaluation of the log density: how many evaluations a search takes depends on the last
digits, and so on the processor.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import json
import re
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import ppgp
from ppgp import conformal, errors, inference, kernels, models
from ppgp.density.target import Target

PACKAGE = Path(inspect.getfile(ppgp)).parent
NAMED_AS_CHECKS = re.compile(
    r"^_?(check|refuse|require|supports|validat)|^_?(all_finite|exact_level)"
)
NO_FUNCTIONS = re.compile(r"<(lambda|listcomp|genexpr|dictcomp|setcomp|module)>$")
ERRORS = {name for name, kind in vars(errors).items() if inspect.isclass(kind)} - set(dir(builtins))

BY_NUTS = "fit by NUTS", "fit by NUTS in machine code"
EVALUATION = Target.joint.__code__

Place = tuple[str, str, int]


class Journey:
    """The calls of functions of ppgp while something runs.

    Attributes:
        calls: How often each function is called in the thread of the user, by file, name and line.
        in_all_threads: The same in all threads, outside evaluations of the log density.
        in_evaluations: The same in all threads, in evaluations of the log density.
        evaluations: The number of evaluations of the log density.
    """

    def __init__(self) -> None:
        self.calls: Counter[Place] = Counter()
        self.in_all_threads: Counter[Place] = Counter()
        self.in_evaluations: Counter[Place] = Counter()
        self.evaluations = 0

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the calls in a block of code."""
        own = threading.get_ident()
        folder = f"{PACKAGE}/"

        def profile(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(folder):
                file = code.co_filename.removeprefix(folder)
                place = (file, code.co_qualname, code.co_firstlineno)
                self.evaluations += code is EVALUATION
                inside = is_inside_an_evaluation(frame)
                (self.in_evaluations if inside else self.in_all_threads)[place] += 1
                if threading.get_ident() == own:
                    self.calls[place] += 1

        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def functions(self) -> set[tuple[str, str]]:
        """Return file and name of each function in the thread of the user."""
        places = {(file, name) for file, name, _ in self.calls}
        return {place for place in places if not NO_FUNCTIONS.search(place[1])}

    def counts(self) -> dict[str, float]:
        """Return the counts of functions, of their files, and of the calls of checks."""
        functions = self.functions()
        evaluations = max(1, self.evaluations)
        return {
            "functions": len(functions),
            "files": len({file for file, _ in functions}),
            "named checks": sum(n for place, n in self.calls.items() if is_named_check(place)),
            "raising functions": sum_of_raising(self.in_all_threads),
            "of one evaluation": round(sum_of_raising(self.in_evaluations) / evaluations, 1),
        }

    def most_called(self, limit: int = 10) -> list[str]:
        """Return the functions that raise an error of ppgp, by the number of their calls."""
        raising = functions_that_raise()
        calls = self.in_all_threads + self.in_evaluations
        checks = {p: n for p, n in calls.items() if (p[0], p[2]) in raising}
        most = sorted(checks, key=checks.__getitem__, reverse=True)[:limit]
        return [f"{checks[place]:5d} x {place[0]}: {place[1]}" for place in most]


def is_inside_an_evaluation(frame: FrameType | None) -> bool:
    """Whether a frame is one of an evaluation of the log density, or is called by one."""
    while frame is not None and frame.f_code is not EVALUATION:
        frame = frame.f_back
    return frame is not None


def sum_of_raising(calls: Counter[Place]) -> int:
    """Return the number of calls of functions whose body raises an error of ppgp."""
    raising = functions_that_raise()
    return sum(n for (file, _, line), n in calls.items() if (file, line) in raising)


def is_named_check(place: Place) -> bool:
    """Whether a function has the name of a check."""
    name = place[1].rpartition(".")[2]
    return bool(NAMED_AS_CHECKS.search(name)) and not NO_FUNCTIONS.search(place[1])


@functools.cache
def functions_that_raise() -> set[tuple[str, int]]:
    """Return file and first line of each function whose body raises an error of ppgp."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(map(_raises_own_error, _inside(node))):
                first = min(each.lineno for each in [node, *node.decorator_list])
                found.add((name, first))
    return found


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child
            yield from _inside(child)


def _raises_own_error(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return ast.unparse(raised).rpartition(".")[2] in ERRORS


def journeys() -> dict[str, Journey]:
    """Return the journeys of one user, by name."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    gp = models.GP(kernels.RBF())
    # modules are imported and caches filled first
    ppgp.fit(gp, ppgp.Dataset(X, y), inference.MAP(), progress=False).predict(X[:5])
    found = {
        name: Journey()
        for name in ("Dataset", "fit by MAP", "predict", "calibrate", "region", *BY_NUTS)
    }
    with found["Dataset"].recorded():
        data = ppgp.Dataset(X, y)
    with found["fit by MAP"].recorded():
        posterior = ppgp.fit(gp, data, inference.MAP(), progress=False)
    with found["predict"].recorded():
        prediction = posterior.predict(X[:20] + 0.01)
    with found["calibrate"].recorded():
        calibrator = ppgp.calibrate(conformal.Normalized(), prediction, y[:20])
    with found["region"].recorded():
        calibrator(prediction, level=0.9)
    chains = inference.NUTS(draws=30, warmup=30, chains=1)
    graph, code = BY_NUTS
    with patch("ppgp.density.target.machine_code", return_value=None), found[graph].recorded():
        ppgp.fit(gp, data, chains, progress=False)
    with found[code].recorded():
        ppgp.fit(gp, data, chains, progress=False)
    return found


def main() -> None:
    """Print the counts, as one JSON object with ``--json``."""
    warnings.simplefilter("ignore")
    found = journeys()
    if "--json" in sys.argv:
        print(json.dumps({name: journey.counts() for name, journey in found.items()}))
        return
    for name, journey in found.items():
        print(f"{name:12s}", ", ".join(f"{n} {what}" for what, n in journey.counts().items()))
        if "--checks" in sys.argv:
            print(*(f"    {line}" for line in journey.most_called()), sep="\n")


if __name__ == "__main__":
    main()
