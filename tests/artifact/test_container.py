"""Blocks of tables with regions: they read back, and damaged ones are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nova
from nova import _native
from nova.artifact.tables import Tables, pack_tables, unpack_tables


def loops() -> Tables:
    x = nova.tensor(np.ones(4, np.float32))
    looped = nova.fori_loop(0, 5, lambda i, v: nova.cond(v.sum() > 3, lambda: v * 2, lambda: v), x)
    return nova.compile(looped, inputs=[x])._executable.tables


def check(tables: Tables) -> None:
    """Let the native reader check a block."""
    code = dict.fromkeys(tables.linked_symbols, 0)
    _native.plan_tasks(pack_tables(tables, code), 1, 40_000, 1)


def changed(tables: Tables, **fields: Any) -> Tables:
    """The tables with another control kernel in the program."""
    kernels = [
        k if k.control is None else replace(k, control=replace(k.control, **fields))
        for k in tables.kernels
    ]
    return replace(tables, kernels=tuple(kernels))


def test_a_block_with_regions_reads_back() -> None:
    tables = loops()
    assert len(tables.regions) == 3
    code = dict.fromkeys(tables.linked_symbols, 0)
    assert unpack_tables(pack_tables(tables, code)) == tables
    check(tables)


@pytest.mark.parametrize(
    "fields",
    [
        {"length": -1},
        {"carries": 9},
        {"consts": 7},
        {"regions": ()},
        {"regions": (3,)},
        {"regions": (0,)},
        {"construct": "while"},
        {"construct": "switch"},
    ],
    ids=str,
)
def test_damaged_control_kernels_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="the file failed a check"):
        check(changed(loops(), **fields))


def device_loops() -> Tables:
    x = nova.tensor(np.ones(64, np.float32))
    looped = nova.fori_loop(0, 5, lambda i, v: nova.tanh(v) + i, x)
    program = nova.compile(looped, inputs=[x], target="cuda:sm_80", run_mode="sim")
    return program._executable.tables


def test_a_block_with_regions_for_a_device_reads_back() -> None:
    tables = device_loops()
    assert [k.core for k in tables.kernels if k.control] == ["device"]
    assert tables.device_symbols and not tables.linked_symbols
    assert unpack_tables(pack_tables(tables)) == tables


def test_loops_of_a_device_with_kernels_of_a_cpu_are_refused() -> None:
    tables = device_loops()
    kernels = tuple(replace(k, core="vector", device=None) for k in tables.regions[0].kernels)
    region = replace(tables.regions[0], kernels=kernels)
    with pytest.raises(Exception, match="another processor"):
        check(replace(tables, regions=(region,)))


def test_a_loop_of_a_device_in_a_program_of_a_cpu_is_refused() -> None:
    tables = loops()
    kernels = tuple(k if k.control is None else replace(k, core="device") for k in tables.kernels)
    with pytest.raises(Exception, match="the file failed a check"):
        check(replace(tables, kernels=kernels))
