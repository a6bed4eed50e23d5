"""Calls of `torch.nn.functional`, `torch.linalg` and `torch.fft` as calls of Nova.

Importing this module adds its adapters to those of `opinfo_adapters.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from opinfo_adapters import ADAPTERS, SIZES, NotInNova, adapter, cast_to, refuse_options

import nova


def _of_floats(name: str) -> Callable[..., Any]:
    """Nova computes these in f32 for integers, torch in the integer type: f64 is exact."""
    function = getattr(nova, name)

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.dtype.is_float or x.dtype.is_complex:
            return function(x, *args, **kwargs)
        if name == "local_response_norm":
            raise NotInNova(f"{name} of integers (Nova computes it in f32)")
        wide = [_as_f64(v) for v in (x, *args)]
        result = function(*wide, **{k: _as_f64(v) for k, v in kwargs.items()})
        return nova.cast(nova.trunc(result), dtype=x.dtype)

    return call


def _as_f64(value: Any) -> Any:
    return nova.cast(value, dtype=nova.f64) if isinstance(value, nova.Tensor) else value


for _name in (
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("avg_pool1d", "avg_pool2d", "avg_pool3d", "local_response_norm"),
):
    ADAPTERS[f"nn.functional.{_name}"] = _of_floats(_name)


def _pool(name: str) -> Callable[..., Any]:
    function = getattr(nova, name)

    def call(x: Any, *args: Any, return_indices: bool = False, **kwargs: Any) -> Any:
        if args and isinstance(args[-1], bool) and name.startswith("adaptive"):
            *args, return_indices = args
        options = {"return_indices": True} if return_indices else {}
        return function(x, *args, **kwargs, **options)

    return call


for _rank in (1, 2, 3):
    for _prefix in ("max_pool", "adaptive_max_pool"):
        ADAPTERS[f"nn.functional.{_prefix}{_rank}d"] = _pool(f"{_prefix}{_rank}d")


@adapter("nn.functional.pad")
def _pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    return nova.pad_edges(x, pad, mode=mode, value=0 if value is None else value)


@adapter("nn.functional.layer_norm")
def _layer_norm(
    x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    return nova.layer_norm(x, weight, bias, ndim=len(normalized_shape), eps=eps)


@adapter("nn.functional.rms_norm")
def _rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    return nova.rms_norm(x, weight, ndim=len(normalized_shape), eps=eps)


@adapter("nn.functional.batch_norm")
def _batch_norm(x: Any, *args: Any, momentum: float = 0.1, **kwargs: Any) -> Any:
    # The momentum is that of the running statistics, which nova.nn.BatchNorm2d updates.
    return nova.batch_norm(x, *args, **kwargs)


@adapter("nn.functional.instance_norm")
def _instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not use_input_stats:
        raise NotInNova("instance_norm with use_input_stats=False")
    return nova.instance_norm(x, weight, bias, eps=eps)


@adapter("nn.functional.scaled_dot_product_attention")
def _attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise NotInNova("random numbers: the generators differ")
    return nova.scaled_dot_product_attention(q, k, v, attn_mask, causal=is_causal, scale=scale)


@adapter("nn.functional.triplet_margin_with_distance_loss")
def _triplet(*args: Any, distance_function: Any = None, **kwargs: Any) -> Any:
    if distance_function is not None:  # the samples have torch.nn.PairwiseDistance()
        kwargs["distance_function"] = nova.pairwise_distance
    return nova.triplet_margin_with_distance_loss(*args, **kwargs)


@adapter("nn.functional.interpolate")
def _interpolate(x: Any, *args: Any, recompute_scale_factor: Any = None, **kwargs: Any) -> Any:
    if recompute_scale_factor:
        kwargs["recompute_scale_factor"] = True
    if kwargs.get("align_corners", 0) is None:
        del kwargs["align_corners"]
    return nova.interpolate(x, *args, **kwargs)


@adapter("nn.functional.embedding")
def _embedding(
    weight: Any,
    index: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    refuse_options(
        padding_idx=None if padding_idx is None else str(padding_idx),
        max_norm=max_norm,
        scale_grad_by_freq=scale_grad_by_freq,
    )
    return nova.embedding(weight, index)


@adapter("nn.functional.embedding_bag")
def _embedding_bag(
    weight: Any,
    index: Any,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    **options: Any,
) -> Any:
    refuse_options(max_norm=max_norm, scale_grad_by_freq=scale_grad_by_freq)
    return nova.embedding_bag(index, weight, offsets, mode, **options)


@adapter("nn.functional.rrelu")
def _rrelu(
    x: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, **options: Any
) -> Any:
    refuse_options(training=training)
    return nova.rrelu(x, None, lower, upper)


for _name in ("T", "H", "mT", "mH"):
    adapter(_name)(attrgetter(_name))


@adapter("nn.functional.one_hot")
def _one_hot(x: Any, num_classes: int = -1) -> Any:
    return nova.one_hot(x, SIZES[0][-1] if num_classes < 0 else num_classes)


@adapter("nn.functional.linear_cross_entropy")
def _linear_cross_entropy(
    x: Any, linear_weight: Any, target: Any, *, linear_bias: Any = None, **kwargs: Any
) -> Any:
    kwargs.pop("options", None)  # how torch divides the work
    weight, reduction = kwargs.pop("weight", None), kwargs.get("reduction", "mean")
    is_plain = weight is None and reduction != "none" and target.dtype is nova.i64
    if is_plain and len(linear_weight.shape) == 2 and len(x.shape) == 2:
        if linear_bias is not None:
            kwargs["bias"] = linear_bias
        return nova.linear_cross_entropy(x, linear_weight, target, **kwargs)
    scores = nova.matmul(x, nova.swapaxes(linear_weight, -1, -2))
    scores = scores if linear_bias is None else scores + linear_bias
    scores = nova.movedim(scores, -1, 1) if len(scores.shape) > 2 else scores
    return nova.cross_entropy(scores, target, weight, **kwargs)


@adapter("norm")
def _norm(x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    ord, dtype = kwargs.pop("p", ord), kwargs.pop("dtype", None)
    x = x if dtype is None else cast_to(x, dtype)
    if isinstance(ord, str):
        axes = tuple(range(x.ndim)) if dim is None else dim
        if (ord == "fro" and x.ndim != 2) or isinstance(axes, int) or len(axes) == 1:
            return nova.linalg.vector_norm(x, 2, axis=dim, keepdims=keepdim)
        return _matrix_norm(x, ord, axes, keepdim)
    return nova.linalg.vector_norm(x, 2 if ord is None else ord, axis=dim, keepdims=keepdim)


@adapter("linalg.norm")
def _linalg_norm(x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    return nova.linalg.norm(x, ord, dim, keepdim)


@adapter("linalg.matrix_norm")
def _matrix_norm(x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    return nova.linalg.norm(x, ord, tuple(dim), keepdim)


@adapter("linalg.vector_norm")
def _vector_norm(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = x if dtype is None else nova.cast(x, dtype=dtype)
    return nova.linalg.vector_norm(x, ord, dim, keepdim)


@adapter("linalg.diagonal")
def _diagonal(x: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return nova.diagonal(x, offset, dim1, dim2)


@adapter("linalg.lu")
def _lu(x: Any, *, pivot: bool = True) -> Any:
    if not pivot:
        raise NotInNova("the option pivot=False")
    return nova.linalg.lu(x)


@adapter("linalg.lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None, *, driver: Any = None) -> Any:
    return nova.linalg.lstsq(a, b, rcond)


def _with_tolerance(name: str) -> Callable[..., Any]:
    function = getattr(nova.linalg, name)

    def call(
        x: Any, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
    ) -> Any:
        if tol is not None:  # an absolute one in matrix_rank, a relative one in pinv
            atol, rtol = (tol, 0.0) if name == "matrix_rank" else (atol, tol)
        if name == "pinv" and hermitian:
            x = x + nova.conj(nova.swapaxes(x, -1, -2))
        return function(x, rtol, atol=atol, hermitian=hermitian)

    return call


for _name in ("matrix_rank", "pinv"):
    ADAPTERS[f"linalg.{_name}"] = _with_tolerance(_name)
