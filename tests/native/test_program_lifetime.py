"""Threads, reference counts, memory: calls leave nothing behind and do not disturb each other."""

from __future__ import annotations

import gc
import resource
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from machine import ARGUMENT, F32, OUTPUT, WORKSPACE, Refused, make_add, make_program, refuse

from nova import _native


def resident_kib() -> int:
    """Memory of this process now, not its peak."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.parametrize("release_gil", [False, True])
def test_threads_call_one_program_at_once(kernels, release_gil):
    image, at = kernels
    size = 256
    program = make_program(
        image,
        [((size,), F32, False)],
        [((size,), F32, -1)],
        [(ARGUMENT, 0), (WORKSPACE, 0, 4 * size), (OUTPUT, 0)],
        [(at["spin"], size, (0, 1, 2))],
        4 * size,
        release_gil=release_gil,
    )
    failures = []

    def work(seed: int) -> None:
        x = np.full(size, seed, "f4")
        for _ in range(100):
            result = program(x)
            if not (result == seed + 199).all():
                failures.append(seed)
                return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_reference_counts_are_as_before(kernels):
    program = make_add(kernels)
    x, y, out = np.ones(8, "f4"), np.ones(8, "f4"), np.ones(8, "f4")
    inputs, bad = [x, y], [1.0]
    watched = (x, y, out, inputs, bad, F32, program, program.image, refuse, None)

    def use() -> None:
        program(x, y)
        program(x, y, out=out)
        program.run(inputs)
        program.run((x,), (y,), [out])
        for arguments, keywords in [((x, bad), {}), ((x,), {}), ((x, y), {"out": bad})]:
            try:
                program(*arguments, **keywords)
            except Refused:
                continue
            raise AssertionError

    use()
    gc.collect()
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(100):
        use()
    gc.collect()
    after = [sys.getrefcount(o) for o in watched]
    # Unrelated objects may take or drop a few references to None and dtypes; 100 is a leak.
    assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True)), (before, after)
    assert before[:5] == after[:5]


def test_memory_is_flat_over_a_million_calls(kernels):
    program = make_add(kernels)
    x = np.ones(8, "f4")
    inputs = [x, x]
    for _ in range(10_000):
        program(x, x)
    before = resident_kib()
    for _ in range(500_000):
        program(x, x)
        program.run(inputs)
    assert resident_kib() - before < 2048


def test_memory_is_flat_over_constructions(kernels, text):
    def build() -> None:
        make_add((_native.Image(text[0], [(0, len(text[0]), 0, len(text[0]), 5)]), text[1]))
        with pytest.raises(ValueError):
            make_program(kernels[0], [((8,), F32, False)], [((8,), F32, 0)])
        with pytest.raises(ValueError):
            make_program(kernels[0], [], [], launches=[(1 << 40, 1, ())])

    for _ in range(500):
        build()
    sizes = [resident_kib()]
    for _ in range(3):
        for _ in range(1_700):
            build()
        gc.collect()
        sizes.append(resident_kib())
    growth = [later - earlier for earlier, later in pairwise(sizes)]
    assert min(growth) < 700, "a leak grows in every round"
