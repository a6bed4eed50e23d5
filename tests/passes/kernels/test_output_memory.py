"""Intermediates in the memory of results: never where a result, or another one, has a value."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workspace_graphs import Graph, graphs, with_gradients

import nova
from nova.api.program_cache import clear_memory_cache
from nova.artifact.tables import BufferSpec
from nova.ir.bindings import func, ir
from nova.ir.context import make_context
from nova.passes.gpu import slice_views
from nova.passes.kernels.workspace import output_memory
from nova.passes.kernels.workspace.assign_offsets import Lifetime, order_calls
from nova.passes.kernels.workspace.output_memory import (
    OutputMemory,
    OutputPlaces,
    OutputUse,
    find_outputs,
    place_buffers,
)

SIM = {"target": "cuda:sm_90a", "run_mode": "sim"}


# --- the places by themselves ---------------------------------------------------------------------


def random_program(seed: int) -> tuple[list[Lifetime], list[OutputMemory], list[int]]:
    """Buffers that calls write and read, and outputs that some calls write in parts."""
    rng = random.Random(seed)
    count = rng.randrange(4, 30)
    outputs: list[tuple[int, list[OutputUse]]] = [
        (rng.randrange(64, 4000), []) for _ in range(rng.randrange(1, 4))
    ]
    touched: list[tuple[list[int], list[int]]] = []
    uses: dict[int, list[int]] = {}
    for call in range(count):
        reads = rng.sample(range(call), min(call, rng.randrange(3)))
        writes = [call]
        if rng.random() < 0.4:
            k = rng.randrange(len(outputs))
            size, parts = outputs[k]
            low, high = sorted(rng.sample(range(size + 1), 2))
            parts.append(OutputUse(call, low, high))
            writes.append(count + k)
        touched.append((reads, writes))
        for buffer in [call, *reads]:
            uses.setdefault(buffer, []).append(call)
    lifetimes = [Lifetime(rng.randrange(1, 1500), tuple(sorted(uses[i]))) for i in range(count)]
    memory = [OutputMemory(size, tuple(parts)) for size, parts in outputs]
    return lifetimes, memory, order_calls(touched)


@pytest.mark.parametrize("ordered", [True, False])
def test_places_are_free_while_they_are_used(ordered: bool) -> None:
    placed = 0
    for seed in range(150):
        buffers, outputs, before = random_program(seed)
        finder = OutputPlaces(buffers, outputs, before, lambda i, k: (i + k) % 7 != 0)
        finder.place(ordered)
        placed += len(finder.places)

        def follows(call: int, buffer: Lifetime, before: list[int] = before) -> bool:
            return all(before[call] >> other & 1 for other in buffer.calls)

        for i, (k, at) in finder.places.items():
            buffer, output = buffers[i], outputs[k]
            assert at % 64 == 0 and at + buffer.nbytes <= output.nbytes and (i + k) % 7 != 0
            for use in output.uses:
                assert use.call not in buffer.calls
                if use.low < at + buffer.nbytes and at < use.high:
                    assert use.call > buffer.last
                    assert not ordered or follows(use.call, buffer)
            for j, (other, start) in finder.places.items():
                if j == i or other != k or start >= at + buffer.nbytes:
                    continue
                if at >= start + buffers[j].nbytes:
                    continue
                early, late = sorted((buffer, buffers[j]), key=lambda b: b.first)
                assert early.last < late.first
                assert not ordered or follows(late.first, early)
    assert placed > 100  # of about 2500


def test_outputs_are_used_where_memory_matters() -> None:
    """By default only in place of a large workspace; with a limit in place of recomputation."""
    chain = [([], [0]), ([0], [1]), ([1], [2]), ([2], [3])]
    lifetimes = [Lifetime(64, (0, 1)), Lifetime(64, (1, 2)), Lifetime(64, (2, 3))]
    outputs = [OutputMemory(128, (OutputUse(3, 0, 128),))]

    def size(limit: int | None, on_device: bool = False) -> int:
        finder = OutputPlaces(lifetimes, outputs, order_calls(chain), lambda i, k: True)
        return place_buffers(finder, limit, None, on_device).size

    assert [size(None), size(128), size(127), size(0)] == [128, 128, 64, 64]
    with mock.patch.object(output_memory, "_LARGE", 0):
        assert size(None) == size(None, on_device=True) == 64


def test_independent_kernels_wait_for_memory_only_where_they_have_to() -> None:
    """The last call writes the output and does not depend on those that use buffer 0."""
    touched = [([], [0]), ([0], [1]), ([], [2]), ([2], [3])]
    lifetimes = [Lifetime(64, (0, 1)), Lifetime(64, (2, 3))]
    outputs = [OutputMemory(128, (OutputUse(3, 0, 128),))]

    def places(limit: int | None, on_device: bool) -> list[Any]:
        finder = OutputPlaces(lifetimes, outputs, order_calls(touched), lambda i, k: True)
        with mock.patch.object(output_memory, "_LARGE", 0):
            return [k for k, _ in place_buffers(finder, limit, None, on_device).places]

    assert places(None, on_device=False) == places(64, on_device=False) == [None, None]
    assert places(None, on_device=True) == [0, None]


KERNELS = """
func.func private @part(%y: memref<64x4xf32>) attributes {nova.kernel} {
  %v = memref.reinterpret_cast %y to offset: [32], sizes: [8, 4], strides: [4, 1]
    : memref<64x4xf32> to memref<8x4xf32, strided<[4, 1], offset: 32>>
  %c = memref.collapse_shape %v [[0, 1]]
    : memref<8x4xf32, strided<[4, 1], offset: 32>> into memref<32xf32, strided<[1], offset: 32>>
  call @other(%c) : (memref<32xf32, strided<[1], offset: 32>>) -> ()
  return
}
func.func private @whole(%y: memref<64x4xf32>) attributes {nova.kernel} {
  %v = memref.collapse_shape %y [[0, 1]] : memref<64x4xf32> into memref<256xf32>
  call @bytes(%v) : (memref<256xf32>) -> ()
  return
}
func.func private @dynamic(%y: memref<64x4xf32>, %n: index) attributes {nova.kernel} {
  %v = memref.reinterpret_cast %y to offset: [%n], sizes: [8, 4], strides: [4, 1]
    : memref<64x4xf32> to memref<8x4xf32, strided<[4, 1], offset: ?>>
  call @moved(%v) : (memref<8x4xf32, strided<[4, 1], offset: ?>>) -> ()
  return
}
func.func private @unused(%y: memref<64x4xf32>) attributes {nova.kernel} { return }
func.func private @loop(%y: memref<64x4xf32>)
func.func private @other(memref<32xf32, strided<[1], offset: 32>>)
func.func private @bytes(memref<256xf32>)
func.func private @moved(memref<8x4xf32, strided<[4, 1], offset: ?>>)
func.func @main(%n: index, %y: memref<64x4xf32>) {
  call @part(%y) : (memref<64x4xf32>) -> ()
  call @unused(%y) : (memref<64x4xf32>) -> ()
  call @whole(%y) : (memref<64x4xf32>) -> ()
  call @dynamic(%y, %n) : (memref<64x4xf32>, index) -> ()
  call @loop(%y) : (memref<64x4xf32>) -> ()
  return
}
"""


def test_kernels_access_the_bytes_of_their_views() -> None:
    with make_context() as context, ir.Location.unknown():
        module = ir.Module.parse(KERNELS, context)
        named = {f.name.value: f for f in module.body.operations}
        main = named["main"]
        calls = [op.operation for op in main.entry_block.operations if isinstance(op, func.CallOp)]
        [output] = find_outputs([main.entry_block.arguments[1]], calls, named)
    whole = [OutputUse(time, 0, 1024) for time in (2, 3, 4)]
    assert output == OutputMemory(1024, (OutputUse(0, 128, 256), OutputUse(1, 0, 0), *whole))


# --- programs -------------------------------------------------------------------------------------


@contextmanager
def outputs_used_from(least: int) -> Iterator[None]:
    """Inside, programs whose workspace is larger use the memory of outputs."""
    clear_memory_cache()
    with mock.patch.object(output_memory, "_LARGE", least), nova.knobs.override(cache=False):
        yield
    clear_memory_cache()


def compile_both(graph: Graph, **where: Any) -> list[nova.Compiled]:
    """The program with the memory of outputs in use, and without."""
    programs = []
    for least in (0, 1 << 60):
        small = {} if where else {"serial_work": 0, "tile_work": 300}
        with outputs_used_from(least), nova.knobs.override(**small):
            programs.append(
                nova.compile(
                    graph.outputs,
                    inputs=graph.inputs,
                    params=graph.params,
                    updates=graph.updates,
                    **where,
                )
            )
    return programs


def output_parts(program: nova.Compiled) -> list[BufferSpec]:
    return [b for b in program.artifact.tables(0).buffers if b.kind == "output_part"]


def run(program: nova.Compiled, graph: Graph) -> list[np.ndarray]:
    """Results, in memory that has NaN before, and the params after the run."""
    arrays = [t.data.copy() for t in [*graph.inputs, *graph.params]]
    count = len(graph.inputs)
    out = [np.full(o.shape, np.nan, o.dtype.numpy) for o in graph.outputs]
    program.run(arrays[:count], arrays[count:], out=out if len(out) > 1 else out[0])
    return [*out, *arrays]


def check_same_bits(graph: Graph, **where: Any) -> None:
    graph = with_gradients(graph)
    shared, plain = compile_both(graph, **where)
    assert shared.workspace_size <= plain.workspace_size
    assert not output_parts(plain)
    for _ in range(2):
        for a, b in zip(run(shared, graph), run(plain, graph), strict=True):
            np.testing.assert_array_equal(a, b)


def check_host(graph: Graph, threads: int) -> None:
    with nova.knobs.override(threads=threads):
        check_same_bits(graph)


def check_device(graph: Graph) -> None:
    check_same_bits(graph, **SIM)


def generated(examples: int, body: Any, *strategies: Any) -> Any:
    quick = settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    return quick(given(*strategies)(body))


THREADS = st.sampled_from([1, 2, 8])

test_random_programs_have_the_same_bits = generated(8, check_host, graphs(), THREADS)
test_random_programs_on_a_device = generated(3, check_device, graphs())
test_more_random_programs = pytest.mark.slow(generated(150, check_host, graphs(), THREADS))
test_more_random_programs_on_a_device = pytest.mark.slow(generated(40, check_device, graphs()))


VALUE = 48 * 48 * 4


def chain(dtype: str = "f4") -> Graph:
    """Six matmuls in a chain, then one with a wide result, and sums of its rows if that is f32."""
    rng = np.random.default_rng(0)
    x = nova.tensor(rng.standard_normal((48, 48)).astype(np.float32), name="x")
    w = nova.tensor(rng.standard_normal((48, 480)).astype(np.float32), name="w")
    value = x
    for _ in range(6):
        value = x @ value * 0.1
    wide = nova.cast(value @ w, dtype=dtype)
    sums = [nova.sum(wide, axis=1)] if dtype == "f4" else []
    return Graph([x, w], [], [wide, *sums], {})


@pytest.mark.parametrize("where", [{}, SIM], ids=["cpu", "sim"])
def test_intermediates_are_in_results(where: dict[str, Any]) -> None:
    """All but the last one, which the kernel that writes the result reads."""
    graph = chain()
    shared, plain = compile_both(graph, **where)
    assert len(output_parts(shared)) == 2 and shared.workspace_size == VALUE
    assert plain.workspace_size == 2 * VALUE
    for threads in (1, 4):
        with nova.knobs.override(threads=threads):
            for a, b in zip(run(shared, graph), run(plain, graph), strict=True):
                np.testing.assert_array_equal(a, b)


def test_the_memory_of_results_comes_before_recomputation() -> None:
    graph = chain()
    _, plain = compile_both(graph)
    with nova.knobs.override(serial_work=0, tile_work=300, cache=False):
        tight = nova.compile(graph.outputs, inputs=graph.inputs, max_workspace=VALUE)
        with pytest.raises(nova.errors.WorkspaceError, match=f"needs {VALUE} bytes"):
            nova.compile(graph.outputs, inputs=graph.inputs, max_workspace=VALUE - 1)
    assert output_parts(tight) and tight.workspace_size == VALUE
    assert launches(tight) == launches(plain)
    for a, b in zip(run(tight, graph), run(plain, graph), strict=True):
        np.testing.assert_array_equal(a, b)


def launches(program: nova.Compiled) -> list[int]:
    return [launch.kernel for launch in program.artifact.tables(0).launches]


def test_a_file_keeps_them(tmp_path: Any) -> None:
    graph = chain()
    shared, _ = compile_both(graph)
    shared.save(tmp_path / "chain.nova")
    loaded = nova.load(tmp_path / "chain.nova")
    assert loaded.workspace_size == shared.workspace_size
    assert loaded.artifact.tables(0).buffers == shared.artifact.tables(0).buffers
    for a, b in zip(run(loaded, graph), run(shared, graph), strict=True):
        np.testing.assert_array_equal(a, b)


def test_narrow_results_of_a_caller_hold_no_wide_values() -> None:
    """An array of halves may begin at any even address; a device aligns its memory itself."""
    graph = chain("f16")
    shared, plain = compile_both(graph)
    assert not output_parts(shared) and shared.workspace_size == plain.workspace_size
    on_device, _ = compile_both(graph, **SIM)
    assert [part.output for part in output_parts(on_device)] == [0, 0]


def test_loops_and_their_bodies_use_no_results() -> None:
    """The memory of a loop has pointers, and the results of its body may be its carries."""
    x = nova.tensor(np.eye(32, dtype=np.float32), name="x")

    def body(carry: Any) -> Any:
        wide = carry @ x
        return nova.tanh(wide @ carry) + wide

    value = nova.fori_loop(0, 5, lambda i, carry: body(carry), x @ x, unroll=1)
    graph = Graph([x], [], [nova.tanh(value @ x), value * 2.0], {})
    shared, plain = compile_both(graph)
    tables = shared.artifact.tables(0)
    controls = [k for k in tables.kernels if k.control is not None]
    assert controls
    for launch in tables.launches:
        if tables.kernels[launch.kernel].control is not None:
            assert all(tables.buffers[b].kind != "output_part" for b in launch.buffers)
    assert all(b.kind != "output_part" for region in tables.regions for b in region.buffers)
    for a, b in zip(run(shared, graph), run(plain, graph), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loss_in_chunks_keeps_statistics_in_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of a chunk are in rows of the gradient that the last chunk writes."""
    monkeypatch.setattr(slice_views, "_LEAST_BYTES", 0)
    rng = np.random.default_rng(0)
    rows, features, classes = 512, 64, 256
    arrays = [
        (0.1 * rng.standard_normal(shape)).astype(ml_dtypes.bfloat16)
        for shape in ((rows, features), (classes, features))
    ]
    target = rng.integers(0, classes, rows)
    x, weight = (nova.tensor(a, requires_grad=True) for a in arrays)
    labels = nova.tensor(target)

    def loss(x: Any, weight: Any) -> Any:
        return nova.linear_cross_entropy(x, weight, labels, chunk_bytes=128 * classes * 2)

    outputs = [loss(x, weight), *nova.grad(loss, argnums=(0, 1))(x, weight)]
    graph = Graph([x, weight, labels], [], outputs, {})
    shared, plain = compile_both(graph, **SIM)
    assert shared.workspace_size < plain.workspace_size
    row_gradient = [part for part in output_parts(shared) if part.output == 1]
    assert sum(part.nbytes == 4 * 128 and part.value >= 128 * 128 for part in row_gradient) >= 6
    for a, b in zip(shared(*arrays, target), plain(*arrays, target), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_large_loss_needs_the_scores_of_a_chunk_only() -> None:
    """Those of GPT-2: a quarter of all scores, and nothing for the statistics of their rows."""
    rows, features, classes = 8192, 768, 50304
    x, weight = (
        nova.tensor(np.broadcast_to(np.zeros((), ml_dtypes.bfloat16), shape), requires_grad=True)
        for shape in ((rows, features), (classes, features))
    )
    labels = nova.tensor(np.broadcast_to(np.zeros((), np.int64), rows))

    def loss(x: Any, weight: Any) -> Any:
        return nova.linear_cross_entropy(x, weight, labels)

    outputs = [loss(x, weight), *nova.grad(loss, argnums=(0, 1))(x, weight)]
    program = nova.compile(outputs, inputs=[x, weight, labels], target="cuda:sm_90a")
    assert program.workspace_size == rows // 4 * classes * 2
