"""Calls: results, conversion of arguments, `out=`, donation, aliasing, empty and 0-d arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from machine import (
    ARGUMENT,
    CONSTANT,
    F32,
    OUTPUT,
    WORKSPACE,
    Refused,
    build_image,
    make_add,
    make_program,
    refuse,
)

X = np.arange(8, dtype="f4")
Y = np.full(8, 10, "f4")


def make_update(kernels, convert=refuse, shape=(8,)):
    """w += g in place; returns w itself and w + g."""
    image, at = kernels
    size = int(np.prod(shape))
    return make_program(
        image,
        [(shape, F32, False), (shape, F32, True)],
        [(shape, F32, 1), (shape, F32, -1)],
        [(ARGUMENT, 0), (OUTPUT, 0), (OUTPUT, 1)],
        [(at["accumulate"], size, (0, 1)), (at["add"], size, (0, 1, 2))],
        convert=convert,
    )


# --- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("release_gil", [False, True])
def test_add(kernels, release_gil):
    program = make_add(kernels, release_gil=release_gil)
    result = program(X, Y)
    assert type(result) is np.ndarray
    assert result.dtype == F32
    assert result.flags.owndata and result.flags.writeable
    np.testing.assert_array_equal(result, X + Y)
    np.testing.assert_array_equal(program.run([X, Y]), X + Y)
    np.testing.assert_array_equal(program.run((X,), [Y]), X + Y)
    np.testing.assert_array_equal(program.run(inputs=[X], params=(Y,), out=None), X + Y)
    np.testing.assert_array_equal(program(*[X, Y], out=None), X + Y)
    np.testing.assert_array_equal(type(program).__call__(program, X, Y), X + Y)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (2, 3, 4)])
def test_shapes(kernels, shape):
    x = np.random.default_rng(0).random(shape, "f4")
    result = make_add(kernels, shape)(x, x)
    assert type(result) is np.ndarray
    assert result.shape == shape
    np.testing.assert_array_equal(result, x + x)


def test_workspace_constants_and_several_launches(text):
    constant = np.arange(8, dtype="f4") * 100
    image, at = build_image(text[0], constant.tobytes()), text[1]
    program = make_program(
        image,
        [((8,), F32, False)],
        [((8,), F32, -1), ((8,), F32, -1)],
        [(ARGUMENT, 0), (CONSTANT, 0, 32), (WORKSPACE, 64, 32), (OUTPUT, 0), (OUTPUT, 1)],
        [
            (at["add"], 8, (0, 1, 2)),
            (at["add"], 0, (2, 2, 2)),
            (at["scale"], 8, (2, 3)),
            (at["add"], 8, (3, 0, 4)),
        ],
        96,
    )
    for _ in range(3):
        first, second = program(X)
        np.testing.assert_array_equal(first, 2 * (X + constant))
        np.testing.assert_array_equal(second, 2 * (X + constant) + X)


@pytest.mark.parametrize("workspace", [1, 5 << 20])
def test_workspace_alignment(kernels, workspace):
    image, at = kernels
    program = make_program(
        image,
        [],
        [((2,), np.dtype("i8"), -1)],
        [(OUTPUT, 0), (WORKSPACE, 0, 1)],
        [(at["pointers"], 2, (0, 1))],
        workspace,
    )
    output, block = program()[0], program()[1]
    assert output != 0
    assert block % (64 if workspace < 4 << 20 else 2 << 20) == 0


@pytest.mark.parametrize("count", [100, 1000])
def test_many_arguments(kernels, count):
    image, at = kernels
    program = make_program(
        image,
        [((), F32, False)] * count,
        [((count + 1,), np.dtype("i8"), -1)],
        [(OUTPUT, 0), *((ARGUMENT, i) for i in range(count))],
        [(at["pointers"], count + 1, tuple(range(count + 1)))],
    )
    arrays = [np.array(i, "f4") for i in range(count)]
    expected = [a.ctypes.data for a in arrays]
    assert program.workspace_size == 0
    for result in (program(*arrays), program.run(arrays), program.run([], tuple(arrays))):
        assert list(result[1:]) == expected
        assert result[0] == result.ctypes.data


def test_no_outputs_is_an_empty_tuple(kernels):
    assert make_program(kernels[0], [], [])() == ()


def test_empty_arrays_and_workspace_have_an_address(kernels):
    image, at = kernels
    program = make_program(
        image,
        [((0,), F32, False)],
        [((4,), np.dtype("i8"), -1), ((0,), F32, -1)],
        [(OUTPUT, 0), (ARGUMENT, 0), (OUTPUT, 1), (WORKSPACE, 0, 0)],
        [(at["pointers"], 4, (0, 1, 2, 3))],
    )
    pointers, empty = program(np.empty(0, "f4"))
    assert (pointers != 0).all()
    assert empty.shape == (0,)


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        [0.0] * 8,
        None,
        3.0,
        X.astype("f8"),
        X.astype(">f4"),
        X.astype("i4"),
        X[:4],
        X.reshape(2, 4),
        np.arange(16, dtype="f4")[::2],
        np.frombuffer(b"x" * 33, "i1")[1:].view("f4"),
        X.view(np.recarray),
        np.ma.masked_array(X),
    ],
)
def test_what_does_not_conform_is_converted(kernels, bad):
    with pytest.raises(Refused) as caught:
        make_add(kernels)(X, bad)
    index, obj, is_output = caught.value.args
    assert (index, is_output) == (1, False)
    assert obj is bad
    with pytest.raises(Refused):
        make_add(kernels).run([bad], [X])


def test_read_only_and_equivalent_types_conform(kernels):
    frozen = X.copy()
    frozen.flags.writeable = False
    tagged = Y.view(np.dtype("f4", metadata={"unit": "m"}))
    np.testing.assert_array_equal(make_add(kernels)(frozen, tagged), X + Y)


def test_registered_types_conform(kernels):
    bf16 = np.dtype(ml_dtypes.bfloat16)
    program = make_program(kernels[0], [((2,), bf16, True)], [((2,), bf16, 0)])
    x = np.zeros(2, bf16)
    assert program(x) is x
    with pytest.raises(Refused):
        program(np.zeros(2, "u2"))


def test_the_converted_array_is_used(kernels):
    calls = []

    def convert(index, obj, is_output):
        calls.append((index, is_output))
        return np.ascontiguousarray(obj, "f4")

    program = make_add(kernels, convert=convert)
    np.testing.assert_array_equal(program(list(range(8)), Y), X + Y)
    np.testing.assert_array_equal(program(Y, np.arange(16.0)[::2]), Y + np.arange(0, 16, 2))
    assert calls == [(0, False), (1, False)]


@pytest.mark.parametrize("wrong", [None, X.astype("f8"), X[:7], [0.0] * 8])
def test_the_converted_array_is_checked(kernels, wrong):
    program = make_add(kernels, convert=lambda index, obj, is_output: wrong)
    with pytest.raises(ValueError, match="argument 1"):
        program(X, 1.0)


@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_wrong_count(kernels, count):
    program = make_add(kernels)
    for call in (lambda: program(*[X] * count), lambda: program.run([X] * count)):
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.args == (-1, count, False)
    silent = make_add(kernels, convert=lambda *args: None)
    with pytest.raises(ValueError, match="number of arguments"):
        silent(*[X] * count)


def test_wrong_keywords_and_containers(kernels):
    program = make_add(kernels)
    cases = [
        lambda: program(X, Y, into=X),
        lambda: type(program).__call__(program, X, Y, into=X),
        lambda: program.run(),
        lambda: program.run(params=[X]),
        lambda: program.run([X, Y], where=1),
        lambda: program.run([X, Y], inputs=[]),
        lambda: program.run([X, Y], (), None, None, 4),
    ]
    for case in cases:
        with pytest.raises(TypeError):
            case()


def test_convert_is_asked_about_a_container_that_is_none(kernels):
    for inputs, params in ((X, ()), ([X], Y)):
        with pytest.raises(Refused) as caught:
            make_add(kernels).run(inputs, params)
        assert caught.value.args[0] == -3 and caught.value.args[2] is False
        with pytest.raises(TypeError, match="must be a list or tuple"):
            make_add(kernels, convert=lambda *_: X).run(inputs, params)


def test_a_list_may_change_during_conversion(kernels):
    inputs = [np.ones(8, "f4"), "convert me"]

    def convert(index, obj, is_output):
        inputs.clear()
        return np.ones(8, "f4")

    program = make_add(kernels, convert=convert)
    np.testing.assert_array_equal(program.run(inputs), np.full(8, 2, "f4"))
    inputs[:] = ["convert me", np.ones(8, "f4")]
    with pytest.raises(IndexError):
        program.run(inputs)


# --- out= -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: [a], lambda a: (a,)])
def test_out_is_written_and_returned(kernels, wrap):
    out = np.zeros(8, "f4")
    program = make_add(kernels)
    assert program(X, Y, out=wrap(out)) is out
    np.testing.assert_array_equal(out, X + Y)
    out[:] = 0
    assert program.run([X], [Y], wrap(out)) is out
    np.testing.assert_array_equal(out, X + Y)


def test_out_entries_may_be_none(kernels):
    gradient, weight, out = np.ones(8, "f4"), np.zeros(8, "f4"), np.zeros(8, "f4")
    program = make_update(kernels)
    first, second = program(gradient, weight, out=(None, out))
    assert first is weight and second is out
    first, second = program(gradient, weight, out=[weight, None])
    assert first is weight and second is not out


def read_only():
    array = np.zeros(8, "f4")
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "bad", [read_only(), np.zeros(8), np.zeros(9, "f4"), np.zeros((8, 2), "f4")[:, 0], 1.0]
)
def test_bad_out_is_converted(kernels, bad):
    with pytest.raises(Refused) as caught:
        make_add(kernels)(X, Y, out=bad)
    index, obj, is_output = caught.value.args
    assert (index, is_output) == (0, True)
    assert obj is bad
    with pytest.raises(ValueError, match="output 0"):
        make_add(kernels, convert=lambda index, obj, is_output: bad)(X, Y, out=bad)


def test_converted_out_is_written_and_the_given_object_returned(kernels):
    class Holder:
        array = np.zeros(8, "f4")

    holder = Holder()
    program = make_add(kernels, convert=lambda index, obj, is_output: obj.array)
    assert program(X, Y, out=holder) is holder
    np.testing.assert_array_equal(holder.array, X + Y)


@pytest.mark.parametrize("shift", [-7, -1, 0, 1, 7])
def test_out_over_an_argument_is_refused(kernels, shift):
    memory = np.zeros(24, "f4")
    x, out = memory[8:16], memory[8 + shift : 16 + shift]
    with pytest.raises(Refused):
        make_add(kernels)(x, Y, out=out)
    with pytest.raises(ValueError, match="shares memory"):
        make_add(kernels, convert=lambda index, obj, is_output: obj)(x, Y, out=out)


def test_out_beside_an_argument_is_fine(kernels):
    memory = np.zeros(24, "f4")
    for shift in (-8, 8):
        out = memory[8 + shift : 16 + shift]
        assert make_add(kernels)(memory[8:16], Y, out=out) is out


def test_two_outs_over_each_other_are_refused(kernels):
    outputs = [((8,), F32, -1)] * 2
    program = make_program(kernels[0], [], outputs)
    memory = np.zeros(12, "f4")
    with pytest.raises(Refused) as caught:
        program(out=[memory[:8], memory[4:]])
    assert caught.value.args[0] == 1


@pytest.mark.parametrize("out", [[], [X, X], (X, X, X)])
def test_wrong_number_of_outs(kernels, out):
    with pytest.raises(Refused) as caught:
        make_add(kernels)(X, Y, out=out)
    assert caught.value.args == (-1, len(out), True)


def test_one_array_for_two_outs(kernels):
    with pytest.raises(Refused) as caught:
        make_update(kernels)(X, Y.copy(), out=np.zeros(8, "f4"))
    assert caught.value.args == (-1, 1, True)


# --- donation -------------------------------------------------------------------------------------


def test_donated_argument_is_updated_in_place(kernels):
    gradient, weight = np.ones(8, "f4"), np.zeros(8, "f4")
    program = make_update(kernels)
    for step in range(1, 4):
        updated, next_value = program(gradient, weight)
        assert updated is weight
        np.testing.assert_array_equal(weight, np.full(8, step, "f4"))
        np.testing.assert_array_equal(next_value, np.full(8, step + 1, "f4"))


def test_donated_argument_must_be_writable(kernels):
    weight = read_only()
    with pytest.raises(Refused) as caught:
        make_update(kernels)(X, weight)
    assert caught.value.args[0] == 1


def test_converted_donation_returns_the_given_object(kernels):
    class Holder:
        array = np.zeros(8, "f4")

    holder = Holder()
    program = make_update(kernels, convert=lambda index, obj, is_output: obj.array)
    updated, _ = program(np.ones(8, "f4"), holder)
    assert updated is holder
    np.testing.assert_array_equal(holder.array, np.ones(8, "f4"))


@pytest.mark.parametrize("shift", [-7, 0, 7])
def test_donated_argument_over_another_is_refused(kernels, shift):
    memory = np.zeros(24, "f4")
    weight = memory[8:16]
    program = make_update(kernels)
    program(X, weight)
    with pytest.raises(Refused) as caught:
        program(memory[8 + shift : 16 + shift], weight)
    assert caught.value.args == (-2, 1, False)
    program(X, weight)
    with pytest.raises(ValueError, match="overlaps"):
        make_update(kernels, convert=lambda *args: None)(weight, weight)


def test_empty_donated_arguments_overlap_nothing(kernels):
    empty = np.zeros(0, "f4")
    updated, _ = make_update(kernels, shape=(0,))(empty, empty)
    assert updated is empty


def test_out_cannot_replace_a_donated_argument(kernels):
    weight, other = np.zeros(8, "f4"), np.zeros(8, "f4")
    with pytest.raises(Refused) as caught:
        make_update(kernels)(X, weight, out=[other, None])
    assert caught.value.args[0] == 0
    quiet = make_update(kernels, convert=lambda index, obj, is_output: obj)
    with pytest.raises(ValueError, match="donated argument 1"):
        quiet(X, weight, out=[other, None])
    np.testing.assert_array_equal(weight, np.zeros(8, "f4"))
