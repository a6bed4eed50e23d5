"""Loop kernels of users as linalg: stages of parallel loops, or loops in order.

In: a checked kernel (`nova/ops/kernels/`), its operands and the output that is asked for. Out: the
tensor of that output. A stage is a `linalg.generic`: elements at the loop variables are operands
with affine maps, which fuse and vectorize like those of other ops; other elements are
`tensor.extract` at clamped indices, and loops inside are `scf.for`. A kernel whose iterations
depend on each other is a nest of `scf.for` that inserts into its outputs. Called by the linalg
builder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from nova.core.dtypes import DType, TensorType, bool_, i64, u64
from nova.core.sizes import Size, SizeExpr, at_most, is_static, known_equal
from nova.ir.attributes import WORK
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.linalg.ops import fill, generic_op, yield_op
from nova.ir.linalg.scalar import Body, Scalar
from nova.ir.symbolic.size_table import representative
from nova.ir.types import element_type, tensor_type
from nova.ops.kernels.expressions import Expressions
from nova.ops.kernels.language import LoopProgram, augmented, indices_of, literal_int, range_of
from nova.ops.kernels.stages import (
    Dims,
    Ordered,
    Stage,
    Temporary,
    assigned_names,
    element_owner,
    find_stages,
)
from nova.ops.kernels.typing import Typing
from nova.ops.table import OPS, Op

Key = tuple[str, tuple[str, ...]]
"""An element at loop variables: the tensor, and the variables."""
_UNKNOWN_TRIPS = 16
"""Iterations of a loop without a static size, in estimates of work."""


def emit_loop_kernel(
    program: LoopProgram, types: Mapping[str, TensorType], values: Mapping[str, Any], output: str
) -> Any:
    """The tensor of one output; `values` are the tensors of the inputs."""
    typing = Typing(program, types)
    try:
        stages = find_stages(program, typing, output)
    except Ordered:
        return _emit_ordered(program, typing, values, output)
    temporaries: dict[tuple[str, Dims], Any] = {}
    results: list[Any] = []
    for stage in stages:
        results = _StageCode(program, typing, values, temporaries, stage).emit()
        names = [(name, stage.dims) for name in stage.results]
        temporaries |= dict(zip(names, results, strict=True))
    return results[0]


class Code(Expressions):
    """Emits scalar code at the insertion point; variables are SSA values."""

    def __init__(self, program: LoopProgram, typing: Typing, values: Mapping[str, Any]):
        super().__init__(program, typing.types)
        self.typing, self.values = typing, values
        self.body = Body()
        self.variables: dict[str, Scalar] = {}
        self.tensors: dict[str, Any] = {}
        """The outputs, where loops run in order."""
        self.elements: dict[Key, Scalar] = {}
        """Elements that are operands of the stage."""
        self.sizes: dict[str, Size] = {}
        """Loop variables that are at least 0 and below a size."""

    # --- expressions ----------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> Scalar:
        return self.body.const(value, dtype)

    def variable(self, node: ast.Name) -> Scalar:
        return self._current(node.id)

    def _current(self, name: str) -> Scalar:
        if name not in self.variables:  # assigned on another path; 0 as in the reference
            return self.body.const(0, self.declared(name))
        return self.variables[name]

    def declared(self, name: str) -> DType:
        owner = element_owner(name)
        if owner is not None:
            return self.scalar_of(self.types[owner].dtype)
        return self.typing.variables[name]

    def load(self, node: ast.Subscript | ast.Name, name: str, indices: list[ast.expr]) -> Scalar:
        dtype = self.types[name].dtype
        key = (name, tuple(i.id if isinstance(i, ast.Name) else "" for i in indices))
        if key in self.elements:
            return self.elements[key]
        if any(known_equal(n, 0) for n in self.types[name].shape):
            return self.body.const(0, self.scalar_of(dtype))
        source = self.tensors[name] if name in self.tensors else self.values[name]
        position = [self._clamped(i, n) for i, n in self._axes(name, indices)]
        return self.read(tensor.extract(source, position), dtype)

    def read(self, value: Any, dtype: DType) -> Scalar:
        """A loaded element in the dtype in which the kernel computes."""
        return self.cast(self.body.widen(value, dtype), self.scalar_of(dtype))

    def apply(
        self, row: Op, values: Sequence[Scalar], attrs: dict[str, Any], dtype: DType
    ) -> Scalar:
        assert row.scalar is not None
        return self.cast(row.scalar(self.body, *values, **attrs), dtype)

    def cast(self, value: Scalar, dtype: DType) -> Scalar:
        return self.body.cast(value, dtype)

    def dtype(self, value: Scalar) -> DType:
        return value.dtype

    # --- positions ------------------------------------------------------------------------------

    def _axes(self, name: str, indices: list[ast.expr]) -> Iterator[tuple[ast.expr, Size]]:
        return zip(indices, self.types[name].shape, strict=True)

    def _number(self, index: ast.expr, size: Size) -> Scalar:
        literal = literal_int(index)
        if literal is not None:
            return self.body.const(literal + size if literal < 0 else literal, i64)
        return self.cast(self.value(index), i64)

    def _is_inside(self, index: ast.expr, size: Size) -> bool:
        literal = literal_int(index)
        if literal is not None:
            return is_static(size)  # the typing rules have checked it
        extent = self.sizes.get(index.id) if isinstance(index, ast.Name) else None
        return extent is not None and at_most(extent, size)

    def _clamped(self, index: ast.expr, size: Size) -> Any:
        number = self._number(index, size)
        if not self._is_inside(index, size):
            last = self.body.const(size - 1, i64)
            number = self.body.maximum(self.body.minimum(number, last), 0)
        return arith.index_cast(ir.IndexType.get(), number.value)

    # --- statements -----------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                for name, item in zip(names, self.items(value), strict=True):
                    self._assign(name, item)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self.value(value))
            case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name))) if (
                name not in self.tensors
            ):
                pass  # another output
            case ast.AugAssign(target=target):
                self._assign(target, self.value(augmented(node)))
            case ast.For():
                self._loop(node)
            case ast.If():
                self._branch(node)

    def _assign(self, target: ast.expr, value: Scalar) -> None:
        if isinstance(target, ast.Name):
            self.variables[target.id] = self.cast(value, self.declared(target.id))
            return
        assert isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
        name = target.value.id
        if name not in self.tensors or any(known_equal(n, 0) for n in self.types[name].shape):
            return  # another output, or one without elements
        indices = indices_of(target.slice)
        if self.types[name].rank == 0:
            indices = []
        element = self.cast(value, self.types[name].dtype).value
        position = [self._clamped(i, n) for i, n in self._axes(name, indices)]
        inside = [
            (self._number(i, n), n)
            for i, n in self._axes(name, indices)
            if not self._is_inside(i, n)
        ]
        if inside:
            # A store out of range is dropped: the element that is there is written again.
            present = tensor.extract(self.tensors[name], position)
            holds = self.body.const(1, bool_)
            for number, size in inside:
                holds = holds & (number >= 0) & (number < self.body.const(size, i64))
            element = arith.select(holds.value, element, present)
        self.tensors[name] = tensor.insert(element, self.tensors[name], position)

    def _carried(self, nodes: Sequence[ast.stmt]) -> tuple[list[str], list[str]]:
        """The variables and the outputs that statements assign."""
        stored = {
            n.value.id
            for node in nodes
            for n in ast.walk(node)
            if isinstance(n, ast.Subscript)
            and isinstance(n.ctx, ast.Store)
            and isinstance(n.value, ast.Name)
        }
        return sorted(assigned_names(nodes)), sorted(stored & self.tensors.keys())

    def _state(self, names: list[str], outputs: list[str]) -> list[Any]:
        return [*(self._current(n).value for n in names), *(self.tensors[n] for n in outputs)]

    def _set_state(self, names: list[str], outputs: list[str], values: Sequence[Any]) -> None:
        for name, value in zip(names, values, strict=False):
            self.variables[name] = Scalar(value, self.declared(name), self.body)
        self.tensors |= dict(zip(outputs, values[len(names) :], strict=True))

    def _loop(self, node: ast.For) -> None:
        start, stop, step = range_of(node)
        assert isinstance(node.target, ast.Name)
        variable = node.target.id
        first, last = self.cast(self.value(start), i64), self.cast(self.value(stop), i64)
        size = self.typing.loop_size(node)
        if size is not None:
            count = last
            self.sizes[variable] = size
        else:
            self.sizes.pop(variable, None)
            distance = last - first if step > 0 else first - last
            count = (distance + (abs(step) - 1)) / abs(step)
        names, outputs = self._carried(node.body)
        names = [n for n in names if n != variable]
        initial = self._state(names, outputs)
        index = ir.IndexType.get()
        bounds = [
            arith.index_cast(index, b.value)
            for b in (self.constant(0, i64), count, self.constant(1, i64))
        ]
        loop = scf.ForOp(*bounds, initial)
        with ir.InsertionPoint(loop.body):
            number = Scalar(
                arith.index_cast(element_type(i64), loop.induction_variable), i64, self.body
            )
            self._set_state(names, outputs, list(loop.inner_iter_args))
            self.variables[variable] = number if size is not None else first + number * step
            self.block(node.body)
            scf.YieldOp(self._state(names, outputs))
        self._set_state(names, outputs, list(loop.results))
        self.variables.pop(variable)

    def _branch(self, node: ast.If) -> None:
        condition = self.cast(self.value(node.test), bool_)
        names, outputs = self._carried([*node.body, *node.orelse])
        if outputs:
            opposite = self.body.logical_not(condition)
            self._guarded(condition, node.body)
            self._guarded(opposite, node.orelse)
            return
        before = self._state(names, [])
        if not before:
            return
        branch = scf.IfOp(condition.value, [v.type for v in before], has_else=True)
        for block, statements in (
            (branch.then_block, node.body),
            (branch.else_block, node.orelse),
        ):
            with ir.InsertionPoint(block):
                self._set_state(names, [], before)
                self.block(statements)
                scf.YieldOp(self._state(names, []))
        self._set_state(names, [], list(branch.results))

    def _guarded(self, condition: Scalar, statements: Sequence[ast.stmt]) -> None:
        """Statements that store, if a condition holds: a loop of one iteration, or of none.

        One-shot bufferization refuses a tensor that an `scf.if` returns to a loop (a RaW conflict);
        a loop writes the tensor in place.
        """
        if not statements:
            return
        names, outputs = self._carried(statements)
        index = ir.IndexType.get()
        zero, one = (arith.constant(index, n) for n in (0, 1))
        loop = scf.ForOp(
            zero, arith.index_castui(index, condition.value), one, self._state(names, outputs)
        )
        with ir.InsertionPoint(loop.body):
            self._set_state(names, outputs, list(loop.inner_iter_args))
            self.block(statements)
            scf.YieldOp(self._state(names, outputs))
        self._set_state(names, outputs, list(loop.results))


def _emit_ordered(
    program: LoopProgram, typing: Typing, values: Mapping[str, Any], output: str
) -> Any:
    """The kernel as it is written, with the outputs that are read or asked for."""
    code = Code(program, typing, values)
    read = {
        n.value.id
        for node in program.body
        for n in ast.walk(node)
        if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
        # An augmented assignment reads its target, whose context is a store.
        if isinstance(n.ctx, ast.Load)
    }
    for name in program.outputs:
        if name == output or name in read:
            code.tensors[name] = _filled(typing.types[name], 0)
    code.block(program.body)
    return code.tensors[output]


class _StageCode:
    """Emits one stage."""

    def __init__(
        self,
        program: LoopProgram,
        typing: Typing,
        values: Mapping[str, Any],
        temporaries: Mapping[tuple[str, Dims], Any],
        stage: Stage,
    ):
        self.program, self.typing, self.values, self.stage = program, typing, values, stage
        self.temporaries = temporaries
        self.dims: Dims = (*stage.dims, *stage.reduced)
        self.positions = {name: d for d, (name, _) in enumerate(self.dims)}
        self.nodes: list[ast.AST] = [i for i in stage.items if isinstance(i, ast.stmt)]
        if stage.value is not None:
            self.nodes.append(stage.value)
        self.direct: dict[Key, None] = {}
        self.used: set[str] = set()
        for node in self.nodes:
            self._collect(node)

    def _collect(self, node: ast.AST) -> None:
        """Find the elements that are operands, and the loop variables that are used otherwise."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            key = self._direct_key(node.value.id, indices_of(node.slice))
            if key is not None:
                self.direct[key] = None
                return
        if isinstance(node, ast.Name):
            if node.id in self.values:
                self.direct[(node.id, ())] = None
            self.used.add(node.id)
        for child in ast.iter_child_nodes(node):
            self._collect(child)

    def _direct_key(self, name: str, indices: Sequence[ast.expr]) -> Key | None:
        if name not in self.values or not self.typing.types[name].rank:
            return None
        sizes = dict(self.dims)
        names = tuple(i.id if isinstance(i, ast.Name) else "" for i in indices)
        shape = self.typing.types[name].shape
        fits = all(
            n in sizes and known_equal(sizes[n], s) for n, s in zip(names, shape, strict=True)
        )
        return (name, names) if fits else None

    def emit(self) -> list[Any]:
        stage, typing = self.stage, self.typing
        keys = [k for k in self.direct if len(k[1]) == typing.types[k[0]].rank]
        loads = [i for i in stage.items if isinstance(i, Temporary)]
        inputs = [self.values[name] for name, _ in keys]
        accesses = [indices for _, indices in keys]
        for item in loads:
            inputs += [self.temporaries[name, item.dims] for name in item.names]
            accesses += [tuple(n for n, _ in item.dims) for _ in item.names]
        reach = {n for indices in accesses for n in indices}
        if not {n for n, _ in stage.reduced} <= reach:
            # linalg takes the bounds of reduced loops from operands; this one is not read.
            sizes = [representative(n) for _, n in stage.reduced]
            inputs.append(tensor.empty(sizes, element_type(bool_)))
            accesses.append(tuple(n for n, _ in stage.reduced))
        types = [self._result_type(name) for name in stage.results]
        outputs = [self._initial(t) for t in types]
        accesses += [tuple(n for n, _ in stage.dims)] * len(outputs)
        maps = [self._map(indices) for indices in accesses]
        iterators = ["parallel"] * len(stage.dims) + ["reduction"] * len(stage.reduced)
        op = generic_op([tensor_type(t) for t in types], inputs, outputs, maps, iterators)
        elements = [ir.ShapedType(v.type).element_type for v in (*inputs, *outputs)]
        block = op.regions[0].blocks.append(*elements)
        with ir.InsertionPoint(block):
            yield_op(self._body(list(block.arguments), keys, loads, types))
        trips = _trips(typing, self.nodes)
        if trips > 1:
            points = prod(representative(n) for _, n in self.dims)
            WORK.set(op, min(points * trips * 4, (1 << 62) - 1))
        return list(op.results)

    def _map(self, indices: Sequence[str]) -> Any:
        dims = [ir.AffineDimExpr.get(self.positions[n]) for n in indices]
        return ir.AffineMap.get(len(self.dims), 0, dims)

    def _result_type(self, name: str) -> TensorType:
        shape = tuple(n for _, n in self.stage.dims)
        owner = element_owner(name)
        if owner is None:
            return TensorType(shape, self.typing.variables[name])
        return TensorType(shape, self.typing.types[owner].dtype)

    def _initial(self, type_: TensorType) -> Any:
        if not self.stage.reduced:
            return tensor.empty([representative(n) for n in type_.shape], element_type(type_.dtype))
        return _filled(type_, _identity(self.stage.combine, type_.dtype))

    def _body(
        self,
        arguments: list[Any],
        keys: Sequence[Key],
        loads: Sequence[Temporary],
        types: Sequence[TensorType],
    ) -> list[Any]:
        stage = self.stage
        code = Code(self.program, self.typing, self.values)
        for (name, size), position in zip(self.dims, range(len(self.dims)), strict=True):
            code.sizes[name] = size
            if name in self.used:
                code.variables[name] = code.body.index(position)
        rest = iter(arguments)
        for name, indices in keys:
            dtype = self.typing.types[name].dtype
            code.elements[name, indices] = code.read(next(rest), dtype)
        loaded = {
            (name, item.dims): code.read(next(rest), self._result_type(name).dtype)
            for item in loads
            for name in item.names
        }
        for item in stage.items:
            if isinstance(item, Temporary):
                code.variables |= {name: loaded[name, item.dims] for name in item.names}
            else:
                code.statement(item)
        if stage.value is None:
            return [
                code.cast(code._current(name), t.dtype).value
                for name, t in zip(stage.results, types, strict=True)
            ]
        dtype = types[0].dtype
        total = Scalar(arguments[-1], dtype, code.body)
        value = code.cast(code.value(stage.value), dtype)
        return [code.apply(OPS[stage.combine], [total, value], {}, dtype).value]


def _identity(row: str, dtype: DType) -> Any:
    if row == "add":
        return 0
    if dtype.is_float:
        return float("-inf") if row == "maximum" else float("inf")
    low, high = (0, (1 << 64) - 1) if dtype is u64 else (-(1 << 63), (1 << 63) - 1)
    return low if row == "maximum" else high


def _filled(type_: TensorType, value: Any) -> Any:
    empty = tensor.empty([representative(n) for n in type_.shape], element_type(type_.dtype))
    return fill(Body().const(value, type_.dtype).value, empty)


def _trips(typing: Typing, nodes: Sequence[ast.AST]) -> int:
    """The most iterations of sequential loops in the nodes: an estimate for schedules."""
    most = 1
    for node in nodes:
        inner = _trips(typing, list(ast.iter_child_nodes(node)))
        if isinstance(node, ast.For):
            size = typing.loop_size(node)
            is_number = size is not None and not isinstance(size, SizeExpr)
            inner *= max(1, int(size) if is_number and size is not None else _UNKNOWN_TRIPS)
        most = max(most, inner)
    return most
