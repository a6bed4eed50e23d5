"""Several threads compile and call at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import nova
from nova.api.compile import cache_statistics, clear_memory_cache
from nova.core.single_flight import SingleFlight

THREADS = 8


def in_threads(work, count=THREADS):
    """The results of `work(i)` in `count` threads that start together."""
    gate = threading.Barrier(count)

    def run(i):
        gate.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def scaled(factor):
    x = nova.tensor(np.zeros((4, 8), "f4"), name="x")
    return nova.compile(nova.softmax(x) * factor, inputs=[x])


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_one_key_is_compiled_once():
    before = cache_statistics()
    programs = in_threads(lambda i: scaled(7.125))
    after = cache_statistics()
    assert after["compiled"] - before["compiled"] == 1
    assert after["memory"] - before["memory"] == THREADS - 1
    assert sorted(p.origin for p in programs) == ["compiled"] + ["memory"] * (THREADS - 1)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("f4")
    for program in programs:
        np.testing.assert_allclose(program(x), softmax(x) * 7.125, rtol=1e-5)


def test_different_programs_compile_side_by_side():
    rng = np.random.default_rng(1)
    data = [rng.standard_normal((4, 8)).astype("f4") for _ in range(THREADS)]

    def work(i):
        program = scaled(0.5 + i)
        return [program(data[i]) for _ in range(50)]

    for i, results in enumerate(in_threads(work)):
        for result in results:
            np.testing.assert_allclose(result, softmax(data[i]) * (0.5 + i), rtol=1e-5)


def test_one_program_called_by_all():
    """Calls that give the interpreter lock away use a workspace each."""
    x = nova.tensor(np.zeros((96, 96), "f4"), name="x")
    program = nova.compile([nova.softmax(x @ x) @ x, x.sum(axis=0)], inputs=[x])
    assert program.workspace_size > 0
    rng = np.random.default_rng(2)
    data = [rng.standard_normal((96, 96)).astype("f4") for _ in range(THREADS)]
    alone = [program(a) for a in data]

    def work(i):
        return [program(data[i]) for _ in range(20)]

    for i, results in enumerate(in_threads(work)):
        for pair in results:
            for result, expected in zip(pair, alone[i], strict=True):
                np.testing.assert_array_equal(result, expected)


def test_one_jit_function_called_by_all():
    traces = []

    @nova.jit
    def f(x, y):
        traces.append(x.shape)
        return {"sum": x + y, "product": x * y}

    shapes = [(i % 3 + 1, 4) for i in range(THREADS)]

    def work(i):
        results = []
        for k in range(40):
            x = np.full(shapes[(i + k) % THREADS], i, "f4")
            results.append((x, k, f(x, np.float32([k] * 4))))
        return results

    for results in in_threads(work):
        for x, k, result in results:
            np.testing.assert_array_equal(result["sum"], x + k)
            np.testing.assert_array_equal(result["product"], x * k)
    assert sorted(traces) == [(1, 4), (2, 4), (3, 4)], "each signature is traced once"
    info = f.cache_info()
    assert info.misses == info.size == 3 and info.hits == THREADS * 40 - 3


def test_the_plain_path_of_a_jit_function():
    @nova.jit
    def f(x):
        return x * 3

    data = [np.full(i + 1, i, "f4") for i in range(4)]
    for i, results in enumerate(in_threads(lambda i: [f(data[(i + k) % 4]) for k in range(200)])):
        for k, result in enumerate(results):
            np.testing.assert_array_equal(result, data[(i + k) % 4] * 3)
    assert f.cache_info().misses == 4


def test_updates_of_each_thread_stay_its_own():
    w = nova.tensor(np.zeros((64, 64), "f4"), name="w")
    program = nova.compile([], params=[w], updates={w: w + 1})
    arrays = [np.full((64, 64), i * 1000, "f4") for i in range(THREADS)]

    def work(i):
        for _ in range(100):
            program(arrays[i])

    in_threads(work)
    for i, array in enumerate(arrays):
        assert (array == i * 1000 + 100).all()


def test_knobs_of_each_thread(tmp_path):
    """An override holds for its thread: the caches of the others see nothing of it."""
    folders = [tmp_path / str(i) for i in range(4)]

    def work(i):
        with nova.knobs.override(cache_dir=folders[i], fast_math=i == 3):
            assert nova.knobs.get("cache_dir") == str(folders[i])
            return scaled(float(20 + i))

    programs = in_threads(work, 4)
    assert [len(list(f.glob("*.nova"))) for f in folders] == [1, 1, 1, 1]
    key = [p._executable.spec.options["fast_math"] for p in programs]
    assert key == ["False", "False", "False", "True"]
    assert nova.knobs.get("fast_math") is False


def test_build_once_forgets_the_least_recently_used():
    retained: SingleFlight[int] = SingleFlight(2)
    assert retained.get("a", lambda: 1) == (1, False)
    assert retained.get("b", lambda: 2) == (2, False)
    assert retained.get("a", lambda: 0) == (1, True)
    assert retained.get("c", lambda: 3) == (3, False)
    assert len(retained) == 2 and retained.get("a", lambda: 0) == (1, True)
    assert retained.get("b", lambda: 4) == (4, False)
    retained.clear()
    assert len(retained) == 0 and retained.get("a", lambda: 5) == (5, False)


def test_build_once_after_a_failure():
    retained: SingleFlight[int] = SingleFlight(2)
    attempts = []

    def build():
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError
        return 7

    def work(i):
        try:
            return retained.get("k", build)[0]
        except RuntimeError:
            return None

    results = in_threads(work, 6)
    assert results.count(None) == 2 and results.count(7) == 4 and len(attempts) == 3


def test_clearing_while_compiling():
    def work(i):
        if i % 2:
            clear_memory_cache()
        return scaled(31.0 + i % 3)(np.zeros((4, 8), "f4"))

    for i, result in enumerate(in_threads(work)):
        np.testing.assert_allclose(result, (31 + i % 3) / 8, rtol=1e-6)
