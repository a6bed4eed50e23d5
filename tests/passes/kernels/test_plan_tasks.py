"""The task graph: every conflict in memory is ordered, and the order is all that a run needs.

What the compiler claims of each task is checked against its machine code: damage everywhere else
changes nothing, and nothing else is changed. From those claims all pairs of tasks are compared
here, one by one; the graph itself was made another way. Then programs run in random orders that the
graph allows, and give the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_tasks import Loaded, Memory, Spans, load_module, load_plan
from workspace_graphs import Graph, graphs

import nova
from nova import nn
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables, TaskSpec
from nova.artifact.task_plan import plan_tasks
from nova.artifact.tilings import OperandRange, Tiling
from nova.compiler.stages import start_from_text
from nova.core.settings import Settings
from nova.graph.autodiff import gradients
from nova.plan import Plan, build_plan

# Tiles of a few elements and a task for each, so that small programs have many.
FINE = Settings(serial_work=0, tile_work=256, task_ns=1)


# --- the checker ----------------------------------------------------------------------------------


def check_shape(loaded: Loaded) -> None:
    """What docs/nova-format.md says of the records."""
    tasks, tables = loaded.tables.tasks, loaded.tables
    named = [0] * len(tasks)
    for number, task in enumerate(tasks):
        assert list(task.successors) == sorted(set(task.successors))
        assert all(number < s < len(tasks) for s in task.successors)
        for successor in task.successors:
            named[successor] += 1
    assert named == [t.waits for t in tasks]
    assert [t.launch for t in tasks] == sorted(t.launch for t in tasks)
    for launch, record in enumerate(tables.launches):
        tile = 0
        for task in (t for t in tasks if t.launch == launch):
            assert task.begin == tile <= task.end
            tile = task.end
        assert tile == tables.kernels[record.kernel].grid


def reachable(tasks: tuple[TaskSpec, ...]) -> np.ndarray:
    """[i, j]: whether task j comes after task i on some path."""
    after = np.zeros((len(tasks), len(tasks)), bool)
    for i in reversed(range(len(tasks))):
        for successor in tasks[i].successors:
            after[i, successor] = True
            after[i] |= after[successor]
    return after


def conflict(a: tuple[Spans, Spans], b: tuple[Spans, Spans]) -> bool:
    """Whether tasks with these (reads, writes) share a byte that one of them writes."""
    for local, reference in ((a[1], b[0]), (a[1], b[1]), (a[0], b[1])):
        for space, low, high in local:
            if any(s == space and lo < high and low < hi for s, lo, hi in reference):
                return True
    return False


def check_order(loaded: Loaded) -> int:
    """Every conflicting pair is ordered; how many pairs there were."""
    tasks = loaded.tables.tasks
    after = reachable(tasks)
    touched = [loaded.touched(t.launch, t.begin, t.end) for t in tasks]
    result = 0
    for j, second in enumerate(tasks):
        for i in range(j):
            if tasks[i].launch != second.launch and conflict(touched[i], touched[j]):
                result += 1
                assert after[i, j], f"{tasks[i]} and {second} conflict and are not ordered"
    return result


def check_claims(loaded: Loaded, arrays: list[np.ndarray]) -> None:
    """Each task reads and writes nothing but what it claims: by its machine code, on real data."""
    memory = loaded.memory(arrays)
    for launch, begin, end in ranges(loaded):
        reads, writes = loaded.touched(launch, begin, end)
        outside = {space: np.ones(data.size, bool) for space, data in memory.items()}
        for space, low, high in [*reads, *writes]:
            outside[space][low:high] = False
        outside["constant", 0] = np.zeros_like(outside.get(("constant", 0), np.zeros(0, bool)))
        damaged = {s: np.where(outside[s], ~d, d) if s in outside else d for s, d in memory.items()}
        damaged = {s: loaded.copy(d) for s, d in damaged.items()}
        untouched = {s: d.copy() for s, d in damaged.items()}
        loaded.run(launch, begin, end, damaged)
        loaded.run(launch, begin, end, memory)
        written = {space: np.zeros(data.size, bool) for space, data in memory.items()}
        for space, low, high in writes:
            written[space][low:high] = True
        for space, mask in written.items():
            # What was not damaged came out as it should; what is not claimed did not change.
            np.testing.assert_array_equal(damaged[space][mask], memory[space][mask])
            np.testing.assert_array_equal(damaged[space][~mask], untouched[space][~mask])


def ranges(loaded: Loaded) -> Iterator[tuple[int, int, int]]:
    """Launch, begin and end of every task, or of every launch where there are none."""
    tables = loaded.tables
    if tables.tasks:
        yield from ((t.launch, t.begin, t.end) for t in tables.tasks if t.begin < t.end)
    else:
        for number, launch in enumerate(tables.launches):
            yield number, 0, tables.kernels[launch.kernel].grid


def run_in_random_order(loaded: Loaded, memory: Memory, pick: Callable[[list[int]], int]) -> None:
    """All tasks, each when what it waits for is done; `pick` says which of the ready ones."""
    tasks = loaded.tables.tasks
    waits = [t.waits for t in tasks]
    ready = [i for i, count in enumerate(waits) if count == 0]
    completed = 0
    while ready:
        number = ready.pop(pick(ready))
        task = tasks[number]
        if task.begin < task.end:
            loaded.run(task.launch, task.begin, task.end, memory)
        completed += 1
        for successor in task.successors:
            waits[successor] -= 1
            if waits[successor] == 0:
                ready.append(successor)
    assert completed == len(tasks)


def check_orders(loaded: Loaded, arrays: list[np.ndarray], seeds: int) -> None:
    """The same bits as in the order of the launches: newest first, oldest first, and at random."""
    expected = loaded.memory(arrays)
    loaded.run_in_order(expected)
    picks: list[Callable[[list[int]], int]] = [lambda ready: 0, lambda ready: len(ready) - 1]
    generators = [random.Random(seed) for seed in range(seeds)]
    picks += [lambda ready, rng=rng: rng.randrange(len(ready)) for rng in generators]
    for pick in picks:
        memory = loaded.memory(arrays, fill=0x5A)
        run_in_random_order(loaded, memory, pick)
        for space, reference in expected.items():
            if space[0] in ("arg", "output"):
                np.testing.assert_array_equal(memory[space], reference)


def check_all(loaded: Loaded, arrays: list[np.ndarray], seeds: int = 4) -> Loaded:
    check_claims(loaded, arrays)
    if loaded.tables.tasks:
        check_shape(loaded)
        check_order(loaded)
        check_orders(loaded, arrays, seeds)
    return loaded


# --- random programs ------------------------------------------------------------------------------


@given(graphs(), st.sampled_from([0, 4000]), st.sampled_from([None, 0]))
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_random_programs(graph: Graph, serial_work: int, generous: int | None) -> None:
    plan = build_plan(graph.outputs, graph.inputs, graph.params, graph.updates)
    arrays = [t.data for t in [*graph.inputs, *graph.params]]
    with pytest.MonkeyPatch.context() as patch:
        if generous == 0:  # as much sharing as possible: the most orders to keep
            patch.setattr("nova.passes.kernels.workspace.assign_offsets._GENEROUS", 1.0)
            patch.setattr("nova.passes.kernels.workspace.assign_offsets._WINDOWS", ())
            patch.setattr("nova.passes.kernels.workspace.output_memory._LARGE", 0)
        check_all(load_plan(plan, replace(FINE, serial_work=serial_work)), arrays)


# --- models ---------------------------------------------------------------------------------------


def arrays_of(plan: Plan) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for argument in plan.signature.arguments:
        dtype = argument.type.dtype.numpy
        shape = argument.type.shape
        if dtype.kind == "f":
            arrays.append((rng.standard_normal(shape) * 0.1).astype(dtype))
        else:
            arrays.append(rng.integers(0, 7, shape).astype(dtype))
    return arrays


def mlp_plan(batch: int = 48) -> Plan:
    layers = [nn.Linear(40, 64), nn.Linear(64, 64), nn.Linear(64, 10)]
    x = nova.tensor(np.zeros((batch, 40), np.float32), name="x")
    y = nova.tensor(np.zeros(batch, np.int64), name="y")
    hidden = x
    for layer in layers[:-1]:
        hidden = nova.relu(layer(hidden))
    loss = nova.cross_entropy(layers[-1](hidden), y)
    params = [p for layer in layers for p in layer.parameters()]
    slopes = gradients(loss, params)
    updates = {p: p - 0.1 * g for p, g in zip(params, slopes, strict=True)}
    return build_plan([loss], [x, y], params, updates)


def attention_plan() -> Plan:
    layer = nn.MultiheadAttention(32, 4, causal=True)
    norm = nn.LayerNorm(32)
    x = nova.tensor(np.zeros((2, 12, 32), np.float32), name="x")
    loss = nova.mean(nova.square(layer(norm(x))))
    params = [*layer.parameters(), *norm.parameters()]
    return build_plan([loss, *gradients(loss, params)], [x], params, None)


def embedding_plan() -> Plan:
    """Gathers and their gradients: reads and writes at computed places."""
    table = nova.tensor(np.zeros((32, 16), np.float32), name="table", requires_grad=True)
    ids = nova.tensor(np.zeros((6, 20), np.int64), name="ids")
    result = nova.take(nova.softmax(table.transpose()).transpose(), ids, axis=0)
    loss = nova.sum(nova.tanh(result))
    return build_plan([loss, *gradients(loss, [table])], [ids], [table], None)


PLANS = {"mlp": mlp_plan, "attention": attention_plan, "embedding": embedding_plan}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("tile_work", [512, 3000])
def test_models(name: str, tile_work: int) -> None:
    plan = PLANS[name]()
    options = replace(FINE, tile_work=tile_work, serial_work=500)
    loaded = check_all(load_plan(plan, options), arrays_of(plan), seeds=8)
    assert check_order(loaded) > 20


LOOPS = """
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<24xf32>, %at: tensor<24xi64>) -> (tensor<24xf32>, tensor<24xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 24 : index
  %sums = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %x) -> (tensor<24xf32>) {
    %to = tensor.extract %at[%i] : tensor<24xi64>
    %j = arith.index_cast %to : i64 to index
    %old = tensor.extract %acc[%j] : tensor<24xf32>
    %new = tensor.extract %x[%i] : tensor<24xf32>
    %sum = arith.addf %old, %new : f32
    %next = tensor.insert %sum into %acc[%j] : tensor<24xf32>
    scf.yield %next : tensor<24xf32>
  }
  %empty = tensor.empty() : tensor<24xf32>
  %twice = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%sums : tensor<24xf32>) outs(%empty : tensor<24xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<24xf32>
  return %sums, %twice : tensor<24xf32>, tensor<24xf32>
}
"""


def test_loops_that_write_at_computed_places() -> None:
    loaded = load_module(
        start_from_text(LOOPS, "loops.mlir"), replace(FINE, tile_work=8), after="linalg"
    )
    assert len(loaded.tables.tasks) == 4  # a loop, and three tiles that wait for it
    at = np.random.default_rng(0).integers(0, 24, 24)
    check_all(loaded, [np.arange(24, dtype=np.float32), at])
    assert {t.waits for t in loaded.tables.tasks[1:]} == {1}


def test_results_do_not_depend_on_how_tiles_are_grouped() -> None:
    plan = mlp_plan()
    arrays = arrays_of(plan)
    results = []
    for task_ns in (1, 1000, 10**9):
        loaded = load_plan(plan, replace(FINE, task_ns=task_ns, serial_work=500))
        memory = loaded.memory(arrays)
        for launch, begin, end in ranges(loaded):
            loaded.run(launch, begin, end, memory)
        results.append([memory[s].tobytes() for s in sorted(memory) if s[0] in ("arg", "output")])
    assert all(result == results[0] for result in results)


# --- what the graph looks like --------------------------------------------------------------------


def test_tiles_that_correspond_are_ordered_one_by_one() -> None:
    x = nova.tensor(np.zeros((64, 64), np.float32), name="x")
    first = nova.exp(x)
    # The barrier of a reshape keeps the two in kernels of their own, tiled alike.
    second = nova.tanh(first.reshape((32, 128)))
    loaded = load_plan(build_plan([second], [x]), replace(FINE, tile_work=512))
    tasks = loaded.tables.tasks
    producers = [t for t in tasks if t.launch == 0]
    assert len(loaded.tables.launches) == 2 and len(producers) == len(tasks) // 2 > 4
    assert all(len(t.successors) == 1 for t in producers)
    assert all(t.waits == 1 for t in tasks if t.launch == 1)


def test_all_to_all_goes_through_a_task_without_tiles() -> None:
    x = nova.tensor(np.zeros((64, 64), np.float32), name="x")
    columns = nova.sum(nova.softmax(x), axis=0)  # each column needs all rows
    loaded = load_plan(build_plan([columns], [x]), replace(FINE, tile_work=512))
    tasks = loaded.tables.tasks
    joins = [t for t in tasks if t.begin == t.end]
    assert len(joins) == 1 and joins[0].launch == 1 and joins[0].begin == 0
    producers = sum(t.launch == 0 for t in tasks)
    consumers = len(tasks) - producers - 1
    assert joins[0].waits == producers > 4 and len(joins[0].successors) == consumers > 4
    assert sum(len(t.successors) for t in tasks) == producers + consumers
    check_shape(loaded)


def test_a_program_for_one_core_has_no_tasks() -> None:
    x = nova.tensor(np.zeros((64, 64), np.float32), name="x")
    chain = build_plan([nova.tanh(x)], [x])
    assert load_plan(chain, Settings()).tables.tasks == ()  # one tile: nothing to share
    tables = replace(load_plan(chain, FINE).tables, tasks=())
    assert plan_tasks(tables, 4, worth_ns=0) != ()
    assert plan_tasks(tables, 4) == ()  # not worth it


def tiled(
    counts: tuple[int, ...], cost: float, task_ns: int, tile: int = 3, rest: int = 1
) -> Tables:
    """One kernel of `cost` nanoseconds whose tiles each write bytes of their own."""
    grid = tuple(max(0, tile * count - rest) if count else 0 for count in counts)
    strides = tuple(4 * int(np.prod(grid[i + 1 :], dtype=int)) for i in range(len(grid)))
    nbytes = 4 * int(np.prod(grid, dtype=int))
    ranges = (OperandRange(0, True, 0, 4, strides),)
    tiling = Tiling(grid, (tile,) * len(grid), ranges, task_ns)
    kernel = KernelSpec("k", "k", tiling.tiles, "matrix", int(64 * cost), 0, "", tiling=tiling)
    return Tables((BufferSpec("output", 0, nbytes),), (kernel,), (LaunchSpec(0, (0,)),), 0, 0)


@pytest.mark.parametrize("counts", [(), (1,), (0, 3), (7,), (5, 4), (3, 1, 6), (2, 300, 4)])
@pytest.mark.parametrize("cost", [1.0, 10.0, 1e3, 1e9])
@pytest.mark.parametrize("workers", [1, 4, 128])
def test_cuts_cover_all_tiles(counts: tuple[int, ...], cost: float, workers: int) -> None:
    tasks = plan_tasks(tiled(counts, cost, 2), workers, worth_ns=0)
    tiles = int(np.prod(counts, dtype=int))
    if tiles > 1 and cost > 2.0:
        cuts = [t.begin for t in tasks] + [tasks[-1].end]
        assert cuts[0] == 0 and cuts[-1] == tiles
        assert all(a < b for a, b in pairwise(cuts))
        assert 2 <= len(tasks) <= min(tiles, 512)
    else:
        assert tasks == ()


def test_more_threads_get_more_and_shorter_tasks() -> None:
    """A millisecond of work in a thousand tiles, in tasks of 50 us where those are enough."""
    tables = tiled((1000,), 1e6, 50_000)
    counts = {n: len(plan_tasks(tables, n)) for n in (1, 2, 8, 16, 32, 64, 128)}
    assert counts == {1: 20, 2: 20, 8: 20, 16: 32, 32: 64, 64: 125, 128: 125}
    assert len(plan_tasks(tiled((1000,), 1e9, 50_000), 2)) == 512


def random_tables(rng: random.Random) -> Tables:
    """Launches of kernels over random grids, on buffers of small memory that overlap."""
    buffers = [BufferSpec("arg", 0, 256), BufferSpec("arg", 1, 256)]
    buffers += [BufferSpec("workspace", 64 * rng.randrange(4), 256) for _ in range(4)]
    output = len(buffers)
    buffers += [BufferSpec("output", 0, 448)]
    buffers += [BufferSpec("output_part", 64 * rng.randrange(4), 256, 0) for _ in range(2)]
    kernels, launches = [], []
    for number in range(rng.randrange(2, 8)):
        rank = rng.randrange(1, 4)
        grid = tuple(rng.randrange(1, 6) for _ in range(rank))
        tile = tuple(rng.randrange(1, 3) for _ in range(rank))
        operands = rng.sample(range(len(buffers)), 3)
        if number == 0 and output not in operands:  # one launch writes it
            operands[-1] = output
        ranges = []
        for operand, writes in ((0, False), (0, False), (1, False), (2, True)):
            strides = tuple(rng.randrange(-8, 9) for _ in range(rank))
            spread = [(g - 1) * s for g, s in zip(grid, strides, strict=True)]
            low = -sum(min(0, s) for s in spread) + rng.randrange(16)
            high = low + rng.randrange(1, 256 - low - sum(max(0, s) for s in spread))
            ranges.append(OperandRange(operand, writes, low, high, strides))
        tiling = Tiling(grid, tile, tuple(ranges), 1)
        name = f"k{number}"
        kernels.append(KernelSpec(name, name, tiling.tiles, "matrix", 640, 0, "", tiling=tiling))
        launches.append(LaunchSpec(number, tuple(operands)))
    return Tables(tuple(buffers), tuple(kernels), tuple(launches), 448, 0)


def touched_by_tiles(tables: Tables, task: TaskSpec) -> tuple[set[tuple[int, int]], ...]:
    """(space, byte) that a task reads and writes, one grid point after the other."""
    launch = tables.launches[task.launch]
    tiling = tables.kernels[launch.kernel].tiling
    assert tiling is not None
    counts = [-(-g // t) for g, t in zip(tiling.grid, tiling.tile, strict=True)]
    touched: tuple[set[tuple[int, int]], set[tuple[int, int]]] = (set(), set())
    for number in range(task.begin, task.end):
        index = np.unravel_index(number, counts)
        corner = [int(i) * t for i, t in zip(index, tiling.tile, strict=True)]
        sizes = [min(t, g - c) for t, g, c in zip(tiling.tile, tiling.grid, corner, strict=True)]
        for offset in np.ndindex(*sizes):
            for item in tiling.ranges:
                at = sum(s * (c + o) for s, c, o in zip(item.strides, corner, offset, strict=True))
                buffer = tables.buffers[launch.buffers[item.operand]]
                is_inside = buffer.kind in ("workspace", "output_part")
                shift = buffer.value if is_inside else 0
                space = {"arg": buffer.value, "workspace": 2}.get(buffer.kind, 3)
                touched[item.writes].update(
                    (space, shift + byte) for byte in range(item.low + at, item.high + at)
                )
    return touched


@pytest.mark.parametrize("seed", range(30))
def test_random_tilings_against_every_single_byte(seed: int) -> None:
    """Tasks that share a byte which one of them writes are ordered, and no others of a launch."""
    rng = random.Random(seed)
    tables = random_tables(rng)
    tasks = plan_tasks(tables, rng.choice([1, 2, 5, 100]), worth_ns=0)
    after = reachable(tasks)
    touched = [touched_by_tiles(tables, task) for task in tasks]
    for j, (reads, writes) in enumerate(touched):
        for i in range(j):
            earlier_reads, earlier_writes = touched[i]
            shared = earlier_writes & (reads | writes) or earlier_reads & writes
            if shared and tasks[i].launch != tasks[j].launch:
                assert after[i, j], f"{tasks[i]} and {tasks[j]} conflict and are not ordered"
            if after[i, j]:
                assert tasks[i].launch != tasks[j].launch or tasks[i].begin == tasks[i].end


def test_the_checker_finds_a_missing_edge() -> None:
    """There is no edge too many: without any one of them, a conflict is not ordered."""
    plan = mlp_plan()
    loaded = load_plan(plan, replace(FINE, serial_work=500))
    tasks = list(loaded.tables.tasks)
    caught = 0
    for number in range(0, len(tasks), 7):
        if not tasks[number].successors:
            continue
        cut = list(tasks)
        last = tasks[number].successors[-1]
        cut[number] = replace(tasks[number], successors=tasks[number].successors[:-1])
        cut[last] = replace(tasks[last], waits=tasks[last].waits - 1)
        broken = replace(loaded, tables=replace(loaded.tables, tasks=tuple(cut)))
        with pytest.raises(AssertionError, match="not ordered"):
            check_order(broken)
        caught += 1
    assert caught > 5
