"""Sum over the paths of a chain of discrete variables, with its gradient.

The gradient of the log of the sum is the probability of each value and of each pair of neighbours
(Rabiner 1989, equations 27 and 37). Both directions are walked at once. A long chain of few states
is cut into blocks, and a step is taken in all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .graph.recorder import Recorder

__all__ = ["LEAST_STEPS", "log_of_chain", "log_of_paths", "log_sum_exp"]

LEAST_STEPS = 8  # of a chain that is summed as one; a shorter one is summed as other factors are
EVERY = 4  # steps after which probabilities are divided by their sum
#: The least share of a sum that two directions may have in common, and that a sum may keep in EVERY
#: steps.
LEAST = 1e-100
#: Where no factor of a pair is smaller than this share of the largest, a path that underflows, at
#: 1e-308 of the sum, is negligible for ever: after one more step any value has at least this share
#: of the sum from the paths that are kept.
MIXES = 1e-25
#: Otherwise a path that underflows may be the one that survives. A second sum, in which nothing is
#: smaller than FLOOR, is at least as large as the true one, and the first is at most as large; they
#: are right if they agree.
FLOOR, AGREE = 1e-150, 1e-9
#: A chain with at least so many pairs of neighbours, or the second number where they are of several
#: kinds, is cut into blocks if a variable has at most BLOCKED_VALUES values, and all variables of a
#: step together at most BLOCKED_WIDTH: products of larger factors take longer than the calls that
#: are saved.
BLOCKED_STEPS, BLOCKED_STEPS_OF_KINDS = 128, 400
BLOCKED_VALUES, BLOCKED_WIDTH = 16, 32


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
        self.places = _places(which)
        self.blocks = _Blocks(which)

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
        mixes = bool(P.amin() >= MIXES)  # False for NaN
        small = K <= BLOCKED_VALUES and width * K <= BLOCKED_WIDTH
        scales = None
        if mixes and small and self.blocks.worthwhile:
            walked = self.blocks.walked(E, P, shared)
        elif mixes:
            walked = _walked(E, P, self.which, shared)
        else:
            bounded = _walked_with_bound(E, P, self.which, shared)
            walked, scales = (None, None) if bounded is None else bounded
        if walked is None:
            return None
        forward, backward, logs = walked
        ahead = backward[1:]
        every = _all_differ(self.which)
        after = torch.empty_like(ahead)  # P times backward of the next variable
        if every:
            after = ahead @ P.mT if shared else (P @ ahead[..., None])[..., 0]
        else:
            for kind, here in self.places.items():
                if shared:
                    after[here] = ahead[here] @ P[kind].mT
                else:
                    after[here] = (P[kind] @ ahead[here][..., None])[..., 0]
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
            for kind, here in self.places.items():
                counts = torch.einsum("tnk,tnl->nkl", behind[here], ahead[here])
                of_pairs[kind] = P[kind] * counts
        shifts = top.sum(0)[..., 0]
        if every:
            shifts = shifts + top_pair[..., 0, 0].sum(0)
        else:
            for kind, here in self.places.items():
                count = len(here) if isinstance(here, list) else here.stop - here.start
                shifts = shifts + count * top_pair[kind, ..., 0, 0]
        ends = logs + forward[-1].sum(-1).log()
        # at each step, the paths of both directions are those of the whole sum
        if scales is not None and not _agree(common[..., 0].log() + scales, ends):
            return None
        total = shifts + ends.reshape(batch)
        return total, of_single, of_pairs.reshape(-1, *batch, K, K)

    def _in_logarithms(self, single: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        forward = [single[0]]
        for t, kind in enumerate(self.which, 1):
            forward.append(torch.logsumexp(forward[-1][..., :, None] + pairs[kind], -2) + single[t])
        total = torch.logsumexp(forward[-1], -1)
        some = torch.where(total == -torch.inf, 0.0, total)  # without a path, slopes are 0
        steps, *batch, K = single.shape
        of_single = torch.empty_like(single)
        of_pairs = single.new_zeros((len(pairs), *batch, K, K))
        backward = torch.zeros_like(single[0])
        for t in reversed(range(steps)):
            of_single[t] = (forward[t] + backward - some[..., None]).exp()
            if t:
                kind = self.which[t - 1]
                ahead = pairs[kind] + (single[t] + backward)[..., None, :]
                both = forward[t - 1][..., :, None] + ahead
                of_pairs[kind] += (both - some[..., None, None]).exp()
                backward = torch.logsumexp(ahead, -1)
        return total, of_single, of_pairs


def _all_differ(which: tuple[int, ...]) -> bool:
    """Return whether each pair of neighbours has factors of its own, in their order."""
    return len(which) > 1 and which == tuple(range(len(which)))


def _places(which: tuple[int, ...]) -> dict[int, slice | list[int]]:
    """Return the places of each kind; a slice where one follows the other."""
    places: dict[int, list[int]] = {}
    for place, kind in enumerate(which):
        places.setdefault(kind, []).append(place)
    found: dict[int, slice | list[int]] = {}
    for kind, here in places.items():
        start, end = here[0], here[-1] + 1
        found[kind] = slice(start, end) if end - start == len(here) else here
    return found


def _walk(
    a: Tensor, rows: Sequence[Tensor], matrices: Sequence[Tensor], floor: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the vectors after each step, and the sums by which some of them are divided.

    Args:
        a: The first vectors, [m, n, K] or [*batch, K].
        rows: The factors of the variable of each step, as ``a``.
        matrices: Those of its pair, [m, K, K] where they are the same for all n, or [*batch, K, K].
        floor: The least value of a vector, which broadcasts to ``a``.
    """
    kept, sums = [], []
    shared = bool(matrices) and matrices[0].ndim == a.ndim
    for t, (row, matrix) in enumerate(zip(rows, matrices, strict=True), 1):
        a = torch.bmm(a, matrix) if shared else (a[..., None, :] @ matrix)[..., 0, :]
        a = a * row
        if t % EVERY == 0:
            total = a.sum(-1, keepdim=True)
            a = a / total
            sums.append(total)
        if floor is not None:
            a = torch.maximum(a, floor)
        kept.append(a)
    return kept, sums


def _both_ways(P: Tensor, which: tuple[int, ...], *others: Tensor) -> list[Tensor]:
    """Return the factors of pairs of each step forwards and backwards, and those of ``others``."""
    back = P.mT
    if _all_differ(which):
        return list(torch.stack([P, back.flip(0), *others], 1).unbind(0))
    kinds = list(zip(which, reversed(which), strict=True))
    both = {
        (i, j): torch.stack([P[i], back[j], *(other[i] for other in others)]) for i, j in set(kinds)
    }
    return [both[pair] for pair in kinds]


def _walked(
    E: Tensor, P: Tensor, which: tuple[int, ...], shared: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the forward and the backward probabilities [steps, n, K] up to factors, and logs [n].

    Both contain the factor of their own variable. The logs are those of the forward factors. The
    result is None where a sum is too small.

    Args:
        E: Factors of the variables, [steps, n, K].
        P: Factors of pairs by kind, [kind, K, K] or [kind, n, K, K].
        which: The kind of each pair.
        shared: Whether the factors of pairs are the same for all n.
    """
    rows = torch.stack([E, E.flip(0)], 1).unbind(0)
    kept, sums = _walk(rows[0], rows[1:], _both_ways(P, which))
    if not _large(sums):
        return None
    walked = torch.stack([rows[0], *kept])
    return walked[:, 0], walked[:, 1].flip(0), _logs([total[0] for total in sums], E[0])


def _walked_with_bound(
    E: Tensor, P: Tensor, which: tuple[int, ...], shared: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor] | None:
    """Return what ``_walked`` does, and the logs of the factors of both directions at each pair.

    The result is None where a path may be lost: where the sum differs from one in which no factor
    and no probability is smaller than FLOOR. The logs are [steps - 1, n].
    """
    rows = torch.stack([E, E.flip(0), E.clamp(min=FLOOR)], 1).unbind(0)
    floor = E.new_tensor([0.0, 0.0, FLOOR])[:, None, None]
    kept, sums = _walk(rows[0], rows[1:], _both_ways(P, which, P.clamp(min=FLOOR)), floor)
    if not _large(sums):
        return None
    walked = torch.stack([rows[0], *kept])
    steps, n = E.shape[:2]
    logs = E.new_zeros((1, 3, n))
    if sums:
        logs = torch.cat([logs, torch.stack(sums)[..., 0].log().cumsum(0)])
    total, _, bound = logs[-1] + walked[-1].sum(-1).log()
    if not _agree(total, bound):
        return None
    by_step = logs[torch.arange(steps) // EVERY]
    scales = by_step[:-1, 0] + by_step[:-1, 1].flip(0)
    return (walked[:, 0], walked[:, 1].flip(0), logs[-1, 0]), scales


def _agree(a: Tensor, b: Tensor) -> bool:
    """Return whether two logs agree; NaN and infinite ones do not."""
    return bool(((a - b).abs() <= AGREE).all())


def _large(sums: list[Tensor]) -> bool:
    """Return whether no sum is smaller than LEAST."""
    return not sums or bool((torch.stack(sums) >= LEAST).all())


def _logs(sums: list[Tensor], a: Tensor) -> Tensor:
    """Return the sum of the logs of the sums [n, 1], as those of vectors like ``a`` [n, K]."""
    return torch.stack(sums)[..., 0].log().sum(0) if sums else a.new_zeros(len(a))


class _Blocks:
    """A chain in blocks of the same number of steps, behind a head of a few steps.

    The products of the factors of each block give the vectors between blocks, and those give the
    vectors inside, in all blocks at once. It is for pairs that mix, as MIXES says.

    Args:
        which: The kind of each pair.

    Attributes:
        uniform: Whether all pairs behind a short head are of one kind, and share their factors.
        head: The number of steps before the first block.
        size: The number of steps of a block: about half as many as there are blocks, or up to twice
            that, so that few steps are left for the head.
        number: The number of blocks.
    """

    def __init__(self, which: tuple[int, ...]) -> None:
        steps = len(which)
        # the first pairs are often of another kind, as that of a known first state
        start = steps
        while start and which[start - 1] == which[-1]:
            start -= 1
        self.which = which
        self.uniform = start <= steps // 8
        least = start if self.uniform else 0
        shortest = max(1, round((steps / 2) ** 0.5))
        sizes = range(shortest, 2 * shortest + 1)
        self.size = min(sizes, key=lambda size: (steps - least) % size)
        self.head = least + (steps - least) % self.size
        self.number = (steps - self.head) // self.size

    @property
    def worthwhile(self) -> bool:
        """Whether blocks save time."""
        return len(self.which) >= (BLOCKED_STEPS if self.uniform else BLOCKED_STEPS_OF_KINDS)

    def walked(self, E: Tensor, P: Tensor, shared: bool) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return what ``_walked`` does; the arguments are the same."""
        head, number, size = self.head, self.number, self.size
        _, n, K = E.shape
        pairs_of_head = [P[kind][None] for kind in self.which[:head]]
        head_ahead, sums = _walk(E[:1], E[1 : head + 1, None].unbind(0), pairs_of_head)
        head_ahead = [E[:1], *head_ahead]
        rows = E[head + 1 :].reshape(number, size, n, K).transpose(0, 1)
        if self.uniform:
            matrix = P[self.which[-1]]
            matrices = [matrix] * size
            ways = torch.stack([matrix, matrix.mT])
            both_ways = [ways if shared else ways[:, None]] * (size - 1)
        else:
            own = P[list(self.which[head:])].reshape(number, size, -1, K, K).transpose(0, 1)
            matrices = list(own.unbind(0))
            both_ways = list(torch.stack([own[1:], own[1:].mT.flip(0)], 1).unbind(0))
        products, scales = _products(rows.unbind(0), matrices)
        before, after = _between(head_ahead[-1][0], products, scales)
        shift = before.amax(-1)[-1]  # of the vectors before the last block
        before, after = ((x - x.amax(-1, keepdim=True)).exp() for x in (before, after))
        first = (before[..., None, :] @ matrices[0])[..., 0, :] * rows[0]
        a = torch.stack([first, after * rows[-1]])
        each = torch.stack([rows[1:], rows[:-1].flip(0)], 1)
        if self.uniform and shared:
            a, each = a.flatten(1, 2), each.flatten(2, 3)
        inside, sums_inside = _walk(a, each.unbind(0), both_ways)
        walked = torch.stack([a, *inside]).reshape(size, 2, number, n, K)
        forward = walked[:, 0].transpose(0, 1).reshape(-1, n, K)
        backward = walked[:, 1].flip(0).transpose(0, 1).reshape(-1, n, K)
        back = [P[kind].mT[None] for kind in reversed(self.which[: head + 1])]
        head_behind, sums_back = _walk(backward[:1], E[: head + 1, None].flip(0).unbind(0), back)
        if not (_large(sums) and _large(sums_inside) and _large(sums_back)):
            return None
        of_last_block = [total.reshape(2, number, n, 1)[0, -1] for total in sums_inside]
        logs = shift + _logs([*(total[0] for total in sums), *of_last_block], E[0])
        forward = torch.cat([*head_ahead, forward])
        return forward, torch.cat([*reversed(head_behind), backward]), logs


def _products(rows: Sequence[Tensor], matrices: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the product of each block, [number, n, K, K], and the logs of the scales of its rows.

    Args:
        rows: The factors of the variables of all blocks at each step, [number, n, K].
        matrices: Those of the pairs, which broadcast to [number, n, K, K].
    """
    product = matrices[0] * rows[0][..., None, :]
    scales = torch.zeros_like(rows[0])
    for t, (row, matrix) in enumerate(zip(rows[1:], matrices[1:], strict=True), 1):
        product = (product @ matrix) * row[..., None, :]
        if t % EVERY == 0 or t == len(rows) - 1:
            total = product.sum(-1, keepdim=True)
            product = product / torch.where(total > 0, total, 1.0)
            scales = scales + total[..., 0].log()
    return product, scales


def _between(a: Tensor, products: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logs of the vectors before each block, and of those after it up to factors.

    The former contain the factor of their own variable, as ``a`` does, and the latter do not.

    Args:
        a: The vector before the first block, [n, K].
        products: As ``_products`` returns them.
        scales: The same.
    """
    last = torch.zeros_like(a)
    logs = torch.stack([a.log(), last])
    matrices = torch.stack([products[:-1], products[1:].mT.flip(0)], 1)
    added = torch.stack([scales[:-1], torch.cat([last[None], scales[2:].flip(0)])], 1)
    found = [logs]
    for matrix, scale in zip(matrices.unbind(0), added.unbind(0), strict=True):
        logs = logs + scale
        largest = logs.amax(-1, keepdim=True)
        logs = ((logs - largest).exp()[..., None, :] @ matrix)[..., 0, :].log() + largest
        found.append(logs)
    ahead, behind = torch.stack(found, 1)
    # the scale of a block is added when the next vector is computed
    behind = torch.cat([behind[:1], behind[1:] + scales[1:].flip(0)])
    return ahead, behind.flip(0)


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
