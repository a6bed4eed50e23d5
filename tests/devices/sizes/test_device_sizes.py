"""Programs with symbolic sizes on a device: one program against numpy, over many sizes.

Sizes are a unit, odd, prime, and around the widths of vectors, warps and tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.errors import LoweringError, SignatureError, WorkspaceError
from nova.runtime import gpu_executor

B, C = nova.dim("B", min=0, max=1 << 20), nova.dim("C", min=1, max=1 << 20)
FEW, MANY = (0, 1, 33), (1, 2, 3, 7, 13, 31, 32, 63, 64, 65, 127, 129, 257)


@dataclass(frozen=True)
class Case:
    """A function of tensors with these shapes, and of arrays in numpy."""

    shapes: tuple[tuple[Any, ...], ...]
    function: Callable[..., Any]
    numpy: Callable[..., Any]
    tolerance: float = 2e-5


def _softmax(x: np.ndarray) -> np.ndarray:
    if not x.size:
        return x
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _norm(x: np.ndarray) -> np.ndarray:
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5))


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows, keys = (np.arange(n) for n in scores.shape[-2:])
        scores = np.where(keys[None, :] > rows[:, None], -np.inf, scores)
    return np.asarray(_softmax(scores) @ v)


W = np.linspace(-1, 1, 24 * 12, dtype="f4").reshape(24, 12)
TABLE = np.arange(60, dtype="f4").reshape(10, 6)


def _rows(x: Any) -> Any:
    """Row numbers below 10 from the first column."""
    return nova.cast(nova.minimum(nova.abs(x[:, 0]) * 3, 9.0), "i64")


def _numpy_rows(x: np.ndarray) -> np.ndarray:
    return np.minimum(np.abs(x[:, 0]) * 3, 9).astype("i8")


def _scattered(x: np.ndarray) -> np.ndarray:
    total = np.zeros((10, 6), "f4")
    np.add.at(total, _numpy_rows(x), x)
    return total


def _bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype("f4")


FAMILIES: dict[str, Case] = {
    "elementwise": Case(((B, 8),), lambda x: nova.tanh(x) * 2 + 1, lambda x: np.tanh(x) * 2 + 1),
    "softmax": Case(((B, 50),), lambda x: nova.softmax(x, axis=-1), _softmax),
    "columns": Case(((B, 40),), lambda x: x.sum(axis=0), lambda x: x.sum(axis=0), 1e-4),
    "transpose": Case(((B, 70),), lambda x: x.T + 1, lambda x: x.T + 1),
    "gather": Case(
        ((B, 6),), lambda x: nova.tensor(TABLE)[_rows(x)], lambda x: TABLE[_numpy_rows(x)]
    ),
    "fma": Case(
        ((B, 24),), lambda x: nova.relu(x @ nova.tensor(W)), lambda x: np.maximum(x @ W, 0)
    ),
}
"""Of every family one case, where the axis that most programs leave open is symbolic."""

OTHERS: dict[str, Case] = {
    "two dims": Case(((B, C),), lambda x: nova.exp(x) + x, lambda x: np.exp(x) + x),
    "broadcast": Case(((B, C), (C,)), lambda x, b: x * b, lambda x, b: x * b),
    "rows of any length": Case(((5, C),), lambda x: nova.softmax(x, axis=-1), _softmax),
    "any rows": Case(((B, C),), lambda x: nova.softmax(x, axis=-1), _softmax),
    "layer norm": Case(
        ((B, 96),),
        lambda x: nova.layer_norm(x),
        _norm,
        1e-4,
    ),
    "norm of any length": Case(
        ((3, C),),
        lambda x: nova.layer_norm(x),
        _norm,
        1e-4,
    ),
    "sum of rows": Case(((3, C),), lambda x: x.sum(axis=1), lambda x: x.sum(axis=1), 1e-4),
    "maximum": Case(((B, C),), lambda x: x.max(axis=1), lambda x: x.max(axis=1)),
    "position": Case(((5, C),), lambda x: nova.argmax(x, axis=1), lambda x: x.argmax(axis=1)),
    "mean of columns": Case(((C, 3),), lambda x: x.mean(axis=0), lambda x: x.mean(axis=0), 1e-4),
    "sum of all": Case(((B, 40),), lambda x: x.sum(), lambda x: x.sum(), 1e-3),
    "transpose of both": Case(((B, C),), lambda x: x.T * 2, lambda x: x.T * 2),
    "reverse": Case(((C, C),), lambda x: x[::-1, ::-1], lambda x: x[::-1, ::-1]),
    "concat": Case(((B, 3),), lambda x: nova.concat([x, x]), lambda x: np.concatenate([x, x])),
    "running sum": Case(((B, 4),), lambda x: nova.cumsum(x, axis=0), lambda x: x.cumsum(0), 1e-3),
    "scatter": Case(
        ((B, 6),),
        lambda x: nova.grad(lambda t: (nova.take(t, _rows(x), axis=0) * x).sum())(
            nova.tensor(np.ones((10, 6), "f4"))
        ),
        _scattered,
        1e-4,
    ),
    "any k": Case(((6, C), (C, 9)), lambda a, b: a @ b, lambda a, b: a @ b, 1e-3),
    "any n": Case(((6, 20), (20, B)), lambda a, b: a @ b, lambda a, b: a @ b, 1e-4),
    "any m and k": Case(((B, C), (C, 9)), lambda a, b: a @ b, lambda a, b: a @ b, 1e-3),
    "all of a matmul": Case(((B, C), (C, B)), lambda a, b: a @ b, lambda a, b: a @ b, 1e-3),
    "transposed operand": Case(((C, 6), (C, 9)), lambda a, b: a.T @ b, lambda a, b: a.T @ b, 1e-3),
    "batch": Case(((B, 5, 8), (B, 8, 6)), lambda a, b: a @ b, lambda a, b: a @ b, 1e-4),
    "mma": Case(
        ((B, 24),),
        lambda x: nova.cast(nova.cast(x, "bf16") @ nova.cast(nova.tensor(W), "bf16"), "f4"),
        lambda x: _bf16(_bf16(x) @ _bf16(W)),
        2e-2,
    ),
    "mma of any k": Case(
        ((20, C), (C, 16)),
        lambda a, b: nova.cast(nova.cast(a, "f16") @ nova.cast(b, "f16"), "f4"),
        lambda a, b: a.astype("f2").astype("f4") @ b.astype("f2").astype("f4"),
        5e-2,
    ),
    "attention": Case(((2, C, 16),) * 3, nova.scaled_dot_product_attention, _attention, 1e-4),
    "causal attention": Case(
        ((B, C, 16),) * 3,
        lambda q, k, v: nova.scaled_dot_product_attention(q, k, v, causal=True),
        lambda q, k, v: _attention(q, k, v, causal=True),
        1e-4,
    ),
}


def _shape(shape: Sequence[Any], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(n if isinstance(n, int) else sizes[str(n)] for n in shape)


def check(case: Case, sizes: Sequence[int], on_device: dict[str, Any]) -> None:
    """Compare a case with numpy, for these sizes of the first dim it has."""
    inputs = [nova.input(shape, name=f"x{i}") for i, shape in enumerate(case.shapes)]
    program = nova.compile(case.function(*inputs), inputs=inputs, **on_device)
    rng = np.random.default_rng(0)
    dims = {str(n) for shape in case.shapes for n in shape if not isinstance(n, int)}
    combinations = [{"B": n, "C": n} if len(dims) == 1 else {"B": n, "C": 9} for n in sizes]
    if len(dims) == 2:
        combinations += [{"B": 5, "C": n} for n in sizes if n]
    for chosen in combinations:
        if dims == {"C"} and chosen["C"] == 0:
            continue
        arrays = [rng.standard_normal(_shape(shape, chosen)).astype("f4") for shape in case.shapes]
        result = program(*arrays)
        expected = case.numpy(*arrays)
        assert result.shape == np.shape(expected), chosen
        tolerance = {"rtol": case.tolerance, "atol": case.tolerance}
        np.testing.assert_allclose(result, expected, **tolerance, err_msg=str(chosen))


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name: str, on_device: dict[str, Any]) -> None:
    check(FAMILIES[name], FEW, on_device)


@pytest.mark.slow
@pytest.mark.parametrize("name", {**FAMILIES, **OTHERS})
def test_many_sizes(name: str, on_device: dict[str, Any]) -> None:
    check({**FAMILIES, **OTHERS}[name], MANY, on_device)


@pytest.mark.gpu
@pytest.mark.parametrize("name", {**FAMILIES, **OTHERS})
def test_on_a_gpu(name: str, on_device: dict[str, Any]) -> None:
    check({**FAMILIES, **OTHERS}[name], (1, 33, 64, 129), on_device)


def test_classes_of_rows(on_device: dict[str, Any]) -> None:
    """A GEMM has several kernels for different numbers of rows, and a call launches one of them."""
    x, w = nova.input((B, 256), name="x"), nova.input((256, 256), name="w")
    program = nova.compile(x @ w, inputs=[x, w], **on_device)
    assert len(program.kernels) >= 2
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((256, 256)).astype("f4")
    for n in (1, 63, 64, 1024):
        a = rng.standard_normal((n, 256)).astype("f4")
        np.testing.assert_allclose(program(a, weights), a @ weights, rtol=1e-3, atol=1e-3)
        native = program._executable.program.program_of([a, weights])
        assert native.counts()[:2] == (1, 1)


@pytest.mark.graph_launch
def test_wgmma_takes_any_number_of_rows() -> None:
    """The tensor maps of the copy engine are encoded for the sizes of a call."""
    x, w = nova.input((B, 64), "bf16", name="x"), nova.input((64, 128), "bf16", name="w")
    y = nova.relu(nova.cast(x @ w, "f4"))
    with nova.knobs.override(gpu_gemm="wgmma-128x64"):
        program = nova.compile(y, inputs=[x, w], target="cuda:sm_90a", run_mode="sim")
    assert "wgmma.mma_async" in program.stages["ptx"]
    rng = np.random.default_rng(0)
    for n in (0, 1, 127, 129):
        a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((n, 64), (64, 128)))
        expected = np.maximum(a.astype("f4") @ b.astype("f4"), 0)
        np.testing.assert_allclose(program(a, b), expected, rtol=1e-2, atol=1e-2)


def test_signature_without_the_device() -> None:
    program = _softmax_program(run_mode="native", target="cuda:sm_90a")
    assert str(program.signature.inputs[0].type) == "f32[B,24]"


# --- runs -----------------------------------------------------------------------------------------


def _softmax_program(**options: Any) -> Any:
    x = nova.input((B, 24), name="x")
    y = nova.softmax(nova.gelu(x @ nova.tensor(W)) @ nova.tensor(W.T), axis=-1)
    options = {"target": "cuda:sm_80", "run_mode": "sim"} | options
    return nova.compile(y, inputs=[x], **options)


def test_file_and_cache_of_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _softmax_program()
    program.save(tmp_path / "any.nova")
    read = gpu_executor._read_code
    loads: list[int] = []
    monkeypatch.setattr(gpu_executor, "_read_code", lambda *args: loads.append(1) or read(*args))
    model = nova.load(tmp_path / "any.nova", device="sim")
    assert str(model.signature) == str(program.signature)
    rng = np.random.default_rng(0)
    for n in (3, 40, 3, 0, 40):
        x = rng.standard_normal((n, 24)).astype("f4")
        np.testing.assert_array_equal(model(x), program(x))
    assert model.cache_info()[:3] == (2, 3, 3)
    assert len(loads) == 1  # the code is translated once, for all sizes
    assert model.workspace_for(B=64) > model.workspace_for(B=3) > 0


@pytest.mark.graph_launch
def test_graphs_of_a_size_take_new_arrays() -> None:
    program = _softmax_program()
    rng = np.random.default_rng(0)
    arrays = []  # kept, so that every run has other addresses
    for _ in range(8):
        x = rng.standard_normal((6, 24)).astype("f4")
        arrays += [nova.to_device(x, "sim")]
        arrays += [program(arrays[-1])]
        np.testing.assert_array_equal(arrays[-1].numpy(), program(x))
    native = program._executable.program.program_of([arrays[0]])
    runs, _, graphs, graph_launches, updates = native.counts()
    assert runs == 16 and graph_launches > graphs > 0 and updates > 0


def test_sizes_that_disagree() -> None:
    x, y = nova.input((B, 3), name="x"), nova.input((B * 2,), name="y")
    program = nova.compile(x.sum() + y.sum(), inputs=[x, y], target="cuda:sm_80", run_mode="sim")
    assert program(np.ones((2, 3), "f4"), np.ones(4, "f4")) == 10
    with pytest.raises(SignatureError, match=r"axis 0 of 'y' is 6, and B\*2 is 4"):
        program(np.ones((2, 3), "f4"), np.ones(6, "f4"))


def test_workspace_of_a_size() -> None:
    program = _softmax_program(max_workspace=10_000)
    program(np.ones((3, 24), "f4"))
    with pytest.raises(WorkspaceError, match="scratch memory for B=1000"):
        program(np.ones((1000, 24), "f4"))


def test_ops_on_the_host_have_static_sizes() -> None:
    x = nova.input((B, 3), name="x")
    with nova.device("cpu"):
        y = nova.softmax(x * 2)
    with pytest.raises(
        LoweringError, match="runs on the host, in a program for a device"
    ) as raised:
        nova.compile(y + 1, inputs=[x], target="cuda:sm_80", run_mode="sim")
    assert raised.value.where is not None and "test_device_sizes.py" in raised.value.where


def test_training_with_ragged_batches(on_device: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    batches = [
        (rng.standard_normal((n, 8)).astype("f4"), rng.integers(0, 4, n)) for n in (32, 17, 32, 5)
    ]
    losses = []
    dynamic = {"x": {0: "N"}, "y": {0: "N"}}
    for options in ({}, on_device):
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
        for i, parameter in enumerate(model.parameters()):
            parameter.data[...] = 0.3 * np.random.default_rng(i).standard_normal(parameter.shape)
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        step = nova.train_step(
            model,
            lambda m, x, y: nova.cross_entropy(m(x), y),
            optimizer,
            dynamic=dynamic,
            **options,
        )
        losses.append([float(step(x, y)) for x, y in batches])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_jit_with_marked_axes(on_device: dict[str, Any]) -> None:
    @nova.jit(dynamic={"x": {0: "B"}}, **on_device)
    def similarity(x: Any) -> Any:
        return nova.softmax(x @ x.T, axis=-1).sum(axis=0)

    rng = np.random.default_rng(0)
    for n in (3, 20, 7):
        x = rng.standard_normal((n, 5)).astype("f4")
        np.testing.assert_allclose(similarity(x), _softmax(x @ x.T).sum(axis=0), rtol=1e-4)
    assert similarity.cache_info().misses == 1
