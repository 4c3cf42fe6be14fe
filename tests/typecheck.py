"""Types and shapes are checked in every function of ppgp that the tests call.

jaxtyping checks the functions whose hints have shapes. beartype alone checks the others, at a tenth
of the time of a call. An int is accepted for a float, as in PEP 484's numeric tower.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, get_args, get_type_hints

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep585DeprecationWarning
from jaxtyping import AbstractArray, config, jaxtyped

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))
DECORATOR = "_checked_in_tests"
IMPORT = f"from typecheck import checked as {DECORATOR}"
COMPILED = f".checked{zlib.crc32(Path(__file__).read_bytes()):08x}.pyc"

# A closure is made anew at each call of the function around it, from one code.
_of_codes: dict[int, tuple[CodeType, FunctionType | None]] = {}


def typechecker(function: Any) -> Any:
    """Return beartype's function, whatever the warning filters are where it is first called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeartypeDecorHintPep585DeprecationWarning)
        return _beartype(function)


def checked(thing: Any) -> Any:
    """Return the function with its types checked; of a dataclass, check what it is made from."""
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = checked(thing.__init__)
        return thing
    if not isinstance(thing, FunctionType) or hasattr(thing, "__wrapped__"):
        return thing
    strict = None

    @functools.wraps(thing)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal strict
        if config.jaxtyping_disable:
            return thing(*args, **kwargs)
        if strict is None:  # most functions of a module are not called by the tests of a file
            strict = _strict(thing)
        return strict(*args, **kwargs)

    return wrapped


def _strict(function: FunctionType) -> Callable[..., Any]:
    """Return the function that checks its arguments and what it returns."""
    code = function.__code__
    if id(code) not in _of_codes:
        _of_codes[id(code)] = code, _without_shapes(function)
    checker = _of_codes[id(code)][1]
    if checker is None:
        return jaxtyped(function, typechecker=typechecker)
    return _calling(checker, function)


def _without_shapes(function: FunctionType) -> FunctionType | None:
    """Return beartype's function around one of this code, or None if jaxtyping has to check it."""
    hints = {name: _resolved(hint, function) for name, hint in function.__annotations__.items()}
    if any(map(_has_shapes, hints.values())):
        return None
    # what is kept for all closures of this code holds no variable of one of them
    cells = tuple(CellType() for _ in function.__code__.co_freevars)
    bare = FunctionType(
        function.__code__, function.__globals__, function.__name__, closure=cells or None
    )
    bare.__module__, bare.__qualname__ = function.__module__, function.__qualname__
    bare.__annotations__ = hints
    if "<locals>" not in function.__qualname__:
        bare.__defaults__, bare.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return typechecker(bare)


def _calling(checker: FunctionType, function: FunctionType) -> Callable[..., Any]:
    """Return beartype's function around this one."""
    if "__beartype_func" not in (checker.__kwdefaults__ or {}):
        return function  # it has no hint that could fail
    strict = FunctionType(checker.__code__, checker.__globals__, checker.__name__)
    strict.__kwdefaults__ = {**checker.__kwdefaults__, "__beartype_func": function}
    return strict


def _resolved(hint: Any, function: FunctionType) -> Any:
    """Return what the hint says, or Any for names that only a type checker imports."""
    one = FunctionType((lambda: None).__code__, function.__globals__)
    one.__annotations__ = {"value": hint}
    try:
        return get_type_hints(one, include_extras=True)["value"]
    except Exception:  # of whatever kind, as in jaxtyping
        return Any


def _has_shapes(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(map(_has_shapes, get_args(hint)))


class Loader(SourceFileLoader):
    """Compile modules with ``checked`` on each function and class, and keep what is compiled."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = ast.parse(data, path)
        for node in list(ast.walk(tree)):
            if isinstance(node, ast.FunctionDef):  # the function itself, before other decorators
                node.decorator_list.append(_decorator(node))
            elif isinstance(node, ast.ClassDef):  # after @dataclass
                node.decorator_list.insert(0, _decorator(node))
        futures = [i for i, node in enumerate(tree.body) if _is_future(node)]
        after = max(futures, default=0) + 1  # the docstring, which every module has
        tree.body[after:after] = ast.parse(IMPORT).body
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_data(self, path: str) -> bytes:
        return super().get_data(_renamed(path))

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        super().set_data(_renamed(path), data, _mode=_mode)


class Finder(MetaPathFinder):
    """Find the modules of one package for the loader above."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def _renamed(path: str) -> str:
    """Return the path under which a module is kept as compiled here, not as users have it."""
    return path.removesuffix(".pyc") + COMPILED if path.endswith(".pyc") else path


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _decorator(node: ast.stmt) -> ast.expr:
    return ast.copy_location(ast.Name(DECORATOR, ast.Load()), node)


def install(package: str) -> None:
    """Check the types of a package that is imported after this call."""
    sys.meta_path.insert(0, Finder(package))
