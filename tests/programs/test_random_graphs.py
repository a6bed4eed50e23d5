"""Random programs: what the compiler makes of them against the numpy interpreter."""

import graph_strategies
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import nova
from nova.graph.interpret import evaluate

_SETTINGS = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}


def check(leaves, outputs, rtol, **options):
    expected = evaluate(outputs)
    program = nova.compile(outputs, inputs=leaves, **options)
    results = program.run([leaf.data for leaf in leaves])
    results = results if isinstance(results, tuple) else (results,)
    for got, want in zip(results, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


@settings(max_examples=150, **_SETTINGS)
@given(graph_strategies.programs())
def test_random_program_f64(program):
    check(*program, rtol=1e-9)


@settings(max_examples=60, **_SETTINGS)
@given(graph_strategies.programs(dtype=np.float32, max_ops=15))
def test_random_program_f32(program):
    check(*program, rtol=2e-3)


@settings(max_examples=100, **_SETTINGS)
@given(graph_strategies.programs(max_ops=25))
def test_random_program_in_small_tiles(program):
    with nova.knobs.override(serial_work=0, tile_work=40):
        check(*program, rtol=1e-9)


@settings(max_examples=60, **_SETTINGS)
@given(graph_strategies.programs(max_ops=20))
def test_random_gradients(program):
    leaves, outputs = program
    loss = sum((o.sum() for o in outputs[1:]), outputs[0].sum())
    check(leaves, nova.graph.gradients(loss, leaves), rtol=1e-7)


@settings(max_examples=40, **_SETTINGS)
@given(program=graph_strategies.programs(dtype=np.float32, max_ops=15))
def test_random_program_on_a_device(on_device, program):
    check(*program, rtol=2e-3, **on_device)


@settings(max_examples=30, **_SETTINGS)
@given(program=graph_strategies.programs(max_ops=15))
def test_random_gradients_on_a_device(on_device, program):
    """In kernels of one op each, as far as they can be told apart."""
    leaves, outputs = program
    loss = sum((o.sum() for o in outputs[1:]), outputs[0].sum())
    with nova.knobs.override(serial_work=0):
        check(leaves, nova.graph.gradients(loss, leaves), rtol=1e-7, **on_device)


@pytest.mark.slow
@pytest.mark.parametrize("serial_work, tile_work", [(20_000, 65_536), (0, 40), (300, 7)])
@settings(max_examples=2000, **_SETTINGS)
@given(graph_strategies.programs())
def test_random_program_at_length(serial_work, tile_work, program):
    with nova.knobs.override(serial_work=serial_work, tile_work=tile_work):
        check(*program, rtol=1e-9)
