"""What messages advise: each hint names what works for the call that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova import nn, optim
from nova.api.compiled import Compiled
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArtifactError,
    DriverMissingError,
    ImportedProgramError,
    TargetError,
    UnknownKeywordError,
    WeightsError,
)
from nova.runtime import devices
from nova.tools.nova import main as nova_main

X = np.ones((4, 3), "f4")


def program(**options: Any) -> Compiled:
    x = nova.tensor(X, name="X")
    return nova.compile(x + 1, inputs=[x], **options)


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: str | None = None) -> None:
        raise DriverMissingError("there is no CUDA driver", hint="device='sim'")

    monkeypatch.setattr(devices, "open_cuda", missing)
    monkeypatch.setattr(devices, "_drivers", {})
    monkeypatch.setattr(devices, "_opened", {})


@pytest.mark.usefixtures("no_driver")
def test_who_compiles_without_a_driver_is_told_of_run_mode() -> None:
    model = nn.Linear(3, 1)

    def step() -> None:
        nova.train_step(
            model,
            lambda m, x: m(x).sum(),
            optim.SGD(model.parameters(), lr=0.1),
            target="cuda",
        )

    for failing in (
        lambda: program(target="cuda"),
        step,
        lambda: program(target="cuda:sm_80")(X),
        lambda: nova.translate(program(), targets="cuda:sm_80").load()(X),
    ):
        with pytest.raises(DriverMissingError, match="target='cuda:sm_80', run_mode='sim'"):
            failing()


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("gpu", "'cuda' is the GPU of this machine; those with a name are cuda:sm_80"),
        ("cuda:0", "'cuda' is the GPU of this machine"),
        ("cuda:sm_70", "cuda:sm_80 is the oldest"),
        ("sim", "run_mode='sim'"),
        ("sm_80", "did you mean 'cuda:sm_80'"),
    ],
)
def test_names_of_gpus(target: str, hint: str) -> None:
    with pytest.raises(TargetError, match=hint):
        program(target=target)


def test_a_file_is_for_named_gpus() -> None:
    with pytest.raises(
        TargetError, match=r"such as cuda:sm_80[^$]*there are cuda:sm_80, cuda:sm_86"
    ):
        nova.translate(program(), targets=["cuda"])


def test_a_simulated_device_that_is_not_there() -> None:
    with pytest.raises(DriverMissingError, match="sim, sim:1, sim:2 and sim:3") as caught:
        nova.to_device(X, "sim:7")
    assert "device='sim'" not in str(caught.value)


def test_casts_are_those_of_the_library() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentDTypeError, match=r"\.to\(torch\.float32\)"):
        program()(torch.ones(4, 3, dtype=torch.float64))
    with pytest.raises(ArgumentDTypeError, match=r"\.astype\('float32'\)"):
        program()(X.astype("f8"))


def test_many_params_without_values(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(15)))
    x = nova.tensor(X, name="X")
    nova.compile(model(x), inputs=[x], params=model.parameters()).save(tmp_path / "m.nova")
    loaded = nova.load(tmp_path / "m.nova")
    with pytest.raises(ArgumentCountError, match=r"and 23 more[^$]*weights='embed'") as caught:
        loaded(X)
    assert "4.weight" not in str(caught.value)
    with pytest.raises(WeightsError, match=r"and 22 more[^$]*nova\.load\(path, weights="):
        loaded.forward(X)


def test_files_of_another_kind(tmp_path: Path) -> None:
    nn.Linear(3, 1).save(tmp_path / "m.safetensors")
    np.save(tmp_path / "x.npy", X)
    for name in ("m.safetensors", "x.npy"):
        with pytest.raises(ArtifactError, match=r"not a \.nova file[^$]*model\.load\(path\)"):
            nova.load(tmp_path / name)
    program().save(tmp_path / "x.nova")
    with pytest.raises(ImportedProgramError, match=r"nova\.translate\(nova\.load\(path\)"):
        nova.translate(tmp_path / "x.nova")


def test_arrays_are_given_by_position() -> None:
    with pytest.raises(UnknownKeywordError, match=r"by position: program\(X\)"):
        program()(X=X)
    with pytest.raises(UnknownKeywordError, match="did you mean 'outputs'"):
        program()(ouputs="host")


@pytest.mark.parametrize("command", ["run", "trace"])
def test_a_command_line_has_no_line_of_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    program().save(tmp_path / "x.nova")
    assert nova_main([command, str(tmp_path / "x.nova"), "--random", "--device", "gpu"]) == 1
    listing = capsys.readouterr().err
    assert "device 'gpu' is not known" in listing
    assert "\n  at " not in listing
