"""Right operands of large matmuls: packed once at run time, with the same results."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from processors import runnable

import nova
from nova import knobs

LEVELS = runnable("cpu", "x86_64-v3", "x86_64")


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def packs(program: nova.Compiled) -> int:
    """How many operands main packs: a call of a packing kernel for each block of k."""
    main = program.stages["loops"].partition("func.func @main")[2]
    calls = ["", *re.findall(r"call @([a-z]+)_", main)]
    return sum(before != "pack" == after for before, after in pairwise(calls))


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (571, 1401, 1056)])
def test_results_are_those_of_torch(shape, target) -> None:
    m, k, n = shape
    a, b, c = normal(m, k), normal(k, n), normal(n)
    x, y, z = nova.input((m, k)), nova.input((k, n)), nova.input((n,))
    program = nova.compile(nova.relu(x @ y + z), inputs=[x, y, z], target=target)
    assert packs(program) == 1
    left, right, bias = map(torch.from_numpy, (a, b, c))
    expected = torch.relu(left @ right + bias).numpy()
    np.testing.assert_allclose(program(a, b, c), expected, rtol=1e-4, atol=2e-3)


def test_several_matmuls_share_the_buffers() -> None:
    """More operands than buffers, of which some are results: packed again for every use."""
    a, b = normal(1024, 1024), normal(1024, 1024) / 32
    x, y = nova.input((1024, 1024)), nova.input((1024, 1024))
    value, expected = x, a.astype("f8")
    for i in range(6):
        value, expected = (value @ y, expected @ b) if i % 2 else (y @ value, b @ expected)
    program = nova.compile(value, inputs=[x, y])
    assert packs(program) == 6
    assert program.workspace_size <= 8 * a.nbytes + 4096
    np.testing.assert_allclose(program(a, b), expected, rtol=1e-3, atol=5e-3)


def test_threads_give_the_same_bits() -> None:
    a, b = normal(1030, 1100), normal(1100, 1024)
    x, y = nova.input(a.shape), nova.input(b.shape)
    program = nova.compile(x @ y, inputs=[x, y])
    assert packs(program) == 1
    results = []
    for threads in (1, 2, 5):
        with knobs.override(threads=threads):
            results.append(program(a, b))
    assert all(np.array_equal(results[0], result) for result in results[1:])


def test_small_matmuls_and_other_layouts_stay() -> None:
    x, y = nova.input((384, 2048)), nova.input((2048, 1024))
    assert packs(nova.compile(x @ y, inputs=[x, y])) == 0
    x, y = nova.input((1024, 1024)), nova.input((1024, 1024))
    assert packs(nova.compile(x @ y.T, inputs=[x, y])) == 0


def test_a_limit_of_the_workspace_leaves_no_room() -> None:
    x, y = nova.input((1024, 1024)), nova.input((1024, 1024))
    program = nova.compile(x @ y, inputs=[x, y], max_workspace=1 << 20)
    assert packs(program) == 0
    assert program.workspace_size <= 1 << 20


def test_tiles_wait_for_all_blocks_of_packed_rows() -> None:
    """The rows of a tile are in every block of k, so that a tile reads up to the last one."""
    x, w = nova.input((4, 256, 14, 14)), nova.input((256, 256, 3, 3))
    with knobs.override(winograd="off"):
        program = nova.compile(nova.conv2d(x, w, padding=1), inputs=[x, w], target="x86_64-v4")
    kernel = re.search(
        r"nova.packed = \[array<i64: 0, \d+, (\d+)>\], nova.reads = \[\[([^]]*)\]",
        program.stages["loops"],
    )
    assert kernel is not None and int(kernel[1]) > 1
    assert kernel[2] == f"array<i64: 0, {4 * 256 * 256 * 9}, 0, 0, 0>"
