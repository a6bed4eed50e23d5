"""Programs for device `sim` that are made by hand, in PTX; some of them are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from device_samples import chain_contents

from nova.artifact import write
from nova.artifact.device_image import DeviceImage
from nova.artifact.device_launch import DEVICE
from nova.artifact.format import read_artifact
from nova.artifact.tables import ARRAYS, HEADER, OLD_DEVICE_MAGIC, Tables, pack_tables
from nova.artifact.write import FileSpec, write_artifact
from nova.runtime.devices import open_device
from nova.runtime.gpu_executor import DeviceExecutable
from nova.runtime.model import Model

# out[i] = in[i + first] for 96 threads: all in bounds when `first` is 0.
COPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 .ptr a, .param .u64 .ptr b)
{{
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  .reg .f32 %f<3>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4+{first}];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd5], %f2;
  ret;
}}
"""
ADD = COPY.split("\n", 3)[3].replace(
    "a, .param .u64 .ptr b)", "a, .param .u64 .ptr b, .param .u64 .ptr c)"
)


def sim_contents(first: int = 0, add: int = 0) -> FileSpec:
    """The chain of `device_samples`, with `add` that only doubles its first operand.

    The kernels read so many bytes behind where they should.
    """
    last = ADD.replace("[b]", "[c]")
    text = COPY.format(name="scale", first=first) + last.format(name="add", first=add)
    return replace(chain_contents(), devices=(DeviceImage("ptx", "sm_80", text.encode()),))


def _without_interfaces(tables: Tables) -> bytes:
    """The block of a device variant as Nova wrote it before format 4."""
    block = pack_tables(tables)
    _, _, *others = HEADER.unpack_from(block)
    *counts, string_size, _ = others[2:]
    end = HEADER.size
    for row, count in zip(ARRAYS, counts, strict=True):
        end += -(-row.size * count // 8) * 8
    end += DEVICE.size * len(tables.kernels)
    body = block[HEADER.size : end] + block[-string_size:]
    return HEADER.pack(OLD_DEVICE_MAGIC, HEADER.size + len(body), *others) + body


def with_launch(contents: FileSpec, **changed: Any) -> FileSpec:
    """The same program with another first launch."""
    (variant,) = contents.variants
    first, *others = variant.tables.launches
    tables = replace(variant.tables, launches=(replace(first, **changed), *others))
    return replace(contents, variants=(replace(variant, tables=tables),))


def loaded_unchecked(contents: FileSpec) -> Model:
    """As from a file of an older Nova, whose launches nothing compares with their kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "pack_tables", _without_interfaces)
        patch.setattr(write, "FORMAT_VERSION", 3)
        return loaded(contents)


def loaded(contents: FileSpec) -> Model:
    artifact = read_artifact(write_artifact(contents))
    return Model(DeviceExecutable(artifact, open_device("sim")), "file")
