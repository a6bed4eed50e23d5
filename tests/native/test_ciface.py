"""`_mlir_ciface_main` of real files: ranks, element types, strides, several results, updates."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from memrefs import Entry, Error, describe
from processors import needs

import nova
from nova.core.dtypes import ALL, DType

SHAPES = [(), (3,), (2, 3), (2, 1, 3), (2, 3, 1, 2), (2, 1, 2, 3, 2), (0, 2)]


def values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers, exact in every type."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 7
    return np.asarray(numbers % 2 if dtype.kind == "b" else numbers, dtype.numpy)


def expected(array: np.ndarray) -> np.ndarray:
    return np.asarray(~array if array.dtype == bool else array + array)


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Entry]:
    """A file for each type: one input and one result of every shape."""
    folder = tmp_path_factory.mktemp("ciface")
    found = {}
    for dtype in ALL:
        inputs = [nova.tensor(values(dtype, shape), name=f"x{i}") for i, shape in enumerate(SHAPES)]
        outputs = [~x if dtype.kind == "b" else x + x for x in inputs]
        path = folder / f"{dtype}.nova"
        nova.compile(outputs, inputs=inputs).save(path)
        found[dtype.name] = Entry(path)
    return found


def variants(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in other places of memory."""
    wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
    inside = wide[(..., *[slice(1, None, 2)] * array.ndim)]
    inside[...] = array
    odd = np.frombuffer(bytearray(2 + array.nbytes), "u1")[1 : 1 + array.nbytes]
    unaligned = odd.view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    reverse = (..., *[slice(None, None, -1)] * array.ndim)
    return {
        "dense": array,
        "columns": np.asfortranarray(array),
        "steps": inside,
        "backwards": np.array(array[reverse], order="C")[reverse],
        "unaligned": unaligned,
    }


@pytest.mark.parametrize("way", ["dense", "columns", "steps", "backwards", "unaligned"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_ranks_types_and_strides(entries, dtype: DType, way: str):
    arrays = [values(dtype, shape) for shape in SHAPES]
    given = [variants(array)[way] for array in arrays]
    results = entries[dtype.name](given, [(len(shape), dtype.numpy) for shape in SHAPES])
    for array, passed, result in zip(arrays, given, results, strict=True):
        np.testing.assert_array_equal(passed, array)
        np.testing.assert_array_equal(result, expected(array))


def test_one_row_for_all(entries):
    arrays = [values(nova.f32, shape) for shape in SHAPES]
    arrays[4] = np.broadcast_to(np.float32(3), SHAPES[4])
    results = entries["f32"](arrays, [(len(shape), np.dtype("f4")) for shape in SHAPES])
    np.testing.assert_array_equal(results[4], np.full(SHAPES[4], 6, "f4"))


@pytest.mark.parametrize("index", [1, 2, 5])
def test_another_size_is_refused(entries, index: int):
    arrays = [values(nova.f32, shape) for shape in SHAPES]
    arrays[index] = np.concatenate([arrays[index]] * 2)
    with pytest.raises(RuntimeError, match=rf"argument {index} \(x{index}\): size"):
        entries["f32"](arrays, [(len(shape), np.dtype("f4")) for shape in SHAPES])


@pytest.mark.parametrize("returned", [False, True])
def test_an_updated_argument(tmp_path: Path, returned: bool):
    """It is changed where it lies; when it is a result as well, that is a copy."""
    x = nova.tensor(np.zeros(3, "f4"), name="x")
    w = nova.tensor(np.zeros((2, 3), "f4"), name="w")
    new = w + x
    outputs = [(w * x).sum(), new] if returned else [(w * x).sum()]
    path = tmp_path / "update.nova"
    nova.compile(outputs, inputs=[x], params=[w], updates={w: new}).save(path)
    entry = Entry(path)
    gradient = np.array([1, 2, 3], "f4")
    results = [(0, np.dtype("f4")), (2, np.dtype("f4"))][: len(outputs)]
    for weight in (np.ones((2, 3), "f4"), np.ones((3, 4), "f4").T[1:3]):
        before = weight.copy()
        loss, *updated = entry([gradient, weight], results)
        np.testing.assert_array_equal(weight, before + gradient)
        assert loss == (before * gradient).sum()
        for copy in updated:
            np.testing.assert_array_equal(copy, weight)
    with pytest.raises(RuntimeError, match="stride of 0"):
        entry([gradient, np.broadcast_to(np.float32(1), (2, 3))], results)


def test_a_program_without_results(tmp_path: Path):
    """`_mlir_ciface_main` has no first parameter then."""
    x = nova.tensor(np.zeros(3, "f4"), name="x")
    w = nova.tensor(np.zeros(3, "f4"), name="w")
    path = tmp_path / "update.nova"
    nova.compile([], inputs=[x], params=[w], updates={w: w + x}).save(path)
    weight = np.ones(3, "f4")
    assert Entry(path)([np.array([1, 2, 3], "f4"), weight], []) == []
    np.testing.assert_array_equal(weight, [2, 3, 4])


def test_many_arguments_and_constants(tmp_path: Path):
    """More pointers than fit on the stack, and constants of the program."""
    count = 70
    inputs = [nova.tensor(np.zeros(4, "f4"), name=f"x{i}") for i in range(count)]
    table = np.arange(count * 4, dtype="f4").reshape(count, 4)
    path = tmp_path / "many.nova"
    nova.compile(nova.stack(inputs) * nova.tensor(table) + 0.5, inputs=inputs).save(path)
    arrays = [np.full(4, i % 5, "f4") for i in range(count)]
    (result,) = Entry(path)(arrays, [(2, np.dtype("f4"))])
    np.testing.assert_array_equal(result, np.stack(arrays) * table + 0.5)


def test_values_in_the_file_stand_in_for_null(tmp_path: Path):
    x = nova.tensor(np.zeros(3, "f4"), name="x")
    w = nova.tensor(np.array([1, 2, 3], "f4"), name="w")
    program = nova.compile(x * w, inputs=[x], params=[w])
    for weights in (None, "embed"):
        path = tmp_path / f"{weights}.nova"
        program.save(path, weights=weights)
        arrays = [np.full(3, 2, "f4"), None]
        if weights is None:
            with pytest.raises(RuntimeError, match=r"argument 1 \(w\) is NULL"):
                Entry(path)(arrays, [(1, np.dtype("f4"))])
        else:
            (result,) = Entry(path)(arrays, [(1, np.dtype("f4"))])
            np.testing.assert_array_equal(result, [2, 4, 6])


@needs("x86_64-v3")
def test_a_cpu_that_lacks_features_is_an_error(tmp_path: Path):
    """Never SIGILL. dlopen does not look at the seal, so the list of features can be changed."""
    x = nova.tensor(np.zeros(3, "f4"), name="x")
    path = tmp_path / "model.nova"
    nova.compile(x + x, inputs=[x], target="x86_64-v3").save(path)
    data = path.read_bytes()
    assert data.count(b'"avx2"') == 1
    path.write_bytes(data.replace(b'"avx2"', b'"avx9"'))
    with pytest.raises(RuntimeError, match="avx9"):
        Entry(path)([np.ones(3, "f4")], [(1, np.dtype("f4"))])


def test_descriptors_are_as_mlir_lays_them_out():
    array = np.zeros((4, 6), "i4")[1:3, ::2]
    data = array.ctypes.data
    assert list(describe(array)) == [data, data, 0, 2, 3, 6, 2]
    assert len(describe(np.array(1, "f4"))) == 3


def test_null_pointers_are_failures_and_not_crashes(tmp_path: Path) -> None:
    x, w = np.ones((2, 3), "f4"), np.ones((3, 2), "f4")
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    nova.compile([X @ W, X.sum()], inputs=[X, W]).save(tmp_path / "m.nova")
    entry = Entry(tmp_path / "m.nova")
    results = [(2, np.dtype("f4")), (0, np.dtype("f4"))]
    main, pointers = entry.library._mlir_ciface_main, [describe(a) for a in (x, w)]
    for arguments in (map(ctypes.byref, pointers), (None, None)):
        main(None, *arguments)
        error = Error()
        assert entry.library.nova_last_error(ctypes.byref(error)) != 0
        assert error.text == b"the pointer to the descriptors of the 2 results is NULL"
    for arrays, name in (([None, w], b"0 (X)"), ([x, None], b"1 (W)"), ([None, None], b"0 (X)")):
        with pytest.raises(RuntimeError, match=rf"argument {re.escape(name.decode())} is NULL"):
            entry(arrays, results)
    product, total = entry([x, w], results)  # the process is alive, and the program works
    np.testing.assert_array_equal(product, x @ w)
    assert total == 6
