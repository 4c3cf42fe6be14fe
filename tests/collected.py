"""Where the names of all collected tests are kept, those that are not selected among them."""

from __future__ import annotations

import pytest

COLLECTED = pytest.StashKey[set[str]]()
