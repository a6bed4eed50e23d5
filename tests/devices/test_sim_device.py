"""Programs on device `sim`: compiled, saved, loaded, trained, and caught when they are wrong."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_samples import NBYTES, SIZE, chain_contents, without_driver
from sim_samples import loaded, loaded_unchecked, sim_contents, with_launch

import nova
from nova import errors
from nova._native import DeviceArray
from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DeviceLaunch
from nova.artifact.write import write_artifact
from nova.runtime.devices import open_device

rng = np.random.default_rng(7)
x = rng.standard_normal((8, 16)).astype("f4")
y = rng.standard_normal((8, 10)).astype("f4")
w = rng.standard_normal((16, 10)).astype("f4")


def forward() -> tuple[nova.Tensor, list[nova.Tensor], list[nova.Tensor]]:
    X, W = nova.tensor(x, name="X"), nova.tensor(w, name="W")
    return nova.softmax(nova.gelu(X @ W) + np.arange(10, dtype="f4")), [X], [W]


# --- compiled programs ----------------------------------------------------------------------------


def test_a_compiled_program() -> None:
    output, inputs, params = forward()
    program = nova.compile(
        output, inputs=inputs, params=params, target="cuda:sm_80", run_mode="sim"
    )
    wanted = nova.compile(output, inputs=inputs, params=params).run([x], [w])
    assert program.target == "cuda:sm_80"
    assert program.is_on_device
    for _ in range(3):
        np.testing.assert_allclose(program.run([x], [w]), wanted, rtol=2e-6, atol=1e-7)


def test_a_training_step() -> None:
    """Params on the device are updated in place, step after step, as on the CPU."""
    X, Y = nova.tensor(x, name="X"), nova.tensor(y, name="Y")
    W = nova.tensor(w, name="W", requires_grad=True)
    loss = nova.mse_loss(nova.gelu(X @ W), Y)
    nova.backward(loss)
    options = {"inputs": [X, Y], "params": [W], "updates": {W: W - 0.1 * W.grad}}
    step = nova.compile(loss, **options, target="cuda:sm_90a", run_mode="sim")
    on_cpu = nova.compile(loss, **options)
    device = open_device("sim")
    there, here = DeviceArray.of(device, w), w.copy()
    inputs = [DeviceArray.of(device, x), DeviceArray.of(device, y)]
    for _ in range(5):
        found = step.run(inputs, [there])
        wanted = on_cpu.run([x, y], [here])
        assert isinstance(found, DeviceArray)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(there.numpy(), here, rtol=1e-4, atol=1e-6)


def test_a_file_for_the_cpu_and_two_gpus(tmp_path: Path) -> None:
    output, inputs, params = forward()
    source = nova.compile(output, inputs=inputs, params=params).mlir_source
    targets = ["x86_64", "cuda:sm_80", "cuda:sm_90a"]
    path = tmp_path / "all.nova"
    nova.translate(source, targets=targets).save(path)
    on_cpu, on_sim = nova.load(path), nova.load(path, device="sim")
    assert (on_cpu.target, on_sim.target) == ("x86_64", "cuda:sm_90a")
    np.testing.assert_allclose(on_cpu(x, w), on_sim(x, w), rtol=2e-6, atol=1e-7)


def test_a_saved_program_with_its_weights(tmp_path: Path) -> None:
    output, inputs, params = forward()
    program = nova.compile(
        output, inputs=inputs, params=params, target="cuda:sm_80", run_mode="sim"
    )
    program.save(tmp_path / "m.nova", weights="embed")
    model = nova.load(tmp_path / "m.nova", device="sim")
    np.testing.assert_array_equal(model.forward(x), program(x))
    np.testing.assert_array_equal(model.params["W"], w)


@without_driver
def test_a_file_for_gpus_alone_asks_for_one(tmp_path: Path) -> None:
    path = tmp_path / "m.nova"
    path.write_bytes(write_artifact(sim_contents()))
    with pytest.raises(errors.DriverMissingError, match="no CUDA driver"):
        nova.load(path)


def test_a_jitted_function() -> None:
    @nova.jit(target="cuda:sm_80", run_mode="sim")
    def f(a, b):
        return nova.tanh(a @ b)

    np.testing.assert_allclose(f(x, w), np.tanh(x @ w), rtol=1e-5, atol=1e-6)


@without_driver
def test_a_program_without_its_gpu(tmp_path: Path) -> None:
    """It compiles and can be saved where there is no GPU; only a run needs one."""
    output, inputs, params = forward()
    program = nova.compile(output, inputs=inputs, params=params, target="cuda:sm_80")
    program.save(tmp_path / "m.nova")
    with pytest.raises(errors.DriverMissingError) as caught:
        program.run([x], [w])
    assert caught.value.where.startswith(__file__)
    np.testing.assert_allclose(
        nova.load(tmp_path / "m.nova", device="sim").run([x], [w]).sum(axis=1), 1, rtol=1e-5
    )


def test_a_pickled_program() -> None:
    output, inputs, params = forward()
    options = {"inputs": inputs, "params": params, "target": "cuda:sm_80"}
    program = nova.compile(output, **options, run_mode="sim")
    again = pickle.loads(pickle.dumps(program))
    assert again.why.endswith("on sim")
    np.testing.assert_array_equal(again.run([x], [w]), program.run([x], [w]))


@without_driver
def test_a_translation_for_a_gpu() -> None:
    """It has its file and its signature; what is missing is said by a run."""
    output, inputs, params = forward()
    source = nova.compile(output, inputs=inputs, params=params).mlir_source
    model = nova.translate(source, targets="cuda:sm_80").load()
    assert model.target == "cuda:sm_80"
    assert "which is not here" in model.why
    with pytest.raises(errors.DriverMissingError):
        model(x, w)


def test_results_for_numpy() -> None:
    output, inputs, params = forward()
    program = nova.compile(
        output, inputs=inputs, params=params, target="cuda:sm_80", run_mode="sim"
    )
    there = program(x, outputs="device")
    assert there.device == "sim"
    assert there.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(there), program(x))
    assert not hasattr(there, "__cuda_array_interface__")


# --- programs made by hand ------------------------------------------------------------------------


def test_kernels_by_hand() -> None:
    model = loaded(sim_contents())
    given = np.arange(SIZE, dtype="f4")
    for number in range(4):
        np.testing.assert_array_equal(model(given + number), 4 * (given + number))


def test_out_of_bounds_is_reported_by_line() -> None:
    """Buffers end where the tables say, whatever memory is behind them."""
    model = loaded(sim_contents(first=4))
    with pytest.raises(errors.SimulationError) as caught:
        model(np.arange(SIZE, dtype="f4"))
    text = str(caught.value)
    assert "out of bounds: read of 4 bytes" in text
    assert f"0 bytes after the end of a buffer of {4 * SIZE} bytes" in text
    assert "scale, line 18 of the PTX: ld.global.f32 %f1, [%rd4+4];" in text
    assert "by thread (31, 0, 0) of block (2, 0, 0)" in text
    good = loaded(sim_contents())
    assert good(np.ones(SIZE, "f4"))[0] == 4


def test_a_buffer_ends_where_the_next_one_begins() -> None:
    """The workspace has no gaps, and a launch sees its buffers apart all the same."""
    contents = sim_contents(add=4)
    (variant,) = contents.variants
    buffers = [replace(b, value=NBYTES) if b.value == 512 else b for b in variant.tables.buffers]
    assert [b.value for b in buffers if b.kind == "workspace"] == [0, NBYTES]
    tables = replace(variant.tables, buffers=tuple(buffers), workspace_size=2 * NBYTES)
    model = loaded(replace(contents, variants=(replace(variant, tables=tables),)))
    with pytest.raises(errors.SimulationError) as caught:
        model(np.arange(SIZE, dtype="f4"))
    address = caught.value.fault.address
    assert str(caught.value) == (
        f"out of bounds: read of 4 bytes of global memory at {address:#x} "
        "(0 bytes after the end of a buffer of 384 bytes)\n"
        "  at add, line 37 of the PTX: ld.global.f32 %f1, [%rd4+4];\n"
        "  by thread (31, 0, 0) of block (2, 0, 0)\n"
        "  hint: guard the access, or allocate what the kernel needs"
    )


WRONG_LAUNCHES = {
    "memory that nobody wrote": (
        {"buffers": (3, 2)},
        "'tables-flow'.*launch 0 reads buffer 3",
        errors.SimulationError,
        "uninitialized: read of 4 bytes",
    ),
    "a write to an argument": (
        {"reads": 2},
        "'tables-interface'",
        errors.SimulationError,
        "read-only: write of 4 bytes",
    ),
    "other operands": (
        {"buffers": (0, 2, 3)},
        "'tables-interface'",
        errors.DeviceCallError,
        "scale is given other arguments",
    ),
}


@pytest.mark.parametrize(
    ("changed", "check", "error", "says"), WRONG_LAUNCHES.values(), ids=WRONG_LAUNCHES.keys()
)
def test_a_wrong_launch_is_reported(
    changed: dict[str, Any], check: str, error: type[errors.NovaError], says: str
) -> None:
    """The reader refuses it; from an older file, which does not say enough, the simulator does."""
    contents = with_launch(sim_contents(), **changed)
    with pytest.raises(errors.ArtifactError, match=check):
        loaded(contents)
    with pytest.raises(error, match=says):
        loaded_unchecked(contents)(np.ones(SIZE, "f4"))


def test_an_older_file_runs_on_the_simulator() -> None:
    assert loaded_unchecked(sim_contents())(np.ones(SIZE, "f4"))[0] == 4


def test_code_that_the_simulator_does_not_know() -> None:
    contents = sim_contents()
    (image,) = contents.devices
    text = image.data.decode().replace("add.f32", "add.f128", 1)
    with pytest.raises(errors.PtxError, match="f128"):
        loaded(replace(contents, devices=(DeviceImage("ptx", "sm_80", text.encode()),)))


def test_only_ptx_can_be_simulated() -> None:
    contents = replace(chain_contents(), devices=(DeviceImage("cubin", "sm_80", b"\x7fELF..."),))
    with pytest.raises(errors.DeviceArchitectureError, match="no PTX"):
        loaded(contents)


def test_a_wide_grid() -> None:
    """Blocks beyond the arrays are what a kernel has to guard itself."""
    contents = sim_contents()
    (variant,) = contents.variants
    kernel, add = variant.tables.kernels
    wide = replace(kernel, device=DeviceLaunch((4, 1, 1), (32, 1, 1)))
    tables = replace(variant.tables, kernels=(wide, add))
    with pytest.raises(errors.SimulationError, match="block \\(3, 0, 0\\)"):
        loaded(replace(contents, variants=(replace(variant, tables=tables),)))(np.ones(SIZE, "f4"))


def test_arguments_that_are_copied_in_pieces() -> None:
    """Large ones go through a stream of their own, behind what the run before left there."""
    big = rng.standard_normal(300_000).astype("f4")
    a, b = nova.tensor(big, name="a"), nova.tensor(big, name="b")
    program = nova.compile(a + b, inputs=[a, b], target="cuda:sm_80", run_mode="sim")
    for factor in (1, 2):
        np.testing.assert_array_equal(program.run([big, factor * big]), (1 + factor) * big)
