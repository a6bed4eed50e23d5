"""The runtime on a real GPU: arrays of the host, of Nova, torch and jax; graphs, streams, errors.

    python -m pytest tests/gpu/test_gpu_runtime.py -q -s

needs the native module and numpy; torch and jax are used where they are. Nothing is compiled.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gpu_samples import PTX, chain, load, looped, one, training
from hybrid_samples import compile_host, hybrid_contents, make_ptx

import nova
from nova import errors
from nova.runtime.devices import open_device

SIZE = 1 << 12
LARGE = 9 << 20  # elements: 36 MiB


pytestmark = pytest.mark.gpu

x = np.arange(SIZE, dtype="f4")


def counts(model) -> dict[str, int]:
    names = ("runs", "launches", "graphs", "graph_launches", "graph_updates")
    return dict(zip(names, model._executable.program.counts(), strict=True))


def test_arrays_of_the_host() -> None:
    model = load(chain(SIZE))
    for number in range(20):
        np.testing.assert_array_equal(model(x + number), 6 * (x + number))
    assert counts(model)["graphs"] == 1


def test_loops_of_launches() -> None:
    """The condition is computed on the device, and decides how often the host goes on."""
    model = load(looped(SIZE))
    for turns in (3, 0, 1, 100):
        w = np.ones(SIZE, "f4")
        model.run([x, np.int32(turns)], [w])
        np.testing.assert_array_equal(w, 1 + turns * x)
        device_array, count = (
            nova.to_device(np.ones(SIZE, "f4")),
            nova.to_device(np.array(turns, "i4")),
        )
        model.run([nova.to_device(x), count], [device_array])
        np.testing.assert_array_equal(device_array.numpy(), 1 + turns * x)


def test_arrays_of_the_device() -> None:
    model = load(chain(SIZE))
    device_array = nova.to_device(x)
    for number in range(1, 4):
        device_array = model(device_array)
        assert isinstance(device_array, nova.DeviceArray)
        np.testing.assert_array_equal(device_array.numpy(), 6.0**number * x)


def test_many_pointers() -> None:
    """Graphs are changed, not made, and what they compute is right."""
    model = load(chain(SIZE))
    arrays = [nova.to_device(x + number) for number in range(40)]
    for _ in range(3):
        results = [model(array) for array in arrays]
        for number, result in enumerate(results):
            np.testing.assert_array_equal(result.numpy(), 6 * (x + number))
    assert counts(model)["graphs"] == 4
    assert counts(model)["graph_updates"] > 0


def test_a_loop_of_training() -> None:
    model = load(training(SIZE))
    device_array, w = nova.to_device(np.ones(SIZE, "f4")), nova.to_device(np.zeros(SIZE, "f4"))
    for _ in range(1000):
        y, identical = model.run([device_array], [w])
        assert identical is w
    np.testing.assert_array_equal(w.numpy(), 1000)
    np.testing.assert_array_equal(y.numpy(), 2000)
    requested = open_device("cuda").usage()[2]
    for _ in range(1000):
        y, _ = model.run([device_array], [w])
    assert open_device("cuda").usage()[2] == requested, "a steady state allocates nothing"


def test_large_arrays() -> None:
    model = load(one("scale", LARGE))
    large = np.random.default_rng(0).standard_normal(LARGE).astype("f4")
    for _ in range(3):
        np.testing.assert_array_equal(model(large), 2 * large)
    np.testing.assert_array_equal(nova.to_device(large).numpy(), large)


def test_threads() -> None:
    model = load(chain(SIZE))

    def work(number: int) -> bool:
        good = True
        for i in range(200):
            inputs = x + (200 * number + i)
            good &= bool(np.array_equal(model(inputs), 6 * inputs))
            good &= bool(np.array_equal(model(nova.to_device(inputs)).numpy(), 6 * inputs))
        return good

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


# --- other libraries ------------------------------------------------------------------------------


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    model, step = load(chain(SIZE)), load(training(SIZE))
    inputs = torch.arange(SIZE, device="cuda", dtype=torch.float32)
    result = torch.from_dlpack(model(inputs))
    assert torch.equal(result, 6 * inputs)
    assert torch.equal(torch.as_tensor(model(inputs), device="cuda"), 6 * inputs)
    w = torch.zeros(SIZE, device="cuda")
    for _ in range(10):
        y, identical = step.run([inputs], [w])
        assert identical is w
    assert torch.equal(w, 10 * inputs)
    assert torch.equal(torch.from_dlpack(y), 20 * inputs)
    view = torch.arange(SIZE + 1, device="cuda", dtype=torch.float32)[1:]  # not aligned to 16 bytes
    assert torch.equal(torch.from_dlpack(model(view)), 6 * view)
    with pytest.raises(errors.DonationError, match="not contiguous"):
        model(torch.zeros(2 * SIZE, device="cuda")[::2])


def test_the_current_stream_of_torch() -> None:
    """Long work before, on a stream of torch: the program reads what that work has made."""
    torch = pytest.importorskip("torch")
    model = load(chain(SIZE))
    stream = torch.cuda.Stream()
    big = torch.ones(4096, 4096, device="cuda")
    for number in range(20):
        with torch.cuda.stream(stream):
            for _ in range(5):
                big = (big @ big) * 0 + 1
            inputs = torch.full((SIZE,), float(number), device="cuda") * big[0, 0]
            result = model(inputs)
            again = torch.from_dlpack(result) + 1
            del inputs  # its memory may be handed out again, in the order of that stream
            second = torch.full((SIZE,), -1.0, device="cuda")
        stream.synchronize()
        assert (again == 6 * number + 1).all()
        assert (second == -1).all()
    np.testing.assert_array_equal(result.numpy(), 6 * 19)


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    if not any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("this jax has no GPU")
    model = load(chain(SIZE))
    inputs = jax.numpy.arange(SIZE, dtype="float32")
    result = model(inputs)
    np.testing.assert_array_equal(np.asarray(jax.numpy.from_dlpack(result)), 6 * x)


# --- errors ---------------------------------------------------------------------------------------


def test_code_that_the_driver_refuses() -> None:
    wrong = PTX.replace("add.f32 %f2, %f1, %f1", "add.f32 %f2, %f1, %missing", 1)
    with pytest.raises(errors.PtxError, match="missing"):
        load(one("scale", SIZE, wrong))


def test_out_of_memory() -> None:
    model = load(one("scale", SIZE, workspace=1 << 44))
    with pytest.raises(errors.DeviceMemoryError, match="has no memory for"):
        model(x)
    np.testing.assert_array_equal(load(one("scale", SIZE))(x), 2 * x)


def test_no_gpu_of_that_number() -> None:
    with pytest.raises(errors.DriverMissingError, match="there is no GPU 99"):
        open_device("cuda:99")


FAULT = """
import numpy as np, pytest, nova
from nova import errors
from gpu_samples import load, one
x = np.ones(4096, "f4")
good, wild = load(one("scale", 4096)), load(one("wild", 4096))
there = nova.to_device(x)
for again in (lambda: wild(x), lambda: good(x), lambda: good(there), there.numpy):
    with pytest.raises(errors.DeviceFaultError, match="a kernel failed on"):
        again()
del good, wild, there
print("survived")
"""


def test_a_fault_leaves_the_process_alive() -> None:
    folder = Path(__file__).parents[1] / "support"
    completed = subprocess.run(
        [sys.executable, "-c", FAULT], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert completed.stdout == "survived\n", completed.stderr


# --- kernels of the host between ------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_host(tmp_path_factory.mktemp("host"))


def test_kernels_on_both_sides(host: bytes) -> None:
    model = load(hybrid_contents(host))
    small = x[:96]
    for number in range(20):
        np.testing.assert_array_equal(model(small + number), 18 * (small + number))
    assert counts(model)["graphs"] == 2
    arrays = [nova.to_device(small + number) for number in range(20)]
    result = [model(array) for array in arrays]
    for number, array in enumerate(result):
        np.testing.assert_array_equal(array.numpy(), 18 * (small + number))
    with pytest.raises(errors.TaskError, match=r"refuse_negative.* reported error 7"):
        model(-small)
    with ThreadPoolExecutor(4) as pool:
        inputs = [small + number for number in range(200)]
        for private, expected in zip(pool.map(model, inputs), inputs, strict=True):
            np.testing.assert_array_equal(private, 18 * expected)


def pinned_words() -> int:
    """The address of two words that the host and the device can access, both 0."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    portable = 1
    assert cuda.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(8), portable) == 0
    assert cuda.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert memory.value is not None
    ctypes.memset(memory.value, 0, 8)
    return memory.value


def test_both_sides_work_at_the_same_time(tmp_path: Path) -> None:
    """The host's island and the first `add` need nothing of each other: each waits for the other.

    A side that has waited for a minute writes -1.
    """
    meeting = pinned_words()
    contents = hybrid_contents(compile_host(tmp_path, meeting), make_ptx(meeting=meeting), "meet")
    small = x[:96]
    np.testing.assert_array_equal(load(contents)(small), 18 * small)


# --- what a call asks of the driver ---------------------------------------------------------------


def test_a_call_is_one_launch_of_a_graph() -> None:
    """And asks for no memory: what that takes is measured by benchmarks/gpu/calls.py."""
    single, step, long = load(one("scale", SIZE)), load(training(SIZE)), load(chain(SIZE))
    device_array, w = nova.to_device(x), nova.to_device(np.zeros(SIZE, "f4"))
    calls = {
        single: lambda: single(device_array),
        step: lambda: step(device_array, w),
        long: lambda: long(device_array),
    }
    for model, call in calls.items():
        for _ in range(10):
            call()
        before, requested = counts(model), open_device("cuda").usage()[2]
        for _ in range(100):
            call()
        after = counts(model)
        assert open_device("cuda").usage()[2] == requested
        assert after["graphs"] == before["graphs"]
        created = after["graph_launches"] - before["graph_launches"]
        launched = after["launches"] - before["launches"]
        assert (created, launched) == (100, 0)


# --- futures --------------------------------------------------------------------------------------


def test_submitted_runs() -> None:
    model = load(chain(SIZE))
    futures = [model.submit(x + number) for number in range(50)]
    futures += [model.submit(nova.to_device(x + number)) for number in range(50)]
    for number, future in enumerate(futures):
        np.testing.assert_array_equal(np.asarray(future.result(60)), 6 * (x + number % 50))


def test_a_stream_of_steps() -> None:
    model = load(training(SIZE))
    device_array, w, local = (
        nova.to_device(x),
        nova.to_device(np.zeros(SIZE, "f4")),
        np.zeros(SIZE, "f4"),
    )
    with nova.NovaStream() as stream:
        for _ in range(500):
            model.submit(device_array, w)
        for _ in range(20):
            model.submit(x, local)
    stream.synchronize(60)
    np.testing.assert_array_equal(w.numpy(), 500 * x)
    np.testing.assert_array_equal(local, 20 * x)


def test_time_limits() -> None:
    """Work of torch before keeps the device busy: the limit passes, and the run ends later."""
    torch = pytest.importorskip("torch")
    model = load(training(SIZE))
    big = torch.ones(8192, 8192, device="cuda")
    inputs = torch.arange(SIZE, device="cuda", dtype=torch.float32)
    w = torch.zeros(SIZE, device="cuda")
    model.run([inputs], [w], timeout=60)
    for _ in range(100):
        big = (big @ big) * 0 + 1
    with pytest.raises(errors.RunTimeoutError):
        model.run([inputs], [w], timeout=0.001)
    with pytest.raises(errors.ArrayInUseError):
        model.run([inputs], [w])
    torch.cuda.synchronize()
    model.submit(inputs, torch.zeros(SIZE, device="cuda")).result(60)
    assert torch.equal(w, 2 * inputs)


# --- traces ---------------------------------------------------------------------------------------


def test_lanes_of_a_trace() -> None:
    model = load(chain(SIZE))
    device_array = nova.to_device(x)
    for _ in range(3):
        model(x), model(device_array)
    with nova.trace() as trace:
        for _ in range(20):
            model(x)
        results = [model(device_array) for _ in range(50)]
    np.testing.assert_array_equal(results[-1].numpy(), 6 * x)
    assert len(trace.runs) == 70
    for number, run in enumerate(trace.runs):
        assert run.lost == 0 and run.device == "cuda:0"
        assert [span.name for span in run.lanes["kernels"]] == ["scale", "scale", "add"]
        copies = [span.name for span in run.lanes["copies"]]
        assert copies == (["to device: x", "to host: y"] if number < 20 else [])
        for spans in run.lanes.values():
            assert all(run.start <= span.start <= span.end <= run.end for span in spans)
            assert all(a.end <= b.start for a, b in pairwise(spans))
    # One stream: what runs do there is in their order, also where the host runs ahead.
    kernels = [span for run in trace.runs[20:] for span in run.lanes["kernels"]]
    assert all(a.end <= b.start + 20_000 for a, b in pairwise(kernels)), "clocks agree to 20 us"
    output = str(trace.summary())
    assert output.startswith("70 runs measured on cuda:0") and "time of the device" in output


def test_large_copies_in_a_trace() -> None:
    model = load(one("scale", LARGE))
    large = np.ones(LARGE, "f4")
    model(large)
    with nova.trace() as trace:
        model(large)
    (run,) = trace.runs
    moved = {span.name: span.bytes for span in run.lanes["copies"]}
    assert moved == {"to device: x": large.nbytes, "to host: y": large.nbytes}
