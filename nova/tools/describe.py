"""The description of a `.nova` file, as plain data.

An opened artifact comes in, a dictionary of JSON values goes out: the answer of `nova inspect
--json`, and what `nova run` and `nova cache` show parts of. Nothing in the file is executed or
mapped. All that the commands know about the format is in this module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from math import prod
from typing import Any

from nova import knobs
from nova.artifact.choose_target import explain_variant, find_device, find_variant
from nova.artifact.format import Artifact, load_artifact
from nova.artifact.manifest import TensorSpec, VariantSpec
from nova.artifact.sign import KEY_BYTES, check_trust, is_signed
from nova.artifact.symbolic import SymbolicShapes, unpack_symbolic
from nova.artifact.tables import Tables, TaskSpec
from nova.artifact.task_plan import plan_device_tasks, plan_tasks
from nova.artifact.tile_waits import tile_waits
from nova.core.dtypes import array_dtype
from nova.core.sizes import Dim, Size, SizeExpr
from nova.errors import ArtifactError, TrustError

# Compute capabilities of the GPUs that are around: which code would they take?
_CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
# The schedule overrides of a kernel, and which of its arguments are packed constants.
_KERNEL = r"^ *func\.func private @(\w+)\("
_SCHEDULE = re.compile(_KERNEL + r".*nova\.schedule = \{([^}]*)\}", re.MULTILINE)
_PACKED = re.compile(_KERNEL + r".*nova\.packed = \[((?:array<[^>]*>(?:, )?)*)\]", re.MULTILINE)


def open_trusted(path: str) -> Artifact:
    """A file after every check of the loader, also that of its signature; nothing is mapped."""
    artifact = load_artifact(path)
    try:
        check_trust(artifact.file.digest, artifact.file.signature)
    except ArtifactError as error:
        raise error.located(path) from None
    return artifact


def describe(artifact: Artifact) -> dict[str, Any]:
    """Everything there is to know about a file."""
    manifest = artifact.manifest
    return {
        "format": manifest.format_version,
        "producer": manifest.producer,
        "nbytes": len(artifact.data),
        "sha256": sha256(artifact.data).hexdigest(),
        "arch": manifest.arch,
        "signed": describe_signer(artifact),
        "dims": [asdict(dim) for dim in describe_dims(artifact)],
        "signature": describe_signature(artifact),
        "chosen": describe_choice(artifact),
        "variants": describe_variants(artifact),
        "weights": _weights(artifact),
        "devices": describe_devices(artifact),
        "sections": _sections(artifact),
        "symbols": sorted(artifact.file.symbols),
        "stages": list(artifact.stages()),
        "source": manifest.source,
        "key": dict(manifest.key),
    }


def describe_dims(artifact: Artifact) -> tuple[Dim, ...]:
    """The dims of a program with symbolic sizes."""
    symbolic = _symbolic(artifact)
    return () if symbolic is None else symbolic.dims


def describe_signature(artifact: Artifact) -> list[dict[str, Any]]:
    """Arguments in the order of a call, then results; a symbolic size is a text."""
    manifest = artifact.manifest
    specs = (*manifest.args, *manifest.outputs)
    return [_tensor(*pair) for pair in zip(specs, _shapes(artifact), strict=True)]


def signature_text(artifact: Artifact) -> str:
    """The signature on one line."""
    texts = [_type_text(t["dtype"], t["shape"]) for t in describe_signature(artifact)]
    args = artifact.manifest.args
    arguments = ", ".join(f"{a.name}: {text}" for a, text in zip(args, texts, strict=False))
    return f"({arguments}) -> ({', '.join(texts[len(args) :])})"


def _symbolic(artifact: Artifact) -> SymbolicShapes | None:
    blocks = map(artifact.file.symbolic, range(len(artifact.manifest.variants)))
    block = next((block for block in blocks if block is not None), None)
    return None if block is None else unpack_symbolic(block)


def _shapes(artifact: Artifact) -> list[tuple[Size, ...]]:
    """The shapes of arguments and results, with symbolic sizes."""
    manifest, symbolic = artifact.manifest, _symbolic(artifact)
    specs = (*manifest.args, *manifest.outputs)
    if symbolic is None:
        return [tuple(spec.shape) for spec in specs]
    extents = iter(symbolic.extents)
    return [tuple(next(extents) for _ in spec.shape) for spec in specs]


def _representatives(artifact: Artifact) -> dict[str, int]:
    """The sizes of the dims for which the numbers of the tables are."""
    return {
        size.symbol.name: number
        for spec, shape in zip(artifact.manifest.args, _shapes(artifact), strict=False)
        for size, number in zip(shape, spec.shape, strict=True)
        if isinstance(size, SizeExpr) and size.symbol is not None
    }


def describe_choice(artifact: Artifact) -> dict[str, Any]:
    """Which of the variants this machine takes, None when none fits, and why."""
    number = find_variant(artifact)
    return {"variant": number, "why": explain_variant(artifact, number)}


def describe_signer(artifact: Artifact) -> dict[str, Any] | None:
    """The public key that the file is signed with, and whether the signature is that key's.

    `valid` is None if the package `cryptography`, which checks it, is not installed.
    """
    signature = artifact.file.signature
    if signature is None:
        return None
    try:
        valid = is_signed(artifact.file.digest, signature)
    except TrustError:
        valid = None
    return {"key": signature[:KEY_BYTES].hex(), "valid": valid}


def describe_variants(artifact: Artifact) -> list[dict[str, Any]]:
    """The code in the file, best first: the CPU features it needs, and its kernels."""
    return [_variant(artifact, n, spec) for n, spec in enumerate(artifact.manifest.variants)]


def describe_devices(artifact: Artifact) -> list[dict[str, Any]]:
    """The device code in the file: whose kernels it holds, and which devices would take it."""
    manifest = artifact.manifest
    kernels = {
        spec.cpu: artifact.tables(n).device_symbols
        for n, spec in enumerate(manifest.variants)
        if spec.is_device
    }
    chosen_by: dict[int, list[str]] = {}
    for major, minor in _CAPABILITIES:
        choice = find_device(artifact, major, minor)
        if choice is not None:
            chosen_by.setdefault(choice.image, []).append(f"{major}.{minor}")
    return [
        {
            **asdict(device),
            "kernels": kernels.get(device.arch, []),
            "taken_by": chosen_by.get(n, []),
        }
        for n, device in enumerate(manifest.devices)
    ]


def _variant(artifact: Artifact, number: int, spec: VariantSpec) -> dict[str, Any]:
    tables, loops = artifact.tables(number), _loops(artifact, spec.target)
    threads = knobs.get("threads")
    on_device = any(kernel.device is not None for kernel in tables.kernels)
    tasks = plan_device_tasks(tables) if on_device else plan_tasks(tables, threads)
    missing = artifact.file.missing(number)
    launched = Counter(launch.kernel for launch in tables.launches)
    kernels = [
        {**asdict(kernel), "launches": launched[number]}
        for number, kernel in enumerate(tables.kernels)
    ]
    return {
        "target": spec.target,
        "cpu": spec.cpu,
        "features": list(spec.features),
        "fits": not missing,
        "missing": missing.split(", ") if missing else [],
        "representative": _representatives(artifact),
        "specialized": [list(sizes) for sizes, _ in artifact.file.specialized(number)],
        "workspace": tables.workspace_size,
        "constants": spec.constants[1],
        "flops": sum(kernel["flops"] * kernel["launches"] for kernel in kernels),
        "bytes": sum(kernel["bytes"] * kernel["launches"] for kernel in kernels),
        "kernels": kernels,
        "launches": [asdict(launch) for launch in tables.launches],
        "buffers": [asdict(buffer) for buffer in tables.buffers],
        "threads": threads,
        "tasks": [asdict(task) for task in tasks],
        "task_graph": _task_graph(tasks),
        "dependences": _dependences(tables) if on_device else [],
        "launch": (launch := str(spec.options.get("launch", "graph")) if on_device else ""),
        "tile_waits": [asdict(w) for w in tile_waits(tables)] if launch == "persistent" else [],
        "options": dict(sorted(spec.options.items())),
        "schedules": dict(_SCHEDULE.findall(loops)),
        "packed": dict(_PACKED.findall(loops)),
    }


def _loops(artifact: Artifact, target: str) -> str:
    """The text of the kernels of a variant, which has their schedules."""
    stages = artifact.stages()
    return stages.get(f"loops@{target}", stages.get("loops", ""))


def _dependences(tables: Tables) -> list[tuple[int, int]]:
    """The launches of a device that wait for others, which are named first."""
    tasks = plan_device_tasks(tables, 1)
    return [(task.launch, tasks[after].launch) for task in tasks for after in task.successors]


def _task_graph(tasks: Sequence[TaskSpec]) -> dict[str, int]:
    """How large and how wide the task graph is; a level holds tasks that wait for no other in it.

    Tasks without tiles only join others: they are tasks, but nothing runs concurrently in them.
    """
    levels = [0] * len(tasks)
    width: Counter[int] = Counter()
    for number, task in enumerate(tasks):
        width[levels[number]] += task.begin < task.end
        for successor in task.successors:
            levels[successor] = max(levels[successor], levels[number] + 1)
    return {
        "tasks": len(tasks),
        "edges": sum(len(task.successors) for task in tasks),
        "levels": len(set(levels)),
        "widest": max(width.values(), default=0),
    }


def _tensor(spec: TensorSpec, shape: tuple[Size, ...]) -> dict[str, Any]:
    is_static = not any(isinstance(size, SizeExpr) for size in shape)
    return {
        "role": spec.role,
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": [str(size) if isinstance(size, SizeExpr) else size for size in shape],
        "nbytes": prod(spec.shape) * array_dtype(spec.dtype).itemsize if is_static else None,
        "donated": spec.donated,
        "alias": spec.alias,
    }


def _type_text(dtype: str, shape: Sequence[Any]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _sections(artifact: Artifact) -> list[dict[str, Any]]:
    """The sections of the ELF file in the order of their places."""
    view = memoryview(artifact.data)
    sections = sorted(artifact.file.sections.items(), key=lambda item: item[1][1:])
    return [
        {
            "name": name,
            "offset": offset,
            "nbytes": size,
            "loaded": vaddr != 0,
            "sha256": sha256(view[offset : offset + size]).hexdigest(),
        }
        for name, (vaddr, offset, size) in sections
    ]


def _weights(artifact: Artifact) -> dict[str, Any]:
    """Values of params that came with the file, or that it names another file for."""
    spec, args = artifact.manifest.weights, artifact.manifest.args
    tensors = [
        {
            "name": args[weight.arg].name,
            "type": _type_text(args[weight.arg].dtype, args[weight.arg].shape),
            "offset": weight.offset,
            "nbytes": weight.nbytes,
        }
        for weight in spec.tensors
    ]
    total = sum(weight.nbytes for weight in spec.tensors)
    return {"kind": spec.kind, "sha256": spec.sha256, "nbytes": total, "tensors": tensors}
