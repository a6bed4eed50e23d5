"""Matrix products on devices: what they compute, in the simulator, and what the assembler says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nightly import all_pairs, each_value
from simulated import assemble, run

import nova
from benchmarks.gpu.launch import Buffer, launch_ptx
from nova.codegen.common.builder import splat
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.gpu.gemm.epilogue import Finish, Fragment, store_epilogue
from nova.codegen.gpu.gemm.mainloop import emit_gemm
from nova.codegen.gpu.gemm.plan import EnclosingLoop, GemmPlan, GpuGemm, make_plan
from nova.codegen.gpu.gemm.select_plan import DIVIDED_F32, PLAIN, SPLIT, TENSOR, WIDE_F32, plan_gemm
from nova.ir.bindings import arith, ir, vector

TYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
LAYOUTS = ["nnn", "ntn", "tnn", "ttn"]
CLOSE = {"f64": 1e-14, "f32": 2e-6, "f16": 2e-6, "bf16": 2e-6, "tf32": 1e-3, "tf32x3": 2e-6}
"""Of the largest result; factors of few bits are multiplied exactly."""


def name_of(value: Any) -> str:
    """A part of the name of a test: the tile of a shape, or the value itself."""
    return f"{value.rows}x{value.columns}" if hasattr(value, "columns") else str(value)


def contraction(
    m: int, n: int, k: int, type_: str = "f32", layout: str = "nnn", **more: Any
) -> Any:
    """`layout` says of A, B and C whether they are stored by rows or by columns."""
    sizes = (m, k), (k, n), (m, n)
    strides = [
        (s[1], 1) if route == "n" else (1, s[0]) for s, route in zip(sizes, layout, strict=True)
    ]
    sums = "f64" if type_ == "f64" else "f32"
    return Contraction(
        m,
        n,
        k,
        *strides,
        type_,
        more.pop("b_type", type_),
        sums,
        more.pop("accumulate", False),
        **more,
    )


def _sizes(product: GpuGemm) -> list[list[int]]:
    c = product.contraction
    surrounding = [loop.size for loop in product.enclosing]
    return [[*surrounding, *s] for s in ((c.m, c.k), (c.k, c.n), (c.m, c.n))]


def _strides(product: GpuGemm) -> list[list[int]]:
    c = product.contraction
    private = c.a_strides, c.b_strides, c.c_strides
    return [[*(loop.strides[i] for loop in product.enclosing), *s] for i, s in enumerate(private)]


def _buffers(product: GpuGemm) -> list[Buffer]:
    c = product.contraction
    rows = zip(_sizes(product), _strides(product), product.offsets, strict=True)
    counts = [
        offset + 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
        if 0 not in sizes
        else offset + 1
        for sizes, strides, offset in rows
    ]
    return [Buffer(t, n) for t, n in zip((c.a_type, c.b_type, c.acc_type), counts, strict=True)]


def _check(product: GpuGemm, plan: GemmPlan, allowed: float | None = None) -> None:
    buffers = _buffers(product)
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(b.size).astype(TYPES[b.type]) for b in buffers]

    def body(inputs: Any, block: Any, thread: Any) -> None:
        emit_gemm(
            plan, inputs[0], inputs[1], store_epilogue(plan, inputs[2]), block=block, thread=thread
        )

    shape = plan.grid[0], plan.block[0], plan.shared_bytes
    ptx, order = launch_ptx(buffers, body, *shape, min_blocks_per_sm=plan.min_blocks_per_sm)
    actual = run(ptx, order, arrays, *shape)[2]
    views = [
        np.lib.stride_tricks.as_strided(
            array.astype(np.float64)[offset:], sizes, [8 * step for step in strides]
        )
        for array, offset, sizes, strides in zip(
            arrays, product.offsets, _sizes(product), _strides(product), strict=True
        )
    ]
    want = arrays[2].astype(np.float64)
    result = np.lib.stride_tricks.as_strided(
        want[product.offsets[2] :], _sizes(product)[2], [8 * s for s in _strides(product)[2]]
    )
    summed = tuple(i for i, loop in enumerate(product.enclosing) if not loop.parallel)
    value = (views[0] @ views[1]).sum(axis=summed, keepdims=True)
    result[...] = value + result.copy() if product.contraction.accumulate else value
    scale = np.abs(want).max(initial=1)
    np.testing.assert_allclose(
        actual / scale, want / scale, atol=allowed or CLOSE[plan.element], rtol=0
    )


@pytest.mark.parametrize(("shape", "layout"), each_value(DIVIDED_F32 + PLAIN, LAYOUTS), ids=name_of)
def test_plain_shapes(shape: Any, layout: str) -> None:
    product = GpuGemm(contraction(132, 136, 40, "f32", layout))
    _check(product, make_plan(product, "plain", "f32", shape))


@pytest.mark.parametrize(
    ("shape", "sizes", "layout"),
    each_value(WIDE_F32, [(132, 136, 40), (140, 131, 37), (256, 128, 8), (64, 300, 5)], LAYOUTS),
    ids=name_of,
)
def test_wide_f32_shapes(shape: Any, sizes: tuple[int, int, int], layout: str) -> None:
    """Operands along k are transposed on the way to shared memory; sizes may be odd."""
    product = GpuGemm(contraction(*sizes, "f32", layout))
    plan = make_plan(product, "plain", "f32", shape)
    assert not plan.lhs.tile.along_k and not plan.rhs.tile.along_k
    _check(product, plan)


def test_large_f32_gemms_have_16_by_8_sums_per_thread() -> None:
    plan = plan_gemm(GpuGemm(contraction(4096, 4096, 4096)), "sm_90a")
    rows, columns = plan.shape.warp
    assert plan.shape.transposes and rows * columns == 32 * 128


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((512, 1024, 256), (64, 64)),
        ((1024, 256, 512), (32, 64)),
        ((512, 256, 1024), (32, 32)),
        ((512, 512, 64), (32, 32)),  # too few steps for the exchange of more sums
    ],
    ids=str,
)
def test_tiles_of_a_small_transformer(sizes: tuple[int, int, int], tile: tuple[int, int]) -> None:
    """One block of 8 x 8 sums a thread on each multiprocessor, where k is long enough."""
    shape = plan_gemm(GpuGemm(contraction(*sizes)), "sm_90a").shape
    assert (shape.rows, shape.columns) == tile
    assert (shape in DIVIDED_F32) == (sizes[2] > 64)


@pytest.mark.parametrize(("shape", "layout"), each_value(TENSOR, LAYOUTS), ids=name_of)
def test_tensor_shapes(shape: Any, layout: str) -> None:
    product = GpuGemm(contraction(136, 144, 200, "bf16", layout))
    _check(product, make_plan(product, "tensor", "bf16", shape))


@pytest.mark.parametrize("layout", ["nnn", "ntn", "tnn", "ttn"])
@pytest.mark.parametrize("type_", ["f16", "tf32", "tf32x3"])
def test_other_tensor_types(type_: str, layout: str) -> None:
    is_f32 = type_ != "f16"
    product = GpuGemm(contraction(72, 80, 96, "f32" if is_f32 else type_, layout))
    precision = {"tf32": "tf32", "tf32x3": "high"}.get(type_, "highest")
    plan = plan_gemm(product, "sm_80", precision=precision)
    assert (plan.core_type, plan.element) == ("tensor", type_)
    _check(product, plan)


def test_f32_is_exact_unless_asked() -> None:
    assert plan_gemm(GpuGemm(contraction(64, 64, 64)), "sm_90a").core_type == "plain"


@pytest.mark.parametrize(
    ("size", "type_", "layout"),
    all_pairs(
        [(33, 35, 37), (1, 130, 70), (130, 1, 70), (1, 1, 300), (65, 34, 6), (5, 7, 0), (0, 4, 3)],
        ["f64", "f32", "bf16"],
        ["nnn", "ttn", "nnt"],
    ),
)
def test_ragged_sizes(size: tuple[int, int, int], type_: str, layout: str) -> None:
    product = GpuGemm(contraction(*size, type_, layout))
    _check(product, plan_gemm(product, "sm_90a"))


@pytest.mark.parametrize("type_", ["f32", "bf16"])
def test_adding_to_c(type_: str) -> None:
    product = GpuGemm(contraction(70, 40, 24, type_, accumulate=True))
    _check(product, plan_gemm(product, "sm_90a"))


def test_factors_of_two_types() -> None:
    product = GpuGemm(contraction(40, 48, 24, "bf16", b_type="f32"))
    plan = plan_gemm(product, "sm_90a")
    assert (plan.core_type, plan.lhs.copied, plan.rhs.copied) == ("plain", 0, 16)
    _check(product, plan)


@pytest.mark.parametrize("type_", ["f32", "bf16"])
@pytest.mark.parametrize("offsets", [(8, 16, 4), (1, 2, 3)])
def test_loops_around(offsets: tuple[int, int, int], type_: str) -> None:
    """A batch, a broadcast operand, and a second loop of k."""
    surrounding = (
        EnclosingLoop(3, (20 * 16, 0, 20 * 24)),
        EnclosingLoop(2, (3 * 20 * 16, 16 * 24, 0), False),
    )
    product = GpuGemm(contraction(20, 24, 16, type_), surrounding, offsets)
    _check(product, plan_gemm(product, "sm_90a"))


def test_elements_that_are_apart() -> None:
    spec = replace(contraction(20, 24, 16), a_strides=(48, 3), b_strides=(50, 2), c_strides=(60, 2))
    product = GpuGemm(spec)
    plan = plan_gemm(product, "sm_90a")
    assert (plan.lhs.copied, plan.rhs.copied, plan.width) == (0, 0, 1)
    _check(product, plan)


def test_what_is_done_with_results() -> None:
    """Doubled, and the number of the row added, on the way to C."""
    product = GpuGemm(contraction(24, 40, 32))
    plan = plan_gemm(product, "sm_90a")

    def body(inputs: Any, block: Any, thread: Any) -> None:
        store = store_epilogue(plan, inputs[2])

        def begin(fragment: Fragment) -> Finish:
            row = arith.index_cast(ir.IntegerType.get_signless(32), fragment.row)

            def finish(value: Any) -> None:
                twice = arith.mulf(value, splat(value.type, 2.0))
                number = arith.sitofp(value.type.element_type, row)
                store(fragment)(arith.addf(twice, vector.broadcast(value.type, number)))

            return finish

        emit_gemm(plan, inputs[0], inputs[1], begin, block=block, thread=thread)

    buffers = _buffers(product)
    arrays = [np.linspace(-1, 1, b.size, dtype=np.float32) for b in buffers]
    shape = plan.grid[0], plan.block[0], plan.shared_bytes
    ptx, order = launch_ptx(buffers, body, *shape)
    actual = run(ptx, order, arrays, *shape)[2].reshape(24, 40)
    want = 2 * arrays[0].reshape(24, 32) @ arrays[1].reshape(32, 40) + np.arange(24)[:, None]
    np.testing.assert_allclose(actual, want, atol=1e-5)


@pytest.mark.parametrize(
    ("type_", "arch", "size", "layout"),
    all_pairs(
        ["f32", "bf16", "tf32", "tf32x3"],
        ["sm_80", "sm_90a"],
        [(4096, 4096, 4096), (515, 515, 515)],
        ["nnn", "ntn", "tnn", "ttn"],
    ),
)
def test_no_spills(
    type_: str, arch: str, size: tuple[int, int, int], layout: str, tmp_path: Path
) -> None:
    precision = {"tf32": "tf32", "tf32x3": "high"}.get(type_, "highest")
    product = GpuGemm(contraction(*size, type_ if precision == "highest" else "f32", layout))
    plan = plan_gemm(product, arch, precision=precision)

    def body(inputs: Any, block: Any, thread: Any) -> None:
        emit_gemm(
            plan, inputs[0], inputs[1], store_epilogue(plan, inputs[2]), block=block, thread=thread
        )

    shape = plan.grid[0], plan.block[0], plan.shared_bytes
    ptx, _ = launch_ptx(
        _buffers(product), body, *shape, min_blocks_per_sm=plan.min_blocks_per_sm, arch=arch
    )
    assert "0 bytes spill stores, 0 bytes spill loads" in assemble(ptx, arch, tmp_path)


def test_tf32_by_knob() -> None:
    """Products of f32 are exact unless the knob says otherwise, and both are cached apart."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((96, 96)).astype(np.float32) for _ in range(2))
    x, y = nova.tensor(a, name="a"), nova.tensor(b, name="b")
    want = a.astype(np.float64) @ b
    errors = []
    for tf32 in (False, True):
        with nova.knobs.override(tf32=tf32):
            program = nova.compile(x @ y, inputs=[x, y], target="cuda:sm_80", run_mode="sim")
        assert ("nvvm.mma.sync" in program.stages["device"]) == tf32
        errors.append(np.abs(program.run([a, b]) - want).max())
    assert errors[0] < 1e-5 and 1e-4 < errors[1] < 0.05


@pytest.mark.parametrize("precision", ["highest", "high", "tf32"])
def test_error_bounds_of_matmul_precision(precision: str) -> None:
    """The error of each element against float64, in terms of the sum of absolute products.

    Two tf32 have 22 bits of a factor: with the matmul of the small parts that is left out, 2^-20
    of each product, and each of k additions rounds. One tf32 has 11 bits of each factor.
    """
    rng = np.random.default_rng(3)
    k = 288
    scales = 2.0 ** rng.integers(-12, 12, (2, k))
    a = (rng.standard_normal((70, k)) * scales[0]).astype(np.float32)
    b = (rng.standard_normal((k, 72)) * scales[1][:, None]).astype(np.float32)
    x, y = nova.tensor(a), nova.tensor(b)
    program = nova.compile(
        x @ y, inputs=[x, y], target="cuda:sm_90a", run_mode="sim", matmul_precision=precision
    )
    wide, magnitude = a.astype("f8") @ b.astype("f8"), np.abs(a).astype("f8") @ np.abs(b)
    error = (np.abs(program(a, b) - wide) / magnitude).max()
    sums = k * 2.0**-24
    bounds = {"highest": sums, "high": 2.0**-20 + 3 * sums, "tf32": 2.0**-10 + sums}
    assert error <= bounds[precision]
    if precision == "tf32":
        assert error > 2.0**-20 + 3 * sums  # the bound of `high` is a real one
    count = program.stages["ptx"].count("mma.sync.aligned.m16n8k8")
    assert (count > 0) == (precision != "highest")


def test_an_unknown_matmul_precision() -> None:
    x = nova.tensor(np.zeros((4, 4), np.float32))
    with pytest.raises(nova.errors.NovaError, match="matmul_precision"):
        nova.compile(x @ x, inputs=[x], matmul_precision="medium")


@pytest.mark.parametrize("shape", SPLIT, ids=lambda s: f"{s.rows}x{s.columns}")
def test_split_shapes(shape: Any) -> None:
    product = GpuGemm(contraction(136, 144, 72, "f32", "ntn"))
    _check(product, make_plan(product, "tensor", "tf32x3", replace(shape, depth=shape.depth // 2)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(64, 48, 200), (16, 10, 512), (5, 33, 70)], ids=str)
def test_lanes_that_share_the_steps_of_k(sizes: tuple[int, int, int], layout: str) -> None:
    """Groups of lanes have partial sums, which are added in their order."""
    product = GpuGemm(contraction(*sizes, "f32", layout))
    shared = [shape for shape in PLAIN if shape.parts > shape.split]
    assert len(shared) == 2
    for shape in shared:
        plan = make_plan(product, "plain", "f32", shape)
        assert plan.tile_matmul.lane_groups * shape.split == shape.parts
        _check(product, plan)


def test_small_f32_gemms_have_square_tiles_or_few_columns() -> None:
    shapes = {
        sizes: plan_gemm(GpuGemm(contraction(*sizes)), "sm_90a").shape
        for sizes in [(64, 512, 784), (64, 10, 512), (256, 256, 256)]
    }
    tiles = {sizes: (shape.rows, shape.columns) for sizes, shape in shapes.items()}
    assert tiles == {(64, 512, 784): (16, 16), (64, 10, 512): (4, 16), (256, 256, 256): (16, 32)}


def test_operands_of_the_epilogue_are_loaded_before_the_sums_are_exchanged() -> None:
    """An update in place: its weight, too, waits for memory while other warps write their sums."""
    weight, x, g = (nova.input(shape) for shape in ((128, 64), (96, 128), (96, 64)))
    program = nova.compile(
        weight - 0.5 * nova.tanh(x.T @ g) * weight,
        inputs=[weight, x, g],
        target="cuda:sm_90a",
        run_mode="sim",
    )
    *_, before, after = program.stages["ptx"].split("bar.sync")
    assert "ld.global" in before and "ld.global" not in after and "st.global" in after
    shapes = [value.shape for value in (weight, x, g)]
    arrays = [np.random.default_rng(i).standard_normal(s, np.float32) for i, s in enumerate(shapes)]
    w, a, b = (array.astype(np.float64) for array in arrays)
    np.testing.assert_allclose(
        np.asarray(program(*arrays)), w - 0.5 * np.tanh(a.T @ b) * w, rtol=0, atol=2e-6
    )
