"""The road from the nova dialect to LLVM, as data: each named pipeline is a list of passes.

Read from top to bottom; a comment stands only where the order matters.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.passes.base import Pass, UpstreamPass
from nova.passes.bufferize_kernels import BufferizeKernels
from nova.passes.canonicalize_nova import CanonicalizeNova
from nova.passes.convert_nova_to_linalg import ConvertNovaToLinalg
from nova.passes.decompose_composites import DecomposeComposites
from nova.passes.expand_half import ExpandHalf
from nova.passes.expand_math import ExpandMath
from nova.passes.export_kernels import ExportKernels
from nova.passes.fold_transposes import FoldTransposes
from nova.passes.form_kernels import FormKernels
from nova.passes.lower_kernels import LowerKernels
from nova.passes.plan_workspace import PlanWorkspace
from nova.passes.relax_math import RelaxMath
from nova.passes.share_kernels import ShareKernels
from nova.passes.strip_host import StripHost
from nova.passes.widen_conversions import WidenConversions
from nova.targets import parse_target


def nova_to_linalg() -> list[Pass]:
    """The nova dialect to fused linalg on tensors."""
    return [
        DecomposeComposites(),
        # Forward and backward expand the same composites: what they share is merged here.
        UpstreamPass("cse"),
        CanonicalizeNova(),
        UpstreamPass("cse"),
        ConvertNovaToLinalg(),
        *linalg_fusion(),
    ]


def linalg_fusion() -> list[Pass]:
    """Elementwise fusion; imported linalg programs join here."""
    return [
        UpstreamPass("canonicalize,cse"),
        # Before fusion, which would make a transpose part of other elementwise work.
        FoldTransposes(),
        UpstreamPass("linalg-fuse-elementwise-ops"),
        # After fusion: before it, the reshapes around unit dimensions would get in the way.
        UpstreamPass("linalg-fold-unit-extent-dims,canonicalize,cse"),
        UpstreamPass("linalg-generalize-named-ops"),
    ]


def linalg_to_kernels(serial_work: int = 20_000) -> list[Pass]:
    """Linalg on tensors to kernel functions and a main that calls them."""
    return [FormKernels(serial_work)]


def kernels_to_buffers() -> list[Pass]:
    """Kernels to destination passing over one planned workspace."""
    return [BufferizeKernels(), PlanWorkspace(), ShareKernels()]


def buffers_to_loops(target: str = "cpu", tile_work: int = 65_536) -> list[Pass]:
    """Kernels to loops over their tiles, by the target's schedules."""
    return [LowerKernels(target, tile_work), UpstreamPass("canonicalize,cse")]


def loops_to_llvm(target: str = "cpu", fast_math: bool = False) -> list[Pass]:
    """Kernels to the LLVM dialect; main has become tables by now and is dropped."""
    machine = parse_target(target)
    return [
        StripHost(),
        # Before expand-math: its functions depend on exact rounding.
        *([RelaxMath()] if fast_math else []),
        ExpandMath(native_rounding=machine.native_rounding),
        WidenConversions(),
        *([] if machine.has_f16c else [ExpandHalf()]),
        UpstreamPass("cse"),
        UpstreamPass("convert-vector-to-scf,convert-scf-to-cf"),
        UpstreamPass("expand-strided-metadata,lower-affine"),
        # bf16 conversions by integer arithmetic: LLVM would call a library for them.
        UpstreamPass("arith-expand{include-bf16=true}"),
        UpstreamPass(
            "convert-vector-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,"
            "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},"
            "finalize-memref-to-llvm,convert-cf-to-llvm,convert-index-to-llvm,"
            "reconcile-unrealized-casts"
        ),
        ExportKernels(vector_bits=machine.vector_bits),
    ]


PIPELINES: dict[str, Callable[..., list[Pass]]] = {
    "nova-to-linalg": nova_to_linalg,
    "linalg-fusion": linalg_fusion,
    "linalg-to-kernels": linalg_to_kernels,
    "kernels-to-buffers": kernels_to_buffers,
    "buffers-to-loops": buffers_to_loops,
    "loops-to-llvm": loops_to_llvm,
}
