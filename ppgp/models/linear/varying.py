"""Coefficients that vary between the groups of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...data.dataset import Dataset
from ...errors import DataError, SettingError, UnknownName, counted, listed
from ...priors import Flat, HalfNormal, Prior, PriorLike, bare, rescaled, with_plain_fields
from .grouped_effects import Blocks

__all__ = ["Grouping", "Units", "Varying"]

INTERCEPT = -1  # in place of the number of a column


@dataclass(frozen=True)
class Varying:
    """Which coefficients vary between the groups of a grouping, and how much.

    Each group g has coefficients u_g ~ N(0, sd^2) of its own, independent between coefficients,
    which are added to those that all rows share. Gelman & Hill (2007), chapters 12 and 13.

    Slopes multiply the column in the units of the data, so that the intercepts are those at 0.
    A prior of the sds is on the scale of the model: units of eta, or with standardised y its sd,
    per sd of the column.

    Args:
        terms: The coefficients, such as "1", "1 + floor" or "floor": 1 for the intercept, and names
            of columns of X. Unlike lme4's, they have an intercept only where 1 is one. Columns
            without names are numbers, in a sequence: ``("1", 0, 2)``.
        sd: Prior of the sd of each coefficient, a number, or one number per coefficient.

    Raises:
        SettingError: If there are no terms, or one occurs twice, or they name a grouping.
    """

    terms: str | tuple[str | int, ...] = "1"
    sd: PriorLike = HalfNormal(1.0)

    def __post_init__(self) -> None:
        with_plain_fields(self)
        if not isinstance(self.terms, str | Sequence):
            do = "for example Varying('1 + floor')"
            raise SettingError("terms in Varying, as text", repr(self.terms), do)
        if not isinstance(self.terms, str):
            object.__setattr__(self, "terms", tuple(self.terms))
        terms = self.named
        if not terms or len(set(terms)) < len(terms) or "" in terms:
            do = "for example Varying('1 + floor')"
            raise SettingError("different terms in Varying", repr(self.terms), do)
        if isinstance(self.terms, str) and "|" in self.terms:
            do = "for example groups={'county': Varying('1 + floor')} for (1 + floor | county)"
            raise SettingError("terms in Varying without the grouping", repr(self.terms), do)
        numbers = self.sd if isinstance(self.sd, tuple) else (self.sd,)
        if any(isinstance(one, int | float) and not one > 0 for one in numbers):
            do = "give positive numbers, or a prior such as HalfNormal(1)"
            raise SettingError("positive sds in Varying", repr(self.sd), do)

    @property
    def named(self) -> tuple[str | int, ...]:
        """The terms one by one."""
        if isinstance(self.terms, str):
            return tuple(term.strip() for term in self.terms.split("+"))
        return tuple(self.terms)

    @property
    def labels(self) -> list[str]:
        """The names of the coefficients."""
        return ["intercept" if term == "1" else str(term) for term in self.named]

    @property
    def flat(self) -> bool:
        """Whether the sds have a flat prior."""
        return isinstance(self.sd, Prior) and isinstance(bare(self.sd), Flat)

    def columns(self, names: Sequence[str] | None, d: int) -> tuple[int, ...]:
        """Return the number of the column of each term, -1 for the intercept.

        Raises:
            UnknownName: If there is no such column.
        """
        known = list(names or map(str, range(d)))
        found = []
        for term in self.named:
            if term == "1":
                found.append(INTERCEPT)
            elif self._without_intercept(term, known):
                do = "leave '0' and '- 1' out, as the intercept varies only where 1 is a term"
                raise SettingError("columns, or 1, as the terms of Varying", repr(self.terms), do)
            elif isinstance(term, int) and 0 <= term < d:
                found.append(term)
            elif str(term) in known:
                found.append(known.index(str(term)))
            else:
                raise UnknownName("column", str(term), known)
        return tuple(found)

    def _without_intercept(self, term: str | int, known: Sequence[str]) -> bool:
        """Whether a term says, as in R, that there is no intercept."""
        text = str(term)
        return text not in known and (text == "0" or text.replace(" ", "").endswith("-1"))

    def on_scale(self, columns: Sequence[int], units: Units) -> PriorLike:
        """Return the prior or numbers of the sds on the scale of the model."""
        factors = tuple(1 / factor for factor in units.factors(columns))
        return rescaled(self.sd, factors, what="the sds of groups")


@dataclass(frozen=True)
class Units:
    """What a Scaler did to the data: f = y_sd * eta, and x = x_sd * (X + origin).

    Attributes:
        y_sd: The unit of eta in the units of the data.
        x_sd: The unit of each column.
        origin: The mean of each column in that unit.
    """

    y_sd: float
    x_sd: tuple[float, ...]
    origin: tuple[float, ...]

    def factors(self, columns: Sequence[int]) -> tuple[float, ...]:
        """Return the unit of each coefficient."""
        x_sd = [1.0 if column == INTERCEPT else self.x_sd[column] for column in columns]
        return tuple(self.y_sd / one for one in x_sd)


@dataclass(frozen=True)
class Grouping:
    """A grouping of the training rows, as ``fit`` found it.

    Attributes:
        name: Its name.
        columns: The number of the column of each term, -1 for the intercept.
        size: The number of levels K.
        sd: Prior or numbers of the sds on the scale of the model.
    """

    name: str
    columns: tuple[int, ...]
    size: int
    sd: PriorLike

    def design(self, X: Tensor, units: Units) -> Tensor:
        """Return the values that the coefficients multiply, [n, q]."""
        parts = []
        for column in self.columns:
            if column == INTERCEPT:
                parts.append(torch.ones_like(X[:, 0]))
            else:
                parts.append(X[:, column] + units.origin[column])
        return torch.stack(parts, 1)


def groupings_of(
    groups: Mapping[str, Varying], data: Dataset, units: Units
) -> tuple[Grouping, ...]:
    """Return the groupings of a table.

    Raises:
        UnknownName: If the table has others instead.
        DataError: If the table has none, has one more, or has rows without a level; or if each
            level of a grouping with flat sds has one row.
    """
    codes, levels = data.groups or {}, data.group_levels or {}
    missing = [name for name in groups if name not in codes]
    if missing:
        if codes:
            raise UnknownName("grouping of the Dataset", missing[0], tuple(codes))
        raise DataError(
            f"groups {', '.join(groups)} in the Dataset",
            "no groups",
            "write Dataset(X, y, groups={name: labels})",
        )
    unused = [name for name in codes if name not in groups]
    if unused:
        do = "give them Varying() in GLM(groups=...), or leave them out of the Dataset"
        raise DataError(f"groups {', '.join(groups)} alone", ", ".join(unused), do)
    found = []
    for name, varying in groups.items():
        rows = torch.nonzero(codes[name] < 0).reshape(-1).tolist()
        if rows:
            do = "drop them, or give them a level"
            raise DataError(f"a level of {name} in every row", f"none in {listed(rows, 'row')}", do)
        columns = varying.columns(data.feature_names, data.d)
        sd = varying.on_scale(columns, units)
        found.append(Grouping(name, columns, len(levels[name]), sd))
        if varying.flat and int(_sizes(codes[name], len(levels[name])).max()) < 2:
            raise DataError(
                f"groups {name} with several rows, as the prior of their sd is flat",
                f"{counted(data.n, 'group')} of one row",
                "give sd a prior such as HalfNormal(1)",
            )
    return tuple(found)


def groups_of_one(groups: Mapping[str, Varying], data: Dataset) -> list[str]:
    """Return warnings about groups of one row beside flat sds."""
    notes = []
    for name, varying in groups.items():
        if not varying.flat or not data.groups:
            continue
        levels = (data.group_levels or {})[name]
        sizes = _sizes(data.groups[name], len(levels)).tolist()
        single = [level for level, size in zip(levels, sizes, strict=True) if size == 1]
        if single:
            shown = ", ".join(single[:4]) + (", ..." if len(single) > 4 else "")
            notes.append(
                f"{counted(len(single), 'group')} of {name} ({shown}) of one row beside an sd with "
                "a flat prior: nothing in them separates the group from the noise; give sd a "
                "prior such as HalfNormal(1)"
            )
    return notes


def _sizes(codes: Tensor, levels: int) -> Tensor:
    return torch.bincount(codes, minlength=levels)


def blocks_of(
    groupings: Sequence[Grouping], X: Tensor, codes: Mapping[str, Tensor], units: Units
) -> Blocks:
    """Return the matrix of all coefficients: a block per level, or one block of several groupings.

    A row of a level without a code (-1) has zeros.
    """
    if len(groupings) == 1:
        one = groupings[0]
        code = codes[one.name]
        features = one.design(X, units) * (code >= 0)[:, None]
        return Blocks(code.clamp_min(0), features, one.size)
    parts = []
    for one in groupings:
        code, Z = codes[one.name], one.design(X, units)
        q = len(one.columns)
        wide = X.new_zeros(len(X), one.size * q)
        place = code.clamp_min(0)[:, None] * q + torch.arange(q, device=X.device)
        parts.append(wide.scatter_add(1, place, Z * (code >= 0)[:, None]))
    block = torch.zeros(len(X), dtype=torch.int64, device=X.device)
    return Blocks(block, torch.cat(parts, 1), 1)


def sds_of_blocks(groupings: Sequence[Grouping], sds: Mapping[str, Tensor]) -> Tensor:
    """Return the sds of all coefficients, [1, m], given {grouping: [q]}."""
    if len(groupings) == 1:
        return sds[groupings[0].name][None]
    return torch.cat([sds[one.name].repeat(one.size) for one in groupings])[None]


def by_grouping(groupings: Sequence[Grouping], u: Tensor) -> dict[str, Tensor]:
    """Return {grouping: [K, q]}, given the coefficients of all blocks [B, m]."""
    found, start, flat = {}, 0, u.reshape(-1)
    for one in groupings:
        end = start + one.size * len(one.columns)
        found[one.name] = flat[start:end].reshape(one.size, len(one.columns))
        start = end
    return found


def of_unknown(
    groupings: Sequence[Grouping],
    X: Tensor,
    codes: Mapping[str, Tensor],
    units: Units,
    sds: Mapping[str, Tensor],
) -> Tensor:
    """Return the variance of eta that levels without a code add, [*draw, n]."""
    total: Any = X.new_zeros(len(X))
    for one in groupings:
        Z = one.design(X, units) * (codes[one.name] < 0)[:, None]
        total = total + (sds[one.name][..., None, :] * Z).square().sum(-1)
    return total


def refuse_unknown(
    groups: Mapping[str, Varying], codes: Mapping[str, Tensor], levels: Any = None
) -> None:
    """Refuse rows of a level that the training rows do not have, if its sd has a flat prior.

    Raises:
        DataError: Naming the grouping.
    """
    for name, varying in groups.items():
        rows = torch.nonzero(codes[name] < 0).reshape(-1).tolist()
        if rows and varying.flat:
            raise DataError(
                f"groups {name} of the training rows, as the prior of their sd is flat",
                f"another in {listed(rows, 'row')}",
                "fit with a prior such as Varying(sd=HalfNormal(1)), from which a new group is "
                "drawn",
            )
