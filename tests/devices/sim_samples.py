"""Programs for device `sim` that are made by hand, in PTX; some of them are wrong."""

from __future__ import annotations

from dataclasses import replace

from device_samples import chain_contents

from nova.artifact.device import DeviceImage
from nova.artifact.format import read_artifact
from nova.artifact.write import Contents, write_artifact
from nova.runtime.device_executor import DeviceExecutable
from nova.runtime.devices import open_device
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


def sim_contents(first: int = 0, add: int = 0) -> Contents:
    """The chain of `device_samples`, with `add` that only doubles its first operand.

    The kernels read so many bytes behind where they should.
    """
    last = ADD.replace("[b]", "[c]")
    text = COPY.format(name="scale", first=first) + last.format(name="add", first=add)
    return replace(chain_contents(), devices=(DeviceImage("ptx", "sm_80", text.encode()),))


def loaded(contents: Contents) -> Model:
    artifact = read_artifact(write_artifact(contents))
    return Model(DeviceExecutable(artifact, open_device("sim")), "file")
