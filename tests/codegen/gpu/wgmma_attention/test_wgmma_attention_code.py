"""The code of warpgroup attention: which kernels use it, and what NVIDIA's assembler says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codegen.ptxas import assemble

import nova
from nova.codegen.gpu.wgmma_attention.balance import balanced_work
from nova.errors import LoweringError

pytestmark = pytest.mark.graph_launch  # persistent kernels do not use warpgroups


def _stages(
    sizes: tuple[int, ...], choice: str = "auto", dtype: Any = ml_dtypes.bfloat16, **more: Any
) -> Any:
    leaves = [nova.tensor(np.broadcast_to(np.zeros((), dtype), sizes)) for _ in range(3)]
    out = nova.scaled_dot_product_attention(*leaves, **more)
    target = "cuda:sm_90a"
    with nova.knobs.override(gpu_attention=choice):
        return nova.compile(out, inputs=leaves, target=target, run_mode="sim").stages


def _ptx(*args: Any, **more: Any) -> str:
    text: str = _stages(*args, **more)["ptx"]
    return text


@pytest.mark.parametrize(
    ("features", "causal", "choice"),
    [
        (64, True, "wgmma-192x128"),
        (64, True, "wgmma-64x128x3"),
        pytest.param(128, True, "auto", marks=pytest.mark.slow),
        pytest.param(64, False, "wgmma-128x128", marks=pytest.mark.slow),
        pytest.param(128, False, "auto", marks=pytest.mark.slow),
        pytest.param(192, True, "auto", marks=pytest.mark.slow),
        pytest.param(256, True, "auto", marks=pytest.mark.slow),
    ],
)
def test_accumulators_stay_in_registers(features: int, causal: bool, choice: str) -> None:
    text = _ptx((2, 4, 4096, features), choice, causal=causal)
    output = assemble(text, "sm_90a")
    assert "0 bytes spill stores, 0 bytes spill loads" in output
    assert "warning" not in output and "Potential Performance Loss" not in output
    assert text.count("setmaxnreg") == 2


@pytest.mark.parametrize(
    ("features", "causal"),
    [(128, True), *(pytest.param(n, True, marks=pytest.mark.slow) for n in (64, 192, 256))],
)
def test_gradients_stay_in_registers(features: int, causal: bool) -> None:
    zeros = np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), (2, 4, 1024, features))
    leaves = [nova.tensor(zeros) for _ in range(4)]
    out = nova.scaled_dot_product_attention(*leaves[:3], causal=causal)
    outputs = nova.graph.gradients(nova.sum(out * leaves[3]), leaves[:3])
    program = nova.compile(outputs, inputs=leaves, target="cuda:sm_90a", run_mode="sim")
    output = assemble(program.stages["ptx"], "sm_90a")
    assert output.count("bytes spill stores") == output.count(" 0 bytes spill stores") > 1
    assert "warning" not in output and "Potential Performance Loss" not in output


@pytest.mark.parametrize(("rows", "name"), [(64, "mma.sync"), (256, "wgmma.mma_async")])
def test_few_rows_use_mma(rows: int, name: str) -> None:
    assert name in _ptx((4, rows, 64))


@pytest.mark.parametrize(
    ("features", "choice", "reason"),
    [
        (20, "wgmma", "not multiples of 8"),
        (64, "wgmma-256x128", "no tile"),
        (64, "wgmma-192x100", "multiple of 16"),
        (64, "wgmma-64x80", "multiple of them"),
        (64, "wgmma-128x128x3", "no tile"),
        (256, "wgmma-128x256", "no tile"),
    ],
)
def test_an_override_that_does_not_apply(features: int, choice: str, reason: str) -> None:
    with pytest.raises(LoweringError, match=reason):
        _ptx((2, 256, features), choice)


def test_an_override_leaves_other_types_alone() -> None:
    assert "wgmma" not in _ptx((2, 256, 64), "wgmma", np.float32)


def test_idle_consumers_make_wide_tiles_cheaper() -> None:
    """1024 rows are five tiles of three consumers, and one in which a single one has rows."""
    assert ".maxntid 512" in _ptx((96, 1024, 64), "auto")
    assert ".maxntid 384" in _ptx((96, 1024, 128), "auto")


def test_few_heads_divide_keys() -> None:
    """With 12 heads, tiles of 64 rows are 192, and the longest has half of the keys' time."""
    for features, blocks in ((64, 132), (128, 96)):
        text = _stages((12, 1024, features), causal=True)["outlined"]
        assert f"nova.launch = array<i64: {blocks}, 384," in text


def test_few_keys_of_few_heads_are_two_blocks() -> None:
    text = _stages((12, 128, 64), causal=True)["outlined"]
    assert "nova.launch = array<i64: 24, 384," in text


def test_items_of_an_incomplete_round_go_to_the_blocks_with_the_least_work() -> None:
    work = balanced_work(1, [1.0, 2.0, 3.0, 4.0, 5.0], 4, last_first=True)
    assert work.makespan == 5.0


def test_blocks_have_the_same_work() -> None:
    """The largest share of a block is close to the average, or to one tile more than that."""
    for batch, tiles, blocks in ((16, 64, 132), (96, 8, 132), (64, 11, 132), (3, 5, 4), (1, 7, 7)):
        costs = [1.0 + tile for tile in range(tiles)]
        work = balanced_work(batch, costs, min(blocks, batch * tiles), last_first=True)
        average = batch * sum(costs) / work.blocks
        assert work.makespan <= max(1.1 * average, average + tiles)
        assert batch % work.together == 0
