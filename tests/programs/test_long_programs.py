"""Programs of thousands of ops: kernels have a bounded size, and the code grows as the program."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nova
from nova.api.compiled import Compiled

_BODY = re.compile(r"func\.func private @kernel_\d+.*?\n  \}", re.DOTALL)
_WORK = re.compile(r"= (?:arith|math)\.(?!constant)")


def chain(length: int, x: nova.Tensor) -> nova.Tensor:
    for _ in range(length):
        x = nova.sin(x) * 1.01
    return x


def compile_chain(length: int, target: str = "cpu", size: int = 4096) -> Compiled:
    x = nova.tensor(np.linspace(0, 1, size, dtype=np.float32), name="x")
    return nova.compile(chain(length, x), inputs=[x], target=target)


def body_sizes(program: Compiled) -> list[int]:
    """How many scalar ops each kernel has."""
    return [len(_WORK.findall(body)) for body in _BODY.findall(program.stages["kernels"])]


def call_count(program: Compiled) -> int:
    return len(re.findall(r"call @kernel_\d+\(", program.stages["kernels"]))


def test_kernels_of_a_chain_have_a_bounded_size_and_are_shared() -> None:
    short, long = compile_chain(200), compile_chain(800)
    assert max(body_sizes(long)) <= 200
    assert call_count(long) >= 8
    # The same few kernels, called more often: code does not grow with the length.
    assert len(body_sizes(long)) <= 4
    assert long.metrics["object"]["bytes"] < 2 * short.metrics["object"]["bytes"]
    x = np.linspace(0, 1, 4096, dtype=np.float32)
    expected = x.astype(np.float64)
    for _ in range(800):
        expected = np.sin(expected) * 1.01
    np.testing.assert_allclose(long.run([x]), expected, rtol=1e-4)


def test_a_program_of_ten_thousand_ops_compiles() -> None:
    program = compile_chain(5_000, size=64)
    assert len(program.plan.steps) == 10_000
    x = np.linspace(0, 1, 64, dtype=np.float32)
    expected = x.astype(np.float64)
    for _ in range(5_000):
        expected = np.sin(expected) * 1.01
    np.testing.assert_allclose(program.run([x]), expected, rtol=1e-3)


def test_ordinary_programs_are_fused_as_before() -> None:
    x = nova.tensor(np.ones((64, 32), np.float32), name="x")
    y = x
    for _ in range(6):
        y = nova.gelu(y) * 0.5 + nova.tanh(y)
    program = nova.compile(y, inputs=[x])
    assert call_count(program) == 1


def test_many_operands_of_a_sum_are_read_by_several_kernels() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(512).astype(np.float32) for _ in range(600)]
    tensors = [nova.tensor(a, name=f"x{i}") for i, a in enumerate(arrays)]
    total = tensors[0]
    for single in tensors[1:]:
        total = total + single
    program = nova.compile(total, inputs=tensors)
    assert call_count(program) > 1
    assert max(body_sizes(program)) < 450
    np.testing.assert_allclose(
        program.run(arrays), np.sum(np.asarray(arrays, np.float64), axis=0), rtol=0, atol=1e-3
    )


def test_a_deep_chain_has_gradients() -> None:
    layers = 150
    x = np.linspace(0.1, 1, 64, dtype=np.float32)
    w = np.full(64, 1.01, np.float32)
    tensor_x = nova.tensor(x, name="x")
    tensor_w = nova.tensor(w, requires_grad=True, name="w")
    y = tensor_x
    for _ in range(layers):
        y = nova.tanh(y * tensor_w)
    program = nova.compile(y.sum(), inputs=[tensor_x], params=[tensor_w], include_backward=True)
    _, gradient = program.run([x], [w])
    values = [x.astype(np.float64)]
    for _ in range(layers):
        values.append(np.tanh(values[-1] * 1.01))
    flow, expected = np.ones(64), np.zeros(64)
    for before, after in zip(reversed(values[:-1]), reversed(values[1:]), strict=True):
        inner = flow * (1 - after**2)
        expected += inner * before
        flow = inner * w
    np.testing.assert_allclose(gradient, expected, rtol=2e-3)


def test_math_functions_that_a_unit_has_often_are_called() -> None:
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    tensor = nova.tensor(x, name="x")
    factors = [0.1 + 0.01 * i for i in range(260)]
    program = nova.compile([nova.sin(tensor * f) for f in factors], inputs=[tensor])
    functions = re.findall(r"llvm\.func internal @(math_sin\w*)", program.stages["llvm"])
    assert functions and len(functions) == len(set(functions))
    for factor, result in zip(factors, program.run([x]), strict=True):
        np.testing.assert_allclose(result, np.sin(x * np.float32(factor)), rtol=0, atol=1e-6)
    few = nova.compile([nova.sin(tensor * f) for f in factors[:8]], inputs=[tensor])
    assert "@math_" not in few.stages["llvm"]


def test_device_code_of_a_chain_is_bounded() -> None:
    program = compile_chain(150, target="cuda:sm_80")
    assert max(body_sizes(program)) <= 200
    kernels = re.findall(r"\.entry (\w+)", program.stages["ptx"])
    assert 1 < len(kernels) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sin", "wide", "add", "reshape", "slice", "concat", "reduce"])
def test_thousands_of_ops_of_a_kind(mode: str) -> None:
    x = np.linspace(0, 1, 4096, dtype=np.float32)
    tensor = nova.tensor(x, name="x")
    y, expected = tensor, x.astype(np.float64)
    outputs: list[nova.Tensor] = []
    if mode == "sin":
        y = chain(2_000, tensor)
        for _ in range(2_000):
            expected = np.sin(expected) * 1.01
    elif mode == "wide":
        outputs = [nova.sin(tensor * (i / 5_000)) for i in range(5_000)]
        y, expected = outputs[-1], np.sin(x * 4_999 / 5_000)
    elif mode == "add":
        for _ in range(4_000):
            y = y + tensor
        expected = expected * 4_001
    elif mode == "reshape":
        for _ in range(2_000):
            y = y.reshape(64, 64).transpose().reshape(4096)
    elif mode == "slice":
        for _ in range(4_000):
            y = y[1:]
        expected = expected[4_000:]
    elif mode == "concat":
        y = tensor[:4]
        for _ in range(300):
            y = nova.concat([y, tensor[:4]])
        expected = np.tile(expected[:4], 301)
    else:
        for _ in range(2_000):
            y = y - y.mean() * 0.5
        for _ in range(2_000):
            expected = expected - expected.mean() * 0.5
    program = nova.compile([*outputs[:-1], y], inputs=[tensor])
    results = program.run([x])
    last = results[-1] if outputs else results
    np.testing.assert_allclose(
        np.asarray(last).reshape(expected.shape), expected, rtol=1e-3, atol=1e-4
    )
