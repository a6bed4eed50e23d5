"""Which passes and named pipelines exist.

In: a kebab-case name. Out: the pass class behind it, or the function that builds the pipeline.
Called by the pipeline parser and `nova-opt`. Modules load only when their pass is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from nova.passes.base import Pass

# The file of a pass carries its name, with underscores.
PASS_MODULES: dict[str, str] = {
    "bufferize-kernels": "nova.passes.bufferize_kernels",
    "call-device-intrinsics": "nova.passes.call_device_intrinsics",
    "canonicalize-nova": "nova.passes.canonicalize_nova",
    "choose-schedules": "nova.passes.choose_schedules",
    "contract-products": "nova.passes.contract_products",
    "convert-nova-to-linalg": "nova.passes.convert_nova_to_linalg",
    "decompose-composites": "nova.passes.decompose_composites",
    "expand-half": "nova.passes.expand_half",
    "expand-math": "nova.passes.expand_math",
    "export-kernels": "nova.passes.export_kernels",
    "fit-kernels": "nova.passes.fit_kernels",
    "fold-transposes": "nova.passes.fold_transposes",
    "form-attention": "nova.passes.form_attention",
    "form-islands": "nova.passes.form_islands",
    "form-kernels": "nova.passes.form_kernels",
    "fuse-elementwise": "nova.passes.fuse_elementwise",
    "limit-registers": "nova.passes.limit_registers",
    "lower-control-flow": "nova.passes.lower_control_flow",
    "lower-device-kernels": "nova.passes.lower_device_kernels",
    "lower-kernels": "nova.passes.lower_kernels",
    "lower-scatter": "nova.passes.lower_scatter",
    "lower-sort": "nova.passes.lower_sort",
    "make-signless": "nova.passes.make_signless",
    "narrow-attention": "nova.passes.narrow_attention",
    "pack-constants": "nova.passes.pack_constants",
    "pin-control-flow": "nova.passes.pin_control_flow",
    "place-scratch": "nova.passes.place_scratch",
    "plan-tasks": "nova.passes.plan_tasks",
    "plan-workspace": "nova.passes.plan_workspace",
    "relax-math": "nova.passes.relax_math",
    "separate-arguments": "nova.passes.separate_arguments",
    "share-kernels": "nova.passes.share_kernels",
    "share-reciprocals": "nova.passes.share_reciprocals",
    "simplify-stablehlo": "nova.passes.simplify_stablehlo",
    "split-reductions": "nova.passes.split_reductions",
    "strip-host": "nova.passes.strip_host",
    "structure-attention": "nova.passes.structure_attention",
    "structure-tensors": "nova.passes.structure_tensors",
    "unfold-convolutions": "nova.passes.unfold_convolutions",
    "widen-conversions": "nova.passes.widen_conversions",
    "widen-sums": "nova.passes.widen_sums",
}


def load_pass(name: str) -> type[Pass]:
    """The pass class called `name`; KeyError when Nova has none."""
    module = importlib.import_module(PASS_MODULES[name])
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Pass) and vars(value).get("name") == name:
            return value
    raise ImportError(f"{module.__name__} defines no pass named {name!r}")


def named_pipelines() -> dict[str, Callable[..., list[Pass]]]:
    """The named pipelines; keyword arguments of the functions are the pipelines' options."""
    from nova.passes.pipelines import PIPELINES  # imports passes, which import this file's users

    return PIPELINES


def known_names() -> list[str]:
    """Every name that a pipeline text may use, besides MLIR's own."""
    return sorted({*PASS_MODULES, *named_pipelines()})
