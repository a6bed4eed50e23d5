"""The dtypes of the variables of a kernel, and the sizes that its loops are known to have.

A variable has one dtype, the widest of all values that are assigned to it (bool, i64, u64, float):
`total = 0` and `total += x[i]` is a float. Checking a kernel is computing its dtypes: all errors
that depend on the types of operands are raised here, when the graph is built.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from nova.core.dtypes import DType, TensorType, bool_, i64, u64
from nova.core.sizes import Size, is_static
from nova.ops.kernels.expressions import Expressions
from nova.ops.kernels.language import (
    LoopProgram,
    augmented,
    literal_int,
    range_of,
    shape_owner,
)
from nova.ops.table import Op


class Typing(Expressions):
    """Values are dtypes. `variables` has the dtype of each variable."""

    def __init__(self, program: LoopProgram, types: Mapping[str, TensorType]):
        super().__init__(program, types)
        self.variables: dict[str, DType] = {}
        self.sizes: dict[str, Size] = {}
        """Variables that are assigned once, with a value that shapes determine."""
        before: dict[str, DType] | None = None
        while before != self.variables:
            before = dict(self.variables)
            self._block(program.body)
        self._find_sizes()

    # --- dtypes ---------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType) -> DType:
        return dtype

    def variable(self, node: ast.Name) -> DType:
        if node.id not in self.variables:
            self.program.fail(node, f"{node.id!r} is read before it is assigned")
        return self.variables[node.id]

    def load(self, node: ast.Subscript | ast.Name, name: str, indices: list[ast.expr]) -> DType:
        for index, size in zip(indices, self.types[name].shape, strict=True):
            self._check_index(index)
            number = literal_int(index)
            if number is not None and is_static(size) and not -size <= number < size:
                self.program.fail(
                    node, f"{name} has {size} elements there, and no element {number}"
                )
        return self.scalar_of(self.types[name].dtype)

    def apply(self, row: Op, values: Sequence[Any], attrs: dict[str, Any], dtype: DType) -> DType:
        return dtype

    def cast(self, value: DType, dtype: DType) -> DType:
        return dtype

    def dtype(self, value: DType) -> DType:
        return value

    def _check_index(self, node: ast.expr) -> None:
        if self.value(node).is_float:
            self.program.fail(
                node, f"the index `{ast.unparse(node)}` is a float", "convert it with int(...)"
            )

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                    self._unpack(node, names, value)
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, self.value(value))
                case ast.AugAssign(target=target):
                    self._assign(target, self.value(augmented(node)))
                case ast.For(target=target, body=body):
                    start, stop, _ = range_of(node)
                    self._check_index(start)
                    self._check_index(stop)
                    self._assign(target, i64)
                    self._block(body)
                case ast.If(test=test, body=body, orelse=orelse):
                    self.value(test)
                    self._block(body)
                    self._block(orelse)

    def _unpack(self, node: ast.Assign, names: list[ast.expr], value: ast.expr) -> None:
        owner = shape_owner(value)
        if owner is not None:
            rank = self.types[owner].rank
            if rank != len(names):
                self.program.fail(node, f"{owner} has {rank} axes, and {len(names)} names here")
        for name, dtype in zip(names, self.items(value), strict=True):
            self._assign(name, dtype)

    def _assign(self, target: ast.expr, dtype: DType) -> None:
        if isinstance(target, ast.Name):
            before = self.variables.get(target.id, dtype)
            self.variables[target.id] = max(before, dtype, key=_rank)
            return
        self.value(target)  # checks the rank and the indices

    # --- sizes ----------------------------------------------------------------------------------

    def _find_sizes(self) -> None:
        counts: dict[str, int] = {}
        single: list[tuple[str, ast.expr | Size]] = []
        for node in ast.walk(ast.Module(list(self.program.body), [])):
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                    owner = shape_owner(value)
                    values: Sequence[Any] = (
                        self.types[owner].shape if owner else getattr(value, "elts", ())
                    )
                    pairs = zip(names, values, strict=True)
                    single += [(n.id, v) for n, v in pairs if isinstance(n, ast.Name)]
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    single.append((name, value))
                case ast.AugAssign(target=ast.Name(id=name)) | ast.For(target=ast.Name(id=name)):
                    counts[name] = counts.get(name, 0) + 2
        for name, _ in single:
            counts[name] = counts.get(name, 0) + 1
        for name, item in single:
            size = self.static_size(item) if isinstance(item, ast.expr) else item
            if counts[name] == 1 and size is not None:
                self.sizes[name] = size

    def static_size(self, node: ast.expr) -> Size | None:
        """The value of an expression that shapes and literals determine."""
        number = literal_int(node)
        if number is not None:
            return number
        match node:
            case ast.Name(id=name):
                return self.sizes.get(name)
            case ast.Subscript(value=value, slice=index) if shape_owner(value):
                return self.types[shape_owner(value) or ""].shape[literal_int(index) or 0]
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                return self.types[name].shape[0]
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
                a, b = self.static_size(left), self.static_size(right)
                if a is None or b is None:
                    return None
                if isinstance(op, ast.Mult):
                    return a * b
                return a + b if isinstance(op, ast.Add) else a - b
        return None

    def loop_size(self, loop: ast.For) -> Size | None:
        """The number of iterations of a loop from 0 in steps of 1, if shapes determine it."""
        start, stop, step = range_of(loop)
        return self.static_size(stop) if literal_int(start) == 0 and step == 1 else None


def _rank(dtype: DType) -> int:
    return (bool_, i64, u64).index(dtype) if not dtype.is_float else 3
