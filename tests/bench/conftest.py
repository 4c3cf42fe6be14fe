"""Fixtures of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

import joblib
import pytest
import torch


@pytest.fixture
def all_threads() -> Iterator[None]:
    """Let torch use every core that this process may use."""
    before = torch.get_num_threads()
    torch.set_num_threads(joblib.cpu_count())
    yield
    torch.set_num_threads(before)
