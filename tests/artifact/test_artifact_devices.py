"""Device code in a file: what is written, refused, chosen for a GPU, and shown."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import nova
from nova.artifact import write
from nova.artifact.choose_target import choose_device, explain_device, find_device
from nova.artifact.device_image import DeviceImage, arch_number, check_image, choose_image
from nova.artifact.device_launch import DeviceLaunch, TensorMapSpec
from nova.artifact.format import Artifact, read_artifact
from nova.artifact.tables import (
    BUFFER,
    CORES,
    HEADER,
    KERNEL,
    BufferSpec,
    KernelSpec,
    LaunchSpec,
    Tables,
    pack_tables,
    unpack_tables,
)
from nova.artifact.write import FileSpec, Variant, write_artifact
from nova.compiler.driver import build
from nova.core.settings import Settings
from nova.core.targets import Target, parse_target
from nova.errors import ArtifactError, CodegenError, DeviceArchitectureError
from nova.plan import build_plan
from nova.tools.nova import main

PTX = """.version 8.0
.target {arch}
.address_size 64
.visible .entry double_it(.param .u64 .ptr a, .param .u64 .ptr b)
{{
  ret;
}}
"""
x = np.linspace(-2, 2, 12, dtype="f4").reshape(4, 3)


def device_target(arch: str) -> Target:
    plain = parse_target("x86_64")
    triple = "nvptx64-nvidia-cuda"
    return dataclasses.replace(plain, name=f"cuda:{arch}", triple=triple, cpu=arch)


def ptx(arch: str) -> DeviceImage:
    return DeviceImage("ptx", arch, PTX.format(arch=arch).encode())


@pytest.fixture(scope="module")
def host() -> FileSpec:
    X = nova.tensor(x, name="X")
    return build(build_plan([X * 2], [X], []), Settings(target="x86_64"), {}).contents


def device_variant(host: FileSpec, arch: str) -> Variant:
    (variant,) = host.variants
    tables = variant.tables
    kernel = dataclasses.replace(
        tables.kernels[0],
        symbol="double_it",
        core="device",
        takes_scratch=False,
        device=DeviceLaunch((3, 1, 1), (128, 1, 1), 4096),
        tiling=None,
    )
    tables = dataclasses.replace(tables, kernels=(kernel,), tasks=(), scratch_size=0)
    return dataclasses.replace(
        variant, target=device_target(arch), cpu=arch, objects=(), tables=tables
    )


def with_devices(host: FileSpec, *arches: str, images: tuple[DeviceImage, ...] = ()) -> FileSpec:
    variants = (*(device_variant(host, arch) for arch in arches), *host.variants)
    return dataclasses.replace(
        host, variants=variants, devices=images or tuple(ptx(arch) for arch in arches)
    )


def opened(contents: FileSpec) -> Artifact:
    return read_artifact(write_artifact(contents))


# --- tables ---------------------------------------------------------------------------------------


def test_tables_keep_the_launch_of_a_device(host: FileSpec) -> None:
    tables = device_variant(host, "sm_80").tables
    assert unpack_tables(pack_tables(tables)) == tables
    assert pack_tables(tables)[:8] == b"NOVATBL4"
    assert tables.renamed(".x").kernels[0].symbol == "double_it"


def test_tables_of_a_cpu_have_tilings(host: FileSpec) -> None:
    tables = host.variants[0].tables
    assert pack_tables(tables)[:8] == b"NOVATBL5"
    assert unpack_tables(pack_tables(tables)) == tables


WRONG_LAUNCHES = {
    "no threads": DeviceLaunch((1, 1, 1), (0, 1, 1)),
    "too many threads": DeviceLaunch((1, 1, 1), (64, 32, 1)),
    "too deep a block": DeviceLaunch((1, 1, 1), (1, 1, 128)),
    "too many blocks": DeviceLaunch((1 << 31, 1, 1), (32, 1, 1)),
    "too high a grid": DeviceLaunch((1, 65536, 1), (32, 1, 1)),
    "too much shared memory": DeviceLaunch((1, 1, 1), (32, 1, 1), (227 << 10) + 1),
}


@pytest.mark.parametrize("launch", WRONG_LAUNCHES.values(), ids=WRONG_LAUNCHES.keys())
def test_a_launch_that_no_device_takes(host: FileSpec, launch: DeviceLaunch) -> None:
    variant = device_variant(host, "sm_80")
    kernel = dataclasses.replace(variant.tables.kernels[0], device=launch)
    variant = dataclasses.replace(
        variant, tables=dataclasses.replace(variant.tables, kernels=(kernel,))
    )
    contents = dataclasses.replace(host, variants=(variant,), devices=(ptx("sm_80"),))
    with pytest.raises(ArtifactError, match="'tables-device'"):
        opened(contents)


MAP = TensorMapSpec(0, 0, 7, (3, 3), (16,), (4, 4))
"""A map of 3 rows of 3 elements; the operands of the host's kernel have 48 bytes."""


def with_maps(host: FileSpec, *maps: TensorMapSpec) -> FileSpec:
    variant = device_variant(host, "sm_90a")
    launch = DeviceLaunch((3, 1, 1), (128, 1, 1), 4096, maps)
    kernel = dataclasses.replace(variant.tables.kernels[0], device=launch)
    tables = dataclasses.replace(variant.tables, kernels=(kernel,))
    variant = dataclasses.replace(variant, tables=tables)
    return dataclasses.replace(host, variants=(variant,), devices=(ptx("sm_90a"),))


def test_tables_keep_tensor_maps(host: FileSpec) -> None:
    contents = with_maps(host, MAP, dataclasses.replace(MAP, operand=1, offset=16, dims=(4, 2)))
    (variant,) = contents.variants
    assert unpack_tables(pack_tables(variant.tables)) == variant.tables
    opened(contents)


WRONG_MAPS = {
    "no such operand": {"operand": 2},
    "unknown element type": {"element": 5},
    "offset that is not aligned": {"offset": 4},
    "stride that is not aligned": {"strides": (12,)},
    "stride of 0": {"strides": (0,)},
    "empty dimension": {"dims": (0, 4)},
    "more elements than the operand": {"dims": (3, 4)},
    "longer rows than the operand": {"dims": (4097, 1)},
    "extent that overflows": {"dims": (1 << 31, 1 << 31), "strides": (1 << 36,)},
    "box that is too large": {"box": (4, 257)},
    "box that is empty": {"box": (4, 0)},
    "box wider than the swizzle": {"box": (36, 4)},
    "box of odd width": {"box": (3, 4)},
}


@pytest.mark.parametrize("fields", WRONG_MAPS.values(), ids=WRONG_MAPS.keys())
def test_a_tensor_map_that_no_device_takes(host: FileSpec, fields: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match="'tables-tensor-map'"):
        opened(with_maps(host, dataclasses.replace(MAP, **fields)))


def test_a_device_kernel_without_a_launch(host: FileSpec) -> None:
    (variant,) = host.variants
    kernel = dataclasses.replace(
        variant.tables.kernels[0], core="device", takes_scratch=False, tiling=None
    )
    tables = dataclasses.replace(variant.tables, kernels=(kernel,))
    variant = dataclasses.replace(variant, tables=tables)
    with pytest.raises(ArtifactError, match=r"'tables-device'.*0 threads along axis 0"):
        opened(dataclasses.replace(host, variants=(variant,)))


def copying(host: FileSpec, kernel: KernelSpec, buffers: tuple[int, ...]) -> FileSpec:
    """A device variant that only launches `kernel`, on `buffers`."""
    variant = device_variant(host, "sm_80")
    launches = (LaunchSpec(0, buffers),)
    # Without its result, which nothing would write.
    private = {"kernels": (kernel,), "launches": launches, "buffers": variant.tables.buffers[:1]}
    tables = dataclasses.replace(variant.tables, **private)
    variant = dataclasses.replace(variant, tables=tables)
    return dataclasses.replace(host, variants=(variant,), devices=(ptx("sm_80"),))


def test_a_copy_is_of_one_buffer(host: FileSpec) -> None:
    kernel = KernelSpec("copy", "", 1, "to_host", 0, 0, "")
    opened(copying(host, kernel, (0,)))
    with pytest.raises(ArtifactError, match="'tables-copy'"):
        opened(copying(host, kernel, (0, 0)))


def test_a_copy_has_one_direction(host: FileSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(tables: Tables) -> bytes:
        block = bytearray(pack_tables(tables))
        at = HEADER.size + BUFFER.size * len(tables.buffers)
        code, grid, flops, moved, core, *strings = KERNEL.unpack_from(block, at)
        assert core == CORES.index("to_host")
        second = CORES.index("to_device")
        KERNEL.pack_into(block, at, code, grid, flops, moved, second, *strings)
        return bytes(block)

    contents = copying(host, KernelSpec("copy", "", 1, "to_host", 0, 0, ""), (0,))
    monkeypatch.setattr(write, "pack_tables", turned)
    with pytest.raises(ArtifactError, match=r"'tables-interface'.*kernel 0"):
        opened(contents)


def test_a_copy_is_no_code(host: FileSpec) -> None:
    kernel = KernelSpec("copy", "", 1, "to_device", 0, 0, "", reports=True)
    with pytest.raises(ArtifactError, match=r"'tables-device'.*is a copy"):
        opened(copying(host, kernel, (0,)))


def looping(host: FileSpec, cores: str, bodies: dict[int, int], nbytes: int = 1) -> FileSpec:
    """A device variant with a launch for each letter: `d` a kernel, `c` a copy, `w` a loop.

    `bodies` has the number of launches of each loop, by the place of the letter. A launch before
    them writes the condition of the loops and the result, which a loop may not reach.
    """
    variant = device_variant(host, "sm_80")
    device = variant.tables.kernels[0]
    kernels = [device, KernelSpec("copy", "", 1, "to_host", 0, 0, ""), device]
    buffers = (*variant.tables.buffers, BufferSpec("workspace", 0, nbytes))
    launches = [LaunchSpec(2, (1, 2))]
    for location, core in enumerate(cores):
        if core == "w":
            launches.append(LaunchSpec(len(kernels), (len(buffers) - 1,)))
            kernels.append(KernelSpec("while", "", bodies[location], "while", 0, 0, ""))
        else:
            launches.append(LaunchSpec("dc".index(core), (0, 1) if core == "d" else (0,)))
    tables = dataclasses.replace(
        variant.tables,
        kernels=tuple(kernels),
        launches=tuple(launches),
        buffers=buffers,
        workspace_size=64,
    )
    variant = dataclasses.replace(variant, tables=tables)
    return dataclasses.replace(host, variants=(variant,), devices=(ptx("sm_80"),))


def test_loops_are_inside_of_each_other(host: FileSpec) -> None:
    for cores, bodies in (
        ("wd", {0: 1}),
        ("dwddwd", {1: 2, 4: 1}),
        ("wdwdd", {0: 4, 2: 2}),
        ("w" * 32 + "d", {i: 32 - i for i in range(32)}),
    ):
        contents = looping(host, cores, bodies)
        tables = opened(contents).tables(0)
        assert tables == contents.variants[0].tables


@pytest.mark.parametrize(
    ("cores", "bodies", "nbytes"),
    [
        ("wd", {0: 2}, 1),
        ("dw", {1: 1}, 1),
        ("wd", {0: 0}, 1),
        ("wd", {0: 2**63 - 1}, 1),
        ("wwddd", {0: 2, 1: 2}, 1),
        ("w" * 33 + "d", {i: 33 - i for i in range(33)}, 1),
        ("wdc", {0: 1}, 1),
        ("wd", {0: 1}, 4),
    ],
)
def test_loops_that_are_wrong(
    host: FileSpec, cores: str, bodies: dict[int, int], nbytes: int
) -> None:
    with pytest.raises(ArtifactError, match="'tables-loop'"):
        opened(looping(host, cores, bodies, nbytes))


# --- files ----------------------------------------------------------------------------------------


def test_a_file_for_both(host: FileSpec) -> None:
    """CPU first, then devices, the newest first; the CPU's program is not touched by the others."""
    artifact = opened(with_devices(host, "sm_80", "sm_90a"))
    manifest = artifact.manifest
    assert [v.target for v in manifest.variants] == ["x86_64", "cuda:sm_90a", "cuda:sm_80"]
    assert [v.is_device for v in manifest.variants] == [False, True, True]
    assert artifact.file.missing(1) == "a GPU of sm_90a"
    assert artifact.tables(1).kernels[0].device == DeviceLaunch((3, 1, 1), (128, 1, 1), 4096)
    assert "double_it" not in artifact.file.symbols
    assert artifact.file.choose() == 0


def test_a_mixed_file_runs_on_the_cpu(host: FileSpec, tmp_path) -> None:
    path = tmp_path / "mixed.nova"
    path.write_bytes(write_artifact(with_devices(host, "sm_80", "sm_90a")))
    model = nova.load(path, device="cpu")
    assert model.target == "x86_64"
    assert np.array_equal(model.run([x]), x * 2)


def test_a_file_for_devices_alone(host: FileSpec) -> None:
    contents = dataclasses.replace(
        host, variants=(device_variant(host, "sm_80"),), devices=(ptx("sm_80"),), host="aarch64"
    )
    contents = dataclasses.replace(contents, entry=None, runtime=None)
    artifact = opened(contents)
    assert artifact.manifest.arch == "aarch64"
    assert write_artifact(contents) == write_artifact(contents)


def test_a_variant_without_code(host: FileSpec) -> None:
    with pytest.raises(CodegenError, match="no device image is for sm_80"):
        write_artifact(with_devices(host, "sm_80", images=(ptx("sm_90a"),)))


# --- what is embedded -----------------------------------------------------------------------------

BAD_PTX = {
    "calls a function": (
        PTX.format(arch="sm_80") + ".extern .func (.param .b32 r) __nv_expf(.param .b32 a);",
        "calls __nv_expf, which nothing defines",
    ),
    "another target": (PTX.format(arch="sm_90"), "names the target sm_90"),
    "no PTX": ("hello", "names the target none"),
    "another kernel": (PTX.format(arch="sm_80").replace("double_it", "k"), "no entry double_it"),
    "only a comment": (
        PTX.format(arch="sm_80").replace(".visible .entry", "//.visible .entry"),
        "no entry double_it",
    ),
}


@pytest.mark.parametrize(("text", "says"), BAD_PTX.values(), ids=BAD_PTX.keys())
def test_code_that_no_driver_loads(text: str, says: str) -> None:
    with pytest.raises(CodegenError, match=says):
        check_image(DeviceImage("ptx", "sm_80", text.encode()), ["double_it"])


def test_a_cubin_is_an_elf_file() -> None:
    check_image(DeviceImage("cubin", "sm_80", b"\x7fELF..."), ["k"])
    with pytest.raises(CodegenError, match="not an ELF file"):
        check_image(DeviceImage("cubin", "sm_80", b"MZ"), ["k"])


def test_names_of_architectures() -> None:
    assert [arch_number(arch) for arch in ("sm_80", "sm_90a", "sm_120f")] == [80, 90, 120]
    with pytest.raises(CodegenError, match="is not a device architecture"):
        arch_number("gfx90a")


# --- the choice -----------------------------------------------------------------------------------

EVERY = [("ptx", "sm_80"), ("ptx", "sm_90"), ("ptx", "sm_90a"), ("cubin", "sm_90a")]
EVERY += [("cubin", "sm_86"), ("ptx", "sm_120f")]
CHOICES = [
    (7, 5, None),
    (8, 0, ("ptx", "sm_80")),
    (8, 6, ("cubin", "sm_86")),
    (8, 9, ("ptx", "sm_80")),
    (9, 0, ("cubin", "sm_90a")),
    (10, 0, ("ptx", "sm_90")),
    (12, 0, ("ptx", "sm_120f")),
    (12, 1, ("ptx", "sm_90")),
]


@pytest.mark.parametrize(("major", "minor", "wanted"), CHOICES)
def test_choice_by_capability(major: int, minor: int, wanted: tuple[str, str] | None) -> None:
    images = [DeviceImage(mode, arch, b"") for mode, arch in EVERY]
    for order in (images, images[::-1]):
        chosen = choose_image(order, major, minor)
        result = None if chosen is None else (order[chosen].kind, order[chosen].arch)
        assert result == wanted


def test_only_exact_code_is_passed_over() -> None:
    images = [DeviceImage("ptx", "sm_90a", b""), DeviceImage("cubin", "sm_80", b"")]
    assert choose_image(images, 10, 0) is None
    assert choose_image(images, 8, 6) is None
    assert choose_image([], 9, 0) is None
    assert choose_image([DeviceImage("ptx", "gfx90a", b"")], 9, 0) is None


def test_choice_in_a_file(host: FileSpec) -> None:
    artifact = opened(with_devices(host, "sm_80", "sm_90a"))
    choice = find_device(artifact, 9, 0)
    assert choice is not None
    assert artifact.manifest.variants[choice.variant].target == "cuda:sm_90a"
    line = "cuda:sm_90a by ptx for sm_90a, of ptx for sm_80, ptx for sm_90a"
    assert explain_device(artifact, choice) == line
    assert choose_device(artifact, 12, 0) == choose_device(artifact, 8, 0)
    with pytest.raises(DeviceArchitectureError, match=r"7\.5, and the file has ptx for sm_80") as e:
        choose_device(artifact, 7, 5)
    assert "compile it for cuda:sm_75" in str(e.value)


def test_images_without_a_variant_are_not_chosen(host: FileSpec) -> None:
    contents = dataclasses.replace(host, devices=(DeviceImage("ptx", "sm_80", b"notes"),))
    assert find_device(opened(contents), 8, 0) is None


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_device_code(host: FileSpec, tmp_path, capsys) -> None:
    path = tmp_path / "mixed.nova"
    path.write_bytes(write_artifact(with_devices(host, "sm_80", "sm_90a")))
    assert main(["inspect", str(path)]) == 0
    listing = capsys.readouterr().out
    assert "3x1x1 of 128x1x1 + 4.0 KiB" in listing
    assert "needs a GPU of sm_90a" in listing
    assert main(["inspect", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    old, new = result["devices"]
    assert (old["arch"], old["kernels"]) == ("sm_80", ["double_it"])
    assert old["taken_by"] == ["8.0", "8.6", "8.9", "10.0", "12.0"]
    assert new["taken_by"] == ["9.0"]
    assert result["variants"][1]["kernels"][0]["device"]["shared"] == 4096


def test_a_kernel_spec_of_a_cpu_has_no_device() -> None:
    kernel = KernelSpec("k", "k", 1, "vector", 0, 0, "")
    tables = Tables((), (kernel,), (), 0, 0)
    assert kernel.device is None
    assert not tables.has_device
