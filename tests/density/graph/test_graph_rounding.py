"""The comparison of a compiled graph with its program, up to rounding."""

from __future__ import annotations

import pytest
import torch

from ppgp.density.graph.tracing import agree

VALUE = torch.tensor(-3.0, dtype=torch.float64)
SLOPE = torch.tensor([100.0, -1.0, 0.0], dtype=torch.float64)


def moved(by: float) -> tuple[torch.Tensor, torch.Tensor]:
    return VALUE, SLOPE + torch.tensor([by, -by, by], dtype=torch.float64)


@pytest.mark.parametrize(
    ("by", "own", "same"),
    [
        (5e-7, None, True),  # below 1e-8 of the largest slope
        (5e-6, None, False),
        (5e-6, 1e-6, True),  # the program moves by 1e-6 itself, a rounding error away
        (5e-6, 1e-7, False),
        (
            5e-5,
            1.0,
            False,
        ),  # a program that moves so far does not round: it draws numbers, or has an if in it
    ],
)
def test_a_graph_need_not_be_closer_to_the_program_than_the_program_is_to_itself(
    by: float, own: float | None, same: bool
) -> None:
    assert agree(moved(by), moved(0.0), None if own is None else moved(own)) is same
    assert agree(moved(-by), moved(0.0), None if own is None else moved(-own)) is same
