"""Attention that also writes its new keys and values into the cache, on a simulated device."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova.pretrained.layers import attend, causal_mask, split_heads, update_cache

HEADS, WIDTH, FEATURES = 4, 32, 128


def compile_loop(keys: int, dtype: Any, group: int = 3, read: str = "", **options: Any) -> Any:
    """A loop over two layers of attention: projections, rotations, caches, residual connections.

    The kernel that updates the first cache computes the angles, too, so that the second is joined.
    With `read`, the rotated queries ("q") are a carry as well, or keys are not written ("k").
    """
    widths = (HEADS * group * WIDTH, HEADS * WIDTH, HEADS * WIDTH)
    x = nova.input((1, FEATURES), dtype, name="x")
    matrices = [
        nova.input((width, FEATURES), dtype, name=f"w{i}") for i, width in enumerate(widths)
    ]
    caches = [nova.input((HEADS, keys, WIDTH), dtype, name=f"cache{i}") for i in range(4)]
    first, end = (nova.input((), nova.i64, name=name) for name in ("first", "end"))

    def body(state: Any) -> Any:
        position, x, rotated, *caches = state
        positions = position + nova.arange(1)
        frequencies = nova.tensor(np.linspace(1, 0.1, WIDTH // 2, dtype="f4"))
        phases = nova.unsqueeze(nova.cast(positions, dtype="f32"), 1) * frequencies
        angles = nova.cos(phases), nova.sin(phases)
        mask = causal_mask(positions, keys)
        for i in (0, 2):
            q, k, v = (
                split_heads(x @ nova.swapaxes(w, 0, 1), w.shape[0] // WIDTH) for w in matrices
            )
            q, k = (nova.rope(part, *angles) for part in (q, k))
            updated = update_cache((caches[i], caches[i + 1]), k, v, position)
            caches[i + 1] = updated[1]
            if read != "k":
                caches[i] = updated[0]
            x = x + attend(q, caches[i], caches[i + 1], mask) @ matrices[0]
        return position + 1, x, q if read == "q" else rotated, *caches

    rotated = nova.zeros((HEADS * group, 1, WIDTH), dtype=dtype)
    results = nova.while_loop(lambda state: state[0] < end, body, (first, x, rotated, *caches))
    inputs = [x, *matrices, *caches, first, end]
    return nova.compile(list(results[1:]), inputs=inputs, **options)


def arguments(keys: int, dtype: Any, first: int, end: int, group: int = 3) -> list[Any]:
    rng = np.random.default_rng(keys)
    widths = (HEADS * group * WIDTH, HEADS * WIDTH, HEADS * WIDTH)
    shapes = [(1, FEATURES), *((width, FEATURES) for width in widths)]
    arrays = [rng.standard_normal(shape) / shape[0] ** 0.5 for shape in shapes]
    arrays += [rng.standard_normal((HEADS, keys, WIDTH)) for _ in range(4)]
    return [*(array.astype(dtype) for array in arrays), np.int64(first), np.int64(end)]


@pytest.mark.graph_launch
@pytest.mark.parametrize(
    ("target", "keys", "dtype", "first", "group"),
    [
        ("cuda:sm_80", 128, ml_dtypes.bfloat16, 0, 3),
        ("cuda:sm_90a", 203, ml_dtypes.bfloat16, 200, 1),
        ("cuda:sm_90a", 1024, np.float16, 511, 3),
        ("cuda:sm_90a", 5000, ml_dtypes.bfloat16, 4997, 3),  # several iterations of a lane
    ],
    ids=str,
)
def test_new_rows_are_read_and_stored(
    target: str, keys: int, dtype: Any, first: int, group: int
) -> None:
    program = compile_loop(keys, dtype, group, target=target, run_mode="sim")
    assert "_joined" in program.stages["buffers"]
    values = arguments(keys, dtype, first, first + 3, group)
    results = program(*values)
    expected = compile_loop(keys, dtype, group)(*values)
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(
            result.astype("f4"), reference.astype("f4"), rtol=0.02, atol=0.02
        )
    for cache, before in zip(results[2:], values[4:8], strict=True):
        others = np.delete(np.arange(keys), np.arange(first, first + 3))
        assert cache[:, others].tobytes() == before[:, others].tobytes()


@pytest.mark.graph_launch
@pytest.mark.parametrize(("read", "joined"), [("q", False), ("k", True)])
def test_values_that_others_read_stay_in_memory(read: str, joined: bool) -> None:
    dtype = ml_dtypes.bfloat16
    program = compile_loop(128, dtype, read=read, target="cuda:sm_90a", run_mode="sim")
    assert ("_joined" in program.stages["buffers"]) == joined
    values = arguments(128, dtype, 5, 8)
    expected = compile_loop(128, dtype, read=read)(*values)
    for result, reference in zip(program(*values), expected, strict=True):
        np.testing.assert_allclose(
            result.astype("f4"), reference.astype("f4"), rtol=0.02, atol=0.02
        )
