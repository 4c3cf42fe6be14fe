"""What is interrupted, filled up and run twice: commands and scripts on thirty rows, and how their result is told from another."""

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
EVERY = 0.05  # seconds between saves of a checkpoint: fits of thirty rows take no two seconds


@dataclass(frozen=True)
class Scene:
    """Work in a folder, its result, and the file that it goes on from after a kill."""

    name: str
    work: Callable[[], Any]
    result: str = ""
    resumes: bool = False
    command: bool = True


def stage(folder: Path) -> None:
    """The files that scenes read: a table, new rows, a fit."""
    folder.mkdir(parents=True, exist_ok=True)
    r = random.Random(1)
    lines = ["a,b,y"]
    for _ in range(2 * ROWS):
        a, b = r.gauss(0, 1), r.gauss(5, 2)
        lines.append(f"{a},{b},{a - 0.3 * b + r.gauss(0, 0.3)}")
        if len(lines) == ROWS + 1:
            (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "other.csv").write_text("\n".join([lines[0], *lines[ROWS + 1 :]]) + "\n")
    made = run(
        command(
            "fit",
            "data.csv",
            *_fit("linear", "laplace", "laplace.draws=50"),
            "--out",
            "fit.safetensors",
        ),
        folder,
    )
    assert made.code == 0, made.err


def _fit(model: str, how: str, *settings: str) -> list[str]:
    options = [word for setting in settings for word in ("--set", setting)]
    return ["--target", "y", "--model", model, "--how", how, *options, "--no-progress"]


def _command(name: str, *words: str, result: str = "out.safetensors") -> Scene:
    return Scene(name, command(*words, "--out", result), result)


def _fitted(model: str, how: str, *settings: str) -> Scene:
    return _command(f"ppgp fit {model} by {how}", "fit", "data.csv", *_fit(model, how, *settings))


def _script(how: Callable[[], Any], model: str = "LinearRegression") -> Callable[[], None]:
    """A script that fits with a checkpoint, saves, and says so where the fit was cut short."""

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
    from ppgp import inference

    few = "draws=60"
    return [
        _fitted("linear", "map"),
        _fitted("gp", "laplace", "laplace.draws=30"),
        _fitted("linear", "svi", "svi.steps=200", "svi.draws=50"),
        _fitted("linear", "nuts", f"nuts.{few}", "nuts.warmup=60", "nuts.chains=2"),
        _fitted("linear", "hmc", f"hmc.{few}", "hmc.warmup=60", "hmc.chains=1"),
        _fitted("linear", "metropolis", f"metropolis.{few}", "metropolis.warmup=60", "metropolis.chains=1"),
        _fitted("linear", "sgld", f"sgld.{few}", "sgld.warmup=60", "sgld.chains=1"),
        _fitted("linear", "sghmc", f"sghmc.{few}", "sghmc.warmup=60", "sghmc.chains=1"),
        _fitted("gp", "ensemble"),
        _fitted("LinearRegression(conjugate=True)", "exact", "exact.draws=50"),
        _command("ppgp predict", "predict", "fit.safetensors", "data.csv", result="new.csv"),
        _command("ppgp predict, calibrated", "predict", "fit.safetensors", "data.csv", "--calibration", "other.csv", result="new.csv"),
        _command("ppgp predict to parquet", "predict", "fit.safetensors", "data.csv", result="new.parquet"),
        Scene("ppgp calibrate", command("calibrate", "fit.safetensors", "other.csv", "--scores", "absolute,pit")),
        Scene("ppgp diagnose", command("diagnose", "fit.safetensors")),
        Scene(
            "ppgp compare",
            command("compare", "data.csv", "--target", "y", "--models", "linear", "--how", "map,laplace,svi", "--set",
                    "svi.steps=200", "--no-progress", "--out", "report"),
        ),
        Scene("SVI with a checkpoint", _script(lambda: inference.SVI(steps=300, draws=50)), "out.safetensors", True, False),
        Scene("SGLD with a checkpoint", _script(lambda: inference.SGLD(draws=100, warmup=100, chains=1)), "out.safetensors", True, False),
        Scene(
            "chains in workers with a checkpoint",
            _script(lambda: inference.NUTS(draws=80, warmup=80, chains=3)),
            "out.safetensors",
            True,
            False,
        ),
        Scene("SBC with workers", _sbc, "ranks.json", False, False),
    ]  # fmt: skip


def digest(path: Path) -> str:
    """What tells a result from another: the draws of a posterior, the bytes of anything else. Damaged files raise."""
    if path.suffix != ".safetensors":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    import ppgp

    posterior = ppgp.load_posterior(path)
    found = hashlib.sha256()
    for name, value in sorted({**posterior.draws, **posterior.params}.items()):
        found.update(name.encode() + value.contiguous().numpy().tobytes())
    return found.hexdigest()
