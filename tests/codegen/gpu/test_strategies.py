"""The list of strategies: every one is reached, and a kernel uses the first that has a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.schedule import STRATEGIES, DeviceSchedule
from nova.compiler.stages import start_from_text
from nova.core.targets import parse_target
from nova.ir.bindings import ir
from nova.ir.walk import kernels

_TARGETS = dict.fromkeys(
    ("wgmma_gemm", "wgmma_attention", "cluster_argreduce", "shared_rows"), "cuda:sm_90a"
)
"""Targets of strategies that not all GPUs have."""


def _target_of(name: str) -> str:
    return _TARGETS.get(name, "cuda:sm_80")


_RANDOM = np.random.default_rng(0)


def _array(*shape: int, dtype: Any = "f4") -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _embedding_gradient(w: nova.Tensor, i: nova.Tensor, y: nova.Tensor) -> nova.Tensor:
    w.requires_grad = True
    nova.backward(nova.sum(nova.embedding(w, i) * y))
    return w.grad


Program = tuple[Callable[..., nova.Tensor], list[np.ndarray]]

PROGRAMS: dict[str, Program] = {
    "gemv": (lambda x, w: x @ w.T, [_array(1, 256), _array(300, 256)]),
    "wgmma_gemm": (lambda x, w: x @ w, [_array(1024, 1024, dtype=ml_dtypes.bfloat16)] * 2),
    "gemm": (lambda x, w, b: nova.relu(x @ w + b), [_array(128, 64), _array(64, 96), _array(96)]),
    "wgmma_attention": (
        nova.scaled_dot_product_attention,
        [_array(2, 256, 32, dtype=ml_dtypes.bfloat16)] * 3,
    ),
    "decode_attention": (
        nova.scaled_dot_product_attention,
        [_array(2, 3, 32), _array(2, 256, 32), _array(2, 256, 32)],
    ),
    "attention": (nova.scaled_dot_product_attention, [_array(2, 64, 32)] * 3),
    "transpose_tile": (lambda x, y: x.T + y, [_array(128, 300), _array(300, 128)]),
    "scatter": (_embedding_gradient, [_array(500, 64), np.zeros(128, "i8"), _array(128, 64)]),
    "cluster_argreduce": (lambda x: nova.argmax(x), [_array(20_000)]),
    "column_reduce": (lambda x: nova.sum(x, axis=0), [_array(64, 8192)]),
    "row_reduce": (lambda x: nova.logsumexp(x, axis=1), [_array(264, 33_000)]),
    "shared_rows": (nova.softmax, [np.broadcast_to(np.float32(0), (133, 33_001))]),
    "rowwise": (nova.softmax, [_array(300, 1000)]),
    "elementwise": (nova.exp, [_array(64, 300)]),
    "generic": (lambda x: nova.argmax(x, axis=1), [_array(64, 2000)]),
}
"""Strategy -> a program with a kernel of it."""


@contextmanager
def _kernels(program: Program, target: str = "cuda:sm_80") -> Iterator[list[tuple[Any, list[Any]]]]:
    """The kernels of a program at the stage `buffers` with their ops, while this is open."""
    function, arrays = program
    leaves = [nova.tensor(array) for array in arrays]
    compiled = nova.compile(function(*leaves), inputs=leaves, target=target, run_mode="sim")
    module = start_from_text(compiled.stages["buffers"], "-")
    with module.context, ir.Location.unknown():
        yield [
            (kernel, [op.operation for op in kernel.entry_block.operations][:-1])
            for kernel in kernels(module)
        ]


def test_names_are_distinct_and_all_have_a_program() -> None:
    names = [strategy.name for strategy in STRATEGIES]
    assert len(set(names)) == len(names)
    assert set(names) == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_uses_the_first_strategy_with_a_plan(name: str) -> None:
    used = []
    target = parse_target(_target_of(name))
    with _kernels(PROGRAMS[name], _target_of(name)) as functions:
        for function, ops in functions:
            selected = DeviceSchedule(function, ops, target).selected
            for strategy in STRATEGIES:
                if strategy is selected.strategy:
                    break
                kernel = DeviceKernel(function, ops, target)
                assert strategy.select(kernel) is None
            assert selected.plan.blocks > 0 and selected.plan.threads % 32 == 0
            assert selected.plan.min_blocks_per_sm >= 0
            used.append(selected.strategy.name)
    assert name in used


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_last_strategy_takes_every_kernel(name: str) -> None:
    with _kernels(PROGRAMS[name]) as functions:
        for function, ops in functions:
            kernel = DeviceKernel(function, ops, parse_target("cuda:sm_80"))
            assert STRATEGIES[-1].select(kernel) is not None


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_matmuls_of_each_type_are_gemms(dtype: str) -> None:
    operands = [_array(128, 64, dtype=dtype), _array(64, 96, dtype=dtype)]
    with _kernels((lambda x, w: x @ w, operands)) as functions:
        schedule = DeviceSchedule(*functions[0], parse_target("cuda:sm_80"))
        assert schedule.selected.strategy.name == "gemm" and schedule.kernel.grid == (128, 96)


@pytest.mark.parametrize(
    ("name", "points", "inner_size"),
    [("elementwise", 64 * 300, 1), ("column_reduce", 8192, 64), ("rowwise", 300, 1000)],
)
def test_points_and_iterations(name: str, points: int, inner_size: int) -> None:
    with _kernels(PROGRAMS[name]) as functions:
        kernel = DeviceKernel(*functions[0], parse_target("cuda:sm_80"))
        assert (kernel.num_points, kernel.inner_size) == (points, inner_size)
