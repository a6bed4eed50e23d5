"""The native cache of programs by sizes: hits, dropped programs, errors."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import nova
from nova import _native

B, C = nova.dim("B", min=0, max=64), nova.dim("C", min=1, max=64)


def program_of(shape: tuple[Any, ...], **options: Any) -> Any:
    x = nova.input(shape, name="x")
    return nova.compile(nova.exp(x) + 1.0, inputs=[x], **options)


def sized(program: Any, most: int = 3) -> Any:
    """A cache of `most` programs over the code of `program`."""
    symbolic = program._executable.program

    class Cache(_native.SizedPrograms):
        def __init__(self) -> None:
            self.configure(1, ((0, 0),), most)
            self.asked: list[int] = []

        def program_of(self, arrays: Any) -> Any:
            self.asked.append(len(arrays[0]))
            made = symbolic.program_for((len(arrays[0]),))
            self.keep((len(arrays[0]),), made)
            return made

        def explain(self, error: BaseException, arrays: Any) -> BaseException:
            return LookupError(f"{type(error).__name__} of {len(arrays)}")

    return Cache()


def test_the_least_recently_used_program_is_dropped() -> None:
    cache = sized(program_of((B, 4)))
    for n in (1, 2, 3, 1, 4, 1, 3, 2):  # 4 replaces 2, and 2 replaces 4
        x = np.full((n, 4), 0.5, "f4")
        np.testing.assert_allclose(cache(x), np.exp(x) + 1, rtol=1e-6)
    assert cache.asked == [1, 2, 3, 4, 2]
    assert (cache.hits, cache.entries) == (3, 3)
    assert cache.get((4,)) is None and cache.get((3,)) is not None
    assert cache.find([np.ones((3, 4), "f4")]) is cache.get((3,))


def test_a_program_replaces_the_one_for_its_sizes() -> None:
    program = program_of((B, 4))
    cache = sized(program)
    first = program._executable.program.program_for((2,))
    second = program._executable.program.program_for((2,))
    cache.keep((2,), first)
    cache.keep((2,), second)
    assert cache.get((2,)) is second
    assert cache.entries == 1


def test_a_short_run_keeps_the_gil() -> None:
    """Its own work decides, not that of the sizes that the program was compiled for."""
    x, n = nova.input((C, C), name="x"), nova.dim("n", min=1, max=8192)
    y = nova.input((n, n), name="y")
    for program in (nova.compile(x @ x, inputs=[x]), nova.compile(y @ y, inputs=[y])):
        for size, releases in ((16, False), (64, True), (5, False)):
            array = np.ones((size, size), "f4")
            assert program(array)[0, 0] == size
            assert program._executable.program.find([array]).releases_gil is releases


def test_what_find_cannot_read_is_asked_for() -> None:
    cache = sized(program_of((B, 4)))
    cache(np.ones((2, 4), "f4"))
    for arrays in ([], [[[1.0] * 4] * 2], [np.float32(1)], [object()], 7):
        assert cache.find(arrays) is None

    class Exporter:  # without a shape
        def __init__(self, array: np.ndarray):
            self.array = array

        def __len__(self) -> int:
            return len(self.array)

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    np.testing.assert_allclose(cache(Exporter(np.zeros((2, 4), "f4"))), 2.0)
    assert cache.asked == [2, 2]


def test_errors_of_calls_are_explained() -> None:
    cache = sized(program_of((B, 4)))
    with pytest.raises(LookupError, match="ArgumentShapeError of 1"):
        cache(np.ones((2, 5), "f4"))


def test_all_calls_are_asked_for_while_they_are_counted() -> None:
    cache = sized(program_of((B, 4)))
    cache.counts_calls = True
    for _ in range(3):
        cache(np.ones((2, 4), "f4"))
    assert cache.asked == [2, 2, 2]


@pytest.mark.parametrize(
    "args",
    [
        (0, (), 3),
        (1, ((0, 0),), 0),
        (1, ((0, 0), (0, 1)), 3),
        (1, ((-1, 0),), 3),
        (1, (0,), 3),
        (1, [(0, 0)], 3),
    ],
)
def test_a_wrong_configuration_is_refused(args: Any) -> None:
    with pytest.raises(ValueError):
        _native.SizedPrograms().configure(*args)


def test_sizes_are_tuples_of_all_dims() -> None:
    cache = sized(program_of((B, 4)))
    for sizes in ((), (1, 2), [1]):
        with pytest.raises(ValueError, match="the sizes of 1 dims are expected"):
            cache.get(sizes)
    with pytest.raises(OverflowError):
        cache.get((1 << 70,))
    with pytest.raises(TypeError):
        cache.keep((1,), None)
    with pytest.raises(ValueError):
        cache.configure(1, ((0, 0),), 3)  # once


def test_a_cache_in_a_cycle_is_collected() -> None:
    cache = sized(program_of((B, 4)))
    cache(np.ones((2, 4), "f4"))
    cache.itself = cache
    alive = weakref.ref(cache)
    del cache
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("shape", [(B, C), (B, C, B), (B * 2, B), (B * 2, C)])
def test_calls_of_many_sizes(shape: tuple[Any, ...]) -> None:
    program = program_of(shape)
    rng = np.random.default_rng(0)
    sizes = [(b, c) for b in (0, 1, 7, 16) for c in (1, 5)]
    for b, c in sizes * 2:
        shapes = [b if n is B else c if n is C else 2 * b for n in shape]
        x = rng.standard_normal(shapes, np.float32)
        np.testing.assert_allclose(program(x), np.exp(x) + 1, rtol=1e-6)
        np.testing.assert_allclose(program.run([x]), np.exp(x) + 1, rtol=1e-6)
    info = program.cache_info()
    different = len(sizes) if any(n is C for n in shape) else len({b for b, _ in sizes})
    assert info.misses == info.entries == different
    assert info.hits == 4 * len(sizes) - info.misses


# --- copies for new sizes -------------------------------------------------------------------------


def copied(function: Any, *shapes: tuple[Any, ...]) -> Any:
    """A program that was called with sizes 3 and 2: other sizes copy its native program."""
    inputs = [nova.input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    program = nova.compile(function(*inputs), inputs=inputs)
    sizes = {"B": 3, "C": 2}
    program(*[np.ones([sizes.get(str(n), n) for n in shape], "f4") for shape in shapes])
    return program


def test_copies_have_the_sizes_of_their_calls() -> None:
    program = copied(lambda x, w: nova.relu(x @ w).sum(axis=0), (B, 40), (40, C))
    rng = np.random.default_rng(0)
    for b in (0, 1, 2, 7, 8, 31, 64):
        for c in (1, 5, 64):
            x, w = (rng.standard_normal(s, np.float32) for s in ((b, 40), (40, c)))
            expected = np.maximum(x @ w, 0).sum(0)
            np.testing.assert_allclose(program(x, w), expected, rtol=1e-4, atol=1e-4)
            out = np.empty(c, "f4")
            assert program(x, w, out=out) is out
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert program.cache_info()[:3] == (21, 22, 22)


def test_copies_convert_their_arguments() -> None:
    program = copied(lambda x: x + 1.0, (B, 4))
    x = np.arange(40, dtype="f4").reshape(4, 10).T[:, :4]  # (10, 4), strided
    np.testing.assert_array_equal(program(x), x + 1)
    torch = pytest.importorskip("torch")
    program(np.ones((6, 4), "f4"))
    np.testing.assert_array_equal(program(torch.ones(6, 4)), np.full((6, 4), 2.0))


def test_errors_of_copies_name_the_dims() -> None:
    program = copied(lambda x, y: x + y, (B, 4), (B, 4))
    with pytest.raises(nova.errors.SignatureError, match="axis 0 of 'x1' is 6, and B is 5"):
        program(np.ones((5, 4), "f4"), np.ones((6, 4), "f4"))  # B=5 has no program yet
    program(np.ones((5, 4), "f4"), np.ones((5, 4), "f4"))
    with pytest.raises(nova.errors.SignatureError, match="axis 0 of 'x1' is 6, and B is 5"):
        program(np.ones((5, 4), "f4"), np.ones((6, 4), "f4"))
    with pytest.raises(nova.errors.SignatureError, match=r"B is 65: it must be in 0\.\.64"):
        program(np.ones((65, 4), "f4"), np.ones((65, 4), "f4"))
    with pytest.raises(nova.errors.ArgumentCountError, match="1 argument given"):
        program(np.ones((7, 4), "f4"))
    with pytest.raises(nova.errors.ArgumentDTypeError, match="'x0' has type float64"):
        program(np.ones((5, 4)), np.ones((5, 4), "f4"))
    with pytest.raises(nova.errors.OutputError, match=r"f32\[5, 4\]"):
        program(*[np.ones((5, 4), "f4")] * 2, out=np.ones((4, 4), "f4"))


def test_copies_have_names_in_traces() -> None:
    program = copied(lambda x: nova.exp(x), (B, C))
    with nova.trace() as trace:
        program(np.ones((9, 7), "f4"))
    assert any("[B=9, C=7, symbolic]" in run.program for run in trace.runs)


def test_copies_update_donated_arrays() -> None:
    x, state = nova.input((B, 4), name="x"), nova.input((B, 4), name="state")
    program = nova.compile(x.sum(), inputs=[x], params=[state], updates={state: state + x})
    for n in (3, 4, 9):
        value = np.ones((n, 4), "f4")
        program(np.full((n, 4), 2.0, "f4"), value)
        np.testing.assert_array_equal(value, 3.0)
        with pytest.raises(nova.errors.DonationError):
            program(value, value)


def test_a_cache_copies_for_a_cpu_only() -> None:
    program = copied(lambda x: x + 1.0, (B, 4))
    symbolic = program._executable.program
    native = symbolic.program_for((2,))
    with pytest.raises(TypeError):
        symbolic.copy_from(None, native, print)
    with pytest.raises(ValueError, match="programs are copied from"):
        symbolic.copy_from(symbolic._tables_for, native, None)
    symbolic.copy_none()
    np.testing.assert_array_equal(program(np.ones((20, 4), "f4")), np.full((20, 4), 2.0))
