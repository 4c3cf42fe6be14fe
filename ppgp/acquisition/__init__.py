"""Acquisition functions of Bayesian optimisation, and suggestions of places to measure."""

from .acquisition import EI, UCB, Acquisition, LogEI
from .batch_acquisition import qEI, qUCB
from .suggestion import suggest

__all__ = ["EI", "UCB", "Acquisition", "LogEI", "qEI", "qUCB", "suggest"]
