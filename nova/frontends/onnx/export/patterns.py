"""Groups of Nova's ops that are one ONNX node, or none: convolutions, max pools, gradient stops.

Nova writes the first two with sliding windows (`nova/ops/loops/windows.py`). A pattern takes a
tensor and gives the row that writes it and the tensors that the row reads, or None.
"""

from __future__ import annotations

from typing import Any

from nova.graph.tensor import Tensor

Match = tuple[Any, tuple[Tensor, ...]]


def _is(t: Tensor, name: str) -> bool:
    return t.op is not None and t.op.name == name


def _without_reshapes(t: Tensor) -> Tensor:
    while _is(t, "reshape"):
        t = t.inputs[0]
    return t


def _padding(t: Tensor, rank: int, value: float) -> tuple[Tensor, list[int]]:
    """What a pad of the spatial axes reads, and its widths; zeros if there is no such pad."""
    if _is(t, "pad") and t.attrs["value"] == value and t.ndim == rank + 2:
        low, high = t.attrs["low"], t.attrs["high"]
        if not any((*low[:2], *high[:2])):
            return t.inputs[0], [*low[2:], *high[2:]]
    return t, [0] * (2 * rank)


def _window_options(windows: Tensor, pads: list[int]) -> dict[str, Any]:
    return {
        "kernel_shape": list(windows.attrs["kernel"]),
        "strides": list(windows.attrs["stride"]),
        "dilations": list(windows.attrs["dilation"]),
        "pads": pads,
    }


def match_convolution(t: Tensor) -> Match | None:
    """reshape(matmul(weight, windows(x))) with reshapes in between."""
    if not (_is(t, "reshape") and _is(t.inputs[0], "matmul")):
        return None
    left, right = t.inputs[0].inputs
    windows = _without_reshapes(right)
    if not _is(windows, "windows") or not t.dtype.is_float:
        return None
    rank = len(windows.attrs["kernel"])
    weight = left
    while _is(weight, "reshape") and not _is_weight(weight, windows, rank):
        weight = weight.inputs[0]
    if not _is_weight(weight, windows, rank) or windows.ndim != 2 + 2 * rank:
        return None
    batch, channels, *_ = windows.shape
    counts = windows.shape[2 + rank :]
    if t.shape != (batch, weight.shape[0], *counts) or channels % weight.shape[1]:
        return None
    groups = channels // weight.shape[1]
    taps = windows.size // (batch * groups) // _product(counts)
    # (taps, positions), after a group axis if there are several.
    grouped = (groups,) if groups > 1 else ()
    if right.shape != (batch, *grouped, taps, _product(counts)):
        return None
    if left.shape != (*grouped, weight.shape[0] // groups, taps):
        return None
    x, pads = _padding(windows.inputs[0], rank, 0)
    options = {**_window_options(windows, pads), "group": groups}

    def write(w: Any, _: Tensor, names: list[str]) -> str:
        return str(w.node("Conv", *names, **options))

    return write, (x, weight)


def _is_weight(t: Tensor, windows: Tensor, rank: int) -> bool:
    return t.ndim == rank + 2 and t.shape[2:] == tuple(windows.attrs["kernel"])


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def match_max_pool(t: Tensor) -> Match | None:
    """max(windows(x)) over the taps."""
    if not (_is(t, "max") and _is(t.inputs[0], "windows") and t.dtype.is_float):
        return None
    windows = t.inputs[0]
    rank = len(windows.attrs["kernel"])
    if windows.ndim != 2 + 2 * rank or t.attrs["keepdims"]:
        return None
    if t.attrs["axis"] != tuple(range(2, 2 + rank)):
        return None
    x, pads = _padding(windows.inputs[0], rank, float("-inf"))
    options = _window_options(windows, pads)
    if any(p >= k for p, k in zip(pads, options["kernel_shape"] * 2, strict=True)):
        return None

    def write(w: Any, _: Tensor, names: list[str]) -> str:
        return str(w.node("MaxPool", *names, **options))

    return write, (x,)


def match_gradient_stop(t: Tensor) -> Match | None:
    """where(condition, x, detach(x)) is x: relu6 and its relatives stop gradients so."""
    if not _is(t, "where"):
        return None
    _, x, stopped = t.inputs
    if not _is(stopped, "detach") or stopped.inputs[0] is not x or x.type != t.type:
        return None
    return (lambda w, _, names: names[0]), (x,)


PATTERNS = (match_convolution, match_max_pool, match_gradient_stop)
