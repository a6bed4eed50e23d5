"""Bundles of cubins: what the assembler makes of large PTX, the cache, and what a driver loads."""

from __future__ import annotations

import gc
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device_samples import SIZE, FakeCuda, chain_contents, model_of

import nova
from nova import _native
from nova.artifact.cubins import assembled, ptxas
from nova.artifact.cubins.bundle import MAGIC, pack_cubins
from nova.artifact.device_image import DeviceImage, check_image
from nova.artifact.write import FileSpec
from nova.core.targets import parse_target
from nova.errors import CodegenError, NovaError

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
VERSION = 'echo "Cuda compilation tools, release 12.0, V12.0.41"; exit 0'
x = np.arange(SIZE, dtype="f4") - 40


def kernel(name: str, lines: int) -> str:
    return f"\n.visible .entry {name}()\n{{\n{'ret;' * lines}\n}}\n"


@pytest.fixture
def assembler(tmp_path: Path) -> Iterator[Path]:
    """A ptxas of version 12.0 whose cubin is the PTX, and which counts its runs."""
    path = tmp_path / "ptxas"
    path.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && {{ {VERSION}; }}
grep -q mistake kernels.ptx && {{ echo "line 7; error" >&2; exit 1; }}
echo "$2" >> {tmp_path}/runs; (printf '\\177ELF'; cat kernels.ptx) > kernels.cubin
"""
    )
    path.chmod(0o755)
    ptxas._version_of.cache_clear()
    with nova.knobs.override(ptxas=path, cache_dir=tmp_path / "cache"):
        yield tmp_path / "runs"
    ptxas._version_of.cache_clear()


def large(*names: str) -> bytes:
    return (HEADER + "".join(kernel(name, 40_000) for name in names)).encode()


def test_parts_have_every_kernel_once() -> None:
    text = HEADER + "".join(kernel(f"k{i}", 1 + i) for i in range(9))
    parts = assembled.split_ptx(text, 4)
    assert len(parts) == 4 and all(part.startswith(HEADER) for part in parts)
    names = [name for part in parts for name in assembled._ENTRY.findall(part)]
    assert sorted(names) == [f"k{i}" for i in range(9)]
    assert max(map(len, parts)) < 2 * min(map(len, parts))


@pytest.mark.parametrize("line", [".global .u32 counter;", ".func f() { ret; }"])
def test_code_that_modules_would_share_is_not_cut(line: str) -> None:
    text = f"{HEADER}{line}\n{kernel('a', 1)}{kernel('b', 1)}"
    assert assembled.split_ptx(text, 4) == [text]


def test_large_code_is_assembled_once(assembler: Path) -> None:
    code = large("a", "b")
    bundle = assembled.bundle_for(code, "sm_90a", (13, 0))
    assert bundle is not None and bundle.startswith(MAGIC)
    assert assembler.read_text().split() == ["-arch=sm_90a"] * 2
    assert assembled.bundle_for(code, "sm_90a", (12, 0)) == bundle
    assert len(assembler.read_text().split()) == 2, "the second one is from the cache"
    (path,) = (Path(nova.knobs.cache_dir) / "cubins").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert assembled.bundle_for(code, "sm_90a", (13, 0)) == bundle
    assert len(assembler.read_text().split()) == 4, "a damaged one is assembled again"
    with nova.knobs.override(cache=False):
        assembled.bundle_for(code, "sm_90a", (13, 0))
    assert len(assembler.read_text().split()) == 6


def test_the_driver_compiles_what_is_small_or_too_new(assembler: Path) -> None:
    assert assembled.bundle_for(HEADER.encode() + b"ret;", "sm_90a", (13, 0)) is None
    assert assembled.bundle_for(large("a", "b"), "sm_90a", (11, 8)) is None
    assert assembled.bundle_for(large("a", "mistake"), "sm_90a", (13, 0)) is None
    assert assembled.bundle_for(large("alone"), "sm_90a", (13, 0)) is None


def test_few_bundles_are_kept(assembler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembled, "_MOST_BUNDLES", 2)
    for number in range(4):
        assembled.bundle_for(large("a", f"b{number}"), "sm_90a", (13, 0))
    assert len(list((Path(nova.knobs.cache_dir) / "cubins").iterdir())) == 2


def test_only_bundles_are_removed(
    assembler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other files of the folder stay, and a link to a folder of the user is not followed."""
    monkeypatch.setattr(assembled, "_MOST_BUNDLES", 1)
    folder = Path(nova.knobs.cache_dir) / "cubins"
    for name in ("a", "b"):
        assembled.bundle_for(large("k", name), "sm_90a", (13, 0))
        (folder / f"notes-{name}").write_text("of the user")
    assert len([p for p in folder.iterdir() if p.name.startswith("notes")]) == 2
    assert len(list(folder.iterdir())) == 3
    other = tmp_path / "other"
    folder.rename(other)
    folder.symlink_to(other)
    before = sorted(other.iterdir())
    assert assembled.bundle_for(large("k", "c"), "sm_90a", (13, 0)) is not None
    assert sorted(other.iterdir()) == before


def test_a_pipe_is_not_an_entry(assembler: Path) -> None:
    bundle = assembled.bundle_for(large("a", "b"), "sm_90a", (13, 0))
    (path,) = (Path(nova.knobs.cache_dir) / "cubins").iterdir()
    path.unlink()
    os.mkfifo(path)
    assert assembled.bundle_for(large("a", "b"), "sm_90a", (13, 0)) == bundle


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo what", f'[ "$1" = --version ] && {{ {VERSION}; }}; : > kernels.cubin'],
)
def test_with_a_broken_assembler_the_driver_compiles(script: str, tmp_path: Path) -> None:
    path = tmp_path / "ptxas"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    ptxas._version_of.cache_clear()
    with nova.knobs.override(ptxas=path, cache=False):
        assert assembled.bundle_for(large("a", "b"), "sm_90a", (13, 0)) is None
    ptxas._version_of.cache_clear()


# --- loading --------------------------------------------------------------------------------------


def with_bundle(bundle: bytes) -> FileSpec:
    """The chain of the samples, with a bundle as its code."""
    contents = chain_contents()
    (variant,) = contents.variants
    variant = replace(variant, target=parse_target("cuda:sm_90"), cpu="sm_90")
    images = (DeviceImage("cubin", "sm_90", bundle),)
    return replace(contents, variants=(variant,), devices=images)


def test_a_bundle_runs(fake: FakeCuda, device: _native.Device) -> None:
    bundle = pack_cubins([b"\x7fELF scale\0", b"\x7fELF add\0"], [["scale"], ["add"]])
    fake.forget()
    model = model_of(with_bundle(bundle), device)
    np.testing.assert_array_equal(model(x), 6 * x)
    assert "by cubin for sm_90" in model.why
    assert fake.count("cuModuleLoadDataEx") == 2
    del model
    gc.collect()
    assert fake.count("cuModuleUnload") == 2


def test_large_ptx_of_a_file_becomes_a_bundle(
    fake: FakeCuda, device: _native.Device, assembler: Path
) -> None:
    contents = chain_contents()
    (image,) = contents.devices
    large = image.data.replace(
        b"\n.visible .entry ", f"\n//{200_000 * ' '}\n.visible .entry ".encode()
    )
    model = model_of(replace(contents, devices=(replace(image, data=large),)), device)
    np.testing.assert_array_equal(model(x), 6 * x)
    runs = assembler.read_text().split()
    assert set(runs) == {"-arch=sm_90"} and len(runs) > 1
    assert "by ptx for sm_80" in model.why


def test_a_kernel_is_searched_in_its_module_only(device: _native.Device) -> None:
    bundle = pack_cubins([b"\x7fELF scale add\0", b"\x7fELF\0"], [["scale"], ["add"]])
    with pytest.raises(NovaError, match="add"):
        model_of(with_bundle(bundle), device)


def test_damaged_bundles_are_refused(device: _native.Device) -> None:
    good = pack_cubins([b"\x7fELF scale\0", b"\x7fELF add\0"], [["scale"], ["add"]])
    cases = [
        MAGIC + struct.pack("<II", 0, 0) + good[16:],
        MAGIC + struct.pack("<II", 2**31, 2) + good[16:],
        MAGIC + struct.pack("<II", 2, 2**31) + good[16:],
        good[:16] + struct.pack("<QQ", 2**40, 8) + good[32:],
        good[:16] + struct.pack("<QQ", 8, 8) + good[32:],
        good[:32] + struct.pack("<QQ", 2**40, 8) + good[48:],
        good[:40] + struct.pack("<Q", 2**63) + good[48:],
        good[:48] + struct.pack("<II", 7, 64) + good[56:],
        good[:48] + struct.pack("<II", 0, 2**30) + good[56:],
        good[:60],
        good[:16],
    ]
    for bundle in cases:
        with pytest.raises(NovaError, match="cannot be loaded"):
            model_of(with_bundle(bundle), device)


def test_other_bytes_are_not_a_cubin() -> None:
    check_image(DeviceImage("cubin", "sm_80", pack_cubins([b"\x7fELF"], [["k"]])), ["k"])
    with pytest.raises(CodegenError, match="not an ELF file or a bundle"):
        check_image(DeviceImage("cubin", "sm_80", b"MZ"), ["k"])
