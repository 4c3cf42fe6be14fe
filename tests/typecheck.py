"""beartype for the test run; an int is accepted for a float, as in PEP 484's numeric tower."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
