"""Loops and branches of jax and of scf, on the CPU and on devices, against jax and numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import nova
from nova import knobs

Program = tuple[Callable[..., Any], tuple[Any, ...]]
_RNG = np.random.default_rng(11)


def f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype("f4")


def _rnn_loss(w, x):
    def step(h, a):
        h = jnp.tanh(h @ w + a)
        return h, h.sum()

    h, sums = lax.scan(step, jnp.zeros((2, 4)), x)
    return h.sum() + (sums**2).sum()


def _newton(x):
    """A while loop that carries a float, an integer, a flag and a vector."""

    def again(state):
        _, count, close, _ = state
        return ~close & (count < 50)

    def body(state):
        guess, count, _, trail = state
        new = 0.5 * (guess + x / guess)
        trail = trail.at[count % 8].set(new)
        return new, count + 1, abs(new - guess) < 1e-4, trail

    return lax.while_loop(again, body, (x, jnp.int32(0), jnp.bool_(False), jnp.zeros(8)))


def _several_types(x, n):
    half = x.astype(jnp.bfloat16)

    def body(i, state):
        a, b, c, d = state
        return a + b.astype("f4"), b * 2 + 1, c + half, d ^ (i % 3 == 0)

    initial = (jnp.zeros(3), jnp.arange(3, dtype="i1"), half, jnp.array([True, False, True]))
    a, b, c, d = lax.fori_loop(0, n, body, initial)
    return a, b, c.astype("f4"), d


def _collatz(n):
    """A branch in a loop in a loop."""

    def length(start):
        def body(state):
            value, steps = state
            value = lax.cond(value % 2 == 0, lambda v: v // 2, lambda v: 3 * v + 1, value)
            return value, steps + 1

        return lax.while_loop(lambda s: s[0] != 1, body, (start, jnp.int32(0)))[1]

    return lax.fori_loop(1, n, lambda i, best: jnp.maximum(best, length(i)), jnp.int32(0))


def _switch_in_scan(modes, x):
    def step(carry, inputs):
        mode, row = inputs
        carry = lax.switch(
            mode, [lambda c: c + row, lambda c: c * row, lambda c: jnp.where(row > 0, c, -c)], carry
        )
        return carry, carry.max()

    return lax.scan(step, jnp.ones(5), (modes, x))


def _around(x, w):
    """Device kernels before and behind a loop, which needs results of them."""
    h = jax.nn.relu(x @ w)
    h = lax.fori_loop(0, jnp.int32(h.sum()) % 7, lambda i, a: a * 0.5 + h, h)
    return jax.nn.softmax(h @ w.T), h.mean()


def _grad_cond(x):
    return lax.cond(x.sum() > 0, lambda a: (a**2).sum(), lambda a: jnp.exp(a).sum(), x)


PROGRAMS: dict[str, Program] = {
    "while_several": (_newton, (np.float32(30.0),)),
    "fori_types": (_several_types, (f(3), np.int32(6))),
    "fori_none": (_several_types, (f(3), np.int32(0))),
    "fori_swap": (
        lambda x, y, n: lax.fori_loop(0, n, lambda i, ab: (ab[1], ab[0]), (x, y)),
        (f(3), f(3), np.int32(5)),
    ),
    "nested": (_collatz, (np.int32(20),)),
    "scan_grad": (jax.grad(_rnn_loss, argnums=(0, 1)), (f(4, 4) * np.float32(0.3), f(17, 2, 4))),
    "scan_reverse": (
        lambda x: lax.scan(lambda c, a: (c + a, c * a), jnp.float32(1), x, reverse=True),
        (f(33),),
    ),
    "switch_in_scan": (_switch_in_scan, (np.array([0, 2, 1] * 6, "i4"), f(18, 5))),
    "switch_outside": (
        lambda i, x: lax.switch(i, [lambda a: a * 2, lambda a: a + 1], x),
        (np.int32(40), f(4)),
    ),
    "cond_false": (
        lambda p, x: lax.cond(p, lambda a: (a * 2, a.sum()), lambda a: (a + 1, a.max()), x),
        (np.bool_(0), f(4, 3)),
    ),
    "cond_grad": (jax.grad(_grad_cond), (f(6),)),
    "around": (_around, (f(32, 64), f(64, 64) * np.float32(0.2))),
    "associative_scan": (lambda x: lax.associative_scan(jnp.add, x), (f(37),)),
    "scatter_in_fori": (
        lambda x, i, n: lax.fori_loop(0, n, lambda _, a: a.at[i].add(a[0]), x),
        (f(8), np.array([1, 2, 2, 5], "i4"), np.int32(3)),
    ),
    "sort_in_fori": (
        lambda x, n: lax.fori_loop(0, n, lambda _, a: jnp.sort(a) * 0.5 + x, x),
        (f(90), np.int32(3)),
    ),
    "map": (lambda x: lax.map(lambda a: jnp.sort(a).cumsum(), x), (f(12, 5),)),
}


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def run(program: Any, arguments: Any) -> tuple[Any, ...]:
    results = program(*leaves(arguments))
    return results if isinstance(results, tuple) else (results,)


def assert_close(results: tuple[Any, ...], wanted: Any) -> None:
    for actual, want in zip(results, leaves(wanted), strict=True):
        assert (actual.shape, actual.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(actual, want, rtol=2e-5, atol=2e-5)


_SAMPLE = (
    "scatter_in_fori",
    "while_several",
    "associative_scan",
    "nested",
    "scan_grad",
    "switch_in_scan",
    "cond_false",
)


@pytest.mark.parametrize(
    "name", [n if n in _SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS]
)
def test_control_flow_on_the_cpu_and_on_devices(name: str, tmp_path: Any) -> None:
    function, arguments = PROGRAMS[name]
    module = export.export(jax.jit(function))(*arguments).mlir_module_serialized
    expected = jax.jit(function)(*arguments)
    both = nova.translate(module, targets=["x86_64", "cuda:sm_80"])
    both.save(tmp_path / "both.nova")
    assert_close(run(nova.load(tmp_path / "both.nova", device="cpu"), arguments), expected)
    for loops in knobs.DEVICE_LOOPS:
        with knobs.override(device_loops=loops):
            program = nova.load(tmp_path / "both.nova", device="sim")
        assert_close(run(program, arguments), expected)


def test_control_flow_on_the_newest_devices(tmp_path: Any) -> None:
    function, arguments = PROGRAMS["around"]
    module = export.export(jax.jit(function))(*arguments).mlir_module()
    nova.translate(module, targets="cuda:sm_90a").save(tmp_path / "p.nova")
    program = nova.load(tmp_path / "p.nova", device="sim")
    assert_close(run(program, arguments), jax.jit(function)(*arguments))
    assert {kernel.core for kernel in program.kernels} == {"device"}
    assert [k.control.construct for k in program.kernels if k.control] == ["while"]


def test_a_loop_updates_a_donated_argument(tmp_path: Any) -> None:
    def step(state, x):
        return lax.fori_loop(0, 30, lambda i, s: s * 0.5 + x, state)

    state, x = f(6), f(6)
    expected = np.asarray(jax.jit(step)(state, x))
    module = export.export(jax.jit(step, donate_argnums=0))(state, x).mlir_module()
    nova.translate(module, targets="cuda:sm_80").save(tmp_path / "p.nova")
    inputs = state.copy()
    result = nova.load(tmp_path / "p.nova", device="sim")(inputs, x)
    assert result is inputs
    np.testing.assert_allclose(inputs, expected, rtol=1e-5)


# The second region gets more values than the first one, or the same in another order.
UNEQUAL = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<i32>) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %limit = tensor.extract %n[] : tensor<i32>
  %two = arith.constant dense<2.0> : tensor<4xf32>
  %r:3 = scf.while (%i = %zero, %a = %x)
      : (i32, tensor<4xf32>) -> (i32, tensor<4xf32>, tensor<4xf32>) {
    %more = arith.cmpi slt, %i, %limit : i32
    %d = arith.mulf %a, %two : tensor<4xf32>
    scf.condition(%more) %i, %d, %a : i32, tensor<4xf32>, tensor<4xf32>
  } do {
  ^bb0(%i: i32, %d: tensor<4xf32>, %a: tensor<4xf32>):
    %j = arith.addi %i, %one : i32
    %s = arith.subf %d, %a : tensor<4xf32>
    %t = arith.addf %s, %two : tensor<4xf32>
    scf.yield %j, %t : i32, tensor<4xf32>
  }
  %e = tensor.from_elements %r#0 : tensor<i32>
  return %r#1, %e : tensor<4xf32>, tensor<i32>
}
"""
SWAPPED = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %one = arith.constant 1 : i32
  %zero = arith.constant 0 : i32
  %limit = tensor.extract %n[] : tensor<i32>
  %y = arith.addf %x, %x : tensor<4xf32>
  %r:3 = scf.while (%a = %x, %b = %y, %i = %zero)
      : (tensor<4xf32>, tensor<4xf32>, i32) -> (tensor<4xf32>, tensor<4xf32>, i32) {
    %more = arith.cmpi slt, %i, %limit : i32
    scf.condition(%more) %b, %a, %i : tensor<4xf32>, tensor<4xf32>, i32
  } do {
  ^bb0(%b: tensor<4xf32>, %a: tensor<4xf32>, %i: i32):
    %j = arith.addi %i, %one : i32
    %s = arith.addf %b, %a : tensor<4xf32>
    scf.yield %b, %s, %j : tensor<4xf32>, tensor<4xf32>, i32
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}
"""


def _unequal(x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    for _ in range(n):
        x = x * 2 - x + 2
    return x * 2, np.array(n, "i4")


def _swapped(x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = x, x + x
    for _ in range(n):
        a, b = b, b + a
    return b, a


def test_the_log_names_kernels_that_stay_on_the_host(capfd: pytest.CaptureFixture[str]) -> None:
    """A loop that carries a number, and not only tensors, is code of one kernel."""
    with knobs.override(log="compile"):
        nova.translate(UNEQUAL, targets="cuda:sm_80")
    output = capfd.readouterr().err
    assert "@kernel_0 runs on the host: it holds scf.while" in output


@pytest.mark.parametrize("target", ["x86_64", "cuda:sm_80"])
@pytest.mark.parametrize(("text", "wanted"), [(UNEQUAL, _unequal), (SWAPPED, _swapped)])
def test_while_whose_regions_differ(text: str, wanted: Any, target: str, tmp_path: Any) -> None:
    nova.translate(text, targets=target).save(tmp_path / "p.nova")
    program = nova.load(tmp_path / "p.nova", device="cpu" if target == "x86_64" else "sim")
    x = f(4)
    for turns in (0, 1, 5):
        for actual, want in zip(program(x, np.int32(turns)), wanted(x, turns), strict=True):
            np.testing.assert_allclose(actual, want, rtol=1e-6)
