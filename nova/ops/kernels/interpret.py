"""The numpy reference of loop kernels: the statements, one after the other.

It shares the walk over expressions and the `numpy` column of rows with the compiler, and nothing of
the analysis of loops. An index out of range is a KernelError here; compiled code clamps indices of
loads and drops such stores.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import DType, TensorType, dtype
from nova.ops.kernels.expressions import Expressions
from nova.ops.kernels.language import LoopProgram, augmented, indices_of, literal_int, range_of
from nova.ops.kernels.typing import Typing
from nova.ops.table import Op


def run_program(
    program: LoopProgram, arrays: Sequence[np.ndarray], outputs: Sequence[TensorType]
) -> list[np.ndarray]:
    """The outputs of a kernel; elements that it does not write are 0."""
    types = [TensorType(a.shape, dtype(a.dtype)) for a in arrays]
    every = dict(zip((*program.inputs, *program.outputs), (*types, *outputs), strict=True))
    written = [np.zeros(t.shape, t.dtype.numpy) for t in outputs]
    interpreter = _Interpreter(program, every, [*arrays, *written])
    with np.errstate(all="ignore"):
        interpreter.block(program.body)
    return written


class _Interpreter(Expressions):
    def __init__(
        self,
        program: LoopProgram,
        types: Mapping[str, TensorType],
        arrays: Sequence[np.ndarray],
    ):
        super().__init__(program, types)
        self.arrays = dict(zip(types, arrays, strict=True))
        self.declared = Typing(program, types).variables
        self.variables: dict[str, Any] = {
            name: dtype.numpy.type(0) for name, dtype in self.declared.items()
        }

    def constant(self, value: Any, dtype: DType) -> Any:
        return dtype.numpy.type(value)

    def variable(self, node: ast.Name) -> Any:
        return self.variables[node.id]

    def load(self, node: ast.Subscript | ast.Name, name: str, indices: list[ast.expr]) -> Any:
        element = self.arrays[name][self._position(node, name, indices)]
        return self.cast(element, self.scalar_of(self.types[name].dtype))

    def apply(self, row: Op, values: Sequence[Any], attrs: dict[str, Any], dtype: DType) -> Any:
        assert row.numpy is not None
        result = row.numpy(*(np.asarray(v) for v in values), **attrs)
        return np.asarray(result).astype(dtype.numpy)[()]

    def cast(self, value: Any, dtype: DType) -> Any:
        return np.asarray(value).astype(dtype.numpy)[()]

    def dtype(self, value: Any) -> DType:
        return dtype(value.dtype)

    def _position(self, node: ast.expr, name: str, indices: list[ast.expr]) -> tuple[int, ...]:
        shape = self.arrays[name].shape
        position = []
        for axis, (index, size) in enumerate(zip(indices, shape, strict=True)):
            number = int(self.value(index))
            if literal_int(index) is not None and number < 0:
                number += size
            if not 0 <= number < size:
                self.program.fail(node, f"{name} has {size} elements along axis {axis}: {number}")
            position.append(number)
        return tuple(position)

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                for name, item in zip(names, self.items(value), strict=True):
                    self._assign(name, item)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self.value(value))
            case ast.AugAssign(target=target):
                self._assign(target, self.value(augmented(node)))
            case ast.For(target=target, body=body):
                start, stop, step = range_of(node)
                for number in range(int(self.value(start)), int(self.value(stop)), step):
                    self._assign(target, np.int64(number))
                    self.block(body)
            case ast.If(test=test, body=body, orelse=orelse):
                self.block(body if self.value(test) else orelse)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.variables[target.id] = self.cast(value, self.declared[target.id])
            return
        assert isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
        name = target.value.id
        position = self._position(target, name, indices_of(target.slice))
        self.arrays[name][position] = self.cast(value, self.types[name].dtype)
