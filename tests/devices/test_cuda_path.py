"""Programs on CUDA devices, through a libcuda that counts calls and fails on demand."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device_samples import (
    SIZE,
    FakeCuda,
    chain_contents,
    make_contents,
    model_of,
    step_contents,
)

import nova
from nova import _native, errors
from nova._native import DeviceArray
from nova.artifact.container import ControlSpec
from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.format import read_artifact
from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import FileSpec
from nova.runtime import devices
from nova.runtime.model import Model

x = np.arange(SIZE, dtype="f4") - 40
LARGE = 3 << 20  # bytes: several pieces of staging
ALLOCATES = ("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate")


def counts(model: Model) -> dict[str, int]:
    names = ("runs", "launches", "graphs", "graph_launches", "graph_updates")
    return dict(zip(names, model._executable.program.counts(), strict=True))


def large_contents(count: int = 1) -> FileSpec:
    """y = 2 x for an array of several MiB, by `count` launches that all do the same."""
    shape = DeviceLaunch((LARGE // 4 // 128, 1, 1), (128, 1, 1))
    tables = Tables(
        buffers=(BufferSpec("arg", 0, LARGE), BufferSpec("output", 0, LARGE)),
        kernels=(KernelSpec("scale", "scale", 1, "device", 0, 0, "", device=shape),),
        launches=(LaunchSpec(0, (0, 1), 1),) * count,
        workspace_size=0,
        work=100,
    )
    args = [TensorSpec("x", (LARGE // 4,), "f32", "input")]
    return make_contents(tables, args, [TensorSpec("y", (LARGE // 4,), "f32", "output")])


def loop_contents(length: int) -> FileSpec:
    """y = 2 ** length x, by a loop on the device."""
    nbytes = 4 * SIZE
    shape = DeviceLaunch((3, 1, 1), (32, 1, 1))
    region = Tables(
        buffers=(BufferSpec("arg", 1, nbytes), BufferSpec("output", 0, nbytes)),
        kernels=(KernelSpec("scale", "scale", 1, "device", 0, 0, "", device=shape),),
        launches=(LaunchSpec(0, (0, 1)),),
        workspace_size=0,
        work=SIZE,
    )
    control = ControlSpec("for", (0,), carries=1, length=length)
    own = 64 + 64 + nbytes  # a header, pointers, and a second buffer of the carry
    tables = Tables(
        buffers=(
            BufferSpec("arg", 0, nbytes),
            BufferSpec("output", 0, nbytes),
            BufferSpec("workspace", 0, own),
        ),
        kernels=(KernelSpec("loop", "", 1, "device", 0, 0, "", control=control),),
        launches=(LaunchSpec(0, (0, 1, 2), 1),),
        workspace_size=own,
        work=SIZE * length,
        regions=(region,),
    )
    args = [TensorSpec("x", (SIZE,), "f32", "input")]
    return make_contents(tables, args, [TensorSpec("y", (SIZE,), "f32", "output")])


# --- results --------------------------------------------------------------------------------------


def test_the_host_decides_loops_if_the_driver_has_no_conditional_nodes(
    device: _native.Device,
) -> None:
    for length in (1, 2, 5):
        model = model_of(loop_contents(length), device)
        assert model._executable.program.host_decides
        for _ in range(2):
            np.testing.assert_array_equal(model(x), 2**length * x)
        assert counts(model) == {
            "runs": 2,
            "launches": 2 * length,
            "graphs": 0,
            "graph_launches": 0,
            "graph_updates": 0,
        }


def test_arrays_of_the_host(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    for number in range(5):
        y = model(x + number)
        assert isinstance(y, np.ndarray)
        np.testing.assert_array_equal(y, 6 * (x + number))
    out = np.empty_like(x)
    assert model.run([x], out=out) is out
    np.testing.assert_array_equal(out, 6 * x)
    assert model.target == "cuda:sm_80"
    assert model.why == "cuda:sm_80 by ptx for sm_80, of ptx for sm_80, on cuda:0"


def test_strided_and_other_arrays_of_the_host(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    twice = np.repeat(x, 2)
    np.testing.assert_array_equal(model(twice[::2]), 6 * x)
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(model(torch.from_numpy(x)), 6 * x)


def test_arrays_of_the_device(device: _native.Device) -> None:
    """Nothing is copied, and results stay where the inputs are."""
    model = model_of(chain_contents(), device)
    there = DeviceArray.of(device, x)
    y = model(there)
    assert isinstance(y, DeviceArray)
    assert (y.shape, y.dtype, y.device, y.nbytes) == ((SIZE,), np.dtype("f4"), "cuda:0", 4 * SIZE)
    np.testing.assert_array_equal(y.numpy(), 6 * x)
    np.testing.assert_array_equal(np.asarray(model(y)), 36 * x)
    assert repr(y) == "<DeviceArray float32(96,) on cuda:0>"
    assert isinstance(model.run([there], outputs="host"), np.ndarray)
    assert isinstance(model(x, outputs="device"), DeviceArray)
    out = DeviceArray.of(device, np.zeros_like(x))
    assert model(x, out=out) is out
    np.testing.assert_array_equal(out.numpy(), 6 * x)


def test_updates_of_params(device: _native.Device) -> None:
    model = model_of(step_contents(), device)
    w = np.ones(SIZE, "f4")
    y, same = model.run([x], [w])
    assert same is w
    np.testing.assert_array_equal(w, 1 + x)
    np.testing.assert_array_equal(y, 2 * w)
    there = DeviceArray.of(device, w)
    y, same = model.run([DeviceArray.of(device, x)], [there])
    assert same is there
    assert isinstance(y, DeviceArray)
    np.testing.assert_array_equal(there.numpy(), 1 + 2 * x)
    y, same = model.run([x], [there])
    assert isinstance(y, np.ndarray)
    np.testing.assert_array_equal(y, 2 * (1 + 3 * x))


def test_carried_params_are_copied_once(fake: FakeCuda, device: _native.Device) -> None:
    """Values from the file live on the device, and training changes them there."""
    contents = replace(step_contents(), weights={1: np.ones(SIZE, "f4").tobytes()})
    model = model_of(contents, device)
    there = DeviceArray.of(device, x)
    for _ in range(3):
        model(there)
    fake.forget()
    y, _ = model(there)
    assert fake.count("cuMemcpyHtoDAsync") == 0
    assert isinstance(y, DeviceArray)
    np.testing.assert_allclose(model.params["w"], 1 + 4 * x, rtol=1e-6)
    y, w = model(x)  # results are where the inputs are, wherever the params may be
    assert isinstance(y, np.ndarray)
    assert isinstance(w, DeviceArray)


def test_updated_params_are_saved(device: _native.Device, tmp_path: Path) -> None:
    contents = replace(step_contents(), weights={1: np.ones(SIZE, "f4").tobytes()})
    model = model_of(contents, device)
    model(x)
    model.save(tmp_path / "trained.nova")
    again = read_artifact((tmp_path / "trained.nova").read_bytes())
    saved = np.frombuffer(again.weights()[1], "f4")
    np.testing.assert_array_equal(saved, 1 + x)


def test_large_arrays_go_in_pieces(fake: FakeCuda, device: _native.Device) -> None:
    """On streams of their own, with events between them and the stream that computes."""
    model = model_of(large_contents(), device)
    large = np.arange(LARGE // 4, dtype="f4")
    for _ in range(2):
        fake.forget()
        np.testing.assert_array_equal(model(large), 2 * large)
    history = fake.history
    first = history.index("cuMemcpyHtoDAsync")
    launch = history.index("cuGraphLaunch")
    last = history.index("cuMemcpyDtoHAsync")
    assert first < launch < last
    assert "cuStreamWaitEvent" in history[first:launch]
    assert "cuStreamWaitEvent" in history[launch:last]
    assert "cuStreamSynchronize" not in history[:last]
    np.testing.assert_array_equal(DeviceArray.of(device, large).numpy(), large)


def test_crooked_addresses_are_copied(fake: FakeCuda, device: _native.Device) -> None:
    """Kernels use 16-byte accesses: what is not aligned gets a copy that is, and back."""
    model = model_of(step_contents(), device)
    room = DeviceArray.of(device, np.concatenate([[0], x, [0]]).astype("f4"))
    weights = DeviceArray.of(device, np.ones(SIZE + 1, "f4"))

    def behind(array: DeviceArray) -> DeviceArray:
        return DeviceArray.view(
            device, array.address + 4, (SIZE,), np.dtype("f4"), device.stream, array, False
        )

    w = behind(weights)
    for _ in range(3):
        fake.forget()
        y, same = model.run([behind(room)], [w], outputs="host")
        assert same is w
    assert fake.count("cuMemcpyDtoDAsync") == 3
    np.testing.assert_allclose(w.numpy(), 1 + 3 * x, rtol=1e-6)
    np.testing.assert_allclose(y, 2 * (1 + 3 * x), rtol=1e-6)


def test_arrays_without_elements(device: _native.Device) -> None:
    tables = Tables(
        buffers=(BufferSpec("arg", 0, 0), BufferSpec("output", 0, 0)),
        kernels=(
            KernelSpec(
                "scale", "scale", 0, "device", 0, 0, "", device=DeviceLaunch((0, 1, 1), (32, 1, 1))
            ),
        ),
        launches=(LaunchSpec(0, (0, 1), 1),),
        workspace_size=0,
        work=0,
    )
    args = [TensorSpec("x", (0, 3), "f32", "input")]
    contents = make_contents(tables, args, [TensorSpec("y", (0, 3), "f32", "output")])
    model = model_of(contents, device)
    assert model(np.zeros((0, 3), "f4")).shape == (0, 3)
    there = DeviceArray.of(device, np.zeros((0, 3), "f4"))
    assert model(there).numpy().shape == (0, 3)
    assert counts(model)["launches"] == 0


# --- what the driver is asked for -----------------------------------------------------------------


def test_a_steady_state_allocates_nothing(fake: FakeCuda, device: _native.Device) -> None:
    for given in (x, DeviceArray.of(device, x)):
        model = model_of(chain_contents(), device)
        for _ in range(4):
            y = model(given)
        fake.forget()
        for _ in range(50):
            y = model(given)
        np.testing.assert_array_equal(np.asarray(y), 6 * x)
        assert {name: fake.count(name) for name in ALLOCATES} == dict.fromkeys(ALLOCATES, 0)


def test_the_second_run_makes_a_graph(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    model(x)
    assert fake.count("cuLaunchKernel") == 3
    assert fake.count("cuGraphInstantiate") == 0
    for _ in range(4):
        model(x)
    assert fake.count("cuLaunchKernel") == 3
    assert fake.count("cuGraphInstantiate") == 1
    assert fake.count("cuGraphLaunch") == 4


def test_other_pointers_change_the_graph(fake: FakeCuda, device: _native.Device) -> None:
    """After a few graphs none is made any more, and only launches with other pointers change."""
    model = model_of(chain_contents(), device)
    out = DeviceArray.of(device, np.zeros_like(x))
    arrays = [DeviceArray.of(device, x + number) for number in range(12)]
    for array in arrays:
        model(array, out=out)
    assert counts(model)["graphs"] == 4
    fake.forget()
    for number, array in enumerate(arrays):
        model(array, out=out)
        np.testing.assert_array_equal(out.numpy(), 6 * (x + number))
    assert fake.count("cuGraphInstantiate") == 0
    assert fake.count("cuGraphExecKernelNodeSetParams") == 12  # only the first launch reads x
    assert fake.count("cuGraphLaunch") == 12


def test_one_launch_is_a_graph_from_the_second_run_on(
    fake: FakeCuda, device: _native.Device
) -> None:
    model = model_of(large_contents(), device)
    ones = np.ones(LARGE // 4, "f4")
    there, out = DeviceArray.of(device, ones), DeviceArray.of(device, ones)
    for _ in range(3):
        model.run([there], out=out)
    np.testing.assert_array_equal(out.numpy(), 2 * ones)
    assert (fake.count("cuLaunchKernel"), fake.count("cuGraphLaunch")) == (1, 2)
    assert fake.count("cuGraphInstantiate") == 1


def test_runs_on_the_device_do_not_wait(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    there = DeviceArray.of(device, x)
    model(there)
    fake.forget()
    model(there)
    model(x, outputs="device")
    assert fake.count("cuStreamSynchronize") + fake.count("cuEventSynchronize") == 0
    model(there).numpy()
    assert fake.count("cuEventSynchronize") > 0


def test_small_arrays_are_one_copy(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(step_contents(), device)
    model.run([x], [np.ones(SIZE, "f4")])
    fake.forget()
    model.run([x], [np.ones(SIZE, "f4")])
    assert fake.count("cuMemcpyHtoDAsync") == 1
    assert fake.count("cuMemcpyDtoHAsync") == 1
    assert fake.count("cuStreamSynchronize") == 1


def test_pinned_memory_is_not_freed_while_it_is_copied(
    fake: FakeCuda, device: _native.Device
) -> None:
    model = model_of(chain_contents(), device)
    fake.forget()
    model(x, outputs="device")
    assert fake.count("cuEventSynchronize") == 0
    model(x, outputs="host")  # needs more of it
    history = fake.history
    assert history.index("cuEventSynchronize") < history.index("cuMemFreeHost")


def test_much_shared_memory_is_asked_for(fake: FakeCuda, device: _native.Device) -> None:
    contents = chain_contents()
    (variant,) = contents.variants
    wide = DeviceLaunch((3, 1, 1), (32, 1, 1), 100 << 10)
    first, second = variant.tables.kernels
    tables = replace(variant.tables, kernels=(replace(first, device=wide), second))
    model = model_of(replace(contents, variants=(replace(variant, tables=tables),)), device)
    assert fake.count("cuFuncSetAttribute") == 1
    np.testing.assert_array_equal(model(x), 6 * x)


# --- memory ---------------------------------------------------------------------------------------


def test_memory_is_reused_and_freed(fake: FakeCuda) -> None:
    device = fake.device()
    there = DeviceArray.of(device, x)
    address = there.address
    del there
    idle, _, asked = device.usage()
    assert idle == 512
    again = DeviceArray.of(device, x[:70])  # the same class of sizes
    assert again.address == address
    assert device.usage()[2] == asked
    del again
    device.trim()
    assert device.usage()[0] == 0
    model = model_of(chain_contents(), device)
    model(x)
    del model, device
    gc.collect()
    assert fake.library.fake_used() == 0


def test_sizes_of_blocks(device: _native.Device) -> None:
    """Never smaller than asked for, and at most a fourth larger beyond 1 KiB."""
    for size in [1, 255, 256, 257, 1024, 1025, 1279, 5000, 65536, 65537, 1 << 20, (1 << 20) + 1]:
        before = device.usage()[1]
        array = DeviceArray.of(device, np.zeros(size, "u1"))
        taken = device.usage()[1] - before
        assert size <= taken <= max(size + 255, size * 5 // 4 + 256)
        assert array.address % 256 == 0
        del array


def test_out_of_memory(fake: FakeCuda, device: _native.Device) -> None:
    """What is idle is freed, and asked once more; then it is an error, and the rest works."""
    kept = DeviceArray.of(device, x)
    fake.library.fake_memory(fake.library.fake_used() + (1 << 20))
    del kept
    block = DeviceArray.of(device, np.zeros(1 << 19, "u1"))
    del block  # idle now, and in the way of the next
    fits = DeviceArray.of(device, np.zeros(3 << 18, "u1"))
    assert fake.count("cuMemFree") > 0
    with pytest.raises(errors.DeviceMemoryError, match=r"Fake 0 has no memory for .* hold") as e:
        DeviceArray.of(device, np.zeros(8 << 20, "u1"))
    assert "drop arrays" in str(e.value)
    assert isinstance(e.value, MemoryError)
    np.testing.assert_array_equal(fits.numpy(), 0)
    assert model_of(chain_contents(), device)(x)[0] == 6 * x[0]


# --- errors ---------------------------------------------------------------------------------------


def test_no_driver(tmp_path: Path) -> None:
    with pytest.raises(errors.DriverMissingError, match="no CUDA driver") as e:
        devices.open_cuda(str(tmp_path / "libcuda.so.1"))
    assert "device='sim'" in str(e.value)


def test_a_driver_that_is_too_old(fake: FakeCuda) -> None:
    fake.library.fake_version(11020)
    with pytest.raises(errors.DriverMissingError, match=r"version 11\.2, and 11\.4 is the oldest"):
        devices.open_cuda(fake.path)


def test_no_gpu(fake: FakeCuda) -> None:
    fake.library.fake_devices(0, 9, 0)
    with pytest.raises(errors.DriverMissingError, match="is installed, but there is no GPU"):
        devices.open_cuda(fake.path)


def test_no_gpu_of_that_number(fake: FakeCuda) -> None:
    with pytest.raises(errors.DriverMissingError, match="no GPU 1: this machine has 1"):
        fake.device(1)


def test_another_architecture(fake: FakeCuda) -> None:
    fake.library.fake_devices(1, 7, 5)
    with pytest.raises(
        errors.DeviceArchitectureError, match=r"7\.5, and the file has ptx for sm_8"
    ):
        model_of(chain_contents(), fake.device())


def test_code_that_the_driver_refuses(device: _native.Device) -> None:
    contents = chain_contents()
    (image,) = contents.devices
    wrong = DeviceImage("ptx", "sm_80", image.data + b"// mistake")
    with pytest.raises(errors.PtxError, match=r"(?s)sm_80.*line 7; error: Unknown symbol"):
        model_of(replace(contents, devices=(wrong,)), device)


def test_a_fault_is_for_good(fake: FakeCuda, device: _native.Device) -> None:
    """Every later use of the device says what happened first; the CPU goes on."""
    model = model_of(chain_contents(), device)
    model(x)
    there = DeviceArray.of(device, x)
    fake.fail("cuStreamSynchronize", 700)
    with pytest.raises(errors.DeviceFaultError, match="a kernel failed on Fake 0: an illegal"):
        model(x)
    fake.fail("cuStreamSynchronize", 0)
    for again in (lambda: model(x), lambda: model(there), there.numpy, device.synchronize):
        with pytest.raises(errors.DeviceFaultError, match="an illegal memory access") as e:
            again()
        assert "device='sim'" in str(e.value)
    with pytest.raises(errors.DeviceFaultError):
        model_of(chain_contents(), device)
    a = nova.tensor(x, name="a")
    np.testing.assert_array_equal(nova.compile(a * 2, inputs=[a])(x), x * 2)


def test_another_refusal_is_not(fake: FakeCuda, device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    model(x)
    fake.fail("cuGraphInstantiate", 801)
    with pytest.raises(errors.DeviceCallError, match="cannot be made into a graph: something else"):
        model(x)
    fake.fail("cuGraphInstantiate", 0)
    np.testing.assert_array_equal(model(x), 6 * x)


def every_failure(fake: FakeCuda) -> list[str]:
    device = fake.device()
    model = model_of(chain_contents(), device)
    for _ in range(2):
        model(x)
    large = model_of(large_contents(), device)
    large(np.ones(LARGE // 4, "f4"))
    return sorted(set(fake.history) - {"cuInit", "cuDevicePrimaryCtxRelease"})


@pytest.mark.usefixtures("only_new_objects")
def test_any_call_may_fail(fake: FakeCuda) -> None:
    """Whatever the driver refuses, and when: an error, nothing left, and the next goes well."""
    large = np.ones(LARGE // 4, "f4")
    names = every_failure(fake)
    assert len(names) >= 18
    for name in names:
        for after in (1, 3):
            fake.reset()
            fake.fail(name, 999, after)
            try:
                device = fake.device()
                model = model_of(chain_contents(), device)
                for _ in range(3):
                    model(x)
                model_of(large_contents(), device)(large)
            except errors.DeviceCallError as error:
                assert "something else" in str(error)
            fake.fail(name, 0)
            model = device = None
            gc.collect()
            assert fake.library.fake_depth() == 0
            np.testing.assert_array_equal(model_of(chain_contents(), fake.device())(x), 6 * x)


WRONG_ARGUMENTS = [
    (errors.ArgumentShapeError, lambda device: DeviceArray.of(device, x[:8]), r"\(8,\)"),
    (errors.ArgumentDTypeError, lambda device: DeviceArray.of(device, x.astype("f8")), "float64"),
    (errors.ArgumentShapeError, lambda device: x[:8], r"\(8,\)"),
    (errors.ArgumentTypeError, lambda device: "text", "'x' is a str"),
]


@pytest.mark.parametrize(("error", "make", "says"), WRONG_ARGUMENTS)
def test_wrong_arguments(device: _native.Device, error, make, says) -> None:
    model = model_of(chain_contents(), device)
    with pytest.raises(error, match=says):
        model(make(device))
    np.testing.assert_array_equal(model(x), 6 * x)


def test_arguments_of_two_devices(fake: FakeCuda) -> None:
    fake.library.fake_devices(2, 9, 0)
    first, second = fake.device(0), fake.device(1)
    model = model_of(chain_contents(), first)
    with pytest.raises(errors.DeviceError, match="'x' is on cuda:1, the program runs on cuda:0"):
        model(DeviceArray.of(second, x))
    np.testing.assert_array_equal(model_of(chain_contents(), second)(x), 6 * x)


def test_what_a_device_does_not_have(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    with pytest.raises(errors.AttributeValueError, match="outputs is 'gpu'"):
        model.run([x], outputs="gpu")
    a = nova.tensor(x, name="a")
    program = nova.compile(a * 2, inputs=[a])
    with pytest.raises(errors.AttributeValueError, match="this program runs on the CPU"):
        program.run([x], outputs="device")
    with pytest.raises(errors.AttributeValueError, match="this program runs on the CPU"):
        program.submit(x, outputs="device")
    with pytest.raises(errors.DeviceError, match="'a' is on cuda:0, the program runs on the CPU"):
        program(DeviceArray.of(device, x))


def test_donated_arguments_do_not_overlap(device: _native.Device) -> None:
    model = model_of(step_contents(), device)
    there = DeviceArray.of(device, x)
    with pytest.raises(errors.DonationError, match="shares memory"):
        model.run([there], [there])


# --- threads --------------------------------------------------------------------------------------


def test_threads_share_a_program(device: _native.Device) -> None:
    model = model_of(chain_contents(), device)
    start = threading.Barrier(4)

    def work(number: int) -> bool:
        start.wait()
        good = True
        for i in range(50):
            given = x + (number * 100 + i)
            good &= bool(np.array_equal(model(given), 6 * given))
        return good

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
