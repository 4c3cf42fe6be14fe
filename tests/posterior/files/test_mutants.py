"""Saved posteriors, damaged in thousands of ways, are refused within a memory limit."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

import ppgp
from ppgp import Posterior, inference, kernels, models, networks
from ppgp.errors import StorageError
from ppgp.posterior.files import storage

FIXTURES = Path(__file__).parent / "fixtures" / "ppgp-2"
MEMORY = 2**30  # bytes that a load may take beyond what the process has
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    10**40,
    -0.5,
    1e308,
    "",
    "a",
    "0",
    "nan",
    "kernels.RBF",
    "models.GP",
    [],
    {},
    {"number": "inf"},
    {"number": "a"},
    {"tensor": "0"},
    {"tensor": "99"},
    {"tuple": 3},
    {"tuple": [None, [], {}]},
    {"map": [[{"map": []}, 1]]},
    {"map": [1]},
    {"missing": "os"},
    {"missing": ["a"]},
    {"class": "builtins.eval", "fields": {}},
    {"class": "kernels.RBF", "fields": {"x": 1}},
    {"class": "posterior.Posterior", "fields": {}},
    {"class": "networks.MLP", "fields": {"hidden": {"tuple": [10**6, 10**6]}}},
]


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit the memory by which the process may grow to MEMORY."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes changed, lost, doubled, swapped, filled or added.

    Sometimes the length of the header changes, or all of its digits.
    """
    length = len(content)
    a, b = sorted(rng.sample(range(length), 2))
    b = min(b, a + rng.choice([1, 4, 40, length]))
    header = 8 + int.from_bytes(content[:8], "little")
    place = rng.choice([rng.randrange(length), rng.randrange(header)])
    kinds: list[Callable[[], bytes]] = [
        lambda: (
            content[:place]
            + bytes([content[place] ^ (1 << rng.randrange(8))])
            + content[place + 1 :]
        ),
        lambda: content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
        lambda: content[:a] + content[b:],
        lambda: content[:b] + content[a:],
        lambda: content[:a] + content[a:b][::-1] + content[b:],
        lambda: content[:a] + bytes(b - a) + content[b:],
        lambda: content[:a] + rng.randbytes(b - a) + content[b:],
        lambda: content[:a] + b"[" * rng.choice([1, 9, 10**5]) + content[a:],
        lambda: content + rng.randbytes(rng.choice([1, 8, 1000])),
        lambda: content[: length - rng.randrange(1, length)],
        lambda: rng.choice([2**63, 2**40, 10**8, length, 0]).to_bytes(8, "little") + content[8:],
        lambda: content.replace(*(str(rng.randrange(10)).encode() for _ in range(2))),
        lambda: content.replace(storage.FORMAT.encode(), rng.choice([b"ppgp-1", b"ppgp-3", b"pt"])),
        lambda: content.replace(
            b'"checksum"', rng.choice([b'"checksun"', b'"record"', b'"format"'])
        ),
    ]
    return rng.choice(kinds)()


def twisted(tree: Any, rng: random.Random) -> Any:
    """Return a record with some nodes replaced, lost, or put into many nested brackets."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 3])):
        nodes: list[tuple[Any, Any]] = []
        rest = [tree]
        while rest:
            node = rest.pop()
            pairs = (
                node.items()
                if isinstance(node, dict)
                else enumerate(node)
                if isinstance(node, list)
                else ()
            )
            nodes += [(node, key) for key, _ in pairs]
            rest += [value for _, value in pairs if isinstance(value, dict | list)]
        if not nodes:
            return tree
        node, key = rng.choice(nodes)
        kind = rng.randrange(8)
        if kind == 0:
            del node[key]
        elif kind == 1:
            node[key] = [node[key]]
        elif kind == 2:
            other, part = rng.choice(nodes)
            node[key] = copy.deepcopy(other[part])
        else:
            node[key] = copy.deepcopy(rng.choice(HOSTILE))
    return tree


def parts(path: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the record and the tensors of a file."""
    with safe_open(str(path), "pt") as file:
        names = list(file.keys())
        return json.loads(file.metadata()["record"]), {
            name: file.get_tensor(name) for name in names
        }


def with_digest(content: bytes) -> bytes:
    """Return a file with a correct digest, if its header still has the place of one."""
    start = 8 + int.from_bytes(content[:8], "little")
    place = storage.DIGEST.search(content[:start], 8)
    if place is None:
        return content
    before, after = content[: place.start(1)], content[place.end(1) :]
    digest = hashlib.sha256(before + storage.BLANK.encode() + after).hexdigest()
    return before + digest.encode() + after


def forged(content: bytes, before: bytes, after: bytes) -> bytes:
    """Return a file with a part of its header replaced, and a correct length and digest."""
    assert before in content
    start = 8 + int.from_bytes(content[:8], "little")
    header = content[8:start].replace(before, after)
    return with_digest(len(header).to_bytes(8, "little") + header + content[start:])


def fitted() -> dict[str, Posterior]:
    """Return a plain posterior, and one with a network, a product of kernels and names."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    data = ppgp.Dataset(X, X[:, 0] + 3 * X[:, 1], ["east", "north"], "depth")
    deep = kernels.Deep(
        networks.MLP((3,), 2, activation="tanh"),
        kernels.RBF() + kernels.Matern(1.5) * kernels.RBF(),
    )
    return {
        "plain": ppgp.fit(models.GP(), data, inference.Laplace(draws=5), progress=False),
        "deep": ppgp.fit(models.GP(deep), data, inference.MAP(steps=5), progress=False),
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    with pytest.warns():
        return {
            name: posterior.save(folder / f"{name}.ppgp") for name, posterior in fitted().items()
        }


def outcome(path: Path) -> str:
    """Return how loading a file ends."""
    try:
        ppgp.load_posterior(path)
    except StorageError as error:
        return "refused" if "\n" not in str(error) else f"refused in several lines: {error}"
    except BaseException as error:  # a panic of a library is no Exception
        return f"{type(error).__name__}: {error}"
    return "loaded"


def outcomes(path: Path, mutants: Iterator[bytes]) -> dict[str, int]:
    counts: dict[str, int] = {}
    with little_memory():
        for mutant in mutants:
            path.write_bytes(mutant)
            found = outcome(path)
            counts[found] = counts.get(found, 0) + 1
    return counts


MANY = pytest.param(1000, marks=pytest.mark.slow)


@pytest.mark.parametrize("count", [300, MANY])
@pytest.mark.parametrize("name", ["plain", "deep"])
def test_every_damaged_file_is_refused_with_a_storage_error(
    saved: dict[str, Path], tmp_path: Path, name: str, count: int
) -> None:
    content = saved[name].read_bytes()
    rng = random.Random(count)
    mutants = (
        mutant for mutant in (damaged(content, rng) for _ in range(count)) if mutant != content
    )
    assert list(outcomes(tmp_path / "mutant.ppgp", mutants)) == ["refused"]


@pytest.mark.parametrize("count", [60, MANY])
@pytest.mark.parametrize("name", ["gp-nuts", "svgp-deep-svi"])
def test_a_damaged_file_with_its_checksum_loads_or_is_refused(
    tmp_path: Path, name: str, count: int
) -> None:
    content = (FIXTURES / f"{name}.safetensors").read_bytes()
    rng = random.Random(count)
    mutants = (with_digest(damaged(content, rng)) for _ in range(count))
    assert set(outcomes(tmp_path / "mutant.ppgp", mutants)) <= {"loaded", "refused"}


@pytest.mark.parametrize("count", [60, MANY])
@pytest.mark.parametrize("name", ["plain", "deep"])
def test_a_forged_record_with_its_checksum_loads_or_is_refused(
    saved: dict[str, Path], tmp_path: Path, name: str, count: int
) -> None:
    tree, tensors = parts(saved[name])
    rng = random.Random(count)
    path = tmp_path / "mutant.ppgp"
    mutants = (storage.write(path, twisted(tree, rng), tensors).read_bytes() for _ in range(count))
    assert set(outcomes(path, mutants)) <= {"loaded", "refused"}


@pytest.mark.parametrize("deep", [storage.DEEPEST, 10**5, 10**6])
@pytest.mark.parametrize(
    "bracket", ["[", '{"tuple":[', '{"map":[[1,', '{"class":"models.GP","fields":{"kernel":']
)
def test_records_too_deep_to_walk_are_refused(tmp_path: Path, bracket: str, deep: int) -> None:
    path = storage.write(tmp_path / "deep.ppgp", None, {})
    text = json.dumps(bracket * deep)[1:-1]
    path.write_bytes(forged(path.read_bytes(), b'"record":"null"', f'"record":"{text}"'.encode()))
    assert outcome(path) == "refused"


@pytest.mark.parametrize(
    "shape",
    [
        "[1000000000000]",
        "[9223372036854775807,9]",
        "[0,9223372036854775807]",
        "[-1]",
        "[1.5]",
        '"a"',
        "[[2]]",
    ],
)
def test_shapes_that_differ_from_the_data_are_refused(tmp_path: Path, shape: str) -> None:
    tree = {"tuple": [{"tensor": "0"}]}
    path = storage.write(tmp_path / "shape.ppgp", tree, {"0": torch.zeros(2)})
    path.write_bytes(forged(path.read_bytes(), b'"shape":[2]', b'"shape":' + shape.encode()))
    with little_memory():
        assert outcome(path) == "refused"


@pytest.mark.parametrize("model", [3, "GP", {"tuple": []}, {"missing": "AutoNormal"}])
def test_a_forged_model_is_refused(saved: dict[str, Path], tmp_path: Path, model: Any) -> None:
    tree, tensors = parts(saved["plain"])
    tree["fields"] |= {"model": model, "recipe": model}
    path = storage.write(tmp_path / "forged.ppgp", tree, tensors)
    assert outcome(path) in ("refused", "loaded")
