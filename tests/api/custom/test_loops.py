"""Custom ops written as loops against numpy and torch, on the CPU and the simulated GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import KernelError
from nova.graph.interpret import evaluate
from nova.plan import parse_plan

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 10)).astype("f4")
BOTH = ("cpu", "sim")


def like(*shape: Any) -> Any:
    return lambda x, *others, **constants: nova.TensorType(shape, x.dtype)


@nova.custom_op(body="loops")
def softmax(x, out):
    n, m = x.shape
    for i in nova.range(n):
        top = -math.inf
        for k in range(m):
            top = max(top, x[i, k])
        total = 0
        for k in range(m):
            total += math.exp(x[i, k] - top)
        for j in nova.range(m):
            out[i, j] = np.exp(x[i, j] - top) / total


@nova.custom_op(body="loops", out=lambda a, b: nova.TensorType((b.shape[1], a.shape[0]), nova.f32))
def transposed_matmul(a, b, out):
    """Stores its result in another order than that of its loops."""
    for i in range(len(a)):
        for j in range(b.shape[1]):
            out[j, i] = 0.0
            for k in range(len(b)):
                out[j, i] += a[i, k] * b[k, j]


@nova.custom_op(body="loops")
def running_sum(x, out):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1] - 1, -1, -1):
            total += x[i, j]
            out[i, j] = total


@nova.custom_op(
    body="loops",
    out=lambda x: (nova.TensorType(x.shape[:1], x.dtype), nova.TensorType(x.shape[:1], nova.i64)),
)
def extreme(x, value, position):
    """A sequential loop with two results that depend on each other."""
    for i in range(x.shape[0]):
        best = x[i, 0]
        at = 0
        for k in range(1, x.shape[1]):
            if x[i, k] > best:
                best = x[i, k]
                at = k
        value[i] = best
        position[i] = at


@nova.custom_op(body="loops")
def blur(x, out, *, radius, weight=0.5):
    """Neighbours at computed positions; out of range is clamped to the edge."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total = weight * x[i, j]
            for k in range(-radius, radius + 1):
                inside = 0 <= j + k < x.shape[1] and k != 0
                total += x[i, min(max(j + k, 0), x.shape[1] - 1)] if inside else 0.0
            out[i, j] = total


@nova.custom_op(body="loops", out=lambda x, at: nova.TensorType(at.shape, x.dtype))
def pick(x, at, out):
    for i in range(len(at)):
        out[i] = x[at[i] % x.shape[0], -1] if at[i] >= 0 else float(at[i] // 2)


def blurred(x: np.ndarray, radius: int, weight: float) -> np.ndarray:
    total = weight * x
    for k in range(-radius, radius + 1):
        if k:
            pad = np.pad(x, ((0, 0), (radius, radius)))
            total = total + pad[:, radius + k : radius + k + x.shape[1]]
    return total


def test_results_of_loops() -> None:
    """Each kernel compiled for both targets, interpreted, and in numpy or torch."""
    tensor = torch.tensor(X)
    softmax.check(X, targets=BOTH)
    np.testing.assert_allclose(softmax(X).numpy(), torch.softmax(tensor, 1), rtol=1e-5)
    transposed_matmul.check(X, X.T, targets=BOTH, rtol=1e-4)
    expected = (X @ X.T).T
    np.testing.assert_allclose(transposed_matmul(X, X.T).numpy(), expected, rtol=1e-4, atol=1e-5)
    running_sum.check(X, targets=BOTH, rtol=1e-4)
    expected = np.cumsum(X[:, ::-1], 1)[:, ::-1]
    np.testing.assert_allclose(running_sum(X).numpy(), expected, rtol=1e-4, atol=1e-5)
    extreme.check(X, targets=BOTH)
    value, position = extreme(X)
    np.testing.assert_array_equal(value.numpy(), X.max(1))
    np.testing.assert_array_equal(position.numpy(), X.argmax(1))
    blur.check(X, radius=2, targets=BOTH)
    for weight in (0.5, 2):
        result = blur(X, radius=2, weight=weight).numpy()
        np.testing.assert_allclose(result, blurred(X, 2, weight), rtol=1e-5, atol=1e-6)
    at = np.array([3, -5, 0, 17, -4], "i4")
    pick.check(X, at, targets=BOTH)
    expected = np.where(at >= 0, X[at % 6, -1], at // 2)
    np.testing.assert_allclose(pick(X, at).numpy(), expected)


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4", "bf16"])
def test_dtypes(dtype: str) -> None:
    """Floats are computed in f32 or f64; integers store what Python computes."""
    names = {"f2": nova.f16, "f8": nova.f64, "i4": nova.i32, "bf16": nova.bf16}
    x = nova.tensor(np.round(X * 4)).cast(dtype=names[dtype]).numpy()
    running_sum.check(x, targets=BOTH, rtol=1e-2)
    extreme.check(x)
    result = running_sum(x).numpy()
    assert result.dtype == x.dtype
    expected = np.cumsum(x.astype("f8")[:, ::-1], 1)[:, ::-1]
    np.testing.assert_allclose(result.astype("f8"), expected, rtol=1e-2)


def test_loops_become_stages_of_other_ops() -> None:
    """A product of loops is a GEMM; a softmax is one kernel of reductions, as Nova's own."""
    a, b = nova.input((64, 32), name="a"), nova.input((32, 48), name="b")
    text = nova.compile(transposed_matmul(a, b), inputs=[a, b]).stages["kernels"]
    assert text.count('"reduction"') == 1 and "scf.for" not in text
    text = nova.compile(nova.relu(softmax(a) * 2.0), inputs=[a]).stages["kernels"]
    assert text.count('"reduction"') == 2 and "scf.for" not in text
    text = nova.compile(running_sum(a), inputs=[a]).stages["kernels"]
    assert "tensor.insert" in text


def test_transforms() -> None:
    """Under jit, vmap (also nested, and of a shared operand) and in loops of Nova."""
    stacked = np.stack([X, X * 2, -X])
    expected = np.stack([softmax(x).numpy() for x in stacked])
    np.testing.assert_allclose(nova.vmap(softmax)(stacked).numpy(), expected, rtol=1e-6)
    jitted = nova.jit(nova.vmap(lambda x: softmax(x) + 1.0))
    np.testing.assert_allclose(jitted(stacked), expected + 1, rtol=1e-6)
    twice = nova.vmap(nova.vmap(lambda x: blur(x, radius=1)))(stacked[None])
    np.testing.assert_allclose(
        twice.numpy()[0], [blurred(x, 1, 0.5) for x in stacked], rtol=1e-5, atol=1e-6
    )
    products = nova.vmap(transposed_matmul, in_axes=(0, None))(stacked, X.T)
    np.testing.assert_allclose(
        products.numpy(), [(x @ X.T).T for x in stacked], rtol=1e-4, atol=1e-5
    )
    value, position = nova.vmap(extreme)(stacked)
    np.testing.assert_array_equal(position.numpy(), stacked.argmax(2))
    np.testing.assert_array_equal(value.numpy(), stacked.max(2))
    last, _ = nova.scan(lambda c, _: (softmax(c), None), nova.tensor(X), None, length=3)
    again = softmax(softmax(softmax(X))).numpy()
    np.testing.assert_allclose(last.numpy(), again, rtol=1e-5)


def test_symbolic_sizes() -> None:
    n = nova.dim("n", max=64)
    x = nova.input((n, 10), name="x")
    program = nova.compile([softmax(x), running_sum(x), blur(x, radius=1)], inputs=[x])
    for rows in (1, 6, 33):
        array = RNG.standard_normal((rows, 10)).astype("f4")
        values = program.run([array])
        np.testing.assert_allclose(values[0], torch.softmax(torch.tensor(array), 1), rtol=1e-5)
        np.testing.assert_allclose(
            values[1], np.cumsum(array[:, ::-1], 1)[:, ::-1], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(values[2], blurred(array, 1, 0.5), rtol=1e-5, atol=1e-6)


def test_plan_text_has_the_kernel() -> None:
    x = nova.input((6, 10), name="x")
    plan = nova.compile(softmax(x), inputs=[x]).plan
    assert parse_plan(str(plan)) == plan
    assert "total += exp(x[i, k] - top)" in str(plan)


def test_elements_that_are_not_written_are_zero() -> None:
    @nova.custom_op(body="loops")
    def even(x, out):
        for i in range(0, x.shape[0], 2):
            out[i] = x[i]

    x = np.arange(1, 8, dtype="f4")
    even.check(x, targets=BOTH)
    np.testing.assert_array_equal(even(x).numpy(), [1, 0, 3, 0, 5, 0, 7])


def test_indices_out_of_range() -> None:
    """Compiled loads are clamped and stores dropped; the interpreter names the line."""

    @nova.custom_op(body="loops")
    def shift(x, out):
        for i in range(x.shape[0]):
            out[i - 1] = x[i + 1]

    x = np.arange(4, dtype="f4")
    np.testing.assert_array_equal(shift(x).numpy(), [2, 3, 3, 0])
    with pytest.raises(nova.errors.KernelError, match="out has 4 elements") as caught:
        evaluate([shift(x)])
    assert caught.value.where.endswith(f"{__file__.split('/')[-1]}:{_line(shift)}")


def _line(op: Any) -> int:
    return op.__wrapped__.__code__.co_firstlineno + 3


@nova.custom_op(body="loops")
def of_truth(x, out):
    for i in range(x.shape[0]):
        chosen = (x[i] and 5.0) + (x[i] or 7.0)
        out[i] = chosen + 100 * ((i > 0) + (i > 1) + (i > 2 and x[i] < 5.0))


def test_truth_values_are_those_of_python() -> None:
    """`and` and `or` give an operand, and bools are numbers in sums."""
    x = np.arange(7, dtype="f4")
    values = [
        (v and 5.0) + (v or 7.0) + 100 * ((i > 0) + (i > 1) + (i > 2 and v < 5.0))
        for i, v in enumerate(x.tolist())
    ]
    np.testing.assert_array_equal(of_truth(x).numpy(), np.array(values, "f4"))


def test_a_variable_is_not_read_after_its_loop() -> None:
    @nova.custom_op(body="loops")
    def after(x, out):
        for i in range(3):
            out[i] = x[i]
        out[0] = i

    with pytest.raises(KernelError, match="reads 'i' outside of its loop"):
        after(np.ones(3, "f4"))


def test_an_integer_has_no_negative_power() -> None:
    @nova.custom_op(body="loops")
    def half(x, out):
        for i in range(3):
            out[i] = x[i] * 2**-1

    with pytest.raises(KernelError, match="negative power"):
        half(np.ones(3, "f4"))


@nova.custom_op(body="loops")
def counted(x, out):
    for i in range(x.shape[0]):
        count = x[i] > 0.0
        count += x[i] > 1.0
        out[i] = count


def test_bools_are_counted_in_place() -> None:
    x = np.array([-1.0, 0.5, 2.0], "f4")
    np.testing.assert_array_equal(counted(x).numpy(), np.array([0, 1, 2], "f4"))


@nova.custom_op(body="loops")
def store_under_if_then_in_a_loop(x, out):
    n, m = x.shape
    for i in range(n):
        if x[i, 0] > 0.0:
            out[i, 0] = 1.0
            last = 2.0
        else:
            out[i, m - 1] = -1.0
            last = 3.0
        for j in range(1, m - 1):
            out[i, j] = x[i, j] * last


@nova.custom_op(body="loops")
def loops_under_if(x, out):
    n, m = x.shape
    for i in range(n):
        for j in range(m):
            out[i, j] = x[i, j]
        if x[i, 0] > 0.0:
            for j in range(m):
                if j % 2 == 0:
                    out[i, j] = out[i, j] * 2.0 + out[0, 0]
        elif i > 1:
            out[i, 0] = 7.0


def test_stores_under_if_and_in_inner_loops() -> None:
    x = np.random.default_rng(7).standard_normal((5, 7)).astype("f4")
    expected = np.zeros_like(x)
    store_under_if_then_in_a_loop.__wrapped__(x, expected)
    np.testing.assert_allclose(store_under_if_then_in_a_loop(x).numpy(), expected, rtol=1e-6)
    store_under_if_then_in_a_loop.check(x, targets=("cpu", "sim"))
    loops_under_if.__wrapped__(x, expected)
    np.testing.assert_allclose(loops_under_if(x).numpy(), expected, rtol=1e-6)
    loops_under_if.check(x, targets=("cpu", "sim"))


@nova.custom_op(
    body="loops",
    out=lambda x: (x, nova.TensorType(x.shape, "f64"), nova.TensorType(x.shape, "bool")),
)
def unsigned(x, third, number, is_large):
    for i in range(len(x)):
        third[i] = x[i] // 3 + x[i] % 5 + (x[i] >> 60)
        number[i] = float(x[i])
        is_large[i] = x[i] > 5 and x[i] >= 9223372036854775809


@nova.custom_op(body="loops", out=lambda x: (nova.TensorType((1,), "u64"),) * 3)
def unsigned_extremes(x, largest, least, total):
    for k in range(1):
        low = 18446744073709551615
        high = 0
        added = 0
        for i in range(len(x)):
            low = min(low, x[i])
            high = max(high, x[i])
            added += x[i]
        largest[k] = high
        least[k] = low
        total[k] = added


def test_unsigned_integers_of_64_bits() -> None:
    x = np.array([1, 4, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1], "u8")
    third, number, is_large = (t.numpy() for t in unsigned(x))
    np.testing.assert_array_equal(third, x // 3 + x % 5 + (x >> 60))
    np.testing.assert_array_equal(number, x.astype("f8"))
    np.testing.assert_array_equal(is_large, x > 2**63)
    unsigned.check(x, targets=("cpu", "sim"))
    for values in (x, x[3:]):
        extremes = [int(t.numpy()[0]) for t in unsigned_extremes(values)]
        assert extremes == [int(values.max()), int(values.min()), int(values.sum())]
    unsigned_extremes.check(x[3:], targets=("cpu", "sim"))


def test_a_variable_that_only_a_branch_assigns_is_not_read() -> None:
    @nova.custom_op(body="loops")
    def under_if(x, out):
        for i in range(3):
            if x[i] > 0:
                value = x[i]
            out[i] = value

    @nova.custom_op(body="loops")
    def added(x, out):
        for i in range(3):
            if x[i] > 0:
                total = x[i]
            else:
                out[i] = 0
            total += 1
            out[i] = total

    for op, name in ((under_if, "value"), (added, "total")):
        with pytest.raises(KernelError, match=f"reads '{name}', which no statement") as caught:
            op(np.ones(3, "f4"))
        assert "test_loops.py" in str(caught.value)
        assert f"{name} = 0.0" in str(caught.value)


def test_variables_that_every_branch_assigns() -> None:
    @nova.custom_op(body="loops")
    def chosen(x, out):
        last = 0.0
        for i in range(4):
            if x[i] > 1:
                value = x[i]
            elif x[i] > 0:
                value = 10.0
            else:
                value = -1.0
            if x[i] < 0:
                last = value
            out[i] = value + last

    x = np.array([2.0, 0.5, -3.0, 4.0], "f4")
    np.testing.assert_array_equal(chosen(x).numpy(), np.array([2, 10, -2, 3], "f4"))


@nova.custom_op(body="loops", out=lambda x: (x, x, x))
def several_nests(x, scaled, shifted, again):
    n, m = x.shape
    total = 0.0
    for i in range(n):
        total += x[i, 0]
        total *= 0.5
    for i in nova.range(n):
        row = 0.0
        for j in range(m):
            row += x[i, j]
        for j in nova.range(m):
            scaled[i, j] = x[i, j] * row
        for j in nova.range(m):
            shifted[i, j] = scaled[i, j] + x[i, -1] + total
    for j in nova.range(m):
        for i in nova.range(n):
            again[i, j] = shifted[i, j] * 2.0


def test_a_loop_nest_reads_what_the_one_before_it_wrote() -> None:
    """Each of the second and third outputs needs the one before; all loops have one name."""
    x = np.linspace(-1, 1, 12).reshape(3, 4)
    right = [np.zeros_like(x) for _ in range(3)]
    several_nests._function(x, *right)
    for actual, expected in zip(several_nests(x), right, strict=True):
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)
    several_nests.check(x, targets=("cpu", "sim"))


def test_a_negative_size_in_a_type_rule_is_an_error() -> None:
    @nova.custom_op(body="loops", out=lambda x: nova.TensorType((len(x.shape) - 4,), nova.f32))
    def short(x, out):
        for i in range(len(x)):
            out[i] = x[i]

    with pytest.raises(KernelError, match=r"returned f32\[-3\], which has a negative size"):
        short(np.ones(3, "f4"))


@nova.custom_op(body="loops", out=lambda x: nova.TensorType((x.shape[0],), x.dtype))
def carried_out_of_a_loop(x, out):
    n = len(x)
    last, count, is_large = 2.0, 0, False
    for i in range(n):
        out[i] = last
        last += x[i, 0]
        count += 1
        is_large = last > 1
    if is_large and count > 1:
        for i in range(n):
            out[i] += last * count
    out[0] = last


def test_a_scalar_of_a_loop_that_stores_is_read_on_devices() -> None:
    """One thread runs the loop; the loops after it need its scalars."""
    for sign in (1, -1):
        carried_out_of_a_loop.check(np.full((3, 2), sign, "f4"), targets=("cpu", "sim"))
