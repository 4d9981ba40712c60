"""Vectors of numbers for compiled kernels: one row of a tile, all its examples at once.

A `Lanes` value is a vector of the machine (or as many of them as it takes), so a kernel that
is written in it says what is done in parallel, and need not hope that the compiler finds it.
Rows are read from two shapes of arrays: `(n, TILE)`, one lane per example of a tile, and
`(n,)`, one example alone. The same kernel compiles for both.

Nothing here reorders a sum, so an example's value depends on neither its batch nor its lane.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

from latentgamma.program.compilation import compile_loop

#: Examples in a tile.
TILE = 16

#: What numba sees while it compiles: types, a code builder, values. None of it has stubs.
Any_: TypeAlias = Any
Signature: TypeAlias = tuple[Any, Callable[..., Any]]


class Lanes(types.Type):
    """The type of a vector of `count` floating-point numbers."""

    def __init__(self, dtype: Any_, count: int) -> None:
        self.dtype = dtype
        self.count = count
        super().__init__(name=f"Lanes({dtype} x {count})")


def _vector(kind: Lanes) -> Any_:
    scalar = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
    return ir.VectorType(scalar, kind.count)


class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any_, kind: Lanes) -> None:
        super().__init__(manager, kind, _vector(kind))  # type: ignore[no-untyped-call]


register_model(Lanes)(_LanesModel)


def code_of(build: Callable[..., Signature | None]) -> Callable[..., Any]:
    """Return the intrinsic that numba makes of a function from argument types to code."""
    made: Callable[..., Any] = intrinsic(build)
    return made


def _whole(kind: Lanes, value: float) -> Any_:
    return ir.Constant(_vector(kind), [value] * kind.count)


def _splat(builder: Any_, kind: Lanes, given: Any_, value: Any_) -> Any_:
    """Return a number as a vector that has it in every lane; a vector as it is."""
    if isinstance(given, Lanes):
        return value
    vector = _vector(kind)
    if given != kind.dtype:
        cast = builder.fptrunc if kind.dtype == types.float32 else builder.fpext
        value = cast(value, vector.element)
    empty = ir.Constant(vector, ir.Undefined)
    index = ir.IntType(32)
    one = builder.insert_element(empty, value, index(0))
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(index, kind.count), None))


def _function(builder: Any_, name: str, kind: Any_) -> Any_:
    """Return a function that the code generator provides."""
    found = builder.module.globals.get(name)
    return ir.Function(builder.module, kind, name) if found is None else found


# ---- Memory


def _at(array: Any_, count: int) -> Callable[..., Any]:
    """Return code for the address of the index-th `count` numbers in memory, as a vector's."""

    def address(context: Any_, builder: Any_, given: Any_, index: Any_, index_type: Any_) -> Any_:
        wide = context.cast(builder, index, index_type, types.intp)
        start = builder.mul(wide, context.get_constant(types.intp, count))
        data = context.make_array(array)(context, builder, given).data
        place = builder.gep(data, [start])
        return builder.bitcast(place, _vector(Lanes(array.dtype, count)).as_pointer())

    return address


def _load(count_of: Callable[[Any_], int]) -> Callable[..., Signature | None]:
    def build(typing: Any_, array: Any_, index: Any_) -> Signature | None:
        count = count_of(array)
        kind = Lanes(array.dtype, count)
        address = _at(array, count)

        def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
            place = address(context, builder, *args, index)
            return builder.load(place, align=array.dtype.bitwidth // 8)

        return kind(array, index), code

    return build


def _store(count_of: Callable[[Any_], int]) -> Callable[..., Signature | None]:
    def build(typing: Any_, array: Any_, index: Any_, value: Any_) -> Signature | None:
        count = count_of(array)
        kind = Lanes(array.dtype, count)
        address = _at(array, count)

        def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
            place = address(context, builder, args[0], args[1], index)
            whole = _splat(builder, kind, value, args[2])
            builder.store(whole, place, align=array.dtype.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(array, index, value), code

    return build


def _width(array: Any_) -> int:
    return TILE if array.ndim == 2 else 1


def _tile(array: Any_) -> int:
    return TILE


#: row(array, i): row i, one lane per example.  put(array, i, value): the same, written.
row = code_of(_load(_width))
put = code_of(_store(_width))
#: group(array, g): the g-th TILE numbers in the order of memory, whichever rows they are.
group = code_of(_load(_tile))
put_group = code_of(_store(_tile))


@code_of
def fetch(typing: Any_, array: Any_, index: Any_) -> Signature | None:
    """Ask for row `index` to be brought into the cache; nothing waits for it."""
    address = _at(array, _width(array))

    def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
        place = address(context, builder, *args, index)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = _function(builder, "llvm.prefetch.p0", kind)
        # For reading, to be kept in all caches, as data.
        builder.call(function, [builder.bitcast(place, byte), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, index), code


# ---- Arithmetic


def _common(*given: Any_) -> Lanes | None:
    return next((kind for kind in given if isinstance(kind, Lanes)), None)


def _lanewise(combine: Callable[..., Any], *given: Any_) -> Signature | None:
    """Return an operation on vectors or numbers of these types; `combine` makes code for vectors."""
    kind = _common(*given)
    if kind is None:
        return None

    def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
        pairs = zip(given, args, strict=True)
        return combine(builder, *(_splat(builder, kind, t, value) for t, value in pairs))

    return kind(*given), code


def _with_operator(symbol: Any_, name: str) -> None:
    def build(typing: Any_, a: Any_, b: Any_) -> Signature | None:
        return _lanewise(lambda builder, x, y: getattr(builder, name)(x, y), a, b)

    made = code_of(build)

    def typed(a: Any_, b: Any_) -> Callable[..., Any] | None:
        # numba wants a plain function here, not an intrinsic.
        return None if _common(a, b) is None else lambda a, b: made(a, b)  # noqa: PLW0108

    overload(symbol, strict=False)(typed)


_with_operator(operator.add, "fadd")
_with_operator(operator.sub, "fsub")
_with_operator(operator.mul, "fmul")
_with_operator(operator.truediv, "fdiv")


def _fused(builder: Any_, a: Any_, b: Any_, c: Any_) -> Any_:
    """Return a·b + c, rounded once where the machine can."""
    name = f"llvm.fmuladd.v{a.type.count}{'f32' if a.type.element == ir.FloatType() else 'f64'}"
    function = _function(builder, name, ir.FunctionType(a.type, [a.type] * 3))
    return builder.call(function, [a, b, c])


@code_of
def fma(typing: Any_, a: Any_, b: Any_, c: Any_) -> Signature | None:
    """Return a·b + c of vectors or numbers."""
    return _lanewise(_fused, a, b, c)


def _filled(count_of: Callable[[Any_], int]) -> Callable[..., Signature | None]:
    def build(typing: Any_, array: Any_, value: Any_) -> Signature | None:
        kind = Lanes(array.dtype, count_of(array))

        def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
            return _splat(builder, kind, value, args[1])

        return kind(array, value), code

    return build


#: row_of(array, value), group_of(array, value): this value in every lane.
row_of = code_of(_filled(_width))
group_of = code_of(_filled(_tile))


@code_of
def widen(typing: Any_, a: Any_) -> Signature | None:
    """Return the same numbers in float64, for long sums."""
    kind, code = _converted(a, types.float64)
    return kind(a), code


@code_of
def narrow(typing: Any_, a: Any_, array: Any_) -> Signature | None:
    """Return the same numbers in the dtype of an array."""
    kind, code = _converted(a, array.dtype)
    return kind(a, array), code


def _converted(a: Any_, dtype: Any_) -> tuple[Lanes, Callable[..., Any]]:
    """Return the type of vectors of another dtype, and code for one from a vector."""
    kind = Lanes(dtype, a.count)

    def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
        cast = builder.fpext if dtype == types.float64 else builder.fptrunc
        return args[0] if a == kind else cast(args[0], _vector(kind))

    return kind, code


@code_of
def lanes_sum(typing: Any_, a: Any_) -> Signature | None:
    """Return the sum over the lanes, in float64, from the first lane to the last."""

    def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
        total = ir.Constant(ir.DoubleType(), 0.0)
        for lane in range(a.count):
            one = builder.extract_element(args[0], ir.IntType(32)(lane))
            wide = one if a.dtype == types.float64 else builder.fpext(one, ir.DoubleType())
            total = builder.fadd(total, wide)
        return total

    return types.float64(a), code


def _choice(relation: str) -> Callable[..., Signature | None]:
    def select(builder: Any_, left: Any_, right: Any_, if_so: Any_, if_not: Any_) -> Any_:
        return builder.select(builder.fcmp_ordered(relation, left, right), if_so, if_not)

    def build(typing: Any_, a: Any_, b: Any_, yes: Any_, no: Any_) -> Signature | None:
        return _lanewise(select, a, b, yes, no)

    return build


#: where_…(a, b, yes, no): `yes` in the lanes where a > b, a ≥ b, a = b, else `no`. A NaN is
#: neither above nor equal, so it takes the way of `no`.
where_above = code_of(_choice(">"))
where_reaches = code_of(_choice(">="))
where_equal = code_of(_choice("=="))


# ---- Exp

#: exp(r) ≈ 1 + r + r² (c0 + c1 r + …) for |r| ≤ ln 2 / 2. In float32 the coefficients are
#: fitted to the least greatest relative error, 0.05 roundoffs; in float64 they are 1/n!.
_POLYNOMIAL = {
    types.float32: (
        0.49999993431891104,
        0.16666520396770756,
        0.0416683908313154,
        0.008368745320043143,
        0.0013814537893569246,
    ),
    types.float64: tuple(1 / math.factorial(n) for n in range(2, 14)),
}
#: ln 2 in two parts; the first has so few digits that its product with an exponent is exact.
_LN2 = {
    types.float32: (0.693359375, -2.12194440054690583e-4),
    types.float64: (0.693147180369123816490, 1.90821492927058770002e-10),
}
#: Below these exp is less than the least normal number, and comes out as 0.
_LEAST = {types.float32: -87.33654022216797, types.float64: -708.39641853226408}


@code_of
def exp_minus_abs(typing: Any_, a: Any_) -> Signature | None:
    """Return e^−|a|, to about one unit in the last place; 0 where that would be subnormal."""
    mantissa = 23 if a.dtype == types.float32 else 52
    integer = ir.VectorType(ir.IntType(32 if mantissa == 23 else 64), a.count)

    def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
        vector = _vector(a)
        # Setting the sign bit is −|a|; a NaN stays one, and so shows in the result.
        sign = ir.Constant(integer, [1 << (31 if mantissa == 23 else 63)] * a.count)
        y = builder.bitcast(builder.or_(builder.bitcast(args[0], integer), sign), vector)
        # Adding 1.5·2^mantissa rounds y / ln 2 to a whole number n and leaves n in the low bits.
        magic = _whole(a, 1.5 * 2.0**mantissa)
        shifted = _fused(builder, y, _whole(a, 1.4426950408889634), magic)
        n = builder.fsub(shifted, magic)
        high, low = _LN2[a.dtype]
        r = _fused(builder, n, _whole(a, -high), y)
        r = _fused(builder, n, _whole(a, -low), r)
        *rest, last = _POLYNOMIAL[a.dtype]
        tail = _whole(a, last)
        for coefficient in reversed(rest):
            tail = _fused(builder, tail, r, _whole(a, coefficient))
        tail = _fused(builder, builder.fmul(r, r), tail, r)
        value = builder.fadd(tail, _whole(a, 1.0))
        # Adding n to the exponent's bits multiplies by 2^n.
        power = builder.shl(
            builder.bitcast(shifted, integer), ir.Constant(integer, [mantissa] * a.count)
        )
        scaled = builder.bitcast(builder.add(builder.bitcast(value, integer), power), vector)
        gone = builder.fcmp_ordered("<", y, _whole(a, _LEAST[a.dtype]))
        return builder.select(gone, _whole(a, 0.0), scaled)

    return a(a), code


# ---- Log

#: How many terms of log m = 2 (z + z³/3 + z⁵/5 + …), z = (m − 1) / (m + 1), reach full precision
#: where ½ ≤ m² ≤ 2.
_LOG_TERMS = {types.float32: 5, types.float64: 11}


@code_of
def log(typing: Any_, a: Any_) -> Signature | None:
    """Return the natural logarithm of positive normal numbers, to about two last digits."""
    mantissa = 23 if a.dtype == types.float32 else 52
    integer = ir.VectorType(ir.IntType(32 if mantissa == 23 else 64), a.count)

    def code(context: Any_, builder: Any_, _: Any_, args: Any_) -> Any_:
        vector = _vector(a)

        def constant(value: int) -> Any_:
            return ir.Constant(integer, [value] * a.count)

        # Shifted so that the mantissa m lies in [√½, √2): then log m has no bias at either end.
        root = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}[mantissa]
        bits = builder.sub(builder.bitcast(args[0], integer), constant(root))
        exponent = builder.ashr(bits, constant(mantissa))
        low = builder.and_(bits, constant((1 << mantissa) - 1))
        m = builder.bitcast(builder.add(low, constant(root)), vector)
        n = builder.sitofp(exponent, vector)
        one = _whole(a, 1.0)
        z = builder.fdiv(builder.fsub(m, one), builder.fadd(m, one))
        square = builder.fmul(z, z)
        terms = _LOG_TERMS[a.dtype]
        tail = _whole(a, 2.0 / (2 * terms + 1))
        for term in reversed(range(terms)):
            tail = _fused(builder, tail, square, _whole(a, 2.0 / (2 * term + 1)))
        high, rest = _LN2[a.dtype]
        tail = _fused(builder, z, tail, builder.fmul(n, _whole(a, rest)))
        return _fused(builder, n, _whole(a, high), tail)

    return a(a), code


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel as `compile_loop` does; dividing by zero is no error in it."""
    made: Callable[..., Any] = compile_loop(function, error_model="numpy")
    return made


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a short function that becomes part of the kernels it is used in."""
    made: Callable[..., Any] = numba.njit(forceinline=True, error_model="numpy")(function)
    return made
