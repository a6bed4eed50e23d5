"""Arrays of other libraries on a CUDA device, by each of the ways that they have to show them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from device_samples import SIZE, FakeCuda, chain_contents, step_contents

import nova
from nova import _native, errors
from nova._native import DeviceArray
from nova.artifact.format import read_artifact
from nova.artifact.write import write_artifact
from nova.runtime.gpu_executor import DeviceExecutable
from nova.runtime.model import Model

x = np.arange(SIZE, dtype="f4")
STREAM = 0x5170


def model_of(contents: Any, device: _native.Device) -> Model:
    return Model(DeviceExecutable(read_artifact(write_artifact(contents)), device), "file")


class ByDLPack:
    """An array of a library that knows DLPack, over memory of Nova; keeps what it was asked."""

    def __init__(self, array: DeviceArray):
        self.array, self.asked = array, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        self.asked.append(stream)
        return self.array.__dlpack__(stream=-1, **options)


class ByInterface:
    """One that only has __cuda_array_interface__."""

    def __init__(self, array: DeviceArray, **changes: Any):
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": "<f4",
            "data": (array.address, False),
            "version": 3,
            "stream": STREAM,
            **changes,
        }


def test_dlpack(fake: FakeCuda, device: _native.Device) -> None:
    """The library is told Nova's stream, and the run is waited for: its memory is not ours."""
    model = model_of(chain_contents(), device)
    given = ByDLPack(DeviceArray.of(device, x))
    fake.forget()
    y = model(given)
    assert given.asked == [device.stream]
    assert fake.count("cuEventSynchronize") == 1
    np.testing.assert_array_equal(y.numpy(), 6 * x)


def test_cuda_array_interface(fake: FakeCuda, device: _native.Device) -> None:
    """Nova's stream waits for the one that the array names."""
    model = model_of(chain_contents(), device)
    there = DeviceArray.of(device, x)
    fake.forget()
    y = model(ByInterface(there))
    assert fake.count("cuStreamWaitEvent") >= 1
    np.testing.assert_array_equal(y.numpy(), 6 * x)
    np.testing.assert_array_equal(model(ByInterface(there, strides=(4,))).numpy(), 6 * x)
    with pytest.raises(errors.DonationError, match="'x' is not contiguous"):
        model(ByInterface(there, strides=(8,)))
    with pytest.raises(errors.ArgumentTypeError, match="a type that Nova does not have"):
        model(ByInterface(there, typestr="<f16"))
    with pytest.raises(errors.ArgumentDTypeError, match="int32"):
        model(ByInterface(there, typestr="<i4"))


def test_what_others_see(device: _native.Device) -> None:
    for dtype in ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "?"):
        array = DeviceArray.of(device, np.ones((2, 3), dtype))
        seen = array.__cuda_array_interface__
        assert (seen["shape"], np.dtype(seen["typestr"])) == ((2, 3), np.dtype(dtype))
        assert seen["data"] == (array.address, False)
        assert seen["stream"] == device.stream
        for version in (None, (1, 0)):
            capsule = array.__dlpack__(max_version=version)
            address, number, shape, _, bits, dense = _native.read_dlpack(capsule)
            assert (address, number, shape, dense) == (array.address, 0, (2, 3), True)
            assert bits == 8 * np.dtype(dtype).itemsize
    assert array.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match="never a copy"):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="stays on its device"):
        array.__dlpack__(dl_device=(1, 0))


def test_consumers_wait(fake: FakeCuda, device: _native.Device) -> None:
    array = DeviceArray.of(device, x)
    for stream, waits in ((None, 1), (1, 1), (STREAM, 1), (-1, 0), (device.stream, 0)):
        fake.forget()
        array.__dlpack__(stream=stream)
        assert fake.count("cuStreamWaitEvent") == waits


def test_a_capsule_keeps_its_array(fake: FakeCuda, device: _native.Device) -> None:
    array = DeviceArray.of(device, x)
    used = device.usage()[1]
    capsule = array.__dlpack__()
    del array
    assert device.usage()[1] == used
    del capsule
    assert device.usage()[1] < used


# --- the C interface of DLPack --------------------------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = (
        *(("data", ctypes.c_void_p), ("device_type", ctypes.c_int32)),
        *(("device_id", ctypes.c_int32), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8)),
        *(("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p)),
        *(("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)),
    )


VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
CURRENT = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Exchange(ctypes.Structure):
    _fields_ = (
        *(("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p)),
        *(("allocate", ctypes.c_void_p), ("from_object", ctypes.c_void_p)),
        *(("to_object", ctypes.c_void_p), ("view", VIEW), ("current", CURRENT)),
    )


@VIEW
def view(given: Any, out: Any) -> int:
    tensor = out[0]
    tensor.data, tensor.device_type, tensor.device_id = given.array.address, 2, given.number
    tensor.rank, tensor.code, tensor.bits, tensor.lanes = 1, 2, 32, 1
    tensor.shape, tensor.strides = ctypes.addressof(given.shape), None
    tensor.byte_offset = 0
    return 0


@CURRENT
def current(kind: int, number: int, out: Any) -> int:
    out[0] = STREAM
    return 0


NAME = b"dlpack_exchange_api"  # a capsule keeps no copy
make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype = ctypes.py_object
make_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class ByExchange:
    """An array of a library with DLPack's C interface, as torch has it."""

    _api = Exchange(1, 3, None, None, None, None, view, current)
    __dlpack_c_exchange_api__ = make_capsule(ctypes.addressof(_api), NAME, None)

    def __init__(self, array: DeviceArray, number: int = 0):
        self.array, self.number = array, number
        self.shape = (ctypes.c_int64 * 1)(*array.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.number)

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("the C interface suffices")


def test_the_c_interface(fake: FakeCuda, device: _native.Device) -> None:
    """Used on the library's own stream, without a wait; results are on that stream too."""
    model = model_of(step_contents(), device)
    given, w = ByExchange(DeviceArray.of(device, x)), ByExchange(DeviceArray.of(device, 0 * x))
    fake.forget()
    for _ in range(3):
        y, same = model.run([given], [w])
    assert same is w
    assert y.stream == STREAM
    assert fake.count("cuStreamSynchronize") + fake.count("cuEventSynchronize") == 0
    np.testing.assert_array_equal(w.array.numpy(), 3 * x)
    np.testing.assert_array_equal(y.numpy(), 6 * x)
    own, _ = model.run([DeviceArray.of(device, x)], [DeviceArray.of(device, x)])
    assert own.stream == device.stream


class Refusing(ByExchange):
    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        return self.array.__dlpack__(stream=-1, **options)


def test_what_the_c_interface_does_not_fit_is_explained(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    with pytest.raises(errors.ArgumentShapeError, match=r"\(5,\)"):
        model(Refusing(DeviceArray.of(device, x[:5])))


class ByAddress:
    """A tensor of which a caller knows all but the address."""

    def __init__(self, array: DeviceArray):
        self.array = array

    def data_ptr(self) -> int:
        return self.array.address


def test_addresses(fake: FakeCuda, device: _native.Device) -> None:
    """Lists of tensors run on the stream of the caller, in place and without waiting."""
    program = model_of(chain_contents(), device)._executable.program
    source, out = DeviceArray.of(device, x), DeviceArray.of(device, np.zeros_like(x))
    for _ in range(3):
        fake.forget()
        program.run_foreign([ByAddress(source)], [ByAddress(out)], device.stream)
        assert fake.count("cuStreamSynchronize") == fake.count("cuEventSynchronize") == 0
    np.testing.assert_array_equal(out.numpy(), 6 * x)
    np.testing.assert_array_equal(source.numpy(), x)


class WithoutElements:
    """A tensor of no elements: torch has no memory for it, on any device."""

    def data_ptr(self) -> int:
        return 0


def test_addresses_of_tensors_without_elements() -> None:
    """Kernels see memory of the device for them: the simulator would refuse an address of the host.

    In the first result they are joined with a tensor that has elements, the second has none.
    """
    empty, full = (nova.tensor(np.ones((rows, 4), "f4")) for rows in (0, 3))
    results = [nova.concat([empty, full * 2], axis=0), empty + 1]
    model = nova.compile(results, inputs=[empty, full], target="cuda:sm_80", run_mode="sim")
    device = model._executable.device
    source, out = (DeviceArray.of(device, np.ones((3, 4), "f4")) for _ in range(2))
    model._executable.program.run_foreign(
        [WithoutElements(), ByAddress(source)], [ByAddress(out), WithoutElements()], device.stream
    )
    np.testing.assert_array_equal(out.numpy(), np.full((3, 4), 2, "f4"))


def test_addresses_of_updated_arguments(device: _native.Device) -> None:
    model = model_of(step_contents(), device)
    w = np.ones(SIZE, "f4")
    y, updated = model.run([x], [w.copy()])
    source, param, out = (DeviceArray.of(device, array) for array in (x, w, np.zeros_like(x)))
    model._executable.program.run_foreign(
        [ByAddress(source), ByAddress(param)], [ByAddress(out)], device.stream
    )
    np.testing.assert_array_equal(out.numpy(), y)
    np.testing.assert_array_equal(param.numpy(), updated)


def test_wrong_addresses(device: _native.Device) -> None:
    program = model_of(chain_contents(), device)._executable.program
    source = ByAddress(DeviceArray.of(device, x))
    with pytest.raises(TypeError, match="on a device a stream"):
        program.run_foreign([source], [source])
    with pytest.raises(TypeError, match="got 0 arguments, not 1"):
        program.run_foreign([], [source], device.stream)
    with pytest.raises(IndexError):
        program.run_foreign([source], [], device.stream)
    with pytest.raises(AttributeError, match="data_ptr"):
        program.run_foreign([x], [source], device.stream)
    with pytest.raises(TypeError):
        program.run_foreign([source], [source], "stream")
