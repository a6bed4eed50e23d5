"""`max_workspace`: time for memory, the same bits, or an error with the least that works."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import KnobError, WorkspaceError
from nova.passes.kernels.workspace.assign_offsets import Lifetime, lay_out, order_calls

N = 96
X = np.random.default_rng(0).standard_normal((N, N)).astype(np.float32)


def waiting_program(**options: Any) -> nova.Compiled:
    """A cheap value that is used early and late, with the most memory in use in between."""
    x = nova.tensor(X, name="x")
    retained = nova.tanh(x)
    early = retained.transpose() @ x
    value = early
    for _ in range(3):
        value = nova.softmax(x @ value, axis=1)
    wide = nova.concat([value, value * value, value + 1.0], axis=1)
    narrow = wide @ nova.tensor(np.full((3 * N, N), 0.01, np.float32))
    late = (x @ narrow).transpose() @ retained
    with nova.knobs.override(serial_work=0):
        return nova.compile([early, late], inputs=[x], **options)


def least_of(make: Any) -> int:
    with pytest.raises(WorkspaceError) as caught:
        make(max_workspace=0)
    result = re.search(r"max_workspace=(\d+) is the least", caught.value.hint or "")
    assert result is not None
    return int(result[1])


def test_values_are_computed_again_where_they_do_not_fit() -> None:
    plain = waiting_program()
    least = least_of(waiting_program)
    tight = waiting_program(max_workspace=least)
    assert tight.workspace_size == least < plain.workspace_size
    assert tight.stages["buffers"].count("call @") > plain.stages["buffers"].count("call @")
    for a, b in zip(plain.run([X]), tight.run([X]), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(WorkspaceError, match=f"needs {least} bytes .* allows {least - 1}"):
        waiting_program(max_workspace=least - 1)


def test_limits_are_kept_and_part_of_the_key() -> None:
    plain, least = waiting_program(), least_of(waiting_program)
    sizes = [waiting_program(max_workspace=m).workspace_size for m in (least, 10**9, "1G")]
    assert sizes[0] == least and sizes[1] == sizes[2] >= plain.workspace_size
    with pytest.raises(KnobError, match="max_workspace cannot be 'lots'"):
        waiting_program(max_workspace="lots")
    with nova.knobs.override(max_workspace=least):
        assert waiting_program().workspace_size == least


def mlp_step(rows: int, width: int, layers: int, *, updates: bool, **options: Any) -> nova.Compiled:
    """Loss and gradients, or updated weights, of a network of plain layers."""
    rng = np.random.default_rng(1)
    x = nova.tensor(rng.standard_normal((rows, width)).astype(np.float32), name="x")
    shapes = [(width, width), (width,)] * layers
    params = [
        nova.tensor(
            (rng.standard_normal(shape) / width**0.5).astype(np.float32),
            name=f"p{i}",
            requires_grad=True,
        )
        for i, shape in enumerate(shapes)
    ]
    value = x
    for weight, bias in zip(params[::2], params[1::2], strict=True):
        value = nova.relu(value @ weight + bias)
    loss = (value * value).mean()
    grads = nova.graph.gradients(loss, params)
    if updates:
        changed = {p: p - 0.01 * g for p, g in zip(params, grads, strict=True)}
        return nova.compile([loss], inputs=[x], params=params, updates=changed, **options)
    return nova.compile([loss, *grads], inputs=[x], params=params, **options)


def results_of(program: nova.Compiled, rows: int, width: int, layers: int) -> list[np.ndarray]:
    """What it returns, and the arrays it was given: some may have been updated."""
    rng = np.random.default_rng(2)
    shapes = [(rows, width), *[(width, width), (width,)] * layers]
    arrays = [(rng.standard_normal(s) / width**0.5).astype(np.float32) for s in shapes]
    results = program.run(arrays[:1], arrays[1:])
    return [*(results if isinstance(results, tuple) else (results,)), *arrays]


@pytest.mark.parametrize(
    "where, updates",
    [({}, False), ({"target": "cuda:sm_80", "run_mode": "sim"}, True)],
    ids=["gradients", "updates on a device"],
)
def test_a_plain_network_needs_less_than_all_its_values(
    where: dict[str, Any], updates: bool
) -> None:
    sizes = 128, 32, 8
    activation = 128 * 32 * 4

    def make(**options: Any) -> nova.Compiled:
        return mlp_step(*sizes, updates=updates, **where, **options)

    plain, least = make(), least_of(make)
    assert least <= 4 * activation < 8 * activation <= plain.workspace_size
    tight = make(max_workspace=least)
    assert tight.workspace_size <= least
    if not where:
        loose = make(max_workspace=plain.workspace_size)
        assert loose.stages["kernels"] == plain.stages["kernels"]
    for a, b in zip(results_of(plain, *sizes), results_of(tight, *sizes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(b).max())
    with pytest.raises(WorkspaceError, match=f"needs {least} bytes .* allows {least - 64}"):
        make(max_workspace=least - 64)


# --- the layout by itself -------------------------------------------------------------------------


def random_calls(seed: int) -> tuple[list[Lifetime], list[int]]:
    """Buffers of a random program: each call writes one and reads a few that were written."""
    rng = random.Random(seed)
    touched = []
    uses: list[list[int]] = []
    for call in range(rng.randrange(2, 30)):
        reads = rng.sample(range(call), min(call, rng.randrange(3)))
        touched.append((reads, [call]))
        uses.append([call])
        for buffer in reads:
            uses[buffer].append(call)
    lifetimes = [Lifetime(rng.randrange(1, 2000), tuple(calls)) for calls in uses]
    return lifetimes, order_calls(touched)


@pytest.mark.parametrize("limit", [None, 0, 10**9])
def test_layouts_are_sound(limit: int | None) -> None:
    for seed in range(60):
        buffers, before = random_calls(seed)
        layout = lay_out(buffers, before, limit)
        for i, a in enumerate(buffers):
            start = layout.offsets[i]
            assert start % 64 == 0 and start + a.nbytes <= layout.size
            for j, b in enumerate(buffers[:i]):
                separate = start + a.nbytes <= layout.offsets[j] or (
                    layout.offsets[j] + b.nbytes <= start
                )
                shares = a.last < b.first or b.last < a.first
                assert separate or shares
                if limit == 10**9 and not separate:  # there is room: nobody waits for sharing
                    early, late = (a, b) if a.first < b.first else (b, a)
                    assert all(before[late.first] >> call & 1 for call in early.calls)


def test_orders_of_calls_are_transitive_and_complete() -> None:
    """Against the definition: a path of shared buffers, one of the two writing."""
    for seed in range(40):
        rng = random.Random(seed)
        touched = [
            (rng.sample(range(6), rng.randrange(3)), rng.sample(range(6), rng.randrange(2)))
            for _ in range(14)
        ]
        expected: list[set[int]] = []
        for call, (reads, writes) in enumerate(touched):
            direct = {
                c
                for c in range(call)
                if set(touched[c][1]) & {*reads, *writes} or set(touched[c][0]) & set(writes)
            }
            expected.append(direct.union(*(expected[c] for c in direct)))
        result = order_calls(touched)
        assert [{c for c in range(14) if bits >> c & 1} for bits in result] == expected


def test_chains_share_and_branches_do_not() -> None:
    chain = [([], [0]), ([0], [1]), ([1], [2]), ([2], [3])]
    lifetimes = [Lifetime(64, (0, 1)), Lifetime(64, (1, 2)), Lifetime(64, (2, 3))]
    assert lay_out(lifetimes, order_calls(chain), None).size == 128
    # Two chains of their own: with room, none waits for the other.
    branches = [([], [0]), ([0], [1]), ([], [2]), ([2], [3])]
    pairs = [Lifetime(64, (0, 1)), Lifetime(64, (2, 3))]
    assert lay_out(pairs, order_calls(branches), 64).size == 64
    assert lay_out(pairs, order_calls(branches), 128).size == 128
