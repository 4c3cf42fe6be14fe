"""The plan of the house: whole classes, rooms of one idea, and short ways through them."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from collected import COLLECTED
from tool_modules import tool

import ppgp
from ppgp.capabilities import Capability

ROOT = Path(__file__).parents[2]
SLOW_TESTS = ROOT / "tests" / "slow_tests.txt"
STRUCTURE = tool("structure")
HOUSE = STRUCTURE.House()
MOST_CLASSES = 4  # classes of ppgp among the parents of a public class and itself
#: short modules with one importer, in their own folder, and why each one is an idea of its own
SCRAPS = {
    "ppgp/inference/fitting/streams.py": "fits to rows that do not fit in memory",
    "ppgp/inference/variational/stopping_rule.py": "the rule that ends SVI, named by CONTRIBUTING",
    "ppgp/kernels/cosine.py": "a kernel, and each kernel has a file",
    "ppgp/kernels/white.py": "a kernel, and each kernel has a file",
    "ppgp/runtime/openmp.py": "imported before torch, so it imports nothing",
    "ppgp/plots/counts.py": "a figure: the rootogram",
    "ppgp/plots/groups.py": "a figure: shrinkage",
}
LOOSE = ["arguments.py"]  # what every constructor needs, above the errors that it raises
#: the journeys of ``tests/tools/journeys.py`` -> most functions, most files
JOURNEYS = {
    "Dataset": (18, 7),
    "fit by MAP": (199, 48),
    "predict": (70, 25),
    "calibrate": (25, 9),
    "region": (35, 9),
    "fit by NUTS": (308, 65),
    "fit by NUTS in machine code": (440, 68),
}
NAMED_CHECKS = 30  # calls of functions that are named as checks, in a fit by MAP
#: calls of functions whose body raises an error, in a fit by MAP: in all, less those of the
#: evaluations of the log density; and in one evaluation
RAISING_FUNCTIONS = 43
RAISING_IN_AN_EVALUATION = 10


@pytest.mark.parametrize(
    "count",
    [
        STRUCTURE.House.halves,
        STRUCTURE.House.full_folders,
        STRUCTURE.House.doors,
        STRUCTURE.House.circles,
        STRUCTURE.House.former_names,
        STRUCTURE.House.small_entries,
    ],
    ids=lambda count: count.__name__,
)
def test_there_is_none(count: Any) -> None:
    assert count(HOUSE) == []


def test_each_short_module_with_one_importer_is_an_idea_of_its_own() -> None:
    assert set(HOUSE.scraps()) == set(SCRAPS)
    assert len(SCRAPS) <= 20


def test_the_modules_beside_the_rooms_are_known() -> None:
    assert HOUSE.loose() == LOOSE


def public_classes() -> dict[str, type]:
    """Return the public classes of ppgp, by their full names."""
    found = {}
    for module in ("", *(f".{name}" for name in ppgp._MODULES)):
        package = sys.modules["ppgp"] if not module else getattr(ppgp, module[1:])
        for name in getattr(package, "__all__", vars(package)):
            kind = getattr(package, name)
            if inspect.isclass(kind) and kind.__module__.startswith("ppgp."):
                found[f"ppgp{module}.{name}"] = kind
    return found


@pytest.mark.parametrize("name", sorted(public_classes()))
def test_a_public_class_has_few_parents(name: str) -> None:
    """What a model can do beside others is told by its capabilities, which are counted apart."""
    parents = [
        kind.__qualname__
        for kind in public_classes()[name].__mro__
        if kind.__module__.startswith("ppgp") and not is_capability(kind)
    ]
    assert len(parents) <= MOST_CLASSES, parents


def is_capability(kind: type) -> bool:
    """Whether a class is a capability, not a model that has some."""
    return issubclass(kind, Capability) and not issubclass(kind, ppgp.models.Model)


def test_the_counters_see_what_they_count(tmp_path: Path) -> None:
    package = tmp_path / "ppgp"
    for folder in (package, package / "room"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    (package / "door.py").write_text("from .room.whole import Whole\n")
    (package / "room" / "half.py").write_text("class Half:\n    pass\n")
    (package / "room" / "whole.py").write_text(
        "from . import circle\nfrom .half import Half\n\n\nclass Whole(Half):\n    pass\n"
    )
    (package / "room" / "circle.py").write_text(
        "from . import whole\n\n\ndef f():\n"
        '    """Do something.\n\n    Args:\n        x: small.\n    """\n    return Renamed(x)\n'
    )
    for i in range(STRUCTURE.FULL):
        (package / "room" / f"m{i}.py").touch()
    house = STRUCTURE.House(package)
    assert house.halves() == ["ppgp/room/half.py: Half of Whole"]
    assert house.full_folders() == [f"ppgp.room: {STRUCTURE.FULL + 3} modules"]
    assert house.loose() == house.doors() == ["door.py"]
    assert house.circles() == ["ppgp.room.circle <-> ppgp.room.whole"]
    assert house.former_names() == ["ppgp/room/circle.py: Renamed("]
    assert house.small_entries() == ["ppgp/room/circle.py: x: small."]
    assert set(house.scraps()) == {"ppgp/room/half.py", "ppgp/room/circle.py"}


@pytest.fixture(scope="module")
def counts() -> dict[str, dict[str, float]]:
    """Return the counts of the journeys, from a process that no other test has touched."""
    result = subprocess.run(
        [sys.executable, "tests/tools/journeys.py", "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(result.stdout)


@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_row_of_data_crosses_few_functions(
    journey: str, counts: dict[str, dict[str, float]]
) -> None:
    functions, files = JOURNEYS[journey]
    assert counts[journey]["functions"] <= functions
    assert counts[journey]["files"] <= files


def test_a_fit_checks_its_values_once(counts: dict[str, dict[str, float]]) -> None:
    assert counts["fit by MAP"]["named checks"] <= NAMED_CHECKS
    assert counts["fit by MAP"]["raising functions"] <= RAISING_FUNCTIONS
    assert counts["fit by MAP"]["of one evaluation"] <= RAISING_IN_AN_EVALUATION


def test_every_slow_test_exists(request: pytest.FixtureRequest) -> None:
    """Each line of slow_tests.txt names a test, where all tests of its file are collected."""
    collected = request.config.stash[COLLECTED]
    files = {name.partition("::")[0] for name in collected}
    lines = [line for line in SLOW_TESTS.read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not (ROOT / line.partition("::")[0]).is_file()] == []
    lost = {line for line in lines if line.partition("::")[0] in files} - collected
    if not any("::" in argument for argument in request.config.args):
        assert lost == set()
