"""Checks of the arguments of ``compare``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..conformal.scores.base import check_score
from ..data.dataset import Dataset
from ..errors import DataError, NotApplicable, SettingError, UnknownName, an
from ..posterior.multi import MultiPosterior
from ..posterior.posterior import Posterior
from .choice_of_reference import same_sites

__all__ = ["check_arguments", "check_reference"]


def check_arguments(posteriors: Any, tables: Mapping[str, Any], score: Any) -> None:
    """Raise the error of the first argument of a type that ``compare`` does not take."""
    do = "pass {name: posterior}, such as {'nuts': posterior}"
    if not isinstance(posteriors, Mapping):
        raise SettingError("posteriors by name", an(type(posteriors).__name__), do)
    if not posteriors:
        raise SettingError("at least one posterior to compare", "none", do)
    for name, posterior in posteriors.items():
        if not isinstance(posterior, Posterior):
            got = f"{an(type(posterior).__name__)} as {name!r}"
            if isinstance(posterior, MultiPosterior):
                do = f"pass those of one output, such as posterior[{posterior.names[0]!r}]"
            raise SettingError("posteriors by name", got, do)
    for name, table in tables.items():
        if not (table is None or isinstance(table, Dataset)):
            raise DataError(f"a Dataset as {name}", an(type(table).__name__), "pass Dataset(X, y)")
    if tables["test"] is not None:
        _check_on_tables(posteriors)
    if score is not None:
        check_score(score)


def _check_on_tables(posteriors: Mapping[str, Posterior]) -> None:
    """Raise NotApplicable for a user's program, whose arguments no rows of a table stand for."""
    for name, posterior in posteriors.items():
        if not posterior.data.is_table:
            do = "leave test out, and apply ppgp.metrics to posterior.predict(...)"
            raise NotApplicable("fits to a Dataset, with test rows", f"a program as {name!r}", do)


def check_reference(reference: Any, posteriors: Mapping[str, Posterior]) -> None:
    """Raise an error where no posterior can be judged by the reference."""
    if reference is None:
        return
    if isinstance(reference, str):
        if reference not in posteriors:
            raise UnknownName("reference", reference, posteriors)
        return
    if not isinstance(reference, Posterior):
        expected = "a name, a Posterior or None as reference"
        raise SettingError(expected, an(type(reference).__name__), "pass one of those")
    if not any(same_sites(posterior, reference) for posterior in posteriors.values()):
        got = f"sites {sorted(reference.draws)}"
        raise NotApplicable("a reference of the same model", got, "pass one with the same sites")
