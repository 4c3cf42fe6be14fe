"""The zoo: one final class a file; each a recipe that plain Pyro accepts."""

from .gp import GP
from .linear_regression import LinearRegression
from .logistic_regression import LogisticRegression
from .model import Model
from .program import Program

__all__ = ["GP", "LinearRegression", "LogisticRegression", "Model", "Program"]
