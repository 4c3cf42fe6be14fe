"""Processes that fit one model together, each to rows of its own.

Sums over all rows are sums over the processes (``torch.distributed.all_reduce``). Every process
takes the same steps from the same numbers, so that nothing else is exchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import DataError, LostRank, NotApplicable, PpgpError, SettingError, counted
from .fingerprint import fingerprint
from .process_group import join, loss
from .whole_numbers import check_whole_number

__all__ = ["ALONE", "Team"]

LIMIT = 300.0  # seconds that a collective waits for the slowest rank
LONGEST = 60  # characters of a thing that a message shows
COMPARED = 1_000  # rows of a table that is the same on all ranks


class Team:
    """The processes that fit one model together, and the place of this one among them.

    ``Team.of_environment()`` joins the processes that ``torchrun`` has started, and is a team of
    one elsewhere, so that one script serves alone and in a team. A table of rows [n, d] that the
    team has shared takes part in the fits: ``fit(model, team.share(data), how)``, called on every
    rank with the same model, method and seed. Value and gradient are averages over the ranks (Li
    et al. 2020), and the sums over rows that a bound depends on are summed over them.

    Attributes:
        rank: The number of this process, 0 .. size - 1.
        size: The number of processes.
        alone: Whether this process is the only one.
        bytes_reduced: How many bytes this rank has put into sums over the ranks so far.

    Predictions of a model that needs its training rows (SGPR, SKI) are computed together as well:
    call ``predict`` on every rank, and ``save`` too, which writes one file with the rows of all.
    ``posterior.data`` and ``log_likelihood()`` are those of this rank's rows, and ``batch_size``
    counts the rows of each rank. Rows of Vecchia depend on rows of other ranks, so that each rank
    then has the rows of all, and the ranks divide the work.

    Raises:
        DataError: From ``share`` and ``shard`` in a team of several processes, for what is no
            Dataset or Stream.
        SettingError: If the processes do not arrive, or the ranks have different tables, models,
            methods or seeds.
        LostRank: From every sum, if a rank has ended or does not answer in 300 seconds (the
            ``timeout`` of ``of_environment``).

    Examples:
        One script for one process, and for several that ``torchrun`` starts. In one process the
        part of the rows X [n, d] is the whole table:

        >>> import ppgp
        >>> team = ppgp.Team.of_environment()
        >>> team
        <Team of one process>
        >>> part = team.share(ppgp.Dataset([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]))
        >>> part.n, part.total
        (3, 3)
        >>> team.sum(part.y.sum())
        tensor(9., dtype=torch.float64)
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        do = "use Team.of_environment()"
        check_whole_number("size of a Team", size, 1, do)
        check_whole_number("rank in a Team", rank, 0, do)
        if rank >= size:
            got = f"rank {rank} of {size}"
            raise SettingError("a rank from 0 to size - 1", got, do)
        self.rank, self.size = rank, size
        self.alone = size == 1
        self.bytes_reduced = 0

    @classmethod
    def of_environment(cls, timeout: float = LIMIT) -> Team:
        """Join the processes of ``torchrun``; a team of one without it.

        Tensors of the CPU are summed by gloo, those of GPUs by nccl. Inside a process group that
        the program has already joined, the team is that group.

        Args:
            timeout: The seconds that a rank waits in a sum for the others. A rank that takes
                longer counts as lost.

        Raises:
            SettingError: If the variables of ``torchrun`` are incomplete, if its port is in use,
                or if not all processes arrive in time.
        """
        import torch.distributed as dist

        if not timeout > 0:
            raise SettingError("a timeout of some seconds", repr(timeout), "for example 300")
        if not dist.is_available() or not (dist.is_initialized() or "WORLD_SIZE" in os.environ):
            return cls()
        if not dist.is_initialized():
            join(timeout)
        size = dist.get_world_size()
        return cls(dist.get_rank(), size)

    def __repr__(self) -> str:
        if self.size == 1:
            return "<Team of one process>"
        return f"<Team of {self.size} processes, rank {self.rank}>"

    def __deepcopy__(self, memo: Any) -> Team:
        return self

    # -- rows --------------------------------------------------------------------------------------

    def share(self, data: Any) -> Any:
        """Return this rank's part of a Dataset or a Stream that every rank has.

        The ranks have rows of a Dataset that follow one another, and their numbers of rows differ
        by one at most. Of a Stream they have row groups (``Stream.shard``), over which one pass
        is made.

        Raises:
            DataError: If it is neither, if it is shared already, if there are fewer rows than
                ranks, or if a value of a stream cannot be used.
            SettingError: If the ranks have different tables or streams.
        """
        if self.alone:
            return data
        with self.all_or_none():
            _check_shareable(data)
        if hasattr(data, "X"):  # streams compare themselves
            some = torch.linspace(0, data.n - 1, min(data.n, COMPARED)).long()
            numbers = [column[some.to(column.device)] for column in (data.X, data.y)]
            self.check_alike(
                {"number of rows": data.n, "table": (data.feature_names, *numbers)},
                "read the whole table on every rank, or call shard for rows of its own",
            )
        with self.all_or_none():
            if data.n < self.size:
                raise DataError(
                    f"at least {self.size} rows, one for each rank",
                    counted(data.n, "row"),
                    "start fewer processes",
                )
        return data.share_of(self)

    def shard(self, data: Any) -> Any:
        """Return a Dataset or a Stream of this rank's own rows as a part of the team's.

        Every rank passes other rows or files. Labels of all ranks become one list of classes.

        Raises:
            DataError: If it is neither, if it is shared already, or if the ranks have other
                columns or other kinds of targets.
        """
        if self.alone:
            return data
        with self.all_or_none():
            _check_shareable(data)
        return data.in_team(self)

    # -- sums over the ranks -----------------------------------------------------------------------

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks, the same bits on each of them."""
        if self.alone:
            return value
        self.bytes_reduced += value.numel() * value.element_size()
        return self._reduced(value)

    def sums(self, *values: Tensor) -> list[Tensor]:
        """Return the sums of several tensors of one dtype over the ranks, in one exchange."""
        if self.alone:
            return list(values)
        return _as(values, self.sum(torch.cat([value.reshape(-1) for value in values])))

    def means(self, *values: Tensor) -> list[Tensor]:
        """Return the means of several tensors of one dtype over the ranks, in one exchange."""
        if self.alone:
            return list(values)
        return [total / self.size for total in self.sums(*values)]

    def mean(self, value: float) -> float:
        """Return the mean of a number over the ranks."""
        if self.alone:
            return value
        return float(self.means(torch.tensor(value, dtype=torch.float64))[0])

    def differentiable_sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks, through which derivatives of any order go.

        The derivative of a sum is itself a sum over the ranks.
        """
        return value if self.alone else _Summed.apply(value, self)

    def differentiable_sums(self, *values: Tensor) -> list[Tensor]:
        """Return ``differentiable_sum`` of several tensors of one dtype, in one exchange."""
        if self.alone:
            return list(values)
        flat = torch.cat([value.reshape(-1) for value in values])
        return _as(values, self.differentiable_sum(flat))

    def symmetric_sum(self, matrix: Tensor, *others: Tensor) -> list[Tensor]:
        """Return the sums of a symmetric matrix [m, m] and of others, in one exchange.

        Only the lower triangle of the matrix is sent.
        """
        if self.alone:
            return [matrix, *others]
        m = len(matrix)
        i, j = torch.tril_indices(m, m, device=matrix.device)
        lower, *rest = self.sums(matrix[i, j], *others)
        whole = torch.empty_like(matrix)
        whole[i, j] = lower
        whole[j, i] = lower
        return [whole, *rest]

    def averaged(self, graph: Any) -> Any:
        """Return a function of value and gradient as the mean of both over the ranks."""
        if self.alone:
            return graph

        def over_ranks(*args: Any) -> tuple[Tensor, Tensor]:
            value, gradient = graph(*args)
            value, gradient = self.means(value, gradient)
            return value, gradient

        return over_ranks

    # -- what the ranks agree on -------------------------------------------------------------------

    def gathered(self, thing: Any) -> list[Any]:
        """Return the objects that all ranks pass, in the order of the ranks.

        They are numbers, texts, and lists or dicts of them, sent as JSON.
        """
        if self.alone:
            return [thing]
        content = torch.frombuffer(bytearray(json.dumps(thing).encode()), dtype=torch.uint8)
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(content)
        sizes = self._reduced(sizes)
        padded = torch.zeros(self.size, int(sizes.max()), dtype=torch.uint8)
        padded[self.rank, : len(content)] = content
        rows = self._reduced(padded)
        texts = (bytes(row[: int(k)].tolist()) for row, k in zip(rows, sizes, strict=True))
        return [json.loads(text) for text in texts]

    def of_rank_zero(self, value: Tensor) -> Tensor:
        """Return the tensor of rank 0 on every rank."""
        if self.alone:
            return value
        return self._reduced(value if self.rank == 0 else torch.zeros_like(value))

    def tensors_of_rank_zero(self, named: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
        """Return the tensors of rank 0 by name on every rank; None if it has none."""
        if self.alone:
            return None if named is None else dict(named)
        own = [] if named is None else list(named.items())
        about = [[name, str(value.dtype), list(value.shape)] for name, value in own]
        said = self.gathered(None if named is None else about)[0]
        if said is None:
            return None
        found = {}
        for name, dtype, shape in said:
            kind = getattr(torch, dtype.removeprefix("torch."))
            value = torch.zeros(shape, dtype=kind) if named is None else named[name]
            content = value.contiguous().reshape(-1).view(torch.uint8)
            bits = self.of_rank_zero(content)
            found[name] = bits.view(kind).reshape(shape)
        return found

    def rows_of_all(self, value: Tensor) -> Tensor:
        """Return the rows [n, ...] of all ranks, one after the other."""
        if self.alone:
            return value
        counts = self.gathered(len(value))
        first = sum(counts[: self.rank])
        kind = value.dtype if value.dtype.is_floating_point else torch.int64
        out = value.new_zeros((sum(counts), *value.shape[1:]), dtype=kind)
        out[first : first + len(value)] = value
        return self._reduced(out).to(value.dtype)

    def check_alike(self, parts: Mapping[str, Any], do: str = "") -> None:
        """Raise SettingError if any of these things differs between the ranks.

        Args:
            parts: The things, by the names that they have in messages.
            do: What the user can do about a difference; "": pass the same.
        """
        if self.alone:
            return
        own = {name: [fingerprint(part), _in_words(part)] for name, part in parts.items()}
        for_each = self.gathered(own)
        with self.all_or_none():
            for name in parts:
                (first, here), *others = [each[name] for each in for_each]
                rank = next((r for r, (other, _) in enumerate(others, 1) if other != first), 0)
                if not rank:
                    continue
                got, there = f"another on rank {rank} than on rank 0", others[rank - 1][1]
                differ = [name for name in here if name in there and here[name] != there[name]]
                if differ:
                    got = f"{there[differ[0]]} on rank {rank}, and {here[differ[0]]} on rank 0"
                wanted = f"the same {name} on all {self.size} ranks"
                raise SettingError(wanted, got, do or f"pass the same {name} on every rank")

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Run a block on every rank; where it fails on one rank, it fails on all.

        Rank 0 raises the error, and the other ranks exit with status 1 without a word, so that it
        is read once. The block has no sums over the ranks after a step that may fail on one.
        """
        if self.alone:
            yield
            return
        try:
            yield
        except LostRank:
            raise
        except PpgpError as error:
            self._fail([type(error).__name__, error.expected, error.got, error.do], error)
        else:
            self._fail(None, None)

    def _fail(self, mine: Sequence[str] | None, error: PpgpError | None) -> None:
        """Exchange errors, and raise the first one if there is any."""
        said = self.gathered(mine)
        failed = [rank for rank, words in enumerate(said) if words]
        if failed:
            self._end(error, failed[0], said[failed[0]])

    def _end(self, error: PpgpError | None, of_rank: int, words: Sequence[str]) -> NoReturn:
        """Raise an error that all ranks know of, on rank 0; exit on the others."""
        if self.rank:
            raise SystemExit(1)
        if error is not None and of_rank == 0:
            raise error
        name, expected, got, do = words
        kinds = {kind.__name__: kind for kind in (DataError, SettingError, NotApplicable)}
        raise kinds.get(name, PpgpError)(expected, f"{got} (on rank {of_rank})", do) from None

    # -- the exchange itself -----------------------------------------------------------------------

    def _reduced(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks.

        Raises:
            LostRank: If a rank has ended, or does not answer in time.
        """
        import torch.distributed as dist

        total = value.detach().clone(memory_format=torch.contiguous_format)
        try:
            dist.all_reduce(total)
        except RuntimeError as error:
            raise loss(self.rank, self.size) from error
        return total


def _as(values: Sequence[Tensor], flat: Tensor) -> list[Tensor]:
    """Return the numbers of one vector as tensors of the shapes of ``values``."""
    parts = flat.split([value.numel() for value in values])
    return [part.reshape(value.shape) for part, value in zip(parts, values, strict=True)]


def _in_words(part: Any) -> dict[str, str]:
    """Return a number, a text or the fields of a record, as far as they have a short text."""
    said: dict[str, str] = {}
    if is_dataclass(part):
        said = {"": type(part).__name__}
        said |= {each.name: f"{each.name}={getattr(part, each.name)!r}" for each in fields(part)}
    elif part is None or isinstance(part, int | float | str):
        said = {"": repr(part)}
    return {name: words for name, words in said.items() if len(words) <= LONGEST}


def _check_shareable(data: Any) -> None:
    """Raise DataError for what is neither a Dataset nor a Stream of one process."""
    if not hasattr(data, "in_team"):
        raise DataError(
            "a Dataset or a Stream",
            type(data).__name__,
            "use ppgp.Dataset(X, y), or ppgp.Dataset.from_frame(table, target)",
        )
    if not getattr(data, "team", ALONE).alone:
        raise DataError(
            "a Dataset that is not shared yet", "this rank's part of one", "call share once"
        )


class _Summed(torch.autograd.Function):
    """The sum over the ranks of a team, which is its own transpose."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, team: Team) -> Tensor:
        ctx.team = team
        return team.sum(value)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return _Summed.apply(grad_outputs[0], ctx.team), None


#: The team of a process by itself.
ALONE = Team()
