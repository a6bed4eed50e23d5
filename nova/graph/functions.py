"""The op functions, `Tensor` methods and operators, generated from the op table.

`FUNCTIONS["exp"]` is `nova.exp`. Operands come first, positionally or by name; further positional
arguments fill the attributes in the order of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from nova.core.location import user_location
from nova.core.user_facing import check_call
from nova.errors import ArgumentCountError, NovaError, UnknownKeywordError
from nova.graph.build import apply
from nova.graph.spelling import spell_keywords
from nova.graph.tensor import Tensor
from nova.ops import OPS, REQUIRED, F, Op

FUNCTIONS: dict[str, Callable[..., Any]] = {}

# Rows with one tuple attribute: their methods also take its items as separate arguments.
SIZES_AS_ARGUMENTS = frozenset({"reshape", "permute", "expand", "flip"})


def make_function(op: Op) -> Callable[..., Any]:
    """The public function of a row."""
    if op.build is not None:
        function = _make_sugar(op, op.build)

    elif op.variadic:

        def function(*args: Any, **kwargs: Any) -> Any:
            kwargs = spell_keywords(kwargs, op.attrs)
            count = 1 if args and isinstance(args[0], list | tuple) else len(args)
            while count > 1 and not isinstance(args[count - 1], Tensor):
                count -= 1  # trailing plain values are attributes: concat([a, b], 0)
            return apply(op, args[:count], _positional_attrs(op, args[count:], kwargs))

    else:
        names = [n.rstrip("?") for n in op.operands]
        accepted = {*names, *op.attrs}

        def function(*args: Any, **kwargs: Any) -> Any:
            kwargs = spell_keywords(kwargs, accepted)
            operands = list(args[: len(names)])
            for name in names[len(operands) :]:
                operands.append(kwargs.pop(name, None) if kwargs else None)
            return apply(op, operands, _positional_attrs(op, args[len(names) :], kwargs))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc
    if op.build is None:
        function.__signature__ = _signature(op)  # type: ignore[attr-defined]
    return function


def _make_sugar(op: Op, build: Callable[..., Any]) -> Callable[..., Any]:
    accepted = signature(build).parameters

    def function(*args: Any, **kwargs: Any) -> Any:
        kwargs = spell_keywords(kwargs, accepted)
        try:
            return build(F, *args, **kwargs)
        except NovaError as error:
            raise error.located(str(user_location())) from None
        except TypeError:
            check_call(build, op.name, args, kwargs, skipped=1)
            raise

    return function


def _make_method(op: Op) -> Callable[..., Any]:
    """The method of a row: `x.reshape(2, 3)` means `x.reshape((2, 3))`."""
    function = FUNCTIONS[op.name]
    if op.name not in SIZES_AS_ARGUMENTS:
        return function

    @wraps(function)
    def method(self: Tensor, *sizes: Any, **kwargs: Any) -> Any:
        if len(sizes) > 1:
            sizes = (sizes,)
        return function(self, *sizes, **kwargs)

    return method


def _positional_attrs(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if not args:
        return kwargs
    names = list(op.attrs)
    if len(args) > len(names):
        raise ArgumentCountError(
            f"{op.name}: takes at most {len(op.operands) + len(names)} arguments",
            where=str(user_location()),
        )
    positional = dict(zip(names, args, strict=False))
    twice = positional.keys() & kwargs.keys()
    if twice:
        raise UnknownKeywordError(
            f"{op.name}: {', '.join(twice)} given twice", where=str(user_location())
        )
    return {**positional, **kwargs}


def _signature(op: Op) -> Signature:
    parameters = [
        Parameter(n[1:], Parameter.VAR_POSITIONAL)
        if n.startswith("*")
        else Parameter(
            n.rstrip("?"),
            Parameter.POSITIONAL_OR_KEYWORD,
            default=None if n.endswith("?") else Parameter.empty,
        )
        for n in op.operands
    ]
    for name, default in op.attrs.items():
        parameters.append(
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if default is REQUIRED else default,
            )
        )
    return Signature(parameters)


# Operator -> row; the reflected form swaps the operands.
BINARY_OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_div",
    "mod": "mod",
    "pow": "pow",
    "matmul": "matmul",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY_OPERATORS = {"neg": "neg", "abs": "abs", "invert": "logical_not"}


def _forward(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: FUNCTIONS[name](self, other)


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: FUNCTIONS[name](other, self)


def _equality(name: str) -> Callable[[Any, Any], Any]:
    """`==` and `!=`; no tensor is equal to None, as for every other object."""
    return lambda self, other: name == "ne" if other is None else FUNCTIONS[name](self, other)


def _install() -> None:
    for name, op in OPS.items():
        FUNCTIONS[name] = make_function(op)
        for method in op.methods:
            setattr(Tensor, method, _make_method(op))
    F.bind(FUNCTIONS)
    for operator, name in BINARY_OPERATORS.items():
        setattr(Tensor, f"__{operator}__", _forward(name))
        setattr(Tensor, f"__r{operator}__", _reflected(name))
    for name in COMPARISONS:
        make = _equality if name in ("eq", "ne") else _forward
        setattr(Tensor, f"__{name}__", make(name))
    for operator, name in UNARY_OPERATORS.items():
        setattr(Tensor, f"__{operator}__", FUNCTIONS[name])
    setattr(Tensor, "__getitem__", FUNCTIONS["getitem"])  # noqa: B010


_install()
