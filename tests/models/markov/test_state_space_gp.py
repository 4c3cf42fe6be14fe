"""StateSpaceGP against GP, the same model by dense algebra."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.diagnostics import mcse
from ppgp.errors import DataError, NotApplicable, SettingError
from ppgp.kernels import RBF, Constant, Cosine, Exponential, Kernel, Linear, Matern, Scale
from ppgp.kernels.state_space import StateSpace
from ppgp.models import GP, SKI, StateSpaceGP
from ppgp.models.markov import state_space_gp, state_space_rows
from ppgp.models.markov.state_space_rows import StateSpaceMarginal

KERNELS: dict[str, Kernel] = {
    "Matern12": Matern(0.5),
    "Matern32": Matern(1.5),
    "Matern52": Matern(2.5),
    "Exponential": Exponential(),
    "sum": Matern(2.5) + Linear() + Constant(),
    "one variance": Matern(2.5, lengthscale=0.3),
    "quasi-periodic": Scale(Matern(1.5, 1.0) * Cosine(1.0)) + Constant(),
}
QUICK = ("Matern32", "sum", "one variance")
each = pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, marks=() if name in QUICK else pytest.mark.slow)
        for name, kernel in KERNELS.items()
    ],
    ids=KERNELS.keys(),
)
close = torch.testing.assert_close


def table(n: int, seed: int = 0, noise_sd: bool = False, unit: float = 1.0) -> Dataset:
    """Return rows out of order, with equal times and a gap."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.rand(n, generator=generator, dtype=torch.float64) * unit
    t[t > 0.7 * unit] += 0.5 * unit
    t[3], t[n // 2] = t[5], t[5]
    y = torch.sin(6 * t / unit) + 0.2 * torch.randn(n, generator=generator, dtype=torch.float64)
    sd = 0.1 + torch.rand(n, generator=generator, dtype=torch.float64) if noise_sd else None
    return Dataset(t[:, None], y, noise_sd=sd)


def theta_of(kernel: Kernel, **values: float) -> dict[str, Tensor]:
    free = [name for name, site in kernel.sites(1).items() if not site.fixed]
    given = {name: values.get(name.split(".")[-1], 1.3) for name in free}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}


def both(kernel: Kernel, data: Dataset) -> tuple[StateSpaceGP, GP]:
    return StateSpaceGP(kernel, mean=0.3).prepare(data), GP(kernel, mean=0.3).prepare(data)  # type: ignore[return-value]


@each
@pytest.mark.parametrize("noise", [1e-6, 0.1])
@pytest.mark.parametrize("lengthscale", [1e-3, 0.3, 50.0])
def test_value_and_slopes_are_those_of_dense_algebra(
    kernel: Kernel, lengthscale: float, noise: float
) -> None:
    """Rounding errors grow with the condition number, of the order of variance / noise.

    Joining lanes adds to them where lines and levels are added to a slow function: the states
    are then hard to tell apart.
    """
    n, dtype = 400, torch.float64
    generator = torch.Generator().manual_seed(1)
    t = torch.rand(n, generator=generator, dtype=dtype) * 10
    t[3], t[200] = t[5], t[5]
    hyper = theta_of(kernel, lengthscale=lengthscale)
    hyper = {name: value.requires_grad_() for name, value in hyper.items()}
    level = torch.tensor(noise, dtype=dtype, requires_grad=True)
    C = kernel(hyper, t[:, None]) + level * torch.eye(n, dtype=dtype)
    L = torch.linalg.cholesky(C.detach())
    y = L @ torch.randn(n, generator=generator, dtype=dtype)
    dense = torch.distributions.MultivariateNormal(torch.zeros(n, dtype=dtype), C).log_prob(y)
    theta = {**{f"kernel.{name}": value for name, value in hyper.items()}, "noise": level}
    steps = StateSpaceGP(kernel).noisy_steps(theta, t[:, None], None)
    value = StateSpaceMarginal(torch.zeros_like(y), steps).log_prob(y)
    every = [*hyper.values(), level]
    ours, theirs = torch.autograd.grad(value, every), torch.autograd.grad(dense, every)
    rounding = 1e-16 * float(C.detach().diagonal().max()) * n / noise
    factor = 100 if kernel is KERNELS["sum"] else 10
    close(value, dense, rtol=1e-10, atol=n * rounding)
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other, rtol=1e-8 + factor * rounding, atol=n * (1e-8 + factor * rounding))


@each
def test_value_slopes_and_curvature_of_the_target_are_those_of_GP(kernel: Kernel) -> None:
    data = table(150, noise_sd=True)
    ours, theirs = (Target(model, data, compile=False) for model in both(kernel, data))
    z = ours.start(seed=1, spread=0.5)
    for mine, other in zip(ours.value_and_grad(z), theirs.value_and_grad(z), strict=True):
        close(mine, other, rtol=1e-9, atol=1e-9)
    assert torch.equal(ours.value_and_grad(z)[1], ours.value_and_grad(z)[1])
    close(ours.hessian(z), theirs.hessian(z), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "kernel",
    [KERNELS["Exponential"], KERNELS["sum"] + KERNELS["quasi-periodic"]],
    ids=["one state", "many states"],
)
@pytest.mark.parametrize("spacing", ["equal", "but for one"])
@pytest.mark.parametrize(
    "compile", [pytest.param(True, marks=pytest.mark.slow, id="compiled"), False]
)
def test_equal_steps_have_one_transition(
    kernel: Kernel, spacing: str, compile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value and slopes are those of a transition for every step, up to the rounding of times."""
    t = 1900 + torch.arange(101, dtype=torch.float64) / 12
    if spacing != "equal":
        t[50] += 0.01
    monkeypatch.setattr(state_space_rows, "MANY_ROWS", 100)
    asked: list[Tensor] = []
    own = Exponential.state_space

    def followed(self: Exponential, theta: dict[str, Tensor], like: Tensor) -> StateSpace:
        space = own(self, theta, like)

        def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
            asked.append(dt)
            return space.transition(dt)

        return replace(space, transition=transition)

    monkeypatch.setattr(Exponential, "state_space", followed)
    order = torch.randperm(101, generator=torch.Generator().manual_seed(0))
    data, _ = Dataset(t[order][:, None], torch.sin(t[order])).standardised()
    model = StateSpaceGP(kernel, mean=0.3).prepare(data)
    z = Target(model, data, compile=False).start(seed=1, spread=0.5)

    def everything() -> list[Tensor]:
        target, eager = (Target(model, data, compile=c) for c in (compile, False))
        both = eager.value_and_grad_batch(torch.stack([z, z + 0.1]))
        return [*target.value_and_grad(z), *both]

    found = everything()
    if kernel == KERNELS["Exponential"]:
        assert (asked[-1].numel() == 2) == (spacing == "equal")
    monkeypatch.setattr(state_space_rows, "MANY_ROWS", 2000)
    close(found, everything(), rtol=1e-8, atol=1e-8)


def test_uneven_steps_of_large_times_are_no_rounding() -> None:
    """Unix times in milliseconds, which are off by up to half a step."""
    shift = torch.rand(1200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    even = 1.7e12 + torch.arange(1200, dtype=torch.float64)
    assert state_space_rows._equally_spaced(even)
    assert not state_space_rows._equally_spaced(even + 0.9 * shift)
    repeated = (1e9 + torch.arange(1500)).float()
    assert not state_space_rows._equally_spaced(repeated)


def test_second_derivatives_are_differences_of_slopes() -> None:
    data = table(130)
    target = Target(StateSpaceGP(KERNELS["sum"]).prepare(data), data, compile=False)
    z, step = target.start(seed=2, spread=0.3), 1e-5
    H = target.hessian(z)
    for i, e in enumerate(torch.eye(target.dim, dtype=torch.float64)):
        up, down = (target.value_and_grad(z + sign * step * e)[1] for sign in (1, -1))
        close(H[i], (up - down) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", [Linear() + Cosine(), KERNELS["sum"]], ids=["wave", "sum"])
def test_variances_before_the_first_rows_lose_no_digits_far_from_the_origin(kernel: Kernel) -> None:
    """The prior variance is 10^6 and more times what the later rows leave of it."""
    t = 1000 + 10 * torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = Dataset(t[:, None], torch.sin(t))
    theta = {f"kernel.{name}": value[None] for name, value in theta_of(kernel).items()}
    theta["noise"] = torch.tensor([0.01], dtype=torch.float64)
    X = torch.tensor([[999.0], [999.9], [1005.0], [1030.0]], dtype=torch.float64)
    ours, theirs = both(kernel, data)
    for joint in (False, True):
        mine, other = (m.predict(theta, X, data, joint=joint) for m in (ours, theirs))
        close(mine.mean, other.mean, rtol=1e-6, atol=1e-6)
        close(mine.variance - 0.01, other.variance - 0.01, rtol=1e-4, atol=1e-7)
    mine, other = (m.predict(theta, X, data, joint=True) for m in (ours, theirs))
    close(mine.covariance_matrix, other.covariance_matrix, rtol=1e-4, atol=1e-7)


@each
@pytest.mark.parametrize("noise_sd", [False, True])
def test_predictions_are_those_of_GP(kernel: Kernel, noise_sd: bool) -> None:
    data = table(100, noise_sd=noise_sd)
    generator = torch.Generator().manual_seed(3)
    sites = both(kernel, data)[0].sites(1)
    free = [name for name, site in sites.items() if not site.fixed]
    theta = {n: torch.rand(3, generator=generator, dtype=torch.float64) + 0.3 for n in free}
    t = 2 * torch.rand(15, generator=generator, dtype=torch.float64) - 0.3
    X = torch.cat([t, t[:1], data.X[3:5, 0], data.X[:, 0].min()[None]])[:, None]
    sd = torch.full((len(X),), 0.2, dtype=torch.float64) if noise_sd else None
    ours, theirs = both(kernel, data)
    for joint in (False, True):
        mine, other = (m.predict(theta, X, data, joint=joint, noise_sd=sd) for m in (ours, theirs))
        close(mine.mean, other.mean, rtol=1e-8, atol=1e-8)
        close(mine.variance, other.variance, rtol=1e-8, atol=1e-8)
        if joint:
            close(mine.covariance_matrix, other.covariance_matrix, rtol=1e-8, atol=1e-8)
    for name in ("latent", "loo"):
        arguments = (theta, X, data) if name == "latent" else (theta, data)
        mine, other = (getattr(model, name)(*arguments) for model in (ours, theirs))
        close(mine.mean, other.mean, rtol=1e-8, atol=1e-8)
        close(mine.variance, other.variance, rtol=1e-8, atol=1e-8)
    if not isinstance(kernel, Scale) and "+" in repr(kernel):
        for name, other in theirs.components(theta, X, data).items():
            mine = ours.components(theta, X, data)[name]
            close(mine.mean, other.mean, rtol=1e-8, atol=1e-8)
            close(mine.variance, other.variance, rtol=1e-8, atol=1e-8)


def fitted(model: object, data: Dataset, how: object = None, **options: object) -> ppgp.Posterior:
    return ppgp.fit(model, data, how or inference.MAP(), progress=False, **options)  # type: ignore[arg-type]


def test_numbers_are_the_same_on_both_scales() -> None:
    """Linear depends on where X = 0 is; a number refers to the units of the data."""
    kernel = Matern(1.5, 40.0, 30.0) + Linear(0.1) + Scale(Cosine(1.0, 25.0), 20.0)
    rows = table(60, unit=100.0)
    data = Dataset(rows.X, 40 + 10 * rows.y)
    new = torch.tensor([[-10.0], [33.0], [80.0], [200.0]], dtype=torch.float64)
    there, here = (
        fitted(StateSpaceGP(kernel, 4.0), data, standardise=standardise).predict(new)
        for standardise in (True, False)
    )
    dense = fitted(GP(kernel, 4.0), data).predict(new)
    for other in (here, dense):
        close(there.mean, other.mean, rtol=1e-8, atol=1e-8)
        close(there.variance, other.variance, rtol=1e-8, atol=1e-8)


def test_a_fit_finds_the_mode_of_GP_and_opens_from_a_file(tmp_path: object) -> None:
    data = table(80, seed=4)
    ours, theirs = (fitted(kind(Matern(1.5)), data) for kind in (StateSpaceGP, GP))
    for name, value in theirs.draws.items():
        close(ours.draws[name], value, rtol=1e-4, atol=1e-4)
    again = ppgp.load_posterior(ours.save(f"{tmp_path}/fit"))
    new = torch.linspace(-0.5, 2.0, 9, dtype=torch.float64)[:, None]
    assert torch.equal(again.predict(new).mean, ours.predict(new).mean)


def test_functions_are_draws_of_the_joint_posterior() -> None:
    """Their mean and covariance are those of GP, also where they are asked for in two calls."""
    data, samples = table(30), 4000
    kernel = Matern(2.5, 1.2, 0.4) + Constant(0.5) + Linear(0.3)
    ours, theirs = (fitted(kind(kernel, 0.1), data) for kind in (StateSpaceGP, GP))
    new = torch.cat([torch.linspace(-0.4, 1.6, 7, dtype=torch.float64), data.X[:2, 0]])[:, None]
    path = ours.pathwise(samples, seed=3)
    path(torch.linspace(-0.1, 1.9, 5, dtype=torch.float64)[:, None])
    f, again = path(new), path(new.flip(0)).flip(1)
    assert torch.equal(f, again)
    joint = theirs.predict(new, joint=True).distribution
    offset, scale = theirs.scaler.location_and_scale
    noise = theirs.model.noise * torch.eye(len(new), dtype=torch.float64)
    covariance = scale**2 * (joint.covariance_matrix[0] - noise)
    sd = covariance.diagonal().clamp_min(1e-12).sqrt()
    error = (f.mean(0) - (offset + scale * joint.mean[0])) / sd
    assert float(error.abs().max()) < 4.5 / samples**0.5
    gap = (f.T.cov() - covariance) / (sd[:, None] * sd)
    assert float(gap.abs().max()) < 4.5 * (2 / samples) ** 0.5


def updated(fit: ppgp.Posterior, rows: Dataset) -> ppgp.Posterior:
    """Return the posterior given further rows, which a Dataset and its parts give alike."""
    found = fit.update(rows)
    parts = fit.update(rows.X, rows.y, noise_sd=rows.noise_sd)
    assert found.data.same_rows(parts.data)
    return found


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("noise_sd", [False, True])
def test_an_update_conditions_on_the_new_rows_too(noise_sd: bool) -> None:
    """Later rows go on from the last state; others are smoothed with all rows."""
    data = table(60, noise_sd=noise_sd)
    order = data.X[:, 0].argsort()
    first, rest = data.rows(order[:40]), data.rows(order[40:])
    kernel = KERNELS["sum"]
    before = fitted(StateSpaceGP(kernel), first, inference.MAP(steps=3))
    draws = {name: value * torch.tensor([[1.0, 1.2, 0.8]]) for name, value in before.draws.items()}
    before = replace(before, draws=draws)
    dense = GP(kernel, mean=before.model.mean).prepare(before.scaler(data))
    later = torch.linspace(float(data.X.max()), 3.0, 4, dtype=torch.float64)[:, None]
    within = torch.linspace(-0.2, 1.1, 5, dtype=torch.float64)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        found = updated(before, rest.rows(slice(0, 12)))
        found = updated(found, rest.rows(slice(12, None)))
        patch.setattr(state_space_gp, "smoothed", None)  # no pass over all rows
        ahead = found.predict(later)
    rows, scaler = found.data, found.scaler
    for new, mine in ((later, ahead), (within, found.predict(within))):
        other = dense.predict(found.theta, scaler.inputs(new), rows)
        close(mine.distribution.mean, other.mean, rtol=1e-8, atol=1e-8)
        close(mine.distribution.variance, other.variance, rtol=1e-8, atol=1e-8)
    mixed = updated(before, rest.rows(torch.arange(rest.n - 1, -1, -1)))
    close(mixed.predict(later).mean, ahead.mean, rtol=1e-8, atol=1e-8)
    swapped = updated(fitted(StateSpaceGP(kernel), rest, inference.MAP(steps=3)), first)
    assert swapped.data.n == 60
    inputs = swapped.scaler.inputs(within)
    other = replace(dense, mean=swapped.model.mean).predict(swapped.theta, inputs, swapped.data)
    close(swapped.predict(within).distribution.mean, other.mean, rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("noise_sd", [False, True])
def test_one_step_ahead_is_predict_and_update_in_turn(noise_sd: bool) -> None:
    data = table(30, noise_sd=noise_sd)
    order = data.X[:, 0].argsort()
    first, rest = data.rows(order[:22]), data.rows(order[22:])
    fit = fitted(StateSpaceGP(KERNELS["sum"]), first, inference.MAP(steps=3))
    draws = {name: value * torch.tensor([[1.0, 1.2, 0.8]]) for name, value in fit.draws.items()}
    fit = replace(fit, draws=draws)
    mixed = torch.randperm(rest.n, generator=torch.Generator().manual_seed(0))
    rows = rest.rows(mixed)
    found = fit.one_step_ahead(rows.X, rows.y, noise_sd=rows.noise_sd).distribution
    close(fit.one_step_ahead(rows).distribution.mean, found.mean, rtol=0.0, atol=0.0)
    for i in range(rest.n):
        row = rest.rows(slice(i, i + 1))
        place = int((mixed == i).nonzero())
        other = fit.predict(row.X, noise_sd=row.noise_sd).distribution
        close(found.mean[:, place], other.mean[:, 0], rtol=1e-8, atol=1e-8)
        close(found.variance[:, place], other.variance[:, 0], rtol=1e-8, atol=1e-8)
        fit = updated(fit, row)
    with pytest.raises(DataError, match=r"not before the last training row.*rows 0.*predict"):
        fit.one_step_ahead(first.X, first.y, noise_sd=first.noise_sd)


def test_an_update_that_does_not_suit_the_fit_is_refused() -> None:
    data = table(20)
    fit = fitted(StateSpaceGP(Matern(2.5, 1.0, 0.5), 0.1, 0.0), data)
    with pytest.raises(DataError, match="a Dataset, or X and y, got no y"):
        fit.update(data.X)
    with pytest.raises(DataError, match="as in the fit"):
        fit.update(data.X, data.y, noise_sd=0.1)
    with pytest.raises(DataError, match="as many targets"):
        fit.update(data.X, data.y[:3])
    weighted = Dataset(data.X + 9.0, data.y, weights=torch.ones(data.n))
    for further in (fit.update, fit.one_step_ahead):
        with pytest.raises(NotApplicable, match="without weights"):
            further(weighted)
    with pytest.raises(NotApplicable, match="StateSpaceGP"):
        fitted(SKI(Matern(2.5, 1.0, 0.5), 20, 0.1, 0.0), data).update(data.X, data.y)


def test_prior_draws_have_the_covariance_of_the_kernel() -> None:
    data, samples = table(70), 3000
    kernel = Matern(1.5, 1.0, 0.3) + Linear(0.5)
    steps = StateSpaceGP(kernel, 0.2).noisy_steps({}, data.X, None)
    zero = torch.zeros(data.n, dtype=torch.float64)
    with ppgp.runtime.seeding.seeded(0):
        y = StateSpaceMarginal(zero, steps).rsample((samples,))
    K = kernel({}, data.X) + 0.2 * torch.eye(data.n, dtype=torch.float64)
    sd = K.diagonal().sqrt()
    gap = (y.T.cov() - K) / (sd[:, None] * sd)
    assert float(gap.abs().max()) < 5.5 * (2 / samples) ** 0.5
    logs = StateSpaceMarginal(zero, steps).log_prob(y[0])
    close(logs, torch.distributions.MultivariateNormal(zero, K).log_prob(y[0]))


def test_bad_input_is_refused_in_one_sentence() -> None:
    data = table(20)
    two = Dataset(torch.cat([data.X, data.X], 1), data.y)
    with pytest.raises(SettingError, match=r"one column of X.*2 columns.*fit GP"):
        fitted(StateSpaceGP(), two)
    with pytest.raises(NotApplicable, match=r"state space.*RBF.*Matern\(2.5\)"):
        StateSpaceGP(RBF())
    with pytest.raises(DataError, match="duplicates in rows"):
        fitted(StateSpaceGP(noise=0.0), data)
    with pytest.raises(NotApplicable, match="full batch"):
        fitted(StateSpaceGP(), data, inference.SVI(steps=3, batch_size=5))
    fit = fitted(StateSpaceGP(Matern(2.5, 1.0, 0.5), 0.1, 0.0), data)
    with pytest.raises(NotApplicable, match="a sum of kernels"):
        fit.components(data.X)
    new = data.X.clone()
    new[3] = torch.nan
    for call in (fit.predict, fit.latent, lambda X: fit.one_step_ahead(X, data.y)):
        with pytest.raises(DataError, match=r"NaN or infinity in row 3"):
            call(new)
    with pytest.raises(DataError, match="1 column, as in training, got 2"):
        fit.predict(two.X)


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_without_noise_it_interpolates(nu: float) -> None:
    generator = torch.Generator().manual_seed(0)
    t = torch.rand(40, 1, generator=generator, dtype=torch.float64) * 10
    data = Dataset(t, t[:, 0].sin())
    ours, theirs = (
        fitted(kind(Matern(nu, 1.0, 1.0), 0.0, 0.0), data) for kind in (StateSpaceGP, GP)
    )
    assert ours.log_evidence == pytest.approx(theirs.log_evidence, rel=1e-8)
    new = torch.cat([torch.linspace(-1.0, 12.0, 7, dtype=torch.float64)[:, None], t[:2]])
    close(ours.predict(new).mean, theirs.predict(new).mean, rtol=1e-7, atol=1e-7)
    close(ours.predict(new).variance, theirs.predict(new).variance, rtol=1e-7, atol=1e-7)
    close(ours.loo().mean, theirs.loo().mean, rtol=1e-7, atol=1e-7)


@pytest.mark.filterwarnings("ignore::ppgp.errors.DataWarning")
def test_three_rows_and_rows_at_one_time() -> None:
    for times in ([0.3, 0.9, 0.4], [0.3] * 5):
        t = torch.tensor(times, dtype=torch.float64)
        data = Dataset(t[:, None], t.cos() + torch.arange(len(t)))
        kernel = Matern(2.5, 1.0, 0.5)
        ours, theirs = (fitted(k(kernel, 0.1, 0.0), data) for k in (StateSpaceGP, GP))
        new = torch.tensor([[-1.0], [0.3], [0.5], [2.0]], dtype=torch.float64)
        close(ours.predict(new).mean, theirs.predict(new).mean)
        close(ours.predict(new, joint=True).variance, theirs.predict(new).variance)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_NUTS_agrees_with_NUTS_on_GP() -> None:
    """The means of the log hyperparameters differ by Monte Carlo error alone."""
    data, how = table(30, seed=6), inference.NUTS(draws=200, warmup=200, chains=2)
    kernel = Matern(1.5)
    ours, theirs = (fitted(kind(kernel), data, how, seed=1) for kind in (StateSpaceGP, GP))
    for name, value in ours.draws.items():
        mine, other = value.log().numpy(), theirs.draws[name].log().numpy()
        error = sum(mcse(x, "mean") ** 2 for x in (mine, other)) ** 0.5
        assert float(mine.mean() - other.mean()) == pytest.approx(0.0, abs=5 * error), name
