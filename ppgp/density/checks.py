"""Checks of a user's program before it is fitted: Pyro's validation, and a random density."""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pyro
import torch
from pyro.distributions.util import scale_and_mask
from pyro.util import check_site_shape
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .. import errors
from ..errors import DataError, NotApplicable, NumericalError, an
from ..runtime.process_locks import silenced
from ..runtime.seeding import seeded, standard_normal
from .handlers import Run, is_deterministic, site_log_prob
from .layout import OBSERVED, Slice
from .survey import LEAST

LONGEST = 300  # characters of a message of Pyro's
#: methods of tensors whose results autograd does not know
OUT_OF_TORCH = {
    Tensor.item: ".item()",
    Tensor.numpy: ".numpy()",
    Tensor.__array__: ".numpy()",
    Tensor.tolist: ".tolist()",
    Tensor.__float__: "float()",
    Tensor.__int__: "int()",
}
#: points at which slopes are compared with differences; two must differ, as one may be at a branch
PLACES = 3
NEVER = math.inf
#: the folders of the libraries that a program calls, and what checks of types call themselves
NOT_OF_A_PROGRAM = (
    *(str(Path(inspect.getfile(module)).parent) for module in (torch, pyro, np, inspect, errors)),
    "<@beartype",
)


def check_flat(slices: Mapping[str, Slice], instead: str) -> None:
    """Raise NotApplicable for angles, which Pyro's own methods treat as real numbers.

    Args:
        slices: ``{site: Slice}``, those of a Target.
        instead: The option that the message advises.
    """
    angle = next((name for name, s in slices.items() if s.circular), None)
    if angle is not None:
        raise NotApplicable("sites that are no angles", f"the angle {angle!r}", f"use {instead}")


def check_sites(run: Run) -> None:
    """Refuse sites whose density not all methods can use.

    Raises:
        DataError: For data that are no tensors, which torch's distributions do not take, and for
            sites in half precision, in which a density has three digits.
    """
    observed = run.observed()
    for name, site in run.sites.items():
        dtype = torch.as_tensor(site["value"]).dtype
        wide = not dtype.is_floating_point or torch.promote_types(dtype, LEAST) == dtype
        if name not in observed and not wide:
            got = f"{str(dtype).removeprefix('torch.')} at {name!r}"
            do = "give its prior or its first value another dtype, as by dtype=torch.float32"
            raise DataError("float32 or float64 at the sites of a program", got, do)
    for name, site in run.observed().items():
        if isinstance(site["value"], np.ndarray | list | tuple):
            got = f"{an(type(site['value']).__name__)} at {name!r}"
            do = "pass torch.as_tensor(...) of it to fit, or convert it in the program"
            raise DataError("a tensor as obs", got, do)


def check_shapes(run: Run) -> None:
    """Refuse sites whose value and distribution meet in an outer product.

    A column y [n, 1] beside a location [n] has n * n log densities, all of which would be summed.

    Raises:
        DataError: Naming the site and its shapes.
    """
    for name, site in run.samples():
        if is_deterministic(site) or not site["is_observed"]:
            continue
        law, value = site["fn"], torch.as_tensor(site["value"])
        with torch.no_grad():
            found = scale_and_mask(site_log_prob(site), site["scale"], site["mask"])
        rows = value.shape[: value.ndim - len(law.event_shape)]
        plates = {f.dim: f.size for f in site["cond_indep_stack"] if f.vectorized}
        if plates:
            expected = torch.Size(plates.get(dim, 1) for dim in range(min(plates), 0))
            fits = found.shape == expected
            where = f"shape {list(expected)} in {_named_plates(site)}"
        else:
            fits = found.numel() <= torch.Size(law.batch_shape).numel()
            where = "the shape of obs or of its distribution"
        if not fits and found.numel() > rows.numel():
            got = (
                f"shape {list(found.shape)} from obs of shape {list(value.shape)} and a "
                f"distribution of batch shape {list(law.batch_shape)} (plates included)"
            )
            do = "give both the same rows: .squeeze(-1) takes a column away"
            raise DataError(f"log densities at {name!r} of {where}", got, do)


def _named_plates(site: Mapping[str, Any]) -> str:
    names = [repr(f.name) for f in site["cond_indep_stack"] if f.vectorized]
    return f"plate{'s' * (len(names) > 1)} {', '.join(names)}"


def check_known(run: Run) -> None:
    """Refuse an ``obs_mask`` that is True where the observed value is NaN.

    Raises:
        NumericalError: Naming the sites.
    """
    found, total = [], 0
    for name, site in run.observed().items():
        own = name.removesuffix(OBSERVED)
        if own == name or not run.imputes(own) or site["mask"] is None:
            continue
        value = torch.as_tensor(site["value"])
        event = len(site["fn"].event_shape)
        holes = value.isnan().flatten(value.ndim - event).any(-1) if event else value.isnan()
        wrong = int((holes & torch.as_tensor(site["mask"])).sum())
        if wrong:
            found.append(repr(own))
            total += wrong
    if found:
        raise NumericalError(
            "an obs_mask that is False where a number is NaN",
            f"True at {total} NaN of {', '.join(found)}",
            "pass obs_mask=~torch.isnan(y), of the y that the site observes",
        )


def check_observed(run: Run, program: Any) -> None:
    """Refuse a program that has an optional argument for data and observes nothing.

    Raises:
        DataError: Naming the argument.
    """
    if any(site["is_observed"] and not is_deterministic(site) for _, site in run.samples()):
        return
    parameters = inspect.signature(program.function).parameters
    optional = [name for name, p in parameters.items() if p.default is None]
    if optional:
        got = f"no observed site, with the argument {optional[0]}=None"
        do = f"pass {optional[0]}, and write pyro.sample(..., obs={optional[0]})"
        raise DataError("a program that observes data", got, do)


def check_plates(program: Callable[[], Any], params: Mapping[str, Tensor]) -> None:
    """Raise NotApplicable if a batch is in no plate: sums over discrete sites would be wrong."""
    with validation(), seeded(0), Run({}, params=params) as run:
        program()
        for _, site in run.samples():
            if is_deterministic(site):
                continue
            checked = {**site, "log_prob": site_log_prob(site)}
            try:
                check_site_shape(cast(Any, checked), cast(int, NEVER))
            except ValueError as error:
                got, _, fixes = sentence(error).partition(" Try one of the following fixes: ")
                advice = "declare its plates"
                if fixes:
                    advice = "enclose the batch in pyro.plate, or make it one event by .to_event"
                expected = "every batch in a plate, as discrete sites are summed out"
                raise NotApplicable(expected, got, advice) from None


def refuse_values(message: str | None) -> NoReturn:
    """Raise DataError for what Pyro's validation says of values that have a density."""
    expected = "values and parameters that Pyro's validation allows"
    do = "recode the data, or give the site a distribution and a prior that allow them"
    raise DataError(expected, message or "", do)


def evaluate_observed(run: Run) -> None:
    """Evaluate the likelihood of each observed site, so that validation checks its values."""
    for name, site in run.observed().items():
        try:
            site_log_prob(site)
        except ValueError as error:
            raise ValueError(f"at site {name!r}: {error}") from None


@contextmanager
def validation() -> Iterator[None]:
    """Run Pyro with validation, and leave no param in the global store."""
    # distributions without arg_constraints warn that they cannot be validated
    with silenced(), pyro.validation_enabled(True), pyro.get_param_store().scope(), torch.no_grad():
        yield


def sentence(error: Exception) -> str:
    """Return the message of an error on one line, and no more of it than ``LONGEST``."""
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


class OutOfTorch(TorchFunctionMode):
    """Note where a program takes values that need a gradient out of torch.

    Attributes:
        line: Where it does so first: the method, and the line of the program; None: nowhere.
    """

    def __init__(self) -> None:
        self.line: str | None = None
        self._found: dict[int, Tensor] = {}  # what depends on such values, kept so that ids last

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        tensors = [value for value in args if isinstance(value, Tensor)]
        depends = any(v.requires_grad or id(v) in self._found for v in tensors)
        if depends and self.line is None and func in OUT_OF_TORCH:
            self.line = _line_of_program(OUT_OF_TORCH[func])
        result = func(*args, **(kwargs or {}))
        if depends and isinstance(result, Tensor):
            self._found[id(result)] = result
        return result


def _line_of_program(method: str) -> str | None:
    """Return the method and the line of the user's program that calls it; None if none does."""
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        # as in pytest, a wrapper that hides itself is no part of the program
        hidden = "__tracebackhide__" in frame.f_locals
        if not hidden and not file.startswith(NOT_OF_A_PROGRAM):
            where = f"{method} in line {frame.f_lineno} of {Path(file).name}"
            line = linecache.getline(file, frame.f_lineno).strip()
            return f"{where} ({line})" if line else where
        frame = frame.f_back
    return None


def slopes_differ(density: Callable[[Tensor], Tensor], z: Tensor) -> bool:
    """Return whether the gradient of a density is not that of its values near z [p]."""
    generator = torch.Generator().manual_seed(0)
    h = torch.finfo(z.dtype).eps ** (1 / 3)
    wrong = 0
    for _ in range(PLACES):
        here = z + 0.3 * standard_normal(generator, len(z)).to(z)
        step = h * standard_normal(generator, len(z)).to(z)
        with seeded(0), torch.enable_grad():
            point = here.detach().requires_grad_()
            try:
                (slope,) = torch.autograd.grad(density(point), point, materialize_grads=True)
            except RuntimeError:  # no value needs a gradient, or one that does has no NumPy form
                return True
        ends = []
        for end in (here + step, here - step):
            with seeded(0), torch.no_grad():
                ends.append(float(density(end)))
        difference, known = ends[0] - ends[1], 2 * float(slope @ step)
        rounding = 100 * torch.finfo(z.dtype).eps * max(map(abs, ends))
        wrong += abs(difference - known) > 0.02 * (abs(difference) + abs(known)) + rounding
    return wrong > 1


def no_gradient(line: str, wanted: str) -> NotApplicable:
    """Return the error for a density without a gradient.

    Args:
        line: Where its values leave torch.
        wanted: What needs the gradient, in words.
    """
    return NotApplicable(
        f"a density whose values all come from operations of torch, for {wanted}",
        f"one that depends on the result of {line}",
        "write that line with torch's functions, or use inference.MetropolisHastings(), which "
        "needs no gradient",
    )


def randomness(density: Callable[[Tensor], Tensor], z: Tensor) -> str | None:
    """Return what is random in a density besides its sites; None if it is the same at every call.

    Args:
        density: The log density at z [p].
        z: Where the density is evaluated twice, [p].
    """
    found = []
    for seed in (0, 1):
        with seeded(seed), torch.no_grad():
            found.append(density(z))
    first, second = found
    tolerance = 1e-10 if first.dtype == torch.float64 else 1e-5
    same = torch.allclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True)
    return None if same else "random numbers in the program beside its sites"
