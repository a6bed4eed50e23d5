"""Arrays on the simulated device: placed by hand, used by programs, jit and training steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    DeviceError,
    DriverMissingError,
    DTypeError,
)
from nova.runtime import devices

TARGET = "cuda:sm_80"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 16)).astype(np.float32)
LABELS = np.arange(8) % 5


def model() -> nn.Module:
    made = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 5))
    generator = np.random.default_rng(1)
    for _, param in made.named_parameters():
        param.data[...] = 0.3 * generator.standard_normal(param.shape)
    return made


def training(given: nn.Module, **options: str) -> nova.train.step.TrainStep:
    return nova.train_step(
        given,
        lambda m, rows, wanted: nova.cross_entropy(m(rows), wanted),
        optim.AdamW(given.parameters(), lr=0.01),
        **options,
    )


def test_to_device_and_back() -> None:
    for array in (X, LABELS, np.array(3.0), np.zeros((0, 4), np.float32), X[::2].T):
        placed = nova.to_device(array, "sim")
        assert isinstance(placed, nova.DeviceArray)
        assert (placed.shape, placed.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(placed.numpy(), array)


def test_what_cannot_be_placed() -> None:
    with pytest.raises(DTypeError):
        nova.to_device(np.array(["a"]), "sim")
    with pytest.raises(DeviceError, match="'gpu'"):
        nova.to_device(X, "gpu")
    with pytest.raises(DeviceError, match="the CPU has no memory of its own"):
        nova.to_device(X, "cpu")
    with pytest.raises(DeviceError, match="device 0 is not known"):
        nova.to_device(X, 0)  # type: ignore[arg-type]


def test_what_a_program_on_a_device_does_not_take() -> None:
    x = nova.tensor(X, name="x")
    program = nova.compile(x * 2, inputs=[x], target=TARGET, run_mode="sim")
    for call in (program, lambda array, **words: program.run([array], **words)):
        with pytest.raises(AttributeValueError, match="outputs is 'gpu'"):
            call(X, outputs="gpu")
    with pytest.raises(AttributeValueError, match="no tasks of CPU cores"):
        program.simulate(cores=4)


class WithInterface:
    """An array that says something of itself which is no description of one."""

    def __init__(self, said: object):
        self.__cuda_array_interface__ = said


class WithoutCapsule:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, stream: object = None) -> object:
        return None


@pytest.mark.parametrize(
    "array", [WithInterface({"shape": (8, 16)}), WithInterface(7), WithoutCapsule()]
)
def test_arrays_that_do_not_say_what_they_are(array: object) -> None:
    x = nova.tensor(X, name="x")
    program = nova.compile(x * 2, inputs=[x], target=TARGET, run_mode="sim")
    with pytest.raises(ArgumentTypeError, match="input 'x' does not say where it is"):
        program(array)
    with pytest.raises(ArgumentTypeError, match="does not say where it is"):
        nova.jit(lambda x: x * 2, target=TARGET, run_mode="sim")(array)


def test_results_stay_where_the_arguments_are() -> None:
    @nova.jit(target=TARGET, run_mode="sim")
    def f(x: nova.Tensor) -> nova.Tensor:
        return nova.softmax(x)

    wanted = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(f(X), wanted, rtol=1e-5)
    placed = f(nova.to_device(X, "sim"))
    assert isinstance(placed, nova.DeviceArray)
    np.testing.assert_array_equal(f(placed).numpy(), f(placed.numpy()))
    assert f.cache_info().misses == 1


def test_a_step_trains_on_the_device_as_on_the_cpu() -> None:
    here, there = model(), model()
    on_cpu, on_device = training(here), training(there, target=TARGET, run_mode="sim")
    batch = nova.to_device(X, "sim"), nova.to_device(LABELS, "sim")
    for _ in range(3):
        np.testing.assert_allclose(on_device(X, LABELS), on_cpu(X, LABELS), rtol=1e-5)
        np.testing.assert_allclose(on_device(*batch).numpy(), on_cpu(X, LABELS), rtol=1e-5)
    # Parameters and state are on the device, and come along when somebody looks at them.
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(there.state_dict()[name], value, rtol=1e-4, atol=1e-6)
    for name, value in on_cpu.state.items():
        np.testing.assert_allclose(on_device.state[name], value, rtol=1e-4, atol=1e-6)


def test_a_loaded_state_goes_on_on_the_device() -> None:
    step = training(model(), target=TARGET, run_mode="sim")
    step(X, LABELS)
    saved = {name: value.copy() for name, value in step.state_dict().items()}
    following = [float(step(X, LABELS)) for _ in range(3)]
    step.load_state_dict(saved)
    assert [float(step(X, LABELS)) for _ in range(3)] == following


def test_a_step_without_its_device_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where there is a driver: this process does not find it."""
    missing, open_cuda = str(tmp_path / "libcuda.so.1"), devices.open_cuda
    monkeypatch.setattr(devices, "open_cuda", lambda: open_cuda(missing))
    for known in ("_drivers", "_opened"):
        monkeypatch.setattr(devices, known, {})
    step = training(model(), target=TARGET)
    with pytest.raises(DriverMissingError, match="libcuda"):
        step(X, LABELS)
