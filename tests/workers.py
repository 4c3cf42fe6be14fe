"""Which worker of pytest-xdist runs which test: those that share a costly set-up run on one.

The marks of ``xdist_group`` have no effect under pytest 9.2, where a test's id cannot be changed.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

#: beginnings of the ids of tests that share a set-up
TOGETHER = (
    "tests/display/test_in_a_kernel.py",  # a kernel of Jupyter
    "tests/docs/test_site.py",  # the built documentation
    "tests/cli/test_strangers_path.py",  # a checkout
    "tests/team/test_team.py::TestSameNumbers",  # the results of teams of two and of three
)
#: tests of a model with a method, whose ids end with "[model-method]": one worker compiles a model
PAIRS = "tests/contract/test_pairs.py::"


class SetUpsOnce(LoadScopeScheduling):
    """The scheduler that gives tests that share a set-up to one worker, before the others."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PAIRS):
            return nodeid.rpartition("-")[0]
        return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)


def scheduler(config: Any, log: Any) -> SetUpsOnce | None:
    """Return the scheduler for ``--dist loadscope``; None for another value, which is xdist's."""
    if config.getvalue("dist") != "loadscope":
        return None
    return SetUpsOnce(config, log)
