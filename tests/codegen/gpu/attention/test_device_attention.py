"""Attention and its gradients on devices: against the CPU, in the simulator, and the assembler."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from simulated import assemble

import nova
from nova.codegen.gpu.attention.plan import AttentionSizes, plan_attention

TYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
CLOSE = {"f64": 1e-14, "f32": 3e-6, "f16": 3e-3, "bf16": 2e-2}
"""Of the largest result; weights are rounded to 16 bits on the way to tensor cores."""


def _graph(type_: str, batch: tuple[int, ...], sizes: tuple[int, ...], **more: Any) -> Any:
    """Outputs, inputs and arrays of an attention with its gradients."""
    i, j, e, f = sizes
    rng = np.random.default_rng(3)
    shapes = {"q": (i, e), "k": (j, e), "v": (j, f), "g": (i, f)}
    arrays = [rng.standard_normal((*batch, *s)).astype(TYPES[type_]) for s in shapes.values()]
    q, k, v = (
        nova.tensor(a, name=n, requires_grad=True) for n, a in zip("qkv", arrays, strict=False)
    )
    inputs = [q, k, v, nova.tensor(arrays[3], name="g")]
    mask = more.pop("mask", None)
    if mask is not None:
        inputs.append(nova.tensor(mask, name="mask"))
        arrays.append(mask)
        more["mask"] = inputs[-1]
    out = nova.scaled_dot_product_attention(q, k, v, **more)
    nova.backward(nova.sum(out * inputs[3]))
    return [out, q.grad, k.grad, v.grad], inputs, arrays


def _check(type_: str, batch: tuple[int, ...], sizes: tuple[int, ...], **more: Any) -> None:
    target = more.pop("target", "cuda:sm_90a")
    outputs, inputs, arrays = _graph(type_, batch, sizes, **more)
    device = nova.compile(outputs, inputs=inputs, target=target, run_mode="sim")
    assert "nova.attend_point" in device.stages["buffers"]
    actual = device.run(arrays)
    want = nova.compile(outputs, inputs=inputs, target="x86_64").run(arrays)
    for name, a, b in zip(("out", "q", "k", "v"), actual, want, strict=True):
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        scale = np.abs(b).max()
        np.testing.assert_allclose(a / scale, b / scale, atol=CLOSE[type_], rtol=0, err_msg=name)


@pytest.mark.parametrize("type_", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_types(type_: str, causal: bool) -> None:
    _check(type_, (2,), (40, 40, 32, 32), causal=causal)


@pytest.mark.parametrize(
    ("type_", "batch", "sizes"),
    [
        ("f32", (2,), (70, 130, 24, 40)),
        ("bf16", (2,), (130, 70, 20, 16)),
        ("f32", (1, 2), (1, 300, 64, 64)),
        pytest.param("bf16", (2,), (70, 130, 24, 40), marks=pytest.mark.slow),
        pytest.param("f32", (2,), (130, 70, 20, 16), marks=pytest.mark.slow),
        pytest.param("bf16", (1, 2), (1, 300, 64, 64), marks=pytest.mark.slow),
    ],
)
def test_ragged_sizes(type_: str, batch: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    _check(type_, batch, sizes, causal=sizes[0] > sizes[1])


@pytest.mark.parametrize(
    ("type_", "features"),
    [
        ("bf16", 256),
        pytest.param("f32", 128, marks=pytest.mark.slow),
        pytest.param("f32", 256, marks=pytest.mark.slow),
        pytest.param("bf16", 128, marks=pytest.mark.slow),
    ],
)
def test_wide_heads(type_: str, features: int) -> None:
    _check(type_, (1,), (40, 70, features, features), causal=True)


@pytest.mark.parametrize(
    ("type_", "features"),
    [
        ("f32", (65, 65)),
        ("f64", (65, 80)),
        ("f16", (96, 8)),
        ("bf16", (16, 128)),
        pytest.param("f32", (96, 8), marks=pytest.mark.slow),
        pytest.param("f16", (130, 130), marks=pytest.mark.slow),
    ],
)
def test_heads_between_tiles(type_: str, features: tuple[int, int]) -> None:
    """Features that no tile is made for, and few beside many: warps share out both."""
    _check(type_, (), (32, 32, *features))


@pytest.mark.parametrize("type_", ["f32", "bf16"])
def test_gradients_by_rows(type_: str) -> None:
    """With few batches of many rows, those of q are an op of their own."""
    _check(type_, (2,), (300, 300, 16, 16), causal=True)


@pytest.mark.parametrize(
    ("mode", "type_"),
    [
        ("bool", "f32"),
        ("float", "bf16"),
        pytest.param("bool", "bf16", marks=pytest.mark.slow),
        pytest.param("float", "f32", marks=pytest.mark.slow),
    ],
)
def test_masks(mode: str, type_: str) -> None:
    rng = np.random.default_rng(5)
    mask: Any = rng.standard_normal((33, 65)) if mode == "float" else rng.random((33, 65)) < 0.5
    if mode == "bool":
        mask[4] = False  # a row that sees nothing: zeros, not NaN
    else:
        mask = mask.astype(TYPES[type_])
    _check(type_, (2,), (33, 65, 32, 32), mask=mask)


@pytest.mark.graph_launch
@pytest.mark.parametrize("type_", ["f32", "bf16"])
@pytest.mark.parametrize("gpu_attention", ["mma", "wgmma"])
def test_masks_with_the_lowest_number(type_: str, gpu_attention: str) -> None:
    """A row masked entirely with the lowest finite number is the mean of the values, as in torch;
    one masked with -inf has zeros."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    q, k, v, mask = (
        rng.standard_normal(shape).astype(TYPES[type_])
        for shape in ((2, 33, 32), (2, 65, 32), (2, 65, 32), (33, 65))
    )
    lowest = ml_dtypes.finfo(TYPES[type_]).min
    mask[4], mask[7, :60], mask[9, 3:], mask[11] = lowest, lowest, -np.inf, -np.inf
    inputs = [nova.tensor(array) for array in (q, k, v, mask)]
    out = nova.scaled_dot_product_attention(*inputs[:3], mask=inputs[3])
    with nova.knobs.override(gpu_attention=gpu_attention):
        program = nova.compile(out, inputs=inputs, target="cuda:sm_90a", run_mode="sim")
    is_wgmma = "wgmma.mma_async" in program.stages["ptx"]
    assert is_wgmma == (gpu_attention == "wgmma" and type_ == "bf16")
    actual = np.asarray(program(q, k, v, mask)).astype("f4")
    tensors = [torch.from_numpy(array.astype("f4")) for array in (q, k, v, mask)]
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = attend(*tensors[:3], attn_mask=tensors[3]).numpy()
    expected[:, 11] = 0
    tolerance = 1e-5 if type_ == "f32" else 1e-2
    np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=tolerance)
    means = v.astype("f4").mean(axis=1)
    np.testing.assert_allclose(actual[:, 4], means, atol=tolerance, rtol=tolerance)


def test_heads_in_one_product() -> None:
    """Heads are read where they lie, and results written there."""
    x = np.random.default_rng(2).standard_normal((2, 20, 3 * 2 * 16)).astype(np.float32)
    arguments = nova.tensor(x, name="x")
    parts = nova.permute(nova.reshape(arguments, (2, 20, 3, 2, 16)), (2, 0, 3, 1, 4))
    out = nova.scaled_dot_product_attention(parts[0], parts[1], parts[2], causal=True)
    flat = nova.reshape(nova.permute(out, (0, 2, 1, 3)), (2, 20, 32))
    actual = nova.compile(flat, inputs=[arguments], target="cuda:sm_80", run_mode="sim").run([x])
    want = nova.compile(flat, inputs=[arguments], target="x86_64").run([x])
    np.testing.assert_allclose(actual, want, atol=2e-6)


def test_a_small_program() -> None:
    """Attention is a kernel by itself, however little there is to do."""
    _check("f32", (2, 3), (5, 7, 1, 3))


def test_plans_fit() -> None:
    """Tiles of every head fit into every device, and what a thread sums into its registers."""
    for arch in ("sm_80", "sm_86", "sm_90a"):
        for features in (8, 16, 48, 64, 80, 96, 128):
            for results in (("out",), ("q", "k", "v"), ("q",), ("k", "v")):
                for type_ in ("f32", "bf16"):
                    sizes = AttentionSizes(16, 1000, 1000, features, features)
                    plan = plan_attention(sizes, (type_,) * 3, "f32", results, arch)
                    assert plan is not None and plan.sums <= 144, (arch, features, results)
    sizes = AttentionSizes(1, 100, 100, 256, 256)
    assert plan_attention(sizes, ("f64",) * 3, "f64", ("q", "k", "v"), "sm_86") is None


@pytest.mark.graph_launch
@pytest.mark.parametrize(
    ("type_", "arch", "features"),
    [
        ("f32", "sm_80", 64),
        ("bf16", "sm_90a", 128),
        *(
            pytest.param(type_, arch, features, marks=pytest.mark.slow)
            for type_, arch, features in product(("f32", "bf16"), ("sm_80", "sm_90a"), (64, 128))
            if (type_, arch, features) not in {("f32", "sm_80", 64), ("bf16", "sm_90a", 128)}
        ),
    ],
)
def test_no_spills(type_: str, arch: str, features: int, tmp_path: Path) -> None:
    sizes = (1024, 1024, features, features)
    outputs, inputs, _ = _graph(type_, (2, 8), sizes, causal=True)
    program = nova.compile(outputs, inputs=inputs, target=f"cuda:{arch}", run_mode="sim")
    output = assemble(program.stages["ptx"], arch, tmp_path)
    assert output.count("bytes spill stores") >= 3
    assert output.count("bytes spill stores") == output.count(
        " 0 bytes spill stores, 0 bytes spill"
    )


def test_f32_blocks_nearly_fill_a_device() -> None:
    """128 blocks for 132 multiprocessors: tiles of half the rows are slower."""
    sizes = AttentionSizes(16, 128, 128, 64, 64)
    plan = plan_attention(sizes, ("f32",) * 4, "f32", ("q", "k", "v"), "sm_90a")
    assert plan is not None and (plan.rows, plan.keys, plan.blocks) == (32, 32, 128)
    plan = plan_attention(sizes, ("f32",) * 3, "f32", ("out", "logsumexp"), "sm_90a")
    assert plan is not None and (plan.rows, plan.blocks) == (16, 128)
