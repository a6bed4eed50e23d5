"""What messages advise: each hint names what works for the call that failed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.api.compiled import Compiled
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentTypeError,
    ArtifactError,
    AttributeValueError,
    ConcreteValueError,
    DriverMissingError,
    DTypeError,
    GraphError,
    ImportedProgramError,
    ItemAssignmentError,
    OptionTypeError,
    ShapeError,
    TargetError,
    UnknownKeywordError,
    WeightsError,
)
from nova.runtime import devices
from nova.tools.nova import main as nova_main

X = np.ones((4, 3), "f4")


def program(**options: Any) -> Compiled:
    x = nova.tensor(X, name="X")
    return nova.compile(x + 1, inputs=[x], **options)


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str | None = None) -> None:
        raise DriverMissingError("there is no CUDA driver", hint="device='sim'")

    monkeypatch.setattr(devices, "open_cuda", missing)
    monkeypatch.setattr(devices, "_drivers", {})
    monkeypatch.setattr(devices, "_opened", {})


@pytest.mark.usefixtures("no_driver")
def test_who_compiles_without_a_driver_is_told_of_run_mode() -> None:
    model = nn.Linear(3, 1)

    def step() -> None:
        nova.train_step(
            model,
            lambda m, x: m(x).sum(),
            optim.SGD(model.parameters(), lr=0.1),
            target="cuda",
        )

    for failing in (
        lambda: program(target="cuda"),
        step,
        lambda: program(target="cuda:sm_80")(X),
        lambda: nova.translate(program(), targets="cuda:sm_80").load()(X),
    ):
        with pytest.raises(DriverMissingError, match="target='cuda:sm_80', run_mode='sim'"):
            failing()


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("gpu", "'cuda' is the GPU of this machine; those with a name are cuda:sm_80"),
        ("cuda:0", "'cuda' is the GPU of this machine"),
        ("cuda:sm_70", "cuda:sm_80 is the oldest"),
        ("sim", "run_mode='sim'"),
        ("sm_80", "did you mean 'cuda:sm_80'"),
    ],
)
def test_names_of_gpus(target: str, hint: str) -> None:
    with pytest.raises(TargetError, match=hint):
        program(target=target)


def test_a_file_is_for_named_gpus() -> None:
    with pytest.raises(
        TargetError, match=r"such as cuda:sm_80[^$]*there are cuda:sm_80, cuda:sm_86"
    ):
        nova.translate(program(), targets=["cuda"])


def test_a_simulated_device_that_is_not_there() -> None:
    with pytest.raises(DriverMissingError, match="sim, sim:1, sim:2 and sim:3") as caught:
        nova.to_device(X, "sim:7")
    assert "device='sim'" not in str(caught.value)


def test_casts_are_those_of_the_library() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentDTypeError, match=r"\.to\(torch\.float32\)"):
        program()(torch.ones(4, 3, dtype=torch.float64))
    with pytest.raises(ArgumentDTypeError, match=r"\.astype\('float32'\)"):
        program()(X.astype("f8"))


def test_many_params_without_values(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(15)))
    x = nova.tensor(X, name="X")
    nova.compile(model(x), inputs=[x], params=model.parameters()).save(tmp_path / "m.nova")
    loaded = nova.load(tmp_path / "m.nova")
    with pytest.raises(ArgumentCountError, match=r"and 23 more[^$]*weights='embed'") as caught:
        loaded(X)
    assert "4.weight" not in str(caught.value)
    with pytest.raises(WeightsError, match=r"and 22 more[^$]*nova\.load\(path, weights="):
        loaded.forward(X)


def test_files_of_another_kind(tmp_path: Path) -> None:
    nn.Linear(3, 1).save(tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", X)
    for name in ("m.safetensors", "x.npy"):
        with pytest.raises(ArtifactError, match=r"not a \.nova file[^$]*model\.load\(path\)"):
            nova.load(tmp_path / name)
    program().save(tmp_path / "x.nova")
    with pytest.raises(ImportedProgramError, match=r"nova\.translate\(nova\.load\(path\)"):
        nova.translate(tmp_path / "x.nova")


def test_arrays_are_given_by_position() -> None:
    with pytest.raises(UnknownKeywordError, match=r"by position: program\(X\)"):
        program()(X=X)
    with pytest.raises(UnknownKeywordError, match="did you mean 'outputs'"):
        program()(ouputs="host")


@pytest.mark.parametrize("command", ["run", "trace"])
def test_a_command_line_has_no_line_of_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    program().save(tmp_path / "x.nova")
    assert nova_main([command, str(tmp_path / "x.nova"), "--random", "--device", "gpu"]) == 1
    listing = capsys.readouterr().err
    assert "device 'gpu' is not known" in listing
    assert "\n  at " not in listing


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        ("f8_e4m3fn", "did you mean f8e4m3?"),
        ("e4m3", "did you mean f8e4m3?"),
        ("e5m2", "did you mean f8e5m2?"),
        ("fp8", "did you mean f8e4m3 or f8e5m2?"),
        ("flaot32", "did you mean f32?"),
        ("int4", "nova.pack_int4"),
        ("nothing", "the types are f64, f32"),
    ],
)
def test_misspelt_dtypes(dtype: str, hint: str) -> None:
    for failing in (
        lambda: nova.input((2,), dtype),
        lambda: nova.tensor(X).astype(dtype),
        lambda: nova.TensorType((2,), dtype),
    ):
        with pytest.raises(DTypeError, match=re.escape(hint)) as caught:
            failing()
        assert "test_hints.py" in str(caught.value.where)


def test_types_are_made_of_names_and_lists() -> None:
    assert nova.TensorType([2, 3], "f32") == nova.TensorType((2, 3), nova.f32)
    assert str(nova.TensorType((2,), np.float16)) == "f16[2]"
    with pytest.raises(ShapeError, match=r"3 is not a shape[^$]*such as \(2, 3\)"):
        nova.TensorType(3, "f32")


def test_dtypes_of_quantized_numbers() -> None:
    for dtype, hint in (
        ("int4", "did you mean i4?"),
        ("f8_e4m3", "did you mean f8e4m3?"),
        ("q4", "give one of i4, u4, i8"),
        ("f32", "give one of i4, u4, i8"),
    ):
        with pytest.raises(DTypeError, match=rf"quantize: [^$]*{re.escape(hint)}"):
            nova.quantize(nova.tensor(X), 0.1, dtype=dtype)


def test_operands_of_a_scaled_matmul() -> None:
    with pytest.raises(DTypeError, match=r"^scaled_matmul: operands are f32 and i8"):
        nova.scaled_matmul(nova.tensor(X), nova.tensor(X.T.astype("i1")), 1.0, 1.0)


def test_labels_of_floats() -> None:
    scores, labels = nova.tensor(X), nova.tensor(np.zeros(4, "f4"))
    with pytest.raises(ShapeError, match=r"target\.astype\('i64'\)"):
        nova.cross_entropy(scores, labels)
    assert np.isfinite(nova.cross_entropy(scores, labels.astype("i64")).item())
    with pytest.raises(ShapeError) as caught:
        nova.cross_entropy(scores, nova.tensor(np.zeros((3, 3), "f4")))
    assert caught.value.hint is None


def test_a_call_with_the_wrong_number_of_arrays() -> None:
    x, y = (nova.input((nova.dim("B"), 3), name=name) for name in "xy")
    symbolic = nova.compile(x + y, inputs=[x, y])
    expected = r"0 arguments given, the program takes 2: x: f32\[B,3\][^$]*program\.run\(\[x, y\]\)"
    with pytest.raises(ArgumentCountError, match=expected):
        symbolic.run([])
    with pytest.raises(ArgumentCountError, match=r"takes 1: X: f32\[4,3\][^$]*program\(X\)"):
        program().run([X, X])
    with pytest.raises(ArgumentCountError, match=r"2 out= arrays given[^$]*for each result"):
        program().run([X], out=[X, X])


def test_what_a_traced_function_cannot_do() -> None:
    @nova.jit
    def assigns(x: Any) -> Any:
        x[0] = 1.0
        return x

    with pytest.raises(ItemAssignmentError, match=r"x = nova\.where\(mask, value, x\)") as caught:
        assigns(X)
    assert "test_hints.py" in str(caught.value.where)
    for number in (float, int):
        with pytest.raises(ConcreteValueError, match=rf"{number.__name__}\(\) of .*is traced"):
            nova.jit(lambda x, number=number: number(x.sum()))(X)


def test_texts_of_stages() -> None:
    stages = program().stages
    assert stages.get("lnalg") is None and "lnalg" not in stages and "linalg" in stages


def test_arguments_of_from_torch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2)
    with pytest.raises(ArgumentTypeError, match=r"array of numpy[^$]*torch\.from_numpy\(x\)"):
        nova.from_torch(module, X)
    with pytest.raises(ArgumentTypeError, match="array of Nova"):
        nova.from_torch(module, nova.tensor(X))
    with pytest.raises(ImportedProgramError, match=r"Linear[^$]*nova\.from_torch\(model, x, y\)"):
        nova.from_torch(module, (torch.ones(4, 3),))
    with pytest.raises(ImportedProgramError, match=r"torch\.export traces the module"):
        nova.from_torch(module, torch.ones(4, 7))


def test_what_compile_takes() -> None:
    x, model = nova.tensor(X, name="X"), nn.Linear(3, 4)
    y = x + 1
    for failing, what, hint in (
        (lambda: nova.compile(y, inputs=["X"]), "input 0 is a str", "tensors themselves"),
        (lambda: nova.compile(y, inputs="X"), "inputs is of type str", r"inputs=\["),
        (lambda: nova.compile(y, inputs=3), "inputs is of type int", "tensors themselves"),
        (lambda: nova.compile(y, params=["w"]), "param 0 is a str", "tensors themselves"),
        (lambda: nova.compile(y, params=[x], updates=[x]), "updates is a list", "updates={w:"),
        (lambda: nova.compile(model), "outputs is of type Linear", r"nova\.jit"),
        (lambda: nova.compile(nn.Sequential(model)), "outputs is of type Seq", r"nova\.jit"),
        (lambda: nova.compile(lambda x: x), "outputs is of type function", r"model\(x\)"),
        (lambda: nova.compile(None), "outputs is of type NoneType", "tensors themselves"),
    ):
        with pytest.raises(GraphError, match=f"{what}[^$]*{hint}") as caught:
            failing()
        assert "test_hints.py" in str(caught.value.where)


def test_arguments_of_training() -> None:
    model = nn.Linear(3, 4)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def loss(model: Any, x: Any) -> Any:
        return model(x).sum()

    for first, second, what in (
        (loss, model, "the model is of type function, not a Module"),
        (model, None, "the loss is of type NoneType, not a function"),
    ):
        with pytest.raises(OptionTypeError, match=rf"{what}[^$]*\(model, loss, optimizer\)"):
            nova.train_step(first, second, optimizer)
    for params in (model, model.parameters, None, {"params": model}, nn.Sequential(model)):
        with pytest.raises(GraphError, match=r"not of parameters[^$]*model\.parameters\(\)"):
            optim.Adam(params)
    for betas in (0.9, ("a", "b"), (0.9,)):
        for kind in (optim.Adam, optim.Lion):
            with pytest.raises(AttributeValueError, match=r"two numbers[^$]*betas=\(0\.9, 0\.999"):
                kind(model.parameters(), betas=betas)
    assert optim.Adam(model.parameters(), betas=np.array([0.5, 0.25])).options.betas == (0.5, 0.25)
    for layer in (nn.LSTM, nn.GRU):
        with pytest.raises(AttributeValueError, match=r"num_layers is 0[^$]*at least one layer"):
            layer(3, 4, num_layers=0)


def test_complex_indices() -> None:
    index = np.ones(2, "c8")
    for take in (nova.take, nova.embedding):
        for table in (X, X.astype("c8")):
            with pytest.raises(DTypeError, match=r"must hold integers[^$]*nova\.real\(index\)"):
                take(table, index)
    converted = nova.cast(nova.real(index), dtype="i64")
    np.testing.assert_array_equal(
        nova.take(X, converted).numpy(), np.take(X, index.real.astype(int), axis=0)
    )


def test_axes_and_sizes_in_arrays() -> None:
    index = np.array([[0, 1, 2]])
    with pytest.raises(AttributeValueError, match=r"gather: axis must be an int.*\(1, 3\).*int64"):
        nova.gather(X, 0, index)
    with pytest.raises(AttributeValueError, match=r"softmax: axis must be an int[^$]*axis=0"):
        nova.softmax(X, axis=np.array([0, 1]))
    with pytest.raises(AttributeValueError, match=r"axis must be an int.*float64"):
        nova.softmax(X, axis=np.array(1.5))
    with pytest.raises(AttributeValueError, match="tril: k must be an int"):
        nova.tril(X, k=index)
    with pytest.raises(AttributeValueError, match=r"must be ints, not an array of shape \(1, 3\)"):
        nova.reshape(X, index)
    with pytest.raises(AttributeValueError, match=r"must be ints, not 12\.0"):
        nova.reshape(X, np.array([12.0]))
    sizes = np.array([3, 4])
    np.testing.assert_array_equal(nova.reshape(X, sizes).numpy(), np.reshape(X, sizes))
    np.testing.assert_array_equal(nova.sum(X, axis=np.array([0, 1])).numpy(), X.sum(axis=(0, 1)))


def test_einsum_without_operands() -> None:
    with pytest.raises(ArgumentCountError, match=r"'a' without an operand[^$]*nova\.einsum\("):
        nova.einsum("a")


def test_paths_of_programs() -> None:
    for failing in (lambda: nova.load(3), lambda: program().save(3)):
        with pytest.raises(ArgumentTypeError, match=r"of type int[^$]*'model\.nova'") as caught:
            failing()
        assert "test_hints.py" in str(caught.value.where)
