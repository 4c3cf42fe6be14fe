"""The joint mode of a latent function and its hyperparameters, and why it is a poor fit."""

from __future__ import annotations

from ...density.target import Target

JOINT_MODE = (
    "this is the joint mode of f and of its hyperparameters, a poor fit: it favours "
    "hyperparameters under which f can be a constant, and no spread of f is averaged over; "
    "fit by SVI or NUTS, which integrate f out"
)


def found_jointly(target: Target) -> bool:
    """Whether a search for the mode moves the values of a latent function and other sites too."""
    values = set(target.model.latent_values)
    return bool(values & target.slices.keys()) and bool(target.slices.keys() - values)
