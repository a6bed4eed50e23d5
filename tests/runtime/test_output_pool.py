"""Large results: ordinary arrays, whose memory is used again when they are dropped, not before.

The pool is that of the process: each test begins with no idle memory in it, and counts the results
that it holds itself, as other tests may hold some.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

import nova
from nova import knobs

COUNT = 1 << 18
"""Elements of an argument: a result of 1 MiB, four times what is pooled."""
DATA = np.arange(COUNT, dtype=np.float32)


_others: list[tuple[int, int]] = []


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    gc.collect()
    nova.output_pool.clear()
    info = nova.output_pool.info()
    _others[:] = [(info.live_count, info.live_bytes)]
    yield
    nova.output_pool.clear()


def pool() -> nova.output_pool.Info:
    """What is in the pool, without the results of others."""
    info = nova.output_pool.info()
    count, size = _others[0]
    return info._replace(live_count=info.live_count - count, live_bytes=info.live_bytes - size)


@pytest.fixture(scope="module")
def plus():
    x, y = nova.tensor(DATA, name="x"), nova.tensor(np.float32(0), name="y")
    return nova.compile(x + y, inputs=[x, y])


def call(plus, number: float) -> np.ndarray:
    return plus(DATA, np.float32(number))


def test_a_result_is_an_ordinary_array(plus):
    result = call(plus, 1)
    flags = result.flags
    assert type(result) is np.ndarray and result.base is None
    assert flags.owndata and flags.writeable and flags.c_contiguous and flags.aligned
    assert result.ctypes.data % 64 == 0
    expected = DATA + 1
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)), expected)
    np.testing.assert_array_equal(copy.deepcopy(result), expected)
    result += 1
    np.testing.assert_array_equal(result, DATA + 2)


def test_a_result_can_be_resized_in_place(plus):
    result = call(plus, 1)
    result.resize(COUNT // 16, refcheck=False)
    np.testing.assert_array_equal(result, DATA[: COUNT // 16] + 1)
    result.resize(3 * COUNT, refcheck=False)
    np.testing.assert_array_equal(result[: COUNT // 16], DATA[: COUNT // 16] + 1)
    assert not result[COUNT // 16 :].any()
    del result
    assert pool().live_count == 0


def test_dropped_memory_is_used_again(plus):
    first = call(plus, 1)
    location = first.ctypes.data
    before = pool()
    assert before.live_count == 1 and before.live_bytes >= first.nbytes and before.idle_count == 0
    del first
    assert pool().idle_count == 1
    for number in range(20):
        result = call(plus, number)
        assert result.ctypes.data == location
        np.testing.assert_array_equal(result, DATA + np.float32(number))
        del result
    after = pool()
    assert after.mapped == before.mapped and after.reused == before.reused + 20


def test_a_kept_result_is_never_overwritten(plus):
    retained = [call(plus, number) for number in range(3)]
    for number in range(100):
        call(plus, 1000 + number)
    for number, result in enumerate(retained):
        np.testing.assert_array_equal(result, DATA + np.float32(number))


@pytest.mark.parametrize("hold", ["view", "memoryview", "dlpack", "torch", "iterator", "capsule"])
def test_whatever_sees_the_memory_keeps_it(plus, hold: str):
    result = call(plus, 1)
    if hold == "view":
        alive = result[5:].reshape(-1, 1).T
    elif hold == "memoryview":
        alive = memoryview(result)
    elif hold == "dlpack":
        alive = np.from_dlpack(result)
    elif hold == "torch":
        alive = pytest.importorskip("torch").from_numpy(result)
    elif hold == "iterator":
        alive = iter(result)
    else:
        alive = result.__dlpack__()
    location = result.ctypes.data
    del result
    for number in range(5):
        assert call(plus, 1000 + number).ctypes.data != location
    if hold == "view":
        np.testing.assert_array_equal(alive[0], DATA[5:] + 1)
    elif hold == "iterator":
        assert [next(alive) for _ in range(3)] == [1, 2, 3]
    elif hold != "capsule":
        np.testing.assert_array_equal(np.asarray(alive), DATA + 1)
    del alive
    assert pool().live_count == 0


def test_small_results_and_given_ones_are_not_pooled(plus):
    x = nova.tensor(DATA[:8], name="x")
    small = nova.compile(x * 3, inputs=[x])(DATA[:8])
    out = np.empty_like(DATA)
    assert plus(DATA, np.float32(2), out=out) is out
    info = pool()
    assert info.live_count == info.idle_count == 0
    np.testing.assert_array_equal(out, DATA + 2)
    np.testing.assert_array_equal(small, DATA[:8] * 3)


def test_results_of_futures_and_streams(plus):
    with nova.NovaStream():
        futures = [plus.submit(DATA, np.float32(number)) for number in range(4)]
    results = [future.result() for future in futures]
    assert len({r.ctypes.data for r in results}) == 4 == pool().live_count
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, DATA + np.float32(number))
    del futures, results, result
    gc.collect()
    assert pool().live_count == 0


def test_a_run_that_fails_gives_its_memory_back(plus):
    with pytest.raises(nova.errors.ArgumentShapeError):
        plus(DATA[1:], np.float32(1))
    assert pool().live_count == 0


def test_threads_drop_what_others_made(plus):
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(30):
                value = np.float32(number * 100 + i)
                result = plus(DATA, value)
                created.append(result)
                if len(created) > 4:
                    created.pop(0)
                np.testing.assert_array_equal(result, DATA + value)
        except BaseException as error:  # shown by the thread that checks
            errors.append(error)

    created: list[np.ndarray] = []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    created.clear()
    assert pool().live_count == 0


def test_the_knob_is_the_limit(plus):
    with knobs.override(output_pool="3M"):
        assert pool().limit == 3 << 20
        del (results := [call(plus, n) for n in range(6)])[:]
        assert results == []
        info = pool()
        assert 0 < info.idle_count < 6 and info.idle_bytes <= 3 << 20
    with knobs.override(output_pool=0):
        before = pool()
        result = call(plus, 1)
        assert pool() == before and before.idle_count == 0
        np.testing.assert_array_equal(result, DATA + 1)
    assert pool().limit == knobs.output_pool > 0


def test_pooled_arrays_outlive_a_switched_off_pool(plus):
    result = call(plus, 1)
    with knobs.override(output_pool=0):
        np.testing.assert_array_equal(result, DATA + 1)
        del result
        info = pool()
        assert info.live_count == info.idle_count == 0


def test_nothing_leaks(plus):
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(50):
        call(plus, 1)
    alive = weakref.ref(call(plus, 1))
    assert alive() is None
    sizes = [resident()]
    for _ in range(3):
        for _ in range(700):
            call(plus, 1)
        sizes.append(resident())
    growth = [later - earlier for earlier, later in pairwise(sizes)]
    assert min(growth) < 4 << 20, "a leak grows in every round"


CHILD = """
import os, threading, numpy as np, nova
data = np.arange(1 << 18, dtype=np.float32)
x = nova.tensor(data, name="x")
plus = nova.compile(x + 1, inputs=[x])
kept = plus(data)
plus(data)
child = os.fork()
if child == 0:
    good = (kept == data + 1).all() and (plus(data) == data + 1).all()
    kept[...] = 0
    os._exit(0 if good else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (kept == data + 1).all()
threading.stack_size(256 << 10)
thread = threading.Thread(target=lambda: plus(data))
thread.start(); thread.join()
class Late:  # still there when the modules are gone
    def __init__(self, array): self.array = array
    def __del__(self): self.array = None
late = Late(plus(data)); late.cycle = late
print("done")
"""


def test_fork_threads_and_exit():
    completed = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NOVA_THREADS": "1"},
    )
    assert completed.returncode == 0 and completed.stdout == "done\n", completed.stderr
