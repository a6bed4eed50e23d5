"""The edges of the CUDA graphs of programs: dependences, branches, and dependent launches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from device_samples import SIZE, FakeCuda, chain_contents, make_contents, model_of

import nova
from nova import _native, knobs
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import (
    BufferSpec,
    KernelSpec,
    LaunchSpec,
    Tables,
    pack_tables,
    unpack_tables,
)
from nova.artifact.task_plan import plan_device_tasks
from nova.artifact.write import FileSpec

x = np.arange(SIZE, dtype="f4") - 40
NBYTES = 4 * SIZE
LONG = 10**11
"""Operations of a kernel that is worth a branch."""


def kernel(name: str, flops: int, dependent: bool) -> KernelSpec:
    shape = DeviceLaunch((3, 1, 1), (32, 1, 1), dependent=dependent)
    return KernelSpec(name, name, 1, "device", flops, 0, "model.py:3", device=shape)


def diamond(flops: int, dependent: bool = False) -> FileSpec:
    """y = 2 x + 2 x, by two launches that do not depend on each other, and a third."""
    tables = Tables(
        buffers=(
            BufferSpec("arg", 0, NBYTES),
            BufferSpec("output", 0, NBYTES),
            BufferSpec("workspace", 0, NBYTES),
            BufferSpec("workspace", 512, NBYTES),
        ),
        kernels=(kernel("scale", flops, dependent), kernel("add", flops, dependent)),
        launches=(
            LaunchSpec(0, (0, 2), 1),
            LaunchSpec(0, (0, 3), 1),
            LaunchSpec(1, (2, 3, 1), 2),
        ),
        workspace_size=1024,
        work=100,
    )
    args = [TensorSpec("x", (SIZE,), "f32", "input")]
    return make_contents(tables, args, [TensorSpec("y", (SIZE,), "f32", "output")])


def shape_of(model: Any) -> tuple[int, int, int, int]:
    return model._executable.program.graph_shape()


def edges(fake: FakeCuda, contents: FileSpec, device: _native.Device) -> tuple[int, int]:
    """The edges without data, and the dependent ones, of the graph of a program."""
    model = model_of(contents, device)
    for _ in range(3):
        model(x)
    return fake.count("full edge"), fake.count("cuGraphAddDependencies")


def test_a_chain_waits_with_full_edges(fake: FakeCuda, device: _native.Device) -> None:
    assert edges(fake, chain_contents(), device) == (2, 0)


def test_short_kernels_are_a_chain(fake: FakeCuda, device: _native.Device) -> None:
    assert edges(fake, diamond(flops=0), device) == (2, 0)
    assert shape_of(model_of(diamond(flops=0), device)) == (3, 2, 0, 0)


def test_long_kernels_are_branches(fake: FakeCuda, device: _native.Device) -> None:
    # 0 -> 2 and 1 -> 2: the second launch starts with the first
    assert edges(fake, diamond(LONG), device) == (2, 0)
    assert shape_of(model_of(diamond(LONG), device)) == (3, 2, 0, 1)


def test_kernels_that_wait_are_launched_early(fake: FakeCuda, device: _native.Device) -> None:
    with knobs.override(device_overlap="dependent"):
        assert edges(fake, diamond(0, dependent=True), device) == (0, 2)
        assert shape_of(model_of(diamond(0, dependent=True), device)) == (3, 2, 2, 0)


def test_a_chain_of_kernels_that_wait_is_dependent_by_default(device: _native.Device) -> None:
    assert shape_of(model_of(diamond(0, dependent=True), device)) == (3, 2, 2, 0)


@pytest.mark.parametrize(("overlap", "dependent"), [("auto", 0), ("dependent", 5)])
def test_a_launch_after_a_long_one_is_dependent_only_if_the_knob_asks(
    device: _native.Device, overlap: str, dependent: int
) -> None:
    with knobs.override(device_overlap=overlap):
        assert shape_of(model_of(fork(4, flops=1), device))[2] == 5
        assert shape_of(model_of(fork(4, flops=LONG), device))[2] == dependent


def test_forks_and_joins_are_not_dependent_launches(device: _native.Device) -> None:
    assert shape_of(model_of(diamond(LONG, dependent=True), device)) == (3, 2, 0, 1)


@pytest.mark.parametrize(
    ("overlap", "shape"),
    [
        ("auto", (3, 2, 0, 1)),
        ("dependent", (3, 2, 2, 0)),
        ("branches", (3, 2, 0, 1)),
        ("off", (3, 2, 0, 0)),
    ],
)
def test_the_knob_chooses(
    device: _native.Device, overlap: str, shape: tuple[int, int, int, int]
) -> None:
    with knobs.override(device_overlap=overlap):
        assert shape_of(model_of(diamond(LONG, dependent=True), device)) == shape


@pytest.mark.parametrize(("overlap", "kernels"), [("off", 0), ("dependent", 2)])
def test_blocks_of_dependent_launches_are_spread(
    fake: FakeCuda, device: _native.Device, overlap: str, kernels: int
) -> None:
    """Three blocks on 132 multiprocessors: shared memory keeps a second one away."""
    with knobs.override(device_overlap=overlap):
        model_of(diamond(0, dependent=True), device)
    assert fake.count("cuFuncSetAttribute") == kernels


def fork(after: int, shared: int = 0, flops: int = 0) -> FileSpec:
    """y = 4 x, which no launch needs, and z = 2 ** (1 + after) x, by a chain of launches."""
    scale = kernel("scale", flops, dependent=True)
    assert scale.device is not None
    scale = replace(scale, device=replace(scale.device, shared=shared))
    chain = [2, *range(3, 2 + after), 1]
    tables = Tables(
        buffers=(
            BufferSpec("output", 0, NBYTES),
            BufferSpec("output", 1, NBYTES),
            *(BufferSpec("workspace", 512 * i, NBYTES) for i in range(after)),
            BufferSpec("arg", 0, NBYTES),
        ),
        kernels=(scale,),
        launches=(
            LaunchSpec(0, (2 + after, 2), 1),
            LaunchSpec(0, (2, 0), 1),
            *(LaunchSpec(0, pair, 1) for pair in pairwise(chain)),
        ),
        workspace_size=512 * after,
        work=100,
    )
    args = [TensorSpec("x", (SIZE,), "f32", "input")]
    results = [TensorSpec(name, (SIZE,), "f32", "output") for name in "yz"]
    return make_contents(tables, args, results)


def test_a_launch_that_is_not_needed_runs_with_those_after_it(device: _native.Device) -> None:
    model = model_of(fork(6), device)
    # 0 -> 1 is a full edge; 0 -> 2 and those after it are a chain of dependent launches
    assert shape_of(model) == (8, 7, 6, 1)
    for _ in range(3):
        y, z = model(x)
        np.testing.assert_array_equal(y, 4 * x)
        np.testing.assert_array_equal(z, 2.0**7 * x)


def test_a_concurrent_launch_leaves_the_edges_of_the_chain(
    fake: FakeCuda, device: _native.Device
) -> None:
    assert edges(fake, fork(6), device) == (1, 6)


def test_a_concurrent_launch_without_dependent_launches(
    fake: FakeCuda, device: _native.Device
) -> None:
    with knobs.override(device_overlap="branches"):
        assert edges(fake, fork(6), device) == (7, 0)


def test_a_launch_that_would_keep_others_away_is_part_of_the_chain(device: _native.Device) -> None:
    assert shape_of(model_of(fork(6, shared=120 << 10), device)) == (8, 7, 7, 0)


def test_the_last_launches_are_a_chain(device: _native.Device) -> None:
    assert shape_of(model_of(fork(4), device)) == (6, 5, 5, 0)


def test_flags_of_kernels_survive_the_file() -> None:
    tables = diamond(LONG, dependent=True).variants[0].tables
    first, *others = tables.kernels
    assert first.device is not None
    matrix = replace(first, device=replace(first.device, core="matrix"))
    tables = replace(tables, kernels=(matrix, *others))
    assert unpack_tables(pack_tables(tables)) == tables


def test_flags_of_a_device_need_their_format(fake: FakeCuda, device: _native.Device) -> None:
    block = bytearray(pack_tables(diamond(0, dependent=True).variants[0].tables))
    assert block[:8] == b"NOVATBL8"
    block[:8] = b"NOVATBL6"
    with pytest.raises(ValueError, match="has flags 0x1000"):
        _native.plan_tasks(bytes(block), 1, 0, 1, True)


def test_tasks_of_launches_follow_their_buffers() -> None:
    tasks = plan_device_tasks(diamond(0).variants[0].tables, 1)
    assert [(task.launch, task.waits, task.successors) for task in tasks] == [
        (0, 0, (2,)),
        (1, 0, (2,)),
        (2, 2, ()),
    ]


def two_branches(a: Any, b: Any) -> Any:
    left = nova.tanh(a @ b) @ a
    right = nova.exp(b @ a * 0.01) @ b
    return nova.softmax(left + right), left.sum(0), right * 2.0


def test_branches_on_the_simulator_match_numpy() -> None:
    """The simulator runs branches in another order than the program."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((32, 32), np.float32) * 0.3 for _ in range(2))
    step = nova.jit(two_branches, target="cuda:sm_90a", run_mode="sim")
    left = np.tanh(a @ b) @ a
    right = np.exp(b @ a * np.float32(0.01)) @ b
    exact = np.exp(left + right)
    expected = exact / exact.sum(-1, keepdims=True), left.sum(0), right * 2
    for _ in range(3):  # a graph from the second run on
        for result, value in zip(step(a, b), expected, strict=True):
            np.testing.assert_allclose(np.asarray(result), value, rtol=2e-4, atol=1e-5)
