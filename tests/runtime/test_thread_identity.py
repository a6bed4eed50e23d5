"""Results have the same bits for every number of threads and every policy.

Each program is compiled once, cut into many small tasks, and run with every setting: on one thread
the tasks run in the order of the graph, on more in any order that its edges allow. An edge that is
missing, or a sum whose order depends on who is first, would change bits.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from task_counts import count_tasks

import nova
from nova import knobs, nn, optim

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))
from gpt import GPT, Config
from graph_strategies import make_program, seeded
from test_models import block_nova, mlp_nova, weights

THREADS = (1, 2, 3, 5, 8, 16)
POLICIES = ("fifo", "locality", "critical-path")
SMALL_TASKS = {"serial_work": 0, "tile_work": 500, "task_ns": 500}
SEEDS = 42


@pytest.fixture(autouse=True)
def own_knobs() -> Iterator[None]:
    yield
    knobs.reset()


def task_count(program: nova.Compiled) -> int:
    return count_tasks(program)


def run_program(program: nova.Compiled, *arrays: list[np.ndarray]) -> Sequence[np.ndarray]:
    results = program.run(*arrays)
    return results if isinstance(results, tuple) else (results,)


def most_workers(run: Callable[[], object]) -> int:
    """Threads that a run of a program uses when there are enough."""
    knobs.threads = max(THREADS)
    with nova.trace() as trace:
        run()
    return max(traced.measured.workers for traced in trace.runs)


def check_bits(run: Callable[[], Sequence[np.ndarray]]) -> None:
    """That `run`, which starts from the same values every time, gives the same bits."""
    expected: list[bytes] = []
    for threads in THREADS:
        for policy in POLICIES:
            knobs.threads, knobs.policy = threads, policy
            result = [array.tobytes() for array in run()]
            expected = expected or result
            assert result == expected, f"{threads} threads, {policy}"


def check_model(
    loss: Callable[..., nova.Tensor], inputs: dict[str, np.ndarray], params: dict[str, np.ndarray]
) -> None:
    """Loss and all gradients of a model of tests/programs/test_models.py."""
    leaves = {n: nova.tensor(a, name=n) for n, a in inputs.items()}
    variables = {n: nova.tensor(a, name=n, requires_grad=True) for n, a in params.items()}
    with knobs.override(**SMALL_TASKS):
        program = nova.compile(
            loss(**leaves, **variables),
            inputs=list(leaves.values()),
            params=list(variables.values()),
            include_backward=True,
        )
    assert task_count(program) >= 90
    run = functools.partial(run_program, program, list(inputs.values()), list(params.values()))
    assert most_workers(run) >= 4
    check_bits(run)


def test_mlp_and_its_gradients():
    rng = np.random.default_rng(1)
    sizes = {"w1": (200, 256), "b1": (256,), "w2": (256, 17), "b2": (17,)}
    inputs = {"x": rng.standard_normal((256, 200)).astype("f4"), "labels": rng.integers(0, 17, 256)}
    check_model(mlp_nova, inputs, weights(sizes, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_attention_block_and_its_gradients(dtype):
    width = 64
    inputs = {"x": np.random.default_rng(2).standard_normal((8, 24, width)).astype(dtype)}
    sizes = dict.fromkeys(("wq", "wk", "wv", "wo"), (width, width))
    sizes |= {"g1": (width,), "c1": (width,), "w1": (width, 4 * width), "w2": (4 * width, width)}
    check_model(block_nova, inputs, weights(sizes, dtype))


def test_steps_of_a_gpt():
    """Loss and parameters after two steps with AdamW, which change arrays in place."""
    nn.manual_seed(0)
    model = GPT(Config(vocabulary=64, context=16, width=32, heads=4, layers=4))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    step = nova.train_step(model, lambda m, x, y: m.loss(x, y), optimizer)
    rng = np.random.default_rng(3)
    tokens, following = rng.integers(0, 64, (2, 4, 16))
    with knobs.override(**SMALL_TASKS):
        step(tokens, following)
    assert task_count(step.compiled) >= 400
    start = {name: array.copy() for name, array in step.state_dict().items()}

    def train() -> list[np.ndarray]:
        step.load_state_dict(start)
        losses = [np.asarray(step(tokens, following)) for _ in range(2)]
        return [*losses, *(p.data for p in model.parameters())]

    assert most_workers(train) >= 8
    check_bits(train)


@pytest.mark.parametrize(
    ("first", "last"), [(0, 12), pytest.param(12, SEEDS, marks=pytest.mark.slow)]
)
def test_random_programs(first: int, last: int) -> None:
    """Some are too small for tasks; more than enough are not."""
    checked, workers = 0, 0
    for number in range(first, last):
        leaves, outputs = make_program(
            seeded(number),
            np.float32,
            min_ops=12,
            max_ops=24,
            sizes=(32, 48, 96),
            ranks=(2, 3),
            largest=1 << 17,
            broadcast=False,
        )
        with knobs.override(**SMALL_TASKS):
            program = nova.compile(outputs, inputs=leaves)
        if task_count(program) < 40:
            continue
        run = functools.partial(run_program, program, [leaf.data for leaf in leaves])
        check_bits(run)
        checked += 1
        workers += most_workers(run)
    assert checked >= 0.6 * (last - first) and workers >= 4 * checked
