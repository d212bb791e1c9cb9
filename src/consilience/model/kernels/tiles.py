"""Inner loops of the compiled kernel as LLVM instructions: sums of products over rows in vector registers.

Loops that numba vectorises itself keep one sum in registers at a time, and half as wide as the processor allows; that
makes them slower than a matrix product. Here the sums of a tile, up to ten weights times two columns, stay in registers
while the rows pass.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES = 8 if WIDE else 4
"""Number of rows in a vector."""
SIZES = (2, 4, 6, 8, 10) if WIDE else (2, 4, 6)
"""Numbers of weights of a tile: two columns of the largest, with all operands, fit in the registers."""

DOUBLE, BYTES = ir.DoubleType(), 8
VECTOR = ir.VectorType(DOUBLE, LANES)
FUSED, ANY_ORDER = ("contract",), ("reassoc", "nsz")


def _loaded(builder: Any, address: Any) -> Any:
    """Emit the load of one vector of rows."""
    return builder.load(builder.inttoptr(address, VECTOR.as_pointer()), align=BYTES)


def _across(builder: Any, vector: Any) -> Any:
    """Emit the sum over the lanes of a vector."""
    name = f"llvm.vector.reduce.fadd.v{LANES}f64"
    known = builder.module.globals.get(name)
    function = known or ir.Function(builder.module, ir.FunctionType(DOUBLE, [DOUBLE, VECTOR]), name)
    return builder.call(function, [DOUBLE(-0.0), vector], fastmath=ANY_ORDER)


def _add_to(builder: Any, address: Any, value: Any) -> None:
    """Emit the addition of a number to the one at an address."""
    place = builder.inttoptr(address, DOUBLE.as_pointer())
    builder.store(builder.fadd(builder.load(place), value), place)


def _tile(size: int) -> Any:
    """Return a function of numba that adds ``Σ_i w_gi u_ci v_ci`` of two columns ``c`` to ``out[g, c]``, ``g < size``.

    Its arguments are addresses and distances in bytes: of the weights, from weight to weight; of ``u, v`` of the first
    column and of the second; the number of rows, a multiple of ``LANES``; of ``out``, from weight to weight.
    """

    def emitted(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        weights, apart, u, v, other_u, other_v, rows, out, out_apart = arguments
        integer, before = rows.type, builder.basic_block
        loop, after = builder.append_basic_block("rows"), builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        i = builder.phi(integer)
        sums = [builder.phi(VECTOR) for _ in range(2 * size)]
        here = builder.mul(i, integer(BYTES))
        columns = [
            builder.fmul(*(_loaded(builder, builder.add(address, here)) for address in column))
            for column in ((u, v), (other_u, other_v))
        ]
        added = []
        for g in range(size):
            w = _loaded(builder, builder.add(builder.add(weights, builder.mul(apart, integer(g))), here))
            for c, z in enumerate(columns):
                product = builder.fmul(w, z, flags=FUSED)
                added.append(builder.fadd(sums[2 * g + c], product, flags=FUSED))
        following = builder.add(i, integer(LANES))
        for phi, first, next_one in zip(
            [i, *sums], [integer(0)] + 2 * size * [_ZERO], [following, *added], strict=True
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(next_one, loop)
        builder.cbranch(builder.icmp_signed("<", following, rows), loop, after)
        builder.position_at_end(after)
        for j, vector in enumerate(added):
            place = builder.add(builder.mul(out_apart, integer(j // 2)), integer(BYTES * (j % 2)))
            _add_to(builder, builder.add(out, place), _across(builder, vector))
        return context.get_dummy_value()

    def tile(
        _: Any,
        weights: Any,
        apart: Any,
        u: Any,
        v: Any,
        other_u: Any,
        other_v: Any,
        rows: Any,
        out: Any,
        out_apart: Any,
    ) -> Any:
        return types.void(*[types.intp] * 9), emitted

    return intrinsic(tile)


_ZERO = ir.Constant(VECTOR, LANES * [0.0])
TILES = {size: _tile(size) for size in SIZES}


def _multiplier(lanes: int) -> Any:
    """Return a function of numba that writes products of ``lanes`` numbers at two addresses to a third.

    Without a second address, which is 0 then, it copies.
    """
    vector = ir.VectorType(DOUBLE, lanes)

    def emitted(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        to, source, factor = arguments
        place = builder.inttoptr(to, vector.as_pointer())
        numbers = builder.load(builder.inttoptr(source, vector.as_pointer()), align=BYTES)
        with builder.if_else(builder.icmp_signed("==", factor, factor.type(0))) as (copied, multiplied):
            with copied:
                builder.store(numbers, place, align=BYTES)
            with multiplied:
                others = builder.load(builder.inttoptr(factor, vector.as_pointer()), align=BYTES)
                builder.store(builder.fmul(numbers, others), place, align=BYTES)
        return context.get_dummy_value()

    def multiply(_: Any, to: Any, source: Any, factor: Any) -> Any:
        return types.void(types.intp, types.intp, types.intp), emitted

    return intrinsic(multiply)


multiply_vectors, multiply_numbers = _multiplier(LANES), _multiplier(1)


@intrinsic
def power_of_two(_: Any, shifted: Any) -> Any:
    """Compute ``2^k`` from ``k + 1.5 · 2^52``, whose last bits are those of the whole number ``k``."""

    def emitted(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        integer = ir.IntType(64)
        exponent = builder.shl(builder.bitcast(arguments[0], integer), integer(52))
        return builder.bitcast(builder.add(exponent, integer(1023 << 52)), DOUBLE)

    return types.float64(types.float64), emitted
