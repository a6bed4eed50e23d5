"""Ops on lists of tensors (`_foreach_*`), which torch's optimizers call on GPUs.

Each is the row of the op on single tensors, for every position of the lists; Nova fuses the results
and tiles them, so a list costs no more launches than a tensor.
"""

from __future__ import annotations

from typing import Any

from nova.frontends.torch.rows import pointwise, reductions
from nova.frontends.torch.rows.table import ROWS, Row, row, unsupported

_READ = (pointwise, reductions)  # their rows are in the table before these are made
_UNARY = (
    *("abs", "ceil", "clone", "cos", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma"),
    *("log", "log10", "log1p", "log2", "max", "neg", "reciprocal", "round", "rsqrt", "sigmoid"),
    *("sign", "sin", "sqrt", "tanh", "trunc"),
)
# The rows of a list with tensors, and with numbers.
_BINARY = {
    "add": ("add.Tensor", "add.Scalar"),
    "sub": ("sub.Tensor", "sub.Scalar"),
    "mul": ("mul.Tensor", "mul.Scalar"),
    "div": ("div.Tensor", "div.Scalar"),
    "pow": ("pow.Tensor_Tensor", "pow.Tensor_Scalar"),
    "maximum": ("clamp_min.Tensor", "clamp_min.default"),
    "minimum": ("clamp_max.Tensor", "clamp_max.default"),
    "clamp_min": ("clamp_min.Tensor", "clamp_min.default"),
    "clamp_max": ("clamp_max.Tensor", "clamp_max.default"),
}


def _at(value: Any, index: int) -> Any:
    """The item of a list for one position; another argument is for all of them."""
    return value[index] if isinstance(value, list | tuple) else value


def _mapped(single: Row) -> Row:
    """The row of lists whose positions have the row `single`."""

    def apply(F: Any, first: Any, *others: Any, **options: Any) -> tuple[Any, ...]:
        return tuple(
            single(F, item, *(_at(other, i) for other in others), **options)
            for i, item in enumerate(first)
        )

    return apply


for _name in _UNARY:
    row(f"_foreach_{_name}.default")(_mapped(ROWS[f"aten.{_name}.default"]))
for _name, (_tensors, _numbers) in _BINARY.items():
    row(f"_foreach_{_name}.List")(_mapped(ROWS[f"aten.{_tensors}"]))
    row(f"_foreach_{_name}.Scalar", f"_foreach_{_name}.ScalarList")(
        _mapped(ROWS[f"aten.{_numbers}"])
    )
for _name in ("add", "mul", "div"):
    row(f"_foreach_{_name}.Tensor")(_mapped(ROWS[f"aten.{_name}.Tensor"]))
row("_foreach_lerp.List")(_mapped(ROWS["aten.lerp.Tensor"]))
row("_foreach_lerp.Scalar", "_foreach_lerp.ScalarList")(_mapped(ROWS["aten.lerp.Scalar"]))


@row("_foreach_pow.ScalarAndTensor")
def _powers_of(F: Any, base: Any, exponents: Any) -> tuple[Any, ...]:
    return tuple(ROWS["aten.pow.Scalar"](F, base, exponent) for exponent in exponents)


def _scaled(single: Row) -> Row:
    """The row of `addcmul` and `addcdiv`: their factor is a number, or one for each position."""

    def apply(F: Any, first: Any, a: Any, b: Any, value: Any = 1) -> tuple[Any, ...]:
        return tuple(
            single(F, item, a[i], b[i], value=_at(value, i)) for i, item in enumerate(first)
        )

    return apply


for _name in ("addcmul", "addcdiv"):
    row(f"_foreach_{_name}.Scalar", f"_foreach_{_name}.ScalarList")(
        _scaled(ROWS[f"aten.{_name}.default"])
    )


@row("_foreach_zero.default")
def _zeros(F: Any, first: Any) -> tuple[Any, ...]:
    return tuple(F.full(shape=x.shape, value=0, dtype=x.dtype) for x in first)


@row("_foreach_copy.default")
def _copies(F: Any, first: Any, sources: Any, non_blocking: bool = False) -> tuple[Any, ...]:
    return tuple(
        F.expand(F.cast(source, dtype=x.dtype), shape=x.shape)
        for x, source in zip(first, sources, strict=True)
    )


@row("_foreach_norm.Scalar")
def _norms(F: Any, first: Any, ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    if ord not in (1, 2, float("inf")) or dtype is not None:
        raise unsupported(f"_foreach_norm of order {ord} and dtype {dtype}")
    if ord == 2:
        return tuple(F.sqrt(F.sum(x * x)) for x in first)
    return tuple(F.sum(F.abs(x)) if ord == 1 else F.max(F.abs(x)) for x in first)
