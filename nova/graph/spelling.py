"""torch's spellings: keywords such as `dim` for `axis`, and methods such as `x.float()`.

Function names that differ only in spelling (`cat`) are rows of `nova/ops/functional/aliases.py`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from nova.core.dtypes import bf16, bool_, dtype, f16, f32, f64, i8, i16, i32, i64, u8
from nova.core.location import user_location
from nova.core.user_facing import user_facing_class
from nova.errors import ArgumentTypeError
from nova.ops.table import F

if TYPE_CHECKING:
    from nova.graph.tensor import Tensor

T = TypeVar("T", bound=Callable[..., Any])

# torch's keyword -> Nova's: the first of them that a function has.
KEYWORDS = {
    "dim": ("axis", "axes"),
    "dims": ("axes",),
    "keepdim": ("keepdims",),
    "input": ("x",),
    "other": ("y",),
    "tensor1": ("a",),
    "tensor2": ("b",),
    "unbiased": ("correction",),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "shifts": ("shift",),
    "start_dim": ("start_axis",),
    "end_dim": ("end_axis",),
    "attn_mask": ("mask",),
    "is_causal": ("causal",),
    "embed_dim": ("features",),
    "num_heads": ("heads",),
    "num_embeddings": ("count",),
    "embedding_dim": ("features",),
    "normalized_shape": ("shape",),
}


def spell_keywords(keywords: dict[str, Any], accepted: Collection[str]) -> dict[str, Any]:
    """`keywords` with torch's keywords replaced by those that a function has."""
    if all(name in accepted for name in keywords):
        return keywords
    result = {}
    for name, value in keywords.items():
        ours = next((word for word in KEYWORDS.get(name, ()) if word in accepted), None)
        if name in accepted or ours is None or ours in keywords:
            result[name] = value
        else:
            result[ours] = _correction(value) if name == "unbiased" else value
    return result


def takes_torch_keywords(function: T) -> T:
    """`function`, which also takes torch's spelling of its keywords."""
    accepted = signature(function).parameters

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **spell_keywords(kwargs, accepted))

    return cast("T", call)


def _correction(unbiased: Any) -> builtins.int:
    if not isinstance(unbiased, bool | np.bool_):
        error = ArgumentTypeError(f"unbiased must be a bool, not {unbiased!r}")
        raise error.located(str(user_location()))
    return builtins.int(unbiased)


def _shape_of(name: str, other: Any) -> Any:
    if not hasattr(other, "shape"):
        raise ArgumentTypeError(f"{name}: a {type(other).__name__} has no shape")
    return other.shape


def _size(size: tuple[Any, ...]) -> Any:
    """The shape of f(2, 3) or f((2, 3))."""
    return size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size


@user_facing_class
class TorchMethods:
    """Methods of torch's tensors that are a cast, a reshape or a fact of the type."""

    __slots__ = ()

    def view(self, *sizes: Any) -> Tensor:
        """The same elements with another shape."""
        return F.reshape(self, sizes[0] if len(sizes) == 1 else sizes)

    def view_as(self, other: Tensor) -> Tensor:
        """The same elements with the shape of `other`."""
        return F.reshape(self, _shape_of("view_as", other))

    def reshape_as(self, other: Tensor) -> Tensor:
        """The same elements with the shape of `other`."""
        return F.reshape(self, _shape_of("reshape_as", other))

    def expand_as(self, other: Tensor) -> Tensor:
        """Expanded to the shape of `other`."""
        return F.expand(self, _shape_of("expand_as", other))

    def t(self) -> Tensor:
        """A matrix transposed; vectors and numbers as they are."""
        return F.transpose(self)

    def numel(self) -> builtins.int:
        """The number of elements."""
        return cast("Tensor", self).size

    def dim(self) -> builtins.int:
        """The number of axes."""
        return cast("Tensor", self).ndim

    def contiguous(self) -> Tensor:
        """The tensor itself: every tensor is contiguous."""
        return cast("Tensor", self)

    def clone(self) -> Tensor:
        """The tensor itself: values do not change."""
        return cast("Tensor", self)

    def to(self, spec: Any) -> Tensor:
        """The tensor in another dtype."""
        if isinstance(spec, str) and spec.partition(":")[0] in ("cpu", "cuda"):
            raise ArgumentTypeError(
                f"to: {spec!r} is a device, not a dtype", hint="use nova.device or nova.to_device"
            )
        return F.cast(self, dtype=dtype(spec))

    def new_zeros(self, *size: Any, dtype: Any = None) -> Tensor:
        """Zeros of a shape, in the dtype of the tensor."""
        return F.zeros(_size(size), dtype=dtype or cast("Tensor", self).dtype)

    def new_ones(self, *size: Any, dtype: Any = None) -> Tensor:
        """Ones of a shape, in the dtype of the tensor."""
        return F.ones(_size(size), dtype=dtype or cast("Tensor", self).dtype)

    def new_full(self, size: Any, fill_value: Any, dtype: Any = None) -> Tensor:
        """A number in a shape, in the dtype of the tensor."""
        return F.full(size, fill_value, dtype or cast("Tensor", self).dtype)

    def new_tensor(self, data: Any, dtype: Any = None) -> Tensor:
        """Data as a tensor, in the dtype of this one."""
        return F.cast(data, dtype=dtype or cast("Tensor", self).dtype)

    def is_floating_point(self) -> builtins.bool:
        """Whether elements are floats."""
        return cast("Tensor", self).dtype.is_float

    def nelement(self) -> builtins.int:
        """The number of elements."""
        return cast("Tensor", self).size

    def ndimension(self) -> builtins.int:
        """The number of axes."""
        return cast("Tensor", self).ndim

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped."""
        return F.matrix_transpose(self)

    @property
    def mH(self) -> Tensor:
        """The conjugate of the last two axes swapped."""
        return F.adjoint(self)

    @property
    def H(self) -> Tensor:
        """The conjugate transpose of a matrix."""
        return F.adjoint(self)

    def type_as(self, other: Tensor) -> Tensor:
        """The tensor in the dtype of `other`."""
        if not hasattr(other, "dtype"):
            raise ArgumentTypeError(f"type_as: a {type(other).__name__} has no dtype")
        return F.cast(self, dtype=other.dtype)

    def double(self) -> Tensor:
        """The tensor in f64."""
        return F.cast(self, dtype=f64)

    def half(self) -> Tensor:
        """The tensor in f16."""
        return F.cast(self, dtype=f16)

    def bfloat16(self) -> Tensor:
        """The tensor in bf16."""
        return F.cast(self, dtype=bf16)

    def short(self) -> Tensor:
        """The tensor in i16."""
        return F.cast(self, dtype=i16)

    def long(self) -> Tensor:
        """The tensor in i64."""
        return F.cast(self, dtype=i64)

    def char(self) -> Tensor:
        """The tensor in i8."""
        return F.cast(self, dtype=i8)

    def byte(self) -> Tensor:
        """The tensor in u8."""
        return F.cast(self, dtype=u8)

    def bool(self) -> Tensor:
        """The tensor in bool."""
        return F.cast(self, dtype=bool_)

    def int(self) -> Tensor:
        """The tensor in i32."""
        return F.cast(self, dtype=i32)

    def float(self) -> Tensor:
        """The tensor in f32."""
        return F.cast(self, dtype=f32)
