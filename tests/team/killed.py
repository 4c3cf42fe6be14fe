"""A fit with a checkpoint, of which a random rank is killed at a random time of each start.

Its rows are in memory, or with a fourth argument in files.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import threading
from pathlib import Path

import numpy as np

import ppgp
from ppgp import inference, models


def main() -> None:
    folder, kills, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    team = ppgp.Team.of_environment(timeout=300)
    start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    chance = random.Random(start)
    victim, delay = chance.randrange(team.size), chance.uniform(0.5, 3.0)
    if start < kills and team.rank == victim:
        timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    generator = np.random.default_rng(0)
    X = generator.normal(size=(2_001, 3))
    y = np.sin(X[:, 0]) + 0.1 * generator.normal(size=len(X))
    data = team.share(ppgp.stream(sys.argv[4], "y") if sys.argv[4:] else ppgp.Dataset(X, y))
    posterior = ppgp.fit(
        models.SVGP(inducing=20),
        data,
        inference.SVI(steps=steps, batch_size=200, patience=steps),
        progress=False,
        checkpoint=folder / "fit.checkpoint",
    )
    digest = hashlib.sha256()
    for name in sorted(posterior.theta):
        digest.update(posterior.theta[name].numpy().tobytes())
    digest.update(posterior.stats["objective_history"].numpy().tobytes())
    (folder / f"rank {team.rank} after {start} starts").write_text(digest.hexdigest())


if __name__ == "__main__":
    main()
