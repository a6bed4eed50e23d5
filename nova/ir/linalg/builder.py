"""The linalg builder: the API of the `lower` column of the op table.

In: operands with their Nova types. Out: values of linalg-on-tensors IR. `convert-nova-to-linalg`
calls it for one row at a time, with the insertion point and the location set.

Access patterns are functions from the iteration dimensions (affine expressions that support `+`,
`-` and `*` with ints) to the indices of the operand, e.g. `lambda d: [d[1], d[0]]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import FLOATS_8, DType, TensorType, accumulator, bool_, i64
from nova.core.records import record
from nova.core.sizes import Size, known_equal, same_shape
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.dialect import create_barrier
from nova.ir.index import index as index_value
from nova.ir.linalg.fourier import FourierSpec, emit_fourier, twiddles
from nova.ir.linalg.kernel_loops import emit_loop_kernel
from nova.ir.linalg.kernel_text import inline_text
from nova.ir.linalg.loops import LoopBuilder
from nova.ir.linalg.ops import contract, fill, generic_op, yield_op
from nova.ir.linalg.packed_blocks import BlockBuilder
from nova.ir.linalg.scalar import Body, Scalar
from nova.ir.symbolic.size_table import representative
from nova.ir.types import dense, element_type, tensor_type
from nova.ops.kernels.language import LoopProgram

Access = Callable[[list[Any]], Sequence[Any]]


def add_scalars(s: Body, x: Scalar, y: Scalar) -> Scalar:
    """The sum; of bools the disjunction."""
    return (x | y) if x.dtype is bool_ else x + y


@record
class Operand:
    """An MLIR tensor value with its Nova type."""

    value: Any
    type: TensorType

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


class LinalgBuilder(LoopBuilder, BlockBuilder):
    """Emits linalg on tensors at the current insertion point.

    With `bytes_as_bf16`, the target multiplies 8-bit integers as bf16.
    """

    def __init__(self, bytes_as_bf16: bool = False) -> None:
        self.bytes_as_bf16 = bytes_as_bf16

    # --- values -----------------------------------------------------------------------------

    def empty(self, type_: TensorType) -> Any:
        """An uninitialized destination."""
        return tensor.empty([representative(n) for n in type_.shape], element_type(type_.dtype))

    def constant(self, array: np.ndarray, type_: TensorType) -> Operand:
        """A constant tensor."""
        return Operand(arith.ConstantOp(tensor_type(type_), dense(array, type_)).result, type_)

    def operand(self, value: Any, type_: TensorType) -> Operand:
        """A value with its type."""
        return Operand(value, type_)

    def fill(self, type_: TensorType, value: Any) -> Any:
        """A destination filled with a scalar."""
        scalar = Body().const(value, type_.dtype)
        return fill(scalar.value, self.empty(type_))

    def renamed(self, x: Operand) -> Any:
        """The same tensor as another value, of another type of Nova with one memory layout."""
        return tensor.cast(x.value.type, x.value)

    def fourier(self, out: TensorType, x: Operand, n: int, **options: Any) -> Any:
        """A Fourier transform of n complex numbers; nova/ir/linalg/fourier.py has the options."""
        spec = FourierSpec(n=n, **options)
        table = twiddles(spec).astype(x.dtype.numpy)
        factors = self.constant(table, TensorType(table.shape, x.dtype))
        return emit_fourier(x.value, factors.value, tensor_type(out), spec)

    # --- elementwise ------------------------------------------------------------------------

    def pointwise(
        self, out: TensorType, operands: Sequence[Operand], body: Callable[..., Scalar]
    ) -> Any:
        """out[i] = body(s, *operands[i broadcast]); the body computes in f32 for f16 and bf16."""
        accesses = [broadcast_access(o.shape, out.shape) for o in operands]
        return self.generic(out, list(zip(operands, accesses, strict=True)), body)

    def remap(self, out: TensorType, x: Operand, access: Access) -> Any:
        """out[d] = x[access(d)], for affine accesses in the bounds of x."""
        return self.generic(out, [(x, access)], lambda s, v: v)

    def generic(
        self,
        out: TensorType,
        operands: Sequence[tuple[Operand, Access]],
        body: Callable[..., Scalar],
    ) -> Any:
        """A parallel linalg.generic over the index space of `out`."""
        rank = out.rank
        dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
        maps = [_map(rank, access(dims)) for _, access in operands]
        maps.append(ir.AffineMap.get_identity(rank))
        values = [o.value for o, _ in operands]
        dtypes = [o.dtype for o, _ in operands]

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            scalars = [s.widen(a, t) for a, t in zip(args, dtypes, strict=False)]
            return [s.cast(body(s, *scalars), out.dtype).value]

        return self._generic_op(
            [tensor_type(out)], values, [self.empty(out)], maps, ["parallel"] * rank, emit
        )[0]

    # --- reductions and contractions ----------------------------------------------------------

    def reduce(
        self,
        out: TensorType,
        x: Operand,
        axes: Sequence[int],
        keepdims: bool,
        init: Any,
        combine: Callable[[Body, Scalar, Scalar], Scalar],
        accumulate: DType | None = None,
        prepare: Callable[[Body, Scalar], Scalar] | None = None,
    ) -> Any:
        """out = fold of `combine` over `axes` of `prepare(x)`, from `init`.

        Accumulates in `accumulate` (default: f32 for f16 and bf16), then casts to out.dtype.
        """
        acc = accumulate or accumulator(out.dtype)
        remaining = [i for i in range(x.type.rank) if i not in axes]
        acc_type = TensorType(tuple(x.shape[i] for i in remaining), acc)
        rank = x.type.rank
        dims = [ir.AffineDimExpr.get(i) for i in range(rank)]

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            element = s.widen(args[0], x.dtype)
            element = prepare(s, element) if prepare else element
            total = Scalar(args[1], acc, s)
            return [combine(s, total, s.cast(element, acc)).value]

        reduced = self._generic_op(
            [tensor_type(acc_type)],
            [x.value],
            [self.fill(acc_type, init)],
            [_map(rank, dims), _map(rank, [dims[i] for i in remaining])],
            ["reduction" if i in axes else "parallel" for i in range(rank)],
            emit,
        )[0]
        narrow = self.cast(Operand(reduced, acc_type), out.dtype)
        return self.reshape(out, narrow)

    def sum_over(
        self, out: TensorType, sizes: Sequence[Size], body: Callable[[Body], Scalar]
    ) -> Any:
        """out[i] = sum of body(s) over `sizes`; body reads the indices of out, then of the sizes.

        f16 and bf16 accumulate in f32.
        """
        wide = out.with_dtype(accumulator(out.dtype))
        rank = out.rank + len(sizes)
        dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
        # linalg takes the bounds of the summed loops from this operand; it is not read.
        extent = self.empty(TensorType(tuple(sizes), wide.dtype))

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            total = Scalar(args[1], wide.dtype, s)
            element = s.cast(body(s), wide.dtype)
            return [((total | element) if wide.dtype is bool_ else total + element).value]

        value = self._generic_op(
            [tensor_type(wide)],
            [extent],
            [self.fill(wide, 0)],
            [_map(rank, dims[out.rank :]), _map(rank, dims[: out.rank])],
            ["parallel"] * out.rank + ["reduction"] * len(sizes),
            emit,
        )[0]
        return self.cast(Operand(value, wide), out.dtype).value

    def arg_reduce(self, out: TensorType, x: Operand, axis: int, largest: bool) -> Any:
        """The index of the first extreme element along `axis` (argmax, argmin); NaN is extreme."""
        rank = x.type.rank
        remaining = [i for i in range(rank) if i != axis]
        shape = tuple(x.shape[i] for i in remaining)
        dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
        kept_map = _map(rank, [dims[i] for i in remaining])
        acc = accumulator(x.dtype)
        value_type, index_type = TensorType(shape, acc), TensorType(shape, i64)

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            element = s.widen(args[0], x.dtype)
            best, best_at = Scalar(args[1], acc, s), Scalar(args[2], i64, s)
            at = s.index(axis)
            better = element > best if largest else element < best
            if acc.is_float:
                first_nan = s.logical_not(s.is_nan(best)) & s.is_nan(element)
                better = (better | first_nan) if acc.is_float else better
            # Element 0 always wins over the initial value.
            better = better | s.compare("eq", at, 0)
            return [s.select(better, element, best).value, s.select(better, at, best_at).value]

        results = self._generic_op(
            [tensor_type(value_type), tensor_type(index_type)],
            [x.value],
            [self.fill(value_type, 0), self.fill(index_type, 0)],
            [_map(rank, dims), kept_map, kept_map],
            ["reduction" if i == axis else "parallel" for i in range(rank)],
            emit,
        )
        return self.reshape(out, self.cast(Operand(results[1], index_type), out.dtype))

    def contract(self, out: TensorType, a: Operand, b: Operand, subscripts: str) -> Any:
        """einsum of two operands, e.g. "bmk,bkn->bmn"; a '1' is a size-1 axis that broadcasts.

        Floats become `linalg.contract`, which elementwise fusion does not touch: ops fused into a
        contraction would be recomputed for every element of the result.
        """
        acc = accumulator(out.dtype)
        sources, result = subscripts.split("->")
        a, b = (
            self._without_units(x, part) for x, part in zip((a, b), sources.split(","), strict=True)
        )
        a_letters, b_letters = sources.replace("1", "").split(",")
        summed = sorted(set(a_letters + b_letters) - set(result))
        letters = list(result) + summed
        rank = len(letters)
        position = {c: ir.AffineDimExpr.get(i) for i, c in enumerate(letters)}
        maps = [_map(rank, [position[c] for c in part]) for part in (a_letters, b_letters, result)]
        wide = out.with_dtype(acc)
        if acc.is_float and summed and (a.dtype is b.dtype or {a.dtype, b.dtype} <= {*FLOATS_8}):
            value = contract(a.value, b.value, self.fill(wide, 0), maps)
            return self.cast(Operand(value, wide), out.dtype).value

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            x, y = s.widen(args[0], a.dtype), s.widen(args[1], b.dtype)
            total = Scalar(args[2], acc, s)
            x, y = s.cast(x, acc), s.cast(y, acc)
            return [((total | (x & y)) if acc is bool_ else total + x * y).value]

        value = self._generic_op(
            [tensor_type(wide)],
            [a.value, b.value],
            [self.fill(wide, 0)],
            maps,
            ["parallel"] * len(result) + ["reduction"] * len(summed),
            emit,
        )[0]
        return self.cast(Operand(value, wide), out.dtype).value

    def contract_at(
        self,
        out: TensorType,
        a: tuple[Operand, Access],
        b: tuple[Operand, Access],
        sizes: Sequence[Size],
    ) -> Any:
        """out[i] = sum over loops of `sizes` of a * b, at affine positions of all loops.

        The loops of out come first. f16 and bf16 accumulate in f32.
        """
        acc = accumulator(out.dtype)
        rank, wide = out.rank + len(sizes), out.with_dtype(acc)
        dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
        maps = [_map(rank, access(dims)) for _, access in (a, b)]
        maps.append(_map(rank, dims[: out.rank]))

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            x, y = (s.widen(v, o.dtype) for v, (o, _) in zip(args, (a, b), strict=False))
            return [(Scalar(args[2], acc, s) + s.cast(x, acc) * s.cast(y, acc)).value]

        value = self._generic_op(
            [tensor_type(wide)],
            [a[0].value, b[0].value],
            [self.fill(wide, 0)],
            maps,
            ["parallel"] * out.rank + ["reduction"] * len(sizes),
            emit,
        )[0]
        return self.cast(Operand(value, wide), out.dtype).value

    def _without_units(self, x: Operand, letters: str) -> Operand:
        return self.reshaped(x, [n for n, c in zip(x.shape, letters, strict=True) if c != "1"])

    # --- shape ------------------------------------------------------------------------------

    def cast(self, x: Operand, dtype: DType) -> Operand:
        """Elementwise conversion; a no-op if the dtype is the same."""
        if x.dtype is dtype:
            return x
        out = x.type.with_dtype(dtype)
        return Operand(self.pointwise(out, [x], lambda s, v: v), out)

    def bitcast(self, out: TensorType, x: Operand) -> Any:
        """The bits of each element as another dtype of the same width; bool is a byte, 0 or 1."""
        if bool_ in (x.dtype, out.dtype):
            return self.cast(x, out.dtype).value
        if element_type(x.dtype) == element_type(out.dtype):
            return x.value  # signedness is not a part of the type
        rank = out.rank
        identity = ir.AffineMap.get_identity(rank)

        def emit(s: Body, args: Sequence[Any]) -> list[Any]:
            # Not widened: a NaN keeps its bits.
            return [s.bitcast(Scalar(args[0], x.dtype, s), out.dtype).value]

        return self._generic_op(
            [tensor_type(out)],
            [x.value],
            [self.empty(out)],
            [identity, identity],
            ["parallel"] * rank,
            emit,
        )[0]

    def narrowed(self, value: Any, out: TensorType, wide: DType) -> Any:
        """A value of the shape of `out` in dtype `wide`, cast to the dtype of `out`."""
        return self.cast(Operand(value, out.with_dtype(wide)), out.dtype).value

    def reshape(self, out: TensorType, x: Operand) -> Any:
        """The same elements in row-major order with another shape; no copy."""
        if same_shape(out.shape, x.shape):
            return x.value
        if out.is_empty:
            return self.empty(out)
        flat = self._collapse_all(x)
        return self._expand_all(flat, out)

    def reshaped(self, x: Operand, shape: Sequence[Size]) -> Operand:
        """`reshape` with an inferred result type."""
        out = x.type.with_shape(shape)
        return Operand(self.reshape(out, x), out)

    def _collapse_all(self, x: Operand) -> Operand:
        if x.type.rank == 1:
            return x
        flat = x.type.with_shape((x.type.size,))
        if x.type.rank == 0:
            value = tensor.expand_shape(tensor_type(flat), x.value, [], [], [1])
        else:
            value = tensor.collapse_shape(tensor_type(flat), x.value, [list(range(x.type.rank))])
        return Operand(value, flat)

    def _expand_all(self, flat: Operand, out: TensorType) -> Any:
        if out.rank == 1:
            return flat.value
        if out.rank == 0:
            return tensor.collapse_shape(tensor_type(out), flat.value, [])
        return tensor.expand_shape(
            tensor_type(out),
            flat.value,
            [list(range(out.rank))],
            [],
            [representative(n) for n in out.shape],
        )

    # --- loops that linalg cannot express -------------------------------------------------------

    def loop_nest(
        self,
        init: Any,
        sizes: Sequence[Size],
        body: Callable[[Any, list[Any]], Any],
    ) -> Any:
        """`for i in sizes: acc = body(acc, i)` over a tensor value, in row-major order."""
        bounds = [index_value(n) for n in sizes]
        zero, unit = index_value(0), index_value(1)

        def nest(acc: Any, indices: list[Any]) -> Any:
            depth = len(indices)
            if depth == len(sizes):
                return body(acc, indices)
            loop = scf.ForOp(zero, bounds[depth], unit, [acc])
            with ir.InsertionPoint(loop.body):
                inner = nest(loop.inner_iter_args[0], [*indices, loop.induction_variable])
                scf.YieldOp([inner])
            return loop.results[0]

        return nest(init, [])

    def loop_kernel(
        self,
        program: LoopProgram,
        types: Mapping[str, TensorType],
        operands: Sequence[Operand],
        output: str,
    ) -> Any:
        """One output of a kernel that a user wrote as loops; `types` of inputs and outputs."""
        values = {n: o.value for n, o in zip(program.inputs, operands, strict=True)}
        return emit_loop_kernel(program, types, values, output)

    def mlir_kernel(
        self, text: str, operands: Sequence[Operand], results: Sequence[TensorType], result: int
    ) -> Any:
        """One result of a kernel that a user wrote in MLIR."""
        return inline_text(text, [o.value for o in operands], results)[result]

    def barrier(
        self, out: TensorType, x: Operand, after: Operand, region: int, released: bool
    ) -> Any:
        """An identity that stays in the IR until kernels are formed."""
        return create_barrier(x.value, after.value, region, released).result

    def scatter_add(
        self,
        out: TensorType,
        x: Operand,
        index: Operand,
        updates: Operand,
        axis: int,
        in_range: Callable[[Body, Scalar, int], Scalar],
        combine: Callable[[Body, Scalar, Scalar], Scalar] = add_scalars,
    ) -> Any:
        """x with updates[i] added at i, position `axis` replaced by the index; in row-major order.

        The index is 1-D (one position for a whole slice of the updates) or has the shape of the
        updates; `in_range(s, value, size)` maps its values to valid positions. f16 and bf16
        accumulate in f32. `combine(s, old, update)` may be another function than the sum.
        """
        acc = accumulator(out.dtype)
        total = self.cast(x, acc)
        if updates.type.is_empty:
            return x.value
        per_slice = not same_shape(index.shape, updates.shape)
        # The position is computed inside the loops up to here, outside of the inner ones.
        depth = axis + 1 if per_slice else updates.type.rank
        s = Body()
        to_index = ir.IndexType.get()

        def outer(state: Any, at: list[Any]) -> Any:
            element = tensor.extract(index.value, [at[axis]] if per_slice else at)
            position = in_range(s, Scalar(element, i64, s), out.shape[axis])
            target_index = arith.index_cast(to_index, position.value)

            def inner(state: Any, indices: list[Any]) -> Any:
                source = [*at, *indices]
                target = [*source[:axis], target_index, *source[axis + 1 :]]
                update = s.cast(s.widen(tensor.extract(updates.value, source), updates.dtype), acc)
                old = Scalar(tensor.extract(state, target), acc, s)
                return tensor.insert(combine(s, old, update).value, state, target)

            return self.loop_nest(state, updates.shape[depth:], inner)

        value = self.loop_nest(total.value, updates.shape[:depth], outer)
        return self.cast(Operand(value, out.with_dtype(acc)), out.dtype).value

    # --- helpers ----------------------------------------------------------------------------

    def _generic_op(
        self,
        result_types: list[Any],
        inputs: list[Any],
        outputs: list[Any],
        maps: list[Any],
        iterators: list[str],
        emit: Callable[[Body, Sequence[Any]], list[Any]],
    ) -> list[Any]:
        op = generic_op(result_types, inputs, outputs, maps, iterators)
        elements = [ir.ShapedType(v.type).element_type for v in (*inputs, *outputs)]
        block = op.regions[0].blocks.append(*elements)
        with ir.InsertionPoint(block):
            yield_op(emit(Body(), list(block.arguments)))
        return list(op.results)


def broadcast_access(shape: Sequence[Size], out_shape: Sequence[Size]) -> Access:
    """numpy broadcasting as an access: aligned at the last axis, size 1 reads index 0."""
    lead = len(out_shape) - len(shape)
    zero = ir.AffineConstantExpr.get(0)
    return lambda d: [
        zero if known_equal(n, 1) and not known_equal(out_shape[lead + i], 1) else d[lead + i]
        for i, n in enumerate(shape)
    ]


def _map(rank: int, exprs: Sequence[Any]) -> Any:
    return ir.AffineMap.get(
        rank, 0, [ir.AffineConstantExpr.get(e) if isinstance(e, int) else e for e in exprs]
    )


__all__ = ["LinalgBuilder", "Operand", "broadcast_access"]
