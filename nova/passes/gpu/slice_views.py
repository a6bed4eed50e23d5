"""Slices in place: matmuls read slices of a buffer, and write parts of a concatenation, directly.

Input: `main` of a program for a device over buffers, which have no offsets yet. Output: a kernel
that copies adjacent elements of an argument for matmuls is gone, and so is one that joins the
results of matmuls. The matmuls get the whole buffer, and have a view of a part of it: an offset
that the tensor maps and positions of their code have. `plan-workspace` calls this where it knows
the buffers of results. So a loss over chunks of rows needs no memory for the rows of a chunk, nor
for their gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import islice, product
from math import ceil, floor, prod
from typing import Any

from nova.codegen.common.loop_nest import make_loop_nest
from nova.codegen.common.match_contraction import is_multiply_add
from nova.core.records import record
from nova.ir.attributes import DEVICE
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, nbytes, slice_view
from nova.ir.control_flow.functions import is_call
from nova.ir.kernel import Kernel, is_kernel, set_argument_types
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.passes.kernels.buffer_donation import users
from nova.passes.kernels.kernel_copies import KernelCopies

_LEAST_BYTES = 1 << 20
"""Smaller slices are copied: each position is a kernel of its own."""
_MOST_POINTS = 4096
"""Points of a concatenation at which its sources are computed."""
_MAP_ALIGNMENT = 16
"""Bytes: tensor maps begin at multiples of it, and matmuls without them are slow."""


def view_slices(main: Any, named: dict[str, Any], copies: KernelCopies, inputs: int) -> None:
    """Remove calls of `main` that copy slices; its first `inputs` arguments are not results."""
    block = main.entry_block
    arguments = list(block.arguments)
    calls = [op.operation for op in block.operations if is_call(op.operation)]
    for call in calls:
        kernel = named.get(str(call.attributes["callee"].value))
        if kernel is None or not is_kernel(kernel) or DEVICE.has(kernel):
            continue
        if (copy := _match_copy(kernel)) is not None:
            _Read(call, copy, named, copies).apply(arguments[:inputs])
        elif (parts := _match_join(kernel)) is not None:
            _Join(call, parts, named, copies).apply(arguments[inputs:])


@record
class _Part:
    """Adjacent elements: the number of the argument that has them, and the first in the other."""

    argument: int
    start: int


class _Slices:
    """A call that copies, and the calls that could use the whole buffer in its place."""

    def __init__(self, call: Any, named: dict[str, Any], copies: KernelCopies):
        self.call = call
        self.named = named
        self.copies = copies

    def _kernel(self, call: Any) -> Any:
        return self.named.get(str(call.attributes["callee"].value)) if is_call(call) else None

    def _position(self, call: Any, root: Any, *, written: bool) -> int | None:
        """The operand of a matmul that is a buffer, if it may be a slice of a larger one."""
        kernel = self._kernel(call)
        if kernel is None or not is_kernel(kernel) or not _is_matmul(kernel):
            return None
        positions = [i for i, value in enumerate(call.operands) if buffer_root(value) == root]
        if len(positions) != 1 or (positions[0] >= Kernel(kernel).ins) != written:
            return None
        formal = kernel.entry_block.arguments[positions[0]]
        ops = [use.owner.operation for use in formal.uses]
        return positions[0] if all(is_generic_op(op) for op in ops) else None

    def _use_slice(self, call: Any, position: int, whole: Any, start: int) -> None:
        """Pass the whole buffer to a call, whose kernel has a view of it."""
        change = (-1, position, start, *whole.type.shape)
        kernel = self.copies.take(call, change)
        call.operands[position] = whole
        if kernel is None:
            return
        formal = kernel.entry_block.arguments[position]
        type_ = formal.type
        formal.set_type(whole.type)
        with ir.InsertionPoint.at_block_begin(kernel.entry_block), kernel.location:
            view = slice_view(formal, type_, start)
        formal.replace_all_uses_except(view, view.owner.operation)
        set_argument_types(kernel, [])


class _Read(_Slices):
    """A call that copies a slice of an argument of `main`, which matmuls read."""

    def __init__(self, call: Any, copy: _Part, named: dict[str, Any], copies: KernelCopies):
        super().__init__(call, named, copies)
        self.start = copy.start
        self.source, self.target = (
            buffer_root(call.operands[i]) for i in (copy.argument, 1 - copy.argument)
        )

    def apply(self, inputs: Sequence[Any]) -> None:
        if self.source not in inputs or not _is_alloc(self.target) or self._is_written():
            return
        if not _is_mapped(self.start, self.source):
            return
        readers = [op for op in dict.fromkeys(users(self.target)) if op != self.call]
        positions = [self._position(op, self.target, written=False) for op in readers]
        if nbytes(self.target.type) < _LEAST_BYTES or None in positions:
            return
        for reader, position in zip(readers, positions, strict=True):
            assert position is not None
            self._use_slice(reader, position, self.source, self.start)
        self.call.erase()

    def _is_written(self) -> bool:
        """Whether a call writes to the source."""
        for op in users(self.source):
            kernel = self._kernel(op)
            if kernel is None:
                return True
            written = list(op.operands)[Kernel(kernel).ins :]
            if any(buffer_root(value) == self.source for value in written):
                return True
        return False


class _Join(_Slices):
    """A call that joins results of matmuls."""

    def __init__(self, call: Any, parts: list[_Part], named: dict[str, Any], copies: KernelCopies):
        super().__init__(call, named, copies)
        self.parts = parts
        *_, target = call.operands
        self.target = buffer_root(target)

    def apply(self, results: Sequence[Any]) -> None:
        if nbytes(self.target.type) < _LEAST_BYTES:
            return
        if self.target not in results and not _is_alloc(self.target):
            return
        if not all(_is_mapped(part.start, self.target) for part in self.parts):
            return
        others = [op for op in users(self.target) if op != self.call]
        if not all(self.call.is_before_in_block(op) for op in others):
            return
        found = []
        for part in self.parts:
            root = buffer_root(self.call.operands[part.argument])
            makers = [op for op in dict.fromkeys(users(root)) if op != self.call]
            position = (
                self._position(makers[0], root, written=True)
                if _is_alloc(root) and len(makers) == 1
                else None
            )
            if position is None:
                return
            found.append((makers[0], position, part.start))
        if len({maker for maker, _, _ in found}) < len(found):
            return
        if _is_alloc(self.target):
            self.target.owner.operation.move_before(
                self.call.parent.regions[0].blocks[0].operations[0].operation
            )
        for maker, position, start in found:
            self._use_slice(maker, position, self.target, start)
        self.call.erase()


def _is_mapped(start: int, buffer: Any) -> bool:
    """Whether a tensor map can begin at an element of a buffer."""
    return start * int(buffer.type.element_type.width) // 8 % _MAP_ALIGNMENT == 0


def _is_alloc(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "memref.alloc"


def _is_matmul(kernel: Any) -> bool:
    """Whether a kernel is a matmul of 16-bit floats and its epilogue."""
    generics = [op.operation for op in kernel.entry_block.operations if is_generic_op(op)]
    sums = [GenericOp(op) for op in generics if "reduction" in GenericOp(op).iterators]
    if len(sums) != 1 or len(sums[0].op.operands) != 3 or not is_multiply_add(sums[0]):
        return False
    return all(value.type.element_type.width == 16 for value in sums[0].inputs)


def _match_copy(kernel: Any) -> _Part | None:
    """Match a kernel that copies adjacent elements of a larger buffer: the first of them."""
    generic = _only_op(kernel)
    arguments = list(kernel.entry_block.arguments)
    if generic is not None and not generic.num_inputs and len(arguments) == 2:
        distances = _distances(generic, arguments)
        if distances is None or set(distances) != {0} or len(distances[0]) != 1:
            return None
        return _Part(0, -distances[0].pop())
    if generic is None or generic.num_inputs != 1 or len(list(generic.block.operations)) != 1:
        return None
    if len(arguments) != 2 or any(value not in arguments for value in generic.op.operands):
        return None
    (value,) = next(iter(generic.block.operations)).operands
    if value != generic.block.arguments[0]:
        return None
    nest = make_loop_nest(generic.op)
    same = all(len(set(loop.strides)) == 1 for loop in nest.loops if loop.size != 1)
    is_whole = prod(generic.sizes) == prod(generic.outputs[0].type.shape)
    if not same or not is_whole or nest.offsets[1] != 0 or not isinstance(nest.offsets[0], int):
        return None
    return _Part(arguments.index(generic.inputs[0]), nest.offsets[0])


def _only_op(kernel: Any) -> GenericOp | None:
    """The generic of a kernel of static sizes that has no other op, and one result."""
    ops = [op.operation for op in kernel.entry_block.operations][:-1]
    generics = [op for op in ops if is_generic_op(op)]
    others = [op for op in ops if op.name != "arith.constant" and not is_generic_op(op)]
    types = [a.type for a in kernel.entry_block.arguments]
    if len(generics) != 1 or others or not all(t.has_static_shape for t in types):
        return None
    generic = GenericOp(generics[0])
    is_map = generic.num_outputs == 1 and set(generic.iterators) == {"parallel"}
    return generic if is_map else None


# --- concatenations -------------------------------------------------------------------------------


def _match_join(kernel: Any) -> list[_Part] | None:
    """Match a kernel that writes its arguments one after the other: where each begins.

    The body of its op loads elements at positions that depend on comparisons of an index with
    constants. Where it loads from is computed at the points next to where a comparison changes.
    """
    generic = _only_op(kernel)
    arguments = list(kernel.entry_block.arguments)
    if generic is None or generic.num_inputs:
        return None
    distances = _distances(generic, arguments)
    if distances is None or any(len(each) != 1 for each in distances.values()):
        return None
    starts = {argument: each.pop() for argument, each in distances.items()}
    counts = [prod(argument.type.shape) for argument in arguments]
    if len(starts) != len(arguments) - 1:
        return None
    end = 0
    for argument, start in sorted(starts.items(), key=lambda item: item[1]):
        if start != end:
            return None
        end += counts[argument]
    return [_Part(a, start) for a, start in starts.items()] if end == counts[-1] else None


def _distances(generic: GenericOp, arguments: list[Any]) -> dict[int, set[int]] | None:
    """How far elements are from where they are loaded, for each argument that has some.

    None where a value is not an element of an argument.
    """
    shape = list(arguments[-1].type.shape)
    if generic.outputs[0] != arguments[-1]:
        return None
    if generic.accesses[0].row_dims != tuple(range(len(shape))):
        return None
    loaded = _Loads(generic, arguments)
    seen: set[tuple[int, ...]] = set()
    distances: dict[int, set[int]] = {}
    # A point may show another comparison, which changes at other points.
    while points := [point for point in loaded.points(shape) if point not in seen]:
        seen.update(points)
        if len(seen) > _MOST_POINTS:
            return None
        for point in points:
            source = loaded.at(point)
            if source is None or not 0 <= source[1] < prod(arguments[source[0]].type.shape):
                return None
            distances.setdefault(source[0], set()).add(_flat(point, shape) - source[1])
    return distances or None


def _flat(point: Sequence[int], shape: Sequence[int]) -> int:
    position = 0
    for index, size in zip(point, shape, strict=True):
        position = position * size + index
    return position


@record
class _Linear:
    """An integer at a point, and how it grows with each index."""

    value: int
    slopes: tuple[int, ...]

    def __add__(self, other: _Linear) -> _Linear:
        slopes = tuple(a + b for a, b in zip(self.slopes, other.slopes, strict=True))
        return _Linear(self.value + other.value, slopes)

    def __sub__(self, other: _Linear) -> _Linear:
        return self + _Linear(-other.value, tuple(-slope for slope in other.slopes))


class _Loads:
    """Computes which element of which argument the body of an op yields at a point.

    `points` are the ends of all loops, and the points next to those at which a comparison seen
    up to now changes. Between them the position that is loaded from is linear.
    """

    def __init__(self, generic: GenericOp, arguments: list[Any]):
        self.generic = generic
        self.numbers = {argument: i for i, argument in enumerate(arguments)}
        self.element = arguments[-1].type.element_type
        rank = arguments[-1].type.rank
        self.level = (0,) * rank
        self.changes: list[set[int]] = [set() for _ in range(rank)]
        self.known: dict[Any, _Linear] = {}
        kernel = generic.op.parent.regions[0].blocks[0]
        inner = [op.operation for op in generic.block.operations]
        for op in (*(o.operation for o in kernel.operations), *inner):
            if op.name == "arith.constant" and isinstance(op.attributes["value"], ir.IntegerAttr):
                number = int(op.attributes["value"].value)
                self.known[op.results[0]] = _Linear(number, self.level)

    def points(self, shape: Sequence[int]) -> list[tuple[int, ...]]:
        values = [
            sorted({0, n - 1} | {c + d for c in changes for d in (-1, 0, 1) if 0 < c + d < n})
            for n, changes in zip(shape, self.changes, strict=True)
        ]
        count = prod(map(len, values))
        return list(islice(product(*values), min(count, _MOST_POINTS + 1)))

    def at(self, point: Sequence[int]) -> tuple[int, int] | None:
        """The number of an argument, and a position in it; None for any other value."""
        values: dict[Any, Any] = dict(self.known)
        for op in self.generic.block.operations:
            op = op.operation
            if op.name == "linalg.yield":
                result = values.get(op.operands[0])
                return result if isinstance(result, tuple) else None
            value = self._value(op, values, point)
            if value is None:
                return None
            values[op.results[0]] = value
        return None

    def _value(self, op: Any, values: dict[Any, Any], point: Sequence[int]) -> Any:
        if op.name == "linalg.index":
            dim = int(op.attributes["dim"].value)
            slopes = tuple(int(i == dim) for i in range(len(point)))
            return _Linear(point[dim], slopes)
        if op.name == "memref.load":
            return self._element(op, values)
        if op.name == "arith.constant":
            return values.get(op.results[0])
        if any(v not in values for v in op.operands):
            return None
        operands = [values[v] for v in op.operands]
        if op.name in ("arith.extf", "arith.index_cast"):
            return operands[0]
        if op.name == "arith.truncf":
            # What was widened from this type is the same again; other types round it.
            return operands[0] if op.results[0].type == self.element else None
        if op.name == "arith.select":
            return operands[1] if operands[0].value else operands[2]
        if not all(isinstance(operand, _Linear) for operand in operands):
            return None
        return self._integer(op, operands, point)

    def _element(self, op: Any, values: dict[Any, Any]) -> tuple[int, int] | None:
        source, *indices = op.operands
        if source not in self.numbers or source.type.element_type != self.element:
            return None
        where = [values.get(i) for i in indices]
        positions = [i.value for i in where if isinstance(i, _Linear)]
        if len(positions) != len(where):
            return None
        return self.numbers[source], _flat(positions, source.type.shape)

    def _integer(self, op: Any, operands: list[_Linear], point: Sequence[int]) -> _Linear | None:
        if op.name == "arith.addi":
            return operands[0] + operands[1]
        if op.name == "arith.subi":
            return operands[0] - operands[1]
        if op.name not in ("arith.cmpi", "arith.maxsi", "arith.minsi"):
            return None
        if not self._note_change(operands[0] - operands[1], point):
            return None
        if op.name != "arith.cmpi":
            choose = max if op.name == "arith.maxsi" else min
            return choose(operands, key=lambda operand: operand.value)
        compare = _COMPARES.get(int(op.attributes["predicate"].value))
        if compare is None:
            return None
        return _Linear(int(compare(*(operand.value for operand in operands))), self.level)

    def _note_change(self, difference: _Linear, point: Sequence[int]) -> bool:
        """Note where the sign of a difference changes; whether one index at most decides it."""
        dims = [dim for dim, slope in enumerate(difference.slopes) if slope]
        if len(dims) > 1:
            return False
        for dim in dims:
            root = Fraction(difference.value, difference.slopes[dim])
            self.changes[dim] |= {point[dim] - floor(root), point[dim] - ceil(root)}
        return True


_COMPARES: dict[int, Callable[[int, int], bool]] = {
    0: operator.eq,
    1: operator.ne,
    2: operator.lt,
    3: operator.le,
    4: operator.gt,
    5: operator.ge,
}
