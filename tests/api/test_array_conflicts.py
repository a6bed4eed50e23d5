"""Runs of several threads on one array that is updated, and arrays that would lose a mask."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import nova
from nova.errors import ArgumentTypeError, ArrayInUseError

SIZE = 100_000


def make_counter():
    """A program that takes long enough to overlap, and adds 1 to each element of its param."""
    p = nova.tensor(np.zeros(SIZE, "f4"), name="p")
    y = p
    for _ in range(12):
        y = nova.sin(y)
    return nova.compile(p.sum(), params=[p], updates={p: p + 1.0 + y * 0.0})


def race(threads: int, work) -> list[BaseException]:
    errors: list[BaseException] = []
    start = threading.Barrier(threads)

    def body() -> None:
        start.wait()
        for _ in range(10):
            try:
                work()
            except ArrayInUseError as error:
                errors.append(error)

    running = [threading.Thread(target=body) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return errors


@pytest.mark.parametrize("how", ["run", "call"])
def test_no_update_of_a_shared_array_is_lost(how: str) -> None:
    program = make_counter()
    array = np.zeros(SIZE, "f4")
    lock, completed = threading.Lock(), [0]

    def work() -> None:
        program.run([], [array]) if how == "run" else program(array)
        with lock:
            completed[0] += 1

    errors = race(4, work)
    assert completed[0] + len(errors) == 40
    assert array.min() == array.max() == completed[0], "each run that ended well has added 1"
    for error in errors:
        assert "param 'p' shares memory" in str(error) and "lock" in error.hint


def test_threads_that_take_turns_lose_nothing() -> None:
    program = make_counter()
    array, lock = np.zeros(SIZE, "f4"), threading.Lock()

    def work() -> None:
        with lock:
            program.run([], [array])

    assert not race(3, work)
    assert array.min() == array.max() == 30


def test_readers_overlap_and_arrays_of_their_own_too() -> None:
    x = nova.tensor(np.ones(SIZE, "f4"), name="x")
    reader = nova.compile(nova.sin(x), inputs=[x])
    shared = np.ones(SIZE, "f4")
    assert not race(4, lambda: reader(shared))
    program, private = make_counter(), threading.local()

    def work() -> None:
        if not hasattr(private, "array"):
            private.array = np.zeros(SIZE, "f4")
        program.run([], [private.array])

    assert not race(4, work)


def test_a_submitted_run_and_a_call() -> None:
    program = make_counter()
    array = np.zeros(SIZE, "f4")
    stream = nova.NovaStream()
    futures = [program.submit(array, stream=stream) for _ in range(5)]
    for future in futures:
        future.result()
    assert array.min() == array.max() == 5, "runs of one stream are in order"


# Another test of this process may have loaded jax, which warns of every fork.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_child_of_fork_has_no_runs() -> None:
    program = make_counter()
    array = np.zeros(SIZE, "f4")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            program.run([], [array])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        child = os.fork()
        if child == 0:
            private = np.zeros(SIZE, "f4")
            program.run([], [array])
            program.run([], [private])
            os._exit(0 if private.min() == private.max() == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


MASKED = np.ma.masked_array(np.array([1.0, 2.0], "f4"), [False, True])


@pytest.mark.parametrize(
    "use",
    [
        lambda: nova.tensor(MASKED),
        lambda: nova.tensor(MASKED, dtype="f64"),
        lambda: nova.jit(lambda x: x + 1)(MASKED),
        lambda: nova.tensor([1.0, 2.0]) + MASKED,
        lambda: nova.exp(MASKED),
        lambda: nova.nn.Parameter(MASKED),
        lambda: nova.to_device(MASKED, "sim"),
        lambda: nova.data.Batches(MASKED, batch_size=1),
        lambda: nova.compile(X + 1, inputs=[X])(MASKED),
        lambda: nova.compile(X + 1, inputs=[X]).run([MASKED]),
    ],
)
def test_masks_are_not_dropped(use) -> None:
    with pytest.raises(
        ArgumentTypeError, match="masked array, and its mask would be lost"
    ) as caught:
        use()
    assert "filled" in caught.value.hint


X = nova.tensor(np.zeros(2, "f4"), name="X")
