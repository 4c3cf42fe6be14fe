"""Ten programs with their data, in float32 or float64, for the contract of dtypes.

Each program takes its dtype from its arguments. ``tests/tools/dtypes.py`` prints what each
method makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all

from ppgp import inference
from ppgp.inference import Inference

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Case:
    """A program with its data.

    Attributes:
        make: the program for a dtype.
        arguments: those of the fit, floating-point numbers in float64.
        new: those of ``predict``, in float64; None: predictions are not asked for.
    """

    make: Callable[[torch.dtype], Callable[..., Any]]
    arguments: dict[str, Any]
    new: dict[str, Any] | None

    def fit_arguments(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return the arguments of the fit in a dtype."""
        return in_dtype(self.arguments, dtype)

    def new_arguments(self, dtype: torch.dtype) -> dict[str, Any] | None:
        """Return the arguments of ``predict`` in a dtype."""
        return None if self.new is None else in_dtype(self.new, dtype)


def in_dtype(arguments: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Return arguments whose floating-point tensors have a dtype."""
    return {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in arguments.items()
    }


def normal(seed: int, *shape: int) -> Tensor:
    """Return standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def matrix_product(X: Tensor, y: Tensor | None = None) -> None:
    one = X.new_ones(())
    weight = pyro.sample("weight", dist.Normal(X.new_zeros(X.shape[1]), one).to_event(1))
    noise = pyro.sample("noise", dist.HalfNormal(one))
    with pyro.plate("rows", len(X)):
        pyro.sample("y", dist.Normal(X @ weight, noise), obs=y)


class Linear(PyroModule):
    """Linear regression by ``torch.nn.Linear`` with priors on its weights."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        kind: Any = PyroModule[nn.Linear]
        linear = kind(2, 1, dtype=dtype)
        linear.weight = PyroSample(dist.Normal(torch.zeros(1, 2, dtype=dtype), 1.0).to_event(2))
        linear.bias = PyroSample(dist.Normal(torch.zeros(1, dtype=dtype), 2.0).to_event(1))
        self.linear = linear

    def forward(self, X: Tensor, y: Tensor | None = None) -> None:
        mean = self.linear(X)[..., 0]
        with pyro.plate("rows", len(X)):
            pyro.sample("y", dist.Normal(mean, X.new_tensor(0.5)), obs=y)


def varying_intercepts(x: Tensor, group: Tensor, y: Tensor | None = None) -> None:
    one = x.new_ones(())
    mean = pyro.sample("mean", dist.Normal(0 * one, 2 * one))
    spread = pyro.sample("spread", dist.HalfNormal(one))
    slope = pyro.sample("slope", dist.Normal(0 * one, one))
    with pyro.plate("groups", 4):
        intercept = pyro.sample("intercept", dist.Normal(mean, spread))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(intercept[group] + slope * x, 0.4 * one), obs=y)


def correlated_columns(n: int, like: Tensor, y: Tensor | None = None) -> None:
    scale = pyro.sample("scale", dist.LogNormal(like.new_zeros(2), 0.5).to_event(1))
    root = pyro.sample("root", dist.LKJCholesky(2, like.new_tensor(2.0)))
    with pyro.plate("rows", n):
        law = dist.MultivariateNormal(like.new_zeros(2), scale_tril=scale[:, None] * root)
        pyro.sample("y", law, obs=y)


def ordered_classes(x: Tensor, y: Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))
    base = dist.Normal(x.new_zeros(2), 1.5).to_event(1)
    cuts = pyro.sample(
        "cuts", dist.TransformedDistribution(base, [dist.transforms.OrderedTransform()])
    )
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.OrderedLogistic(slope * x, cuts), obs=y)


def mixture(n: int, like: Tensor, y: Tensor | None = None) -> None:
    share = pyro.sample("share", dist.Dirichlet(like.new_ones(2)))
    with pyro.plate("components", 2):
        centre = pyro.sample("centre", dist.Normal(like.new_tensor([-2.0, 2.0]), 1.0))
    with pyro.plate("rows", n):
        label = pyro.sample("label", dist.Categorical(share), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(centre[label], like.new_tensor(0.6)), obs=y)


def outliers(n: int, like: Tensor, y: Tensor | None = None) -> None:
    share = pyro.sample("share", dist.Beta(like.new_tensor(2.0), 5.0))
    mean = pyro.sample("mean", dist.Normal(like.new_zeros(()), 2.0))
    with pyro.plate("rows", n):
        far = pyro.sample("far", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        pyro.sample("y", dist.Normal(mean, 0.5 + 3.0 * far), obs=y)


def hilbert_space_gp(x: Tensor, y: Tensor | None = None) -> None:
    """Solin & Sarkka (2020): a squared-exponential kernel by sines on [-2, 2]."""
    edge, size = 2.0, 8
    number = torch.arange(1, size + 1, dtype=x.dtype, device=x.device)
    frequency = math.pi * number / (2 * edge)
    columns = torch.sin((x[:, None] + edge) * frequency) / math.sqrt(edge)
    lengthscale = pyro.sample("lengthscale", dist.LogNormal(x.new_tensor(-0.5), 0.3))
    height = pyro.sample("height", dist.HalfNormal(x.new_ones(())))
    spectrum = height * lengthscale.sqrt() * torch.exp(-0.25 * (lengthscale * frequency).square())
    weight = pyro.sample("weight", dist.Normal(torch.zeros_like(number), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(columns @ (spectrum * weight), x.new_tensor(0.2)), obs=y)


class Rayleigh(TorchDistribution):
    """The length of a normal vector in the plane: density y / s^2 exp(-y^2 / (2 s^2))."""

    arg_constraints: Any = {"scale": constraints.positive}
    support: Any = constraints.positive

    def __init__(self, scale: Tensor) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, torch.Size(), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Rayleigh:
        return Rayleigh(self.scale.expand(batch_shape))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        uniform = self.scale.new_empty(self._extended_shape(sample_shape)).uniform_()
        return self.scale * (-2 * torch.log1p(-uniform)).sqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        ratio = value / self.scale
        return ratio.log() - self.scale.log() - 0.5 * ratio.square()


def own_distribution(x: Tensor, y: Tensor | None = None) -> None:
    level = pyro.sample("level", dist.Normal(x.new_zeros(()), 1.0))
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", Rayleigh(torch.exp(level + slope * x)), obs=y)


def list_of_sites(x: Tensor, y: Tensor | None = None) -> None:
    weights = [pyro.sample(f"w{j}", dist.Normal(x.new_zeros(()), 1.0)) for j in range(3)]
    mean = sum(weight * x**j for j, weight in enumerate(weights))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(mean, x.new_tensor(0.3)), obs=y)


def same(program: Callable[..., Any]) -> Callable[[torch.dtype], Callable[..., Any]]:
    """Return a program that takes its dtype from its arguments, for either dtype."""
    return lambda dtype: program


def cases() -> dict[str, Case]:
    """Return the ten programs by name."""
    n = 24
    X, e = normal(0, n, 2), normal(1, n)
    x = torch.linspace(-1, 1, n, dtype=torch.float64)
    y = X @ torch.tensor([1.0, -0.5], dtype=torch.float64) + 0.5 * e
    group = torch.arange(4).repeat(n // 4)
    steps = torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64)[group]
    like = torch.zeros(0, dtype=torch.float64)
    columns = normal(2, n, 2) @ torch.tensor([[1.0, 0.5], [0.0, 0.8]], dtype=torch.float64)
    classes = (x + 0.7 * e > -0.4).long() + (x + 0.7 * e > 0.5).long()
    label = torch.arange(n) % 3 > 0
    two = torch.where(label, 2.0, -2.0) + 0.6 * e
    far = torch.where(torch.arange(n) % 6 == 0, 3.5, 0.5) * e + 1.0
    lengths = torch.exp(0.3 + 0.8 * x) * (normal(3, n).square() + normal(4, n).square()).sqrt()
    wave = torch.sin(3 * x) + 0.2 * e
    curve = 0.5 - x + 0.8 * x**2 + 0.3 * e
    return {
        "matrix product": Case(same(matrix_product), {"X": X, "y": y}, {"X": X[:3]}),
        "nn.Linear in a PyroModule": Case(Linear, {"X": X, "y": y}, {"X": X[:3]}),
        "varying intercepts": Case(
            same(varying_intercepts),
            {"x": x, "group": group, "y": steps + 0.6 * x + 0.4 * e},
            {"x": x[:3], "group": group[:3]},
        ),
        "LKJCholesky": Case(
            same(correlated_columns), {"n": n, "like": like, "y": columns}, {"n": 3, "like": like}
        ),
        "OrderedLogistic": Case(same(ordered_classes), {"x": x, "y": classes}, None),
        "Dirichlet and enumerated Categorical": Case(
            same(mixture), {"n": n, "like": like, "y": two}, {"n": 3, "like": like}
        ),
        "enumerated Bernoulli": Case(
            same(outliers), {"n": n, "like": like, "y": far}, {"n": 3, "like": like}
        ),
        "Hilbert-space GP": Case(same(hilbert_space_gp), {"x": x, "y": wave}, {"x": x[:3]}),
        "a distribution of one's own": Case(
            same(own_distribution), {"x": x, "y": lengths}, {"x": x[:3]}
        ),
        "a list of Normal sites": Case(same(list_of_sites), {"x": x, "y": curve}, {"x": x[:3]}),
    }


def methods() -> dict[str, Inference]:
    """Return the methods of the contract by name."""
    return {
        "MAP()": inference.MAP(),
        "Laplace()": inference.Laplace(),
        'SVI("normal")': inference.SVI("normal"),
        'SVI("multivariate_normal")': inference.SVI("multivariate_normal"),
        'SVI("lowrank")': inference.SVI("lowrank"),
        'SVI("iaf")': inference.SVI("iaf"),
        'SVI("normal", method="deterministic")': inference.SVI("normal", method="deterministic"),
        'SVI(method="deterministic")': inference.SVI(method="deterministic"),
        "NUTS()": inference.NUTS(),
        'NUTS(engine="pyro")': inference.NUTS(engine="pyro"),
        "HMC()": inference.HMC(),
        "MetropolisHastings()": inference.MetropolisHastings(),
        "SGLD()": inference.SGLD(),
        "SGHMC()": inference.SGHMC(),
        "Pathfinder()": inference.Pathfinder(),
        "Exact()": inference.Exact(),
        "Gibbs()": inference.Gibbs(),
        "Ensemble()": inference.Ensemble(),
        "SWAG()": inference.SWAG(),
        "MCDropout()": inference.MCDropout(),
        "NaturalGradientBoosting()": inference.NaturalGradientBoosting(),
    }
