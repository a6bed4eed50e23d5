"""What a compiled program takes and gives: arrays of every library, numbers, `out=`."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentTypeError,
    DeviceError,
    OutputError,
    UnknownKeywordError,
)

DATA = np.arange(12, dtype="f4").reshape(4, 3)


def leaf(array, name):
    return nova.tensor(array, name=name)


@pytest.fixture(scope="module")
def double():
    x = leaf(DATA, "x")
    return nova.compile(x * 2, inputs=[x])


@pytest.fixture(scope="module")
def pair():
    """Two results of different shapes."""
    x = leaf(DATA, "x")
    return nova.compile([x + 1, x.sum(axis=0)], inputs=[x])


@pytest.fixture(scope="module")
def scalars():
    """The 0-d arguments of three types, each plus one."""
    f, i, b = leaf(np.float32(0), "f"), leaf(np.int32(0), "i"), leaf(np.bool_(0), "b")
    return nova.compile([f + 1, i + 1, nova.logical_not(b)], inputs=[f, i, b])


class OnlyDLPack:
    """An array of a library that Nova has never heard of."""

    def __init__(self, array, device=None):
        self.array, self.device_id = array, device

    def __dlpack__(self, **options):
        assert self.device_id is None, "data of another device were asked for"
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device_id or self.array.__dlpack_device__()


# --- what is taken --------------------------------------------------------------------------------


def unaligned():
    result = np.zeros(DATA.nbytes + 1, np.uint8)[1:].view("f4").reshape(DATA.shape)
    result[...] = DATA
    return result


def read_only():
    result = DATA.copy()
    result.flags.writeable = False
    return result


@pytest.mark.parametrize(
    "value",
    [
        DATA,
        read_only(),
        DATA.T.copy().T,
        np.repeat(DATA, 2, axis=1)[:, ::2],
        DATA[::-1, ::-1].copy()[::-1, ::-1],
        np.asfortranarray(DATA),
        DATA.astype(">f4"),
        unaligned(),
        DATA[:, :],
        torch.from_numpy(DATA.copy()),
        torch.from_numpy(DATA.copy()).requires_grad_(),
        torch.from_numpy(DATA.T.copy()).T,
        torch.from_numpy(np.repeat(DATA, 2, axis=0))[::2],
        OnlyDLPack(DATA.copy()),
    ],
    ids=[
        *("numpy", "read-only", "transposed", "strided", "reversed", "fortran", "byte-swapped"),
        *("unaligned", "view", "torch", "torch-grad", "torch-transposed", "torch-strided"),
        "dlpack",
    ],
)
def test_arrays_of_every_kind(double, value):
    before = DATA.copy()
    np.testing.assert_array_equal(double(value), before * 2)
    np.testing.assert_array_equal(double.run([value]), before * 2)
    np.testing.assert_array_equal(DATA, before)


def test_a_subclass_of_ndarray_is_an_array(double):
    class Mine(np.ndarray):
        pass

    result = double(DATA.view(Mine))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, DATA * 2)


def test_jax_arrays(double):
    jnp = pytest.importorskip("jax.numpy")
    np.testing.assert_array_equal(double(jnp.asarray(DATA)), DATA * 2)
    x = leaf(DATA.astype(ml_dtypes.bfloat16), "x")
    halves = nova.compile(x + x, inputs=[x])(jnp.asarray(DATA, jnp.bfloat16))
    assert halves.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(halves.astype("f4"), DATA * 2)


def test_torch_types():
    arrays = {
        torch.bfloat16: ml_dtypes.bfloat16,
        torch.float16: np.float16,
        torch.float64: np.float64,
        torch.int64: np.int64,
        torch.int32: np.int32,
        torch.int8: np.int8,
        torch.uint8: np.uint8,
        torch.bool: np.bool_,
    }
    data = np.array([0, 1, 2, 3])
    leaves = [leaf(data.astype(mode), f"a{i}") for i, mode in enumerate(arrays.values())]
    identical = nova.compile([nova.flip(t) for t in leaves], inputs=leaves)
    results = identical(*(torch.tensor(data).to(mode) for mode in arrays))
    for result, mode in zip(results, arrays.values(), strict=True):
        assert result.dtype == mode
        np.testing.assert_array_equal(result, data.astype(mode)[::-1])
    assert nova.tensor(torch.tensor([1.5], dtype=torch.bfloat16)).dtype is nova.bf16
    assert nova.tensor(torch.tensor([1.5], requires_grad=True)).numpy() == 1.5


def test_contiguous_arrays_are_not_copied():
    """The address that the kernel gets is the caller's: shown by an update in place."""
    w = leaf(DATA, "w")
    step = nova.compile([], params=[w], updates={w: w + 1})
    for make in (np.copy, lambda a: torch.from_numpy(a.copy())):
        value = make(DATA)
        step(value)
        np.testing.assert_array_equal(np.asarray(value), DATA + 1)


def test_large_contiguous_arguments_leave_no_trace_in_memory():
    """numpy's own allocations while a call runs are the result only."""
    import tracemalloc

    x = leaf(np.zeros(1 << 18, "f4"), "x")
    total = nova.compile(x.sum(), inputs=[x])
    for value in (np.ones(1 << 18, "f4"), torch.ones(1 << 18), OnlyDLPack(np.ones(1 << 18, "f4"))):
        total(value)
        tracemalloc.start()
        assert total(value) == 1 << 18
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 16


@pytest.mark.parametrize(
    ("inputs", "results"),
    [
        ((1, 2, True), (2, 3, False)),
        ((1.5, 2, False), (2.5, 3, True)),
        ((True, True, True), (2, 2, False)),
        ((np.float32(1), np.int32(2), np.bool_(True)), (2, 3, False)),
        ((np.array(1, "f4"), torch.tensor(2, dtype=torch.int32), False), (2, 3, True)),
    ],
)
def test_numbers_for_0d_arguments(scalars, inputs, results):
    assert tuple(scalars(*inputs)) == results


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ((1.0, 2.5, True), "'i' is 2.5"),
        ((1.0, 2**31, True), "'i' is 2147483648"),
        ((1.0, 2, 1), "'b' is 1"),
        ((np.float64(1), 2, True), "'f' has type float64"),
        ((1.0, np.int64(2), True), "'i' has type int64"),
    ],
)
def test_numbers_that_would_change_are_refused(scalars, inputs, name):
    with pytest.raises(ArgumentDTypeError, match=name):
        scalars(*inputs)


def test_arrays_without_elements():
    x, y = leaf(np.zeros((0, 3), "f4"), "x"), leaf(np.zeros((3, 0), "f4"), "y")
    program = nova.compile([x * 2, y @ x, x.sum()], inputs=[x, y])
    for make in (lambda a: a, torch.from_numpy):
        empty, product, total = program(make(np.zeros((0, 3), "f4")), make(np.zeros((3, 0), "f4")))
        assert empty.shape == (0, 3) and total == 0
        np.testing.assert_array_equal(product, np.zeros((3, 3)))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (DATA.T, ArgumentShapeError, r"'x' has shape \(3, 4\).*\(4, 3\)"),
        (DATA.reshape(-1), ArgumentShapeError, r"\(12,\)"),
        (DATA.astype("f8"), ArgumentDTypeError, "float64.*f32"),
        (DATA.astype("i4"), ArgumentDTypeError, "int32"),
        (DATA.astype("c8"), ArgumentDTypeError, "complex64"),
        (torch.from_numpy(DATA).double(), ArgumentDTypeError, "float64"),
        (DATA.tolist(), ArgumentTypeError, "list, not an array"),
        ("text", ArgumentTypeError, "str"),
        (None, ArgumentTypeError, "NoneType"),
        (3.0, ArgumentTypeError, "float"),
        (leaf(DATA, "t"), ArgumentTypeError, r"pass its \.numpy\(\)"),
        (torch.from_numpy(DATA).to_sparse(), ArgumentTypeError, "does not give its data"),
        (torch.empty(4, 3, device="meta"), DeviceError, "meta"),
        (OnlyDLPack(DATA, (2, 1)), DeviceError, "cuda:1.*CPU"),
        (OnlyDLPack(DATA, (99, 0)), DeviceError, "99"),
    ],
)
def test_bad_arguments(double, value, error, message):
    for call in (lambda: double(value), lambda: double.run([value])):
        with pytest.raises(error, match=message) as caught:
            call()
        assert __file__ in caught.value.where


def test_dlpack_without_a_device(double):
    class Half:
        def __dlpack__(self):
            raise AssertionError

    with pytest.raises(ArgumentTypeError, match="__dlpack_device__"):
        double(Half())


def test_wrong_counts_and_containers(double):
    for call in (
        lambda: double(),
        lambda: double(DATA, DATA),
        lambda: double.run(),
        lambda: double.run([DATA], [DATA]),
        lambda: double(DATA, out=(None, None)),
    ):
        with pytest.raises(ArgumentCountError, match=r"takes 1: (x|y0): f32\[4,3\]"):
            call()
    with pytest.raises(ArgumentTypeError, match="lists or tuples of arrays, not a ndarray"):
        double.run(DATA)
    with pytest.raises(UnknownKeywordError, match="did you mean 'out'"):
        double(DATA, outs=None)
    with pytest.raises(UnknownKeywordError, match="did you mean 'params'"):
        double.run([DATA], param=[])


# --- results --------------------------------------------------------------------------------------


def test_results_belong_to_the_caller(double):
    first = double(DATA)
    retained = first.copy()
    assert first.flags.owndata and first.flags.writeable and first.flags.c_contiguous
    second = double(DATA + 1)
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, retained)
    second[...] = 0
    np.testing.assert_array_equal(double(DATA), retained)


def test_results_outlive_the_program():
    x = leaf(DATA, "x")
    result = nova.compile(x - 3.25, inputs=[x])(DATA)
    gc.collect()
    np.testing.assert_array_equal(result, DATA - 3.25)


def test_results_that_are_arguments_or_the_same_value():
    x = leaf(DATA, "x")
    y = x * 3
    constant = nova.tensor(np.float32([1, 2]))
    outputs = [x, x, x.reshape(12), y, y, y.reshape(3, 4), constant, nova.tensor(4.0)]
    data = DATA.copy()
    results = nova.compile(outputs, inputs=[x])(data)
    expected = [DATA, DATA, DATA.reshape(12), DATA * 3, DATA * 3, (DATA * 3).reshape(3, 4)]
    for result, value in zip(results, [*expected, [1, 2], 4.0], strict=True):
        np.testing.assert_array_equal(result, value)
    for i, result in enumerate(results):
        assert not np.shares_memory(result, data)
        assert not any(np.shares_memory(result, second) for second in results[:i])


def test_no_results_at_all():
    x = leaf(DATA, "x")
    assert nova.compile([], inputs=[x])(DATA) == ()


# --- out= -----------------------------------------------------------------------------------------


def test_out_is_written_and_returned(double, pair):
    out = np.empty((4, 3), "f4")
    for inputs in (out, (out,), [out]):
        out[...] = -1
        assert double(DATA, out=inputs) is out
        np.testing.assert_array_equal(out, DATA * 2)
    total = np.empty(3, "f4")
    first, second = pair(DATA, out=(None, total))
    assert second is total
    np.testing.assert_array_equal(total, DATA.sum(0))
    np.testing.assert_array_equal(first, DATA + 1)
    first, second = pair.run([DATA], out=[out, None])
    assert first is out and second is not total


def test_out_may_be_a_torch_tensor(double):
    out = torch.empty(4, 3)
    assert double(DATA, out=out) is out
    np.testing.assert_array_equal(out.numpy(), DATA * 2)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (read_only(), "read-only"),
        (np.empty((4, 3), "f8"), "float64"),
        (np.empty((3, 4), "f4"), r"\[3, 4\]"),
        (np.empty((3, 4), "f4").T, "not contiguous"),
        (np.empty((4, 6), "f4")[:, ::2], "not contiguous"),
        (unaligned(), "not contiguous"),
        (np.empty((4, 3), ">f4"), ">f4"),
        (torch.empty(3, 4).T, "not contiguous"),
        (torch.empty(4, 3, device="meta"), "meta"),
        ("text", "str"),
    ],
)
def test_out_that_cannot_take_the_result(double, out, message):
    before = np.array(out, copy=True) if isinstance(out, np.ndarray) else None
    with pytest.raises(OutputError, match=message) as caught:
        double(DATA, out=out)
    assert __file__ in caught.value.where
    if before is not None:
        np.testing.assert_array_equal(out, before)


def test_out_that_overlaps(double, pair):
    data = DATA.copy()
    tensor = torch.from_numpy(data)
    for out in (data, tensor, data.reshape(12).reshape(4, 3)):
        with pytest.raises(OutputError, match="shares memory"):
            double(data, out=out)
    both = np.empty(15, "f4")
    with pytest.raises(OutputError, match="shares memory"):
        pair(data, out=(both[:12].reshape(4, 3), both[11:14]))
    np.testing.assert_array_equal(data, DATA)


def test_out_over_a_strided_argument_is_right(double):
    """The argument is copied to contiguous memory first, so its own memory may take the result."""
    wide = np.repeat(DATA, 2, axis=1)
    square = np.arange(9, dtype="f4").reshape(3, 3)
    x = leaf(square, "x")
    program = nova.compile(x * 2, inputs=[x])
    np.testing.assert_array_equal(program(square.T, out=square), np.arange(9).reshape(3, 3).T * 2)
    np.testing.assert_array_equal(double(wide[:, ::2]), DATA * 2)
