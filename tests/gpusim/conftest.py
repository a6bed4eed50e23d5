"""`--on-gpu`: the kernels of these tests on a real GPU, to see whether their truth is the device's.

    python -m pytest tests/gpusim --on-gpu -q

Left out: tests of faults, of damaged programs, of approximate functions (the device's are), and of
what only the simulator has; and those of LLVM's code where there is no LLVM. Without a driver it is
refused.

Values that PTX leaves open are compared with the simulator's own choice there, and not on a GPU
(`is_specified` in sim_integers.py); `ex2.approx` may be two units in the last place off.

An H200 agreed with all others but one: its `div.rp.ftz` gives zero also for a quotient below the
normal numbers that is rounded up to the first of them.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec

import pytest

ONLY_SIMULATED = (
    *(
        "test_sim_faults",
        "test_sim_async",
        "test_sim_clusters",
        "test_sim_mutations",
        "that_the_driver_refuses",
        "test_sim_sanitized",
        "test_sim_ptx",
        "approximate",
        "rsqrt",
        "nobody",
    ),
    *("test_memory_of_the_host", "test_shared_arrays", "test_variables_of_a_module", "f32x2"),
    *("div.rp.ftz", "test_any_values"),
    "test_strides_of_elements[2]",
    *("orders_nothing_is_a_race", "lost_signal_is_a_deadlock", "run_at_once_are_refused"),
)
NEEDS = {"test_sim_llvm.py": "llvmlite"}
collect_ignore = [name for name, module in NEEDS.items() if find_spec(module) is None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on-gpu", action="store_true", help="run the kernels of tests/gpusim on a GPU"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--on-gpu", default=False):
        return
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise pytest.UsageError(f"--on-gpu: there is no CUDA driver: {error}") from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--on-gpu", default=False):
        return
    for item in items:
        if any(word in item.nodeid for word in ONLY_SIMULATED):
            item.add_marker(pytest.mark.skip(reason="of the simulator alone"))


@pytest.fixture
def is_on_gpu(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--on-gpu", default=False))


@pytest.fixture(autouse=True)
def on_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.config.getoption("--on-gpu", default=False):
        return
    import hopper_programs
    import sim_programs
    from cuda_kernels import CudaMemory, CudaModule, cuda_tensor_map

    for module in (sim_programs, hopper_programs, request.module):
        if hasattr(module, "SimModule"):
            monkeypatch.setattr(module, "SimModule", CudaModule)
            monkeypatch.setattr(module, "SimMemory", CudaMemory)
        if hasattr(module, "tensor_map"):
            monkeypatch.setattr(module, "tensor_map", cuda_tensor_map)
