"""Importing and using the library leaves warning filters and the environment unchanged."""

from __future__ import annotations

from fresh_process import printed

WATCHED = """
import os, sys, warnings

filters, environment = list(warnings.filters), dict(os.environ)


def changed():
    added = [f for f in warnings.filters if f not in filters]
    more = {k for k in os.environ | environment if os.environ.get(k) != environment.get(k)}
    if not added and not more and list(warnings.filters) == filters:
        return "nothing"
    return f"{added} {more}".replace(" ", "_")
"""
NUTS = """
import ppgp.models
print(changed())
data = ppgp.load("diabetes").rows(slice(0, 30))
print(changed())
warned = warnings.catch_warnings(record=True)
with warned:
    nuts = ppgp.inference.NUTS(draws=5, warmup=5, chains=2)
    posterior = ppgp.fit(ppgp.models.LinearRegression(), data, nuts, progress=False)
print(changed())
posterior.predict(data.X).sample(2)
posterior.summary()
posterior.to_arviz()
print(changed())
import ppgp.plots, ppgp.estimators
print(changed())
"""


def test_the_first_nuts_does_not_change_filters_and_environment() -> None:
    assert printed(WATCHED + NUTS) == ["nothing"] * 5
