"""A path that the operating system cannot use is refused in one sentence."""

from __future__ import annotations

import pytest

from ppgp import load_posterior
from ppgp.errors import StorageError


@pytest.mark.parametrize("path", ["y" * 4000, "a\0b", "", "/dev/null", "/"])
def test_load_posterior(path) -> None:
    with pytest.raises(StorageError, match="expected a file that"):
        load_posterior(path)
