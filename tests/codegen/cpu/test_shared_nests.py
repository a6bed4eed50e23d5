"""Epilogues with the same body are one function, whatever the sizes of their matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

import nova
from nova.compiler.recorder import Recorder
from nova.compiler.stages import run_stages, start_from_plan
from nova.core.settings import Settings
from nova.ir.context import print_op
from nova.plan import Plan, build_plan


def layer(
    rows: int, depth: int, columns: int, name: str, scale: float = 0.5
) -> tuple[list, nova.Tensor]:
    """A matmul with a bias, a residual and an activation."""
    shapes = {"x": (rows, depth), "w": (depth, columns), "b": (columns,), "r": (rows, columns)}
    tensors = {
        key: nova.tensor(np.zeros(shape, np.float32), name=f"{key}_{name}")
        for key, shape in shapes.items()
    }
    x, w, b, r = tensors.values()
    return list(tensors.values()), nova.tanh((x @ w + b) * scale + r)


def layers_plan(sizes: Sequence[tuple[int, int, int]], scales: Sequence[float]) -> Plan:
    made = [
        layer(*size, str(i), scale)
        for i, (size, scale) in enumerate(zip(sizes, scales, strict=True))
    ]
    return build_plan([result for _, result in made], [t for tensors, _ in made for t in tensors])


def shared_functions(plan: Plan, target: str) -> list[str]:
    recorder = Recorder()
    module = start_from_plan(plan, recorder)
    run_stages(module, Settings(target=target), recorder, until="loops")
    text = print_op(module.operation)
    return re.findall(r"func\.func private @(nova_rows_\w+)", text)


@pytest.mark.parametrize(
    ("sizes", "scales", "count"),
    [
        ([(784, 256, 512)], [0.5], 1),
        ([(784, 256, 512), (448, 160, 256)], [0.5, 0.5], 1),
        # Another constant, and columns that are not whole vectors.
        ([(784, 256, 512), (448, 160, 256)], [0.5, 0.25], 2),
        ([(784, 256, 512), (448, 160, 500)], [0.5, 0.5], 2),
    ],
)
def test_equal_bodies_are_one_function(
    sizes: list[tuple[int, int, int]], scales: list[float], count: int
) -> None:
    assert len(shared_functions(layers_plan(sizes, scales), "x86_64-v3")) == count


def test_a_number_for_each_row_stays_in_the_kernel() -> None:
    x, w, b = (
        nova.tensor(np.zeros(shape, np.float32), name=name)
        for name, shape in {"x": (784, 256), "w": (256, 512), "b": (784, 1)}.items()
    )
    plan = build_plan([nova.tanh((x @ w + b) * 0.5)], [x, w, b])
    assert shared_functions(plan, "x86_64-v3") == []


@pytest.mark.parametrize("target", ["cpu", "x86_64"])
@pytest.mark.parametrize("columns", [(512, 256), (500, 264), (131, 16)])
def test_layers_of_several_sizes_agree_with_numpy(target: str, columns: tuple[int, int]) -> None:
    sizes = [(400, 160, columns[0]), (250, 130, columns[1])]
    made = [layer(*size, str(i)) for i, size in enumerate(sizes)]
    inputs = [tensor for tensors, _ in made for tensor in tensors]
    program = nova.compile([result for _, result in made], inputs=inputs, target=target)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(tensor.shape).astype(np.float32) / 8 for tensor in inputs]
    results = program(*arrays)
    for i, result in enumerate(results):
        x, w, b, r = arrays[4 * i : 4 * i + 4]
        np.testing.assert_allclose(result, np.tanh((x @ w + b) * 0.5 + r), rtol=1e-4, atol=1e-5)
