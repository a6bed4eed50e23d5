"""Wrong shapes, types and options of functions: errors of their own class that name the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    AxisError,
    DTypeError,
    NovaError,
    ShapeError,
)

X = np.ones((3, 4), "f4")
V = np.ones(5, "f4")
IMAGE = np.ones((2, 4, 6, 6), "f4")
W = np.ones((8, 4, 3, 3), "f4")

MISTAKES: list[tuple[Callable[[], Any], type[NovaError], str]] = [
    (lambda: nova.glu(np.ones((3, 5), "f4")), ShapeError, "glu: axis 1 of (3, 5) has an odd size"),
    (lambda: nova.prelu(X, np.ones(3, "f4")), ShapeError, "prelu: weight (3,) for x (3, 4)"),
    (lambda: nova.softshrink(X, lambd=-1.0), AttributeValueError, "lambd must be at least 0"),
    (lambda: nova.celu(X, alpha="a"), AttributeValueError, "celu: alpha must be a number"),
    (lambda: nova.einsum("ij,jk->ik", X, X), ShapeError, "einsum: 'j' is 4 and 3"),
    (lambda: nova.einsum("ij->ii", X), AttributeValueError, "is not an equation"),
    (lambda: nova.einsum("ij,jk", X), AttributeValueError, "has 2 operands, not 1"),
    (lambda: nova.einsum("ijk", X), ShapeError, "einsum: 'ijk' for an operand of rank 2"),
    (lambda: nova.einsum(X, X), AttributeValueError, "the equation is a str"),
    (lambda: nova.tensordot(X, X, axes=1), ShapeError, "tensordot: axes [1] of (3, 4) and"),
    (lambda: nova.bmm(X, X), ShapeError, "bmm: (3, 4) has rank 2, not 3"),
    (lambda: nova.cross(X, X), ShapeError, "is not of size 3"),
    (lambda: nova.cdist(X, V), ShapeError, "cdist: (5,) has rank 1"),
    (lambda: nova.norm(X, p="nuc"), AttributeValueError, "norm: p must be a number"),
    (lambda: nova.repeat(X, 2), ShapeError, "repeat: 1 counts for (3, 4)"),
    (lambda: nova.tile(X, -1), AttributeValueError, "counts (-1,) are negative"),
    (lambda: nova.chunk(X, 0), AttributeValueError, "chunks must be at least 1"),
    (lambda: nova.narrow(X, 0, 2, 5), ShapeError, "narrow: 2..7 of an axis of size 3"),
    (lambda: nova.movedim(X, (0, 1), 0), AxisError, "do not match"),
    (lambda: nova.unflatten(X, 1, (3, -1)), ShapeError, "cannot become (3, -1)"),
    (lambda: nova.pixel_shuffle(IMAGE, 3), ShapeError, "4 channels for a factor of 3"),
    (lambda: nova.pad_edges(X, (1, 1), mode="edge"), AttributeValueError, "mode 'edge' is unknown"),
    (lambda: nova.pad_edges(X, (9, 0), mode="reflect"), ShapeError, "of an axis of 4"),
    (lambda: nova.pad_edges(X, (1, 1, 1)), ShapeError, "a pair for each"),
    (
        lambda: nova.conv2d(IMAGE, W[:, :3]),
        ShapeError,
        "the weight (8, 3, 3, 3) is one for 3",
    ),
    (lambda: nova.conv2d(X, W), ShapeError, "conv2d: (3, 4) is not (batch, channels, size, size)"),
    (lambda: nova.conv2d(IMAGE, W, V), ShapeError, "conv2d: bias (5,) for 8 output channels"),
    (lambda: nova.conv2d(IMAGE, W, stride=0), AttributeValueError, "conv2d: stride 0"),
    (lambda: nova.conv2d(IMAGE, W, padding="same", stride=2), AttributeValueError, "stride of 1"),
    (
        lambda: nova.conv2d(IMAGE[..., :2], W),
        ShapeError,
        "a kernel of (3, 3) is larger than the padded input, (",
    ),
    (
        lambda: nova.conv2d(IMAGE[..., :2, :2], W, padding=1, dilation=2),
        ShapeError,
        "a kernel of (3, 3) with dilation (2, 2) is larger than the padded input, (4, 4)",
    ),
    (
        lambda: nova.conv_transpose2d(IMAGE, W),
        ShapeError,
        "the weight (8, 4, 3, 3) is one for 8",
    ),
    (lambda: nova.max_pool2d(IMAGE, 9), ShapeError, "(9, 9) does not fit in an input of"),
    (lambda: nova.max_pool2d(IMAGE, 2, padding=2), AttributeValueError, "more than half"),
    (lambda: nova.interpolate(IMAGE, size=3, mode="cubic"), AttributeValueError, "unknown"),
    (lambda: nova.interpolate(IMAGE, size=3, mode="linear"), ShapeError, "for mode 'linear'"),
    (lambda: nova.interpolate(IMAGE), AttributeValueError, "needs size or scale_factor"),
    (lambda: nova.grid_sample(IMAGE, IMAGE), ShapeError, "grid_sample: a grid of"),
    (
        lambda: nova.grid_sample(IMAGE, np.zeros((7, 2, 2, 2), "f4")),
        ShapeError,
        "images and 7 grids",
    ),
    (
        lambda: nova.grid_sample(IMAGE, IMAGE, padding_mode="mirror"),
        AttributeValueError,
        "padding_mode 'mirror' is unknown",
    ),
    (
        lambda: nova.affine_grid(np.zeros((1, 2, 2), "f4"), (1, 1, 2, 2)),
        ShapeError,
        "affine_grid: maps of",
    ),
    (lambda: nova.fold(X, 4, 2), ShapeError, "fold: (1, 3, 4)"),
    (lambda: nova.batch_norm(IMAGE), ShapeError, "needs running_mean and running_var"),
    (
        lambda: nova.batch_norm(X[:1], training=True),
        ShapeError,
        "batch_norm: (1, 4) has one value per channel, and training needs more",
    ),
    (lambda: nova.channel_shuffle(IMAGE, 3), ShapeError, "4 channels are not divisible into 3"),
    (lambda: nova.layer_norm(X, (4,)), ShapeError, "there is no normalized_shape"),
    (lambda: nova.group_norm(IMAGE, 3), ShapeError, "4 channels are not divisible into 3"),
    (lambda: nova.instance_norm(X), ShapeError, "instance_norm: (3, 4) has rank 2"),
    (lambda: nova.rope(X, X, X), ShapeError, "rope: cos (3, 4)"),
    (lambda: nova.huber_loss(X, X, delta=0.0), AttributeValueError, "delta must be positive"),
    (lambda: nova.huber_loss(X, X, reduction="max"), AttributeValueError, "'max' is unknown"),
    (lambda: nova.topk(X, 5), ShapeError, "topk: 5 of an axis of 4"),
    (lambda: nova.kthvalue(X, 0), ShapeError, "kthvalue: element 0"),
    (lambda: nova.quantile(X, 1.5), AttributeValueError, "in 0..1"),
    (
        lambda: nova.binary_cross_entropy(X, X, weight=V),
        ShapeError,
        "binary_cross_entropy: weight (5,) for x (3, 4)",
    ),
    (
        lambda: nova.binary_cross_entropy_with_logits(X, X, pos_weight=V),
        ShapeError,
        "pos_weight (5,) for a target (3, 4)",
    ),
    (
        lambda: nova.multi_margin_loss(X, np.zeros(3, "i8"), weight=V),
        ShapeError,
        "multi_margin_loss: weight (5,) for 4 classes",
    ),
    (
        lambda: nova.multilabel_margin_loss(X, np.zeros(3, "i8")),
        ShapeError,
        "multilabel_margin_loss: scores (3, 4) and classes (3,)",
    ),
    (
        lambda: nova.avg_pool2d(IMAGE, 2, divisor_override=0),
        AttributeValueError,
        "divisor_override must not be 0",
    ),
    (lambda: nova.round(X, decimals="a"), AttributeValueError, "round: decimals"),
    (lambda: nova.round(np.ones(3, "i8"), decimals=1), DTypeError, "round: decimals of i64[3]"),
    (lambda: nova.trapezoid(X, V), ShapeError, "positions (1, 5) for y (3, 4) along axis 1"),
    (lambda: nova.linspace(nova.tensor(X), 1, 3), ShapeError, "a bound of shape (3, 4)"),
    (lambda: nova.quantile(X, nova.tensor(X)), ShapeError, "neither a number nor a vector"),
    (
        lambda: nova.repeat_interleave(V, nova.tensor(np.ones(5, "i8"))),
        AttributeValueError,
        "the size of the result depends on the values of repeats",
    ),
    (
        lambda: nova.narrow(X, 0, nova.tensor(np.array(1)), 4),
        ShapeError,
        "narrow: 4 elements from i64[] of an axis of size 3",
    ),
    (lambda: nova.histogram(X, 4, (1.0, 1.0)), AttributeValueError, "is not (low, high)"),
    (lambda: nova.histogram(X, 4, weight=V), ShapeError, "histogram: weight (5,) for x (3, 4)"),
    (lambda: nova.index_put(X, [V > 0], 1.0), ShapeError, "index_put: a mask (5,) for x (3, 4)"),
    (
        lambda: nova.tensor(IMAGE)[1, 1:, np.array([1, 2])],
        AttributeValueError,
        "a slice is between a number and a tensor of indices",
    ),
    (lambda: nova.linalg.pinv(X, atol=V), ShapeError, "pinv: atol (5,) for a batch ()"),
    (lambda: nova.cumsum(X, axis=2), AxisError, "axis 2 is out of range"),
    (lambda: nova.bincount(V, 3), DTypeError, "bincount: x must hold integers"),
    (lambda: nova.segment_sum(X, np.zeros(2, "i8"), 3), ShapeError, "ids (2,) for (3, 4)"),
    (lambda: nova.windows(X, kernel=(5,)), ShapeError, "do not fit in (4,)"),
    (lambda: nova.masked_fill(X, X, 1.0), DTypeError, "the mask is f32, not bool"),
    (lambda: nova.linspace(0, 1, -1), AttributeValueError, "steps must be at least 0"),
    (lambda: nova.meshgrid(X), AttributeValueError, "meshgrid: (3, 4) is not a vector"),
    (lambda: nova.relu6("x"), ArgumentTypeError, "operand 0 is a str"),
    (lambda: nova.logspace(0, 1, -1), AttributeValueError, "logspace: steps must be at least 0"),
    (lambda: nova.logspace(0, 1, 2, base="e"), AttributeValueError, "base must be a number"),
    (lambda: nova.lp_pool2d(IMAGE, 0, 2), AttributeValueError, "norm_type must not be 0"),
    (lambda: nova.max_pool2d(IMAGE > 0, 2), DTypeError, "max_pool2d: x is bool"),
    (
        lambda: nova.adaptive_avg_pool2d(IMAGE, (None, 2, None)),
        AttributeValueError,
        "output_size (None, 2, None): not 2 sizes",
    ),
    (
        lambda: nova.interpolate(IMAGE, scale_factor=float("inf")),
        AttributeValueError,
        "scale_factor inf: not 2 finite numbers",
    ),
    (
        lambda: nova.interpolate(IMAGE, scale_factor=(2.0,) * 3),
        AttributeValueError,
        "scale_factor (2.0, 2.0, 2.0): not 2 finite",
    ),
    (lambda: nova.rot90(X, 1, (0,)), AxisError, "rot90: axes (0,) are not two axes"),
    (lambda: nova.rot90(X, 1, (0, 0)), AxisError, "rot90: axes (0, 0) are not two axes"),
    (lambda: nova.tensordot(X, X, axes=((1,),)), AttributeValueError, "are not a pair"),
    (lambda: nova.repeat_interleave(V, [1, -1, 1, 1, 1]), AttributeValueError, "are negative"),
    (lambda: nova.diff(V, -1), AttributeValueError, "diff: n must be at least 0"),
    (lambda: nova.unravel_index(np.array([1]), (-2, 3)), AxisError, "no element has a position"),
    (lambda: nova.hstack([]), ShapeError, "hstack: no tensors"),
    (lambda: nova.quantile(X, "a"), AttributeValueError, "quantile: q must be numbers"),
    (lambda: nova.var(X, unbiased="x"), ArgumentTypeError, "unbiased must be a bool"),
    (lambda: nova.tensor(X).view_as(3), ArgumentTypeError, "view_as: a int has no shape"),
    (lambda: nova.tensor(X).expand_as(None), ArgumentTypeError, "expand_as: a NoneType has"),
    (lambda: nova.tensor(X).type_as(3), ArgumentTypeError, "type_as: a int has no dtype"),
]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES, ids=[m[2] for m in MISTAKES])
def test_mistake(call: Callable[[], Any], error: type[NovaError], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert message in text
    assert "test_function_errors.py:" in text, "the error has to name the user's line"
