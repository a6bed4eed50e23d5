"""form-kernels: whatever is grouped, no op reads a value before the tile that makes it has run.

Each program makes a value in row tiles and reads it elsewhere than at its own row; the numbers are
numpy's. Everything is compiled as usual and again in tiles of few rows, where a wrong group shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nova
from nova.compiler.stages import start_from_text
from nova.graph.interpret import evaluate
from nova.ir.walk import kernels
from nova.passes.base import run_pipeline
from nova.passes.pipeline_text import parse_pipeline

N = 128
X = nova.tensor(np.random.default_rng(0).standard_normal((N, N)).astype(np.float32), name="x")
LAST = nova.tensor(np.full((N, N), N - 1, dtype=np.int64))
REVERSED = nova.tensor(np.arange(N, dtype=np.int64)[::-1].copy())


def _rows() -> Any:
    return nova.softmax(X)


READERS = {
    "transposed": lambda e: e.transpose() + e,
    "flipped": lambda e: nova.flip(e, axes=(0,)) + e,
    "flipped columns": lambda e: nova.flip(e, axes=(1,)) + e,
    "rolled": lambda e: nova.roll(e, 1, axis=0) + e,
    "last row": lambda e: e[N - 1] + e,
    "last column": lambda e: e[:, N - 1 :] + e,
    "last column as a row": lambda e: e[:, N - 1] + e,
    "diagonal": lambda e: nova.diagonal(e) + e,
    "column sums": lambda e: nova.sum(e, axis=0) + e,
    "row sums": lambda e: nova.sum(e, axis=1, keepdims=True) + e,
    "row sums as a row": lambda e: nova.sum(e, axis=1) + e,
    "total": lambda e: nova.sum(e) + e,
    "gathered": lambda e: nova.gather(e, LAST, axis=0) + e,
    "gathered in the row": lambda e: nova.gather(e, LAST, axis=1) + e,
    "taken": lambda e: nova.take(e, REVERSED, axis=0) + e,
    "flat": lambda e: e.reshape((N * N,))[-N:] + e,
    "flat and back": lambda e: nova.flip(e.reshape((N * N,)), axes=(0,)).reshape((N, N)) + e,
    "halves": lambda e: e.reshape((2, N * N // 2)).transpose().reshape((N, N)) + e,
    "product right": lambda e: e @ e,
    "product left": lambda e: X @ e + e,
    "product transposed": lambda e: e @ e.transpose() + e,
    "scattered": lambda e: nova.index_add(e, REVERSED, e, axis=0),
    "padded": lambda e: nova.pad(e, ((1, 0), (0, 0)))[:N] + e,
    "joined": lambda e: nova.concat([e[N // 2 :], e[: N // 2]], axis=0) + e,
    "triangle": lambda e: nova.tril(e) @ nova.triu(e),
    "argmax": lambda e: nova.argmax(e, axis=0) + e,
    "chain of reductions": lambda e: nova.softmax(nova.softmax(e, axis=0), axis=1) + e,
    "two levels": lambda e: nova.softmax(e.transpose() * 50.0) + nova.flip(e, axes=(0,)),
}


TILES = {"default": {}, "small": {"serial_work": 0, "tile_work": 500}}


@pytest.mark.parametrize("tiles", TILES)
def test_no_op_reads_what_is_not_there_yet(tiles: str) -> None:
    """All readers as outputs of one program: each shares the kernels of the others."""
    names = list(READERS)
    outputs = [READERS[name](_rows()) for name in names]
    with nova.knobs.override(**TILES[tiles]):
        results = nova.compile(outputs, inputs=[X]).run([X.data])
    for name, result, expected in zip(names, results, evaluate(outputs), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("name", ["gathered", "flat", "transposed", "product right", "two levels"])
def test_no_op_reads_what_is_not_there_yet_alone(name: str, tiles: str) -> None:
    output = READERS[name](_rows())
    with nova.knobs.override(**TILES[tiles]):
        result = nova.compile(output, inputs=[X]).run([X.data])
    np.testing.assert_allclose(result, evaluate([output])[0], rtol=1e-4, atol=1e-5)


def _kernels(output: Any) -> list[str]:
    text = nova.compile(output, inputs=[X]).stages["kernels"]
    return text.split("func.func private @kernel_")[1:]


def test_rows_are_one_kernel() -> None:
    assert len(_kernels(nova.layer_norm(nova.softmax(X) * 2.0 + 1.0))) == 1


def test_what_a_kernel_keeps_to_itself_is_no_result() -> None:
    """Only the last value of a layer norm leaves the kernel; the rest is scratch."""
    (kernel,) = _kernels(nova.layer_norm(X))
    assert kernel.partition("attributes")[0].count("->") == 1
    assert kernel.partition("-> ")[2].startswith("tensor<128x128xf32> attributes")


def test_scratch_is_shared_inside_of_a_kernel() -> None:
    """Layer after layer over the same rows: two buffers take turns, however many layers."""
    value = X
    for _ in range(6):
        value = nova.softmax(value * 3.0)
    program = nova.compile(value, inputs=[X])
    assert len(program.kernels) == 1
    assert program.workspace_size <= 2 * X.type.nbytes + 2 * N * 4


def _kernel_count(output: Any, inputs: list[Any], options: str) -> int:
    """Kernels of a program with these options of `form-kernels`."""
    module = start_from_text(nova.compile(output, inputs=inputs).stages["linalg"], "-")
    with module.context:
        passes = parse_pipeline(f"form-kernels{{{options}}}", module.context)
    run_pipeline(module, passes)
    return len(kernels(module))


def test_share_rows() -> None:
    """A matmul with a small right operand shares its rows; -1 is how older pipelines forbid it."""
    w = nova.tensor(np.ones((N, N), np.float32))

    def count(option: str) -> int:
        return _kernel_count(nova.softmax(X @ w), [X, w], f"serial-work=0 {option}")

    assert count("share-rows=true") == 1
    assert count("share-rows=false") == count("row-operand=-1") == 2


@pytest.mark.parametrize("size,on_device", [(2048, 1), (2049, 2)])
def test_few_elements_join_the_one_block_of_a_device(size: int, on_device: int) -> None:
    """A device has a block for a kernel without tiles, a CPU one core."""
    x, b = nova.tensor(np.ones(size, np.float32)), nova.tensor(np.ones(64, np.float32))
    value = x * nova.softmax(nova.softmax(b))[0]
    for _ in range(8):
        value = value * 1.5 + 0.25
    assert _kernel_count(value, [x, b], "share-rows=true") == 2
    assert _kernel_count(value, [x, b], "share-rows=false") == on_device
