"""beartype for the whole test run, with PEP 484's numeric tower: a whole number serves where a float is asked for."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
