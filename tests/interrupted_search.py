"""A search of SciPy that Ctrl-C interrupts."""

from __future__ import annotations

from typing import Any

from ppgp.inference.optimise import scipy_search


def interrupted_at(call: int) -> type[scipy_search._Objective]:
    """Return the class of an objective that is interrupted at an evaluation, counted from 1."""

    class Interrupted(scipy_search._Objective):
        calls = 0

        def __call__(self, scaled: Any) -> Any:
            self.calls += 1
            if self.calls == call:
                raise KeyboardInterrupt
            return super().__call__(scaled)

    return Interrupted
