"""Scenes: commands and scripts that are interrupted, run on full disks, and run twice.

A digest tells their results apart.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cases import command, run

ROWS = 30
EVERY = 0.05  # seconds between saves of a checkpoint; fits of thirty rows take below two seconds


@dataclass(frozen=True)
class Scene:
    """Work in a folder.

    Attributes:
        name: Its name.
        work: The work.
        result: The file that it writes.
        resumes: Whether it resumes from a checkpoint after a kill.
        command: Whether it is a command of ``ppgp``, and not a script.
    """

    name: str
    work: Callable[[], Any]
    result: str = ""
    resumes: bool = False
    command: bool = True


def stage(folder: Path) -> None:
    """Write the files that scenes read: a table, new rows, a fit."""
    folder.mkdir(parents=True, exist_ok=True)
    r = random.Random(1)
    lines = ["a,b,y"]
    for _ in range(2 * ROWS):
        a, b = r.gauss(0, 1), r.gauss(5, 2)
        lines.append(f"{a},{b},{a - 0.3 * b + r.gauss(0, 0.3)}")
        if len(lines) == ROWS + 1:
            (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "other.csv").write_text("\n".join([lines[0], *lines[ROWS + 1 :]]) + "\n")
    options = _fit("linear", "laplace", "laplace.draws=50")
    made = run(command("fit", "data.csv", *options, "--out", "fit.safetensors"), folder)
    assert made.code == 0, made.err


def _fit(model: str, how: str, *settings: str) -> list[str]:
    options = [word for setting in settings for word in ("--set", setting)]
    return ["--target", "y", "--model", model, "--how", how, *options, "--no-progress"]


def _command(name: str, *words: str, result: str = "out.safetensors") -> Scene:
    return Scene(name, command(*words, "--out", result), result)


def _fitted(model: str, how: str, *settings: str) -> Scene:
    return _command(f"ppgp fit {model} by {how}", "fit", "data.csv", *_fit(model, how, *settings))


def _script(how: Callable[[], Any], model: str = "LinearRegression") -> Callable[[], None]:
    """Return a script that fits with a checkpoint, saves, and exits with 130 if interrupted."""

    def work() -> None:
        import ppgp
        from ppgp import models
        from ppgp.inference import checkpoint

        checkpoint.EVERY, checkpoint.SHARE = EVERY, 1.0
        data = ppgp.load("data.csv", "y")
        posterior = ppgp.fit(
            getattr(models, model)(), data, how(), progress=False, checkpoint="run.checkpoint"
        )
        if posterior.stats.get("interrupted"):
            sys.exit(130)
        posterior.save("out.safetensors")

    return work


def _sbc() -> None:
    import ppgp
    from ppgp import inference, models

    found = ppgp.sbc(
        models.LinearRegression(),
        inference.Laplace(draws=30),
        24,
        n=12,
        d=1,
        workers=2,
        progress=False,
    )
    Path("ranks.json").write_text(
        json.dumps({name: ranks.tolist() for name, ranks in found.ranks.items()})
    )


def scenes() -> list[Scene]:
    """Return all scenes."""
    few = "draws=60"
    saved = "fit.safetensors"
    return [
        _fitted("linear", "map"),
        _fitted("gp", "laplace", "laplace.draws=30"),
        _fitted("linear", "svi", "svi.steps=200", "svi.draws=50"),
        _fitted("linear", "nuts", f"nuts.{few}", "nuts.warmup=60", "nuts.chains=2"),
        _chain("hmc", few),
        _chain("metropolis", few),
        _chain("sgld", few),
        _chain("sghmc", few),
        _fitted("gp", "ensemble"),
        _fitted("LinearRegression(conjugate=True)", "exact", "exact.draws=50"),
        _command("ppgp predict", "predict", saved, "data.csv", result="new.csv"),
        _command(
            "ppgp predict, calibrated",
            *("predict", saved, "data.csv", "--calibration", "other.csv"),
            result="new.csv",
        ),
        _command("ppgp predict to parquet", "predict", saved, "data.csv", result="new.parquet"),
        Scene(
            "ppgp calibrate",
            command("calibrate", saved, "other.csv", "--scores", "absolute,pit"),
        ),
        Scene("ppgp diagnose", command("diagnose", saved)),
        Scene(
            "ppgp compare",
            command(
                *("compare", "data.csv", "--target", "y", "--models", "linear"),
                *("--how", "map,laplace,svi", "--set", "svi.steps=200"),
                *("--no-progress", "--out", "report"),
            ),
        ),
        *_scripts(),
    ]


def _chain(how: str, few: str) -> Scene:
    """Return a fit by one short chain."""
    return _fitted("linear", how, f"{how}.{few}", f"{how}.warmup=60", f"{how}.chains=1")


def _scripts() -> list[Scene]:
    """Return the scenes that are scripts."""
    from ppgp import inference

    svi = _script(lambda: inference.SVI(steps=300, draws=50))
    sgld = _script(lambda: inference.SGLD(draws=100, warmup=100, chains=1))
    nuts = _script(lambda: inference.NUTS(draws=80, warmup=80, chains=3))
    return [
        Scene("SVI with a checkpoint", svi, "out.safetensors", True, False),
        Scene("SGLD with a checkpoint", sgld, "out.safetensors", True, False),
        Scene("chains in workers with a checkpoint", nuts, "out.safetensors", True, False),
        Scene("SBC with workers", _sbc, "ranks.json", False, False),
    ]


def digest(path: Path) -> str:
    """Return a digest of a result: the draws of a posterior, or the bytes of another file.

    Damaged posteriors raise.
    """
    if path.suffix != ".safetensors":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    import ppgp

    posterior = ppgp.load_posterior(path)
    found = hashlib.sha256()
    for name, value in sorted({**posterior.draws, **posterior.params}.items()):
        found.update(name.encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()
