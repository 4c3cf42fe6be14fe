"""Series of packages and simulated ones, on which the forecasts of ppgp and its peers are judged.

``python tests/tools/series_of_packages.py`` writes ``forecasts/series.json`` beside this file,
in an environment that has statsmodels, sktime, pmdarima, vega_datasets and statsforecast. The
half that a series belongs to follows from its place in alphabetical order, so that nobody chooses:
the rule may look at ``tuning``, and is judged on ``judged``.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FILE = Path(__file__).with_name("forecasts") / "series.json"
LONGEST = 500  # the last points of longer series are taken
ORIGINS = 3
#: frequency -> (rows in a season, steps ahead): those of the M4 competition
#: (Makridakis, Spiliotis & Assimakopoulos 2020), with one day ahead of hours
STEPS = {"YS": (1, 6), "QS": (4, 8), "MS": (12, 18), "W": (52, 13), "D": (7, 14), "h": (24, 24)}


@dataclass(frozen=True)
class Series:
    """A series without gaps.

    Attributes:
        name: Its name; simulated ones begin with "simulated".
        source: The package.
        start: The date of the first value.
        freq: The spacing, as pandas writes it.
        values: [n].
    """

    name: str
    source: str
    start: str
    freq: str
    values: list[float]

    @property
    def m(self) -> int:
        """The number of rows in a season; 1: there is no season."""
        return STEPS[self.freq][0]

    @property
    def h(self) -> int:
        """How many steps ahead are forecast."""
        return STEPS[self.freq][1]

    @property
    def origins(self) -> list[int]:
        """The number of rows before each origin, the windows side by side at the end."""
        return [len(self.values) - k * self.h for k in range(ORIGINS, 0, -1)]

    @cached_property
    def dates(self) -> pd.DatetimeIndex:
        """The date of each value."""
        return pd.date_range(self.start, periods=len(self.values), freq=self.freq)


def half_of(names: list[str]) -> dict[str, str]:
    """Return ``{name: "tuning" or "judged"}``, by turns in alphabetical order."""
    return {name: ("tuning", "judged")[i % 2] for i, name in enumerate(sorted(names))}


def read() -> dict[str, Series]:
    """Return the series of ``series.json``, in alphabetical order."""
    return {each["name"]: Series(**each) for each in json.loads(FILE.read_text())}


def of_statsmodels() -> list[tuple[str, str, str, Any]]:
    """Return (name, first date, frequency, values) of series in statsmodels."""

    def table(name: str) -> pd.DataFrame:
        module = importlib.import_module(f"statsmodels.datasets.{name}")
        return module.load_pandas().data

    co2 = table("co2")["co2"].interpolate()
    monthly = co2.resample("MS").mean().interpolate()
    elnino = table("elnino").drop(columns="YEAR").to_numpy().ravel()
    macro, danish = table("macrodata"), table("danish_data")
    equipment = table("elec_equip")
    inflation = table("interest_inflation")
    found: list[tuple[str, str, str, Any]] = [
        ("co2 by month", str(monthly.index[0].date()), "MS", monthly),
        ("co2 by week", str(co2.index[0].date()), "W", co2),
        ("sunspots", "1700-01-01", "YS", table("sunspots")["SUNACTIVITY"]),
        ("nile", "1871-01-01", "YS", table("nile")["volume"]),
        ("elnino", "1950-01-01", "MS", elnino),
        ("electrical equipment", "1996-01-01", "MS", equipment.iloc[:, -1]),
        ("inflation in Germany", "1972-04-01", "QS", inflation["Dp"]),
    ]
    for name in ("realgdp", "realinv", "cpi", "m1", "tbilrate", "unemp", "infl"):
        found.append((f"macro {name}", "1959-01-01", "QS", macro[name]))
    for name in ("lrm", "ibo"):
        found.append((f"danish {name}", "1974-01-01", "QS", danish[name]))
    return found


def of_sktime() -> list[tuple[str, str, str, Any]]:
    """Return the same of series in sktime, whose files are read without importing it."""
    spec = importlib.util.find_spec("sktime")
    assert spec is not None, "pip install --no-deps sktime"
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"

    def table(path: str) -> pd.DataFrame:
        return pd.read_csv(folder / path)

    change = table("Uschange/Uschange.csv")
    return [
        ("airline", "1949-01-01", "MS", table("Airline/Airline.csv")["Passengers"]),
        ("prescriptions", "1991-07-01", "MS", table("PBS_dataset/PBS_dataset.csv")["Scripts"]),
        ("seatbelts", "1969-01-01", "MS", table("seatbelts/seatbelts.csv")["KSI"]),
        ("lynx", "1821-01-01", "YS", table("Lynx/Lynx.csv").iloc[:, -1]),
        ("us change consumption", "1970-01-01", "QS", change["Consumption"]),
    ]


def of_pmdarima() -> list[tuple[str, str, str, Any]]:
    """Return the same of series in pmdarima."""
    datasets = importlib.import_module("pmdarima.datasets")
    return [
        ("ausbeer", "1956-01-01", "QS", datasets.load_ausbeer()),
        ("austres", "1971-04-01", "QS", datasets.load_austres()),
        ("wineind", "1980-01-01", "MS", datasets.load_wineind()),
        ("woolyrnq", "1965-01-01", "QS", datasets.load_woolyrnq()),
    ]


def of_vega() -> list[tuple[str, str, str, Any]]:
    """Return the same of series in vega_datasets."""
    data = importlib.import_module("vega_datasets").data
    stocks, work = data.stocks(), data.us_employment()
    seattle = data.seattle_weather()
    found: list[tuple[str, str, str, Any]] = [
        ("seattle maximum of the day", "2012-01-01", "D", seattle["temp_max"]),
        ("seattle wind", "2012-01-01", "D", seattle["wind"]),
        ("seattle temperature by hour", "2010-01-01", "h", data.seattle_temps()["temp"]),
        ("san francisco temperature by hour", "2010-01-01", "h", data.sf_temps()["temp"]),
    ]
    for symbol in ("IBM", "AMZN"):
        price = stocks.loc[stocks["symbol"] == symbol, "price"]
        found.append((f"stock {symbol}", "2000-01-01", "MS", price))
    for name in ("construction", "retail_trade"):
        found.append((f"employment {name}", "2006-01-01", "MS", work[name]))
    return found


def simulated() -> list[tuple[str, str, str, Any]]:
    """Return ten simulated series of 120 to 300 rows."""
    rng = np.random.default_rng(48)

    def noise(n: int, sd: float = 1.0) -> np.ndarray:
        return rng.normal(0.0, sd, n)

    def autoregression(n: int, *slopes: float) -> np.ndarray:
        y = np.zeros(n + 100)
        for i in range(2, n + 100):
            y[i] = sum(s * y[i - 1 - k] for k, s in enumerate(slopes)) + rng.normal()
        return y[100:]

    day, month, year = np.arange(200), np.arange(180), np.arange(120)
    season = np.tile(rng.normal(0, 3, 12), 15)
    week = np.tile(rng.normal(0, 4, 7), 29)[:200]
    level = np.cumsum(noise(180, 0.3))
    growth = np.exp(3 + 0.008 * month + 0.1 * season / 3 + noise(180, 0.03))
    hour = np.arange(300)
    return [
        ("simulated walk", "1900-01-01", "YS", 50 + np.cumsum(noise(120))),
        ("simulated walk with drift", "1960-01-01", "MS", np.cumsum(0.4 + noise(180))),
        ("simulated line", "1900-01-01", "YS", 10 + 0.2 * year + noise(120)),
        ("simulated autoregression", "2020-01-01", "D", 20 + autoregression(200, 0.8)),
        ("simulated cycle", "1900-01-01", "YS", 30 + autoregression(120, 1.5, -0.85)),
        ("simulated season of 12", "1990-01-01", "MS", 40 + level + season + noise(180)),
        ("simulated growth and season", "1990-01-01", "MS", growth),
        ("simulated week and line", "2020-01-01", "D", 40 + 0.1 * day + week + noise(200)),
        ("simulated noise", "1980-01-01", "QS", 5 + noise(120)),
        (
            "simulated day by hour",
            "2020-01-01",
            "h",
            15 + 6 * np.sin(2 * np.pi * hour / 24) + np.cumsum(noise(300, 0.4)),
        ),
    ]


def gather() -> list[Series]:
    """Return all series, the last ``LONGEST`` values of each, to 6 digits."""
    found = []
    sources = {
        "statsmodels": of_statsmodels,
        "sktime": of_sktime,
        "pmdarima": of_pmdarima,
        "vega_datasets": of_vega,
        "simulated": simulated,
    }
    for source, make in sources.items():
        for name, start, freq, values in make():
            known = pd.Series(np.asarray(values, dtype=float))
            # up to the last value that is known, which is left out
            y = known.iloc[known.first_valid_index() : known.last_valid_index()].to_numpy()
            assert np.isfinite(y).all(), name
            dates = pd.date_range(start, periods=len(y), freq=freq)[-LONGEST:]
            rounded = [float(f"{value:.6g}") for value in y[-LONGEST:]]
            found.append(Series(name, source, str(dates[0]), freq, rounded))
    return sorted(found, key=lambda series: series.name)


def main() -> None:
    """Write the file."""
    found = gather()
    lines = [json.dumps(vars(series), separators=(",", ":")) for series in found]
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    halves = half_of([series.name for series in found])
    for series in found:
        print(f"{halves[series.name]:7} {series.source:14} {len(series.values):4} {series.name}")


if __name__ == "__main__":
    main()
