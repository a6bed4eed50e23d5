"""The code of warpgroup GEMMs: NVIDIA's assembler takes it, without spills or warnings."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from codegen.ptxas import assemble

import nova
from nova.errors import LoweringError

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups

Epilogue = Callable[[nova.Tensor, list[nova.Tensor]], nova.Tensor]

EPILOGUES: dict[str, tuple[Epilogue, list[tuple[int, ...]]]] = {
    "plain": (lambda x, _: x, []),
    "bias and gelu": (lambda x, others: nova.gelu(x + others[0]), [(512,)]),
    "residual, f32": (lambda x, others: x.astype("f32") + others[0], [(384, 512)]),
}


def ptx(layout: str, epilogue: str, choice: str) -> str:
    element = ml_dtypes.bfloat16
    function, shapes = EPILOGUES[epilogue]
    m, n, k = 384, 512, 256
    sizes = [
        (m, k) if layout[0] == "n" else (k, m),
        (k, n) if layout[1] == "n" else (n, k),
        *shapes,
    ]
    leaves = [nova.tensor(np.zeros(size, element)) for size in sizes]
    a, b, *others = leaves
    product = (a if layout[0] == "n" else a.T) @ (b if layout[1] == "n" else b.T)
    with nova.knobs.override(gpu_gemm=choice):
        program = nova.compile(
            function(product, others), inputs=leaves, target="cuda:sm_90a", run_mode="sim"
        )
    return program.stages["ptx"]


@pytest.mark.parametrize(
    ("layout", "epilogue", "choice"),
    [
        ("nn", "plain", "wgmma-128x256x1x1"),
        ("nt", "bias and gelu", "wgmma-128x256x1x1"),
        ("tn", "residual, f32", "wgmma-128x192x1x1"),
        ("tt", "plain", "wgmma-128x144"),
        ("nn", "bias and gelu", "wgmma-256x128"),
        ("nt", "plain", "wgmma-128x64x1x1"),
        ("nn", "bias and gelu", "wgmma-128x192x1x4"),
        ("nn", "bias and gelu", "wgmma-64x64x1x1"),
        ("nt", "residual, f32", "wgmma-64x64x1x2"),
    ],
)
def test_accumulators_stay_in_registers(layout: str, epilogue: str, choice: str) -> None:
    text = ptx(layout, epilogue, choice)
    output = assemble(text, "sm_90a")
    assert "0 bytes spill stores, 0 bytes spill loads" in output
    assert "warning" not in output
    transposed = f", {int(layout[0] == 't')}, {int(layout[1] == 'n')};"
    instructions = re.findall(r"wgmma\.mma_async.*", text)
    assert instructions and all(line.endswith(transposed) for line in instructions)
    assert text.count("setmaxnreg") == (0 if "-64x" in choice else 2)


def test_nothing_moves_accumulators_between_matmuls() -> None:
    """A register of a pending wgmma must not be accessed."""
    text = ptx("nt", "plain", "wgmma-128x256x1x1")
    lists = set(re.findall(r"wgmma\.mma_async[^{]*\{([^}]*)\}", text))
    assert len(lists) == 1


def test_other_devices_use_mma() -> None:
    leaves = [nova.tensor(np.zeros((1024, 1024), ml_dtypes.bfloat16)) for _ in range(2)]
    for target in ("cuda:sm_80", "cuda:sm_90"):
        program = nova.compile(leaves[0] @ leaves[1], inputs=leaves, target=target, run_mode="sim")
        assert "mma.sync" in program.stages["ptx"] and "wgmma" not in program.stages["ptx"]


@pytest.mark.parametrize(("size", "name"), [(64, "mma.sync"), (2048, "wgmma.mma_async")])
def test_small_matmuls_use_mma(size: int, name: str) -> None:
    leaves = [nova.tensor(np.zeros((size, size), ml_dtypes.bfloat16)) for _ in range(2)]
    program = nova.compile(
        leaves[0] @ leaves[1], inputs=leaves, target="cuda:sm_90a", run_mode="sim"
    )
    assert name in program.stages["ptx"]


@pytest.mark.parametrize(
    ("sizes", "choice", "reason"),
    [
        ((128, 128, 100), "wgmma", "copy engine cannot read"),
        ((128, 128, 128), "wgmma-128x250", "no such tile"),
        ((128, 256, 64), "wgmma-128x256x2", "does not divide the rows"),
        ((128, 128, 64), "wgmma-128x128x1x4", "too short to split"),
    ],
)
def test_an_override_that_does_not_apply(
    sizes: tuple[int, int, int], choice: str, reason: str
) -> None:
    m, n, k = sizes
    leaves = [nova.tensor(np.zeros(shape, ml_dtypes.bfloat16)) for shape in ((m, k), (k, n))]
    with nova.knobs.override(gpu_gemm=choice), pytest.raises(LoweringError, match=reason):
        nova.compile(leaves[0] @ leaves[1], inputs=leaves, target="cuda:sm_90a", run_mode="sim")


def test_an_override_leaves_other_types_alone() -> None:
    leaves = [nova.tensor(np.zeros((64, 64), np.float32)) for _ in range(2)]
    with nova.knobs.override(gpu_gemm="wgmma"):
        program = nova.compile(
            leaves[0] @ leaves[1], inputs=leaves, target="cuda:sm_90a", run_mode="sim"
        )
    assert "wgmma" not in program.stages["ptx"]
