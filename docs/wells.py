"""Write three tables of simulated wells to the current folder, for docs/your-own-table.md.

wells.csv has rows to fit, two of them without a depth; held_out.csv has rows to calibrate; new.csv
has rows to predict, without the target, and one of them without a depth.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

SIZES = {"wells.csv": 140, "held_out.csv": 80, "new.csv": 30}
ROCKS = {"chalk": 4.0, "granite": -3.0, "sand": 0.0}  # what each adds to the nitrate


def simulated(n: int) -> pd.DataFrame:
    """Return n wells with a name, a date, a rock, a depth in metres and the nitrate in mg/l."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 3650, n)
    rock = rng.choice(list(ROCKS), n)
    depth = rng.uniform(2.0, 40.0, n).round(1)
    trend = 3.0 * np.sin(days / 365.25) + np.array([ROCKS[one] for one in rock])
    dates = pd.Timestamp("2014-01-01") + pd.to_timedelta(days, "D")
    return pd.DataFrame(
        {
            "well": [f"W{i:03d}" for i in range(n)],
            "sampled": dates.strftime("%Y-%m-%d"),
            "rock": rock,
            "depth": depth,
            "nitrate": (25.0 - 4.0 * np.sqrt(depth) + trend + rng.normal(size=n)).round(2),
        }
    )


if __name__ == "__main__":
    rows = simulated(sum(SIZES.values()))
    rows.loc[[5, 100, 225], "depth"] = np.nan
    start = 0
    for name, size in SIZES.items():
        part = rows[start : start + size]
        if name == "new.csv":
            part = part.drop(columns="nitrate")
        part.to_csv(name, index=False)
        start += size
