"""`--on-gpu`: the kernels of these tests on a real GPU, to see whether their truth is the device's.

    python -m pytest tests/sim/test_sim_arithmetic.py tests/sim/test_sim_convert.py \\
        tests/sim/test_sim_warps.py tests/sim/test_sim_memory.py tests/sim/test_sim_matrices.py \\
        tests/sim/test_sim_llvm.py --on-gpu -q

Left out: tests of faults, of approximate functions (the device's are), and of what only the
simulator has.
"""

from __future__ import annotations

import pytest

ONLY_SIMULATED = (
    *("test_sim_faults", "test_sim_sanitized", "test_sim_ptx", "approximate", "rsqrt", "nobody"),
    *("test_memory_of_the_host", "test_shared_arrays", "test_variables_of_a_module", "f32x2"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--on-gpu", action="store_true", help="run the kernels of tests/sim on a GPU")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--on-gpu", default=False):
        return
    for item in items:
        if any(word in item.nodeid for word in ONLY_SIMULATED):
            item.add_marker(pytest.mark.skip(reason="of the simulator alone"))


@pytest.fixture(autouse=True)
def on_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.config.getoption("--on-gpu", default=False):
        return
    import sim_programs
    from cuda_kernels import CudaMemory, CudaModule

    for module in (sim_programs, request.module):
        if hasattr(module, "SimModule"):
            monkeypatch.setattr(module, "SimModule", CudaModule)
            monkeypatch.setattr(module, "SimMemory", CudaMemory)
