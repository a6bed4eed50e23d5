"""Several devices in one process: each has its own memory, streams, graphs and faults.

On simulated GPUs, and on those of a libcuda for tests; both refuse what belongs to another device.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from device_samples import SIZE, FakeCuda, chain_contents, model_of
from sim_samples import sim_contents

import nova
from nova import errors
from nova._native import DeviceArray
from nova.artifact.write import write_artifact
from nova.runtime.devices import open_device

ROUNDS = 12
x = np.arange(SIZE, dtype="f4")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chain.nova"
    path.write_bytes(write_artifact(sim_contents()))
    return path


def test_simulated_gpus_by_name(file: Path) -> None:
    first, second = nova.load(file, device="sim"), nova.load(file, device="sim:1")
    assert (first.why[-6:], second.why[-8:]) == ("on sim", "on sim:1")
    assert open_device("sim:0") is open_device("sim")
    assert open_device("sim:1") is open_device("sim:1") is not open_device("sim")
    for model in (first, second):
        np.testing.assert_array_equal(model(x), 4 * x)
    there = second(nova.to_device(x, "sim:1"))
    assert repr(there) == "<DeviceArray float32(96,) on sim:1>"
    np.testing.assert_array_equal(there.numpy(), 4 * x)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("sim:4", errors.DriverMissingError, "there is no simulated GPU 4: this machine has 4"),
        ("sim:x", errors.DeviceError, "device 'sim:x' is not known"),
        ("sim:", errors.DeviceError, "device 'sim:' is not known"),
        ("sims", errors.DeviceError, "device 'sims' is not known"),
    ],
)
def test_wrong_names(file: Path, name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        nova.load(file, device=name)


def test_memory_is_that_of_a_device(file: Path) -> None:
    model = nova.load(file, device="sim:2")
    with pytest.raises(errors.DeviceError, match="'x' is on sim:3, the program runs on sim:2"):
        model(nova.to_device(x, "sim:3"))
    before = [open_device(name).usage() for name in ("sim:2", "sim:3")]
    kept = nova.to_device(np.zeros(10_000, "f4"), "sim:3")
    after = [open_device(name).usage() for name in ("sim:2", "sim:3")]
    assert after[0] == before[0]
    assert after[1][1] >= before[1][1] + kept.nbytes


def test_a_stream_of_another_device_is_refused() -> None:
    """What a missing change of context would come to on GPUs."""
    first, second = open_device("sim"), open_device("sim:1")
    with pytest.raises(
        errors.DeviceCallError, match="a stream, an event or code of another device"
    ):
        first.synchronize(second.stream)


def test_programs_on_two_simulated_gpus_in_threads(file: Path) -> None:
    """Two threads each share a program; every device makes its graphs, and keeps them apart."""
    models = [nova.load(file, device=name) for name in ("sim", "sim:1")]
    start = threading.Barrier(4)

    def work(number: int) -> bool:
        model = models[number % 2]
        device = open_device(("sim", "sim:1")[number % 2])
        start.wait()
        good = True
        for i in range(ROUNDS):
            given = x + 100 * number + i
            good &= bool(np.array_equal(model(given), 4 * given))
            good &= bool(np.array_equal(model(DeviceArray.of(device, given)).numpy(), 4 * given))
        return good

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    for model in models:
        runs, launches, graphs, graph_launches, _ = model._executable.program.counts()
        assert runs == 4 * ROUNDS
        assert graphs >= 1
        assert launches + 3 * graph_launches == 3 * runs


def test_faults_are_told_by_their_device(tmp_path: Path) -> None:
    """Two GPUs that fail at the same time, each in its own way, and a third that goes on."""
    programs = {"sim": sim_contents(first=4), "sim:1": sim_contents(add=8), "sim:2": sim_contents()}
    models = {}
    for number, (name, contents) in enumerate(programs.items()):
        path = tmp_path / f"{number}.nova"
        path.write_bytes(write_artifact(contents))
        models[name] = nova.load(path, device=name)
    start = threading.Barrier(3)

    def work(name: str) -> set[str]:
        start.wait()
        said = set()
        for _ in range(ROUNDS):
            try:
                said.add(str(np.array_equal(models[name](x), 4 * x)))
            except errors.SimulationError as error:
                said.add(f"{error.fault.kernel} {error.fault.kind} {error.fault.thread}")
        return said

    with ThreadPoolExecutor(3) as pool:
        said = dict(zip(models, pool.map(work, models), strict=True))
    assert said == {
        "sim": {"scale bounds (31, 0, 0)"},
        "sim:1": {"add bounds (30, 0, 0)"},
        "sim:2": {"True"},
    }


def test_two_gpus_in_threads(fake: FakeCuda) -> None:
    fake.library.fake_devices(2, 9, 0)
    models = [model_of(chain_contents(), fake.device(number)) for number in range(2)]
    start = threading.Barrier(4)

    def work(number: int) -> bool:
        start.wait()
        model = models[number % 2]
        given = [x + 100 * number + i for i in range(50)]
        return all(np.array_equal(model(a), 6 * a) for a in given)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    for model in models:
        assert model._executable.program.counts()[2] >= 1


def test_no_gpu_of_that_number(fake: FakeCuda) -> None:
    fake.library.fake_devices(2, 9, 0)
    assert fake.device(1).name == "cuda:1"
    with pytest.raises(errors.DriverMissingError, match="there is no GPU 2: this machine has 2"):
        fake.device(2)


BY_NAME = """
import ctypes, sys
import numpy as np
import nova

ctypes.CDLL("libcuda.so.1").fake_devices(2, 9, 0)
x = np.arange(96, dtype="f4")
for name in ("cuda", "cuda:0", "cuda:1"):
    model = nova.load(sys.argv[1], device=name)
    print(model.why.rpartition(" ")[2], np.array_equal(model(x), 6 * x))
there = nova.to_device(x, "cuda:1")
print(model(there).device)
first = nova.load(sys.argv[1])
for wrong in (lambda: nova.load(sys.argv[1], device="cuda:2"), lambda: first(there)):
    try:
        wrong()
    except nova.errors.NovaError as error:
        print(type(error).__name__, error.what)
"""


def test_gpus_by_name(library: Path, tmp_path: Path) -> None:
    """In a process of its own, which takes the libcuda for tests for the system's."""
    (tmp_path / "libcuda.so.1").symlink_to(library)
    file = tmp_path / "chain.nova"
    file.write_bytes(write_artifact(chain_contents()))
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", BY_NAME, file],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "cuda:0 True",
        "cuda:0 True",
        "cuda:1 True",
        "cuda:1",
        "DriverMissingError there is no GPU 2: this machine has 2",
        "DeviceError input 'x' is on cuda:1, the program runs on cuda:0",
    ]
