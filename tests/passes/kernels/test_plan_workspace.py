"""plan-workspace: buffers that live at the same time never share a byte, on random graphs.

Lifetimes are worked out here from main's calls alone, and compared with the offsets that the
launch table gives the runtime.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workspace_graphs import Graph, N, data, graphs, with_gradients

import nova
from nova.artifact.tables import Tables
from nova.compiler.tables import read_tables
from nova.graph.interpret import evaluate
from nova.ir.bindings import ir
from nova.ir.context import make_context
from nova.ir.emit import emit_module
from nova.ir.walk import find_function
from nova.passes.base import run_pipeline
from nova.passes.kernels.form_kernels import FormKernels
from nova.passes.pipelines import buffers_to_loops, kernels_to_buffers, nova_to_linalg
from nova.plan import build_plan


@dataclass(frozen=True)
class Placed:
    """One buffer of main in the workspace, with its first and last launch."""

    offset: int
    size: int
    first: int
    last: int


def _check(graph: Graph, serial_work: int) -> tuple[list[Placed], Tables]:
    """Lower a graph, check its workspace, and give the buffers and tables to look at.

    With `serial_work=0` every group is a kernel of its own. Buffers are read before main is
    simplified: what has one offset and type is one value afterwards.
    """
    plan = build_plan(graph.outputs, graph.inputs, graph.params, graph.updates)
    module = emit_module(plan, make_context())
    forming = FormKernels(serial_work=serial_work)
    run_pipeline(module, [*nova_to_linalg(), forming, *kernels_to_buffers()])
    placed = _placed(module)
    run_pipeline(module, buffers_to_loops())
    tables = read_tables(module).tables
    for buffer in placed:
        assert buffer.offset % 64 == 0
        assert buffer.offset + buffer.size <= tables.workspace_size
    for i, a in enumerate(placed):
        for b in placed[i + 1 :]:
            if a.first <= b.last and b.first <= a.last:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset, (a, b)
    # What the runtime is told is what main says.
    reported = {(b.value, b.nbytes) for b in tables.buffers if b.kind == "workspace"}
    assert reported == {(b.offset, b.size) for b in placed}
    return placed, tables


def _placed(module: ir.Module) -> list[Placed]:
    """Every view of the workspace with its lifetime, from main's text order."""
    main = find_function(module, "main")
    assert main is not None
    workspace = list(main.entry_block.arguments)[-1]
    uses: dict[Any, list[int]] = {}
    time = 0
    for op in main.entry_block.operations:
        if op.operation.name == "func.call":
            for operand in op.operation.operands:
                value = operand
                while isinstance(value, ir.OpResult) and value.owner.operation.name not in (
                    "memref.view",
                    "memref.get_global",
                    "arith.constant",
                ):
                    value = value.owner.operation.operands[0]
                if isinstance(value, ir.OpResult) and value.owner.operation.name == "memref.view":
                    uses.setdefault(value, []).append(time)
            time += 1
    placed = []
    for view, times in uses.items():
        source, offset = list(view.owner.operation.operands)[:2]
        assert source == workspace
        at = int(offset.owner.operation.attributes["value"].value)
        bits = str(view.type.element_type).lstrip("bfiu")
        size = int(np.prod(view.type.shape, dtype=np.int64)) * (int(bits) // 8)
        placed.append(Placed(at, size, min(times), max(times)))
    return placed


def generated(examples: int, body: Callable[..., None], *given_by: Any) -> Callable[..., None]:
    """`body` as a test over that many examples."""
    quick = settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return quick(given(*given_by)(body))


def check_buffers(graph: Graph, serial_work: int) -> None:
    _check(graph, serial_work)


def compile_graph(graph: Graph, max_workspace: int | None = None) -> nova.Compiled:
    with nova.knobs.override(serial_work=0, tile_work=300):
        return nova.compile(
            graph.outputs,
            inputs=graph.inputs,
            params=graph.params,
            updates=graph.updates,
            max_workspace=max_workspace,
        )


def check_numbers(graph: Graph) -> None:
    check_results(graph, compile_graph(graph))


def check_least(graph: Graph) -> None:
    """With the least memory the numbers are right, too: values are computed again."""
    graph = with_gradients(graph)
    plain = compile_graph(graph)
    try:
        program = compile_graph(graph, 0)
    except nova.errors.WorkspaceError as error:
        result = re.search(r"max_workspace=(\d+) is the least", error.hint or "")
        assert result is not None and int(result[1]) <= plain.workspace_size
        program = compile_graph(graph, int(result[1]))
        assert program.workspace_size <= int(result[1])
    check_results(graph, program)


def check_results(graph: Graph, program: nova.Compiled) -> None:
    arrays = [t.data.copy() for t in [*graph.inputs, *graph.params]]
    count = len(graph.inputs)
    results = program.run(arrays[:count], arrays[count:])
    results = results if isinstance(results, tuple) else (results,)
    expected = evaluate([*graph.outputs, *graph.updates.values()])
    new = dict(zip(graph.updates, expected[len(graph.outputs) :], strict=True))
    for result, reference in zip(results, expected, strict=False):
        np.testing.assert_allclose(result, reference, rtol=1e-3, atol=1e-4)
    for tensor, array in zip([*graph.inputs, *graph.params], arrays, strict=True):
        np.testing.assert_allclose(array, new.get(tensor, tensor.data), rtol=1e-3, atol=1e-4)


WORK = st.sampled_from([0, 4000, 20_000])

test_buffers_that_live_together_do_not_overlap = generated(30, check_buffers, graphs(), WORK)
test_random_programs_with_updates_compute_the_right_numbers = generated(15, check_numbers, graphs())
test_random_programs_in_the_least_memory = generated(4, check_least, graphs())
test_more_programs_in_the_least_memory = pytest.mark.slow(generated(100, check_least, graphs()))
test_more_buffers_do_not_overlap = pytest.mark.slow(generated(400, check_buffers, graphs(), WORK))
test_more_programs_with_updates = pytest.mark.slow(generated(200, check_numbers, graphs()))


def test_a_chain_uses_two_buffers() -> None:
    """However long it is: each step's input is dead when the next one is done."""
    x = nova.tensor(data(0), name="x")
    value = x
    for _ in range(12):
        value = x @ value  # which reads all rows of the step before: no kernel takes two of them
    placed, tables = _check(Graph([x], [], [value], {}), serial_work=0)
    assert len(placed) == 11
    assert tables.workspace_size == 2 * N * N * 4


@pytest.mark.parametrize("shape", [(0, 4), (), (1,)], ids=str)
def test_odd_sizes(shape: tuple[int, ...]) -> None:
    x = nova.tensor(np.ones(shape, np.float32), name="x")
    value = nova.sum(nova.exp(x) * 2.0) + 1.0
    _check(Graph([x], [], [value, x], {}), serial_work=0)


def test_one_buffer_of_bytes_that_is_the_whole_workspace() -> None:
    """A view of all of it folds away."""
    x = nova.tensor(np.linspace(-1, 1, 64, dtype=np.float32), name="x")
    with nova.knobs.override(serial_work=0, tile_work=500):
        large = nova.sin(x) > 0.1
        outputs = [nova.where(large, x, 0.0), nova.sum(nova.where(large, x * x, x))]
        program = nova.compile(outputs, inputs=[x])
    for actual, want in zip(program.run([x.data]), evaluate(outputs), strict=True):
        np.testing.assert_allclose(actual, want, rtol=1e-6)
