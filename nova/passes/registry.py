"""The registry of passes and named pipelines.

Input: a kebab-case name. Output: the pass class, or the function that builds the pipeline. Called
by the pipeline parser and `nova-opt`. The module of a pass loads on first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from nova.passes.base import Pass

# The file of a pass carries its name, with underscores.
PASS_MODULES: dict[str, str] = {
    "allocate-scratch": "nova.passes.cpu.allocate_scratch",
    "apply-fast-math": "nova.passes.math.apply_fast_math",
    "approximate-exp": "nova.passes.gpu.approximate_exp",
    "bufferize-kernels": "nova.passes.kernels.bufferize_kernels",
    "call-device-intrinsics": "nova.passes.gpu.call_device_intrinsics",
    "canonicalize-nova": "nova.passes.tensor.canonicalize_nova",
    "choose-schedules": "nova.passes.cpu.choose_schedules",
    "convert-nova-to-linalg": "nova.passes.tensor.convert_nova_to_linalg",
    "convolve-channels-last": "nova.passes.windows.convolve_channels_last",
    "convolve-overlaps": "nova.passes.windows.convolve_overlaps",
    "convert-tensor-to-linalg": "nova.passes.importing.convert_tensor_to_linalg",
    "decompose-composites": "nova.passes.tensor.decompose_composites",
    "dedup-kernels": "nova.passes.kernels.dedup_kernels",
    "split-complex": "nova.passes.importing.split_complex",
    "drop-annotations": "nova.passes.importing.drop_annotations",
    "drop-host-code": "nova.passes.cpu.drop_host_code",
    "emulate-f16": "nova.passes.cpu.emulate_f16",
    "transpose-f8-operands": "nova.passes.gpu.transpose_f8_operands",
    "expand-f8": "nova.passes.math.expand_f8",
    "expand-chlo": "nova.passes.math.expand_chlo",
    "expand-approx-top-k": "nova.passes.importing.expand_approx_top_k",
    "expand-factorizations": "nova.passes.importing.expand_factorizations",
    "expand-math": "nova.passes.math.expand_math",
    "export-kernels": "nova.passes.cpu.export_kernels",
    "fit-kernels": "nova.passes.kernels.fit_kernels",
    "fold-fills": "nova.passes.tensor.fold_fills",
    "fold-integer-operands": "nova.passes.tensor.fold_integer_operands",
    "fold-single-rows": "nova.passes.tensor.fold_single_rows",
    "fold-transposes": "nova.passes.tensor.fold_transposes",
    "fold-unit-contract-dims": "nova.passes.tensor.fold_unit_contract_dims",
    "form-attention": "nova.passes.tensor.form_attention",
    "form-host-regions": "nova.passes.kernels.form_host_regions",
    "form-kernels": "nova.passes.kernels.form_kernels",
    "fuse-conversions": "nova.passes.tensor.fuse_conversions",
    "fuse-elementwise": "nova.passes.tensor.fuse_elementwise",
    "fuse-multiply-adds": "nova.passes.gpu.fuse_multiply_adds",
    "fuse-launches": "nova.passes.gpu.fuse_launches",
    "guard-atan2": "nova.passes.math.guard_atan2",
    "hoist-regions": "nova.passes.control.hoist_regions",
    "inline-control-flow": "nova.passes.control.inline_control_flow",
    "legalize-conversions": "nova.passes.math.legalize_conversions",
    "lower-control-flow": "nova.passes.importing.lower_control_flow",
    "lower-device-kernels": "nova.passes.gpu.lower_device_kernels",
    "lower-kernels": "nova.passes.cpu.lower_kernels",
    "lower-scans": "nova.passes.importing.lower_scans",
    "lower-scatter": "nova.passes.importing.lower_scatter",
    "lower-select-and-scatter": "nova.passes.importing.lower_select_and_scatter",
    "lower-sort": "nova.passes.importing.lower_sort",
    "make-signless": "nova.passes.importing.make_signless",
    "mark-in-place": "nova.passes.tensor.mark_in_place",
    "fuse-window-matmuls": "nova.passes.windows.fuse_window_matmuls",
    "fuse-windows": "nova.passes.windows.fuse_windows",
    "materialize-pads": "nova.passes.windows.materialize_pads",
    "mark-noalias": "nova.passes.gpu.mark_noalias",
    "mark-unwritten": "nova.passes.gpu.mark_unwritten",
    "merge-contract-dims": "nova.passes.gpu.merge_contract_dims",
    "merge-reductions": "nova.passes.gpu.merge_reductions",
    "narrow-attention": "nova.passes.tensor.narrow_attention",
    "outline-control-flow": "nova.passes.control.outline_control_flow",
    "outline-scans": "nova.passes.importing.outline_scans",
    "pack-constants": "nova.passes.cpu.pack_constants",
    "pack-operands": "nova.passes.cpu.pack_operands",
    "link-persistent-kernel": "nova.passes.gpu.link_persistent_kernel",
    "pair-roundings": "nova.passes.gpu.pair_roundings",
    "pass-tensor-maps": "nova.passes.gpu.pass_tensor_maps",
    "pin-control-flow": "nova.passes.kernels.pin_control_flow",
    "plan-tasks": "nova.passes.kernels.plan_tasks",
    "plan-workspace": "nova.passes.kernels.plan_workspace",
    "raise-counted-loops": "nova.passes.importing.raise_counted_loops",
    "raise-to-contract": "nova.passes.tensor.raise_to_contract",
    "set-launch-bounds": "nova.passes.gpu.set_launch_bounds",
    "share-reciprocals": "nova.passes.math.share_reciprocals",
    "sink-conversions": "nova.passes.tensor.sink_conversions",
    "sink-permutes": "nova.passes.windows.sink_permutes",
    "simplify-stablehlo": "nova.passes.importing.simplify_stablehlo",
    "split-reductions": "nova.passes.tensor.split_reductions",
    "trim-windows": "nova.passes.importing.trim_windows",
    "unfold-convolutions": "nova.passes.importing.unfold_convolutions",
    "unpack-attention": "nova.passes.kernels.unpack_attention",
    "widen-sums": "nova.passes.importing.widen_sums",
    "wrap-attention": "nova.passes.tensor.wrap_attention",
}

# Names of format 4 and before: pipelines written with them still run.
ALIASES: dict[str, str] = {
    "contract-products": "raise-to-contract",
    "expand-half": "emulate-f16",
    "form-islands": "form-host-regions",
    "limit-registers": "set-launch-bounds",
    "place-scratch": "allocate-scratch",
    "relax-math": "apply-fast-math",
    "separate-arguments": "mark-noalias",
    "share-kernels": "dedup-kernels",
    "strip-host": "drop-host-code",
    "structure-attention": "wrap-attention",
    "structure-tensors": "convert-tensor-to-linalg",
    "widen-conversions": "legalize-conversions",
}


def load_pass(name: str) -> type[Pass]:
    """The pass class called `name`; KeyError when Nova has none."""
    name = ALIASES.get(name, name)
    module = importlib.import_module(PASS_MODULES[name])
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Pass) and vars(value).get("name") == name:
            return value
    raise ImportError(f"{module.__name__} defines no pass named {name!r}")


def named_pipelines() -> dict[str, Callable[..., list[Pass]]]:
    """The named pipelines; keyword arguments of the functions are the pipelines' options."""
    from nova.passes.pipelines import PIPELINES  # imports passes, which import this file's users

    return PIPELINES


def is_pass(name: str) -> bool:
    """Whether a name, or an alias, is that of a pass."""
    return name in PASS_MODULES or name in ALIASES


def known_names() -> list[str]:
    """Every name that a pipeline text may use, besides MLIR's own."""
    return sorted({*PASS_MODULES, *ALIASES, *named_pipelines()})
