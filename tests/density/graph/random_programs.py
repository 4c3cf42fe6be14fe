"""Random functions of a vector, made of small operations, branches, writes and scans."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

F32, F64 = torch.float32, torch.float64
SHAPES: list[tuple[int, ...]] = [(), (2,), (3,), (2, 3)]
STEPS = (1, 2, 5)
Scan = Callable[..., Any]

UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.tanh,
    torch.sin,
    torch.cos,
    torch.sigmoid,
    torch.relu,
    torch.abs,
    torch.neg,
    torch.sign,
    torch.erf,
    torch.atan,
    torch.detach,
    torch.clone,
    torch.flatten,
    lambda x: (1 + x * x).log(),
    lambda x: torch.log1p(x * x),
    lambda x: (-x * x).exp(),
    lambda x: torch.expm1(-x * x),
    lambda x: (1 + x.square()).sqrt(),
    lambda x: (1 + x.square()).rsqrt(),
    lambda x: (2 + x.square()).reciprocal(),
    lambda x: torch.lgamma(1.5 + x * x),
    lambda x: x.tanh() ** 3,
    lambda x: (1.5 + x.sin()) ** -0.7,
    lambda x: 1.3 ** x.tanh(),
    lambda x: 2 - x,
    lambda x: torch.rsub(x, 1.0, alpha=3),
    lambda x: torch.ops.aten.rsub.Scalar(x, 1.0, 2),
    lambda x: torch.ops.aten.sub.Scalar(x, 0.5, 2),
    lambda x: torch.ops.aten.add.Scalar(x, 0.25, 3),
    lambda x: x.clamp(-0.4, 0.9),
    lambda x: torch.where(x > 0, x, 0.1 * x),
    lambda x: torch.where(x.isnan() | (x == 0.25), 1.0, x),
    lambda x: x.masked_fill(x < -0.2, 0.5),
    lambda x: torch.logical_and(x, x > 0).to(x.dtype),
    lambda x: torch.logical_or(x > 1, x.round()).to(x.dtype) * x,
    lambda x: torch.logical_not(x.trunc()) * x,
    lambda x: ((x > 0) + (x < 0.3)) * x,
    lambda x: ((x > 0) * (x < 0.7)) * 0.5 + x,
    lambda x: ((x > 0) & ~(x < 0.7) | (x < -1)).to(x.dtype),
    lambda x: (x > 0.1).sum() * 0.3 + x,
    lambda x: ((x * 3).long() % 4).to(x.dtype),
    lambda x: x.sum(),
    lambda x: x.reshape(-1).mean(),
    lambda x: x.reshape(-1).softmax(0),
    lambda x: x.reshape(-1).logsumexp(0),
    lambda x: x.reshape(-1).cumsum(0),
    lambda x: x.reshape(-1)[0],
    lambda x: x.reshape(-1)[-1:].expand(2),
    lambda x: x.reshape(-1).flip(0),
    lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: x.float().to(x.dtype),
    lambda x: x.reshape(-1).sort().values.tanh(),
    lambda x: x.reshape(-1).max(),
    lambda x: x.mT.reshape(-1) if x.ndim == 2 else x,
    lambda x: x.sum(0, keepdim=True).expand_as(x) if x.ndim else x,
    lambda x: x.norm() if x.numel() else x,
    lambda x: torch.zeros_like(x) if x.ndim else torch.ones_like(x),
    lambda x: x.new_full((), 0.7),
    lambda x: x.as_strided((), ()),
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.minimum,
    lambda x, y: torch.add(x, y, alpha=2),
    lambda x, y: torch.sub(x, y, alpha=-1),
    lambda x, y: x / (1.5 + y * y),
    lambda x, y: torch.where(x > y, x, y.sin()),
    lambda x, y: torch.where((x > y).logical_xor(y > 0), 0.3, y),
    lambda x, y: (x > y) * x + (x <= y) * 0.5,
    lambda x, y: (1.2 + x.sin()) ** y.tanh(),
    lambda x, y: torch.stack([x.sum(), y.sum()]),
    lambda x, y: torch.cat([x.reshape(-1), y.reshape(-1)])[:3],
    lambda x, y: x.reshape(-1)[:2].sum() * y,
    lambda x, y: torch.outer(x.reshape(-1)[:2], y.reshape(-1)[:2]).sum(1),
    lambda x, y: x @ y if x.shape == y.shape and x.ndim == 1 else x + 0 * y.sum(),
    lambda x, y: x @ y.mT if x.shape == y.shape and x.ndim == 2 else x - y.mean(),
    lambda x, y: (x.isfinite() & (y > 0)) * x.sum(),
]


def written(x: Tensor, y: Tensor, kind: int) -> Tensor:
    """Return what operations in place make of a copy of x, with y."""
    t = x.clone() * 1.0
    if kind == 0:
        t += y.sum()
    elif kind == 1:
        t.mul_(y.mean()).tanh_()
    elif kind == 2:
        t.gt_(y.sum())
    elif kind == 3:
        t.logical_and_(x > 0)
    elif kind == 4:
        t.reshape(-1)[0] = y.sum()
    elif kind == 5:
        t.logical_not_()
    elif kind == 6:
        t.clamp_(min=0.1).add_(x, alpha=2)
    else:
        t.view(-1)[-1:].copy_(y.sum()[None])
    return t


class Program:
    """A random function (z [4], scan) -> a number.

    Args:
        seed: of its choices, which are the same in each call.
        dtype: of the numbers.
        rare: whether it has branches and writes that a graph may refuse.
    """

    def __init__(self, seed: int, dtype: torch.dtype = F64, rare: bool = True) -> None:
        self.seed, self.dtype, self.rare = seed, dtype, rare
        make = torch.Generator().manual_seed(seed)
        self.data = [
            torch.randn(5, *shape, generator=make, dtype=F64).to(dtype) for shape in SHAPES
        ]
        self.whole = torch.randint(0, 5, (5,), generator=make)

    def __call__(self, z: Tensor, scan: Scan) -> Tensor:
        rng = random.Random(self.seed)
        z = z.to(self.dtype)
        buffer = torch.zeros(2, dtype=self.dtype)
        pool = [*z, z[:2], z[1:], z.repeat(2)[:6].reshape(2, 3), self.data[1][0], self.data[3][1]]
        pool += [torch.tensor(0.3, dtype=self.dtype), buffer]
        if rng.random() < 0.3:
            buffer[0] = z[0]
        pool = self._lines(rng, pool, scan, rng.randint(4, 10), 0)
        used = rng.sample(pool, 4) + pool[-4:]
        return sum((x.to(F64).sin().sum() for x in used), torch.zeros((), dtype=F64))

    def _lines(
        self, rng: random.Random, pool: list[Tensor], scan: Scan, count: int, depth: int
    ) -> list[Tensor]:
        pool = list(pool)
        for _ in range(count):
            pool += self._line(rng, pool, scan, depth)
        return pool

    def _line(self, rng: random.Random, pool: list[Tensor], scan: Scan, depth: int) -> list[Tensor]:
        x, y = rng.choice(pool[-8:]), rng.choice(pool)
        kind = rng.random()
        if kind < 0.4:
            return [rng.choice(UNARY)(x)]
        if kind < (0.6 if depth < 2 else 0.95):
            fits = x.shape == y.shape or not x.ndim or not y.ndim
            return [rng.choice(BINARY)(x, y if fits else y.sum())]
        if kind < 0.85 and depth < 2:
            return self._scan(rng, pool, scan, depth)
        return self._special(rng, x, y)

    def _special(self, rng: random.Random, x: Tensor, y: Tensor) -> list[Tensor]:
        if not self.rare:
            return [torch.tensor(rng.choice([0.5, -1.0]), dtype=self.dtype) * x]
        kind = rng.randint(0, 5)
        if kind <= 2:
            return [written(x, y, rng.randint(0, 7))]
        if kind == 3:
            with torch.no_grad():
                return [x.cos()]
        if kind == 4 and rng.random() < 0.2:
            return [x.exp().tanh() if bool(y.sum() > 0) else x]
        constant = self.data[1][0, 0] if kind == 4 else x.detach().new_tensor(0.2)
        return [x.cos() if bool(constant > 0) else x.sin()]

    def _scan(self, rng: random.Random, pool: list[Tensor], scan: Scan, depth: int) -> list[Tensor]:
        init = [rng.choice(pool) for _ in range(rng.randint(1, 3))]
        steps = rng.choice(STEPS)
        xs = [rng.choice(self.data)[:steps] for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.5:
            xs.append(torch.stack([rng.choice(pool).sum() * i for i in range(steps)]))
        counted = rng.random() < 0.3
        if counted:
            xs.append(self.whole[:steps])
        seed, count, n_y = rng.random(), rng.randint(1, 5), rng.randint(0, 3)
        captured = rng.sample(pool, 2)
        swaps = rng.random() < 0.3

        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            own = random.Random(seed)
            state, number = carry if counted else (carry, None)
            real = list(x[:-1] if counted else x)
            known = [*captured, *real, *state]
            known += [] if number is None else [state[0] * number]
            known = self._lines(own, known, scan, count, depth + 1)
            after = []
            for part in state:
                new = own.choice(known[-5:])
                small = new.to(part.dtype).tanh()
                fits = new.shape == part.shape
                after.append(small if fits else part * 0.5 + small.sum())
            if swaps and len({p.shape for p in after}) == 1:
                after = after[1:] + after[:1]
            ys = [own.choice(known) for _ in range(n_y)]
            if number is None:
                return after, ys or None
            number = number + x[-1]
            return (after, number), [*ys, number, number > 3]

        first: Any = (init, torch.tensor(1)) if counted else init
        last, ys = scan(step, first, tuple(xs))
        last = [*last[0], last[1]] if counted else last
        found = [x.to(self.dtype) for x in [*last, *(ys or [])]]
        found = [x.reshape(-1)[:3] if x.ndim > 2 else x for x in found]
        found = [x.sum(0) if x.ndim == 2 and x.shape != (2, 3) else x for x in found]
        found = [x[:3] if x.ndim == 1 else x for x in found]
        kept = [x for x in found if rng.random() < 0.6]
        if kept and rng.random() < 0.2 and self.rare:
            kept[0].mul_(2.0)
        return kept
