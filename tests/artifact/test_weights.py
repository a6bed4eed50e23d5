"""Programs with the values of their params: inside of the file, beside it, or by name."""

from __future__ import annotations

import os
import tracemalloc
from hashlib import sha256
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.api import compiled
from nova.api.compile import clear_memory_cache
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArtifactError,
    AttributeValueError,
    WeightsError,
)
from nova.frontends.safetensors import read_safetensors, write_safetensors
from nova.runtime import saving

A = np.arange(6, dtype="f4").reshape(2, 3)
KINDS = ("embed", "external")


def affine(w: np.ndarray, b: np.ndarray) -> nova.Compiled:
    """x @ w + b, from tensors that hold `w` and `b`."""
    x = nova.tensor(A, name="x")
    W, B = nova.tensor(w, name="w"), nova.tensor(b, name="b")
    return nova.compile(x @ W + B, inputs=[x], params=[W, B])


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"w": rng.standard_normal((3, 4), np.float32), "b": rng.standard_normal(4, np.float32)}


@pytest.fixture
def program(values: dict[str, np.ndarray]) -> nova.Compiled:
    return affine(**values)


def weights_file(folder: Path, stem: str = "m") -> Path:
    [result] = folder.glob(f"{stem}-*.safetensors")
    return result


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "missing_packages", lambda: ["torch-mlir", "llvmlite"])


# --- saving and loading ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", KINDS)
def test_a_file_with_weights_needs_only_inputs(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "m.nova"
    program.save(path, weights=mode)
    model = nova.load(path)
    want = program.run([A], list(values.values()))
    for actual in (
        model.run([A]),
        model.forward(A),
        model(A),
        model(A, values["w"], values["b"]),
        model.run([A], [values["w"], values["b"]]),
    ):
        np.testing.assert_array_equal(actual, want)
    out = np.empty_like(want)
    for call in (model.forward, model):
        out[...] = 0
        call(A, out=out)
        np.testing.assert_array_equal(out, want)
    assert list(model.params) == ["w", "b"]
    for name, array in model.params.items():
        np.testing.assert_array_equal(array, values[name])
        assert not array.flags.writeable and not array.flags.owndata
        assert array is model.params[name]
    np.testing.assert_array_equal(
        model.run([A], [np.zeros((3, 4), "f4"), values["b"]]), np.tile(values["b"], (2, 1))
    )
    assert len(list(tmp_path.glob("m-*.safetensors"))) == (mode == "external")


def test_a_program_without_weights_asks_for_them(program: nova.Compiled, tmp_path: Path) -> None:
    path = tmp_path / "m.nova"
    program.save(path)
    model = nova.load(path)
    assert model.params == {}
    with pytest.raises(ArgumentCountError, match="1 argument given, the program takes 3"):
        model(A)
    with pytest.raises(ArgumentCountError):
        model.run([A])
    with pytest.raises(WeightsError, match="no value for 'w', 'b'") as caught:
        model.forward(A)
    assert caught.value.where.startswith(__file__)


def test_a_compiled_program_carries_the_data_of_its_tensors(
    program: nova.Compiled, values: dict[str, np.ndarray]
) -> None:
    want = A @ values["w"] + values["b"]
    np.testing.assert_allclose(program.forward(A), want, rtol=1e-6)
    np.testing.assert_array_equal(program(A), program.run([A]))
    assert program.params["w"] is values["w"]
    values["w"][...] = 0  # the tensors' own arrays, and not a copy
    np.testing.assert_array_equal(program(A), np.tile(values["b"], (2, 1)))
    x, w = nova.graph.placeholder((2,), "f4"), nova.graph.placeholder((2,), "f4", "w")
    placeholder = nova.compile(x + w, inputs=[x], params=[w])
    assert placeholder.params == {}
    with pytest.raises(WeightsError, match="no value for 'w'"):
        placeholder.forward(A[0, :2])


def test_two_programs_of_one_plan_have_their_own_values(values: dict[str, np.ndarray]) -> None:
    """They share code in the memory cache; values are no part of it."""
    first = affine(**values)
    second = affine(values["w"] * 2, values["b"])
    assert second.origin == "memory"
    assert first.params["w"] is values["w"]
    np.testing.assert_array_equal(second.params["w"], values["w"] * 2)


@pytest.mark.parametrize("mode", KINDS)
def test_values_are_those_of_the_moment_of_the_save(tmp_path: Path, mode: str) -> None:
    layer = nn.Linear(3, 2)
    x = nova.tensor(A, name="x")
    program = nova.compile(layer(x), inputs=[x], params=layer.parameters())
    layer.weight.data[...] = 0
    layer.bias.data[...] = [1, 2]
    program.save(tmp_path / "m.nova", weights=mode)
    layer.bias.data[...] = 7
    np.testing.assert_array_equal(nova.load(tmp_path / "m.nova")(A), [[1, 2], [1, 2]])


@pytest.mark.parametrize("mode", KINDS)
def test_values_can_be_given(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "m.nova"
    w, b = values["w"] + 1, values["b"] - 1
    for inputs in ([w, b], {"b": b, "w": w}, (np.asfortranarray(w), b)):
        program.save(path, weights=mode, params=inputs)
        loaded = nova.load(path).params
        np.testing.assert_array_equal(loaded["w"], w)
        np.testing.assert_array_equal(loaded["b"], b)
    program.save(path, weights=mode, params={"b": b})  # the rest is what the program carries
    np.testing.assert_array_equal(nova.load(path).params["w"], values["w"])


@pytest.mark.parametrize("mode", KINDS)
def test_every_type_and_shape(tmp_path: Path, mode: str) -> None:
    rng = np.random.default_rng(4)
    types = ["f8", "f4", "f2", ml_dtypes.bfloat16, "i8", "i4", "i1", "u1", "?"]
    shapes = [(), (3,), (0, 2), (2, 1, 3), (5, 7)]
    arrays = {
        f"p{i}": (rng.standard_normal(shapes[i % 5]) * 3).astype(t)
        for i, t in enumerate(types + types[::-1])
    }
    leaves = [nova.tensor(a, name=name) for name, a in arrays.items()]
    program = nova.compile([t.reshape((t.size,)) for t in leaves], params=leaves)
    program.save(tmp_path / "m.nova", weights=mode)
    model = nova.load(tmp_path / "m.nova")
    for (name, want), actual in zip(arrays.items(), model.forward(), strict=True):
        stored = model.params[name]
        assert stored.dtype == want.dtype and stored.shape == want.shape
        assert stored.tobytes() == want.tobytes() == actual.tobytes(), name


def test_a_large_file_is_not_copied_over_and_over(tmp_path: Path) -> None:
    size = 48 << 20
    w = np.random.default_rng(0).random(size // 4, np.float32)
    W = nova.tensor(w, name="w")
    program = nova.compile(W.sum(), params=[W])
    path = tmp_path / "m.nova"
    limits = {"embed": 2.5, "external": 0.1}
    for mode, limit in limits.items():
        tracemalloc.start()
        program.save(path, weights=mode)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < limit * size, f"{mode}: {peak / size:.2f} times the weights"
        tracemalloc.start()
        model = nova.load(path)
        np.testing.assert_allclose(model.forward(), w.sum(dtype="f8"), rtol=1e-4)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1.1 * size, f"{mode}: {peak / size:.2f} times the weights"


# --- params that runs update ----------------------------------------------------------------------


def make_step() -> tuple[nova.train.step.TrainStep, np.ndarray, np.ndarray]:
    nn.manual_seed(0)
    rng = np.random.default_rng(0)
    x, y = rng.random((16, 3), np.float32), rng.random((16, 1), np.float32)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    return nova.train_step(model, lambda m, x, y: nova.mse_loss(m(x), y), optimizer), x, y


@pytest.mark.parametrize("mode", KINDS)
def test_a_loaded_training_step_trains(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, x, y = make_step()
    for _ in range(3):
        step(x, y)
    step.save(tmp_path / "step.nova", weights=mode)
    no_compiler(monkeypatch)
    model, second = nova.load(tmp_path / "step.nova"), nova.load(tmp_path / "step.nova")
    expected = [step(x, y) for _ in range(4)]
    np.testing.assert_array_equal([model.forward(x, y) for _ in range(2)], expected[:2])
    # Saved in the middle, without a compiler, and loaded again.
    model.save(tmp_path / "middle.nova")
    again = nova.load(tmp_path / "middle.nova")
    np.testing.assert_array_equal([again.forward(x, y) for _ in range(2)], expected[2:])
    for name, value in step.state_dict().items():
        np.testing.assert_array_equal(again.params[name], value)
        assert again.params[name].flags.writeable or "weight" not in name
    # Each model has its own copies.
    np.testing.assert_array_equal(second.forward(x, y), expected[0])


def test_a_step_that_never_ran_has_no_program_to_save(tmp_path: Path) -> None:
    step, _, _ = make_step()
    with pytest.raises(nova.errors.GraphError, match="no program yet"):
        step.save(tmp_path / "step.nova")


# --- weights beside the file ----------------------------------------------------------------------


def test_external_weights_are_an_ordinary_safetensors_file(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path
) -> None:
    program.save(tmp_path / "m.nova", weights="external")
    sibling = weights_file(tmp_path)
    assert sibling.stem == "m-" + sha256(sibling.read_bytes()).hexdigest()[:12]
    result = read_safetensors(sibling)
    assert result.keys() == values.keys()
    np.testing.assert_array_equal(result["w"], values["w"])
    moved = tmp_path / "elsewhere.safetensors"
    sibling.rename(moved)
    with pytest.raises(WeightsError, match="No such file") as caught:
        nova.load(tmp_path / "m.nova")
    assert caught.value.where == str(sibling)
    np.testing.assert_array_equal(nova.load(tmp_path / "m.nova", weights=moved)(A), program(A))


def test_other_weights_are_noticed(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = tmp_path / "m.nova"
    program.save(path, weights="external")
    sibling = weights_file(tmp_path)
    good = sibling.read_bytes()
    damaged = bytearray(good)
    damaged[-1] ^= 1
    for data in (bytes(damaged), good[:-4], good + b"\0", b""):
        sibling.write_bytes(data)
        with pytest.raises(WeightsError, match="SHA-256 differs") as caught:
            nova.load(path)
        assert caught.value.where == str(sibling)
    write_safetensors(sibling, {"w": values["w"] * 2, "b": values["b"]})
    with pytest.raises(WeightsError, match="SHA-256 differs"):
        nova.load(path)


def test_a_kill_between_the_two_files_leaves_the_old_pair(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = tmp_path / "m.nova"
    program.save(path, weights="external")
    child = os.fork()
    if child == 0:
        saving.save_artifact = lambda *inputs: os._exit(9)  # in this process only
        program.save(path, weights="external", params={"b": values["b"] + 1})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(list(tmp_path.glob("m-*.safetensors"))) == 2
    np.testing.assert_array_equal(nova.load(path).params["b"], values["b"])


def test_the_weights_that_a_save_replaces_are_removed(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path, second = tmp_path / "m.nova", tmp_path / "m-0123456789ab.safetensors"
    program.save(path, weights="external")
    first = weights_file(tmp_path)
    program.save(path, weights="external")  # the same values: the same file
    assert weights_file(tmp_path) == first
    first.chmod(0o600)
    second.write_bytes(b"of somebody else")
    program.save(path, weights="external", params={"b": values["b"] + 1})
    assert not first.exists() and second.exists()
    second.unlink()
    assert weights_file(tmp_path).stat().st_mode & 0o777 == 0o600, "private weights stay so"
    np.testing.assert_array_equal(nova.load(path).params["b"], values["b"] + 1)
    nova.load(path).save(path, weights="embed")
    assert [p.name for p in tmp_path.iterdir()] == ["m.nova"]
    np.testing.assert_array_equal(nova.load(path).params["b"], values["b"] + 1)


def test_paths_that_are_none(program: nova.Compiled, tmp_path: Path) -> None:
    for mode in (None, *KINDS):
        with pytest.raises(ArtifactError, match="it is a folder"):
            program.save(tmp_path, weights=mode)
    for path, message in (("a\0b", "no NUL character"), ("", "is empty")):
        for use in (nova.load, program.save):
            with pytest.raises(ArtifactError, match=message):
                use(path)
    program.save(tmp_path / "m.nova")
    with pytest.raises(ArtifactError, match="no NUL character"):
        nova.load(tmp_path / "m.nova", weights="a\0b")
    assert [p.name for p in tmp_path.parent.glob(f"{tmp_path.name}*")] == [tmp_path.name]


def test_weights_by_name_for_a_program_without(
    program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path, file = tmp_path / "m.nova", tmp_path / "any.safetensors"
    program.save(path)
    write_safetensors(file, values)
    model = nova.load(path, weights=file)
    np.testing.assert_array_equal(model(A), program(A))
    model.save(tmp_path / "copy.nova")
    assert nova.load(tmp_path / "copy.nova").params == {}
    write_safetensors(file, {"w": values["w"]})
    with pytest.raises(WeightsError, match="no value for param 'b'"):
        nova.load(path, weights=file)
    write_safetensors(file, {**values, "c": values["b"] + 1})
    with pytest.raises(WeightsError, match="no param 'c'"):
        nova.load(path, weights=file)
    write_safetensors(file, {"w": values["w"].T.copy(), "b": values["b"]})
    with pytest.raises(ArgumentShapeError, match="'w'"):
        nova.load(path, weights=file)
    program.save(path, weights="embed")
    with pytest.raises(WeightsError, match="has its weights inside"):
        nova.load(path, weights=file)


# --- linking weights into files -------------------------------------------------------------------


def test_a_program_from_the_disk_cache_gets_the_same_file(
    values: dict[str, np.ndarray], tmp_path: Path
) -> None:
    with nova.knobs.override(cache_dir=tmp_path / "cache"):
        clear_memory_cache()
        fresh = affine(**values)
        clear_memory_cache()
        cached = affine(**values)
        assert (fresh.origin, cached.origin) == ("compiled", "disk")
        for mode in KINDS:
            for name, program in (("fresh", fresh), ("cached", cached)):
                program.save(tmp_path / f"{name}.nova", weights=mode)
            first, second = tmp_path / "fresh.nova", tmp_path / "cached.nova"
            assert first.read_bytes() == second.read_bytes()


def test_a_loaded_program_gets_weights_where_there_is_a_compiler(
    program: nova.Compiled,
    values: dict[str, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "m.nova"
    program.save(path)
    model = nova.load(path)
    model.save(tmp_path / "full.nova", weights="embed", params=values)
    np.testing.assert_array_equal(nova.load(tmp_path / "full.nova")(A), program(A))
    no_compiler(monkeypatch)
    with pytest.raises(WeightsError, match=r"needs the compiler[\s\S]*torch-mlir\S* llvmlite"):
        model.save(tmp_path / "none.nova", weights="embed", params=values)
    assert not (tmp_path / "none.nova").exists()
    # Other values in the same place need none.
    full = nova.load(tmp_path / "full.nova")
    full.save(tmp_path / "full.nova", weights="embed", params={"b": values["b"] + 1})
    np.testing.assert_array_equal(nova.load(tmp_path / "full.nova").params["b"], values["b"] + 1)


def test_mistakes(program: nova.Compiled, values: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "m.nova"
    w, b = values["w"], values["b"]
    for error, message, options in [
        (AttributeValueError, "weights is 'inside'", {"weights": "inside"}),
        (WeightsError, "not where to put them", {"params": [w, b]}),
        (WeightsError, "1 values for 2 params: w, b", {"weights": "embed", "params": [w]}),
        (WeightsError, "no param 'c'", {"weights": "embed", "params": {"c": w}}),
        (ArgumentShapeError, "param 'w'", {"weights": "embed", "params": [w.T, b]}),
        (ArgumentDTypeError, "param 'b'", {"weights": "external", "params": [w, b.astype("f8")]}),
    ]:
        with pytest.raises(error, match=message) as caught:
            program.save(path, **options)
        assert caught.value.where.startswith(__file__)
    x, p = nova.graph.placeholder((2,), "f4"), nova.graph.placeholder((2,), "f4", "p")
    empty = nova.compile(x + p, inputs=[x], params=[p])
    with pytest.raises(WeightsError, match=r"no value for param 'p'[\s\S]*pass params="):
        empty.save(path, weights="embed")
    with pytest.raises(WeightsError, match="needs another name"):
        program.save(tmp_path / "m.safetensors", weights="external")
    assert not list(tmp_path.iterdir()), "nothing was written"
