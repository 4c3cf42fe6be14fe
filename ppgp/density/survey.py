"""Find the sites of a program, and their shapes, by running it from the prior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints, transform_to

from ..data.training_data import Tables
from ..errors import NotApplicable, listed
from ..priors import FlatDistribution, Param
from ..runtime.seeding import standard_normal
from .enumeration import check_enumerable, plate_nesting
from .handlers import Run, is_deterministic, is_discrete, mapping, partly
from .kinks import is_kinked
from .layout import OBSERVED, UNOBSERVED, Angle, Partly, Slice

MANY = 100  # latent sites, or steps of a loop, of a program that runs long
LEAST = torch.float32  # the narrowest dtype of z


@dataclass(frozen=True, eq=False)
class Survey:
    """What one run of a program shows.

    Attributes:
        slices: ``{site: Slice}``, the place of each site in z.
        params: Values of the params that are held.
        held: The held params that another method would move.
        first: The value of each site in this run.
        like: An empty tensor of the dtype and device of z.
        single: Whether a site is in float32, so that densities have its rounding errors.
        dim: The length of z.
        flat: The sites without a prior density, which start at ``first``.
        declared: Whether all sample sites have the priors that the model declares. These depend
            on no other site, so that supports stay.
        missing: Whether observed values of a user's program have NaN or infinity.
        imputed: The transforms of the sites that ``obs_mask`` makes.
        nesting: How deeply plates are nested, if discrete sites are summed out; None otherwise.
        latents: The names of all latent sample sites.
        deterministic: The values of deterministic sites that a value of z determines.
        kinked: Whether an observed site has a law with a kink, such as that of Laplace. Where
            discrete sites are summed out it is False: the sum has another information.
        kinked_priors: Whether a latent site has such a law, as that of the lasso.
        runs_long: Whether it has very many latent sites, or a ``ppgp.scan`` of very many steps.
    """

    slices: dict[str, Slice]
    params: dict[str, Tensor]
    held: tuple[str, ...]
    first: dict[str, Tensor]
    like: Tensor
    single: bool
    dim: int
    flat: frozenset[str]
    declared: bool
    missing: bool
    imputed: dict[str, Partly]
    nesting: int | None
    latents: frozenset[str]
    deterministic: dict[str, Tensor]
    runs_long: bool
    kinked: bool
    kinked_priors: bool


def arguments(model: Any, data: Any, tables: Tables = ()) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the named arguments of the Pyro program of a model.

    A model whose density is one function of sums over all rows gets the team that adds them up.

    Args:
        model: A model of ``ppgp.models``, or a Program.
        data: The Dataset, or the arguments of a program.
        tables: Inputs and targets of some rows; () for all of them.
    """
    args, named = data.passed(tables)
    if not tables and data.is_sample and model.sums_over_team:
        named |= {"total": data.n}  # the bound of the sample, where no pass is made
    elif not tables and not data.team.alone and model.sums_over_team:
        named |= {"total": data.n, "team": data.team}
    elif not tables and not data.workers.alone:
        named |= {"team": data.workers}
    return args, named


def survey(
    model: Any, data: Any, run: Run, optimise_params: bool, empty: bool, own_dtypes: bool = False
) -> Survey:
    """Read off a run which sites the program has.

    Args:
        model: A model of ``ppgp.models``, or a Program.
        data: The Dataset, or the arguments of a program.
        run: A run of the program, every site drawn from its prior.
        optimise_params: Whether params are part of z.
        empty: Whether a program with nothing to search is accepted.
        own_dtypes: Whether each site has the dtype of its prior at every z. The widest dtype of
            all serves most programs, and has the most digits.

    Raises:
        NotApplicable: If a latent site has infinitely many discrete values, or there is nothing to
            search and ``empty`` is False.
    """
    declared = model.sites_at(data.d)
    # buffers and frozen weights of a network: nothing moves them
    frozen = {name for name, s in declared.items() if isinstance(s, Param) and not s.trained}
    slices: dict[str, Slice] = {}
    params: dict[str, Tensor] = {}
    flat: set[str] = set()
    imputed: dict[str, Partly] = {}
    nesting: int | None = None
    missing = False
    last = torch.empty(0)
    position = 0
    for name, site in run.sites.items():
        is_param = site["type"] == "param"
        if site["type"] == "sample" and site["is_observed"]:
            missing = missing or (not data.is_table and _has_holes(site["value"]))
            continue
        if is_param and (name in frozen or not optimise_params):
            params[name] = site["value"].detach().clone()
            continue
        if not is_param and site["fn"].support.is_discrete:
            check_enumerable(name, site)
            nesting = plate_nesting(run)
            continue
        if is_param:
            transform = transform_to(site["kwargs"].get("constraint", constraints.real))
        else:
            transform = mapping(name, site["fn"])
            if name.endswith(UNOBSERVED):
                transform = partly(transform, site, run.sites)
                if isinstance(transform, Partly):
                    _check_masks_around(name.removesuffix(UNOBSERVED), run)
                    imputed[name] = transform
        value = site["value"].detach()
        last = transform.inv(value)
        stop = position + last.numel()
        circular = isinstance(transform, Angle)
        slices[name] = Slice(
            position, stop, last.shape, value.shape, transform, is_param, circular=circular
        )
        position = stop
        law: Any = site.get("fn")
        while hasattr(law, "base_dist"):
            law = law.base_dist
        if isinstance(law, FlatDistribution):
            flat.add(name)
    if not position and not empty:
        raise _nothing_uncertain(run, data.is_table)
    values = [site["value"] for _, site in run.samples()]
    real = [v for v in values if isinstance(v, Tensor) and v.is_floating_point()]
    # a program may draw float32 sites beside float64 data: z has the widest dtype of all
    of_z = real
    if own_dtypes:
        of_z = [run.sites[name]["value"] for name in slices]
        pairs = zip(slices.items(), of_z, strict=True)
        slices = {name: replace(s, dtype=value.dtype) for (name, s), value in pairs}
    widest = reduce(torch.promote_types, [v.dtype for v in of_z], LEAST)
    steps = [(s["infer"] or {}).get("of_steps", 0) for _, s in run.samples()]
    latents = frozenset(name for name, s in run.samples() if not s["is_observed"])
    return Survey(
        slices=slices,
        params=params,
        held=tuple(name for name in params if name not in frozen),
        first={name: run.sites[name]["value"].detach() for name in run.sites if name in slices},
        like=(last if position else of_z[0]).detach().new_zeros(0, dtype=widest),
        single=any(value.dtype == torch.float32 for value in real),
        dim=position,
        flat=frozenset(flat),
        declared=all(s.param or name in declared for name, s in slices.items()),
        missing=missing,
        imputed=imputed,
        nesting=nesting,
        latents=latents,
        deterministic={
            name: s["value"] for name, s in run.samples() if is_deterministic(s) and nesting is None
        },
        runs_long=max((len(latents), *steps)) > MANY,
        kinked=nesting is None and any(is_kinked(s["fn"]) for s in run.observed().values()),
        kinked_priors=any(is_kinked(s["fn"]) for _, s in run.samples() if not s["is_observed"]),
    )


def _has_holes(value: Any) -> bool:
    """Return whether an observed value has NaN or infinity."""
    real = isinstance(value, Tensor) and value.is_floating_point()
    return real and value.layout is torch.strided and not bool(value.isfinite().all())


def _check_masks_around(name: str, run: Run) -> None:
    """Raise NotApplicable if a mask around a site leaves out entries that obs_mask= makes latent.

    Such an entry has neither data nor a density. Where both masks leave an entry out, the value of
    the site shows whether it is one of the data.
    """
    given, drawn = run.sites[name + OBSERVED], run.sites[name + UNOBSERVED]
    if name not in run.sites or not all(isinstance(s["mask"], Tensor) for s in (given, drawn)):
        return
    value, seen = run.sites[name]["value"], torch.as_tensor(given["value"])
    event = len(drawn["fn"].event_shape)
    differs = value != seen.expand_as(value)  # also where it is NaN
    latent = differs.flatten(differs.ndim - event).any(-1) if event else differs
    hidden = latent & ~(given["mask"] | drawn["mask"]).expand_as(latent)
    count = int(hidden.sum())
    if count:
        raise NotApplicable(
            f"obs_mask= of {name!r} to be True where a mask around it is False",
            f"{count} entries that both leave out, which have no density",
            "pass obs_mask=seen | ~inside with numbers there, for a mask `inside`",
        )


def _nothing_uncertain(run: Run, of_the_library: bool) -> NotApplicable:
    """Return the error for a run without a site or param to search over."""
    if of_the_library:
        do = "give a hyperparameter a prior; ppgp.fit takes a model of numbers alone"
        return NotApplicable("a model with at least one uncertain site", "none", do)
    discrete = [name for name, s in run.latents().items() if is_discrete(s)]
    got, do = "none", "draw a parameter by pyro.sample without obs"
    if discrete:
        got = f"the {listed(list(map(repr, discrete)), 'discrete site')} alone, to be summed out"
        do = "draw a parameter of the program by pyro.sample, such as a probability"
    return NotApplicable("a program with at least one uncertain site of real numbers", got, do)


def other_points(found: Survey, scales: tuple[float, ...]) -> Tensor:
    """Return points z [k, p] at which runs are compared with the first: one, times each scale."""
    generator = torch.Generator().manual_seed(1)
    z = standard_normal(generator, found.dim)
    return torch.stack([scale * z for scale in scales]).to(found.like)
