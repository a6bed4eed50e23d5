"""The value of an expression of a kernel, for any domain of values.

One walk over the syntax tree serves dtypes (`typing.py`), numpy scalars (`interpret.py`) and code
(`nova/ir/linalg/kernel_loops.py`): a subclass says what a constant, a load and a row are. Scalars
are bool, i64, u64, or the float of the kernel: f64 if a tensor of the kernel is f64, otherwise f32.
Both operands of `and`, `or` and of a conditional expression are computed.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from nova.core.dtypes import DType, TensorType, bool_, f32, f64, i64, u64
from nova.errors import NovaError
from nova.ops.kernels.language import (
    CASTS,
    FOLDS,
    OPERATORS,
    LoopProgram,
    indices_of,
    literal_int,
    shape_owner,
)
from nova.ops.table import OPS, REQUIRED, Op

# Names of numpy and of `math` that rows spell differently.
_ALIASES = {
    "fabs": "abs",
    "absolute": "abs",
    "power": "pow",
    "rint": "round",
    "remainder": "mod",
    "floor_divide": "floor_div",
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
}


def float_of_kernel(types: Sequence[TensorType]) -> DType:
    """The dtype in which a kernel computes floats."""
    return f64 if any(t.dtype is f64 for t in types) else f32


class Expressions(ABC):
    """Computes values of expressions; a subclass has the domain."""

    def __init__(self, program: LoopProgram, types: Mapping[str, TensorType]):
        self.program, self.types = program, types
        self.float = float_of_kernel(list(types.values()))

    # --- the domain -----------------------------------------------------------------------------

    @abstractmethod
    def constant(self, value: Any, dtype: DType) -> Any:
        """A number of a dtype."""

    @abstractmethod
    def variable(self, node: ast.Name) -> Any:
        """The current value of a variable."""

    @abstractmethod
    def load(self, node: ast.Subscript | ast.Name, name: str, indices: list[ast.expr]) -> Any:
        """An element of a tensor."""

    @abstractmethod
    def apply(self, row: Op, values: Sequence[Any], attrs: dict[str, Any], dtype: DType) -> Any:
        """A row on values that have the dtypes that it takes."""

    @abstractmethod
    def cast(self, value: Any, dtype: DType) -> Any:
        """A value as another dtype."""

    @abstractmethod
    def dtype(self, value: Any) -> DType:
        """The dtype of a value."""

    # --- the walk -------------------------------------------------------------------------------

    def scalar_of(self, dtype: DType) -> DType:
        """The dtype in which elements of a tensor are computed."""
        if dtype.is_complex:
            raise NovaError("complex numbers are not part of kernels")
        return self.float if dtype.is_float else dtype if dtype in (bool_, u64) else i64

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() as number):
                return self.constant(number, bool_)
            case ast.Constant(value=number):
                return self.constant(number, self._literal_dtype(number))
            case ast.Name(id="nan" | "inf" as name) if name not in self.types:
                return self.constant(float(name), self.float)
            case ast.Name(id=name) if name in self.types:
                self._check_rank(node, name, 0)
                return self.load(node, name, [])
            case ast.Name():
                return self.variable(node)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._arithmetic(node, operator, left, right)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand)
            case ast.UnaryOp(op=operator, operand=operand):
                return self.call(node, OPERATORS[type(operator)], [operand])
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                return self._comparison(node, [left, *comparators], operators)
            case ast.BoolOp(op=operator, values=values):
                return self._choice(node, operator, [self.value(v) for v in values])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition = self.cast(self.value(test), bool_)
                return self.row(node, "where", [condition, self.value(body), self.value(orelse)])
            case ast.Subscript(value=value, slice=index):
                return self._subscript(node, value, index)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self.call(node, name, args)
        raise AssertionError(ast.dump(node))

    def _literal_dtype(self, number: Any) -> DType:
        if not isinstance(number, int):
            return self.float
        return i64 if number < 1 << 63 else u64

    def items(self, node: ast.expr) -> list[Any]:
        """The values of a tuple, or the sizes of a shape."""
        owner = shape_owner(node)
        if owner is not None:
            return [self.constant(size, i64) for size in self.types[owner].shape]
        assert isinstance(node, ast.Tuple)
        return [self.value(item) for item in node.elts]

    def _arithmetic(
        self, node: ast.expr, operator: ast.operator, left: ast.expr, right: ast.expr
    ) -> Any:
        """As in Python, bools are numbers in arithmetic, and bools for `&`, `|` and `^`."""
        values = [self.value(left), self.value(right)]
        if not isinstance(operator, ast.BitAnd | ast.BitOr | ast.BitXor):
            values = [self.cast(v, i64) if self.dtype(v) is bool_ else v for v in values]
        exponent = literal_int(right) if isinstance(operator, ast.Pow) else None
        if exponent is not None and exponent < 0 and self.dtype(values[0]) is i64:
            self.program.fail(
                node, "an integer to a negative power is not an integer", "write float(x) ** y"
            )
        return self.row(node, OPERATORS[type(operator)], values)

    def _choice(self, node: ast.expr, operator: ast.boolop, values: Sequence[Any]) -> Any:
        """`and` and `or`: of bools, a bool; else the operand that decides, as in Python."""
        result = values[0]
        for value in values[1:]:
            if self.dtype(result) is bool_ and self.dtype(value) is bool_:
                result = self.row(node, OPERATORS[type(operator)], [result, value])
                continue
            pair = [value, result] if isinstance(operator, ast.And) else [result, value]
            result = self.row(node, "where", [self.cast(result, bool_), *pair])
        return result

    def _subscript(self, node: ast.Subscript, value: ast.expr, index: ast.expr) -> Any:
        owner = shape_owner(value)
        if owner is not None:
            return self.size(node, owner, literal_int(index) or 0)
        assert isinstance(value, ast.Name)
        indices = indices_of(index)
        self._check_rank(node, value.id, len(indices))
        return self.load(node, value.id, indices)

    def _check_rank(self, node: ast.expr, name: str, count: int) -> None:
        rank = self.types[name].rank
        if rank != count:
            self.program.fail(node, f"{name} has {rank} axes, and {count} indices here")

    def size(self, node: ast.expr, name: str, axis: int) -> Any:
        """The size of an axis, which may be symbolic."""
        rank = self.types[name].rank
        if not -rank <= axis < rank:
            self.program.fail(node, f"{name} has {rank} axes, and no axis {axis}")
        return self.constant(self.types[name].shape[axis], i64)

    def call(self, node: ast.expr, name: str, args: Sequence[ast.expr]) -> Any:
        if name == "len":
            if len(args) != 1 or not isinstance(args[0], ast.Name) or args[0].id not in self.types:
                self.program.fail(node, "len is of a tensor")
            return self.size(node, args[0].id, 0)
        values = [self.value(a) for a in args]
        if name in CASTS:
            if len(values) != 1:
                self.program.fail(node, f"{name} takes one argument")
            return self.cast(values[0], {"float": self.float, "int": i64, "bool": bool_}[name])
        if name in FOLDS:
            return self._fold(node, FOLDS[name], values)
        return self.row(node, _ALIASES.get(name, name), values)

    def _fold(self, node: ast.expr, name: str, values: Sequence[Any]) -> Any:
        result = values[0]
        for value in values[1:]:
            result = self.row(node, name, [result, value])
        return result

    def _comparison(
        self, node: ast.expr, operands: Sequence[ast.expr], operators: Sequence[ast.AST]
    ) -> Any:
        values = [self.value(o) for o in operands]
        pairs = zip(operators, values[:-1], values[1:], strict=True)
        return self._fold(
            node, "logical_and", [self.row(node, OPERATORS[type(o)], [a, b]) for o, a, b in pairs]
        )

    def row(self, node: ast.expr, name: str, values: Sequence[Any]) -> Any:
        """An elementwise row of the op table on scalars."""
        row = OPS.get(name)
        required = row is None or any(v is REQUIRED for v in row.attrs.values())
        if row is None or row.scalar is None or required:
            usable = [n for n, r in OPS.items() if r.scalar is not None]
            close = get_close_matches(name, [*usable, *CASTS, *FOLDS, *_ALIASES], 3)
            hint = f"did you mean {' or '.join(close)}?" if close else "docs/ops.md lists them"
            self.program.fail(node, f"{name!r} is not an elementwise function", hint)
        if not row.min_operands <= len(values) <= (row.max_operands or 0):
            self.program.fail(node, f"{name} takes ({', '.join(row.operands)})")
        if any(self.dtype(v) is u64 for v in values):
            values = [self.cast(v, u64) if self.dtype(v) is i64 else v for v in values]
        if row.cast == "float":
            values = [self.cast(v, self.float) for v in values]
        try:
            targets = row.cast_types(tuple(map(self.dtype, values)))
            values = [self.cast(v, t) for v, t in zip(values, targets, strict=True)]
            types = tuple(TensorType((), t) for t in targets)
            attrs = row.canon(types, dict(row.attrs)) if row.canon else dict(row.attrs)
            assert row.infer is not None
            result = row.infer(types, attrs)
        except NovaError as error:
            self.program.fail(node, f"{name}: {error.what}", error.hint)
        return self.cast(self.apply(row, values, attrs, result.dtype), self.scalar_of(result.dtype))
