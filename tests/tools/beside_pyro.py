"""NUTS beside Pyro's own on the programs of Pyro's users: do they agree, and how fast are they?

``python tests/tools/beside_pyro.py --folder RUNS`` runs both samplers on every program of
``tests/programs_of_users.py``, each in a process of its own that ends after ``LIMIT`` seconds, and
prints the table. What a run drew and how long it took stays in the folder, and a run that is there
is not made again. Names behind it choose programs. With ``--write`` the table of all runs in the
folder replaces the one in docs/programs.md. ``--draws 2000`` makes longer runs.

Pyro's runs take an hour, and do not depend on ppgp. ``--keep`` writes their figures into
``nuts_of_pyro.json``, and with ``--kept`` those that are there are compared with, without a run:
whether the samplers agree is then known in minutes. Their times are not compared then, as they are
of another machine.

The times have compiling in them, and the imports not. Pyro's chains run one after the other, as
they do where ``pyro.infer.MCMC`` finds two cores; the figures per second of processor count all
processes of a run. Both samplers have two chains of the same number of draws. Pyro's has as many
steps of warm-up as draws, and that of ppgp what it chooses.

Means, sds and two quantiles of every number are compared by their Monte Carlo errors, where Pyro's
R-hat is at most 1.01 and its effective sample size at least 400.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import tables_of_docs
import torch
from pyro.infer import MCMC
from pyro.infer import NUTS as PyrosNUTS
from scipy import stats

import ppgp
from ppgp import diagnostics
from ppgp.errors import PpgpError
from ppgp.inference import NUTS

sys.path.append(str(Path(__file__).parents[1]))

from programs_of_users import BRANCHES, LABEL_FREE, PROGRAMS, UsersProgram

NAME = "beside_pyro"  # of the marks in the documentation
KEPT = Path(__file__).with_name("nuts_of_pyro.json")  # {program: figures of Pyro's run}
LIMIT = 600  # seconds of one run
CHAINS = 2
SAMPLERS = ("Pyro", "ppgp")
PROBABILITIES = (0.05, 0.95)  # of the quantiles
LARGEST_RHAT, LEAST_ESS = 1.01, 400.0  # of Pyro's run, for a comparison
LARGEST_Z = 4.0
COLUMNS = (
    *("draws", "Pyro's R-hat", "Pyro's ESS", "Pyro's seconds", "ppgp's ESS", "ppgp's seconds"),
    *("ESS a second", "ESS a second of processor", "divergences", "largest z", "z above 3"),
    "outcome",
)


# -- one run, in a process of its own --------------------------------------------------------------


def run_of_pyro(users: UsersProgram, draws: int, jit: bool) -> tuple[dict[str, torch.Tensor], int]:
    """Return the draws {site: [chain, draw, *event]} of Pyro's NUTS, and its divergences."""
    kernel = PyrosNUTS(users.program, jit_compile=jit, ignore_jit_warnings=True)
    sampler = MCMC(
        kernel, num_samples=draws, warmup_steps=draws, num_chains=CHAINS, disable_progbar=True
    )
    sampler.run(**users.arguments)
    several = sampler.diagnostics()["divergences"].values()
    return sampler.get_samples(group_by_chain=True), sum(map(len, several))


def run_of_ppgp(users: UsersProgram, draws: int) -> tuple[dict[str, torch.Tensor], int]:
    """Return the draws {site: [chain, draw, *event]} of ppgp's NUTS, and its divergences."""
    how = NUTS(draws=draws, chains=CHAINS)
    posterior = ppgp.fit(users.program, users.arguments, how, seed=1, progress=False)
    return dict(posterior.draws), int(posterior.stats["diverging"].sum())


def run(sampler: str, users: UsersProgram, draws: int, jit: bool) -> tuple[Any, int]:
    if sampler == "ppgp":
        return run_of_ppgp(users, draws)
    pyro.set_rng_seed(1)
    return run_of_pyro(users, draws, jit)


def processor() -> float:
    """Return the seconds of processor of this process and of those that it has waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def normal_program(y: torch.Tensor) -> None:
    """A program to import by: torch imports SymPy where it first meets an interval."""
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    sigma = pyro.sample("sigma", dist.Uniform(0.5, 2.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, sigma), obs=y)


def measure(name: str, sampler: str, draws: int, path: Path) -> None:
    """Run one sampler on one program; write ``path`` with its figures and a file of its draws."""
    warnings.simplefilter("ignore")
    jit = name not in BRANCHES
    run(sampler, UsersProgram(normal_program, {"y": torch.ones(3)}), 5, jit)  # what is imported
    pyro.clear_param_store()
    record: dict[str, Any] = {"draws": draws}
    found, diverging = {}, 0
    for compiled in dict.fromkeys((jit, False)):  # interpreted where Pyro cannot compile
        users = PROGRAMS[name][1]()
        record["jit"] = compiled
        began, used = time.perf_counter(), processor()
        try:
            found, diverging = run(sampler, users, draws, compiled)
            record.pop("error", None)
        except Exception as error:  # an error is an outcome too
            text = " ".join(str(error).split())
            if not isinstance(error, PpgpError):
                text = f"{type(error).__name__}: {text[:200]}"
            record["error"] = text
        record["seconds"] = time.perf_counter() - began
        record["processor"] = processor() - used
        if found or sampler == "ppgp":
            break
    if found:
        record["divergences"] = diverging
        of_draws = {site: x.detach().numpy() for site, x in found.items()}
        with path.with_suffix(".npz").open("wb") as file:
            np.savez(file, **of_draws)
    else:
        record.setdefault("error", "no site to draw")
    path.write_text(json.dumps(record))


def run_in_a_process(name: str, sampler: str, draws: int, path: Path) -> None:
    """Run ``measure`` in a process, and end it with what it forked after ``LIMIT`` seconds."""
    command = [sys.executable, __file__, "--run", sampler, "--draws", str(draws), name]
    process = subprocess.Popen([*command, "--folder", str(path.parent)], start_new_session=True)
    try:
        code = process.wait(LIMIT + 60)  # the imports are not counted
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        code = None
    if not path.exists():
        why = f"no end in {LIMIT} s" if code is None else f"the process ended with {code}"
        path.write_text(json.dumps({"error": why, "draws": draws}))


# -- comparison ------------------------------------------------------------------------------------


def quantile_error(x: np.ndarray, p: float) -> float:
    """Return the Monte Carlo error of a quantile: Vehtari et al. (2021), section 4.

    Half the distance of the order statistics at the points of a Beta distribution that lie one
    sd apart from p in probability.
    """
    effective = diagnostics.ess((x <= np.quantile(x, p)).astype(float))
    ends = stats.beta.ppf(stats.norm.cdf([-1, 1]), effective * p + 1, effective * (1 - p) + 1)
    ordered = np.sort(x, axis=None)
    lower = max(math.floor(ends[0] * x.size) - 1, 0)
    upper = min(math.ceil(ends[1] * x.size) - 1, x.size - 1)
    return float(ordered[upper] - ordered[lower]) / 2


def summary(x: np.ndarray) -> dict[str, float]:
    """Return the figures of one number, draws [chain, draw], with their Monte Carlo errors."""
    figures = {"mean": float(x.mean()), "sd": float(x.std(ddof=1))}
    figures |= {f"error of {what}": diagnostics.mcse(x, what) for what in ("mean", "sd")}
    for p in PROBABILITIES:
        figures[f"q{100 * p:.0f}"] = float(np.quantile(x, p))
        figures[f"error of q{100 * p:.0f}"] = quantile_error(x, p)
    return figures | {"ess": diagnostics.ess(x), "rhat": diagnostics.rhat(x)}


def summaries(name: str, draws: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Return {number: figures} of the sites of a program, or of functions without labels."""
    tensors = {site: torch.from_numpy(x).double() for site, x in draws.items()}
    if name in LABEL_FREE:
        tensors = LABEL_FREE[name](tensors)
    found = {}
    for site, values in tensors.items():
        columns = values.flatten(2) if values.ndim > 2 else values[..., None]
        for k in range(columns.shape[-1]):
            x = columns[..., k].numpy()
            if x.std() > 0:  # the upper triangle of a factor has no spread
                found[f"{site}[{k}]"] = summary(x)
    return found


def standardised(
    ours: Mapping[str, Mapping[str, float]], theirs: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return {figure: z}, the differences over their Monte Carlo errors."""
    found = {}
    for number in ours.keys() & theirs.keys():
        a, b = ours[number], theirs[number]
        for what in ("mean", "sd", *(f"q{100 * p:.0f}" for p in PROBABILITIES)):
            error = math.hypot(a[f"error of {what}"], b[f"error of {what}"])
            found[f"{what} of {number}"] = (a[what] - b[what]) / error
    return found


def loaded(path: Path, name: str) -> dict[str, Any]:
    """Return the record of a run, with the figures of its draws."""
    record = json.loads(path.read_text())
    draws = path.with_suffix(".npz")
    if "error" not in record:
        with np.load(draws) as file:
            numbers = summaries(name, dict(file))
        record["numbers"] = numbers
        record["ess"] = min(figures["ess"] for figures in numbers.values())
        record["rhat"] = max(figures["rhat"] for figures in numbers.values())
    return record


def digest(name: str) -> str:
    """Return a text that another program, or other data, does not have.

    It has the shapes of the data and the code that draws them: their last bits are other ones on
    another processor.
    """
    make = PROGRAMS[name][1]
    users = make()
    program = users.program if inspect.isroutine(users.program) else type(users.program)
    found = hashlib.sha256()
    for code in (make, program):
        found.update(inspect.getsource(code).strip().encode())
    for word, value in sorted(users.arguments.items()):
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else value
        found.update(f"{word}={shape}".encode())
    return found.hexdigest()[:16]


def kept() -> dict[str, Any]:
    """Return {program: figures of Pyro's run} of the programs that are as they were then."""
    records = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return {n: of for n, of in records.items() if n in PROGRAMS and of["digest"] == digest(n)}


def keep(folder: Path) -> None:
    """Write the figures of Pyro's runs in the folder beside those that are kept."""
    records = kept()
    for name in PROGRAMS:
        path = folder / f"{name}.Pyro.json"
        if path.exists():
            record = rounded(loaded(path, name)) | {"digest": digest(name)}
            if "error" not in record:
                records[name] = record
    KEPT.write_text(json.dumps(dict(sorted(records.items())), indent=0) + "\n")


def rounded(record: Any) -> Any:
    """Return a record with six digits of each number."""
    if isinstance(record, dict):
        return {key: rounded(value) for key, value in record.items()}
    return float(f"{record:.6g}") if isinstance(record, float) else record


def compared(name: str, folder: Path, kept_run: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the figures of both runs on a program, and write them into the folder.

    Args:
        name: Of the program.
        folder: Of the runs.
        kept_run: Figures of Pyro's run, where it was made elsewhere; None: it is in the folder.
    """
    pyros = kept_run or loaded(folder / f"{name}.Pyro.json", name)
    ours = loaded(folder / f"{name}.ppgp.json", name)
    found: dict[str, Any] = {"Pyro": pyros, "ppgp": ours}
    if "error" not in pyros and "error" not in ours:
        both = ours["numbers"].keys() & pyros["numbers"].keys()  # others are deterministic
        for record in (pyros, ours):
            record["ess"] = min(record["numbers"][number]["ess"] for number in both)
            record["rhat"] = max(record["numbers"][number]["rhat"] for number in both)
        z = standardised(ours["numbers"], pyros["numbers"])
        size = {number: abs(value) for number, value in z.items()}
        found["where"] = max(size, key=size.__getitem__)
        found["largest"] = size[found["where"]]
        found["above"], found["of"] = sum(value > 3 for value in size.values()), len(z)
        found["allowed"] = int(stats.binom.ppf(0.999, len(z), 2 * stats.norm.sf(3)))
        found["only"] = sorted(ours["numbers"].keys() ^ pyros["numbers"].keys())
        for what in ("seconds", "processor") if kept_run is None else ():
            ratio = (ours["ess"] / ours[what]) / (pyros["ess"] / pyros[what])
            found[f"ratio of {what}"] = ratio
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1))
    return found


def is_judged(found: Mapping[str, Any]) -> bool:
    """Return whether Pyro's run is good enough to compare with."""
    pyros = found["Pyro"]
    return (
        "where" in found
        and pyros["seconds"] <= LIMIT
        and pyros["rhat"] <= LARGEST_RHAT
        and pyros["ess"] >= LEAST_ESS
    )


def outcome(found: Mapping[str, Any]) -> str:
    for sampler in SAMPLERS:
        if "error" in found[sampler]:
            return f"{sampler}: {found[sampler]['error']}".replace("|", "\\|")
    if not is_judged(found):
        return "Pyro's run is no measure"
    if found["largest"] <= LARGEST_Z and found["above"] <= found["allowed"]:
        return "agree"
    return f"differ: {found['where']}"


def row(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of a program."""
    cells = dict.fromkeys(COLUMNS, "") | {"outcome": outcome(found)}
    cells["draws"] = f"{found['ppgp']['draws']:,}"
    for sampler in SAMPLERS:
        record = found[sampler]
        if "error" not in record:
            cells[f"{sampler}'s ESS"] = f"{record['ess']:.0f}"
            interpreted = sampler == "Pyro" and not record["jit"]
            cells[f"{sampler}'s seconds"] = f"{record['seconds']:.1f}" + "*" * interpreted
    if "error" not in found["Pyro"]:
        cells["Pyro's R-hat"] = f"{found['Pyro']['rhat']:.3f}"
    if "ratio of seconds" in found:
        cells["ESS a second"] = f"{found['ratio of seconds']:.1f}"
        cells["ESS a second of processor"] = f"{found['ratio of processor']:.1f}"
    if "where" in found:
        counts = [str(found[sampler]["divergences"]) for sampler in SAMPLERS]
        cells["divergences"] = " and ".join(counts)
        cells["largest z"] = f"{found['largest']:.1f}"
        cells["z above 3"] = f"{found['above']} of {found['of']}"
    return cells


def table(all_found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [f"| program | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, found in all_found.items():
        cells = row(found)
        title = name.replace("_", " ")
        lines.append(f"| {title} | {' | '.join(cells[column] for column in COLUMNS)} |")
    return "\n".join(lines) + "\n"


def report(all_found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sentences on the programs that Pyro's runs are a measure of."""
    judged = {name: found for name, found in all_found.items() if is_judged(found)}
    if not judged:
        return "no program is judged"
    lines = [f"{len(judged)} of {len(all_found)} programs are judged"]
    for what in ("seconds", "processor"):
        key = f"ratio of {what}"
        ratios = {name: found[key] for name, found in judged.items() if key in found}
        if not ratios:
            continue
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        least = min(ratios, key=ratios.__getitem__)
        lines.append(f"{what}: geometric mean {mean:.2f}, least {ratios[least]:.2f} ({least})")
    agree = sum(outcome(found) == "agree" for found in judged.values())
    lines.append(f"{agree} agree")
    above, of = (sum(found[key] for found in judged.values()) for key in ("above", "of"))
    lines.append(f"{above} of {of} z above 3")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="NUTS beside Pyro's own")
    parser.add_argument("names", nargs="*", help="programs; all where none is named")
    parser.add_argument("--folder", type=Path, required=True, help="of the runs")
    parser.add_argument("--draws", type=int, default=1000, help="of each chain")
    parser.add_argument("--run", choices=SAMPLERS, help="run one sampler in this process")
    parser.add_argument("--write", action="store_true", help="write the table of all runs")
    parser.add_argument("--keep", action="store_true", help=f"write Pyro's figures to {KEPT.name}")
    parser.add_argument("--kept", action="store_true", help="compare with the figures kept there")
    options = parser.parse_args()
    names = options.names or list(PROGRAMS)
    if options.run:
        path = options.folder / f"{names[0]}.{options.run}.json"
        measure(names[0], options.run, options.draws, path)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    of_pyro = kept() if options.kept else {}
    # a run in the folder has times of this machine too
    of_pyro = {
        n: of for n, of in of_pyro.items() if not (options.folder / f"{n}.Pyro.json").exists()
    }
    for name in names:
        for sampler in SAMPLERS:
            path = options.folder / f"{name}.{sampler}.json"
            if not path.exists() and not (sampler == "Pyro" and name in of_pyro):
                run_in_a_process(name, sampler, options.draws, path)
        figures = compared(name, options.folder, of_pyro.get(name))
        print(name, row(figures), file=sys.stderr, flush=True)
    if options.keep:
        keep(options.folder)
    done = [n for n in PROGRAMS if (options.folder / f"{n}.ppgp.json").exists()]
    shown = done if options.write else names
    found = {name: compared(name, options.folder, of_pyro.get(name)) for name in shown}
    tables_of_docs.show(NAME, table(found))
    print(report(found), file=sys.stderr)


if __name__ == "__main__":
    main()
