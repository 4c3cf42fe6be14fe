"""The models, one class per file. Each model is a recipe, and its program runs in plain Pyro."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .base import Model
from .boosted import Boosted
from .exact.gp import GP
from .exact.kriging import Kriging
from .exact.latent_gp import LatentGP
from .gaussian_mixture import GaussianMixture
from .grid.grid_gp import GridGP
from .grid.ski import SKI
from .linear.glm import GLM
from .linear.linear_regression import LinearRegression
from .linear.logistic_regression import LogisticRegression
from .linear.multilevel import Multilevel as Multilevel  # what GLM(groups=...) makes
from .linear.softmax_regression import SoftmaxRegression
from .linear.varying import Varying as Varying  # an option of GLM
from .markov.latent_state_space_gp import LatentStateSpaceGP
from .markov.state_space_gp import StateSpaceGP
from .means import LinearMean
from .multi import Multi
from .neighbours.latent_vecchia import LatentVecchia
from .neighbours.vecchia import Vecchia
from .neural_regression import NeuralRegression
from .program import Program
from .sparse.sgpr import SGPR
from .sparse.svgp import SVGP

__all__ = [
    "GLM",
    "GP",
    "SGPR",
    "SKI",
    "SVGP",
    "Boosted",
    "GaussianMixture",
    "GridGP",
    "Kriging",
    "LatentGP",
    "LatentStateSpaceGP",
    "LatentVecchia",
    "LinearMean",
    "LinearRegression",
    "LogisticRegression",
    "Model",
    "Multi",
    "NeuralRegression",
    "Program",
    "SoftmaxRegression",
    "StateSpaceGP",
    "Vecchia",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__)
