"""Priors as frozen records, the named sites that have priors, and conversions between units."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .from_distribution import FromDistribution
from .from_distribution import with_plain_fields as with_plain_fields
from .lengthscale import Lengthscale
from .lengthscale import per_column as per_column
from .positive_numbers import (
    Dirichlet,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
    LogUniform,
)
from .real_numbers import Flat, Normal, StudentT, Uniform
from .real_numbers import FlatDistribution as FlatDistribution
from .records import Number as Number
from .records import Prior as Prior
from .records import PriorLike as PriorLike
from .records import finite_numbers as finite_numbers
from .records import no_numbers as no_numbers
from .records import plain as plain
from .records import single as single
from .records import tensor_of as tensor_of
from .sites import Param as Param
from .sites import Site as Site
from .sites import prefixed as prefixed
from .sites import refuse_negative as refuse_negative
from .sites import site as site
from .sites import under as under
from .sites import value_of as value_of
from .units import InUnitsOfData
from .units import affine as affine
from .units import bare as bare
from .units import in_units_of_data as in_units_of_data
from .units import rescaled as rescaled

__all__ = [
    "Dirichlet",
    "Exponential",
    "Flat",
    "FromDistribution",
    "Gamma",
    "HalfCauchy",
    "HalfNormal",
    "InUnitsOfData",
    "InverseGamma",
    "Lengthscale",
    "LogNormal",
    "LogUniform",
    "Normal",
    "StudentT",
    "Uniform",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__)
