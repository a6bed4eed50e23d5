"""The op functions, `Tensor` methods and operators, generated from the op table.

`FUNCTIONS["exp"]` is `nova.exp`. Operands come first, positionally or by name; further positional
arguments fill the attributes in the order of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import takewhile
from typing import Any

import numpy as np

from nova.core.dlpack import as_numpy, is_array
from nova.core.dtypes import DType
from nova.core.location import user_location
from nova.core.sizes import SizeExpr
from nova.core.user_facing import check_call
from nova.errors import ArgumentCountError, ArgumentTypeError, NovaError, UnknownKeywordError
from nova.graph.build import apply, warn_of_shapes
from nova.graph.spelling import spell_keywords
from nova.graph.tensor import Tensor
from nova.ops import OPS, REQUIRED, F, Op

FUNCTIONS: dict[str, Callable[..., Any]] = {}

# Rows with one tuple attribute: their methods also take its items as separate arguments.
SIZES_AS_ARGUMENTS = frozenset({"reshape", "permute", "expand", "flip"})

# Creators that also take their sizes as separate arguments: zeros(2, 3) means zeros((2, 3)).
CREATORS = frozenset({"zeros", "ones"})
# Creators whose first argument is a seed, where torch's has a size.
SEEDED_CREATORS = frozenset({"rand", "randn", "uniform", "normal"})

# A keyword of a function that another row has: round(x, decimals=2) is around(x, decimals=2).
FORWARDED = {"round": ("decimals", "around")}


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
    function = _taking_no_dtype(function, op)
    if op.name in CREATORS:
        return _joining_sizes(function)
    if op.name in SEEDED_CREATORS:
        return _checking_seed(function)
    if op.name == "clamp":
        return _clamping(function)
    return _forwarding(function, *FORWARDED[op.name]) if op.name in FORWARDED else function


def _clamping(function: Callable[..., Any]) -> Callable[..., Any]:
    """`clamp`, whose bounds may be tensors: they broadcast, and have gradients."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bounds = {**dict(zip(("min", "max"), args[1:], strict=False)), **kwargs}
        if not any(isinstance(b, Tensor | np.ndarray) or is_array(b) for b in bounds.values()):
            return function(*args, **kwargs)
        result = args[0] if args else bounds.pop("x", bounds.pop("input", None))
        for name in ("min", "max"):
            if (bound := bounds.pop(name, None)) is not None:
                result = FUNCTIONS[f"clamp_{name}"](result, bound)
        return function(result, **bounds) if bounds else result

    return call


def _taking_no_dtype(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """The function, for which `dtype=None` means the default; itself if its default is None."""
    if op.build is not None:
        defaults = {n: p.default for n, p in list(signature(op.build).parameters.items())[1:]}
    else:
        defaults = {**dict.fromkeys(op.operands), **op.attrs}
    default = defaults.get("dtype")
    if not isinstance(default, DType):
        return function
    position = list(defaults).index("dtype")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs and kwargs["dtype"] is None:
            kwargs["dtype"] = default
        elif len(args) > position and args[position] is None:
            args = (*args[:position], default, *args[position + 1 :])
        return function(*args, **kwargs)

    return call


def _joining_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and all(_is_size(arg) for arg in args):
            args = (args,)
        return function(*args, **kwargs)

    return call


def _checking_seed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A creator that refuses sizes where it has the seed: randn(2, 3) and randn((2, 3))."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        numbers = tuple(takewhile(_is_size, args))
        if len(numbers) > 1 and not _is_seed_and_dim(numbers):
            raise _sizes_as_seed(function.__name__, args, numbers)
        if args and isinstance(args[0], tuple | list):
            raise _sizes_as_seed(function.__name__, args, tuple(args[0]))
        return function(*args, **kwargs)

    return call


def _is_seed_and_dim(numbers: tuple[Any, ...]) -> bool:
    """Whether these are those of rand(0, B): a seed, and one symbolic size."""
    return [isinstance(number, SizeExpr) for number in numbers] == [False, True]


def _sizes_as_seed(name: str, args: tuple[Any, ...], sizes: tuple[Any, ...]) -> NovaError:
    calls = [f"{name}(seed, {sizes})"]
    if isinstance(args[0], int | np.integer):
        calls.append(f"{name}({sizes[0]}, {sizes[1:]}) if {sizes[0]} is the seed")
        # A first size of 0 means no elements: it is the seed.
        calls = calls if sizes[0] else calls[1:]
    return ArgumentTypeError(
        f"{name}({', '.join(map(str, args))}): the first argument of {name} is the seed, not a "
        "size",
        where=str(user_location()),
        hint=f"write {', or '.join(calls)}: one seed gives the same numbers in every run, so pass "
        "another one for other numbers",
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer | SizeExpr) and not isinstance(value, bool)


def _forwarding(function: Callable[..., Any], keyword: str, other: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_other = keyword in kwargs or len(args) > 1
        return (FUNCTIONS[other] if is_other else function)(*args, **kwargs)

    return call


def _make_sugar(op: Op, build: Callable[..., Any]) -> Callable[..., Any]:
    accepted = signature(build).parameters

    def function(*args: Any, **kwargs: Any) -> Any:
        kwargs = spell_keywords(kwargs, accepted)
        try:
            args = tuple(_without_foreign(op, value) for value in args)
            kwargs = {name: _without_foreign(op, value) for name, value in kwargs.items()}
            result = build(F, *args, **kwargs)
            if isinstance(result, np.ndarray):  # an operand that the function does not change
                result = F.detach(result)
            if op.advise is not None:
                named = {**dict(zip(list(accepted)[1:], args, strict=False)), **kwargs}
                warn_of_shapes(op, [_shape_of(named[name]) for name in op.operands])
            return result
        except NovaError as error:
            raise error.located(str(user_location())) from None
        except TypeError:
            check_call(build, op.name, args, kwargs, skipped=1)
            raise

    return function


def _without_foreign(op: Op, value: Any) -> Any:
    """`value` with numpy arrays for those of other libraries, whose dtypes are not numpy's."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value
    if type(value) in (tuple, list):
        return type(value)(_without_foreign(op, item) for item in value)
    return as_numpy(value, f"an operand of {op.name}") if is_array(value) else value


def _shape_of(operand: Any) -> tuple[Any, ...]:
    return operand.shape if hasattr(operand, "shape") else np.shape(operand)


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
}
# On integers these are bitwise, as in torch and numpy; on other types logical.
BIT_OPERATORS = {"and": "and", "or": "or", "xor": "xor", "invert": "not"}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY_OPERATORS = {"neg": "neg", "abs": "abs"}


def _forward(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: FUNCTIONS[name](self, other)


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: FUNCTIONS[name](other, self)


def _bits(name: str, reflected: bool = False) -> Callable[..., Any]:
    def operator(*operands: Any) -> Any:
        types = {_type_of(x) for x in operands}
        is_bits = types <= {"b", "i", "u"} and types != {"b"}
        ordered = operands[::-1] if reflected else operands
        return FUNCTIONS[f"bitwise_{name}" if is_bits else f"logical_{name}"](*ordered)

    return operator


def _type_of(operand: Any) -> str:
    """The kind of the operand's elements, as numpy spells it."""
    if isinstance(operand, Tensor):
        return str(operand.dtype.numpy.kind)
    return str(np.asarray(operand).dtype.kind)


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
    for operator, name in BIT_OPERATORS.items():
        setattr(Tensor, f"__{operator}__", _bits(name))
        if name != "not":
            setattr(Tensor, f"__r{operator}__", _bits(name, reflected=True))
    for name in COMPARISONS:
        make = _equality if name in ("eq", "ne") else _forward
        setattr(Tensor, f"__{name}__", make(name))
    for operator, name in UNARY_OPERATORS.items():
        setattr(Tensor, f"__{operator}__", FUNCTIONS[name])
    setattr(Tensor, "__getitem__", FUNCTIONS["getitem"])  # noqa: B010


_install()
