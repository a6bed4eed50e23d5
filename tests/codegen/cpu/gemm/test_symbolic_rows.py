"""GEMMs with a symbolic number of rows and an epilogue: few rows and many, by the same kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from processors import runnable

import nova
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.blocking import choose_tiling, tiling_of
from nova.core.targets import parse_target

SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 64, 65, 257, 600)


@pytest.mark.parametrize("target", runnable("cpu", "x86_64-v3", "x86_64"))
def test_epilogues_of_few_and_many_rows(target: str) -> None:
    rows = nova.dim("B", min=0, max=8192)
    inputs = [nova.input(shape) for shape in ((rows, 256), (256, 640), (640,))]
    x, w, b = inputs
    program = nova.compile(nova.gelu(x @ w + b), inputs=inputs, target=target)
    random = np.random.default_rng(0)
    weights, bias = (random.standard_normal(s).astype("f4") / 8 for s in ((256, 640), (640,)))
    for size in SIZES:
        values = random.standard_normal((size, 256)).astype("f4")
        linear = torch.from_numpy(values) @ torch.from_numpy(weights) + torch.from_numpy(bias)
        expected = torch.nn.functional.gelu(linear).numpy()
        result = program(values, weights, bias)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4, err_msg=str(size))


@pytest.mark.parametrize(
    ("target", "dtype"),
    [("cpu", "f8"), *((target, "f4") for target in runnable("cpu", "x86_64-v3", "x86_64"))],
)
def test_every_small_number_of_rows(target: str, dtype: str) -> None:
    rows, type_ = nova.dim("B", min=0, max=8192), {"f4": nova.f32, "f8": nova.f64}[dtype]
    shapes = (rows, 300), (300, 528), (rows, 528)
    x, w, y = (nova.input(shape, dtype=type_) for shape in shapes)
    outputs = x @ w, nova.transpose(y) @ x + 1, y + x @ w
    program = nova.compile(outputs, inputs=[x, w, y], target=target)
    random = np.random.default_rng(1)
    weights = random.standard_normal((300, 528)).astype(dtype)
    for size in (*range(20), 95, 96, 97):
        values = random.standard_normal((size, 300)).astype(dtype)
        more = random.standard_normal((size, 528)).astype(dtype)
        tensors = [torch.from_numpy(a) for a in (values, weights, more)]
        product = tensors[0] @ tensors[1]
        expected = product, tensors[2].T @ tensors[0] + 1, tensors[2] + product
        for result, tensor in zip(program(values, weights, more), expected, strict=True):
            np.testing.assert_allclose(
                result, tensor.numpy(), rtol=1e-4, atol=1e-3, err_msg=f"{size} rows"
            )


def test_rows_have_the_same_bits_on_any_number_of_threads() -> None:
    rows = nova.dim("B", min=0, max=8192)
    x, w = nova.input((rows, 512)), nova.input((512, 1024))
    program = nova.compile(x @ w, inputs=[x, w])
    random = np.random.default_rng(2)
    weights = random.standard_normal((512, 1024)).astype("f4")
    for size in (5, 30, 96, 97, 257, 351, 352, 353, 1030):
        values = random.standard_normal((size, 512)).astype("f4")
        with nova.knobs.override(threads=1):
            expected = np.array(program(values, weights))
        for threads in (2, 3, 8):
            with nova.knobs.override(threads=threads):
                np.testing.assert_array_equal(program(values, weights), expected)


def test_static_rows_keep_their_tiling() -> None:
    target = parse_target("x86_64-v4")
    spec = Contraction(256, 512, 512, (512, 1), (512, 1), (512, 1), *["f32"] * 3, accumulate=False)
    assert tiling_of(target, spec) == choose_tiling(target, spec)
    assert choose_tiling(target, spec).mr > 8  # symbolic rows have shorter micropanels


def test_symbolic_rows_have_short_micropanels() -> None:
    rows = nova.dim("B", min=0, max=8192)
    x, w = nova.input((rows, 512)), nova.input((512, 512))
    source = nova.compile(x @ w, inputs=[x, w]).mlir_source
    stages = nova.translate(source, targets=["x86_64-v4"]).stages
    assert "@nova_multiply_f32_8x32" in stages["loops"]


@pytest.mark.parametrize("target", runnable("cpu", "x86_64-v3", "x86_64"))
def test_bytes_of_symbolic_rows_and_depth(target: str) -> None:
    rows, depth = nova.dim("B", min=0, max=8192), nova.dim("K", min=0, max=8192)
    x, y = (nova.input((rows, depth), dtype=nova.u8) for _ in range(2))
    w = nova.input((depth, 50), dtype=nova.i8)
    outputs = (
        nova.wide_matmul(x, w) + 1,
        nova.wide_matmul(nova.transpose(x), y),
        nova.wide_matmul(x, nova.transpose(y)),
    )
    program = nova.compile(outputs, inputs=[x, w, y], target=target)
    random = np.random.default_rng(2)
    for m, k in ((0, 3), (1, 4), (5, 0), (17, 70), (130, 33)):
        a, c = (random.integers(0, 256, (m, k)).astype(np.uint8) for _ in range(2))
        b = random.integers(-128, 128, (k, 50)).astype(np.int8)
        left, right, other = (array.astype(np.int32) for array in (a, b, c))
        expected = left @ right + 1, left.T @ other, left @ other.T
        for result, exact in zip(program(a, b, c), expected, strict=True):
            np.testing.assert_array_equal(result, exact)
