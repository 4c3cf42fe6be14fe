"""The table of the documentation that shows which model has which capability.

``python tests/tools/matrix.py`` prints it, and with ``--write`` replaces that in docs/contents.md
(``make tables``).
"""

from __future__ import annotations

import tables_of_docs

from ppgp import capabilities, models
from ppgp.models import Model

NAME = "capabilities"  # of the marks in the documentation

#: a call -> the capability that it needs
CALLS = {
    "`Exact()`": capabilities.ClosedForm,
    "`Gibbs()`": capabilities.FullConditionals,
    "`SVI()` on the model's own bound": capabilities.CollapsedBound,
    '`MAP("newton")` by formula': capabilities.LikelihoodDerivatives,
    '`MAP("gauss_newton")`': capabilities.LikelihoodOfFunctions,
    "`SGPR(reselect=)`": capabilities.Reselects,
    '`MAP("kfac")`, `Laplace(structure="kron")`': capabilities.NetworkWeights,
    "`MCDropout()`": capabilities.GaussianNetwork,
    "`NaturalGradientBoosting()`": capabilities.BoostedSum,
    "`posterior.latent`": capabilities.LatentFunction,
    "`posterior.loo`": capabilities.LeaveOneOut,
    "`posterior.pathwise`": capabilities.PosteriorFunctions,
    "`posterior.components`": capabilities.Components,
    '`posterior.components(X, by="role")`': capabilities.ComponentsByRole,
    "`fit_candidates`": capabilities.Candidates,
    "batches of `acquisition` (qEI, qUCB)": capabilities.JointLatent,
    "`posterior.update`, `one_step_ahead`": capabilities.Updates,
    "`posterior.coefficients`": capabilities.LinearCoefficients,
    '`posterior.coefficients("draws")` of regressors': capabilities.IntegratedCoefficients,
    '`posterior.coefficients("HC3")`, `residuals("deviance")`': capabilities.GeneralisedLinear,
    "`posterior.probit`": capabilities.ProbitPrediction,
    "`posterior.effects`": capabilities.GroupEffects,
    "`full_conformal`": capabilities.JointGaussian,
    "`block_kriging`": capabilities.BlockMeans,
}


def table() -> str:
    """Return the table as Markdown: one row per call, with the models that have it."""
    apart = ("LinearMean", "Model", "Multi", "Program")
    kinds = [vars(models)[name] for name in models.__all__ if name not in apart]
    lines = ["| call | models |", "|---|---|"]
    for call, capability in CALLS.items():
        owners = [
            kind for kind in kinds if issubclass(kind, Model) and issubclass(kind, capability)
        ]
        # what GLM makes with groups is no member of ``models.__all__``
        names = ", ".join(kind.__name__ for kind in owners) or "GLM(groups=...)"
        lines.append(f"| {call} | {names} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    tables_of_docs.show(NAME, table())
