"""Stubs for type checkers, from the op table: the functions of `nova`, the methods of `Tensor`.

In: the rows of `nova/ops/` and the public names of `nova/__init__.py`. Out: `nova/__init__.pyi` and
`nova/graph/op_methods.pyi`, the base that `Tensor` has for type checkers alone. Written and checked
by `nova.tools.gen_docs`, like the pages of the documentation.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from nova.graph.functions import (
    BINARY_OPERATORS,
    BIT_OPERATORS,
    COMPARISONS,
    CREATORS,
    FORWARDED,
    SIZES_AS_ARGUMENTS,
    UNARY_OPERATORS,
)
from nova.ops import OPS, REQUIRED, Op

_PACKAGE: Any = import_module("nova")
_HEADER = "# Written by `python -m nova.tools.gen_docs`: change the table in nova/ops/."
_OPERAND = "Operand"
_COLUMNS = 100

# Types of arguments whose default does not tell, by name; a new one needs a row.
_TYPES = {
    "axes": "int | Sequence[int] | None",
    "axis_size": "int",
    "axis": "int | Sequence[int] | None",
    "dtype": "DTypeLike | None",
    "eps": "float | None",
    "high": "int | Sequence[int] | None",
    "key": "Any",
    "low": "int | Sequence[int] | Sequence[Sequence[int]]",
    "m": "int | None",
    "max": "Operand | None",
    "kernel": "int | Sequence[int]",
    "min": "Operand | None",
    "n": "int",
    "num_classes": "int",
    "region": "int",
    "scale": "float | None",
    "sections": "int | Sequence[int]",
    "seed": "Operand",
    "shape": "int | Sequence[int]",
    "size": "int | Sequence[int]",
    "start": "float",
    "starts": "Sequence[int]",
    "step": "float",
    "steps": "Sequence[int] | None",
    "stop": "float | None",
    "stops": "Sequence[int]",
    "target": "Operand",
    "value": "float",
    "x": "Operand",
    # These have defaults of a type that says too little.
    "approximate": 'Literal["none", "tanh"]',
    "reduction": 'Literal["none", "mean", "sum"]',
}


class _Argument(NamedTuple):
    name: str  # with its star
    type: str
    optional: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{' = ...' if self.optional else ''}"


def render_package() -> str:
    """`nova/__init__.pyi`: every public name."""
    lines = [
        _HEADER,
        "",
        "from collections.abc import Sequence",
        "from typing import Any, Literal, overload",
        "",
        *_imports(),
        "",
        "__version__: str",
        "",
    ]
    for op in OPS.values():
        lines += _define_function(op)
    lines += ["", "__all__: list[str]"]
    return "\n".join(lines) + "\n"


def render_methods() -> str:
    """`nova/graph/op_methods.pyi`: the methods and operators that `Tensor` gets from the table."""
    lines = [
        _HEADER,
        "",
        "from collections.abc import Sequence",
        "from typing import Any, Literal, Protocol, TypeAlias, overload",
        "",
        "import numpy as np",
        "",
        "from nova.core.dtypes import DType",
        "from nova.graph.tensor import Tensor",
        "",
        "class SupportsDLPack(Protocol):",
        "    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...",
        "",
        "DTypeLike: TypeAlias = DType | str | type | np.dtype[Any]",
        "Array: TypeAlias = np.ndarray[Any, Any] | np.generic | SupportsDLPack",
        "Operand: TypeAlias = Tensor | Array | float | list[Any] | tuple[Any, ...]",
        "",
        "class TensorMethods:",
    ]
    for op in OPS.values():
        for name in op.methods:
            lines += [f"    {line}" for line in _define_method(name, op)]
    for line in _operators():
        lines.append(f"    {line}")
    return "\n".join(lines) + "\n"


def _define_function(op: Op) -> Iterator[str]:
    parameters = _arguments(op)
    if op.name in CREATORS:
        yield "@overload"
        yield from _define(op.name, parameters, _result(op))
        yield "@overload"
        shape, dtype = parameters
        parameters = [_Argument(f"*{shape.name}", "int", False), dtype]
    yield from _define(op.name, parameters, _result(op))


def _define_method(name: str, op: Op) -> Iterator[str]:
    _, *parameters = _arguments(op)  # the first operand is the tensor
    if op.name in SIZES_AS_ARGUMENTS:
        yield "@overload"
        yield from _define(name, parameters, _result(op), "self", indent=4)
        yield "@overload"
        parameters = [_Argument(f"*{parameters[0].name}", "int", False)]
    yield from _define(name, parameters, _result(op), "self", indent=4)


def _operators() -> Iterator[str]:
    for operator in (*BINARY_OPERATORS, *(o for o in BIT_OPERATORS if o != "invert")):
        yield f"def __{operator}__(self, other: Operand, /) -> Tensor: ..."
        yield f"def __r{operator}__(self, other: Operand, /) -> Tensor: ..."
    for operator in COMPARISONS:
        # A tensor as well; but `object` says that these two give a bool.
        equality = operator in ("eq", "ne")
        operand, result = ("object", "Any") if equality else (_OPERAND, "Tensor")
        yield f"def __{operator}__(self, other: {operand}, /) -> {result}: ..."
    for operator in (*UNARY_OPERATORS, "invert"):
        yield f"def __{operator}__(self) -> Tensor: ..."
    yield "def __getitem__(self, key: Any, /) -> Tensor: ..."


def _define(
    name: str, arguments: Iterable[_Argument], result: str, *before: str, indent: int = 0
) -> list[str]:
    """The lines of a function, in the form that `ruff format` leaves alone."""
    words = [*before, *map(str, arguments)]
    line = f"def {name}({', '.join(words)}) -> {result}: ..."
    if len(line) + indent <= _COLUMNS:
        return [line]
    inside = ", ".join(words)
    if len(inside) + indent + 4 <= _COLUMNS:
        return [f"def {name}(", f"    {inside}", f") -> {result}: ..."]
    return [f"def {name}(", *(f"    {word}," for word in words), f") -> {result}: ..."]


def _arguments(op: Op) -> list[_Argument]:
    if op.name in FORWARDED:
        return _arguments(OPS[FORWARDED[op.name][1]])
    if op.build is not None:
        parameters = list(inspect.signature(op.build).parameters.values())[1:]
        return [_sugar_argument(op, parameter) for parameter in parameters]
    operands = [
        _Argument(
            name.rstrip("?"),
            "Operand | None" if name.endswith("?") else _operand_type(name),
            name.endswith("?"),
        )
        for name in op.operands
    ]
    return operands + [
        _Argument(name, _type_of(name, default), default is not REQUIRED)
        for name, default in op.attrs.items()
    ]


def _operand_type(name: str) -> str:
    # Any number of operands is also taken as one list of them.
    return "Operand | Sequence[Operand]" if name.startswith("*") else _OPERAND


def _sugar_argument(op: Op, parameter: inspect.Parameter) -> _Argument:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        is_annotated = parameter.annotation not in (parameter.empty, "Any")
        type_ = parameter.annotation if is_annotated else _operand_type("*")
        return _Argument(f"*{parameter.name}", type_, False)
    default = REQUIRED if parameter.default is parameter.empty else parameter.default
    annotation = parameter.annotation
    if annotation not in (parameter.empty, "Any"):
        type_ = annotation
    elif parameter.name in op.operands:
        type_ = _OPERAND
    elif parameter.name in _TYPES or default not in (REQUIRED, None):
        type_ = _type_of(parameter.name, default)
    else:
        type_ = "Any"
    return _Argument(parameter.name, type_, default is not REQUIRED)


def _type_of(name: str, default: Any) -> str:
    by_default = type(default).__name__ if type(default) in (bool, int, float, str) else None
    if by_default is not None and not (name in _TYPES and isinstance(default, str)):
        return by_default
    if name not in _TYPES:
        return "Any"
    return _TYPES[name].removesuffix(" | None") if default is REQUIRED else _TYPES[name]


def _result(op: Op) -> str:
    returned = "Any" if op.build is None else inspect.signature(op.build).return_annotation
    return "tuple[Tensor, ...]" if str(returned).startswith("tuple") else "Tensor"


def _imports() -> Iterator[str]:
    """How the public names that are not ops come into the package, in the order of ruff."""
    lines = {
        *("from nova import errors as errors", "from nova import knobs as knobs"),
        "from nova.graph.op_methods import DTypeLike, Operand",
    }
    for name in set(_PACKAGE.__all__) - set(OPS):
        module, _, attribute = _PACKAGE._LAZY.get(name, "").partition(":")
        if module and not attribute:
            package, _, attribute = module.rpartition(".")
            lines.add(f"from {package} import {attribute} as {name}")
        elif name != "knobs":
            module = module or _home(name)
            lines.add(f"from {module} import {attribute or name} as {name}")
    return iter(sorted(lines, key=lambda line: (line.split()[1], *_natural(line.split()[3]))))


def _natural(name: str) -> tuple[int, list[tuple[str, int]]]:
    """Ruff's order of names: constants, classes, the rest, with their numbers as numbers."""
    words = [(word, int(digits or 0)) for word, digits in re.findall(r"(\D+)(\d*)", name)]
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, words)


def _home(name: str) -> str:
    """The module that a name of the package is imported from."""
    value = getattr(_PACKAGE, name)
    module = getattr(value, "__module__", None) if callable(value) else None
    module = module or "nova.core.dtypes"
    assert getattr(import_module(module), name) is value
    return str(module)
