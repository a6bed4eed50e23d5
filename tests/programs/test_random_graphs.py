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
    for actual, want in zip(results, expected, strict=True):
        assert actual.dtype == want.dtype and actual.shape == want.shape
        np.testing.assert_allclose(actual, want, rtol=rtol, atol=rtol)


def generated(examples, body, **options):
    """`body` as a test over that many programs."""
    programs = graph_strategies.programs(**options)
    return settings(max_examples=examples, **_SETTINGS)(given(program=programs)(body))


def check_f64(program):
    check(*program, rtol=1e-9)


def check_f32(program):
    check(*program, rtol=2e-3)


def check_in_small_tiles(program):
    with nova.knobs.override(serial_work=0, tile_work=40):
        check(*program, rtol=1e-9)


def check_gradients(program):
    leaves, outputs = program
    loss = sum((o.sum() for o in outputs[1:]), outputs[0].sum())
    check(leaves, nova.graph.gradients(loss, leaves), rtol=1e-7)


def check_on_a_device(on_device, program):
    check(*program, rtol=2e-3, **on_device)


def check_gradients_on_a_device(on_device, program):
    """In kernels of one op each, as far as they can be told apart."""
    leaves, outputs = program
    loss = sum((o.sum() for o in outputs[1:]), outputs[0].sum())
    with nova.knobs.override(serial_work=0):
        check(leaves, nova.graph.gradients(loss, leaves), rtol=1e-7, **on_device)


FLOATS = {"dtype": np.float32, "max_ops": 15}

test_random_program_f64 = generated(80, check_f64)
test_random_program_f32 = generated(40, check_f32, **FLOATS)
test_random_program_in_small_tiles = generated(60, check_in_small_tiles, max_ops=25)
test_random_gradients = generated(40, check_gradients, max_ops=20)
test_random_program_on_a_device = generated(30, check_on_a_device, **FLOATS)
test_random_gradients_on_a_device = generated(20, check_gradients_on_a_device, max_ops=15)

test_more_programs_f32 = pytest.mark.slow(generated(500, check_f32, **FLOATS))
test_more_programs_on_a_device = pytest.mark.slow(generated(300, check_on_a_device, **FLOATS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@settings(max_examples=125, **_SETTINGS)
@given(graph_strategies.programs(max_ops=20))
def test_more_gradients(part, program):
    check_gradients(program)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@settings(max_examples=50, **_SETTINGS)
@given(graph_strategies.programs(max_ops=15))
def test_more_gradients_on_a_device(on_device, part, program):
    check_gradients_on_a_device(on_device, program)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))  # each draws programs of its own
@pytest.mark.parametrize("serial_work, tile_work", [(20_000, 65_536), (0, 40), (300, 7)])
@settings(max_examples=250, **_SETTINGS)
@given(graph_strategies.programs())
def test_random_program_at_length(serial_work, tile_work, part, program):
    with nova.knobs.override(serial_work=serial_work, tile_work=tile_work):
        check(*program, rtol=1e-9)
