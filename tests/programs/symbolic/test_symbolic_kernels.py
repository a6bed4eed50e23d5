"""Kernels with symbolic sizes against numpy, for sizes 0, 1, odd, prime and around tile borders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_philox import weight_factors

import nova
from nova.errors import (
    ArgumentShapeError,
    AttributeValueError,
    LoweringError,
    WorkspaceError,
)
from nova.runtime.symbolic_program import SymbolicProgram
from tests.support.symbolic_programs import (
    NAMES,
    B,
    N,
    S,
    arrays_of,
    make_symbolic,
    symbolic_program,
)

SIZES = (0, 1, 2, 3, 7, 8, 16, 17, 64, 65, 127, 256, 257, 1009, 2048)
FEW = (0, 1, 3, 17, 64, 200)
ROWS = (*range(1, 18), 31, 32, 33, 64, 200)  # of attention: each height of the last panel
PAIRS = [{"B": a, "S": b} for a in (0, 1, 5, 33) for b in (0, 1, 7, 64)]


def _double(x: Any) -> Any:
    return x.astype("f8") if x.dtype.kind == "f" else x


def _matmul(x: Any, y: Any) -> Any:
    return _double(x) @ _double(y)


def _softmax(x: Any) -> Any:
    if not x.size:
        return x
    weights = np.exp(_double(x) - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _attention(q: Any, k: Any, v: Any, causal: bool, dropout: float = 0.0, seed: int = 0) -> Any:
    scores = _matmul(q, k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1])
    rows = scores.shape[-1]
    hidden = ~np.tril(np.ones((rows, rows), bool))
    weights = _softmax(np.where(hidden, -np.inf, scores) if causal else scores)
    if dropout:
        weights = weights * weight_factors(seed, weights.shape, dropout)
    return _matmul(weights, v)


def _transposed(x: Any) -> Any:
    return x.transpose((1, 0))


def _attend(causal: bool) -> tuple[Any, Any]:
    return (
        lambda q, k, v: nova.scaled_dot_product_attention(q, k, v, causal=causal),
        lambda q, k, v: _attention(q, k, v, causal),
    )


CASES: dict[str, Any] = {
    # name: function, shapes, reference, sizes of the dims, listed expressions, dtypes
    "elementwise": (lambda x, y: x * y + x, [(B,), (B,)], lambda x, y: x * y + x, SIZES),
    "bias": (lambda x, y: nova.tanh(x + y), [(64, B), (B,)], lambda x, y: np.tanh(x + y), SIZES),
    "transpose": (lambda x: _transposed(x) + 1.0, [(B, 64)], lambda x: x.T + 1, SIZES),
    "reshape": (
        lambda x: _transposed(x).reshape(-1) * 2.0,
        [(B, S)],
        lambda x: x.T.reshape(-1) * 2,
        PAIRS,
    ),
    "sum": (lambda x: x.sum(), [(B,)], lambda x: np.asarray(_double(x).sum()), SIZES),
    "row_sum": (lambda x: x.sum(axis=1), [(64, B)], lambda x: _double(x).sum(1), SIZES),
    "column_sum": (lambda x: x.sum(axis=0), [(B, 64)], lambda x: _double(x).sum(0), SIZES),
    "softmax_rows": (nova.softmax, [(B, 300)], _softmax, SIZES),
    "softmax_columns": (nova.softmax, [(64, B)], _softmax, SIZES[1:]),
    "matmul_rows": (lambda x, y: x @ y, [(B, 300), (300, 500)], _matmul, SIZES),
    "matmul_small": (lambda x, y: x @ y, [(B, 64), (64, 96)], _matmul, SIZES),
    "matmul_columns": (lambda x, y: x @ y, [(70, 300), (300, B)], _matmul, SIZES),
    "matmul_depth": (lambda x, y: x @ y, [(70, B), (B, 130)], _matmul, SIZES),
    "matmul_all": (
        lambda x, y: x @ y,
        [(B, S), (S, N)],
        _matmul,
        [{**pair, "N": n} for pair in PAIRS for n in (0, 1, 65)],
    ),
    "matmul_transposed": (
        lambda x, y: x @ _transposed(y),
        [(B, 70), (B, 70)],
        lambda x, y: _matmul(x, y.T),
        SIZES,
    ),
    "matvec": (lambda x, y: x @ y, [(B, 70), (70,)], _matmul, SIZES),
    "batched": (lambda x, y: x @ y, [(B, 20, 30), (B, 30, 40)], _matmul, FEW),
    "gather": (
        lambda x, i: nova.take(x, i, axis=1),
        [(30, S, B), (20,)],
        lambda x, i: x[:, i],
        [{"B": a, "S": b} for b in (5, 9, 64) for a in (1, 7, 33)],
        (),
        {1: "i8"},
    ),
    "concat": (
        lambda x, y: nova.concatenate([x, y], axis=1),
        [(20, B), (20, S)],
        lambda x, y: np.concatenate([x, y], 1),
        PAIRS,
        ["B + S"],
    ),
    "scan": (
        lambda x: nova.cumsum(x, axis=1),
        [(30, B)],
        lambda x: np.cumsum(_double(x), 1),
        FEW,
    ),
    "argmax": (lambda x: nova.argmax(x, axis=1), [(64, B)], lambda x: x.argmax(1), SIZES[1:]),
    "attention": (_attend(False)[0], [(2, 3, B, 32)] * 3, _attend(False)[1], ROWS),
    "causal": (_attend(True)[0], [(2, 3, B, 32)] * 3, _attend(True)[1], ROWS),
    "attention_of_other_keys": (
        _attend(False)[0],
        [(2, B, 32), (2, S, 32), (2, S, 32)],
        _attend(False)[1],
        [{"B": b, "S": s} for b in (0, 1, 3, 4, 5, 8, 9, 13) for s in (1, 8, 9, 16, 17, 40, 300)],
    ),
    "dropout_attention": (
        lambda q, k, v: nova.attention(q, k, v, causal=True, dropout=0.25, seed=11),
        [(2, B, 16)] * 3,
        lambda q, k, v: _attention(q, k, v, True, 0.25, 11),
        (1, 2, 3, 5, 7, 17, 70),
    ),
    "several_kernels": (
        lambda x, w: nova.softmax(nova.relu(x @ w)).sum(axis=0),
        [(B, 300), (300, S)],
        lambda x, w: _softmax(np.maximum(_matmul(x, w), 0)).sum(0),
        [pair for pair in PAIRS if pair["S"]],
    ),
}
QUICK = {"bias", "row_sum", "softmax_rows", "matmul_all", "gather", "several_kernels"}


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_sizes(name: str, tmp_path: Path) -> None:
    function, shapes, reference, values, sizes, dtypes = (*CASES[name], (), None)[:6]
    program, _ = symbolic_program(function, shapes, tmp_path, sizes=sizes, dtypes=dtypes)
    for value in values:
        named = value if isinstance(value, dict) else {"B": value}
        arrays = arrays_of(shapes, named, dtypes)
        expected = reference(*arrays)
        scale = max(1.0, float(np.abs(expected).max())) if expected.size else 1.0
        np.testing.assert_allclose(
            np.asarray(program(*arrays), "f8"),
            expected,
            rtol=1e-4,
            atol=1e-4 * scale,
            err_msg=f"{name} with {named}",
        )


def test_the_cache_is_bounded_and_counts(tmp_path: Path) -> None:
    program, _ = symbolic_program(lambda x: x + 1.0, [(B,)], tmp_path)
    native = program._executable.program
    for size in (3, 5, 3):
        assert program(np.zeros(size, "f4")).shape == (size,)
    assert native.cache_info()[:3] == (1, 2, 2)
    for size in range(100):
        program(np.zeros(size, "f4"))
    assert native.cache_info().entries == native.cache_info().most == 64


def test_wrong_sizes_are_named(tmp_path: Path) -> None:
    program, _ = symbolic_program(lambda x, y: x + y, [(B, 4), (B, 4)], tmp_path, bounds=(1, 32))
    with pytest.raises(ArgumentShapeError, match=r"axis 0 of 'a1' is 3, and B is 2: .* 'a0'"):
        program(np.zeros((2, 4), "f4"), np.zeros((3, 4), "f4"))
    with pytest.raises(ArgumentShapeError, match=r"B is 33: it must be in 1\.\.32"):
        program(np.zeros((33, 4), "f4"), np.zeros((33, 4), "f4"))


def test_a_size_in_a_float_constant_is_refused() -> None:
    x = nova.tensor(np.zeros((B, 4), "f4"), name="x")
    text = nova.compile(x.mean(axis=0), inputs=[x]).stages["linalg"]
    symbolic = make_symbolic(text, {"B": (B, 1, 99)}, ())
    with pytest.raises(LoweringError, match="stands for a symbolic size"):
        nova.translate(symbolic, start_from="linalg")


@pytest.mark.parametrize(
    "name", [n if n in {"gather"} else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_code_does_not_depend_on_representatives(name: str) -> None:
    """A number in the code that came from a size would differ."""
    function, shapes, _, _, sizes, dtypes = (*CASES[name], (), None)[:6]
    codes = []
    for primes in ({B: B, S: S, N: N}, {B: 1021, S: 1031, N: 1033}):
        leaves = [
            nova.tensor(np.zeros([primes.get(n, n) for n in shape], (dtypes or {}).get(i, "f4")))
            for i, shape in enumerate(shapes)
        ]
        text = nova.compile(function(*leaves), inputs=leaves).stages["linalg"]
        used = dict.fromkeys(n for shape in shapes for n in shape if n in NAMES)
        dims = {NAMES[n]: (primes[n], 0, 8192) for n in used}
        symbolic = make_symbolic(text, dims, sizes)
        code = nova.translate(symbolic, start_from="linalg", emit="ll", targets="x86_64-v3")
        codes.append(bytes(code.data))
    assert codes[0] == codes[1]


def test_workspace_follows_the_sizes_of_a_call(tmp_path: Path) -> None:
    function = CASES["several_kernels"][0]
    program, _ = symbolic_program(function, [(B, 300), (300, S)], tmp_path)
    small, large = program.workspace_for(B=2, S=8), program.workspace_for(B=512, S=512)
    assert 0 < small < large
    assert program.cache_info().entries == 2
    with pytest.raises(AttributeValueError, match="dims of the program are B, S, not N"):
        program.workspace_for(N=1)
    executable = program._executable
    limited = SymbolicProgram(
        executable.artifact.file.symbolic(executable.variant),
        executable.manifest.args,
        executable.manifest.outputs,
        executable._make_program,
        max_workspace=small,
    )
    assert limited.program_for((2, 8)).workspace_size == small
    with pytest.raises(WorkspaceError, match=rf"B=512, S=512.*max_workspace allows {small}"):
        limited.program_for((512, 512))


@pytest.fixture(scope="module")
def random_sizes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    function = CASES["several_kernels"][0]
    return symbolic_program(function, [(B, S), (S, N)], tmp_path_factory.mktemp("sizes"))[0]


@settings(deadline=None, max_examples=30)
@given(b=st.integers(0, 300), s=st.integers(0, 300), n=st.integers(1, 300))
def test_random_sizes(random_sizes: Any, b: int, s: int, n: int) -> None:
    x, w = arrays_of([(B, S), (S, N)], {"B": b, "S": s, "N": n})
    expected = _softmax(np.maximum(_matmul(x, w), 0)).sum(0)
    np.testing.assert_allclose(random_sizes(x, w), expected, rtol=1e-3, atol=1e-3)
