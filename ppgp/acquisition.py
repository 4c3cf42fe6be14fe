"""Acquisition functions of Bayesian optimisation, and suggestions of places to measure."""

from .posterior.acquisition import EI, UCB, Acquisition, LogEI
from .posterior.batch_acquisition import qEI, qUCB
from .posterior.suggestion import suggest

__all__ = ["EI", "UCB", "Acquisition", "LogEI", "qEI", "qUCB", "suggest"]
