"""The pipelines from the nova dialect to LLVM, as data: each named pipeline is a list of passes.

Read from top to bottom; a comment appears only where the order matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nova.core.targets import llvm_cpu, parse_target
from nova.passes.base import Pass, UpstreamPass
from nova.passes.control.hoist_regions import HoistRegions
from nova.passes.control.inline_control_flow import InlineControlFlow
from nova.passes.control.outline_control_flow import OutlineControlFlow
from nova.passes.cpu.allocate_scratch import AllocateScratch
from nova.passes.cpu.choose_schedules import ChooseSchedules
from nova.passes.cpu.drop_host_code import DropHostCode
from nova.passes.cpu.emulate_f16 import EmulateF16
from nova.passes.cpu.export_kernels import ExportKernels
from nova.passes.cpu.lower_kernels import LowerKernels
from nova.passes.cpu.pack_constants import PackConstants
from nova.passes.cpu.pack_operands import PackOperands
from nova.passes.gpu.approximate_exp import ApproximateExp
from nova.passes.gpu.call_device_intrinsics import CallDeviceIntrinsics
from nova.passes.gpu.fuse_launches import FuseLaunches
from nova.passes.gpu.fuse_multiply_adds import FuseMultiplyAdds
from nova.passes.gpu.link_persistent_kernel import LinkPersistentKernel
from nova.passes.gpu.lower_device_kernels import LowerDeviceKernels
from nova.passes.gpu.mark_noalias import MarkNoalias
from nova.passes.gpu.mark_unwritten import MarkUnwritten
from nova.passes.gpu.merge_contract_dims import MergeContractDims
from nova.passes.gpu.merge_reductions import MergeReductions
from nova.passes.gpu.pair_roundings import PairRoundings
from nova.passes.gpu.pass_tensor_maps import PassTensorMaps
from nova.passes.gpu.set_launch_bounds import SetLaunchBounds
from nova.passes.gpu.transpose_f8_operands import TransposeF8Operands
from nova.passes.importing.convert_tensor_to_linalg import ConvertTensorToLinalg
from nova.passes.importing.drop_annotations import DropAnnotations
from nova.passes.importing.expand_approx_top_k import ExpandApproxTopK
from nova.passes.importing.expand_factorizations import ExpandFactorizations
from nova.passes.importing.lower_control_flow import LowerControlFlow
from nova.passes.importing.lower_scans import LowerScans
from nova.passes.importing.lower_scatter import LowerScatter
from nova.passes.importing.lower_select_and_scatter import LowerSelectAndScatter
from nova.passes.importing.lower_sort import LowerSort
from nova.passes.importing.make_signless import MakeSignless
from nova.passes.importing.outline_scans import OutlineScans
from nova.passes.importing.raise_counted_loops import RaiseCountedLoops
from nova.passes.importing.simplify_stablehlo import SimplifyStablehlo
from nova.passes.importing.split_complex import SplitComplex
from nova.passes.importing.trim_windows import TrimWindows
from nova.passes.importing.unfold_convolutions import UnfoldConvolutions
from nova.passes.importing.widen_sums import WidenSums
from nova.passes.kernels.bufferize_kernels import BufferizeKernels
from nova.passes.kernels.dedup_kernels import DedupKernels
from nova.passes.kernels.fit_kernels import FitKernels
from nova.passes.kernels.form_host_regions import FormHostRegions
from nova.passes.kernels.form_kernels import FormKernels
from nova.passes.kernels.pin_control_flow import PinControlFlow
from nova.passes.kernels.plan_tasks import PlanTasks
from nova.passes.kernels.plan_workspace import PlanWorkspace
from nova.passes.kernels.unpack_attention import UnpackAttention
from nova.passes.math.apply_fast_math import ApplyFastMath
from nova.passes.math.expand_chlo import ExpandChlo
from nova.passes.math.expand_f8 import ExpandF8
from nova.passes.math.expand_math import ExpandMath
from nova.passes.math.guard_atan2 import GuardAtan2
from nova.passes.math.legalize_conversions import LegalizeConversions
from nova.passes.math.share_reciprocals import ShareReciprocals
from nova.passes.tensor.canonicalize_nova import CanonicalizeNova
from nova.passes.tensor.convert_nova_to_linalg import ConvertNovaToLinalg
from nova.passes.tensor.decompose_composites import DecomposeComposites
from nova.passes.tensor.fold_fills import FoldFills
from nova.passes.tensor.fold_integer_operands import FoldIntegerOperands
from nova.passes.tensor.fold_single_rows import FoldSingleRows
from nova.passes.tensor.fold_transposes import FoldTransposes
from nova.passes.tensor.fold_unit_contract_dims import FoldUnitContractDims
from nova.passes.tensor.form_attention import FormAttention
from nova.passes.tensor.fuse_conversions import FuseConversions
from nova.passes.tensor.fuse_elementwise import FuseElementwise
from nova.passes.tensor.mark_in_place import MarkInPlace
from nova.passes.tensor.narrow_attention import NarrowAttention
from nova.passes.tensor.raise_to_contract import RaiseToContract
from nova.passes.tensor.sink_conversions import SinkConversions
from nova.passes.tensor.split_reductions import SplitReductions
from nova.passes.tensor.wrap_attention import WrapAttention
from nova.passes.windows.convolve_channels_last import ConvolveChannelsLast
from nova.passes.windows.convolve_overlaps import ConvolveOverlaps
from nova.passes.windows.fuse_window_matmuls import FuseWindowMatmuls
from nova.passes.windows.fuse_windows import FuseWindows
from nova.passes.windows.materialize_pads import MaterializePads

# Reductions that CPUs compute in parts: those long enough for several cores.
_LONG_SUM, _LONG_PRODUCT, _LEAST_PART, _CORES = 1 << 19, 1 << 15, 4_096, 64

# Steps of k from which devices compute a matmul with few tiles in parts: the gradients of weights
# of convolutions, which are sums over all positions of all images.
_LONG_DEVICE_PRODUCT = 1 << 15

# Shorter matmuls, if they have so few tiles that their parts occupy more cores.
_FEW_TILES, _FEW_TILES_DEPTH, _FEW_TILES_PART = 16, 1 << 13, 2_048

# Bytes of workspace that independent kernels of a device may have to themselves: a part of its L2
# cache. They run concurrently where that gains.
_DEVICE_SPARE = 16 << 20

# Elements of a slice that one block of a device writes as fast as many write all of the tensor.
_BLOCK_SLICE = 1 << 14

# Calls of one math function in a code unit: models have a few dozen kernels in all.
_NARROW = ("bf16", "f16", "f8E4M3FN", "f8E5M2")
_MOST_INLINED = 64
_VIEWS = ("memref.subview", "memref.expand_", "memref.collapse_", "memref.extract_")


def nova_to_linalg(attention: bool = True, host_regions: bool = False) -> list[Pass]:
    """The nova dialect to fused linalg on tensors; `attention` keeps attention ops whole.

    With `host_regions`, for a device, ops that are pinned to the host become separate host regions.
    """
    return [
        *control_flow(),
        # First: no other pass has to know about host-pinned ops.
        FormHostRegions(host_regions),
        DecomposeComposites(keep_whole=attention, cpu=not host_regions),
        # Forward and backward expand the same composites: their common ops are merged here.
        UpstreamPass("cse"),
        CanonicalizeNova(),
        UpstreamPass("cse"),
        # Forward and backward have the same operands at this point.
        *([FormAttention(pack=host_regions), UpstreamPass("cse")] if attention else []),
        # After reshapes are merged, and before overlapping sums are loops.
        ConvolveChannelsLast() if host_regions else ConvolveOverlaps(),
        UpstreamPass("cse"),
        MarkInPlace(_BLOCK_SLICE if host_regions else None),
        ConvertNovaToLinalg(bytes_as_bf16=host_regions),
        GuardAtan2(),
        *([] if host_regions else [TrimWindows()]),
        *linalg_fusion(sink_conversions=host_regions, keep_pads=not host_regions),
        WrapAttention(),
    ]


def control_flow() -> list[Pass]:
    """Loops and branches to programs of their own, simplified first."""
    return [UpstreamPass("canonicalize,cse", signs=("scf.",)), OutlineControlFlow()]


def stablehlo_to_linalg() -> list[Pass]:
    """StableHLO to fused linalg on tensors."""
    return [*legalize_stablehlo(), *import_linalg()]


def legalize_stablehlo() -> list[Pass]:
    """StableHLO to linalg as other compilers write it."""
    return [
        # jax writes functions that other compilers have built in as composites.
        UpstreamPass("func.func(stablehlo-legalize-composite-to-call)", signs=("composite",)),
        UpstreamPass("inline,symbol-dce"),
        DropAnnotations(),
        ExpandApproxTopK(),
        ExpandFactorizations(),
        # Before other conversions, which know little of complex numbers.
        SplitComplex(),
        ExpandChlo(),
        UpstreamPass("func.func(chlo-legalize-to-stablehlo)", signs=("chlo.",)),
        SimplifyStablehlo(),
        OutlineScans(),
        RaiseCountedLoops(),
        GuardAtan2(),
        UpstreamPass("stablehlo-legalize-to-linalg,canonicalize,cse"),
        # The ops that upstream does not lower: their regions are linalg at this point.
        LowerScans(),
        LowerScatter(),
        LowerSelectAndScatter(),
        LowerSort(),
        LowerControlFlow(),
    ]


def tosa_to_linalg() -> list[Pass]:
    """TOSA to fused linalg on tensors."""
    return [*legalize_tosa(), *import_linalg()]


def legalize_tosa() -> list[Pass]:
    """TOSA to linalg as other compilers write it."""
    return [
        UpstreamPass("inline,symbol-dce"),
        UpstreamPass("func.func(tosa-infer-shapes,tosa-make-broadcastable)"),
        # Loops first: their bodies are converted with the rest.
        UpstreamPass("tosa-to-scf"),
        UpstreamPass("func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith,tosa-to-tensor)"),
    ]


def leaves_clean(passes: Sequence[Pass]) -> bool:
    """Whether the last pass of a legalization has inlined, canonicalized and merged all ops."""
    last = passes[-1] if passes else None
    return isinstance(last, UpstreamPass) and last.text.endswith(",canonicalize,cse")


def import_linalg(is_clean: bool = False) -> list[Pass]:
    """Linalg as other compilers write it to the form that later stages expect, fused.

    A module that `is_clean` is not cleaned up first: see `leaves_clean`.
    """
    return [
        SplitComplex(),
        GuardAtan2(),
        MakeSignless(),
        # Before canonicalization, which folds them as if they moved nothing.
        ConvertTensorToLinalg(shifts=True),
        *([] if is_clean else [UpstreamPass("inline,symbol-dce,canonicalize,cse")]),
        OutlineControlFlow(),
        ConvertTensorToLinalg(),
        UpstreamPass("convert-elementwise-to-linalg"),
        UpstreamPass("linalg-generalize-named-ops"),
        TrimWindows(),
        UnfoldConvolutions(),
        RaiseToContract(),
        WidenSums(),
        # Kernels compute in f32 and f64; after matmuls and sums, which are rounded once.
        UpstreamPass(
            f"arith-emulate-unsupported-floats{{source-types={','.join(_NARROW)} target-type=f32}}",
            signs=_NARROW,
        ),
        UpstreamPass(
            "math-extend-to-supported-types{extra-types=f64 target-type=f32}", signs=_NARROW
        ),
        # Before fusion, which does not fuse a fill with several users.
        FoldFills(),
        *linalg_fusion(fold_batches=True),
        # After it, which moves reshapes of matmuls to their destinations.
        FoldFills(),
    ]


def linalg_fusion(
    sink_conversions: bool = False, keep_pads: bool = False, fold_batches: bool = False
) -> list[Pass]:
    """Elementwise fusion; with `sink_conversions`, for a device, 16-bit floats are stored.

    With `keep_pads`, for a CPU, the paddings of convolutions are written to memory. With
    `fold_batches`, a batch of one matrix is a matrix, as it always is for a device.
    """
    return [
        UpstreamPass("canonicalize,cse"),
        # After CSE, which would merge the copies, and before fusion, which needs them.
        *([SinkConversions()] if sink_conversions else []),
        # Before fusion, which would merge a transpose into other elementwise ops.
        FoldTransposes(),
        FoldIntegerOperands(),
        FuseElementwise(keep_pads=keep_pads, keep_windows=sink_conversions),
        # After fusion, which would take a fill away from the copy that does not read it.
        *([MaterializePads(), FuseWindows()] if keep_pads else []),
        # Before unit dims of other ops are folded: reshapes between both cancel each other.
        *([FoldUnitContractDims()] if sink_conversions or fold_batches else []),
        *([FoldSingleRows(), MergeContractDims()] if sink_conversions else []),
        # After fusion: before it, the reshapes around unit dimensions would prevent fusion.
        UpstreamPass("linalg-fold-unit-extent-dims,canonicalize,cse"),
        # After unit dimensions, whose reshapes are between both ops, are folded.
        *([FuseConversions()] if sink_conversions else []),
        UpstreamPass("linalg-generalize-named-ops"),
        *(_implicit_matmuls() if keep_pads else []),
    ]


def _implicit_matmuls() -> list[Pass]:
    """Convolutions without copies of windows; at the end of fusion, which needs the copies."""
    return [FuseWindowMatmuls(), UpstreamPass("linalg-generalize-named-ops,canonicalize,cse")]


def linalg_to_kernels(serial_work: int = 20_000, max_workspace: int | None = None) -> list[Pass]:
    """Linalg on tensors to kernel functions and a main that calls them."""
    return [
        SplitReductions(_LONG_SUM, _CORES, _LEAST_PART, _LONG_PRODUCT, _LEAST_PART),
        SplitReductions(_LONG_SUM, _FEW_TILES, _LEAST_PART, _FEW_TILES_DEPTH, _FEW_TILES_PART),
        _form_kernels(serial_work, max_workspace, share_rows=True),
        # Here as well: later passes then process each kernel of a repeated layer once.
        DedupKernels(),
    ]


def linalg_to_device_kernels(
    serial_work: int = 20_000, max_workspace: int | None = None
) -> list[Pass]:
    """Like `linalg_to_kernels` for a device, where every GEMM is a kernel over rows and columns."""
    form_kernels = _form_kernels(serial_work, max_workspace, share_rows=False)
    return [
        InlineControlFlow(),
        NarrowAttention(),
        SplitReductions(depth=_LONG_DEVICE_PRODUCT),
        # Reductions of one tensor in parts have equal reshapes of it, and can be merged.
        UpstreamPass("cse", signs=("tensor.expand_shape",)),
        MergeReductions(),
        # After fusion, which would fold the copies into the matmuls again.
        TransposeF8Operands(),
        form_kernels,
        # As for CPUs: later passes then process each kernel of a repeated layer once.
        DedupKernels(),
    ]


def _form_kernels(serial_work: int, max_workspace: int | None, *, share_rows: bool) -> Pass:
    if max_workspace is None:
        return FormKernels(serial_work, share_rows=share_rows)
    return FitKernels(serial_work, max_workspace=max_workspace, share_rows=share_rows)


def kernels_to_buffers(max_workspace: int | None = None) -> list[Pass]:
    """Kernels to destination passing over one planned workspace."""
    # Regions are planned before the programs that run them, in whose workspace they are.
    return [BufferizeKernels(), PlanWorkspace(max_workspace), HoistRegions(), DedupKernels()]


def kernels_to_device_buffers(max_workspace: int | None = None) -> list[Pass]:
    """Like `kernels_to_buffers` for a device: unsupported control flow goes to the host."""
    # After bufferization, which shows the memory that loops and branches need.
    # Loops that are inlined read values again: nothing is overwritten for them.
    plan = PlanWorkspace(max_workspace, overwrite=False, spare=_DEVICE_SPARE, on_device=True)
    return [
        BufferizeKernels(),
        UnpackAttention(),
        PinControlFlow(),
        plan,
        HoistRegions(),
        DedupKernels(),
        # After it: what one of several equal kernels reads may be written.
        MarkUnwritten(),
    ]


def buffers_to_loops(
    target: str = "cpu",
    tile_work: int = 65_536,
    task_ns: int = 50_000,
    schedules: tuple[str, ...] = (),
    share_panels: bool = True,
    cores: int = 1,
    winograd: str = "auto",
) -> list[Pass]:
    """Kernels to loops over their tiles, by the target's schedules, and tiles to tasks.

    `share_panels` allows for a larger workspace, with packed operands of matmuls. `cores` are those
    of the machine, where they are many. `winograd` is the knob of that name.
    """
    return [
        *([ChooseSchedules(schedules)] if schedules else []),
        # After the schedule overrides, which decide the layout of panels.
        PackConstants(target, tile_work, winograd),
        # After it: a constant is packed by the compiler.
        *([PackOperands(target, tile_work, cores, winograd)] if share_panels else []),
        LowerKernels(target, tile_work),
        *tidy_loops(),
        PlanTasks(task_ns),
    ]


def tidy_loops() -> list[Pass]:
    """Cleanup of every kernel function once it is written as loops, and only of those."""
    return [UpstreamPass("canonicalize,cse")]


def loops_to_llvm(target: str = "cpu", fast_math: bool = False) -> list[Pass]:
    """Kernels to the LLVM dialect; main has become tables at this point and is dropped."""
    machine = parse_target(target)
    return [
        DropHostCode(),
        AllocateScratch(),
        # Before expand-math: its functions depend on exact rounding.
        *([ApplyFastMath()] if fast_math else []),
        ExpandMath(
            native_rounding=machine.native_rounding,
            native_scale=machine.native_scale,
            max_inlined=_MOST_INLINED,
        ),
        LegalizeConversions(),
        ExpandF8(),
        *([] if machine.has_f16c else [EmulateF16()]),
        UpstreamPass("loop-invariant-code-motion,cse"),
        UpstreamPass("convert-vector-to-scf", signs=("vector.transfer_",)),
        UpstreamPass("convert-scf-to-cf"),
        UpstreamPass("expand-strided-metadata", signs=_VIEWS),
        UpstreamPass("lower-affine"),
        # bf16 conversions by integer arithmetic: LLVM would call a library for them.
        UpstreamPass("arith-expand{include-bf16=true}"),
        UpstreamPass(
            "convert-vector-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},"
            # In a single conversion: one per dialect takes nearly twice as long.
            "convert-to-llvm{filter-dialects=arith,cf,index,math,memref,ub},"
            "reconcile-unrealized-casts"
        ),
        # The memref descriptors fold away here, and need not be printed and parsed.
        UpstreamPass("canonicalize{max-iterations=1 region-simplify=disabled top-down=true},cse"),
        UpstreamPass("canonicalize{max-iterations=1 region-simplify=disabled top-down=true}"),
        ExportKernels(vector_bits=machine.vector_bits, tune=llvm_cpu(machine)),
    ]


def buffers_to_device(
    target: str = "cuda:sm_80",
    tf32: bool = False,
    gpu_gemm: str = "auto",
    gpu_attention: str = "auto",
    matmul_precision: str = "highest",
    launch: str = "graph",
) -> list[Pass]:
    """Kernels to launches on a device, by the target's schedules."""
    return [
        LowerDeviceKernels(target, tf32, gpu_gemm, gpu_attention, matmul_precision, launch),
        # Tasks of a persistent kernel run concurrently anyway.
        *([FuseLaunches()] if launch == "graph" else []),
        UpstreamPass("any(canonicalize,cse)", parallel=True),
    ]


def device_to_outlined() -> list[Pass]:
    """Launches to device functions in separate modules, and calls of them."""
    return [
        UpstreamPass("gpu-launch-sink-index-computations,gpu-kernel-outlining"),
        SetLaunchBounds(),
    ]


def outlined_to_nvvm(
    fast_math: bool = False, launch: str = "graph", target: str = "cuda:sm_80"
) -> list[Pass]:
    """Device functions to the LLVM and NVVM dialects."""
    return [
        *([ApplyFastMath()] if fast_math else []),
        ApproximateExp(),
        FuseMultiplyAdds(),
        ExpandMath(native_exp2=True),
        ShareReciprocals(),
        LegalizeConversions(),
        ExpandF8(target),
        PairRoundings(),
        CallDeviceIntrinsics(),
        UpstreamPass("cse"),
        MarkNoalias(),
        UpstreamPass(
            "gpu.module(arith-expand{include-bf16=true},convert-vector-to-scf,convert-scf-to-cf,"
            "expand-strided-metadata,lower-affine,"
            "convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=true},convert-vector-to-llvm,"
            "convert-arith-to-llvm,convert-index-to-llvm,reconcile-unrealized-casts)",
            parallel=True,
        ),
        PassTensorMaps(),
        *([LinkPersistentKernel()] if launch == "persistent" else []),
    ]


PIPELINES: dict[str, Callable[..., list[Pass]]] = {
    "nova-to-linalg": nova_to_linalg,
    "stablehlo-to-linalg": stablehlo_to_linalg,
    "tosa-to-linalg": tosa_to_linalg,
    "import-linalg": import_linalg,
    "linalg-fusion": linalg_fusion,
    "linalg-to-kernels": linalg_to_kernels,
    "linalg-to-device-kernels": linalg_to_device_kernels,
    "kernels-to-buffers": kernels_to_buffers,
    "kernels-to-device-buffers": kernels_to_device_buffers,
    "buffers-to-loops": buffers_to_loops,
    "loops-to-llvm": loops_to_llvm,
    "buffers-to-device": buffers_to_device,
    "device-to-outlined": device_to_outlined,
    "outlined-to-nvvm": outlined_to_nvvm,
}
