"""`nova.from_torch` against the module itself: run, save, gradients, buffers, sizes that change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import nova
from nova.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ImportedProgramError,
    UnsupportedOpError,
)

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        y = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        return {"features": y, "scores": self.head(y) * scale}


def test_run_and_save(tmp_path: Path) -> None:
    module = Classifier().eval()
    x = torch.randn(2, 2, 5, 5)
    program = nova.from_torch(module, x)
    result, expected = program(x), module(x)
    assert result.keys() == expected.keys()
    torch.testing.assert_close(result["scores"], expected["scores"])
    assert isinstance(result["scores"], torch.Tensor)
    assert "head.weight" in program.params and "conv" in repr(program.program.plan)
    program.save(tmp_path / "classifier.nova")
    loaded = nova.load(tmp_path / "classifier.nova")
    for array, tensor in zip(loaded(x), expected.values(), strict=True):
        np.testing.assert_allclose(array, tensor.detach(), rtol=1e-5, atol=1e-6)


def test_params_are_the_memory_of_the_module() -> None:
    module = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    program = nova.from_torch(module, x)
    program(x)
    with torch.no_grad():
        module.weight.mul_(2)
    torch.testing.assert_close(program(x), module(x))


def test_gradients_of_nova() -> None:
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    x = torch.randn(4, 3, requires_grad=True)
    program = nova.from_torch(module, x)

    def loss(x: Any) -> Any:
        return nova.sum(nova.square(program.function(x)))

    module(x).square().sum().backward()
    (gradient,) = [nova.grad(loss)(x.detach().numpy())]
    np.testing.assert_allclose(gradient.numpy(), x.grad, rtol=1e-4, atol=1e-6)
    nova.backward(loss(nova.tensor(x.detach())))
    weight = program.params["0.weight"]
    np.testing.assert_allclose(weight.grad.numpy(), module[0].weight.grad, rtol=1e-4, atol=1e-6)


def test_buffers_change_in_place() -> None:
    module, twin = Classifier().train(), Classifier().train()
    twin.load_state_dict(module.state_dict())
    x = torch.randn(2, 2, 5, 5)
    program = nova.from_torch(twin, x)
    for _ in range(2):
        torch.testing.assert_close(program(x), dict(module(x)))
    torch.testing.assert_close(twin.norm.running_var, module.norm.running_var)
    assert twin.norm.num_batches_tracked == 2


def test_sizes_that_change() -> None:
    module = nn.Linear(3, 2)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = nova.from_torch(module, torch.randn(4, 3), dynamic=({0: batch},))
    for size in (2, 5):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), module(x))


def test_errors_say_what_to_do() -> None:
    program = nova.from_torch(nn.Linear(3, 2), torch.randn(4, 3))
    with pytest.raises(ArgumentShapeError, match="dynamic="):
        program(torch.randn(5, 3))
    with pytest.raises(ArgumentTypeError, match="structure"):
        program(torch.randn(4, 3), torch.randn(4, 3))
    with pytest.raises(ArgumentTypeError, match=r"torch\.nn\.Module"):
        nova.from_torch(torch.sin, torch.randn(4))

    class Determinant(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.det(x)

    with pytest.raises(UnsupportedOpError, match="_linalg_det") as caught:
        nova.from_torch(Determinant(), torch.randn(3, 3)).compile()
    assert __file__ in str(caught.value.where)


class Mixed(nn.Module):
    """Arguments and results that are no tensors."""

    def forward(self, x: Any, n: int = 2, y: Any = None, flag: bool = True) -> Any:
        return {"a": x * n if flag else x, "b": None, "n": n, "text": "t", "more": [x, y, 1.5]}


def test_arguments_and_results_without_tensors() -> None:
    module, x = Mixed(), torch.randn(2, 3)
    program = nova.from_torch(module, x, n=3, y=None, flag=True)
    result = program(x, n=3, y=None, flag=True)
    torch.testing.assert_close(result.pop("a"), x * 3)
    torch.testing.assert_close(result["more"].pop(0), x)
    assert result == {"b": None, "n": 3, "text": "t", "more": [None, 1.5]}
    with pytest.raises(ArgumentTypeError, match="argument 1, 'n', is 4, and was 3"):
        program(x, n=4, y=None, flag=True)
    with pytest.raises(ImportedProgramError, match="'n' is a number that changes"):
        nova.from_torch(module, x, n=3, dynamic={"x": None, "n": torch.export.Dim.DYNAMIC})


def test_nan_is_the_same_argument_as_nan() -> None:
    class Filled(nn.Module):
        def forward(self, x: Any, fill: float) -> Any:
            return x.masked_fill(x < 0, fill)

    x, nan = torch.tensor([1.0, -2.0]), float("nan")
    program = nova.from_torch(Filled(), x, nan)
    torch.testing.assert_close(program(x, nan), torch.tensor([1.0, nan]), equal_nan=True)
    for other in (0.0, None):
        with pytest.raises(ArgumentTypeError, match=f"'fill', is {other}, and was nan"):
            program(x, other)


class Sized(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sum(1), x.shape[0], (x.shape[0] + 1) * 2


def test_sizes_are_results() -> None:
    dynamic = ({0: torch.export.Dim("rows", min=1, max=99)},)
    program = nova.from_torch(Sized(), torch.ones(3, 2), dynamic=dynamic)
    for rows in (2, 5, 1):
        total, size, more = program(torch.ones(rows, 2))
        assert total.tolist() == [2] * rows and (size, more) == (rows, 2 * rows + 2)
    assert nova.from_torch(Sized(), torch.ones(3, 2))(torch.ones(3, 2))[1:] == (3, 8)


class Two(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum(0), y * 2


def test_sizes_have_the_names_of_their_arguments() -> None:
    """In whatever order `dynamic` has the arguments."""
    first, second = torch.export.Dim("first"), torch.export.Dim("second")
    dynamic = {"y": {0: second}, "x": {0: first}}
    program = nova.from_torch(Two(), torch.ones(3, 2), torch.ones(4), dynamic=dynamic)
    assert [str(n) for n in program.shapes[0]] == ["first", "2"]
    assert [str(n) for n in program.shapes[1]] == ["second"]


def test_without_torch_the_error_names_the_package() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import nova\n"
        "try:\n    nova.from_torch(None)\n"
        "except nova.errors.MissingPackageError as error:\n    print(error)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install -e '.[torch]'" in completed.stdout, completed.stderr


class Limits(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pieces = functional.relu6(x) + functional.hardtanh(x, -2.0, 2.0) * 3 + x.clamp(-1, 5) * 10
        return pieces + functional.hardsigmoid(x) * 7 + functional.hardswish(x) * 100


def test_gradients_at_the_limits_of_activations_are_those_of_torch() -> None:
    x = torch.tensor([-3.0, -2.0, -1.0, 0.0, 0.5, 2.0, 3.0, 5.0, 6.0, 7.0])
    program = nova.from_torch(Limits(), x)
    gradient = nova.grad(lambda t: nova.sum(program.function(t)))(x.numpy())
    leaf = x.clone().requires_grad_()
    Limits()(leaf).sum().backward()
    np.testing.assert_allclose(gradient.numpy(), leaf.grad, rtol=1e-6)
