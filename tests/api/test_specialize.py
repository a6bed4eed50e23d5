"""`specialize=`: code of their own for some sizes of a program with symbolic sizes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import errors, knobs
from nova.api.compile import clear_memory_cache
from nova.api.compiled import Compiled
from nova.artifact import write
from nova.artifact.specialized import pack_specialized
from nova.artifact.tables import unpack_tables

RNG = np.random.default_rng(0)
W = RNG.normal(size=(16, 8)).astype("f4") / 4
B = nova.dim("B", min=1, max=512)
S = nova.dim("S", min=2, max=64)


def classifier(specialize: Any = None, **options: Any) -> Compiled:
    """A product, a constant, a division by a size and a softmax."""
    x, w = nova.input((B, 16), name="x"), nova.tensor(W, name="w")
    y = nova.softmax(x @ w + np.arange(8, dtype="f4"), axis=-1) / x.shape[0]
    return nova.compile(y, inputs=[x], params=[w], specialize=specialize, **options)


def reference(x: np.ndarray) -> np.ndarray:
    z = np.exp(x @ W + np.arange(8, dtype="f4"))
    return z / z.sum(axis=-1, keepdims=True) / len(x)


def batch(n: int) -> np.ndarray:
    return RNG.normal(size=(n, 16)).astype("f4")


def codes(program: Compiled) -> dict[str, bool]:
    """For each combination of sizes with code of its own, whether the code loads sizes."""
    names = [dim.name for dim in program.signature.dims]
    return {
        ",".join(f"{n}={s}" for n, s in zip(names, sizes, strict=True)): any(
            buffer.kind == "sizes" for buffer in unpack_tables(block).buffers
        )
        for sizes, block in program.artifact.file.specialized(0)
    }


def test_listed_sizes_have_static_code_in_the_same_program(tmp_path: Path):
    program = classifier([64, {"B": 1}, 64])
    assert codes(program) == {"B=64": False, "B=1": False}
    program.save(tmp_path / "p.nova", weights="embed")
    loaded = nova.load(tmp_path / "p.nova")
    assert codes(loaded) == codes(program)
    for n in (1, 2, 63, 64, 65, 200):
        x = batch(n)
        for run in (program, loaded.forward):
            np.testing.assert_allclose(run(x), reference(x), rtol=1e-4, atol=1e-6)
    info = program.cache_info()
    assert info.specialized == ("B=64", "B=1") and (info.misses, info.entries) == (6, 6)
    assert classifier().cache_info().specialized == ()


def test_code_for_a_size_is_that_of_the_static_program():
    x, w = nova.input((64, 16), name="x"), nova.tensor(W, name="w")
    y = nova.softmax(x @ w + np.arange(8, dtype="f4"), axis=-1) / 64.0
    static = nova.compile(y, inputs=[x], params=[w])
    array = batch(64)
    assert np.array_equal(classifier([64])(array), static(array))


def test_several_dims_loops_and_branches(tmp_path: Path):
    x = nova.input((B, S, 4), name="x")

    def step(carry, row):
        carry = nova.cond(row.sum() > 0, lambda: carry + row, lambda: carry * 0.5)
        return carry, carry.sum(axis=-1)

    last, rows = nova.scan(step, nova.tensor(np.zeros((1, 4), "f4")) + x[0] * 0, x)
    program = nova.compile([last, rows], inputs=[x], specialize=[(3, 5), {"S": 2, "B": 7}])
    assert program.cache_info().specialized == ("B=3, S=5", "B=7, S=2")
    program.save(tmp_path / "p.nova")
    loaded = nova.load(tmp_path / "p.nova")
    for b, s in ((3, 5), (7, 2), (5, 3), (1, 2)):
        array = RNG.normal(size=(b, s, 4)).astype("f4")
        carry, sums = np.zeros((s, 4), "f4"), []
        for row in array:
            carry = carry + row if row.sum() > 0 else carry * np.float32(0.5)
            sums.append(carry.sum(axis=-1))
        for run in (program, loaded):
            actual = run(array)
            np.testing.assert_allclose(actual[0], carry, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(actual[1], np.array(sums), rtol=1e-5, atol=1e-5)


def test_params_are_updated_in_place():
    x, w = nova.input((B, 4), name="x"), nova.tensor(np.zeros(4, "f4"), name="w")
    step = nova.compile(
        x.sum(), inputs=[x], params=[w], updates={w: w + x.sum(axis=0)}, specialize=[2]
    )
    value = np.zeros(4, "f4")
    for n in (2, 3, 2):
        step(np.ones((n, 4), "f4"), value)
    assert np.array_equal(value, np.full(4, 7, "f4"))


def test_constants_are_shared():
    """Large constants that both codes have are in the file once."""
    weights = RNG.normal(size=(256, 512)).astype("f4")
    x, table = nova.input((B, 4), name="x", dtype="i64"), nova.tensor(weights)
    y = nova.take(table, x, axis=0).sum(axis=1)
    sizes = [
        nova.compile(y, inputs=[x], params=[table], freeze=True, specialize=s).artifact.file.nbytes
        for s in (None, [8])
    ]
    assert sizes[1] - sizes[0] < weights.nbytes / 2


def test_a_program_from_the_disk_cache_keeps_its_code(tmp_path: Path):
    with knobs.override(cache_dir=tmp_path / "cache", cache=True):
        classifier([32])
        clear_memory_cache()
        again = classifier([32])
        assert again.origin == "disk"
        assert codes(again) == {"B=32": False}
        again.save(tmp_path / "p.nova", weights="embed")  # linked again
        assert classifier().origin == "compiled"  # another key
    assert codes(nova.load(tmp_path / "p.nova")) == {"B=32": False}


def test_jit_and_its_statistics():
    f = nova.jit(lambda x: x - x.mean(axis=0), dynamic={"x": {0: "B"}}, specialize=[8, 16])
    for n in (3, 8, 9, 16):
        x = batch(n)
        np.testing.assert_allclose(f(x), x - x.mean(axis=0), rtol=1e-4, atol=1e-6)
    info = f.cache_info()
    assert (info.misses, info.symbolic, info.specialized) == (1, 1, 2)
    assert f.explain() == "first call; B=8 has code of its own; B=16 has code of its own"
    learned = nova.jit(lambda x: x * 2, dynamic=True, specialize=[1, 24, (2, 3)])
    for n in (4, 5, 24):
        learned(batch(n))
    # Sizes 0 and 1 have programs of their own, and one axis varies.
    assert "x_0=24 has code of its own" in learned.explain()
    assert learned.cache_info().specialized == 1


def test_traces_say_which_code_ran():
    program = classifier([64])
    with nova.trace() as trace:
        program(batch(64), W)
        program(batch(65), W)
    names = [run.program for run in trace.runs]
    assert [name[name.index("[") :] for name in names] == [
        "[B=64, specialized]",
        "[B=65, symbolic]",
    ]


def test_a_size_that_is_used_often_gets_code_in_the_background():
    with knobs.override(specialize_after=3):
        f = nova.jit(lambda x: nova.tanh(x) @ W, dynamic={"x": {0: "B"}})
        x = batch(40)
        before = f(x)
        f(x)
        assert f.cache_info().specialized == 0, "two calls of the three"
        deadline = time.monotonic() + 60
        while not f.cache_info().specialized and time.monotonic() < deadline:
            f(x)
            time.sleep(0.01)
    assert "B=40 has code of its own" in f.explain()
    np.testing.assert_allclose(f(x), before, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(f(batch(9)).shape, (9, 8))
    with nova.trace() as trace:
        f(x)
    assert trace.runs[0].program.endswith("[B=40, specialized]")


def test_workspace_limits_hold_for_code_of_a_size():
    program = classifier([64])
    assert program.workspace_for(B=64) >= 0
    with pytest.raises(errors.ArgumentShapeError):
        program(batch(600))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (64, "specialize is a int, not a list"),
        ([(1, 2)], r"specialize has \(1, 2\), and the program has the dims B"),
        ([{"C": 2}], "specialize names the dims C, and the program has B"),
        ([513], "specialize has B=513, and B is 1 to 512"),
        (["64"], "specialize has '64'"),
    ],
)
def test_wrong_values(value: Any, text: str):
    with pytest.raises(errors.AttributeValueError, match=text) as raised:
        classifier(value)
    assert "test_specialize.py" in str(raised.value)


def test_static_programs_have_nothing_to_specialize():
    x = nova.input((4,), name="x")
    with pytest.raises(errors.AttributeValueError, match="all sizes of this one are static"):
        nova.compile(x * 2, inputs=[x], specialize=[4])
    with pytest.raises(errors.AttributeValueError, match="dynamic is False"):
        nova.jit(lambda x: x, specialize=[4])


def test_code_for_other_sizes_is_refused(monkeypatch: pytest.MonkeyPatch):
    def pack(symbolic: bytes, combinations: Any) -> bytes:
        return pack_specialized(symbolic, [((63,), tables) for _, tables in combinations])

    monkeypatch.setattr(write, "pack_specialized", pack)
    clear_memory_cache()
    with (
        knobs.override(cache=False),
        pytest.raises(errors.ArtifactError, match="check 'tables-"),
    ):
        classifier([64])


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", ["graph", "persistent"])
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_a_file_for_a_device_has_code_for_listed_sizes(tmp_path: Path, target: str, launch: str):
    options = {"target": target, "run_mode": "sim", "launch": launch}
    program = classifier([8, {"B": 1}], **options)
    assert classifier(**options).cache_info().specialized == ()
    program.save(tmp_path / "p.nova", weights="embed")
    loaded = nova.load(tmp_path / "p.nova", device="sim")
    for run, arguments in ((program, (W,)), (loaded, ())):
        assert run.cache_info().specialized == ("B=8", "B=1")
        for n, code in ((1, "specialized"), (3, "symbolic"), (8, "specialized"), (9, "symbolic")):
            x = batch(n)
            with nova.trace() as trace:
                result = run(x, *arguments)
            np.testing.assert_allclose(result, reference(x), rtol=1e-4, atol=1e-5)
            [timed] = trace.runs
            assert str(timed.program).endswith(f" [B={n}, {code}]")


def test_a_device_runs_the_kernels_of_the_static_program():
    options = {"target": "cuda:sm_80", "run_mode": "sim"}
    x, w = nova.input((8, 16), name="x"), nova.tensor(W, name="w")
    y = nova.softmax(x @ w + np.arange(8, dtype="f4"), axis=-1) / 8.0
    static = nova.compile(y, inputs=[x], params=[w], **options)
    program, array = classifier([8], **options), batch(8)
    assert np.array_equal(program(array, W), static(array, W))
    [(sizes, block)] = program.artifact.file.specialized(0)
    kernels = unpack_tables(block).kernels
    assert sizes == (8,) and kernels and all(k.symbol.endswith("$8") for k in kernels)
    expected = [k.symbol for k in static.artifact.tables(0).kernels]
    assert [k.symbol.removesuffix("$8") for k in kernels] == expected


def test_a_device_program_from_the_disk_cache_keeps_its_code(tmp_path: Path):
    options = {"target": "cuda:sm_80", "run_mode": "sim"}
    with knobs.override(cache_dir=tmp_path / "cache", cache=True):
        classifier([4], **options)
        clear_memory_cache()
        again = classifier([4], **options)
        assert again.origin == "disk"
        again.save(tmp_path / "p.nova", weights="embed")  # linked again
    x, loaded = batch(4), nova.load(tmp_path / "p.nova", device="sim")
    assert again.cache_info().specialized == loaded.cache_info().specialized == ("B=4",)
    np.testing.assert_allclose(loaded(x), reference(x), rtol=1e-4, atol=1e-5)


def test_a_device_has_code_for_sizes_of_loops(tmp_path: Path):
    """Two dims, a loop with a body of kernels, and constants of both codes."""
    x = nova.input((B, S, 4), name="x")
    table = np.arange(32, dtype="f4").reshape(8, 4)

    def step(carry, row):
        carry = nova.tanh(carry + row) * table[3]
        return carry, carry.sum(axis=-1)

    last, rows = nova.scan(step, x[0] * 0, x)
    outputs = [last, rows + float(table.sum())]
    program = nova.compile(
        outputs, inputs=[x], specialize=[(3, 5)], target="cuda:sm_80", run_mode="sim"
    )
    program.save(tmp_path / "p.nova")
    loaded = nova.load(tmp_path / "p.nova", device="sim")
    assert loaded.cache_info().specialized == ("B=3, S=5",)
    for b, s in ((3, 5), (5, 3), (3, 5)):
        array = RNG.normal(size=(b, s, 4)).astype("f4")
        carry, sums = np.zeros((s, 4), "f4"), []
        for row in array:
            carry = np.tanh(carry + row) * table[3]
            sums.append(carry.sum(axis=-1) + table.sum())
        for run in (program, loaded):
            actual = run(array)
            np.testing.assert_allclose(actual[0], carry, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(actual[1], np.array(sums), rtol=1e-4, atol=1e-4)
