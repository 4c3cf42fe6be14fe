"""Sum over the paths of a chain of discrete variables, with its gradient.

The gradient of the log of the sum is the probability of each value and of each pair of neighbours
(Rabiner 1989, equations 27 and 37). Both directions are walked at once.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .graph.recorder import Recorder

__all__ = ["LEAST_STEPS", "log_of_chain", "log_of_paths", "log_sum_exp"]

LEAST_STEPS = 8  # of a chain that is summed as one; a shorter one is summed as other factors are
EVERY = 4  # steps after which probabilities are divided by their sum
#: the least share of a sum that two directions may have in common. What underflows is below 1e-308
#: of the largest, and is then less than 1e-100 of what is kept.
LEAST = 1e-100


def log_sum_exp(values: Tensor, axis: int) -> Tensor:
    """Return the log of the sum of exponentials; the slope is 0 where all values are -inf."""
    largest = values.detach().amax(axis, keepdim=True)
    largest = torch.where(torch.isfinite(largest), largest, 0.0)
    total = (values - largest).exp().sum(axis)
    some = total != 0  # True for NaN
    found = torch.where(some, total, 1.0).log() + largest.squeeze(axis)
    return torch.where(some, found, -torch.inf)


def log_of_chain(single: Tensor, pairs: Tensor, which: tuple[int, ...]) -> Tensor:
    """Return the log of the sum over all paths, [*batch].

    Args:
        single: The factors of each variable, [steps, *batch, K], in log space and float64.
        pairs: The different factors of neighbours, [kind, *batch, K, K], earlier variable first;
            their batch axes may have size 1.
        which: The kind of each of the steps - 1 pairs of neighbours.
    """
    recorder = _get_current_dispatch_mode()
    recording = isinstance(recorder, Recorder) and peek_interpreter_stack() is None
    return cast(Tensor, _Total.apply(Paths(which), recorder if recording else None, single, pairs))


class _Total(torch.autograd.Function):
    """The sum of a chain, and its derivatives."""

    @staticmethod
    def forward(ctx: Any, paths: Paths, recorder: Any, single: Tensor, pairs: Tensor) -> Tensor:
        call = paths if recorder is None else (lambda *given: recorder.call(paths, *given))
        total, of_single, of_pairs = call(single, pairs)
        ctx.paths = paths
        ctx.save_for_backward(single, pairs, of_single, of_pairs)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,) = slopes
        single, pairs, of_single, of_pairs = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            needed = [x for x in (single, pairs) if x.requires_grad]
            with torch.enable_grad():
                total = log_of_paths(single, pairs, ctx.paths.which)
                found = iter(torch.autograd.grad(total, needed, slope, create_graph=True))
            second = [next(found) if x.requires_grad else None for x in (single, pairs)]
            return None, None, *second
        found_pairs = of_pairs * slope[..., None, None]
        batch = tuple(
            i for i in range(1, pairs.ndim - 2) if pairs.shape[i] == 1 != found_pairs.shape[i]
        )
        if batch:
            found_pairs = found_pairs.sum(batch, keepdim=True)
        return None, None, of_single * slope[..., None], found_pairs


def log_of_paths(single: Tensor, pairs: Tensor, which: tuple[int, ...]) -> Tensor:
    """Return the log of the sum in operations of torch, which have derivatives of every order."""
    forward = single[0]
    for t, kind in enumerate(which, 1):
        forward = log_sum_exp(forward[..., :, None] + pairs[kind], -2) + single[t]
    return log_sum_exp(forward, -1)


class Paths:
    """(single, pairs) -> log of the sum, probabilities of values, and of pairs by their kind.

    The latter are [kind, *batch, K, K], sums over the places of a kind.

    Args:
        which: The kind of each pair of neighbours.
    """

    pure = True

    def __init__(self, which: tuple[int, ...]) -> None:
        self.__name__, self.__module__ = "paths", __name__
        self.which = which

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Paths) and other.which == self.which

    def __hash__(self) -> int:
        return hash(self.which)

    def __call__(self, single: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if peek_interpreter_stack() is not None:
            return _Abreast.apply(self, single, pairs)  # type: ignore[return-value]
        with torch.inference_mode():
            found = self._in_probabilities(single, pairs)
            if found is None:
                found = self._in_logarithms(single, pairs)
            # a tensor made in inference mode is not taken by autograd; a copy is any other
        total, of_single, of_pairs = (x.clone() for x in found)
        return total, of_single, of_pairs

    def _in_probabilities(self, single: Tensor, pairs: Tensor) -> tuple[Tensor, ...] | None:
        """Return the results; None where a probability that counts may underflow."""
        steps, *batch, K = single.shape
        shared = pairs[0].numel() == K * K
        width = single[0].numel() // K
        top, top_pair = single.amax(-1, keepdim=True), pairs.amax((-1, -2), keepdim=True)
        E = (single - top).exp().reshape(steps, width, K)
        P = (pairs - top_pair).exp()
        P = P.reshape(-1, K, K) if shared else P.expand(-1, *batch, K, K).reshape(-1, width, K, K)
        walked = _walked(E, P, self.which, shared)
        if walked is None:
            return None
        forward, backward, logs = walked
        ahead = backward[1:]
        every = _all_differ(self.which)
        kinds = torch.as_tensor(self.which, device=single.device)
        after = torch.empty_like(ahead)  # P times backward of the next variable
        if every:
            after = ahead @ P.mT if shared else (P @ ahead[..., None])[..., 0]
        else:
            for kind, matrix in enumerate(P):
                here = kinds == kind if len(P) > 1 else slice(None)
                if shared:
                    after[here] = ahead[here] @ matrix.mT
                else:
                    after[here] = (matrix @ ahead[here][..., None])[..., 0]
        joint = forward[:-1] * after
        common = joint.sum(-1, keepdim=True)
        sums = forward[:-1].sum(-1, keepdim=True) * backward[1:].sum(-1, keepdim=True)
        if not bool((common >= LEAST * sums).all()):
            return None
        last = forward[-1] / forward[-1].sum(-1, keepdim=True)
        of_single = torch.cat([joint / common, last[None]]).reshape(single.shape)
        behind = forward[:-1] / common
        if every:
            matrices = P[:, None] if shared else P
            of_pairs = matrices * (behind[..., :, None] * ahead[..., None, :])
        else:
            of_pairs = torch.zeros((len(P), width, K, K), dtype=P.dtype, device=P.device)
            for kind, matrix in enumerate(P):
                here = kinds == kind if len(P) > 1 else slice(None)
                counts = torch.einsum("tnk,tnl->nkl", behind[here], ahead[here])
                of_pairs[kind] = matrix * counts
        shifts = top.sum(0)[..., 0]
        if every:
            shifts = shifts + top_pair[..., 0, 0].sum(0)
        else:
            for kind, count in _counts(self.which).items():
                shifts = shifts + count * top_pair[kind, ..., 0, 0]
        total = shifts + (logs + forward[-1].sum(-1).log()).reshape(batch)
        return total, of_single, of_pairs.reshape(-1, *batch, K, K)

    def _in_logarithms(self, single: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        forward = [single[0]]
        for t, kind in enumerate(self.which, 1):
            forward.append(torch.logsumexp(forward[-1][..., :, None] + pairs[kind], -2) + single[t])
        total = torch.logsumexp(forward[-1], -1)
        steps, *batch, K = single.shape
        of_single = torch.empty_like(single)
        of_pairs = single.new_zeros((len(pairs), *batch, K, K))
        backward = torch.zeros_like(single[0])
        for t in reversed(range(steps)):
            of_single[t] = (forward[t] + backward - total[..., None]).exp()
            if t:
                kind = self.which[t - 1]
                ahead = pairs[kind] + (single[t] + backward)[..., None, :]
                both = forward[t - 1][..., :, None] + ahead
                of_pairs[kind] += (both - total[..., None, None]).exp()
                backward = torch.logsumexp(ahead, -1)
        return total, of_single, of_pairs


def _all_differ(which: tuple[int, ...]) -> bool:
    """Return whether each pair of neighbours has factors of its own, in their order."""
    return len(which) > 1 and which == tuple(range(len(which)))


def _counts(which: tuple[int, ...]) -> dict[int, int]:
    found: dict[int, int] = {}
    for kind in which:
        found[kind] = found.get(kind, 0) + 1
    return found


def _walked(
    E: Tensor, P: Tensor, which: tuple[int, ...], shared: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the forward and the backward probabilities [steps, n, K] up to factors, and logs [n].

    Both contain the factor of their own variable. The logs are those of the forward factors.

    Args:
        E: Factors of the variables, [steps, n, K].
        P: Factors of pairs by kind, [kind, K, K] or [kind, n, K, K].
        which: The kind of each pair.
        shared: Whether the factors of pairs are the same for all n.
    """
    steps, width, _ = E.shape
    both = torch.stack([E, E.flip(0)], 1)
    back = P.mT
    matrices: dict[tuple[int, int], Tensor] = {}
    each: tuple[Tensor, ...] = ()
    if _all_differ(which):
        each = torch.stack([P, back.flip(0)], 1).unbind(0)
    a = both[0]
    kept, sums = [a], []
    rows = both.unbind(0)
    for t in range(1, steps):
        if each:
            both_ways = each[t - 1]
        else:
            kinds = which[t - 1], which[steps - 1 - t]
            if kinds not in matrices:
                matrices[kinds] = torch.stack([P[kinds[0]], back[kinds[1]]])
            both_ways = matrices[kinds]
        a = torch.bmm(a, both_ways) if shared else (a[..., None, :] @ both_ways)[..., 0, :]
        a = a * rows[t]
        if t % EVERY == 0:
            total = a.sum(-1, keepdim=True)
            a = a / total
            sums.append(total)
        kept.append(a)
    walked = torch.stack(kept)
    logs = E.new_zeros(width)
    if sums:
        every = torch.stack(sums)
        if not bool((every >= LEAST).all()):
            return None
        logs = every[:, 0, :, 0].log().sum(0)
    return walked[:, 0], walked[:, 1].flip(0), logs


class _Abreast(torch.autograd.Function):
    """The call of several chains under vmap: one more axis of the batch."""

    @staticmethod
    def forward(paths: Paths, single: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return paths(single, pairs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: the gradient of a chain is computed with it."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        paths, single, pairs = args
        k = info.batch_size
        _, at_single, at_pairs = in_dims
        if at_single is None:
            single = single.unsqueeze(1).expand(len(single), k, *single.shape[1:])
        else:
            single = single.movedim(at_single, 1)
        pairs = pairs.unsqueeze(1) if at_pairs is None else pairs.movedim(at_pairs, 1)
        recorder = _get_current_dispatch_mode()
        if isinstance(recorder, Recorder) and peek_interpreter_stack() is None:
            found = recorder.call(paths, single, pairs)
        else:
            found = paths(single, pairs)
        return tuple(found), (0, 1, 1)
