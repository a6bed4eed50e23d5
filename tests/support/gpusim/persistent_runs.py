"""Device tests again with launch="persistent": `--launch persistent --sim-schedule random`.

The options set the knobs `launch` and `sim_schedule` for the whole run: every program for a device
that does not say how it is launched is one resident kernel. Tests of what a graph is or counts have
the mark `graph_launch`, and are skipped. A program that cannot be one resident kernel is refused
with a PersistentLaunchError, and its test is skipped with that reason (`-rs` lists them). Anything
else is a failure. `SUITES` are the tests that `make nightly` runs in this way.
"""

from __future__ import annotations

import os

import pytest

SCHEDULES = ("late", "early", "random")
SUITES = (
    "tests/ops/test_op_devices.py",
    "tests/programs/test_loops_on_device.py",
    "tests/programs/test_empty_loops.py",
    "tests/programs/symbolic/test_symbolic_control.py",
    "tests/devices/sizes",
    "tests/devices/test_device_math.py",
    "tests/devices/test_scalar_loops.py",
    "tests/codegen/gpu/test_argreduce.py",
    "tests/codegen/gpu/test_decoder_on_device.py",
    "tests/codegen/gpu/pointwise/test_elementwise_intermediates.py",
    "tests/codegen/gpu/test_packed_gradients.py",
    "tests/codegen/gpu/attention",
    "tests/linalg/test_linalg.py",
    "tests/train/test_bf16_on_device.py",
    "tests/train/test_device_writes.py",
    "tests/train/test_step_results.py",
)
"""Operations, gradients, models, training steps, control flow and symbolic sizes on a device."""


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--launch", choices=("graph", "persistent"), help="how programs for devices run"
    )
    parser.addoption("--sim-schedule", choices=SCHEDULES, help="the order of simulated blocks")


def is_persistent(config: pytest.Config) -> bool:
    return bool(config.getoption("--launch") == "persistent")


def set_knobs(config: pytest.Config) -> None:
    """Before anything of Nova is imported; child processes inherit the variables."""
    for option, name in (("--launch", "NOVA_LAUNCH"), ("--sim-schedule", "NOVA_SIM_SCHEDULE")):
        if value := config.getoption(option):
            os.environ[name] = value


def skip_graph_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_persistent(config):
        skip = pytest.mark.skip(reason="of launch='graph'")
        for item in items:
            if item.get_closest_marker("graph_launch"):
                item.add_marker(skip)


def report_refusal(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Let the report of a test whose program was refused say so."""
    from nova.errors import PersistentLaunchError

    if (
        is_persistent(item.config)
        and call.excinfo
        and call.excinfo.errisinstance(PersistentLaunchError)
    ):
        report.outcome = "skipped"
        what = getattr(call.excinfo.value, "what", str(call.excinfo.value))
        report.longrepr = (str(item.path), (item.location[1] or 0) + 1, f"refused: {what}")


if __name__ == "__main__":  # the Makefile reads them
    print(" ".join(SUITES))
