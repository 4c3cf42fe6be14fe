"""What is wrong with the arguments of a program that fails, or that predicts no numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Independent

from ..errors import DataError, PpgpError, an, counted
from ..numerics.shapes import broadcast_shapes

__all__ = ["explained", "mask_of_other_shape", "not_finite", "of_dtypes", "spreads_to"]

LONGEST = 200  # characters of a message of torch
#: in the messages of torch
OF_DTYPES = re.compile("dtype|scalar type|type .* should be the same", re.IGNORECASE)
OF_WHOLE = re.compile(r"\b(Long|Int|Short|Char|Byte|Bool|u?int\d+|bool)\b")
OF_DEVICES = re.compile("device|driver|not compiled with|not linked with")
OF_INDICES = re.compile("used as indices must be|shape of the mask")
OF_SIZES = re.compile("size|shape", re.IGNORECASE)
#: AssertionError: torch was not compiled for a device
ANY = (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError)


@contextmanager
def explained(
    arguments: Any,
    fitted: Mapping[str, Any] = MappingProxyType({}),
    left_out: Sequence[str] = (),
    sites: Callable[[], Mapping[str, str]] = dict,
) -> Iterator[None]:
    """Name the arguments of a program that fails because of their kinds, dtypes or sizes.

    Args:
        arguments: The arguments, after ``with_tensors``; a Dataset explains nothing.
        fitted: The arguments of the fit, where these are those of a prediction.
        left_out: The names of arguments without a default that were not given.
        sites: () -> ``{site: dtype}`` of the sites that the program has drawn when it fails.

    Raises:
        DataError: If the program fails, and its arguments or its dtypes are the reason.
    """
    try:
        yield
    except ANY as error:
        found = None
        if isinstance(arguments, Mapping) and not isinstance(error, PpgpError):
            found = _explanation(arguments, error, fitted, left_out, sites)
        if found is None:
            raise
        raise found from error


def of_dtypes(error: Exception) -> bool:
    """Return whether an error of torch is about numbers of several dtypes."""
    return isinstance(error, RuntimeError | ValueError) and bool(OF_DTYPES.search(str(error)))


def spreads_to(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Return whether a tensor of one shape can be expanded to another one."""
    try:
        return broadcast_shapes(tuple(shape), tuple(whole)) == tuple(whole)
    except RuntimeError:
        return False


def mask_of_other_shape(
    name: str, mask: Sequence[int], batch: Sequence[int], law: Any, steps: int | None = None
) -> DataError:
    """Return the error for an ``obs_mask`` that does not fit its site.

    Args:
        name: The site.
        mask: The shape of the mask, in one step of a loop.
        batch: That of the site without its event.
        law: The distribution of the site.
        steps: The number of steps of the loop; None outside of one.
    """
    event = tuple(law.event_shape)
    unit, first = ("row", ()) if steps is None else ("step", (steps,))
    if len((*first, *batch)) > 1 and not event:
        unit = "number"
    if event and spreads_to(mask, (*batch, *event)):
        do = "pass .all(-1) of it, as the numbers of an event are known or missing together"
        if isinstance(law, Independent):
            do = "write a pyro.plate in place of .to_event for one truth value a number"
    elif len(mask) and mask[-1] == 1 and spreads_to(mask[:-1], batch):
        do = "pass .squeeze(-1) of it"
    elif not len(batch):
        do = "draw the site in a pyro.plate, as long as the mask"
    else:
        do = f"pass as many truth values as the site has {unit}s, in the shape of its plates"
    return DataError(
        f"obs_mask of site {name!r} of shape {(*first, *batch)}, one truth value a {unit}",
        f"{(*first, *mask)}",
        do,
    )


def _of_obs_mask(error: Exception) -> DataError | None:
    """Return the error for an ``obs_mask`` that Pyro refuses; None for other errors."""
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_name != "_masked_observe":
        here = here.tb_next
    if here is None or not isinstance(error, ValueError):
        return None
    known = here.tb_frame.f_locals
    name, mask, law = known["name"], known["obs_mask"], known["fn"]
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        if "obs_mask" not in str(error):
            return None
        shape = known["unobserved"].shape
        return mask_of_other_shape(name, mask.shape, shape[: len(shape) - law.event_dim], law)
    if isinstance(mask, Tensor):
        got = str(mask.dtype).removeprefix("torch.")
        do = "pass .bool() of it, with True where a number is known"
    else:
        got = an(type(mask).__name__)
        do = "pass torch.tensor(...) of it, of truth values"
    return DataError(f"a tensor of truth values as obs_mask of site {name!r}", got, do)


def _explanation(
    arguments: Mapping[str, Any],
    error: Exception,
    fitted: Mapping[str, Any],
    left_out: Any,
    sites: Callable[[], Mapping[str, str]],
) -> DataError | None:
    """Return what is wrong with the arguments of a program that failed, if they are the reason."""
    reason = (str(error) or type(error).__name__).splitlines()[0][:LONGEST]
    found = _of_obs_mask(error)
    if found is not None:
        return found
    found = _of_places(arguments, error, reason)
    if found is not None or isinstance(error, AssertionError):
        return found
    strange = [name for name, v in arguments.items() if isinstance(v, Tensor) and v.is_complex()]
    if strange and "Complex" in reason:
        do = "pass real and imaginary parts as two arguments"
        return DataError("real numbers", f"complex ones as {_quoted(strange)} ({reason})", do)
    if isinstance(error, IndexError) and OF_INDICES.search(str(error)):
        return _no_index(arguments, reason)
    if not isinstance(error, RuntimeError | ValueError):  # a number or a text has no such method
        if left_out:
            given = ", ".join(f"{name}=..." for name in left_out)
            got = f"none as {_quoted(left_out)} ({reason})"
            return DataError("the program's own arguments", got, f"call predict({given})")
        return _other_kinds(arguments, fitted, reason)
    tensors = {
        name: value for name, value in arguments.items() if isinstance(value, Tensor) and value.ndim
    }
    if of_dtypes(error):
        return _other_dtypes(tensors, sites(), reason, fitted)
    if not OF_SIZES.search(str(error)):
        return None
    if fitted:
        found = _of_other_sizes(tensors, fitted, reason)
        if found is not None:
            return found
    if len({len(value) for value in tensors.values()}) < 2:
        return None
    got = ", ".join(f"{name} of shape {list(value.shape)}" for name, value in tensors.items())
    do = "give these arguments the same rows, or correct the program"
    return DataError("arguments whose sizes fit in the program", f"{got} ({reason})", do)


def _of_other_sizes(
    tensors: Mapping[str, Tensor], fitted: Mapping[str, Any], reason: str
) -> DataError | None:
    """Return the error for arguments of a prediction of which all have other sizes than in the fit.

    Where some have not, the rows of these differ from those.
    """
    before = {name: fitted[name] for name in tensors if isinstance(fitted.get(name), Tensor)}
    others = {name: v for name, v in before.items() if v.shape != tensors[name].shape}
    if not others or len({len(tensors[name]) for name in before}) > 1:
        return None
    got = ", ".join(
        f"{name} of shape {list(tensors[name].shape)}, {list(v.shape)} in the fit"
        for name, v in others.items()
    )
    return DataError(
        "arguments whose sizes fit in the program",
        f"{got} ({reason})",
        "pass as many rows as in the fit, or take the sizes of the plates from the arguments, as "
        "by len(x)",
    )


def _of_places(arguments: Mapping[str, Any], error: Exception, reason: str) -> DataError | None:
    """Return the error for tensors on several devices, or on one that is not there."""
    if isinstance(error, ValueError | TypeError) or not OF_DEVICES.search(str(error)):
        return None
    places = [f"{name} on {v.device}" for name, v in arguments.items() if isinstance(v, Tensor)]
    do = "place the arguments, and what the program makes, on one device that is there"
    got = f"{', '.join(places) or 'no tensor among the arguments'} ({reason})"
    return DataError("a program whose tensors are on one device", got, do)


def _no_index(arguments: Mapping[str, Any], reason: str) -> DataError | None:
    """Return the error for an index that holds no whole numbers, if an argument may be that."""
    kinds = {
        name: v.dtype
        for name, v in arguments.items()
        if isinstance(v, Tensor) and (v.is_floating_point() or v.dtype == torch.bool)
    }
    each = [f"{str(dtype).removeprefix('torch.')} {name}" for name, dtype in kinds.items()]
    wanted = "whole numbers as an index in the program"
    do = "pass such an argument as .long()"
    return DataError(wanted, f"{', '.join(each)} ({reason})", do) if each else None


def _other_kinds(
    arguments: Mapping[str, Any], fitted: Mapping[str, Any], reason: str
) -> DataError | None:
    """Return the error for lists, and for what was an array in the fit and is none here."""
    wanted = "tensors or arrays as the program's arguments"
    absent = [name for name in fitted if arguments.get(name) is None]
    if absent and "NoneType" in reason:
        got = f"one that reads {_quoted(absent)}, not given here ({reason})"
        do = "take the number of rows from another argument, as by len(X)"
        return DataError("a program that predicts without its observed values", got, do)
    lists = [name for name, value in arguments.items() if isinstance(value, list | tuple)]
    if lists:
        do = "pass torch.tensor(...) or numpy.array(...) of each"
        return DataError(wanted, f"a list as {_quoted(lists)} ({reason})", do)
    for name, value in arguments.items():
        before = fitted.get(name)
        was_array = isinstance(before, Tensor) and before.ndim
        if was_array and value is not None and not isinstance(value, Tensor):
            got = f"{an(type(value).__name__)} as {name!r} ({reason})"
            do = f"pass {name}=numpy.array([...]), as in the fit"
            return DataError(wanted, got, do)
    return None


def _other_dtypes(
    tensors: Mapping[str, Tensor],
    sites: Mapping[str, str],
    reason: str,
    fitted: Mapping[str, Any],
) -> DataError | None:
    """Return the error for arguments that have another dtype than one another or the priors."""
    dtypes = {name: str(value.dtype).removeprefix("torch.") for name, value in tensors.items()}
    real = {name: dtypes[name] for name, value in tensors.items() if value.is_floating_point()}
    whole = {name: dtypes[name] for name in dtypes if name not in real}
    kinds, of_sites = set(real.values()), set(sites.values())
    if not (kinds or sites):
        return None
    at_sites = [
        f"{dtype} at site {name.replace('$$$', '.')!r}"  # Pyro's name of a module's
        for name, dtype in sites.items()
    ]
    wanted = "arguments and priors of one dtype in the program"
    if whole and OF_WHOLE.search(reason):
        each = [f"{dtype} {name}" for name, dtype in {**whole, **real}.items()]
        dtype = max(of_sites or kinds)
        do = f"convert {_quoted(list(whole))}, as by .to(torch.{dtype}) or .astype('{dtype}')"
        return DataError(wanted, f"{', '.join(each + at_sites)} ({reason})", do)
    each = [f"{dtype} {name}" for name, dtype in real.items()]
    got = f"{', '.join(each + at_sites)} ({reason})"
    before = {
        name: str(value.dtype).removeprefix("torch.")
        for name, value in fitted.items()
        if isinstance(value, Tensor)
    }
    changed = {name: before[name] for name in real if before.get(name, real[name]) != real[name]}
    if changed:
        name, dtype = next(iter(changed.items()))
        do = f"convert {_quoted(list(changed))}, as by .to(torch.{dtype}) or .astype('{dtype}')"
        return DataError(f"{name} in {dtype}, as in the fit", got, do)
    if len(kinds) > 1:
        return DataError(wanted, got, "give all arguments the same dtype")
    if not kinds or len(of_sites) > 1:
        do = "give all priors and constants the same dtype, as by dtype=torch.float64"
        return DataError(wanted, got, do)
    if kinds == of_sites:
        do = f"give the constants of the program that dtype too, as by dtype=torch.{min(kinds)}"
        return DataError(wanted, got, do)
    do = "pass these arguments in the dtype of the priors"
    if kinds == {"float64"}:
        do = (
            "make the priors float64, as by torch.zeros(1, dtype=torch.float64), and a module by "
            ".double(), or pass float32 arguments"
        )
    elif kinds == {"float32"}:
        do = "write no dtype=torch.float64 in the priors, or pass float64 arguments"
    return DataError(wanted, got, do)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def not_finite(arguments: Any) -> str:
    """Return where arguments of a program hold NaN or infinity; "" if none does.

    Args:
        arguments: The arguments, after ``with_tensors``.
    """
    found = []
    for name, value in arguments.items() if isinstance(arguments, Mapping) else ():
        if not isinstance(value, Tensor):
            continue
        holes = ~torch.isfinite(value)
        if bool(holes.any()):
            kinds = {"NaN": torch.isnan(value), "infinity": torch.isinf(value)}
            kind = " or ".join(word for word, mask in kinds.items() if bool(mask.any()))
            where = f"{int(holes.sum())} of {counted(holes.numel(), 'number')}"
            found.append(f"{kind} for {where} in {name!r}")
    return ", ".join(found)
