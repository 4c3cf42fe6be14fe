"""Count the functions of ppgp that a fit or a prediction calls, and its changes of folder.

    python tests/tools/walk.py [--list [NAME]]

A trace of all calls in the main thread gives: how many different functions and files of ppgp are on
the way, how many times a call leads from one folder of ppgp into another, and how many Targets are
built. Comprehensions and lambdas count with the function around them.

``--list`` names the functions by folder, with how many times each was called, and how many of these
calls came from another folder; with a NAME, it takes only the walks that have it in their names.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
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
        calls: how many times each function of ppgp was called.
        crossed: how many of these calls came from a function in another folder.
        targets: how many Targets were built.
    """

    calls: Counter[CodeType] = field(default_factory=Counter)
    crossed: Counter[CodeType] = field(default_factory=Counter)
    targets: int = 0

    def files(self) -> int:
        return len({code.co_filename for code in self.calls})

    def __str__(self) -> str:
        return (
            f"{len(self.calls):>5} functions {self.files():>4} files "
            f"{self.crossed.total():>7} crossings {self.targets:>3} targets"
        )

    def by_folder(self) -> Iterator[str]:
        """Yield one line per function, by folder and file: its calls, and those from elsewhere."""
        place = {code: str(Path(code.co_filename).relative_to(ROOT)) for code in self.calls}
        for code in sorted(self.calls, key=lambda code: (place[code], code.co_firstlineno)):
            where = f"{place[code]}:{code.co_firstlineno}"
            yield f"{self.calls[code]:>7} {self.crossed[code]:>7}  {where:<44} {code.co_qualname}"


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
        walk.calls[code] += 1
        walk.targets += code.co_qualname == "Target.__init__"
        before = caller_of(frame)
        walk.crossed[code] += before is not None and before != here

    sys.setprofile(profile)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def main() -> None:
    """Print one line per walk, or the functions on the way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", nargs="?", const="", metavar="NAME", help="name the functions")
    wanted = parser.parse_args().list
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
        if wanted is not None and wanted not in name:
            continue
        with warnings.catch_warnings(), traced() as walk:
            warnings.simplefilter("ignore")
            act()
        print(f"{name:<24} {walk}")
        if wanted is not None:
            print(*walk.by_folder(), sep="\n")


if __name__ == "__main__":
    main()
