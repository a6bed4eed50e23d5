"""Checks PTX before it goes into a file: ptxas accepts it, and no kernel spills registers.

In: the images of a program that is about to be saved or was translated. Out: nothing, or a
`PtxasError`. Programs that are only run are not checked, because the driver reports errors. Without
a `ptxas`, or with one that is older than the code, the check is skipped. Accepted code is
remembered in the process and in a file in the cache folder, with the spills of its kernels, which
the knob `spills` may allow at any time. So the same code is assembled once. `fit_registers.py` asks
`spilling_kernels`, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nova import knobs
from nova.artifact.cache.disk import trusted_folder
from nova.artifact.cache.folder import make_folder
from nova.artifact.cubins.ptxas import (
    KernelUse,
    code_key,
    find_ptxas,
    refuse_spills,
    use_of_kernels,
)
from nova.artifact.device_image import DeviceImage
from nova.artifact.files import write_atomically
from nova.artifact.format import Artifact
from nova.core.log import log
from nova.errors import PtxasError

_FILE = "ptxas-accepted"
_MOST_BYTES = 1 << 20
_TOO_OLD = re.compile(r"Unsupported \.version|is not defined for option 'gpu-name'")
_accepted: dict[str, dict[str, KernelUse]] = {}


def check_artifact(artifact: Artifact) -> None:
    """Check the PTX of a program."""
    rows = artifact.manifest.devices
    if rows:
        code = artifact.section(".nova.device")
        parts = [(r.kind, r.arch, bytes(code[r.offset : r.offset + r.size])) for r in rows]
        check_images([DeviceImage(*part) for part in parts])


def check_images(images: Iterable[DeviceImage]) -> None:
    """Check PTX images without a cubin; cubins were checked when they were assembled."""
    images = list(images)
    assembled = {image.arch for image in images if image.kind == "cubin"}
    waiting = [image for image in images if image.kind == "ptx" and image.arch not in assembled]
    if not waiting or not knobs.get("check_ptx"):
        return
    if find_ptxas() is None:
        log("compile", "no ptxas here: the PTX goes unchecked into the file")
        return
    for image in waiting:
        _check(image.data, image.arch)


def _check(ptx: bytes, arch: str) -> None:
    spilling = spilling_kernels(ptx, arch)
    if spilling is not None:
        refuse_spills(spilling, arch, knobs.get("spills"))


def spilling_kernels(ptx: bytes, arch: str) -> dict[str, KernelUse] | None:
    """The kernels of PTX that spill registers; None if this ptxas is too old to say.

    PtxasError for code that ptxas refuses. There must be a ptxas.
    """
    key = code_key(ptx, arch)
    spilling = _remembered(key)
    if spilling is not None:
        return spilling
    try:
        used = use_of_kernels(ptx.decode(), arch)
    except PtxasError as error:
        if not _TOO_OLD.search(error.what):
            raise
        log("compile", f"this ptxas is too old to check code for {arch}")
        return None
    return _remember(key, used)


# --- accepted code --------------------------------------------------------------------------------


def _remembered(key: str) -> dict[str, KernelUse] | None:
    """The spilling kernels of accepted code; None for unknown code."""
    if key not in _accepted and (path := _file()) is not None:
        with suppress(OSError, ValueError, TypeError, AttributeError):  # damaged: unknown
            for line in path.read_text().splitlines():
                if line.startswith(key):
                    uses = json.loads(line[len(key) :])
                    _accepted[key] = {name: KernelUse(*use) for name, use in uses.items()}
    return _accepted.get(key)


def _remember(key: str, used: dict[str, KernelUse]) -> dict[str, KernelUse]:
    """Append a line to the file, and return the spilling kernels; a long file is truncated."""
    spilling = {name: use for name, use in used.items() if use.spilled}
    _accepted[key] = spilling
    path = _file()
    if path is None:
        return spilling
    uses = {n: (use.registers, use.stack, use.spilled) for n, use in spilling.items()}
    line = f"{key} {json.dumps(uses)}\n".encode()
    with suppress(OSError):  # a read-only folder: it is assembled again next time
        make_folder(path.parent)
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            write_atomically(path, line, mode=0o600)
            return spilling
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "ab", buffering=0) as file:
            file.write(line)
    return spilling


def _file() -> Path | None:
    """The file of accepted code; None without a cache or if others may write to its folder."""
    folder = trusted_folder()
    return None if folder is None else folder / _FILE
