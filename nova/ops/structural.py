"""Rows that control how a program is compiled rather than what it computes."""

from __future__ import annotations

from nova.ops.table import REQUIRED, Op, register

ROWS = (
    Op(
        name="barrier",
        doc="The value of `x`, hidden from every pass until `after` is known; made by checkpoint. "
        "With `released`, until the memory of `after` is free.",
        operands=("x", "after"),
        attrs={"region": REQUIRED, "released": False},
        infer=lambda ins, attrs: ins[0],
        numpy=lambda x, after, region, released: x,
        vjp=lambda F, g, out, x, after, region, released: (g, None),
        lower=lambda b, out, x, after, region, released: b.barrier(out, x, after, region, released),
        tags=frozenset({"view", "structural"}),
    ),
)


def register_rows() -> None:
    register(*ROWS)
