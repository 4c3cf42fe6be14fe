"""What ``fit`` checks before it begins: whether model, rows, method and options fit together."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

from ...data.dataset import Dataset, Scaler
from ...data.entries.arrays import check_inputs
from ...data.roles import columns_given, refuse_role
from ...data.stream.stream import Stream
from ...density.checks import no_gradient
from ...density.target import Target
from ...display.user_warnings import warn
from ...errors import DataError, DataWarning, NotApplicable, SettingError, an, counted, own_class
from ...kernels import Kernel
from ...kernels.sphere import flat_degrees
from ...likelihoods import Likelihood
from ...models import Model, Program
from ...posterior.posterior import Posterior
from ...runtime.process_group import first_time, rank_in_group
from ...runtime.team import Team
from ...tables.entries import misspelt
from ..base import Inference
from ..variational.svi import SVI

__all__ = [
    "check_options",
    "check_program",
    "check_support",
    "check_team",
    "check_training_rows",
    "no_method",
    "no_path",
    "refuse_another_scale",
    "warn_of_flat_degrees",
    "warn_of_unshared",
]


FEWEST_ROWS = 3


def no_path(checkpoint: Any) -> SettingError:
    """Return the error for a checkpoint that is no path."""
    do = 'for example checkpoint="fit.checkpoint"'
    return SettingError("a path as checkpoint", repr(checkpoint)[:60], do)


def no_method(how: Any, model_or_program: Any = None) -> NotApplicable:
    """Return the error for a ``how`` that is no inference record.

    Args:
        how: What was given.
        model_or_program: What is fitted.
    """
    got, do = an(type(how).__name__), "call fit(model, Dataset(X, y), inference.NUTS())"
    if callable(model_or_program) and not isinstance(model_or_program, Model):
        names = ", ".join(f"{name}=..." for name in Program(model_or_program).arguments({}))
        do = f"call fit(program, dict({names}), inference.NUTS())"
    if isinstance(how, str):
        known = own_class(Inference, how)
        got, do = repr(how), f"write ppgp.recipes.method({how!r})"
        if known:
            do = f"write inference.{known}(), or ppgp.recipes.method({how!r})"
    elif isinstance(how, type):
        got, do = repr(how), f"call it: {how.__name__}()"
    return NotApplicable("an inference record such as inference.NUTS()", got, do)


def no_dataset(model: Model, data: Any) -> DataError:
    """Return the error for data of a model that are no Dataset."""
    do = "use ppgp.Dataset(X, y)"
    if hasattr(data, "columns"):
        do = "use ppgp.Dataset.from_frame(table, target)"
    return DataError(f"a Dataset for {type(model).__name__}", type(data).__name__, do)


def check_program(model_or_program: Any) -> None:
    """Raise NotApplicable for what is neither a model nor a program."""
    if isinstance(model_or_program, type):
        name = model_or_program.__name__
        raise NotApplicable("a model", f"the class {name}", f"call it: {name}()")
    if isinstance(model_or_program, Kernel):
        name = type(model_or_program).__name__
        raise NotApplicable("a model", f"the kernel {name}", f"write models.GP({name}())")
    if callable(model_or_program):
        return
    got, do = an(type(model_or_program).__name__), "pass a callable"
    if isinstance(model_or_program, str):
        got = repr(model_or_program)
        do = f"write ppgp.recipes.model({got})"
    elif isinstance(model_or_program, Dataset | Stream):
        do = "write fit(model, data, inference)"
    elif isinstance(model_or_program, Likelihood):
        do = "write models.GLM(likelihood), or models.GP(likelihood=...)"
    raise NotApplicable("a model of ppgp.models or a Pyro program", got, do)


def check_support(how: Inference, target: Target, checkpoint: bool) -> None:
    """Raise NotApplicable if the method has no checkpoints, or cannot use a random density."""
    name = type(how).__name__
    if checkpoint and "checkpoint" not in signature(how.__call__).parameters:
        raise NotApplicable(
            "a method with checkpoints",
            name,
            "use MAP, SVI, NaturalGradientBoosting, NUTS, HMC, MetropolisHastings, Gibbs, SGLD or "
            "SGHMC, or leave checkpoint out",
        )
    if target.out_of_torch is not None and how.needs_gradient:
        raise no_gradient(target.out_of_torch, name)
    if not how.guides_rows:
        for site, plate in target.sites_of_batches.items():
            rows, size = target.batches[plate]
            raise NotApplicable(
                f"no latent site in the plate {plate!r}, which takes {rows} of {size} rows",
                f"{site!r}",
                "leave subsample_size out, draw the site for all rows outside this plate and index "
                "it by the rows that the plate gives, or use SVI(guide) with a guide of your own",
            )
    if target.random is not None and not how.takes_random_density:
        method = "(method='deterministic')" if isinstance(how, SVI) else ""
        raise NotApplicable(
            f"the same density at every call for {name}{method}",
            target.random,
            "use SVI(), SGLD or SGHMC, or write an integral as a site or a closed form",
        )


def warn_of_flat_degrees(model: Model, data: Dataset, every_name: Sequence[str]) -> None:
    """Warn about latitudes and longitudes whose distances are taken as flat.

    In kriging all columns are places; in other models, such as one of a table of many features,
    those that ``Dataset(coordinates=)`` names.

    Args:
        model: The recipe.
        data: The rows.
        every_name: The names of all columns.
    """
    columns = model.covariance_columns(data.d)
    if not model.inputs_are_places:
        columns = [c for c in columns if c in data.together]
    if len(columns) > 1:
        names = [every_name[c] for c in columns]
        sentence = flat_degrees(model.covariance, data.X[:, columns], names)
        if sentence is not None:
            warn(sentence, DataWarning)


def check_training_rows(model: Model, data: Dataset) -> None:
    """Refuse data that a model cannot take: few rows, labels, columns with roles, NaN or codes."""
    if data.n < FEWEST_ROWS and data.total < FEWEST_ROWS:
        raise DataError(
            f"at least {FEWEST_ROWS} rows to fit a model",
            counted(data.total, "sample"),  # the word that scikit-learn's checks look for
            "collect more rows",
        )
    if data.classes is not None and not model.takes_labels:
        _refuse_labels(model, data.classes)
    for name in columns_given(data):
        refuse_role(model, name, f"a Dataset without {name}")
    if data.missing == "keep" and not model.takes_missing:
        check_inputs(data.X, data.feature_names)
    if data.categorical and not model.takes_categories:
        what, name, do = "model", type(model).__name__, ""
        learner = getattr(model, "learner", None)
        if learner is not None:
            what, name = "learner", f"{type(learner).__name__} of {name}"
            do = "use learners.Trees(), or "
        raise NotApplicable(
            f"a {what} that takes columns of codes",
            f"{name}, which would read the codes as numbers",
            f"{do}make one column of 0 and 1 per category: "
            "Dataset.from_frame(categories='one-hot')",
        )


def _refuse_labels(model: Model, classes: Sequence[Any]) -> None:
    """Raise DataError for labels in y and a model of numbers."""
    labels = ", ".join(map(str, classes[:4]))
    if len(classes) > 4:
        labels += ", ..."
    name = type(model).__name__
    do = (
        "use LogisticRegression or GP(likelihood=Bernoulli()) for two classes, SoftmaxRegression "
        "or SVGP(likelihood=Categorical()) for more"
    )
    likelihood = getattr(model, "likelihood", None)
    if likelihood is not None:
        name += f" with likelihood {likelihood!r}"
        do = "pass likelihood=Bernoulli() for two classes or Categorical() for more"
    found = misspelt(classes)
    if found is not None:
        do = found.do
    raise DataError(
        f"numbers in y for {name}", f"the labels {labels}", f"{do}, or a target with numbers"
    )


def refuse_another_scale(model: Model, scaler: Scaler, standardise: bool) -> None:
    """Raise SettingError for the recipe of a posterior and rows of another scale.

    Its numbers were converted with another Scaler.
    """
    if not standardise:
        raise SettingError(
            "a recipe in the units of the data with standardise=False",
            "one on the standardised scale",
            "pass posterior.recipe, which is in the units of the data, "
            "or leave standardise=False out",
        )
    if model.made_for is None:
        return
    before = model.made_for[1]
    if not before.is_identity and not before.like(scaler):
        raise SettingError(
            "posterior.recipe, which is in the units of the data, for other rows than those of "
            "the posterior",
            "posterior.model, whose numbers are on the scale of its own rows",
            "fit posterior.recipe",
        )


def warn_of_unshared(data: Any) -> None:
    """Issue a DataWarning on rank 0 if a team has been joined and the rows are not shared.

    It comes once in a process group, as a program may fit unshared rows on purpose.
    """
    rank, size = rank_in_group()
    unshared = hasattr(data, "in_team") and data.team.alone
    if rank or size == 1 or not unshared or not first_time("rows are not shared"):
        return
    warn(
        f"each of the {size} processes fits all {counted(data.n, 'row')} by itself: pass "
        "team.share(data), with team = ppgp.Team.of_environment(), to fit them together",
        DataWarning,
    )


def check_team(model: Model, data: Any, how: Inference, named: bool, seed: int) -> None:
    """Check that the several ranks of a team can fit the model together, and pass the same.

    Args:
        model: The recipe.
        data: This rank's rows.
        how: The method.
        named: Whether the user named the method.
        seed: The seed.

    Raises:
        NotApplicable: If the likelihood is one joint distribution of all rows, or the method does
            not run on every rank alike.
        SettingError: If the model, the method or the seed differs between the ranks.
    """
    team = data.team
    with team.all_or_none():
        if model.joint_rows and not model.sums_over_team:
            raise NotApplicable(
                f"a model whose rows {team.size} processes can divide",
                f"{type(model).__name__}, whose likelihood is one joint distribution of all rows",
                "use SGPR, SVGP, Vecchia or SKI, or fit in one process",
            )
        if not how.serves_team(model):
            raise _no_method_of_a_team(type(how).__name__, named, team.size)
    team.check_alike({"model": model, "method": how, "seed": int(seed)})


def _no_method_of_a_team(name: str, named: bool, size: int) -> NotApplicable:
    """Return the error for a method that does not run on every rank alike."""
    wanted = f"a method that {size} processes can run together"
    if named:
        do = "use MAP, Laplace or SVI, or fit in one process"
        return NotApplicable(wanted, an(name), do)
    do = "pass MAP(), Laplace() or SVI() as how, or fit in one process"
    return NotApplicable(f"how, {wanted}", f"none, and the default is {name}", do)


def check_options(team: Team, init: Any, standardise: bool, checkpoint: Any) -> None:
    """Raise SettingError if these arguments of ``fit`` differ between the ranks of a team."""
    start = (init.draws, init.params) if isinstance(init, Posterior) else init
    path = None if checkpoint is None else str(checkpoint)
    team.check_alike({"init": start, "standardise": standardise, "checkpoint": path})
