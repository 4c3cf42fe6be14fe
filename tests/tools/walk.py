"""Count the functions of ppgp that a fit or a prediction calls, and its changes of folder.

    python tests/tools/walk.py

A trace of all calls in the main thread gives: how many different functions and files of ppgp are on
the way, how many times a call leads from one folder of ppgp into another, and how many Targets are
built. Comprehensions and lambdas count with the function around them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import ppgp
from ppgp import inference, models

ROOT = Path(ppgp.__file__).parent
INNER = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")


@dataclass
class Walk:
    """What was called.

    Attributes:
        functions: code of each function of ppgp.
        crossings: calls from a function in one folder to a function in another one.
        targets: how many Targets were built.
    """

    functions: set[CodeType] = field(default_factory=set)
    crossings: int = 0
    targets: int = 0

    def files(self) -> int:
        return len({code.co_filename for code in self.functions})

    def __str__(self) -> str:
        return (
            f"{len(self.functions):>5} functions {self.files():>4} files "
            f"{self.crossings:>7} crossings {self.targets:>3} targets"
        )


def _folder(filename: str) -> str | None:
    """Return the folder of a file of ppgp, relative to it; None for another file."""
    path = Path(filename)
    return str(path.parent.relative_to(ROOT)) if path.is_relative_to(ROOT) else None


@contextmanager
def traced() -> Iterator[Walk]:
    """Record the calls made inside."""
    walk = Walk()
    folders: dict[CodeType, str | None] = {}

    def of(code: CodeType) -> str | None:
        if code not in folders:
            folders[code] = _folder(code.co_filename)
        return folders[code]

    def caller_of(frame: FrameType) -> str | None:
        outer = frame.f_back
        while outer is not None and of(outer.f_code) is None:
            outer = outer.f_back
        return None if outer is None else of(outer.f_code)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        here = of(code) if event == "call" else None
        if here is None or code.co_name in INNER:
            return
        walk.functions.add(code)
        walk.targets += code.co_qualname == "Target.__init__"
        before = caller_of(frame)
        walk.crossings += before is not None and before != here

    sys.setprofile(profile)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def main() -> None:
    """Print one line per walk."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(40, 2, generator=generator, dtype=torch.float64)
    data = ppgp.Dataset(X, X.sin().sum(1))
    gp, svgp = models.GP(), models.SVGP(inducing=10)
    nuts = inference.NUTS(draws=20, warmup=20, chains=1)
    svi = inference.SVI(steps=20)
    posterior = ppgp.fit(gp, data, inference.MAP(), progress=False)
    walks: dict[str, Callable[[], Any]] = {
        "fit of a GP by NUTS": lambda: ppgp.fit(gp, data, nuts, progress=False),
        "fit of a GP by MAP": lambda: ppgp.fit(gp, data, inference.MAP(), progress=False),
        "predict": lambda: posterior.predict(X[:5]).mean,
        "fit of an SVGP by SVI": lambda: ppgp.fit(svgp, data, svi, progress=False),
    }
    for name, act in walks.items():
        with warnings.catch_warnings(), traced() as walk:
            warnings.simplefilter("ignore")
            act()
        print(f"{name:<24} {walk}")


if __name__ == "__main__":
    main()
