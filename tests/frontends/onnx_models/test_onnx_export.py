"""`nova.to_onnx`: programs of Nova run by onnxruntime, and imported again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import nova
from nova import errors
from nova.frontends.onnx.export import elementwise, structure
from nova.frontends.onnx.export.writer import EXPORTS, write_model
from nova.graph.autodiff import expand_composite
from nova.graph.interpret import evaluate
from nova.graph.order import topological

RNG = np.random.default_rng(5)
assert elementwise and structure


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def ints(*shape: int) -> np.ndarray:
    return RNG.integers(-9, 9, shape)


X, Y, P = floats(3, 4), floats(3, 4), np.abs(floats(3, 4)) + 0.1
U = (P / (P.max() * 1.1)).astype("f4")
I, J = ints(3, 4), np.where(ints(3, 4) >= 0, 3, -2)
BITS = RNG.integers(0, 200, (3, 4)).astype("u1")
TRUE = X > 0
INDEX = np.array([[0, 2, 1, 0]])

REDUCTIONS = ("sum", "prod", "max", "min", "mean", "logsumexp", "any", "all", "argmax", "argmin")
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    **{
        name: (getattr(nova, name), (X,))
        for name in (
            *("neg", "square", "abs", "sign", "floor", "ceil", "round", "trunc", "exp", "exp2"),
            *("expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "relu"),
            *("leaky_relu", "elu", "gelu", "sigmoid", "silu", "softplus", "mish", "erf", "detach"),
            *("isnan", "isinf", "isfinite", "logical_not", "softmax", "log_softmax", "rms_norm"),
            *("argsort", "tril", "triu", "layer_norm", "reciprocal", "std", "var", "swiglu"),
        )
    },
    **{n: (getattr(nova, n), (P,)) for n in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")},
    **{n: (getattr(nova, n), (U,)) for n in ("asin", "acos", "atanh")},
    **{
        n: (getattr(nova, n), (X, Y))
        for n in (
            *("add", "sub", "mul", "div", "minimum", "maximum", "eq", "ne", "lt", "le", "gt"),
            *("ge", "mod", "atan2", "logical_and", "logical_or", "logical_xor", "floor_div"),
            *("mse_loss", "mae_loss", "smooth_l1_loss", "kl_div", "hinge_loss"),
        )
    },
    **{f"{n}_all": (getattr(nova, n), (X,)) for n in REDUCTIONS},
    **{f"{n}_rows": (partial(getattr(nova, n), axis=1), (X,)) for n in REDUCTIONS},
    "acosh": (nova.acosh, (P + 1,)),
    "argtopk": (lambda x: nova.argtopk(x, k=2, axis=0, largest=False), (X,)),
    "pow": (nova.pow, (P, Y)),
    "integers": (lambda a, b: (a // b) * 3 - nova.mod(a, b), (I, J)),
    "int_sum": (lambda a: nova.sum(a.cast("i32"), axis=0), (I,)),
    **{
        f"bitwise_{n}": (getattr(nova, f"bitwise_{n}"), (BITS, BITS[::-1].copy()))
        for n in ("and", "or", "xor")
    },
    "bitwise_not": (nova.bitwise_not, (BITS,)),
    "shift_left": (lambda a: nova.bitwise_left_shift(a, nova.full_like(a, 2)), (BITS,)),
    "shift_right": (lambda a: nova.bitwise_right_shift(a, nova.full_like(a, 2)), (BITS,)),
    "bools": (lambda a, b: nova.logical_xor(nova.add(a, b), nova.mul(a, b)), (TRUE, ~TRUE)),
    "floor_int": (nova.floor, (I,)),
    "clamp": (lambda x: nova.clamp(x, min=-0.5, max=0.7), (X,)),
    "clamp_low": (lambda x: nova.clamp(x, min=-0.5), (X,)),
    "where": (nova.where, (TRUE, X, Y)),
    "cast": (lambda x: nova.cast(x, dtype="i32"), (X * 5,)),
    "matmul": (lambda x, y: x @ y.T, (X, Y)),
    "linear": (nova.linear, (X, Y)),
    "reshape": (lambda x: nova.expand(x.reshape(3, 1, 4), (3, 2, 4)), (X,)),
    "permute": (lambda x: nova.permute(x.reshape(3, 2, 2), (2, 0, 1)), (X,)),
    "flip": (lambda x: nova.flip(x, (1,)), (X,)),
    "slice": (lambda x: x[1:, ::2], (X,)),
    "slice_backward": (lambda x: x[::-1, 3:0:-2], (X,)),
    "unslice": (lambda x: nova.unslice(x, shape=(5, 9), starts=(1, 0), steps=(1, 2)), (X,)),
    "pad": (lambda x: nova.pad(x, (1, 0), (0, 2), value=7), (X,)),
    "join": (lambda x, y: nova.concat([x, y], axis=1), (X, Y)),
    "take": (lambda x, i: nova.take(x, i, axis=1), (X, INDEX)),
    "gather": (lambda x, i: nova.gather(x, i, axis=0), (X, INDEX)),
    "embedding": (nova.embedding, (X, INDEX)),
    "scatter": (lambda x, i, u: nova.scatter(x, i, u, axis=0), (X, INDEX, Y[:1])),
    "scatter_add": (lambda x, i, u: nova.scatter_add(x, i, u, axis=0), (X, INDEX, Y[:1])),
    "scatter_max": (lambda x, i, u: nova.scatter_max(x, i, u, axis=0), (X, INDEX, Y[:1])),
    "scatter_min": (lambda x, i, u: nova.scatter_min(x, i, u, axis=0), (X, INDEX, Y[:1])),
    "index_add": (lambda x, i, u: nova.index_add(x, i, u, axis=0), (X, np.array([2, 2]), Y[:2])),
    "one_hot": (lambda i: nova.one_hot(i, num_classes=3, dtype="f32"), (INDEX,)),
    "arange": (lambda x: x + nova.arange(4, dtype="f32"), (X,)),
    "cumsum": (lambda x: nova.cumsum(x, axis=1), (X,)),
    "attention": (lambda x: nova.scaled_dot_product_attention(x, x, x), (floats(1, 2, 5, 8),)),
    "overlap_add": (
        lambda x, w: nova.conv_transpose2d(x, w, stride=2),
        (floats(1, 2, 4, 4), floats(2, 3, 3, 3)),
    ),
    "windows": (lambda x: nova.unfold(x, 2, stride=2), (floats(1, 2, 6, 6),)),
    "depthwise": (
        lambda x, w: nova.conv2d(x, w, groups=2),
        (floats(1, 2, 6, 6), floats(2, 1, 3, 3)),
    ),
    "cross_entropy": (nova.cross_entropy, (floats(4, 3), np.array([0, 2, 1, 1]))),
    "dot": (nova.dot, (X[0], Y[0])),
    "outer": (nova.outer, (X[0], Y[0])),
    "bce": (nova.bce_with_logits_loss, (X, U)),
}


def export(function: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> tuple[Any, list[Any]]:
    """The model of a function, and the results of the interpreter."""
    tensors = [nova.tensor(a, name=f"x{i}") for i, a in enumerate(arrays)]
    out = function(*tensors)
    outputs = list(out) if isinstance(out, tuple) else [out]
    names = [(f"x{i}", t) for i, t in enumerate(tensors)]
    return write_model(names, [], outputs), evaluate(outputs)


def run(model: Any, arrays: tuple[np.ndarray, ...]) -> list[Any]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feed = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
    return list(session.run(None, feed))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_exported_ops_agree_with_onnxruntime(name: str) -> None:
    function, arrays = FUNCTIONS[name]
    model, expected = export(function, arrays)
    for result, reference in zip(run(model, arrays), expected, strict=True):
        assert result.dtype == reference.dtype
        np.testing.assert_allclose(result, reference, rtol=2e-4, atol=1e-5)


def test_every_export_row_is_tested() -> None:
    ops = set()
    for function, arrays in FUNCTIONS.values():
        tensors = [nova.tensor(a) for a in arrays]
        out = function(*tensors)
        ops |= {t.op.name for t in _nodes(out) if t.op is not None}
    assert set(EXPORTS) - ops <= {"barrier", "uniform"}


def _nodes(out: Any) -> list[Any]:
    nodes, pending = [], list(out) if isinstance(out, tuple) else [out]
    while pending:
        order = topological([pending.pop()])
        nodes += order
        pending += [
            expand_composite(t, list(t.inputs))
            for t in order
            if t.op is not None and t.op.compose is not None and t.op.name not in EXPORTS
        ]
    return nodes


def test_convolutions_and_pools_are_single_nodes() -> None:
    x, w = floats(2, 4, 9, 9), floats(6, 2, 3, 3)
    model, expected = export(
        lambda x, w: nova.max_pool2d(
            nova.conv2d(x, w, padding=1, stride=2, groups=2), 2, padding=1
        ),
        (x, w),
    )
    assert [node.op_type for node in model.graph.node] == ["Conv", "MaxPool", "Identity"]
    np.testing.assert_allclose(run(model, (x, w))[0], expected[0], rtol=1e-4, atol=1e-5)


def test_relu6_is_one_node() -> None:
    x = np.array([-1.0, 0.0, 2.5, 6.0, 7.0], "f4")
    model, _ = export(nova.relu6, (x,))
    assert [node.op_type for node in model.graph.node] == ["Clip", "Identity"]
    np.testing.assert_array_equal(run(model, (x,))[0], np.clip(x, 0, 6))


def test_a_program_makes_the_round_trip(tmp_path: Any) -> None:
    x = nova.tensor(floats(2, 3, 8, 8), name="image")
    w = nova.tensor(floats(4, 3, 3, 3), name="kernel")
    y = nova.softmax(nova.relu(nova.conv2d(x, w, padding=1)).reshape(2, -1))
    program = nova.compile([y, x], inputs=[x], params=[w])
    model = nova.to_onnx(program, tmp_path / "model.onnx")
    assert [i.name for i in model.graph.input] == ["image"]
    assert "kernel" in [i.name for i in model.graph.initializer]
    again = nova.from_onnx(tmp_path / "model.onnx")
    for a, b in zip(again(x.data), program.run([x.data]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_what_onnx_cannot_express_is_refused() -> None:
    x = nova.tensor(floats(5), name="x")
    for out, message in (
        (nova.linear_recurrence(x, x, axis=0), "linear_recurrence has no form in ONNX"),
        (x + nova.uniform(nova.tensor(3), shape=(5,)), "uniform: ONNX leaves the generator"),
    ):
        with pytest.raises(errors.UnsupportedOpError, match=message):
            nova.to_onnx(nova.compile(out, inputs=[x]))
    step = nova.compile([nova.sum(x)], params=[x], updates={x: x * 2})
    with pytest.raises(errors.UnsupportedOpError, match="updates its params"):
        nova.to_onnx(step)
    with pytest.raises(errors.OptionTypeError, match="a int is not a compiled program"):
        nova.to_onnx(3)


def test_symbolic_sizes_are_refused() -> None:
    x = nova.input((nova.dim("n"), 3), name="x")
    program = nova.compile(nova.relu(x), inputs=[x])
    with pytest.raises(errors.UnsupportedOpError, match="'x' has a symbolic size: f32\\[n,3\\]"):
        nova.to_onnx(program)
