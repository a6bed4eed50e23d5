"""Functions of torch and numpy that differ from a row in their name only."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import Any

from nova.ops.table import OPS, REQUIRED, Op, register

# Another name -> the row.
NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "array_split": "tensor_split",
    "batch_matmul": "matmul",
    "bitcast_convert_type": "bitcast",
    "bitwise_invert": "bitwise_not",
    "broadcast_arrays": "broadcast_tensors",
    "broadcast_to": "expand",
    "cat": "concat",
    "clip": "clamp",
    "concatenate": "concat",
    "conj_physical": "conj",
    "conjugate": "conj",
    "convert_element_type": "cast",
    "cumlogsumexp": "logcumsumexp",
    "cumulative_prod": "cumprod",
    "cumulative_sum": "cumsum",
    "degrees": "rad2deg",
    "divide": "div",
    "erf_inv": "erfinv",
    "expand_dims": "unsqueeze",
    "expit": "sigmoid",
    "fabs": "abs",
    "fix": "trunc",
    "floor_divide": "floor_div",
    "gammaln": "lgamma",
    "ger": "outer",
    "greater": "gt",
    "greater_equal": "ge",
    "hard_sigmoid": "hardsigmoid",
    "hard_silu": "hardswish",
    "hard_swish": "hardswish",
    "hard_tanh": "hardtanh",
    "integer_pow": "pow",
    "invert": "bitwise_not",
    "is_finite": "isfinite",
    "left_shift": "bitwise_left_shift",
    "less": "lt",
    "less_equal": "le",
    "log_sigmoid": "logsigmoid",
    "logistic": "sigmoid",
    "moveaxis": "movedim",
    "multigammaln": "mvlgamma",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "permute_dims": "permute",
    "population_count": "bitwise_count",
    "power": "pow",
    "psi": "digamma",
    "radians": "deg2rad",
    "rem": "fmod",
    "remainder": "mod",
    "rev": "flip",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "row_stack": "vstack",
    "sgn": "sign",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "soft_sign": "softsign",
    "subtract": "sub",
    "swapdims": "swapaxes",
    "swish": "silu",
    "take_along_axis": "take_along_dim",
    "top_k": "topk",
    "trapz": "trapezoid",
    "true_divide": "div",
    "unstack": "unbind",
    "upsample": "interpolate",
    "view": "reshape",
}
# These are functions only: Tensor has a method of the name, or numpy's has another meaning.
_NOT_METHODS = ("cat", "concatenate", "view", "broadcast_to")


def _alias(name: str, target: str) -> Op:
    row = OPS[target]

    def build(F: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(F, target)(*args, **kwargs)

    vars(build)["__signature__"] = _signature(row)
    method = row.methods and name not in _NOT_METHODS and name not in row.methods
    return Op(
        name,
        f"Another name of `{target}`.",
        operands=row.operands,
        build=build,
        methods=(name,) if method else (),
        tags=row.tags & {"nograd"},
    )


def _signature(row: Op) -> Signature:
    if row.build is not None:
        return signature(row.build)
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter("F", kind)]
    parameters += [
        Parameter(n.rstrip("?"), kind, default=None if n.endswith("?") else Parameter.empty)
        for n in row.operands
    ]
    parameters += [
        Parameter(n, kind, default=Parameter.empty if v is REQUIRED else v)
        for n, v in row.attrs.items()
    ]
    return Signature(parameters)


ROWS: list[Op] = []


def register_rows() -> None:
    """After all other rows: an alias has the signature of its row."""
    ROWS.extend(_alias(name, target) for name, target in NAMES.items())
    register(*ROWS)
