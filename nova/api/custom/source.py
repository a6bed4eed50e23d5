"""A Python function as the text of a loop kernel.

In: a function and values of its keyword-only parameters. Out: text in the language of
`nova/ops/kernels/language.py`, in which names of the user's modules are resolved: `math.exp`,
`np.exp` and `nova.exp` are `exp`, numbers from outside are literals. The text depends on nothing
else, so it can be a part of cache keys and files. `ORIGINS` remembers the user's lines.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from nova.api.custom import parallel
from nova.core.location import user_location
from nova.core.user_facing import unknown_keyword
from nova.errors import ArgumentCountError, KernelError
from nova.ops.kernels.language import CASTS, FOLDS, ORIGINS, PARALLEL

_BUILTINS = {"range", "len", "abs", "pow", "round", *CASTS, *FOLDS}


def positional_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the tensors of a kernel: inputs, then outputs."""
    return tuple(
        name
        for name, p in inspect.signature(function).parameters.items()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def input_names(text: str) -> list[str]:
    """The parameters of a kernel whose elements it reads and never writes."""
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    contexts: dict[str, set[type]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            contexts.setdefault(node.value.id, set()).add(type(node.ctx))
    return [a.arg for a in function.args.args if contexts.get(a.arg) == {ast.Load}]


def bind_constants(function: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the keyword-only parameters of a kernel."""
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    names = [p.name for p in parameters]
    name = getattr(function, "__name__", "the op")
    unknown = {k: v for k, v in keywords.items() if k not in names}
    if unknown:
        raise unknown_keyword(f"{name}:", unknown, names)
    values = {p.name: keywords.get(p.name, p.default) for p in parameters}
    for keyword, value in values.items():
        if value is inspect.Parameter.empty:
            raise ArgumentCountError(
                f"{name} needs the constant {keyword!r}", where=str(user_location())
            )
    return values


def kernel_text(function: Callable[..., Any], constants: Mapping[str, Any]) -> str:
    """The text of the kernel that a function defines."""
    tree, file = _definition(function)
    names = positional_names(function)
    local = {*names} | {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    resolver = _Resolver(function, file, local, constants)
    body = [resolver.visit(statement) for statement in tree.body if not _is_docstring(statement)]
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    plain = ast.FunctionDef(tree.name, arguments, body or [ast.Pass()], [])
    ast.fix_missing_locations(ast.copy_location(plain, tree))
    text = ast.unparse(plain)
    lines = _statement_lines(ast.parse(text).body[0])
    ORIGINS[text] = (file, dict(zip(lines, _statement_lines(plain), strict=True)))
    return text


def _definition(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str]:
    """The syntax tree of a function, with the line numbers of its file."""
    try:
        lines, first = inspect.getsourcelines(function)
        module = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        raise KernelError(
            f"the source of {getattr(function, '__name__', function)!r} cannot be read",
            hint="define the kernel with def, in a file or a notebook cell",
        ) from None
    tree = module.body[0]
    file = inspect.getsourcefile(function) or "<kernel>"
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError("a kernel is defined with def", where=f"{file}:{first}")
    ast.increment_lineno(tree, first - 1)
    if tree.args.vararg or tree.args.kwarg:
        raise KernelError(
            f"{tree.name} has *args or **kwargs",
            where=f"{file}:{tree.lineno}",
            hint="inputs, then outputs; constants after *",
        )
    return tree, file


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _statement_lines(tree: ast.AST) -> list[int]:
    return [n.lineno for n in ast.walk(tree) if isinstance(n, ast.stmt)]


class _Resolver(ast.NodeTransformer):
    """Replaces names from outside of the function by their meaning."""

    def __init__(
        self,
        function: Callable[..., Any],
        file: str,
        local: set[str],
        constants: Mapping[str, Any],
    ):
        self.name, self.file, self.local = function.__name__, file, local
        outer = inspect.getclosurevars(inspect.unwrap(function))
        self.outer = {**vars(builtins), **outer.builtins, **outer.globals, **outer.nonlocals}
        self.constants = dict(constants)

    def _fail(self, node: ast.AST, what: str, hint: str | None = None) -> NoReturn:
        line = getattr(node, "lineno", 0)
        raise KernelError(f"{self.name}: {what}", where=f"{self.file}:{line}", hint=hint)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.constants and node.id not in self.local:
            return self._literal(node, self.constants[node.id])
        if node.id in self.local:
            return node
        if node.id not in self.outer:
            self._fail(node, f"{node.id!r} is not defined")
        return self._literal(node, self.outer[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.local:
            return node  # x.shape
        return self._literal(node, self._object(node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        args = [self.visit(a) for a in node.args]
        if node.keywords:
            self._fail(node, f"`{ast.unparse(node)}` has keywords", "pass arguments by position")
        name = ast.Name(self._function_name(node.func), ast.Load())
        call = ast.Call(ast.copy_location(name, node), args, [])
        return ast.copy_location(call, node)

    def _object(self, node: ast.expr) -> Any:
        """The value of a name or attribute from outside."""
        if isinstance(node, ast.Attribute):
            owner = self._object(node.value)
            if hasattr(owner, node.attr):
                return getattr(owner, node.attr)
        elif isinstance(node, ast.Name) and node.id not in self.local and node.id in self.outer:
            return self.outer[node.id]
        self._fail(node, f"`{ast.unparse(node)}` is not defined outside of the kernel")

    def _function_name(self, node: ast.expr) -> str:
        value = self._object(node)
        if value is parallel.range:
            return PARALLEL
        name = getattr(value, "__name__", "")
        module = getattr(value, "__module__", "") or ""
        is_numpy = isinstance(value, np.ufunc) or module.split(".")[0] == "numpy"
        if vars(builtins).get(name) is value and name in _BUILTINS:
            return str(name)
        if vars(math).get(name) is value or is_numpy or module.split(".")[0] == "nova":
            return str(name)
        self._fail(
            node,
            f"`{ast.unparse(node)}` is not a function of nova, numpy or math",
            "write its arithmetic in the kernel",
        )

    def _literal(self, node: ast.expr, value: Any) -> ast.AST:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, ModuleType) or not isinstance(value, bool | int | float):
            self._fail(
                node,
                f"`{ast.unparse(node)}` is a {type(value).__name__} from outside of the kernel",
                "numbers are constants of a kernel; tensors are its arguments",
            )
        literal: ast.expr = ast.Constant(abs(value) if value != 0 else value)
        if isinstance(value, float) and not math.isfinite(value):
            literal = ast.Name("nan" if math.isnan(value) else "inf", ast.Load())
        if not isinstance(value, bool) and value < 0:
            literal = ast.UnaryOp(ast.USub(), literal)
        if isinstance(value, bool):
            literal = ast.Constant(value)
        return ast.copy_location(literal, node)
