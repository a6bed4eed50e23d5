"""The language of loop kernels: a function of tensors in a small subset of Python.

In: the text of a function. Out: a `LoopProgram`, whose syntax tree has only the statements and
expressions below; KernelError at the user's line for anything else.

    def scale(x, y, out):                 # inputs, then outputs
        n, m = x.shape
        for i in range(n):                # or range(start, stop), range(start, stop, step)
            total = 0.0
            for k in range(m):
                if x[i, k] > 0:
                    total += exp(x[i, k])
            for j in range(m):
                out[i, j] = x[i, j] / total if total > 0 else 0.0

Functions are the elementwise rows of the op table. The function is run once, over whole tensors,
as in Numba; that loops are independent is found by analysis (`stages.py`), and claimed by writing
`parallel_range` (`nova.range` in the user's file).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NoReturn

from nova.core.records import record
from nova.errors import KernelError

PARALLEL = "parallel_range"
RANGES = ("range", PARALLEL)
CASTS = ("float", "int", "bool")
FOLDS = {"min": "minimum", "max": "maximum"}
_MOST_TEXT = 1 << 16
_MOST_DEPTH = 60

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_div",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.And: "logical_and",
    ast.Or: "logical_or",
    ast.Not: "logical_not",
    ast.USub: "neg",
    ast.Invert: "bitwise_not",
}
"""Operators of Python as rows of the op table."""

ORIGINS: dict[str, tuple[str, dict[int, int]]] = {}
"""Text of a kernel -> the user's file, and the line there of each line of the text."""


@record
class LoopProgram:
    """A checked kernel."""

    text: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[ast.stmt, ...]

    def where(self, node: ast.AST) -> str:
        """The user's line of a node, or the line of the text in a process without the source."""
        line = getattr(node, "lineno", 1)
        file, lines = ORIGINS.get(self.text, (f"<kernel {self.name}>", {}))
        return f"{file}:{lines.get(line, line)}"

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        raise KernelError(f"{self.name}: {message}", where=self.where(node), hint=hint)


@lru_cache(256)
def parse_program(text: str, outputs: int) -> LoopProgram:
    """The kernel of a text whose last `outputs` parameters are written."""
    if len(text) > _MOST_TEXT:
        raise KernelError(f"a kernel has at most {_MOST_TEXT} characters, not {len(text)}")
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise KernelError(f"the text of a kernel does not parse: {error}") from None
    if len(module.body) != 1 or not isinstance(module.body[0], ast.FunctionDef):
        raise KernelError("the text of a kernel is one function definition")
    function = module.body[0]
    names = tuple(a.arg for a in function.args.args)
    split = len(names) - outputs
    if outputs < 1 or split < 1 or len(set(names)) != len(names):
        raise KernelError(
            f"{function.name} has the parameters {names} for {outputs} outputs",
            hint="a kernel has inputs, then outputs",
        )
    program = LoopProgram(text, function.name, names[:split], names[split:], tuple(function.body))
    _Checker(program).block(program.body, frozenset())
    _check_loop_variables(program)
    return program


def _check_loop_variables(program: LoopProgram) -> None:
    """Refuse a variable that is assigned and is the variable of a loop elsewhere."""
    nodes = list(ast.walk(ast.Module(list(program.body), [])))
    loops = {n.target for n in nodes if isinstance(n, ast.For)}
    names = {n.id for n in loops if isinstance(n, ast.Name)}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in names and node not in loops:
                program.fail(node, f"assigns {name!r}, which is the variable of a loop")
    _check_reads(program, program.body, frozenset(names))


def _check_reads(
    program: LoopProgram, statements: Sequence[ast.stmt], outside: frozenset[str]
) -> None:
    """Refuse reads of the variables of loops, `outside`, that are not around the statements."""
    for statement in statements:
        inner: list[ast.stmt] = [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]
        nested = {node for child in inner for node in ast.walk(child)}
        for node in ast.walk(statement):
            match node:
                case ast.Name(id=name, ctx=ast.Load()) if name in outside and node not in nested:
                    program.fail(
                        node,
                        f"reads {name!r} outside of its loop",
                        "assign its value to another variable in the loop",
                    )
        match statement:
            case ast.For(target=ast.Name(id=name)):
                _check_reads(program, inner, outside - {name})
            case _:
                _check_reads(program, inner, outside)


class _Checker:
    """Refuses all that is not in the subset."""

    def __init__(self, program: LoopProgram):
        self.program = program
        self.tensors = {*program.inputs, *program.outputs}
        self.depth = 0

    def block(self, statements: Sequence[ast.stmt], loops: frozenset[str]) -> None:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.program.fail(statements[0], "is nested too deeply")
        for statement in statements:
            self._statement(statement, loops)
        self.depth -= 1

    def _statement(self, node: ast.stmt, loops: frozenset[str]) -> None:
        match node:
            case ast.Pass():
                pass
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                self._unpack(node, names, value, loops)
            case ast.Assign(targets=[target], value=value):
                self._target(target, loops)
                self.expression(value)
            case ast.AugAssign(target=target, op=operator, value=value):
                self._target(target, loops)
                self._operator(node, operator)
                self.expression(value)
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body, orelse=[]):
                self._loop(node, name, iterator, loops)
                self.block(body, loops | {name})
            case ast.If(test=test, body=body, orelse=orelse):
                self.expression(test)
                self.block(body, loops)
                self.block(orelse, loops)
            case ast.While() | ast.Break() | ast.Continue() | ast.Return():
                word = type(node).__name__.lower()
                self.program.fail(
                    node,
                    f"`{word}` is not part of a kernel",
                    "a kernel is `for` over range, `if`, and assignments; it writes its outputs",
                )
            case _:
                self.program.fail(node, f"`{first_line(node)}` is not part of a kernel")

    def _unpack(
        self, node: ast.stmt, names: list[ast.expr], value: ast.expr, loops: frozenset[str]
    ) -> None:
        for name in names:
            if not isinstance(name, ast.Name):
                self.program.fail(node, "unpacks into other targets than names")
            self._target(name, loops)
        if shape_owner(value) in self.tensors:
            return
        if not isinstance(value, ast.Tuple) or len(value.elts) != len(names):
            self.program.fail(node, f"unpacks `{ast.unparse(value)}` into {len(names)} names")
        for item in value.elts:
            self.expression(item)

    def _target(self, node: ast.expr, loops: frozenset[str]) -> None:
        match node:
            case ast.Name(id=name):
                if name in self.tensors:
                    self.program.fail(
                        node, f"assigns the tensor {name!r}", f"write elements: {name}[i] = ..."
                    )
                if name in loops:
                    self.program.fail(node, f"assigns the variable {name!r} of a loop around it")
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                if name in self.program.inputs:
                    self.program.fail(
                        node, f"writes to the input {name!r}", "only outputs are written"
                    )
                if name not in self.tensors:
                    self.program.fail(node, f"{name!r} is not an output")
                for item in indices_of(index):
                    self.expression(item)
            case _:
                self.program.fail(node, f"assigns to `{ast.unparse(node)}`")

    def _loop(self, node: ast.For, name: str, iterator: ast.expr, loops: frozenset[str]) -> None:
        if name in self.tensors or name in loops:
            self.program.fail(node, f"the variable {name!r} of the loop is in use")
        match iterator:
            case ast.Call(func=ast.Name(id=function), args=args, keywords=[]) if (
                function in RANGES and 1 <= len(args) <= 3
            ):
                for item in args:
                    self.expression(item)
                if len(args) == 3 and step_of(iterator) in (None, 0):
                    self.program.fail(node, "the step of a range is an int other than 0")
            case _:
                self.program.fail(
                    node,
                    f"loops over `{ast.unparse(iterator)}`",
                    "a loop is over range(...) or nova.range(...)",
                )

    def _operator(self, node: ast.AST, operator: ast.AST) -> None:
        if type(operator) not in OPERATORS:
            self.program.fail(node, f"the operator {type(operator).__name__} is not supported")

    def expression(self, node: ast.expr) -> None:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.program.fail(node, "is nested too deeply")
        match node:
            case ast.Constant(value=bool() | int() | float()):
                if isinstance(node.value, int) and node.value >= 1 << 64:
                    self.program.fail(node, f"{node.value} is not a 64-bit integer")
            case ast.Name():
                pass
            case ast.BinOp(left=left, op=operator, right=right):
                self._operator(node, operator)
                self.expression(left)
                self.expression(right)
            case ast.UnaryOp(op=operator, operand=operand):
                if not isinstance(operator, ast.UAdd):
                    self._operator(node, operator)
                literal = literal_int(node)
                if literal is not None and literal <= -(1 << 63):
                    self.program.fail(node, f"{literal} is not a 64-bit integer")
                self.expression(operand)
            case ast.BoolOp(values=values):
                for item in values:
                    self.expression(item)
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                for comparison in operators:
                    self._operator(node, comparison)
                for item in (left, *comparators):
                    self.expression(item)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for item in (test, body, orelse):
                    self.expression(item)
            case ast.Subscript(value=value, slice=index):
                if shape_owner(value) in self.tensors:
                    if not isinstance(literal_int(index), int):
                        self.program.fail(node, "the axis of a shape is a literal int")
                elif not isinstance(value, ast.Name) or value.id not in self.tensors:
                    self.program.fail(node, f"`{ast.unparse(value)}` is not a tensor of the kernel")
                else:
                    for item in indices_of(index):
                        self.expression(item)
            case ast.Call(func=ast.Name(), args=args, keywords=[]):
                if not args:
                    self.program.fail(node, f"`{ast.unparse(node)}` has no arguments")
                for item in args:
                    self.expression(item)
            case _:
                self.program.fail(
                    node,
                    f"`{ast.unparse(node)}` is not part of a kernel",
                    "an expression is arithmetic, comparisons, elements x[i, j], sizes "
                    "x.shape[0], and elementwise functions",
                )
        self.depth -= 1


# --- parts of the syntax tree ---------------------------------------------------------------------


def first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def indices_of(index: ast.expr) -> list[ast.expr]:
    """The indices of a subscript."""
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def shape_owner(node: ast.expr) -> str | None:
    """`x` of `x.shape`."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="shape"):
            return name
    return None


def augmented(node: ast.AugAssign) -> ast.expr:
    """`x + e` of `x += e`."""
    return ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)


def literal_int(node: ast.expr) -> int | None:
    """The value of an int, or of a negative one."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
    return None


def range_of(loop: ast.For) -> tuple[ast.expr, ast.expr, int]:
    """Start, stop and step of a loop."""
    assert isinstance(loop.iter, ast.Call)
    args = loop.iter.args
    zero = ast.copy_location(ast.Constant(0), loop)
    return (zero, args[0], 1) if len(args) == 1 else (args[0], args[1], step_of(loop.iter) or 1)


def step_of(iterator: ast.Call) -> int | None:
    return literal_int(iterator.args[2]) if len(iterator.args) == 3 else 1


def is_claimed_parallel(loop: ast.For) -> bool:
    """Whether the user wrote that the iterations are independent."""
    iterator = loop.iter
    assert isinstance(iterator, ast.Call) and isinstance(iterator.func, ast.Name)
    return iterator.func.id == PARALLEL


def accesses(node: ast.AST, names: frozenset[str]) -> Iterator[ast.Subscript]:
    """The subscripts of tensors in a tree."""
    for inner in ast.walk(node):
        match inner:
            case ast.Subscript(value=ast.Name(id=name)) if name in names:
                yield inner
