"""What only some models can do: one abstract class for each.

A model inherits the classes of what it can do. ``require`` returns the model, typed as the
capability, or raises ``NotApplicable`` with advice; ``supports`` returns True or False. Where the
options of a model decide, the model overrides ``lacks``.

Shapes: theta is ``{site: [draw, *event]}``, X is [n, d], a Dataset holds the training rows.
"""

from .base import Capability, require, supports
from .gaussian_processes import (
    BlockMeans,
    Candidates,
    Components,
    ComponentsByRole,
    FollowsFit,
    JointGaussian,
    JointLatent,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
    Reselects,
    Updates,
)
from .linear import (
    GeneralisedLinear,
    GroupEffects,
    IntegratedCoefficients,
    LinearCoefficients,
    ProbitPrediction,
    RowScores,
)
from .methods import (
    BoostedSum,
    ClosedForm,
    CollapsedBound,
    FullConditionals,
    LikelihoodDerivatives,
    LikelihoodOfFunctions,
    SubsetModel,
    WarmStart,
)
from .networks import GaussianNetwork, NetworkWeights

__all__ = [
    "BlockMeans",
    "BoostedSum",
    "Candidates",
    "Capability",
    "ClosedForm",
    "CollapsedBound",
    "Components",
    "ComponentsByRole",
    "FollowsFit",
    "FullConditionals",
    "GaussianNetwork",
    "GeneralisedLinear",
    "GroupEffects",
    "IntegratedCoefficients",
    "JointGaussian",
    "JointLatent",
    "LatentFunction",
    "LeaveOneOut",
    "LikelihoodDerivatives",
    "LikelihoodOfFunctions",
    "LinearCoefficients",
    "NetworkWeights",
    "PosteriorFunctions",
    "ProbitPrediction",
    "Reselects",
    "RowScores",
    "SubsetModel",
    "Updates",
    "WarmStart",
    "require",
    "supports",
]
