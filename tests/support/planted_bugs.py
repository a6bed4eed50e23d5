"""Bugs to be switched on: each is a context manager that makes one place of Nova wrong.

The numpy columns stay right. Beside each bug stands a program in which it shows and what a check
has to name: the op (whose step, or whose vjp, is wrong) and the kind of finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

import nova
from nova.codegen.cpu import schedule
from nova.codegen.cpu.gemm import packed_gemm
from nova.codegen.cpu.loops import LoopEmitter
from nova.core.dtypes import f32, f64
from nova.ir.bindings import arith
from nova.ir.dialect import create_op
from nova.ir.emit import emit_constant
from nova.ir.linalg import builder as linalg_builder
from nova.ir.linalg.builder import LinalgBuilder
from nova.ir.linalg.scalar import Body
from nova.ir.mathlib import hyperbolic
from nova.ops import OPS, indexing
from nova.passes.kernels import plan_workspace
from nova.passes.kernels.workspace import assign_offsets
from nova.passes.tensor import canonicalize_nova

RNG = np.random.default_rng(7)


def data(*shape: int, type_: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(type_)


# --- switching on ---------------------------------------------------------------------------------


@contextmanager
def column(op: str, **columns: Any) -> Iterator[None]:
    """Other columns in a row, for a while; rows are frozen because nobody else may do this."""
    row = OPS[op]
    before = {name: getattr(row, name) for name in columns}
    for name, value in columns.items():
        object.__setattr__(row, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(row, name, value)


def wrong_vjp(op: str, change: Callable[..., Any]) -> Any:
    """`change(F, right gradients, g, out, *operands)` takes the place of the vjp of `op`."""
    right = OPS[op].vjp
    assert right is not None

    def vjp(F: Any, g: Any, out: Any, *operands: Any, **attrs: Any) -> Any:
        pieces = right(F, g, out, *operands, **attrs)
        listed = pieces if isinstance(pieces, tuple | list) else (pieces,)
        return change(F, listed, g, out, *operands)

    return column(op, vjp=vjp)


def wrong_join() -> Any:
    def lower(b: Any, out: Any, *parts: Any, axis: int) -> Any:
        def body(s: Any) -> Any:
            at = [s.index(i) for i in range(out.rank)]
            offset, result = 0, None
            for part in parts:
                n = part.shape[axis]
                location = s.minimum(s.maximum(at[axis] - offset, 0), n - 1)
                element = s.load(part.value, [*at[:axis], location, *at[axis + 1 :]], part.dtype)
                chosen = at[axis] >= offset + (1 if offset else 0)
                result = element if result is None else s.select(chosen, element, result)
                offset += n
            return result

        return b.generic(out, [], body)

    return column("join", lower=lower)


def wrong_permute() -> Any:
    def lower(b: Any, out: Any, x: Any, *, axes: Any) -> Any:
        return b.remap(out, x, lambda d: [d[a] for a in axes])

    return column("permute", lower=lower)


def wrong_init() -> Any:
    right = LinalgBuilder.reduce

    def reduce(self: Any, out: Any, x: Any, axes: Any, keep: Any, init: Any, *more: Any) -> Any:
        return right(self, out, x, axes, keep, 0 if init == -np.inf else init, *more)

    return patch.object(LinalgBuilder, "reduce", reduce)


def wrong_broadcast() -> Any:
    right = linalg_builder.broadcast_access

    def access(shape: Any, out_shape: Any) -> Any:
        if len(shape) == 1 and len(out_shape) == 2 and shape[0] == out_shape[0]:
            return lambda d: [d[0]]
        return right(shape, out_shape)

    return patch.object(linalg_builder, "broadcast_access", access)


def wrong_clamp() -> Any:
    def clamp(s: Any, index: Any, size: int) -> Any:
        return s.minimum(s.maximum(index, 0), size - 1)

    return patch.object(indexing, "clamp_index_scalar", clamp)


def wrong_fold() -> Any:
    right = canonicalize_nova.fold_constants

    def fold_constants(op: Any) -> Any:
        if op.name == "nova.sub" and right(op) is not None:
            array = canonicalize_nova._constant(op.operands[0])
            type_ = canonicalize_nova.nova_type(op.results[0].type)
            return emit_constant(np.broadcast_to(array, type_.shape), type_, op.location)
        return right(op)

    return _instead_of(right, fold_constants)


def wrong_merge() -> Any:
    right = canonicalize_nova.merge_permutes

    def merge_permutes(op: Any) -> Any:
        if op.name != "nova.permute":
            return None
        inner = canonicalize_nova._producer(op.operands[0], "permute")
        if inner is None:
            return right(op)
        axes, first = (canonicalize_nova._attrs(o)["axes"] for o in (op, inner))
        merged = tuple(axes[a] for a in first)
        type_ = canonicalize_nova.nova_type(op.results[0].type)
        return create_op(OPS["permute"], [inner.operands[0]], type_, {"axes": merged})

    return _instead_of(right, merge_permutes)


def _instead_of(right: Any, wrong: Any) -> Any:
    """A rule of `canonicalize-nova` replaced by another."""
    rules = {wrong if r is right else r: n for r, n in canonicalize_nova.RULES.items()}
    return patch.object(canonicalize_nova, "RULES", rules)


def wrong_cast() -> Any:
    right = Body.call

    def call(self: Any, name: str, *args: Any) -> Any:
        if name == "exp" and args[0].dtype is f64:
            return self.cast(right(self, name, self.cast(args[0], f32)), f64)
        return right(self, name, *args)

    return patch.object(Body, "call", call)


def wrong_rounding() -> Any:
    right = Body.cast

    def cast(self: Any, x: Any, type_: Any) -> Any:
        if x.dtype.is_float and type_.is_integer:
            return right(self, self.call("roundeven", x), type_)
        return right(self, x, type_)

    return patch.object(Body, "cast", cast)


def wrong_tile_bound() -> Any:
    right = schedule.KernelSchedule.tile_ranges

    def ranges(self: Any, tile: Any) -> Any:
        # The first point of every tile is left out.
        result = right(self, tile)
        single = schedule.index(1)
        return [None if r is None else (arith.addi(r[0], single), r[1]) for r in result]

    return patch.object(schedule.KernelSchedule, "tile_ranges", ranges)


def wrong_accumulation() -> Any:
    right = packed_gemm.compare

    def compare(predicate: Any, x: Any, y: Any) -> Any:
        if predicate == arith.CmpIPredicate.eq and isinstance(y, int) and y == 0:
            return right(arith.CmpIPredicate.sge, x, y)  # every block of k overwrites
        return right(predicate, x, y)

    return patch.object(packed_gemm, "compare", compare)


def dropped_operand() -> Any:
    right = LoopEmitter.emit

    def emit(self: Any) -> bool:
        if self.nest.generic.num_inputs >= 3:
            self.buffers = [*self.buffers[:2], self.buffers[1], *self.buffers[3:]]
        return right(self)

    return patch.object(LoopEmitter, "emit", emit)


def overlapping_workspace() -> Any:
    def location(buffers: Any, order: Any, may_share: Any) -> Any:
        size = max((b.space for b in buffers), default=0)
        return assign_offsets.Layout((0,) * len(buffers), size)

    return patch.object(assign_offsets, "_assign_offsets", location)


def wrong_polynomial() -> Any:
    first, *remaining = hyperbolic._TANH_32
    return patch.object(hyperbolic, "_TANH_32", (first * 1.01, *remaining))


def wrong_comparison() -> Any:
    right = Body.compare

    def compare(self: Any, name: str, x: Any, y: Any) -> Any:
        return right(self, "gt" if name == "ge" else name, x, y)

    return patch.object(Body, "compare", compare)


# --- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """What is planted, the program that shows it, and what has to be named."""

    name: str
    plant: Callable[[], Any]
    build: Callable[[], tuple[Any, list[np.ndarray]]]
    op: str
    kind: str = "step"
    operand: int | None = None
    knobs: tuple[tuple[str, int], ...] = ()


def model(
    middle: Callable[[Any], Any], x: np.ndarray, gradient: bool = False
) -> tuple[Any, list[np.ndarray]]:
    """`middle` inside of a small network that is right."""
    w = data(x.shape[-1], x.shape[-1], type_=x.dtype.str[1:]) / 4
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w", requires_grad=True)
    h = nova.sin(X @ W) + X
    y = middle(h)
    y = nova.cos(nova.cast(y, dtype=X.dtype) * 0.5) - 0.25
    loss = nova.mean(nova.square(y))
    return nova.compile(loss, inputs=[X], params=[W], include_backward=gradient), [x, w]


def gradients_of(middle: Callable[[Any], Any], *shape: int) -> Callable[[], Any]:
    return lambda: model(middle, data(*shape), gradient=True)


def values_of(middle: Callable[[Any], Any], *shape: int, type_: str = "f4") -> Callable[[], Any]:
    return lambda: model(middle, data(*shape, type_=type_))


def long_sum() -> tuple[Any, list[np.ndarray]]:
    a, b = data(64, 1800), data(1800, 64)
    A, B = nova.tensor(a, name="a"), nova.tensor(b, name="b")
    return nova.compile(nova.tanh((A * 0.5) @ nova.sin(B)) + 1, inputs=[A, B]), [a, b]


def products() -> tuple[Any, list[np.ndarray]]:
    """Two values that live at the same time."""
    x, v, w = data(32, 32), data(32, 32) / 8, data(32, 32) / 8
    X, V, W = (nova.tensor(a, name=n) for a, n in ((x, "x"), (v, "v"), (w, "w")))
    remaining, right = X @ V, nova.sin(X) @ W
    return nova.compile(nova.exp((remaining @ right) * 0.01) - 1, inputs=[X, V, W]), [x, v, w]


def update() -> tuple[Any, list[np.ndarray]]:
    """A parameter that is read after its new value is known."""
    x, w = data(32, 32) / 8, data(32, 32) / 8
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w")
    new = W - 0.1 * nova.sin(W)
    late = nova.sum(X @ new, axis=0) @ W
    program = nova.compile(nova.exp(late), inputs=[X], params=[W], updates={W: new})
    return program, [x, w]


def three_operands() -> tuple[Any, list[np.ndarray]]:
    arrays = [data(6, 8) for _ in "abc"]
    A, B, C = (nova.tensor(a, name=n) for a, n in zip(arrays, "abc", strict=True))
    return nova.compile(nova.sum(nova.sin(A * B + C), axis=0), inputs=[A, B, C]), arrays


def folded(h: Any) -> Any:
    three, single = nova.tensor(np.float32([3, 4])), nova.tensor(np.float32([1, 2]))
    return h * nova.sum(three - single)


SMALL = (("serial_work", 0), ("tile_work", 64))
UNTILED = (("serial_work", 0),)


def rows(h: Any) -> Any:
    return nova.take(h, nova.tensor(np.array([0, -1, 2, -3])), axis=0)


BUGS = [
    Bug(
        "vjp of mul, operand 0",
        lambda: wrong_vjp("mul", lambda F, p, g, out, x, y: (F.sum_to(g * x, x.shape), p[1])),
        gradients_of(lambda h: h * nova.sin(h), 6, 8),
        "mul",
        "gradient",
        0,
    ),
    Bug(
        "vjp of tanh",
        lambda: wrong_vjp("tanh", lambda F, p, g, out, x: (g * (1.0 - out),)),
        gradients_of(nova.tanh, 6, 8),
        "tanh",
        "gradient",
        0,
    ),
    Bug(
        "vjp of matmul, operand 1",
        lambda: wrong_vjp("matmul", lambda F, p, g, out, x, y: (p[0], p[1] * 0.999)),
        gradients_of(lambda h: h, 6, 8),
        "matmul",
        "gradient",
        1,
    ),
    Bug(
        "vjp of sum",
        lambda: wrong_vjp("sum", lambda F, p, g, out, x: (p[0] * 2.0,)),
        gradients_of(lambda h: nova.sum(h, axis=1), 6, 8),
        "sum",
        "gradient",
        0,
    ),
    Bug(
        "vjp of softmax",
        lambda: wrong_vjp("softmax", lambda F, p, g, out, x: (g * out,)),
        gradients_of(nova.softmax, 6, 8),
        "softmax",
        "gradient",
        0,
    ),
    Bug(
        "vjp of maximum, operand 1 missing",
        lambda: wrong_vjp("maximum", lambda F, p, g, out, x, y: (p[0], None)),
        gradients_of(lambda h: nova.maximum(h, nova.cos(h)), 6, 8),
        "maximum",
        "gradient",
        1,
    ),
    Bug(
        "swapped select",
        lambda: column("where", scalar=lambda s, c, x, y: s.select(c, y, x)),
        values_of(lambda h: nova.where(h > 0, h, nova.sin(h)), 6, 8),
        "where",
    ),
    Bug("wrong initial value of max", wrong_init,
        values_of(lambda h: nova.max(-nova.exp(h), axis=1), 6, 8), "max"),
    Bug("wrong access of permute", wrong_permute,
        values_of(lambda h: nova.permute(nova.reshape(h, (4, 4, 4)), (1, 2, 0)), 8, 8), "permute"),
    Bug("wrong broadcast", wrong_broadcast,
        values_of(lambda h: h - nova.sum(h, axis=1), 8, 8), "sub"),
    Bug("wrong offset in concat", wrong_join,
        values_of(lambda h: nova.concat([h, nova.sin(h)], axis=1), 6, 8), "join"),
    Bug("negative indices clamped", wrong_clamp, values_of(rows, 6, 8), "take"),
    Bug("wrong constant folding", wrong_fold, values_of(folded, 6, 8), "sub"),
    Bug(
        "wrong merge of permutes",
        wrong_merge,
        values_of(
            lambda h: nova.permute(
                nova.permute(nova.reshape(h, (4, 4, 4)), (1, 2, 0)), (0, 2, 1)
            ),
            8,
            8,
        ),
        "permute",
    ),
    Bug("wrong coefficient of tanh", wrong_polynomial,
        values_of(lambda h: nova.tanh(h * 0.3), 6, 8), "tanh"),
    Bug("f64 through f32 in exp", wrong_cast,
        values_of(lambda h: nova.exp(h), 6, 8, type_="f8"), "exp"),
    Bug("rounding instead of truncation", wrong_rounding,
        values_of(lambda h: nova.cast(h * 3.3, dtype="i32"), 6, 8), "cast"),
    Bug("ge compares like gt", wrong_comparison,
        values_of(lambda h: nova.where(h >= h * 1.0, h, nova.sin(h)), 6, 8), "ge"),
    Bug("wrong tile bound", wrong_tile_bound,
        values_of(lambda h: h, 600, 700), "matmul", knobs=SMALL),
    Bug("blocks of k do not add up", wrong_accumulation, long_sum, "matmul"),
    Bug(
        "dropped operand of a fused kernel",
        dropped_operand,
        three_operands,
        "add",
        "program",
    ),
    Bug(
        "overlapping workspace",
        overlapping_workspace,
        products,
        "matmul",
        "program",
        knobs=UNTILED,
    ),
    Bug(
        "written in place although still read",
        lambda: patch.object(plan_workspace, "can_write_in_place", lambda *a: True),
        update,
        "matmul",
        "program",
        knobs=UNTILED,
    ),
]  # fmt: skip

__all__ = ["BUGS", "Bug"]
