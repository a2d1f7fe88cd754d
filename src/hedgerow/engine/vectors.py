"""The few vector operations that numba does not produce by itself, written as portable LLVM vectors.

LLVM refuses to vectorise these loops when it sees them as scalar code: it cannot know that what they write does not
overlap what they read through an index. Here the lanes are explicit (`<64 x i8>` and so on). LLVM cuts them to
the width of the machine it compiles for (AVX-512, AVX2, SSE2, NEON), and turns gathers into scalar loads where the
machine has none, so the results are the same everywhere. There is no arithmetic here but one float32 addition per row.

Every function works on `LANES` (or `BLOCK`) consecutive elements and checks nothing: offsets are the caller's duty.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK = 256
"""Rows handled together: one column of codes is then 4 AVX-512 registers, and 64 columns and 63 results fit in L1."""

LANES = 64
"""Elements per vector operation: several registers at once, so that the latencies of gathers overlap."""

_ELEMENTS = {"float": ("f32", 4), "double": ("f64", 8), "i32": ("i32", 1)}
"""LLVM's name of an element type in gathers, and the alignment it may count on (codes are read 4 bytes at a time)."""

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


def _operation(*kinds: Any) -> Callable[[Callable[..., None]], Any]:
    """Kernels may call `generate(builder, *arguments)`. None among the kinds is an array, which comes as an address."""

    def decorate(generate: Callable[..., None]) -> Any:
        def typed(_context: Any, *given: Any) -> tuple[Any, Callable[..., Any]]:
            signature = types.void(*(kind or array for kind, array in zip(kinds, given, strict=True)))

            def lowered(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                arguments = [
                    value if kind else context.make_array(array)(context, builder, value).data
                    for kind, array, value in zip(kinds, signature.args, values, strict=True)
                ]
                generate(builder, *arguments)
                return context.get_dummy_value()

            return signature, lowered

        return intrinsic(functools.wraps(generate)(typed))

    return decorate


def _vector_at(builder: Any, pointer: Any, offset: Any, element: Any, lanes: int) -> Any:
    """Address of `lanes` elements that start at `offset`."""
    return builder.bitcast(builder.gep(pointer, [offset]), ir.VectorType(element, lanes).as_pointer())


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    """The same value in every lane."""
    empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def _filled(element: Any, lanes: int, value: int) -> Any:
    return ir.Constant(ir.VectorType(element, lanes), [value] * lanes)


def _gather(builder: Any, base: Any, index: Any, element: Any, lanes: int, step: Any = None) -> Any:
    """Load the element at `base[index[k]]` into lane k; `index` counts elements, or units of `step`."""
    pointers = builder.gep(base, [index], source_etype=step or element)
    # llvmlite gives an address computed from a vector of indices the type of one address.
    pointers.type = ir.VectorType(element.as_pointer(), lanes)
    result = ir.VectorType(element, lanes)
    kind, alignment = _ELEMENTS[str(element)]
    signature = ir.FunctionType(result, [pointers.type, _I32, ir.VectorType(_I1, lanes), result])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.gather.v{lanes}{kind}.v{lanes}p0"
    )
    return builder.call(
        function, [pointers, ir.Constant(_I32, alignment), _filled(_I1, lanes, 1), ir.Constant(result, ir.Undefined)]
    )


@_operation(None, types.int64, None, types.int64, types.uint8)
def copy_codes(builder: Any, block: Any, column: Any, codes: Any, offset: Any, highest: Any) -> None:
    """`block[column] = codes[offset : offset + BLOCK]`, with 0 for every code above `highest`."""
    limit, start = _splat(builder, highest, LANES), builder.mul(column, ir.Constant(_I64, BLOCK))
    for first in range(0, BLOCK, LANES):
        step = ir.Constant(_I64, first)
        code = builder.load(_vector_at(builder, codes, builder.add(offset, step), _I8, LANES), align=1)
        code = builder.select(builder.icmp_unsigned(">", code, limit), _filled(_I8, LANES, 0), code)
        builder.store(code, _vector_at(builder, block, builder.add(start, step), _I8, LANES), align=1)


def _make_choose(left_is_row: bool, right_is_row: bool) -> Any:
    """`results[into] = right where block[column] > cut, else left` for BLOCK bytes; left, right: rows or constants."""

    @_operation(None, types.int64, types.int64, types.int64, None, types.int64, types.uint8)
    def choose(builder: Any, results: Any, into: Any, left: Any, right: Any, block: Any, column: Any, cut: Any) -> None:
        threshold = _splat(builder, cut, LANES)

        def row(pointer: Any, number: Any, first: int) -> Any:
            offset = builder.add(builder.mul(number, ir.Constant(_I64, BLOCK)), ir.Constant(_I64, first))
            return _vector_at(builder, pointer, offset, _I8, LANES)

        def constant(number: Any) -> Any:
            return _splat(builder, builder.trunc(number, _I8), LANES)

        for first in range(0, BLOCK, LANES):
            goes_right = builder.icmp_unsigned(">", builder.load(row(block, column, first), align=1), threshold)
            on_left = builder.load(row(results, left, first), align=1) if left_is_row else constant(left)
            on_right = builder.load(row(results, right, first), align=1) if right_is_row else constant(right)
            builder.store(builder.select(goes_right, on_right, on_left), row(results, into, first), align=1)

    return choose


choose_leaf_leaf: Any = _make_choose(left_is_row=False, right_is_row=False)
choose_row_leaf: Any = _make_choose(left_is_row=True, right_is_row=False)
choose_leaf_row: Any = _make_choose(left_is_row=False, right_is_row=True)
choose_row_row: Any = _make_choose(left_is_row=True, right_is_row=True)


@_operation(None, types.int64, None, types.int64, None)
def add_looked_up(builder: Any, totals: Any, into: Any, table: Any, start: Any, index: Any) -> None:
    """`totals[into + r] += table[start + index[r]]` for BLOCK rows; totals and table float32, index uint8."""
    lanes, element = 16, ir.FloatType()
    totals, table = builder.gep(totals, [into]), builder.gep(table, [start])
    for first in range(0, BLOCK, lanes):
        offset = ir.Constant(_I64, first)
        numbers = builder.load(_vector_at(builder, index, offset, _I8, lanes), align=1)
        values = _gather(builder, table, builder.zext(numbers, ir.VectorType(_I32, lanes)), element, lanes)
        where = _vector_at(builder, totals, offset, element, lanes)
        builder.store(builder.fadd(builder.load(where, align=4), values), where, align=4)


@_operation(None, types.int64, None, types.int64, None, types.int32, types.uint8, types.uint8)
def count_edges(
    builder: Any, values: Any, first: Any, edges: Any, row: Any, codes: Any, top: Any, most: Any, missing: Any
) -> None:
    """`codes[first + k] = min(#{edges <= values[first + k]}, most)`, or `missing` for NaN, for LANES values.

    A binary search without branches: `edges[row:]` is increasing and padded with +inf to a power of two minus one
    entries at least, and `top` is half that power of two (0: no edges).
    """
    element, edges = values.type.pointee, builder.gep(edges, [row])
    value = builder.load(_vector_at(builder, values, first, element, LANES), align=4)

    positions = cgutils.alloca_once(builder, ir.VectorType(_I32, LANES))
    remaining = cgutils.alloca_once(builder, _I32)
    builder.store(_filled(_I32, LANES, 0), positions)
    builder.store(top, remaining)
    test, body, end = (builder.append_basic_block(name) for name in ("search", "search.step", "search.end"))
    builder.branch(test)
    builder.position_at_end(test)
    step = builder.load(remaining)
    builder.cbranch(builder.icmp_signed(">", step, ir.Constant(_I32, 0)), body, end)
    builder.position_at_end(body)
    here = builder.load(positions)
    beyond = builder.add(here, _splat(builder, step, LANES))
    edge = _gather(builder, edges, builder.sub(beyond, _filled(_I32, LANES, 1)), element, LANES)
    builder.store(builder.select(builder.fcmp_ordered("<=", edge, value), beyond, here), positions)
    builder.store(builder.lshr(step, ir.Constant(_I32, 1)), remaining)
    builder.branch(test)
    builder.position_at_end(end)

    code = builder.trunc(builder.load(positions), ir.VectorType(_I8, LANES))
    limit = _splat(builder, most, LANES)
    code = builder.select(builder.icmp_unsigned("<", code, limit), code, limit)
    code = builder.select(builder.fcmp_unordered("uno", value, value), _splat(builder, missing, LANES), code)
    builder.store(code, _vector_at(builder, codes, first, _I8, LANES), align=1)


@_operation(None, None, None, None, types.int64)
def descend(builder: Any, nodes: Any, keys: Any, lefts: Any, block: Any, levels: Any) -> None:
    """Move BLOCK rows `levels` steps down from `nodes`, int32 (in and out), all rows one level at a time.

    keys[node] is column * 256 + cut and lefts[node] the left child, right before the right one: a row goes on to
    lefts[node] + (block[column, row] > cut). Leaves have cut 255 and are their own left child. Three bytes after the
    last column of `block` must be readable.
    """
    vector = ir.VectorType(_I32, LANES)
    with cgutils.for_range(builder, ir.Constant(_I64, BLOCK // LANES)) as part:
        first = builder.mul(part.index, ir.Constant(_I64, LANES))
        place = _vector_at(builder, nodes, first, _I32, LANES)
        rows = builder.add(_splat(builder, builder.trunc(first, _I32), LANES), ir.Constant(vector, list(range(LANES))))
        here = cgutils.alloca_once(builder, vector)
        builder.store(builder.load(place, align=4), here)
        with cgutils.for_range(builder, levels):
            node = builder.load(here)
            key = _gather(builder, keys, node, _I32, LANES)
            left = _gather(builder, lefts, node, _I32, LANES)
            # column * 256 + row is the place of the code, since BLOCK is 256
            code_at = builder.add(builder.and_(key, _filled(_I32, LANES, -BLOCK)), rows)
            low = _filled(_I32, LANES, 255)
            code = builder.and_(_gather(builder, block, code_at, _I32, LANES, step=_I8), low)
            goes_right = builder.icmp_unsigned(">", code, builder.and_(key, low))
            builder.store(builder.add(left, builder.zext(goes_right, vector)), here)
        builder.store(builder.load(here), place, align=4)
