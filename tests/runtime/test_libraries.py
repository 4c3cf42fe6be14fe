"""Libraries that a fit does not need are not imported by it."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

FIT = """
    import sys
    import torch
    import ppgp
    from ppgp import inference, models

    x = torch.linspace(0, 1, 20, dtype=torch.float64)
    data = ppgp.Dataset(x[:, None], x.sin())
    how = inference.NUTS(draws=50, warmup=50, chains=2)
    posterior = ppgp.fit(models.LinearRegression(), data, how, progress=False)
    posterior.predict(data.X)
"""
SLOW = ("arviz", "matplotlib", "xarray", "scipy.stats", "scipy.signal", "sklearn")
NUTPIE_AFTERWARDS = """
    import nutpie
    assert nutpie.sample.__globals__["arviz"].from_dict is __import__("arviz").from_dict
    assert type(sys.modules["arviz"]) is type(sys)
    print(len(posterior.to_arviz().posterior["weight"]))
"""


def output(code: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_a_fit_by_nuts_imports_no_plots_and_no_arviz() -> None:
    code = dedent(FIT) + f"print(*(name for name in {SLOW} if name in sys.modules))"
    assert output(code) == []


def test_nutpie_has_arviz_after_a_fit() -> None:
    assert output(dedent(FIT) + dedent(NUTPIE_AFTERWARDS)) == ["2"]
