"""Constant weights: packed at compile time, with the same results, in a file that has all of it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from nightly import all_pairs
from processors import runnable

import nova
from nova.api.translate import translate
from nova.codegen.common.match_contraction import Contraction
from nova.codegen.cpu.gemm.prepacked_constants import PrepackedPanels, pack_array, packed_size
from nova.errors import GraphError
from nova.tools.nova import main

LEVELS = runnable("cpu", "x86_64-v3", "x86_64")
# Whole and broken panels of every level, one and several blocks of k, few and many rows; none of
# them small enough to be computed without panels.
SHAPES = [
    (64, 784, 512),
    (61, 97, 130),
    (7, 1300, 65),
    (1129, 31, 16),
    (33, 1000, 17),
    (5, 1801, 97),
    # Weights that do not stay in L2, for rows that are read in place, and for one more.
    (128, 670, 801),
    (129, 670, 801),
]


def arrays(m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(m + k + n)
    return tuple(random.standard_normal(s).astype("f4") for s in ((m, k), (k, n), (n,)))


def frozen(x: np.ndarray, w: np.ndarray, b: np.ndarray, target: str, transposed: bool = False):
    X, B = nova.tensor(x, name="X"), nova.tensor(b, name="b")
    W = nova.tensor(np.ascontiguousarray(w.T) if transposed else w, name="W")
    y = nova.relu(X @ (W.T if transposed else W) + B)
    return nova.compile(y, inputs=[X], params=[W, B], freeze=True, target=target)


@pytest.mark.parametrize(
    ("shape", "transposed", "target"), all_pairs(SHAPES, [False, True], LEVELS)
)
def test_results_are_those_of_torch(shape, transposed, target) -> None:
    x, w, b = arrays(*shape)
    program = frozen(x, w, b, target, transposed)
    assert "nova.packed" in program.stages["loops"]
    expected = torch.relu(torch.from_numpy(x) @ torch.from_numpy(w) + torch.from_numpy(b)).numpy()
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif("x86_64-v3" not in LEVELS, reason="the names are those of x86_64-v3")
@pytest.mark.parametrize(
    ("shape", "called"),
    [
        ((64, 784, 512), "nova_multiply_rows_f32_"),
        ((128, 670, 801), "nova_multiply_rows_far_f32_"),
        ((129, 670, 801), "nova_multiply_far_f32_"),
        ((129, 784, 512), "nova_multiply_f32_"),
    ],
)
def test_few_rows_are_not_packed_and_large_weights_are_fetched_early(shape, called) -> None:
    text = frozen(*arrays(*shape), "x86_64-v3").stages["loops"]
    assert f"call @{called}" in text
    assert ("call @nova_pack" in text) == ("rows" not in called)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_those_of_the_program_with_params(threads: int) -> None:
    x, w, b = arrays(64, 784, 512)
    X, W, B = nova.tensor(x, name="X"), nova.tensor(w, name="W"), nova.tensor(b, name="b")
    plain = nova.compile(nova.relu(X @ W + B), inputs=[X], params=[W, B])
    with nova.knobs.override(threads=threads):
        np.testing.assert_array_equal(frozen(x, w, b, "cpu")(x), plain(x, w, b))


def test_a_frozen_program_takes_the_inputs_alone() -> None:
    x, w, b = arrays(61, 97, 130)
    program = frozen(x, w, b, "cpu")
    assert [a.name for a in program.signature.arguments] == ["X"]
    assert program.params == {}
    before = program(x)
    w[:] = 0  # the values of then are meant
    np.testing.assert_array_equal(program(x), before)
    np.testing.assert_array_equal(program.forward(x), before)


def test_what_is_updated_cannot_be_frozen() -> None:
    W = nova.tensor(np.ones((2, 2), "f4"), name="W")
    with pytest.raises(GraphError, match="freeze makes constants of the params") as caught:
        nova.compile([], params=[W], updates={W: W * 2}, freeze=True)
    assert "test_prepacked_constants.py" in str(caught.value)


def test_files_have_packed_weights_and_can_be_compiled_again(tmp_path: Path) -> None:
    x, w, b = arrays(64, 784, 512)
    program = frozen(x, w, b, "cpu")
    program.save(tmp_path / "frozen.nova")
    loaded = nova.load(tmp_path / "frozen.nova")
    np.testing.assert_array_equal(loaded(x), program(x))
    # The values once packed and once as they were, however many texts have them.
    assert (tmp_path / "frozen.nova").stat().st_size < 2.6 * w.nbytes
    assert loaded.stages == program.stages
    again = nova.compile_plan(loaded.stages["plan"])
    np.testing.assert_array_equal(again(x), program(x))
    output = io.StringIO()
    with redirect_stdout(output):
        assert main(["inspect", str(tmp_path / "frozen.nova")]) == 0
    assert "packed constants" in output.getvalue()


@pytest.mark.skipif(len(LEVELS) < 3, reason="one level alone")
def test_targets_share_what_is_packed_alike() -> None:
    x, w, b = arrays(64, 96, 512)
    source = frozen(x, w, b, "cpu").mlir_source
    single = translate(source, targets=["x86_64-v3"])
    two = translate(source, targets=["x86_64-v3", "x86_64"])
    np.testing.assert_allclose(two.load()(x), np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-3)
    specs = {v.target: v for v in two.load().artifact.manifest.variants}
    identical = specs["x86_64"].constants == specs["x86_64-v3"].constants
    growth = len(two.data) - len(single.data)
    assert growth < (0.5 if identical else 1.5) * w.nbytes


def test_the_order_of_panels() -> None:
    spec = Contraction(4, 5, 3, (3, 1), (5, 1), (5, 1), "f32", "f32", "f32", False)
    panels = PrepackedPanels(4, 2)
    flat = np.arange(1, 16, dtype="f4")
    packed = pack_array(flat, spec, panels)
    assert len(packed) == packed_size(spec, panels) == 24
    first = [1, 2, 3, 4, 5, 0, 0, 0]  # k = 0: columns 0..3, then column 4
    second = [6, 7, 8, 9, 11, 12, 13, 14, 10, 0, 0, 0, 15, 0, 0, 0]
    np.testing.assert_array_equal(packed, [*first, *second])


def test_what_is_no_plain_operand_stays() -> None:
    """Batches of weights, weights read twice, and rows: all computed, none packed."""
    random = np.random.default_rng(0)
    x = random.standard_normal((3, 32, 64)).astype("f4")
    w = random.standard_normal((3, 64, 48)).astype("f4")
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    batch = nova.compile(X @ W, inputs=[X], params=[W], freeze=True)
    assert "nova.packed" not in batch.stages["loops"]
    np.testing.assert_allclose(batch(x), x @ w, rtol=1e-4, atol=1e-4)
    square = random.standard_normal((96, 96)).astype("f4")
    S, Y = nova.tensor(square, name="S"), nova.tensor(x[0, :, :1], name="Y")
    both = nova.compile((S @ S) + S + Y[0], inputs=[Y], params=[S], freeze=True)
    np.testing.assert_allclose(
        both(x[0, :, :1]), square @ square + square + x[0, 0, :1], rtol=1e-3, atol=1e-3
    )


# --- left operands, such as the weights of convolutions -------------------------------------------


@pytest.mark.parametrize("level", runnable("cpu", "x86_64-v3", "x86_64-v2"))
@pytest.mark.parametrize(
    ("m", "n", "k", "batch"),
    [(256, 196, 300, 1), (70, 49, 900, 1), (133, 130, 257, 3), (192, 50, 256, 2)],
)
def test_constant_rows_are_packed(level, m, n, k, batch):
    rng = np.random.default_rng(m)
    w, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k, 1), (m, 1)))
    x = rng.standard_normal((batch, k, n)).astype(np.float32)
    X, W = nova.tensor(x, name="x"), nova.tensor(w, name="w")
    out = nova.relu(nova.matmul(nova.reshape(W, (m, k)), X) + nova.tensor(b))
    frozen = nova.compile(out, inputs=[X], params=[W], freeze=True, target=level)
    assert "nova.packed = [array<i64: 0, " in frozen.stages["loops"]
    results = []
    for threads in (1, 2, 3):
        with nova.knobs.override(threads=threads):
            results.append(np.asarray(frozen(x)))
    assert all((r == results[0]).all() for r in results)
    expected = np.maximum(w[:, :, 0].astype(np.float64) @ x.astype(np.float64) + b, 0)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4 * k**0.5)
    # The same sums in the same order as those of the program that packs at run time.
    unfrozen = nova.compile(out, inputs=[X, W], target=level)
    np.testing.assert_array_equal(results[0], np.asarray(unfrozen(x, w)))


def test_few_last_columns_are_one_vector():
    """196 positions are 6 panels of 32 columns and a vector of 4: not 7 panels."""
    W = nova.tensor(np.ones((256, 300), np.float32), name="w")
    for n, narrow in ((196, True), (192, False), (210, False)):
        X = nova.tensor(np.ones((300, n), np.float32), name="x")
        source = nova.compile(W @ X, inputs=[X, W]).mlir_source
        stages = translate(source, targets=["x86_64-v4"]).stages
        assert ("x32_narrow(" in stages["loops"]) == narrow


def test_vectors_are_along_constant_rows_if_columns_would_waste_them():
    """49 positions take 4 vectors of 16, or 3.5 tiles of 14 rows by vectors of channels."""
    cases = ((49, 512, 512, True), (196, 256, 256, True), (49, 960, 160, True))
    others = ((784, 128, 512, False), (192, 256, 300, False), (49, 512, 64, False))
    for n, m, k, transposed in (*cases, *others):
        w, X = np.ones((m, k), np.float32), nova.tensor(np.ones((k, n), np.float32), name="x")
        source = nova.compile(nova.tensor(w) @ X, inputs=[X]).mlir_source
        stages = translate(source, targets=["x86_64-v4"]).stages
        assert ("nova_multiply_transposed" in stages["loops"]) == transposed, (n, m, k)
