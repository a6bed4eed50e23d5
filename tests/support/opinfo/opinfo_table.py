"""The function of Nova for each name of torch's op database, and how results are compared.

A name is looked up as `nova.NAME`, a method of tensors, `nova.linalg.NAME` or `nova.fft.NAME`, so
an op that Nova gets takes part at once. `opinfo_adapters.py` and `opinfo_layers.py` have the calls
that differ in more than the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opinfo_layers
import torch
from opinfo_adapters import ADAPTERS, with_axis

import nova

assert opinfo_layers

# Results are random: generators differ.
RANDOM = {
    *("bernoulli", "multinomial", "normal", "rand_like", "randint", "randn", "randn_like"),
    *("uniform", "nn.functional.dropout", "nn.functional.alpha_dropout"),
    *("nn.functional.feature_alpha_dropout", "nn.functional.dropout2d"),
    *(
        "nn.functional.dropout3d",
        "randint_like",
        "exponential",
        "cauchy",
        "geometric",
        "log_normal",
    ),
}
# A function of Nova has this name and another meaning, or the result is not a tensor.
OTHER_MEANING = {
    "unfold": "sliding windows along an axis; nova.unfold is torch.nn.functional.unfold",
    "slice": "one axis; nova.slice takes starts and stops of all axes",
    "item": "the result is a Python number",
    "nn.functional.ctc_loss": "torch's gradient is that before log_softmax",
    **{
        f"nn.functional.max_unpool{rank}d": "its samples have positions twice" for rank in (1, 2, 3)
    },
    "argwhere": "the shape of the result depends on values",
}
# What torch computes, where its own choice is free: Nova's sorts are stable.
TORCH: dict[str, Callable[..., Any]] = {
    "sort": lambda x, dim=-1, descending=False, stable=True: torch.sort(
        x, dim=dim, descending=descending, stable=True
    ),
    "argsort": lambda x, dim=-1, descending=False, stable=True: torch.argsort(
        x, dim=dim, descending=descending, stable=True
    ),
    "msort": lambda x: torch.sort(x, dim=0, stable=True)[0],
    # As torch's own tests of gradients do: the option is for Hermitian matrices.
    "linalg.pinv": lambda x, *args, hermitian=False, **kwargs: torch.linalg.pinv(
        x + x.mH if hermitian else x, *args, hermitian=hermitian, **kwargs
    ),
    # The other triangle of a factor is not read, so it has no gradient.
    "cholesky_solve": lambda b, factor, upper=False: torch.cholesky_solve(
        b, factor.triu() if upper else factor.tril(), upper=upper
    ),
    "cholesky_inverse": lambda factor, upper=False: torch.cholesky_inverse(
        factor.triu() if upper else factor.tril(), upper=upper
    ),
    "linalg.lstsq": lambda *args, **kwargs: torch.linalg.lstsq(*args, **kwargs)[0],
}
# Positions among equal elements are free: only values are compared.
VALUES_ONLY = {"topk", "kthvalue", "median", "mode"}
# Signs of the vectors are free: absolute values are compared, and have gradients.
EITHER_SIGN = {"linalg.eigh": (1,), "linalg.svd": (0, 2)}

# Ops whose samples have numbers with the axis 0 or -1, which Nova's functions do not have.
AXIS_OF_NUMBERS = {
    *("all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "cummax"),
    *("cummin", "cumprod", "cumsum", "gather", "index_add", "index_copy", "index_fill", "kthvalue"),
    *("index_select", "linalg.vector_norm", "logcumsumexp", "logsumexp", "max", "mean", "median"),
    *("min", "nn.functional.cosine_similarity", "nn.functional.normalize", "norm", "quantile"),
    *("scatter", "scatter_add", "scatter_reduce", "squeeze", "sum", "topk", "transpose"),
    *("index_reduce", "mode", "nanmean", "nanmedian", "nanquantile", "nansum"),
}

_STORAGE = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy")


def function_of(name: str, variant: str = "") -> Callable[..., Any] | None:
    """The function of Nova that takes the arguments of torch's `name`."""
    if name in RANDOM or name in OTHER_MEANING:
        return None
    if variant == "singular" and name == "linalg.pinv":
        return lambda a, b: nova.linalg.pinv(nova.matmul(a, nova.swapaxes(b, -1, -2)))
    function = ADAPTERS.get(name) or _by_name(name)
    if name in AXIS_OF_NUMBERS and function is not None:
        function = with_axis(function)
    return None if function is None else _with_types(function)


def _by_name(name: str) -> Callable[..., Any] | None:
    *path, short = name.split(".")
    homes: tuple[Any, ...] = (nova, nova.Tensor)
    if path in (["linalg"], ["fft"]):
        homes = (getattr(nova, path[0]),)
    elif path not in ([], ["nn", "functional"], ["special"]):
        return None
    for home in homes:
        names = getattr(home, "__all__", None) or dir(home)
        if short in names and callable(getattr(home, short)):
            return getattr(home, short)
    return None


def _with_types(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with torch's dtypes and without its words of storage."""

    def call(*args: Any, **kwargs: Any) -> Any:
        options = {k: _converted(v) for k, v in kwargs.items() if k not in _STORAGE}
        if options.get("requires_grad") is False:
            del options["requires_grad"]
        return function(*map(_converted, args), **options)

    return call


def _converted(value: Any) -> Any:
    if isinstance(value, torch.Size):
        return tuple(value)
    if not isinstance(value, torch.dtype):
        return value
    if value is torch.bfloat16:
        return nova.bf16
    return nova.core.dtypes.dtype(torch.zeros((), dtype=value).numpy().dtype)
