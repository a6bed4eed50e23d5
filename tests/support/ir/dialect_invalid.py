"""Ill-formed uses of every op of the nova dialect, and the text tests that are made from them.

Every op is tried with too few operands and with a wrong result; `MISTAKES` adds what its own rule
refuses. Run as a program, this file writes `tests/filecheck/dialect/invalid/FAMILY.mlir`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from dialect_samples import FOLDER, SAMPLES, function_text, sample_module

from nova.ir.context import make_context
from nova.ir.types import nova_type
from nova.ops import OPS


class Mistake(NamedTuple):
    """An op with MLIR types and attributes as text, and what the verifier must say of it."""

    op: str
    operands: str
    result: str
    says: str
    attributes: str = ""


def _each(names: str, *mistake: str) -> list[Mistake]:
    return [Mistake(name, *mistake) for name in names.split()]


M = Mistake
_BROADCAST = "shapes (2, 3) and (2,) do not broadcast: axis -1 is 3 and 2"
_MIXED = "operand types are (f32, f64), must be (f64, f64)"
_INTEGERS = "operand types are (i32), must be (f32)"

_TEXT = "the text of a kernel"
_SIZES = "sizes = array<i64: 4>"
_VECTOR = f'dtypes = "f32", ranks = array<i64: 1>, result = 0 : i64, {_SIZES}'
_SECOND = _VECTOR.replace("result = 0", "result = 2")
_RANKS = _VECTOR.replace("ranks = array<i64: 1>", "ranks = array<i64: 2>")

_TRANSFORM = "sign = 1 : i64, scale = 1.0 : f64, columns = false"

MISTAKES: tuple[Mistake, ...] = (
    # Transforms.
    M("dft", "8x3xf32", "8x3xf32", "f32[8,3] has no last axis of two parts", _TRANSFORM),
    M(
        *("dft", "8x2xf32", "8x2xf32", "sign is -1 or 1, not 2"),
        attributes=_TRANSFORM.replace("sign = 1", "sign = 2"),
    ),
    M(
        *("irdft", "9x2xf32", "14xf32", "f32[9,2] are not the 8 terms of 14 elements"),
        attributes="n = 14 : i64, scale = 1.0 : f64",
    ),
    # Types that are not Nova's.
    M("add", "2x3xf32 2x3xi32", "2x3xf32", "operand types are (f32, i32), must be (f32, f32)"),
    M("neg", "?x3xf32", "2x3xf32", "tensor<?x3xf32> has no static shape"),
    M("neg", "*xf32", "2x3xf32", "tensor<*xf32> has no static shape"),
    M("neg", "2xi17", "2xi17", "element type i17 is not one of Nova's"),
    M("neg", "2xui17", "2xui17", "element type ui17 is not one of Nova's"),
    M("neg", "2xf32", "2xf32", "has no attribute `axis`", "axis = 0 : i64"),
    *_each(
        "add sub mul div floor_div mod pow minimum maximum",
        "2x3xf32 2xf32",
        "2x3xf32",
        _BROADCAST,
    ),
    M("mul", "2xf32 2xf64", "2xf64", _MIXED),
    M("clamp", "2xf32", "2xf32", "min must be a number, not 'low'", 'min = "low"'),
    *_each(
        "eq ne lt le gt ge logical_and logical_or logical_xor",
        "2x3xf32 2xf32",
        "2x3xi1",
        _BROADCAST,
    ),
    M("lt", "2xf32 2xf64", "2xi1", _MIXED),
    M("lt", "2xf32 2xf32", "2xf32", "result type is f32[2], must be bool[2]"),
    M(
        "where",
        "2xf32 2xf32 2xf32",
        "2xf32",
        "operand types are (f32, f32, f32), must be (bool, f32, f32)",
    ),
    M(
        "where",
        "2xi1 3xf32 3xf32",
        "3xf32",
        "shapes (2,) and (3,) and (3,) do not broadcast: axis -1 is 2 and 3",
    ),
    *_each(
        "cumsum logcumsumexp argcummax argcummin",
        "2xf32",
        "2xf32",
        "axis 1 is out of range",
        "axis = 1 : i64",
    ),
    M(
        "linear_recurrence",
        "2xf32 3xf32",
        "3xf32",
        "factors (2,) and terms (3,) differ",
        "axis = 0 : i64",
    ),
    M(
        "windows",
        "4xf32",
        "9x1xf32",
        "windows of (9,) do not fit in (4,)",
        "kernel = array<i64: 9>",
    ),
    M("windows", "4xf32", "2x3xf32", "kernel (0,): not 1 positive sizes", "kernel = array<i64: 0>"),
    M(
        "overlap_add",
        "2x4xf32",
        "3xf32",
        "4 windows of 2 taps do not fit in an axis of 3",
        "size = array<i64: 3>",
    ),
    M("overlap_add", "4xf32", "3xf32", "1 sizes for windows (4,)", "size = array<i64: 3>"),
    M(
        "conv_channels_last",
        "2x9x4xf32 5x3x3xf32",
        "2x7x5xf32",
        "x has 4 channels, the weight 3",
    ),
    M(
        "conv_channels_last",
        "2x2x4xf32 5x3x4xf32",
        "2x1x5xf32",
        "windows of (3,) do not fit in (2,)",
    ),
    M(
        "conv_channels_last",
        "2x4xf32 5x4xf32",
        "2x5xf32",
        "x (2, 4) and weight (5, 4): not both (.., positions, channels)",
    ),
    M("conv_channels_last", "2x9x4xf32 5x3x4xf64", "2x7x5xf32", _MIXED),
    M(
        "conv_channels_last_weight_gradient",
        "2x9x4xf32 2x6x5xf32",
        "5x3x4xf32",
        "g (2, 6, 5): there are (2, 7) windows",
        "kernel = array<i64: 3>",
    ),
    M("argsort", "2xf32", "2xi64", "descending is True or False", "descending = 1 : i64"),
    *_each(
        "scatter scatter_max scatter_min",
        "4xf32 2xi64 3xf32",
        "4xf32",
        "index (2,) and updates (3,) for x (4,)",
        "axis = 0 : i64",
    ),
    *_each("bitwise_and bitwise_or bitwise_xor", "2xf32 2xf32", "2xf32", "bits of f32"),
    M("bitwise_not", "2xf32", "2xf32", "bits of f32"),
    *_each("bitwise_left_shift bitwise_right_shift", "2xi1 2xi1", "2xi1", "shifts of bool"),
    M("argtopk", "2xf32", "3xi64", "the first 3 of an axis of 2", "k = 3 : i64"),
    M("dequantize", "2x34xui8", "2x32xf32", "format 'q9'", 'format = "q9"'),
    M(
        *("quantized_matmul", "64xf32 2x34xui8", "2xf32", "x (64,) with blocks of 32 elements"),
        'format = "q8_0"',
    ),
    M("searchsorted", "2x3xf32 4xf32", "4xi64", "sorted (2, 3) for values (4,)"),
    M("cast", "2xf32", "2xf64", "needs the attribute `dtype`"),
    M("bitcast", "2xf32", "2xf64", "the bits of f32 are not a f64", "dtype = f64"),
    M("cast", "2xf32", "2xf64", "1 is not an element type of Nova", "dtype = 1 : i64"),
    M("cast", "2xf32", "2xf64", "result type is f64[2], must be f16[2]", "dtype = f16"),
    *_each(
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt erf erfc sin cos tan asin acos atan "
        "sinh cosh tanh asinh acosh atanh leaky_relu elu gelu sigmoid silu softplus mish",
        "2xi32",
        "2xf32",
        _INTEGERS,
    ),
    M("atan2", "2x3xf64 2xf64", "2x3xf64", _BROADCAST),
    M("gelu", "2xf32", "2xf32", "approximate='maybe' is unknown", 'approximate = "maybe"'),
    M("elu", "2xf32", "2xf32", "alpha must be a number", 'alpha = "big"'),
    M(
        "swiglu",
        "2x3xf32",
        "2x3xf32",
        "one operand is halved along its last axis, and (2, 3) has no even one",
    ),
    *_each(
        "sum prod max min mean var std logsumexp argmax argmin",
        "2x3xf32",
        "2xf32",
        "axis 2 is out of range for a tensor of rank 2",
        "axis = 2 : i64",
    ),
    *_each(
        "any all",
        "2x3xi1",
        "2xi1",
        "axis -3 is out of range for a tensor of rank 2",
        "axis = -3 : i64",
    ),
    M("sum", "2x3xf32", "f32", "an axis is named twice in (0, 0)", "axis = array<i64: 0, 0>"),
    M("sum", "2x3xf32", "f32", "axis must be an int, not 'rows'", 'axis = "rows"'),
    M("sum", "2x3xf32", "f32", "attribute [1] has a type that nova ops do not have", "axis = [1]"),
    M(
        "sum",
        "2x3xf32",
        "2xf32",
        "result type is f32[2], must be f32[2,1]",
        "axis = 1 : i64, keepdims = true",
    ),
    M("max", "0x3xf32", "f32", "no elements to choose from: shape (0, 3) over axes (0, 1)"),
    M(
        "argmax",
        "2x3xf32",
        "2xi64",
        "axis 2 is out of range for a tensor of rank 2",
        "axis = 2 : i64",
    ),
    M("matmul", "2x3xf32 4x5xf32", "2x5xf32", "(2, 3) @ (4, 5)"),
    M("matmul", "2x3xf32 3x5xf64", "2x5xf64", _MIXED),
    M(
        "matmul",
        "2x2x3xf32 3x3x5xf32",
        "2x2x5xf32",
        "shapes (2,) and (3,) do not broadcast: axis -1 is 2 and 3",
    ),
    M(
        "wide_matmul",
        "2x3xf32 3x5xi8",
        "2x5xf32",
        "operands are f32 and i8: one holds floats, the other integers",
        "dtype = f32",
    ),
    M("linear", "2x3xf32 4x5xf32", "2x4xf32", "x (2, 3) with weight (4, 5)"),
    M("dot", "3xf32 4xf32", "f32", "wants two vectors of one length, got (3,) and (4,)"),
    M("outer", "3x3xf32 4xf32", "3x4xf32", "wants two vectors, got (3, 3) and (4,)"),
    M("reshape", "2x3xf32", "5xf32", "(2, 3) has 6 elements, (5,) has 5", "shape = array<i64: 5>"),
    M("reshape", "2x3xf32", "6xf32", "needs the attribute `shape`"),
    M(
        "permute",
        "2x3xf32",
        "3x2xf32",
        "axes (1, 1) do not name each of 2 axes once",
        "axes = array<i64: 1, 1>",
    ),
    M("permute", "2x3xf32", "3x2xf32", "axes must be ints, not 'T'", 'axes = "T"'),
    M(
        "expand",
        "2x3xf32",
        "4x3xf32",
        "shapes (2, 3) and (4, 3) do not broadcast: axis -2 is 2 and 4",
        "shape = array<i64: 4, 3>",
    ),
    M("flip", "2x3xf32", "2x3xf32", "axis 5 is out of range", "axes = array<i64: 5>"),
    M("slice", "4xf32", "2xf32", "needs the attribute `stops`", "starts = array<i64: 1>"),
    M(
        "slice",
        "4xf32",
        "2xf32",
        "a step of 0",
        "starts = array<i64: 1>, stops = array<i64: 3>, steps = array<i64: 0>",
    ),
    M(
        "unslice",
        "4xf32",
        "6xf32",
        "needs the attribute `steps`",
        "shape = array<i64: 6>, starts = array<i64: 1>",
    ),
    M(
        "pad",
        "3xf32",
        "4xf32",
        "pad widths (1, 1) and (0, 0) for rank 1",
        "low = array<i64: 1, 1>, high = array<i64: 0, 0>",
    ),
    M("tril", "3xf32", "3xf32", "a triangle of shape (3,): it takes two axes or more"),
    M("triu", "3x3xf32", "3x3xf32", "k must be an int, not 1.5", "k = 1.5 : f64"),
    M(
        "gather",
        "4x3xf32 2x3xi32",
        "2x3xf32",
        "operand types are (f32, i32), must be (f32, i64)",
        "axis = 0 : i64",
    ),
    M("gather", "4x3xf32 2xi64", "2xf32", "index (2,) for x (4, 3) along axis 0", "axis = 0 : i64"),
    M(
        "dynamic_slice",
        "4x3xf32 2xi64",
        "5x1xf32",
        "a slice of shape (5, 1) does not fit into (4, 3)",
        "slice_sizes = array<i64: 5, 1>",
    ),
    M(
        "dynamic_update_slice",
        "4x3xf32 2x1xf32 3xi64",
        "4x3xf32",
        "(3,) start positions for a tensor of rank 2",
    ),
    M("take", "4x3xf32 2xf32", "2x3xf32", "index must hold integers, not f32", "axis = 0 : i64"),
    M(
        "take",
        "4x3xf32 2xi64",
        "2x3xf32",
        "axis 2 is out of range for a tensor of rank 2",
        "axis = 2 : i64",
    ),
    M("embedding", "4xf32 2xi64", "2xf32", "the weight is (rows, features), not (4,)"),
    M(
        "scatter_add",
        "4xf32 6xi64 5xf32",
        "4xf32",
        "updates (5,) for an index of shape (6,)",
        "axis = 0 : i64",
    ),
    M(
        "index_add",
        "4xf32 6xi64 5xf32",
        "4xf32",
        "updates (5,): 6 indices want (6,)",
        "axis = 0 : i64",
    ),
    M("clamp_index", "4xi64", "4xi64", "needs the attribute `axis_size`"),
    M("clamp_index", "4xi64", "4xi64", "axis_size must be at least 1", "axis_size = 0 : i64"),
    M("one_hot", "4xi64", "4x3xi64", "needs the attribute `num_classes`"),
    M("one_hot", "4xi64", "4x3xi64", "num_classes", "num_classes = -3 : i64"),
    M("extent", "", "i64", "needs the attribute `value`"),
    M("extent", "", "i64", "value must be an int, not 'B'", 'value = "B"'),
    M("arange", "", "4xi64", "needs the attribute `start`"),
    M(
        "arange",
        "",
        "4xi64",
        "no finite range: start, stop, step = [0, 4, 0]",
        "start = 0 : i64, stop = 4 : i64, step = 0 : i64",
    ),
    M("full", "", "4xf32", "needs the attribute `value`", "shape = array<i64: 4>"),
    M("full", "", "4xf32", "shape", "shape = array<i64: -4>, value = 1.0 : f64"),
    M("uniform", "f32", "4xf32", "the seed must hold integers, not f32", "shape = array<i64: 4>"),
    M("normal", "i64", "4xf32", "needs the attribute `shape`"),
    M(
        "softmax",
        "2x4xf32",
        "2x4xf32",
        "axis 2 is out of range for a tensor of rank 2",
        "axis = 2 : i64",
    ),
    M("log_softmax", "2x4xi64", "2x4xf32", "operand types are (i64), must be (f32)"),
    M(
        "layer_norm",
        "2x4xf32",
        "2x4xf32",
        "ndim",
        "ndim = 3 : i64, operandSegmentSizes = array<i32: 1, 0, 0>",
    ),
    M(
        "layer_norm",
        "2x4xf32 4xf32",
        "2x4xf32",
        "operandSegmentSizes is array<i32: 1, 0, 1>, must be 2 ones, then zeros",
        "operandSegmentSizes = array<i32: 1, 0, 1>",
    ),
    M("rms_norm", "2x4xf32 3xf32", "2x4xf32", "weight or bias (3,): the normalized axes are (4,)"),
    M(
        "scaled_dot_product_attention",
        "3x4xf32 3x5xf32 3x4xf32",
        "3x4xf32",
        "q (3, 4), k (3, 5), v (3, 4)",
    ),
    M("attention_logsumexp", "3x4xf32 3x5xf32", "3xf32", "q (3, 4), k (3, 5)"),
    M(
        "attention_logsumexp",
        "3x4xf32 3x4xf32 2x3xf32",
        "3xf32",
        "shapes (3, 3) and (2, 3) do not broadcast: axis -2 is 3 and 2",
    ),
    M(
        "attention_gradient",
        "3x4xf32 3x4xf32 3x4xf32 3x4xf32 3xf32 3xf32",
        "3x4xf32",
        "of is 'q', 'k' or 'v', not 'mask'",
        'of = "mask"',
    ),
    M(
        "attention_gradient",
        "2x4xf32 3x4xf32 3x4xf32 3x4xf32 3xf32 2xf32",
        "3x4xf32",
        "g (2, 4) is not a gradient of a result (3, 4)",
    ),
    M(
        "attention_gradient",
        "3x4xf32 3x4xf32 3x4xf32 3x4xf32 2xf32 3xf32",
        "3x4xf32",
        "logsumexp (2,), delta (3,)",
    ),
    M("kept_weights", "2xi64", "3x4xi1", "the seed is one number", "shape = array<i64: 3, 4>"),
    M(
        "kept_weights",
        "i64",
        "4xi1",
        "shape (4,) is not (..., rows, keys)",
        "shape = array<i64: 4>",
    ),
    M(
        "kept_weights",
        "i64",
        "3x4xi1",
        "dropout must be in 0..1, not -0.5",
        "shape = array<i64: 3, 4>, dropout = -0.5",
    ),
    M(
        "dropout_attention",
        "3x4xf32 3x4xf32 3x4xf32 2xi64",
        "3x4xf32",
        "the seed is one number, not of shape (2,)",
    ),
    M(
        "dropout_attention",
        "3x4xf32 3x4xf32 3x4xf32 i64",
        "3x4xf32",
        "dropout must be in 0..1, not 1.5",
        "dropout = 1.5",
    ),
    M(
        "dropout_attention_gradient",
        "3x4xf32 3x4xf32 3x4xf32 3x4xf32 3xf32 3xf32 f32",
        "3x4xf32",
        "the seed must hold integers, not f32",
    ),
    M(
        "segment_attention",
        "3x4xf32 3x4xf32 3x4xf32 2xi32 3xi32 3xi32 3xi32 i64",
        "3x4xf32",
        "q_segment (2,) does not broadcast to (3,)",
    ),
    M(
        "segment_attention",
        "3x4xf32 3x4xf32 3x4xf32 3xi32 3xi32 3xf32 3xi32 i64",
        "3x4xf32",
        "segments of f32",
    ),
    M(
        "segment_attention_logsumexp",
        "3x4xf32 2x4xf32 3xi32 3xi32 3xi32 3xi32",
        "3xf32",
        "k_segment (3,) does not broadcast to (2,)",
    ),
    M(
        "segment_attention_gradient",
        "3x4xf32 3x4xf32 2x4xf32 2x4xf32 3xf32 3xf32 3xi32 2xi32 3xi32 3xi32 3xi32 2xi32 i64",
        "3x4xf32",
        "row_begin (3,) does not broadcast to (2,)",
    ),
    *_each(
        "mse_loss mae_loss smooth_l1_loss bce_loss bce_with_logits_loss kl_div hinge_loss",
        "2xf32 2xf32",
        "f32",
        "reduction",
        'reduction = "median"',
    ),
    M("mse_loss", "2x3xf32 2xf32", "f32", _BROADCAST),
    M("cross_entropy", "2x3xf32 4xi64", "f32", "target (4,) for scores (2, 3): it should be (2,)"),
    M("cross_entropy", "2x3xf32 2xi64", "f32", "reduction", 'reduction = "median"'),
    M("nll_loss", "2x3xf32 2xf32", "f32", "a target of f32"),
    M("barrier", "4xf32 f32", "4xf32", "needs the attribute `region`"),
    M("loop_kernel", "4xf32", "4xf32", f"{_TEXT} does not parse", f'source = "def", {_VECTOR}'),
    M("loop_kernel", "4xf32", "4xf32", f"{_TEXT} is one function", f'source = "3", {_VECTOR}'),
    M("mlir_kernel", "4xf32", "4xf32", "there is no result 2 of 1", f'source = "", {_SECOND}'),
    M("mlir_kernel", "4xf32", "4xf32", "ranks (2,), sizes (4,)", f'source = "", {_RANKS}'),
    M("constant", "", "4xf32", "needs a dense `value` of its result type"),
    M("constant", "", "4xf32", "needs a dense `value` of its result type", "value = 1.0 : f32"),
    M(
        "constant",
        "",
        "4xf32",
        "needs a dense `value` of its result type",
        "value = dense<1.0> : tensor<3xf32>",
    ),
)


def mistake_text(mistake: Mistake, name: str) -> str:
    """The function that holds a mistake, with what is expected of it."""
    types = [f"tensor<{t}>" for t in mistake.operands.split()]
    names = [f"%arg{i}" for i in range(len(types))]
    formal = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    attributes = f" {{{mistake.attributes}}}" if mistake.attributes else ""
    return (
        f"func.func @{name}({formal}) {{\n"
        f"  // expected-error @+1 {{{{'nova.{mistake.op}' op {mistake.says}}}}}\n"
        f'  %0 = "nova.{mistake.op}"({", ".join(names)}){attributes} : '
        f"({', '.join(types)}) -> tensor<{mistake.result}>\n"
        f"  return\n}}\n"
    )


def general_texts(family: str) -> Iterator[str]:
    """Each op of a family without operands, and with another result than its rule gives."""
    context = make_context()
    observed = set()
    for sample in SAMPLES[family].values():
        if sample.op in observed:
            continue
        observed.add(sample.op)
        module = sample_module(sample, context)
        text = function_text(module, f"{sample.op}_result")
        line = next(s for s in text.splitlines() if '"nova.' in s)
        right = line.rpartition("-> ")[2]
        wrong = "tensor<7x7xbf16>"
        row = OPS[sample.op]
        expected = module.body.operations[0].entry_block.operations[0].results[0].type
        yield (
            re.sub(r"\) -> tensor<\S+> \{", ") {", text.splitlines()[0])
            + f"\n  // expected-error @+1 {{{{'nova.{sample.op}' op result type is bf16[7,7], "
            f"must be {nova_type(expected)}}}}}\n"
            + line.removesuffix(right)
            + f"{wrong}\n  return\n}}\n"
        )
        if row.min_operands:
            attributes = re.search(r'"\([^)]*\)( \{.*\})? : ', line)
            inputs = (attributes[1] or "") if attributes else ""
            zeros = ", ".join("0" for _ in row.operands)
            inputs = re.sub(r"(?<=Sizes = array<i32: )[^>]*", zeros, inputs)
            accepts = f"takes ({', '.join(row.operands)}), has 0 operands"
            yield (
                f"func.func @{sample.op}_operands() {{\n"
                f"  // expected-error @+1 {{{{'nova.{sample.op}' op {accepts}}}}}\n"
                f'  %0 = "nova.{sample.op}"(){inputs} : () -> {right}\n  return\n}}\n'
            )


def family_text(family: str) -> str:
    """The test file of one family."""
    ops = [s.op for s in SAMPLES[family].values()] + ["constant"] * (family == "structural")
    parts = list(general_texts(family))
    count: dict[str, int] = {}
    for mistake in MISTAKES:
        if mistake.op in ops:
            count[mistake.op] = count.get(mistake.op, 0) + 1
            parts.append(mistake_text(mistake, f"{mistake.op}_{count[mistake.op]}"))
    head = "// RUN: %nova-opt %s --split-input-file --verify-diagnostics\n\n"
    return head + "\n// -----\n\n".join(parts)


def main() -> int:
    """Write every negative test."""
    for family in SAMPLES:
        (FOLDER / "invalid" / f"{family}.mlir").write_text(family_text(family))
    return 0


if __name__ == "__main__":
    sys.exit(main())
