"""The garbage collector stands still in a compile, and is afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import nova
from nova import knobs
from nova.compiler import driver
from nova.core.gc_pause import paused_gc


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_running = gc.isenabled()
    yield
    (gc.enable if was_running else gc.disable)()


def test_off_inside_and_on_again_after_an_error():
    gc.enable()
    with pytest.raises(KeyError), paused_gc():
        assert not gc.isenabled()
        with paused_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with paused_gc():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_compile_pauses_it(monkeypatch):
    observed = []
    write = driver.write_artifact

    def watched(*args):
        observed.append(gc.isenabled())
        return write(*args)

    monkeypatch.setattr(driver, "write_artifact", watched)
    gc.enable()
    with knobs.override(cache=False):
        x = nova.tensor(np.ones(3, np.float32))
        y = nova.compile(x * 7.125 - 3.0625, inputs=[x])
    assert y.origin == "compiled" and observed == [False] and gc.isenabled()
