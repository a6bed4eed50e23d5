"""Keywords that the importers share, and their errors for files that do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nova
from nova.errors import ArtifactError, AttributeValueError, ImportedProgramError, MissingFileError


class Distance(nn.Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (x - target) * 2


X = np.arange(8, dtype=np.float32)
DEVICE = {"target": "cuda:sm_80", "run_mode": "sim"}


def test_onnx_models_run_on_the_simulator() -> None:
    helper = pytest.importorskip("onnx").helper
    kind = pytest.importorskip("onnx").TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, [8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    program = nova.from_onnx(model, **DEVICE)
    np.testing.assert_allclose(program(X), np.exp(X), rtol=1e-5)
    assert program.compiled.is_on_device
    with pytest.raises(AttributeValueError, match="run_mode is 'fast'"):
        nova.from_onnx(model, run_mode="fast")(X)


def test_torch_modules_take_options_that_forward_does_not_name() -> None:
    x = torch.from_numpy(X)
    program = nova.from_torch(Distance(), x, target=x * 3, run_mode="sim", fast_math=True)
    torch.testing.assert_close(program(x, target=x * 3), x * -4)
    on_device = nova.from_torch(nn.Tanh(), x, **DEVICE)
    torch.testing.assert_close(on_device(x), torch.tanh(x))
    assert on_device.program.is_on_device


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return x * next(iter(others.values())) + len(others)


OPTION_NAMES = ["target", "precision", "launch", "tune", "fast_math", "targets"]


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_tensors_for_any_keyword_are_arguments(name: str) -> None:
    x = torch.from_numpy(X)
    program = nova.from_torch(Scaled(), x, **{name: x * 3}, run_mode="native")
    torch.testing.assert_close(program(x, **{name: x * 2}), x * x * 2 + 1)


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_arrays_for_any_keyword_of_jax_are_arguments(name: str) -> None:
    pytest.importorskip("jax")

    def scaled(x: Any, **others: Any) -> Any:
        return x * others[name]["by"]

    program = nova.from_jax(scaled, X, **{name: {"by": X * 3}})
    np.testing.assert_allclose(program(X, **{name: {"by": X * 2}}), X * X * 2)


def test_jax_functions_run_on_the_simulator() -> None:
    jax = pytest.importorskip("jax")
    program = nova.from_jax(jax.numpy.sin, X, **DEVICE)
    np.testing.assert_allclose(program(X), np.sin(X), rtol=1e-5, atol=1e-6)

    def scaled(x: Any, target: Any) -> Any:
        return x * target

    np.testing.assert_allclose(nova.from_jax(scaled, X, target=X)(X, target=X), X * X)


@pytest.mark.parametrize(
    ("name", "loader"),
    [
        ("a.nova", nova.load),
        ("a.onnx", nova.from_onnx),
        ("a.mlir", nova.translate),
        ("a.pt2", nova.import_report),
        ("a.gguf", nova.from_pretrained),
        ("folder", nova.from_pretrained),
    ],
)
def test_missing_files_are_errors_of_the_loader_and_of_the_system(
    tmp_path: Path, name: str, loader: Any
) -> None:
    path = str(tmp_path / name)
    with pytest.raises(FileNotFoundError) as caught:
        loader(path)
    error = caught.value
    assert isinstance(error, MissingFileError)
    assert isinstance(error, ArtifactError) and isinstance(error, ImportedProgramError)
    assert error.errno == 2 and str(error.filename).startswith(path)
    assert path in str(error) and "[Errno" not in str(error)
