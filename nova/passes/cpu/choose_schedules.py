"""`choose-schedules`: attaches schedule overrides to kernels."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, ClassVar

from nova.codegen.common.overrides import parse_overrides, write_overrides
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.context import print_op
from nova.ir.walk import kernels
from nova.passes.base import Pass

_DIGITS = 12


@record
class ChooseSchedules(Pass):
    """Attach overrides to kernels as the attribute `nova.schedule`, which lower-kernels follows.

    `schedules` has words such as `3f09ac41b2d7:mr=6:nv=2`: the digest of a kernel's text at the
    stage `buffers`, and its overrides. A digest that matches no kernel belongs to a kernel that the
    program had when it was tuned, and is ignored.
    """

    name: ClassVar[str] = "choose-schedules"
    schedules: tuple[str, ...] = ()

    def run(self, module: ir.Module) -> None:
        chosen = {}
        for word in self.schedules:
            digest, _, text = word.partition(":")
            chosen[digest] = parse_overrides(text)
        if not chosen:
            return
        for kernel in kernels(module):
            overrides = chosen.get(kernel_digest(kernel))
            if overrides is not None:
                write_overrides(kernel, overrides)


def kernel_digest(kernel: Any) -> str:
    """Identifies a kernel whatever its name: a hash of the kernel's text."""
    name = kernel.name.value
    text = print_op(kernel.operation).replace(f"@{name}(", "@(", 1)
    return sha256(text.encode()).hexdigest()[:_DIGITS]
