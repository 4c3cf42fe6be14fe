"""Numbers in registers, and the functions of them, as lines of LLVM's language.

exp, log and what is made of them have no branches, so that LLVM computes several numbers of a loop
at once; each is within a few units in the last place. Outside loops they are calls, which are
shorter to compile. Ranges are reduced as in Cody & Waite (1980), and the
series are those of Taylor: of exp on |r| <= ln(2) / 2, and of log((1 + s) / (1 - s)) on
|s| <= 0.172. Others are those of the C library.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

LOG2_E = 1 / math.log(2.0)
#: ln(2) as a number with zeros at its end, so that small multiples are exact, and the rest
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
#: adding it leaves a whole number in the last bits
SHIFTER = 6755399441055744.0
SHIFTER_BITS = struct.unpack("<q", struct.pack("<d", SHIFTER))[0]
ROOT_HALF_BITS = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))[0]
TERMS_OF_EXP, TERMS_OF_LOG = 14, 12
#: exp is 0 below and infinite above
LOWEST, HIGHEST = -746.0, 710.0
#: the series of digamma in 1 / x^2 is used from here on
DIGAMMA_FROM = 8
BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
#: functions of the C library, with the number of their arguments
OF_LIBRARY = {
    "lgamma": 1,
    "erf": 1,
    "erfc": 1,
    "sin": 1,
    "cos": 1,
    "tan": 1,
    "atan": 1,
    "sinh": 1,
    "cosh": 1,
    "pow": 2,
}
FLOAT, BOOL, INT = "double", "i1", "i64"
#: steps of a loop from which several are done at once, and functions are written out
VECTORISED = 8


def library_address(name: str) -> int | None:
    """Return the address of a function of the C library; None if it has none."""
    for library in (None, "libm.so.6", "ucrtbase"):
        try:
            found = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError, TypeError):
            continue
        return ctypes.cast(found, ctypes.c_void_p).value
    return None


@dataclass(frozen=True)
class Register:
    """A number in a register: a float, a whole number or what is true or false.

    Attributes:
        writer: What adds lines.
        name: As LLVM's language has it; that of a constant is its value.
        kind: ``FLOAT``, ``BOOL`` or ``INT``.
    """

    writer: Writer
    name: str
    kind: str = FLOAT

    def _with(self, operation: str, other: Any, left: bool = False) -> Register:
        pair = (self.writer.number(self), self.writer.number(other))
        pair = pair[::-1] if left else pair
        return self.writer.add(f"{operation} double {pair[0].name}, {pair[1].name}")

    def __add__(self, other: Any) -> Register:
        return self._with("fadd", other)

    def __radd__(self, other: Any) -> Register:
        return self._with("fadd", other, True)

    def __sub__(self, other: Any) -> Register:
        return self._with("fsub", other)

    def __rsub__(self, other: Any) -> Register:
        return self._with("fsub", other, True)

    def __mul__(self, other: Any) -> Register:
        return self._with("fmul", other)

    def __rmul__(self, other: Any) -> Register:
        return self._with("fmul", other, True)

    def __truediv__(self, other: Any) -> Register:
        return self._with("fdiv", other)

    def __rtruediv__(self, other: Any) -> Register:
        return self._with("fdiv", other, True)

    def __neg__(self) -> Register:
        return self.writer.add(f"fneg double {as_float(self).name}")

    def __abs__(self) -> Register:
        return self.writer.intrinsic("fabs", self)

    def compared(self, how: str, other: Any) -> Register:
        """Return whether ``self how other`` holds, with ``how`` as LLVM has it."""
        pair = (as_float(self), self.writer.number(other))
        return self.writer.add(f"fcmp {how} double {pair[0].name}, {pair[1].name}", BOOL)

    def __lt__(self, other: Any) -> Register:
        return self.compared("olt", other)

    def __gt__(self, other: Any) -> Register:
        return self.compared("ogt", other)

    def __le__(self, other: Any) -> Register:
        return self.compared("ole", other)

    def __ge__(self, other: Any) -> Register:
        return self.compared("oge", other)


class Writer:
    """The lines of one function of LLVM's language.

    Args:
        inline: Whether functions are written out wherever they are used.

    Attributes:
        lines: The lines so far.
        called: The functions that must be declared: ``{name: number of arguments}``.
        defined: The lines of the functions of this module that are called, and of its constants.
        routines: The routines of LAPACK and BLAS that are called.
        block: The name of the current block.
        steps: How often the current lines run.
    """

    def __init__(self, inline: bool = False) -> None:
        self.lines: list[str] = []
        self.called: dict[str, int] = {}
        self.defined: dict[str, list[str]] = {}
        self.routines: set[str] = set()
        self.block = "entry"
        self.steps = 1
        self._inline = inline
        self._count = 0

    def fresh(self, prefix: str = "%v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def add(self, text: str, kind: str = FLOAT) -> Register:
        """Add a line that computes a number; return its register."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Register(self, name, kind)

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def number(self, value: Any) -> Register:
        """Return the register of a number of Python; a register is returned as it is."""
        if isinstance(value, Register):
            return as_float(value)
        (bits,) = struct.unpack("<Q", struct.pack("<d", float(value)))
        return Register(self, f"0x{bits:016X}")

    def truth(self, value: bool) -> Register:
        return Register(self, "true" if value else "false", BOOL)

    def intrinsic(self, name: str, *values: Register) -> Register:
        """Call a function that LLVM knows."""
        full = f"llvm.{name}.f64"
        self.called[full] = len(values)
        given = ", ".join(f"double {as_float(v).name}" for v in values)
        return self.add(f"call double @{full}({given})")

    def outlined(self, function: Function, x: Register) -> Register:
        """Return a function of one number: written out in a loop, called elsewhere."""
        x = as_float(x)
        if self._inline or self.steps >= VECTORISED:
            return function(x)
        name = f"ppgp_{function.__name__}"
        if name not in self.defined:
            self.defined[name] = []
            inner = Writer(inline=True)
            found = function(Register(inner, "%x"))
            self.called |= inner.called
            head = f"define internal double @{name}(double %x) noinline {{"
            self.defined[name] = [head, *inner.lines, f"  ret double {found.name}", "}"]
        return self.add(f"call double @{name}(double {x.name})")

    def library(self, name: str, *values: Register) -> Register:
        """Call a function of the C library."""
        self.called[name] = len(values)
        given = ", ".join(f"double {as_float(v).name}" for v in values)
        return self.add(f"call double @{name}({given})")

    def select(self, condition: Register, x: Any, y: Any) -> Register:
        """Return x where the condition holds and y elsewhere."""
        if isinstance(x, Register) and isinstance(y, Register) and x.kind == y.kind == BOOL:
            return self.add(f"select i1 {condition.name}, i1 {x.name}, i1 {y.name}", BOOL)
        x, y = self.number(x), self.number(y)
        return self.add(f"select i1 {condition.name}, double {x.name}, double {y.name}")

    def logic(self, operation: str, x: Register, y: Register) -> Register:
        return self.add(f"{operation} i1 {x.name}, {y.name}", BOOL)

    def bits(self, x: Register) -> Register:
        return self.add(f"bitcast double {x.name} to i64", INT)

    def of_bits(self, x: Register) -> Register:
        return self.add(f"bitcast i64 {x.name} to double")

    def whole(self, operation: str, x: Register, y: int | Register) -> Register:
        """Return the result of an operation on whole numbers."""
        other = y.name if isinstance(y, Register) else str(y)
        return self.add(f"{operation} i64 {x.name}, {other}", INT)


Function = Callable[[Register], Register]


def called_outside_loops(function: Function) -> Function:
    """Decorator: a function is a call where its lines would run few times."""

    @wraps(function)
    def called(x: Register) -> Register:
        return x.writer.outlined(function, x)

    return called


def as_float(x: Register) -> Register:
    """Return 1 or 0 for what is true or false, and a whole number as a float."""
    if x.kind == BOOL:
        return x.writer.add(f"uitofp i1 {x.name} to double")
    if x.kind == INT:
        return x.writer.add(f"sitofp i64 {x.name} to double")
    return x


def polynomial(x: Register, coefficients: Sequence[float]) -> Register:
    """Return sum_k c_k x^k, by Horner's rule."""
    *rest, last = coefficients
    total = x.writer.number(last)
    for c in reversed(rest):
        total = x.writer.intrinsic("fmuladd", total, x, x.writer.number(c))
    return total


def is_nan(x: Register) -> Register:
    """Return whether a number is NaN."""
    return x.compared("uno", x)


def _powers_of_two(x: Register) -> tuple[Register, Register, Register]:
    """Return r, 2^a and 2^b with x = r + (a + b) ln 2; both powers are normal numbers."""
    w = x.writer
    x = w.select(x < LOWEST, LOWEST, x)
    x = w.select(x > HIGHEST, HIGHEST, x)
    shifted = w.intrinsic("fmuladd", x, w.number(LOG2_E), w.number(SHIFTER))
    k = shifted - SHIFTER
    r = w.intrinsic("fmuladd", k, w.number(-LN2_HIGH), x)
    r = w.intrinsic("fmuladd", k, w.number(-LN2_LOW), r)
    half = w.intrinsic("fmuladd", k, w.number(0.5), w.number(SHIFTER))
    a = half - SHIFTER
    rest = (k - a) + SHIFTER
    powers = [
        w.of_bits(w.whole("shl", w.whole("add", w.bits(part), 1023 - SHIFTER_BITS), 52))
        for part in (half, rest)
    ]
    return r, powers[0], powers[1]


@called_outside_loops
def exp(x: Register) -> Register:
    """Return e^x."""
    r, a, b = _powers_of_two(x)
    series = polynomial(r, [1 / math.factorial(i) for i in range(TERMS_OF_EXP + 1)])
    return (series * a) * b


@called_outside_loops
def expm1(x: Register) -> Register:
    """Return exp(x) - 1, from the series without its first term."""
    w = x.writer
    r, a, b = _powers_of_two(x)
    series = r * polynomial(r, [1 / math.factorial(i) for i in range(1, TERMS_OF_EXP + 2)])
    both = a * b
    near = both * series + (both - 1.0)
    far = ((series + 1.0) * a) * b
    found = w.select(x > 700.0, far, near)
    # the sign of zero
    return w.select(x.compared("oeq", 0.0), x, found)


@called_outside_loops
def log(x: Register) -> Register:
    """Return the natural logarithm: -inf at 0, NaN below."""
    w = x.writer
    tiny = x < 2.2250738585072014e-308
    scaled = w.select(tiny, x * 2.0**54, x)
    bits = w.bits(scaled)
    e = w.whole("ashr", w.whole("sub", bits, ROOT_HALF_BITS), 52)
    m = w.of_bits(w.whole("sub", bits, w.whole("shl", e, 52)))
    k = w.of_bits(w.whole("add", e, SHIFTER_BITS)) - SHIFTER
    k = k - w.select(tiny, 54.0, 0.0)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    # log((1 + s) / (1 - s)) = 2 s + s R(z), and 2 s = f - s f
    series = z * polynomial(z, [2 / (2 * i + 1) for i in range(1, TERMS_OF_LOG)])
    low = s * (series - f) + k * LN2_LOW
    found = k * LN2_HIGH + (f + low)
    found = w.select(x.compared("oeq", math.inf), math.inf, found)
    found = w.select(x.compared("oeq", 0.0), -math.inf, found)
    return w.select(x.compared("ult", 0.0), math.nan, found)


@called_outside_loops
def log1p(x: Register) -> Register:
    """Return log(1 + x), with the rounding of 1 + x made good (Kahan)."""
    w = x.writer
    u = x + 1.0
    lost = (x - (u - 1.0)) / u
    found = log(u) + lost
    found = w.select(u.compared("oeq", 0.0), -math.inf, found)
    found = w.select(x.compared("oeq", math.inf), math.inf, found)
    return w.select(x.compared("oeq", 0.0), x, found)


def tanh(x: Register) -> Register:
    """Return the hyperbolic tangent."""
    w = x.writer
    size = abs(x)
    size = w.select(size > 22.0, 22.0, size)
    t = expm1(size * 2.0)
    return w.intrinsic("copysign", t / (t + 2.0), x)


def sigmoid(x: Register) -> Register:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (exp(-x) + 1.0)


def softplus(x: Register, beta: float = 1.0, threshold: float = 20.0) -> Register:
    """Return log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""
    w = x.writer
    scaled = x * beta
    return w.select(scaled > threshold, x, log1p(exp(scaled)) / beta)


def log_sigmoid(x: Register) -> Register:
    """Return log(1 / (1 + exp(-x)))."""
    w = x.writer
    return w.select(x < 0.0, x, 0.0) - log1p(exp(-abs(x)))


@called_outside_loops
def digamma(x: Register) -> Register:
    """Return psi(x), by psi(x) = psi(x + 1) - 1 / x and its asymptotic series."""
    w = x.writer
    negative = x < 0.0
    y = w.select(negative, 1.0 - x, x)
    shift = w.number(0.0)
    for _ in range(DIGAMMA_FROM):
        small = y < float(DIGAMMA_FROM)
        shift = shift + w.select(small, 1.0 / y, 0.0)
        y = y + w.select(small, 1.0, 0.0)
    z = 1.0 / (y * y)
    found = log(y) - 0.5 / y - z * polynomial(z, BERNOULLI) - shift
    fraction = x - w.intrinsic("rint", x)
    reflected = found - math.pi / w.library("tan", fraction * math.pi)
    found = w.select(negative, reflected, found)
    pole = w.logic("and", negative, fraction.compared("oeq", 0.0))
    found = w.select(pole, math.nan, found)
    return w.select(x.compared("oeq", 0.0), w.intrinsic("copysign", w.number(math.inf), -x), found)


def maximum(x: Register, y: Register) -> Register:
    """Return the larger of two numbers, and NaN where one is."""
    w = x.writer
    return w.select(x.compared("uge", y), w.select(is_nan(y), y, x), y)


def minimum(x: Register, y: Register) -> Register:
    """Return the smaller of two numbers, and NaN where one is."""
    w = x.writer
    return w.select(x.compared("ule", y), w.select(is_nan(y), y, x), y)


def power(x: Register, y: Any) -> Register:
    """Return x^y; ``y`` is a register or a number."""
    w = x.writer
    if isinstance(y, Register):
        return w.library("pow", x, y)
    if y == 1:
        return x
    if y == 2:
        return x * x
    if y == 3:
        return x * x * x
    if y == 0.5:
        return w.intrinsic("sqrt", x)
    if y == -0.5:
        return 1.0 / w.intrinsic("sqrt", x)
    if y == -1:
        return 1.0 / x
    if y == -2:
        return 1.0 / (x * x)
    if y == 0:
        return w.number(1.0)
    return w.library("pow", x, w.number(y))


def xlogy(x: Register, y: Register) -> Register:
    """Return x log(y): 0 where x is 0, unless y is NaN."""
    w = x.writer
    found = w.select(x.compared("oeq", 0.0), 0.0, x * log(y))
    return w.select(is_nan(y), y, found)


def of_library(name: str) -> Callable[[Register], Register]:
    """Return a function of the C library as one of registers."""

    def called(x: Register) -> Register:
        return x.writer.library(name, x)

    return called


#: functions of one number
FUNCTIONS: dict[str, Callable[[Register], Register]] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "digamma": digamma,
    "sqrt": lambda x: x.writer.intrinsic("sqrt", x),
    "rsqrt": lambda x: 1.0 / x.writer.intrinsic("sqrt", x),
    "neg": lambda x: -x,
    "abs": abs,
    "reciprocal": lambda x: 1.0 / x,
    "relu": lambda x: maximum(x, x.writer.number(0.0)),
    **{name: of_library(name) for name, count in OF_LIBRARY.items() if count == 1},
}
