"""Loops over tensors that linalg cannot express: scans and sorts along an axis.

A part of the linalg builder, called by the `lower` column of the rows in `nova/ops/loops/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from nova.core.dtypes import DType, TensorType, i64
from nova.core.sizes import Size, known_equal
from nova.ir.attributes import WORK
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.index import index
from nova.ir.linalg.merge_sort import MergeSort
from nova.ir.linalg.scalar import Body, Scalar
from nova.ir.linalg.top_k import TopK
from nova.ir.symbolic.size_table import representative
from nova.ir.types import element_type

First = Callable[[Body, list[Scalar]], list[Scalar]]
Step = Callable[[Body, list[Scalar], list[Scalar], Scalar], list[Scalar]]


def loop(
    start: int, stop: Size, initial: Sequence[Any], body: Callable[..., list[Any]]
) -> list[Any]:
    """`for i in range(start, stop): carried = body(i, carried)`."""
    op = scf.ForOp(index(start), index(stop), index(1), list(initial))
    with ir.InsertionPoint(op.body):
        scf.YieldOp(body(op.induction_variable, list(op.inner_iter_args)))
    return list(op.results)


def nest(
    sizes: Sequence[Size], initial: Sequence[Any], body: Callable[..., list[Any]]
) -> list[Any]:
    """`body(indices, carried)` for all indices of `sizes`, in row-major order."""

    def level(indices: list[Any], carried: list[Any]) -> list[Any]:
        if len(indices) == len(sizes):
            return body(indices, carried)
        return loop(0, sizes[len(indices)], carried, lambda i, inner: level([*indices, i], inner))

    return level([], list(initial))


class LoopBuilder:
    """Scans, sorts and writes of slices; a mixin of the linalg builder."""

    def write_slice(
        self,
        out: TensorType,
        x: Any,
        update: Any,
        positions: Any,
        start: Callable[[Body, Any, int, int, int], Scalar],
    ) -> Any:
        """x with a slice replaced by `update`, as loops over the update that write into x.

        `start(s, positions, axis, size, window)` is the first index along an axis.
        """
        s = Body()
        shape = [representative(n) for n in update.shape]
        starts: dict[int, Any] = {}
        for axis, (size, window) in enumerate(zip(out.shape, update.shape, strict=True)):
            if not known_equal(size, window):
                position = start(s, positions, axis, representative(size), shape[axis])
                starts[axis] = arith.index_cast(ir.IndexType.get(), position.value)
        # Without loops of one iteration, which would be simplified away with their attributes.
        axes = [axis for axis, n in enumerate(shape) if n != 1]

        def body(indices: list[Any], carried: list[Any]) -> list[Any]:
            loops = dict(zip(axes, indices, strict=True))
            source = [loops[a] if a in loops else index(0) for a in range(len(shape))]
            target = [
                source[a]
                if a not in starts
                else (arith.addi(starts[a], loops[a]) if a in loops else starts[a])
                for a in range(len(shape))
            ]
            return [tensor.insert(tensor.extract(update.value, source), carried[0], target)]

        [result] = nest([shape[a] for a in axes], [x.value], body)
        WORK.set(result.owner, 8 * prod(shape))
        return result

    def scan(
        self,
        xs: Sequence[Any],
        axis: int,
        types: Sequence[DType],
        first: First,
        step: Step,
    ) -> list[Any]:
        """States of `types` along an axis: first(x[0]), then step(state, x[i], i), as tensors.

        Linear in the elements. Along the last axis the states are carried in registers; along
        another one the loop over the later axes is innermost, so that it is vectorized.
        """
        shape = xs[0].shape
        lead, trail = shape[:axis], shape[axis + 1 :]
        scanner = _Scan([(x.value, x.dtype) for x in xs], types, first, step)
        is_empty = any(known_equal(n, 0) for n in shape)
        if is_empty or known_equal(prod(trail), 1):
            sizes = [representative(n) for n in shape]
            states = [tensor.empty(sizes, element_type(t)) for t in types]
            if is_empty:
                return states
            return nest(
                lead,
                states,
                lambda at, tensors: scanner.row(tensors, at, len(trail), shape[axis]),
            )
        # All elements begin as `first` of their own, so that no copy reads unwritten memory.
        accesses = [(x, lambda d: d) for x in xs]
        begun = [
            self.generic(TensorType(shape, t), accesses, _item(first, k))
            for k, t in enumerate(types)
        ]
        return nest(
            lead,
            begun,
            lambda at, tensors: loop(
                1,
                shape[axis],
                tensors,
                lambda i, carried: nest(
                    trail,
                    carried,
                    lambda trailing_indices, inner: scanner.advance(inner, at, i, trailing_indices),
                ),
            ),
        )

    def merge_argsort(
        self, x: Any, axis: int, less: Callable[[Body, Scalar, Scalar], Scalar]
    ) -> Any:
        """The stable order of the elements along an axis, as i64 positions."""
        s = Body()
        positions = self.positions(x.type, axis)

        def smaller(second: Sequence[Any], first: Sequence[Any]) -> Any:
            return less(s, s.widen(second[0], x.dtype), s.widen(first[0], x.dtype)).value

        return MergeSort([x.value, positions], x.shape, axis, smaller).emit()[1]

    def select_top_k(
        self, x: Any, axis: int, count: int, less: Callable[[Body, Scalar, Scalar], Scalar]
    ) -> Any:
        """The positions of the first `count` elements of the stable order, as i64."""
        s = Body()

        def smaller(second: Sequence[Any], first: Sequence[Any]) -> Any:
            return less(s, s.widen(second[0], x.dtype), s.widen(first[0], x.dtype)).value

        return TopK([x.value], x.shape, axis, count, smaller).emit()[1]

    def positions(self, type_: TensorType, axis: int) -> Any:
        """The index along `axis` of each element, as i64."""
        return self.generic(type_.with_dtype(i64), [], lambda s: s.index(axis))

    def generic(self, out: TensorType, operands: Sequence[Any], body: Callable[..., Scalar]) -> Any:
        raise NotImplementedError  # the linalg builder has it


def _item(first: First, position: int) -> Callable[..., Scalar]:
    return lambda s, *elements: first(s, list(elements))[position]


class _Scan:
    """The elements that a scan reads, and the code of its steps."""

    def __init__(
        self, sources: list[tuple[Any, DType]], types: Sequence[DType], first: First, step: Step
    ):
        self.sources, self.types, self.first, self.step = sources, types, first, step
        self.body = Body()

    def elements(self, at: list[Any]) -> list[Scalar]:
        return [self.body.widen(tensor.extract(x, at), t) for x, t in self.sources]

    def store(self, tensors: list[Any], at: list[Any], states: list[Scalar]) -> list[Any]:
        return [tensor.insert(v.value, t, at) for v, t in zip(states, tensors, strict=True)]

    def number(self, index: Any) -> Scalar:
        return Scalar(arith.index_cast(element_type(i64), index), i64, self.body)

    def advance(
        self, tensors: list[Any], at: list[Any], i: Any, trailing_indices: list[Any]
    ) -> list[Any]:
        """One step, whose state is read from the tensors."""
        before = arith.subi(i, index(1))
        states = [
            Scalar(tensor.extract(t, [*at, before, *trailing_indices]), type_, self.body)
            for t, type_ in zip(tensors, self.types, strict=True)
        ]
        position = [*at, i, *trailing_indices]
        return self.store(
            tensors, position, self.step(self.body, states, self.elements(position), self.number(i))
        )

    def row(self, tensors: list[Any], at: list[Any], trailing: int, size: Size) -> list[Any]:
        """All steps of a row, whose state is carried in registers."""
        trailing_indices = [index(0)] * trailing
        count = len(tensors)

        def one_step(i: Any, carried: list[Any]) -> list[Any]:
            states = [
                Scalar(v, t, self.body) for v, t in zip(carried[count:], self.types, strict=True)
            ]
            position, number = [*at, i, *trailing_indices], self.number(i)
            elements = self.elements(position)
            begin = self.body.compare("eq", number, 0)
            after = [
                self.body.select(begin, a, b)
                for a, b in zip(
                    self.first(self.body, elements),
                    self.step(self.body, states, elements, number),
                    strict=True,
                )
            ]
            return [*self.store(carried[:count], position, after), *(v.value for v in after)]

        zeros = [self.body.const(0, t).value for t in self.types]
        return loop(0, size, [*tensors, *zeros], one_step)[:count]
