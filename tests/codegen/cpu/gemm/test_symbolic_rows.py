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


def test_static_rows_keep_their_tiling() -> None:
    target = parse_target("x86_64-v4")
    spec = Contraction(256, 512, 512, (512, 1), (512, 1), (512, 1), *["f32"] * 3, accumulate=False)
    assert tiling_of(target, spec) == choose_tiling(target, spec)
    assert choose_tiling(target, spec).mr > 8  # symbolic rows have shorter micropanels


def test_symbolic_rows_have_short_micropanels() -> None:
    rows = nova.dim("B", min=0, max=8192)
    x, w = nova.input((rows, 512)), nova.input((512, 512))
    loops = nova.compile(x @ w, inputs=[x, w], target="x86_64-v4").stages["loops"]
    assert "@nova_multiply_f32_8x32" in loops
