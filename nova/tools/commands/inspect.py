"""nova inspect: show the contents of a .nova file, without executing anything in it.

In: a file. Out: its variants and which one this machine takes, signature, kernels, tasks, weights,
sections and hashes as text or JSON, or the text of one stage. Every check of the loader has passed
before anything is shown; the first one that fails is the error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Any

from nova.errors import ArtifactError
from nova.tools.describe import describe, open_trusted
from nova.tools.report import Table, format_bytes, print_json, print_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova inspect`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a .nova file")
    add("--json", action="store_true", help="everything, as JSON")
    add("--stage", metavar="NAME", help="only the text of this stage, such as plan or linalg")


def run(args: argparse.Namespace) -> int:
    """Show the file."""
    artifact = open_trusted(args.file)
    if args.stage is not None:
        _print_stage(artifact.stages(), args.stage, args.file)
        return 0
    description = {"file": args.file, **describe(artifact)}
    if args.json:
        print_json(description)
    else:
        print_tables(make_tables(description))
    return 0


def make_tables(description: dict[str, Any]) -> list[Table]:
    """The description of a file as tables."""
    tables = [
        _summary(description),
        _dims(description),
        _signature(description),
        _variants(description),
        _specialized(description),
        _tasks(description),
    ]
    tables += [_kernels(variant) for variant in description["variants"]]
    tables += [_tile_waits(variant) for variant in description["variants"]]
    tables += [_schedules(description), _packed(description)]
    tables += [
        _features(description),
        _weights(description),
        _devices(description),
        _sections(description),
        _key(description),
    ]
    return tables


def _print_stage(stages: Mapping[str, str], name: str, file: str) -> None:
    if name not in stages:
        raise ArtifactError(
            f"the file has no stage {name!r}",
            where=file,
            hint=f"it has {', '.join(stages) or 'no stage texts'}",
        )
    sys.stdout.write(stages[name])


def _summary(description: dict[str, Any]) -> Table:
    weights = description["weights"]
    rows = [
        ("format", description["format"]),
        ("written by", description["producer"]),
        ("size", f"{format_bytes(description['nbytes'])} ({description['nbytes']} bytes)"),
        ("sha256", description["sha256"]),
        ("signed by", _signer(description["signed"])),
        ("weights", _weights_line(weights)),
        ("stages", " ".join(description["stages"]) or "none"),
        ("runs here", _choice(description["chosen"])),
    ]
    return Table(description["file"], (), rows)


def _signer(signed: dict[str, Any] | None) -> str:
    if signed is None:
        return "nobody"
    state = {
        True: "the signature fits",
        False: "the signature does NOT fit",
        None: "not checked: the package cryptography is not installed",
    }
    return f"{signed['key']} ({state[signed['valid']]})"


def _weights_line(weights: dict[str, Any]) -> str:
    if weights["kind"] == "none":
        return "none"
    count = len(weights["tensors"])
    line = f"{weights['kind']}, {count} tensor{'s' if count != 1 else ''}, "
    line += format_bytes(weights["nbytes"])
    return f"{line}, file with sha256 {weights['sha256']}" if weights["sha256"] else line


def _choice(chosen: dict[str, Any]) -> str:
    return chosen["why"] if chosen["variant"] is not None else f"nothing: {chosen['why']}"


def _dims(description: dict[str, Any]) -> Table:
    rows = [(d["name"], d["min"], d["max"]) for d in description["dims"]]
    return Table("symbolic sizes", ("dim", "min", "max"), rows)


def _signature(description: dict[str, Any]) -> Table:
    rows = []
    for tensor in description["signature"]:
        shape = ",".join(map(str, tensor["shape"]))
        notes = "updated in place" if tensor["donated"] else ""
        if tensor["alias"] >= 0:
            notes = f"written into {description['signature'][tensor['alias']]['name']}"
        size = "by sizes" if tensor["nbytes"] is None else format_bytes(tensor["nbytes"])
        rows.append((tensor["role"], tensor["name"], f"{tensor['dtype']}[{shape}]", size, notes))
    return Table("signature", ("role", "name", "type", "size", ""), rows)


def _variants(description: dict[str, Any]) -> Table:
    header = ("target", "cpu", "here", "workspace", "constants", "kernels", "launches", "tasks")
    rows = []
    for number, variant in enumerate(description["variants"]):
        is_chosen = number == description["chosen"]["variant"]
        lacks = f"needs {' '.join(variant['missing'])}"
        rows.append(
            (
                variant["target"],
                variant["cpu"],
                "taken" if is_chosen else "fits" if variant["fits"] else lacks,
                format_bytes(variant["workspace"]),
                format_bytes(variant["constants"]),
                len(variant["kernels"]),
                _launches(variant),
                len(variant["tasks"]),
            )
        )
    return Table(f"variants{_at_sizes(description['variants'][0])}", header, rows)


def _launches(variant: dict[str, Any]) -> str:
    count = len(variant["launches"])
    return f"{count}, persistent" if variant["launch"] == "persistent" else str(count)


def _specialized(description: dict[str, Any]) -> Table:
    """The sizes that have code of their own in each variant."""
    names = [dim["name"] for dim in description["dims"]]
    rows = [(v["target"], *sizes) for v in description["variants"] for sizes in v["specialized"]]
    return Table("sizes with code of their own", ("target", *names), rows)


def _tasks(description: dict[str, Any]) -> Table:
    graphs = [(v["target"], v["task_graph"]) for v in description["variants"] if v["tasks"]]
    rows = [(t, g["tasks"], g["edges"], g["levels"], g["widest"]) for t, g in graphs]
    title = f"task graphs{_at_sizes(description['variants'][0])}"
    return Table(title, ("target", "tasks", "edges", "levels", "widest"), rows)


def _tile_waits(variant: dict[str, Any]) -> Table:
    """What the launches of a persistent kernel wait for."""
    names = [variant["kernels"][launch["kernel"]]["name"] for launch in variant["launches"]]
    rows = [
        (
            f"{w['after']} {names[w['after']]}",
            f"{w['before']} {names[w['before']]}",
            w["bands"],
            f"{w['part']} of {w['blocks']}",
        )
        for w in variant["tile_waits"]
    ]
    header = ("launch", "waits for", "in bands", "each for blocks")
    return Table(f"waits of the persistent kernel for {variant['target']}", header, rows)


def _kernels(variant: dict[str, Any]) -> Table:
    header = ("kernel", "core", "tiles", "flops", "bytes", "launches", "line")
    rows = [
        (k["name"], _core(k), _tiles(k), k["flops"], k["bytes"], k["launches"], k["location"])
        for k in variant["kernels"]
    ]
    return Table(f"kernels for {variant['target']}{_at_sizes(variant)}", header, rows)


def _at_sizes(variant: dict[str, Any]) -> str:
    """The sizes that the numbers of a program with symbolic sizes are for."""
    sizes = variant["representative"]
    if not sizes:
        return ""
    text = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return f", at the representative sizes {text}"


def _core(kernel: dict[str, Any]) -> str:
    """The core type of a kernel; of a device with the cores of it that the kernel uses."""
    device = kernel["device"]
    return str(kernel["core"]) if device is None else f"{kernel['core']} {device['core']}"


def _tiles(kernel: dict[str, Any]) -> str:
    """Tiles of a CPU's kernel; blocks, threads and shared memory of a device's."""
    device = kernel["device"]
    if device is None:
        return str(kernel["grid"])
    grid, block = ("x".join(map(str, device[axes])) for axes in ("grid", "block"))
    shared = f" + {format_bytes(device['shared'])}" if device["shared"] else ""
    return f"{grid} of {block}{shared}"


def _schedules(description: dict[str, Any]) -> Table:
    rows = [(v["target"], k, s) for v in description["variants"] for k, s in v["schedules"].items()]
    return Table("chosen schedules", ("target", "kernel", "schedule"), rows)


def _packed(description: dict[str, Any]) -> Table:
    rows = [
        (v["target"], kernel, *numbers)
        for v in description["variants"]
        for kernel, text in v["packed"].items()
        for numbers in re.findall(r"array<i64: (\d+), (\d+), (\d+)>", text)
    ]
    header = ("target", "kernel", "argument", "columns a panel", "blocks")
    return Table("packed constants", header, rows)


def _features(description: dict[str, Any]) -> Table:
    rows = [(v["target"], " ".join(v["features"]) or "none") for v in description["variants"]]
    return Table("needed CPU features, above the baseline", (), rows)


def _weights(description: dict[str, Any]) -> Table:
    rows = [
        (w["name"], w["type"], w["offset"], w["nbytes"]) for w in description["weights"]["tensors"]
    ]
    return Table("weights", ("param", "type", "offset", "bytes"), rows)


def _devices(description: dict[str, Any]) -> Table:
    rows = [
        (
            d["kind"],
            d["arch"],
            format_bytes(d["size"]),
            len(d["kernels"]),
            " ".join(d["taken_by"]) or "none",
        )
        for d in description["devices"]
    ]
    header = ("kind", "arch", "size", "kernels", "taken by compute capability")
    return Table("device images", header, rows)


def _sections(description: dict[str, Any]) -> Table:
    rows = [
        (s["name"], s["offset"], s["nbytes"], "yes" if s["loaded"] else "no", s["sha256"])
        for s in description["sections"]
    ]
    return Table("sections", ("name", "offset", "bytes", "loaded", "sha256"), rows)


def _key(description: dict[str, Any]) -> Table:
    return Table("cache key", (), list(description["key"].items()))
