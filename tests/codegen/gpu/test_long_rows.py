"""Rows longer than the registers of a block: a cluster of blocks shares one, on Hopper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import nova
from nova.api.program_cache import clear_memory_cache
from nova.codegen.gpu.rowwise import pipeline, shared_rows

pytestmark = pytest.mark.graph_launch  # persistent kernels have no clusters, and copy no rows ahead

_RANDOM = np.random.default_rng(5)
_LENGTH = 50257

Function = Callable[..., Any]

FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "softmax": (nova.softmax, lambda x: torch.softmax(x, -1)),
    "log_softmax": (nova.log_softmax, lambda x: torch.log_softmax(x, -1)),
    "logsumexp": (lambda x: nova.logsumexp(x, axis=-1), lambda x: torch.logsumexp(x, -1)),
    "norm": (
        lambda x: x / nova.sqrt(nova.mean(x * x, axis=-1, keepdims=True) + 1e-5),
        lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5),
    ),
}


def _compile(outputs: Any, inputs: list[Any], target: str = "cuda:sm_90a") -> Any:
    return nova.compile(outputs, inputs=inputs, target=target, run_mode="sim")


Where = dict[str, Any]
"""The device to compile for and run on: keyword arguments of `nova.compile`."""


@pytest.mark.parametrize("length", [_LENGTH, 50304])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_cluster_has_a_row(on_hopper: Where, name: str, length: int) -> None:
    function, reference = FUNCTIONS[name]
    x = 3 * _RANDOM.standard_normal((3, length), np.float32)
    X = nova.tensor(x)
    program = nova.compile(function(X), inputs=[X], **on_hopper)
    text = program.stages["ptx"]
    assert ".reqnctapercluster 4" in text and "ld.shared::cluster" in text
    expected = reference(torch.from_numpy(x).double()).numpy()
    assert np.abs(program(x) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_gradients(on_hopper: Where) -> None:
    x = _RANDOM.standard_normal((2, _LENGTH), np.float32)
    weight = _RANDOM.standard_normal((2, _LENGTH), np.float32)
    X, W = nova.tensor(x, requires_grad=True), nova.tensor(weight)
    nova.backward(nova.sum(nova.softmax(X) * W))
    program = nova.compile(X.grad, inputs=[X, W], **on_hopper)
    t = torch.from_numpy(x).double().requires_grad_()
    (torch.softmax(t, -1) * torch.from_numpy(weight)).sum().backward()
    assert t.grad is not None
    expected = t.grad.numpy()
    assert np.abs(program(x, weight) - expected).max() <= 1e-5 * np.abs(expected).max()


def test_the_row_is_read_once() -> None:
    X = nova.tensor(np.zeros((3, _LENGTH), np.float32))
    text = _compile(nova.softmax(X), [X]).stages["ptx"]
    elements = -(-_LENGTH // 2048)
    assert text.count("ld.global") == text.count("st.global") == elements


def test_other_devices_have_no_clusters() -> None:
    x = _RANDOM.standard_normal((2, _LENGTH), np.float32)
    X = nova.tensor(x)
    program = _compile(nova.softmax(X), [X], "cuda:sm_80")
    assert "cluster" not in program.stages["ptx"]
    expected = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
    assert np.abs(program(x) - expected).max() <= 1e-6 * expected.max()


@pytest.fixture
def two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of so few multiprocessors that each cluster has several rows."""
    for blocks in list(pipeline.RESIDENT):
        monkeypatch.setitem(pipeline.RESIDENT, blocks, 2)


@pytest.mark.usefixtures("two_clusters")
@pytest.mark.parametrize("length", [_LENGTH, 50304])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_next_row_is_copied_ahead(on_hopper: Where, name: str, length: int) -> None:
    function, reference = FUNCTIONS[name]
    x = 3 * _RANDOM.standard_normal((5, length), np.float32)
    X = nova.tensor(x)
    program = nova.compile(function(X), inputs=[X], **on_hopper)
    text = program.stages["ptx"]
    assert ".reqnctapercluster 2" in text and ".maxntid 512" in text
    # One thread copies the chunks of its block in bulk: two rows before the loop, and one in it.
    # Where rows are not aligned, the elements of the last vector are copied one by one.
    assert text.count("cp.async.bulk.shared::cluster.global") == 3 * -(-length // 4096)
    assert ("cp.async.ca.shared.global" in text) == bool(length % 4)
    assert "ld.global" not in text
    expected = reference(torch.from_numpy(x).double()).numpy()
    assert np.abs(program(x) - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.usefixtures("two_clusters")
def test_gradients_copy_rows_ahead(on_hopper: Where) -> None:
    x = _RANDOM.standard_normal((7, _LENGTH), np.float32)
    g = _RANDOM.standard_normal((7, _LENGTH), np.float32)
    X, G = nova.tensor(x), nova.tensor(g)
    y = nova.softmax(X)
    gradient = y * (G - nova.sum(G * y, axis=-1, keepdims=True))
    program = nova.compile(gradient, inputs=[X, G], **on_hopper)
    assert "cp.async.bulk" in program.stages["ptx"] and "ld.global" not in program.stages["ptx"]
    t = torch.from_numpy(x).double().requires_grad_()
    (torch.softmax(t, -1) * torch.from_numpy(g)).sum().backward()
    assert t.grad is not None
    expected = t.grad.numpy()
    assert np.abs(program(x, g) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.usefixtures("two_clusters")
@pytest.mark.parametrize("length", [33000, 50304])
def test_rows_of_16_bit_floats_are_copied_ahead(on_hopper: Where, length: int) -> None:
    x = torch.from_numpy(3 * _RANDOM.standard_normal((5, length), np.float32)).bfloat16()
    X = nova.tensor(np.zeros(x.shape, ml_dtypes.bfloat16))
    program = nova.compile(nova.softmax(X), inputs=[X], **on_hopper)
    text = program.stages["ptx"]
    assert "cp.async.bulk" in text and "ld.global" not in text
    assert "st.global.v4.b32" in text or "st.global.b128" in text
    array = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    expected = torch.softmax(x.double(), -1).numpy()
    assert np.abs(program(array).astype("f8") - expected).max() <= 2**-8 * expected.max()


@pytest.mark.usefixtures("two_clusters")
def test_cross_entropy_of_bf16_scores(on_hopper: Where) -> None:
    x = torch.from_numpy(3 * _RANDOM.standard_normal((5, 50304), np.float32)).bfloat16()
    X = nova.tensor(np.zeros(x.shape, ml_dtypes.bfloat16))
    program = nova.compile(nova.logsumexp(X, axis=-1), inputs=[X], **on_hopper)
    assert "cp.async.bulk" in program.stages["ptx"]
    array = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    expected = torch.logsumexp(x.double(), -1).numpy()
    assert np.abs(program(array).astype("f8") - expected).max() <= 2**-8 * np.abs(expected).max()


@pytest.mark.usefixtures("two_clusters")
@pytest.mark.parametrize("length", [33000, 40001, 40002, 40003])
def test_ends_of_rows_that_are_not_aligned(on_hopper: Where, length: int) -> None:
    """Each row begins at another distance from an aligned address."""
    x = _RANDOM.standard_normal((9, length), np.float32)
    X = nova.tensor(x)
    program = nova.compile([nova.softmax(X), nova.max(X, axis=-1)], inputs=[X], **on_hopper)
    y, largest = program(x)
    expected = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
    assert np.abs(y - expected).max() <= 1e-6 * expected.max()
    np.testing.assert_array_equal(largest, x.max(-1))


@pytest.mark.usefixtures("two_clusters")
def test_a_shared_row_is_not_copied_ahead(on_hopper: Where) -> None:
    """Scale and offset of a norm are the same for each row: they are loaded from the caches."""
    x = _RANDOM.standard_normal((5, 40000), np.float32)
    scale, offset = _RANDOM.standard_normal((2, 40000), np.float32)
    tensors = [nova.tensor(array) for array in (x, scale, offset)]
    program = nova.compile(nova.layer_norm(*tensors), inputs=tensors, **on_hopper)
    assert "cp.async.bulk" in program.stages["ptx"] and "ld.global" in program.stages["ptx"]
    arrays = [torch.from_numpy(array).double() for array in (x, scale, offset)]
    expected = torch.nn.functional.layer_norm(arrays[0], (40000,), *arrays[1:]).numpy()
    assert np.abs(program(x, scale, offset) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.usefixtures("two_clusters")
def test_a_symbolic_number_of_rows(on_hopper: Where) -> None:
    """Clusters without a row copy nothing."""
    X = nova.input((nova.dim("B", min=1, max=4096), 40001), "f32")
    program = nova.compile(nova.softmax(X), inputs=[X], **on_hopper)
    assert "cp.async.bulk" in program.stages["ptx"]
    for rows in (1, 2, 5):
        x = _RANDOM.standard_normal((rows, 40001), np.float32)
        expected = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
        assert np.abs(program(x) - expected).max() <= 1e-6 * expected.max()


@pytest.fixture
def one_multiprocessor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device so small that a few rows are many."""
    monkeypatch.setattr(shared_rows, "MULTIPROCESSORS", 1)
    clear_memory_cache()
    with nova.knobs.override(cache=False):
        yield
    clear_memory_cache()


def _rows(*shape: int) -> np.ndarray:
    return 3 * _RANDOM.standard_normal(shape, np.float32)


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("length", [_LENGTH, 50304])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "logsumexp"])
def test_a_block_has_a_row_in_shared_memory(on_hopper: Where, name: str, length: int) -> None:
    function, reference = FUNCTIONS[name]
    x = _rows(5, length)
    X = nova.tensor(x)
    program = nova.compile(function(X), inputs=[X], **on_hopper)
    text = program.stages["ptx"]
    assert ".reqnctapercluster" not in text and ".maxntid 512" in text
    # Each warp copies its piece in bulk, and the elements of the last vector one by one.
    assert text.count("cp.async.bulk.shared::cluster.global") == 1
    assert ("cp.async.ca.shared.global" in text) == bool(length % 4)
    assert "ld.global" not in text
    expected = reference(torch.from_numpy(x).double()).numpy()
    assert np.abs(program(x) - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("length", [33000, 40001, 40002, 40003])
def test_pieces_of_rows_that_are_not_aligned(on_hopper: Where, length: int) -> None:
    x = _rows(9, length)
    X = nova.tensor(x)
    program = nova.compile([nova.softmax(X), nova.max(X, axis=-1)], inputs=[X], **on_hopper)
    assert ".reqnctapercluster" not in program.stages["ptx"]
    y, largest = program(x)
    expected = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
    assert np.abs(y - expected).max() <= 1e-6 * expected.max()
    np.testing.assert_array_equal(largest, x.max(-1))


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("length", [33000, 50304])
def test_rows_of_16_bit_floats_in_shared_memory(on_hopper: Where, length: int) -> None:
    """Exponentials are f32, for which there is no room: each reader computes them."""
    x = torch.from_numpy(_rows(5, length)).bfloat16()
    X = nova.tensor(np.zeros(x.shape, ml_dtypes.bfloat16))
    program = nova.compile(nova.softmax(X), inputs=[X], **on_hopper)
    text = program.stages["ptx"]
    assert "cp.async.bulk" in text and ".reqnctapercluster" not in text
    array = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    expected = torch.softmax(x.double(), -1).numpy()
    assert np.abs(program(array).astype("f8") - expected).max() <= 2**-8 * expected.max()


@pytest.mark.usefixtures("one_multiprocessor")
def test_two_operands_and_a_shared_row_in_shared_memory(on_hopper: Where) -> None:
    """The gradient of softmax has two operands; a scale is the same for each row."""
    y, g = (torch.from_numpy(_rows(5, 40000)).bfloat16() for _ in range(2))
    scale = _rows(40000)
    tensors = [nova.tensor(np.zeros(y.shape, ml_dtypes.bfloat16)) for _ in range(2)]
    Y, G = (nova.cast(tensor, "f32") for tensor in tensors)
    S = nova.tensor(scale)
    result = Y * (G - nova.sum(G * Y, axis=-1, keepdims=True)) * S
    program = nova.compile(result, inputs=[*tensors, S], **on_hopper)
    assert program.stages["ptx"].count("cp.async.bulk.shared::cluster.global") == 2
    arrays = [t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for t in (y, g)]
    y, g = y.double(), g.double()
    expected = (y * (g - (g * y).sum(-1, keepdim=True)) * torch.from_numpy(scale)).numpy()
    assert np.abs(program(*arrays, scale) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.usefixtures("one_multiprocessor")
def test_rows_in_shared_memory_of_a_symbolic_number(on_hopper: Where) -> None:
    X = nova.input((nova.dim("B", min=1, max=4096), 40001), "f32")
    program = nova.compile(nova.softmax(X), inputs=[X], **on_hopper)
    assert ".reqnctapercluster" not in program.stages["ptx"]
    for rows in (1, 5):
        x = _rows(rows, 40001)
        expected = torch.softmax(torch.from_numpy(x).double(), -1).numpy()
        assert np.abs(program(x) - expected).max() <= 1e-6 * expected.max()
