"""Matrices in machine code: factors, solves, inverses and products by LAPACK and BLAS.

SciPy has both libraries, with an address for each routine (``scipy.linalg.cython_lapack`` and
``cython_blas``). Matrices are column-major here, as in Fortran: the entry (i, j) lies at
``i + j * leading``. All routines are those of double precision.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from .machine_math import INT, Register, Writer

#: what precedes the name of a routine in the language of LLVM
PREFIX = "scipy_"
#: the module of each routine, and the number of its arguments, all of which are pointers
ROUTINES = {
    "dpotrf": ("cython_lapack", 5),
    "dpotri": ("cython_lapack", 5),
    "dtrsm": ("cython_blas", 11),
    "dtrsv": ("cython_blas", 8),
    "dgemm": ("cython_blas", 13),
}
BLOCK = 8  # rows and columns of a block that is mirrored at once


@dataclass(frozen=True)
class Matrix:
    """Where a matrix is.

    Attributes:
        at: The pointer to its first entry, as the language of LLVM names it.
        leading: The distance of two columns, in numbers.
        transposed: Whether the transpose of the matrix lies there.
    """

    at: str
    leading: int
    transposed: bool = False

    @property
    def order(self) -> str:
        """Whether a routine reads it as it lies, "N", or transposed, "T"."""
        return "T" if self.transposed else "N"


def factorised(w: Writer, matrix: Matrix, n: int, info: str) -> Register:
    """Replace the lower triangle of a matrix by its Cholesky factor; the rest is left as it is.

    Args:
        w: What adds lines.
        matrix: [n, n], not transposed.
        n: The number of its rows.
        info: A pointer to a whole number of 32 bits, which is overwritten.

    Returns:
        The number of the leading minor that is not positive definite; 0 if there is none.
    """
    _call(w, "dpotrf", "L", n, matrix, matrix.leading, info)
    return _loaded(w, info)


def inverted(w: Writer, factor: Matrix, n: int, info: str) -> Register:
    """Replace a lower Cholesky factor L by the inverse of L L', both triangles of it.

    Arguments are those of ``factorised``.

    Returns:
        The number of a zero on the diagonal of L, where there is no inverse; 0 if there is none.
    """
    _call(w, "dpotri", "L", n, factor, factor.leading, info)
    found = _loaded(w, info)
    name = "ppgp_mirrored"
    w.defined.setdefault(name, _mirroring(name))
    w.line(f"call void @{name}(ptr {factor.at}, i64 {n}, i64 {factor.leading})")
    return found


def solve_into(
    w: Writer, triangle: Matrix, right: Matrix, shape: tuple[int, int], upper: bool, unit: bool
) -> None:
    """Replace B [n, m] by the solution X of A X = B, for a triangular A [n, n].

    Args:
        w: What adds lines.
        triangle: A.
        right: B. Where it is transposed, so is what takes its place.
        shape: The numbers n and m.
        upper: Whether A is an upper triangle.
        unit: Whether the diagonal of A is taken for ones.
    """
    n, m = shape
    half = "U" if upper != triangle.transposed else "L"
    diagonal = "U" if unit else "N"
    order, leading = triangle.order, triangle.leading
    if m == 1 and (not right.transposed or right.leading == 1):
        _call(w, "dtrsv", half, order, diagonal, n, triangle, leading, right, 1)
    elif right.transposed:  # X' A' = B'
        order = "N" if triangle.transposed else "T"
        rest = (m, n, 1.0, triangle, leading, right, right.leading)
        _call(w, "dtrsm", "R", half, order, diagonal, *rest)
    else:
        rest = (n, m, 1.0, triangle, leading, right, right.leading)
        _call(w, "dtrsm", "L", half, order, diagonal, *rest)


def multiplied(
    w: Writer, left: Matrix, right: Matrix, there: Matrix, shape: tuple[int, int, int], beta: float
) -> None:
    """Replace C [n, m] by A B + beta C, for A [n, k] and B [k, m].

    Args:
        w: What adds lines.
        left: A.
        right: B.
        there: C, transposed: its rows lie one after the other.
        shape: The numbers n, k and m.
        beta: The factor of C; 0 if it is not read.
    """
    n, k, m = shape
    # C' = B' A'
    orders = ["N" if matrix.transposed else "T" for matrix in (right, left)]
    parts = (right, right.leading, left, left.leading, beta, there, there.leading)
    _call(w, "dgemm", *orders, m, n, k, 1.0, *parts)


def _call(w: Writer, name: str, *arguments: Any) -> None:
    """Call a routine, each of whose arguments is a pointer."""
    pointers = [f"ptr {_pointer(w, argument)}" for argument in arguments]
    w.routines.add(name)
    w.line(f"call void @{PREFIX}{name}({', '.join(pointers)})")


def _pointer(w: Writer, argument: Any) -> str:
    """Return the pointer to an argument; a letter or number becomes a constant of the module."""
    match argument:
        case Matrix():
            return argument.at
        case str() if argument.startswith("%"):
            return argument
        case str():
            name, value = f"@letter_{argument}", f"i8 {ord(argument)}"
        case int():
            name, value = f"@whole_{argument}", f"i32 {argument}"
        case _:
            number = w.number(argument).name
            name, value = f"@number_{number}", f"double {number}"
    w.defined.setdefault(name, [f"{name} = private unnamed_addr constant {value}"])
    return name


def _loaded(w: Writer, info: str) -> Register:
    """Return the whole number of 32 bits at a pointer."""
    found = w.add(f"load i32, ptr {info}", INT)
    return w.add(f"sext i32 {found.name} to i64", INT)


def _mirroring(name: str) -> list[str]:
    """Return a function that copies the lower triangle of a matrix to the upper one.

    It takes blocks of columns, as numbers of one column lie on as many lines of the cache as it has
    rows where they are read along a row.
    """
    return f"""
define internal void @{name}(ptr %a, i64 %n, i64 %leading) noinline {{
entry:
  br label %block
block:
  %first = phi i64 [ 0, %entry ], [ %next, %ended ]
  %next = add i64 %first, {BLOCK}
  %inside = icmp slt i64 %next, %n
  %last = select i1 %inside, i64 %next, i64 %n
  %below = add i64 %first, 1
  %rows = icmp slt i64 %below, %n
  br i1 %rows, label %row, label %ended
row:
  %i = phi i64 [ %below, %block ], [ %i2, %row_ended ]
  %upto = icmp slt i64 %i, %last
  %stop = select i1 %upto, i64 %i, i64 %last
  %there = mul i64 %i, %leading
  br label %column
column:
  %j = phi i64 [ %first, %row ], [ %j2, %column ]
  %here = mul i64 %j, %leading
  %from = add i64 %here, %i
  %to = add i64 %there, %j
  %p = getelementptr inbounds double, ptr %a, i64 %from
  %q = getelementptr inbounds double, ptr %a, i64 %to
  %x = load double, ptr %p
  store double %x, ptr %q
  %j2 = add i64 %j, 1
  %more = icmp slt i64 %j2, %stop
  br i1 %more, label %column, label %row_ended
row_ended:
  %i2 = add i64 %i, 1
  %rest = icmp slt i64 %i2, %n
  br i1 %rest, label %row, label %ended
ended:
  br i1 %inside, label %block, label %done
done:
  ret void
}}""".split("\n")


def declared(names: set[str]) -> list[str]:
    """Return the lines that declare routines."""
    return [
        f"declare void @{PREFIX}{name}({', '.join(['ptr'] * ROUTINES[name][1])})"
        for name in sorted(names)
    ]


@cache
def addresses() -> dict[str, int]:
    """Return the address of each routine, by its name in the language of LLVM.

    Raises:
        ImportError: If SciPy's routines take other whole numbers than those of 32 bits.
    """
    found: dict[str, int] = {}
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for name, (module, count) in ROUTINES.items():
        capsule: Any = import_module(f"scipy.linalg.{module}").__pyx_capi__[name]
        signature = name_of(capsule)
        if signature.count(b" *") != count or b"int *" not in signature:
            raise ImportError(f"scipy.linalg.{module}.{name} is {signature.decode()}")
        found[PREFIX + name] = pointer_of(capsule, signature)
    return found
