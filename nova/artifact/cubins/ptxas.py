"""PTX to cubin with NVIDIA's assembler, if installed, so that the driver need not translate it.

In: the PTX of one architecture. Out: the cubin and the resource usage of each kernel, or an error
with the assembler's log. Compiling does not need `ptxas`: `backend.py` calls this if cubins are
requested, or large code is compiled for a GPU of this machine; `ptx_check.py` when PTX goes into a
file. The knob `ptxas` gives its path; otherwise it is searched on PATH, and then in the packages
`nvidia-cuda-nvcc` and `triton`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nova import knobs
from nova.core.log import log
from nova.errors import PtxasError

_PACKAGE = "nvidia-cuda-nvcc"
_IN_PACKAGES = {"nvidia": "*/bin/ptxas", "triton": "backends/nvidia/bin/ptxas"}
_SECONDS = 600
_IS_IT = "is it a ptxas?"
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)")
_FUNCTION = re.compile(
    r"Function properties for '?([\w$.]+)'?\n"
    r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r"(?:ptxas info *: Used (\d+) registers)?"
)


@dataclass(frozen=True)
class KernelUse:
    """Resources per thread of a kernel: registers, bytes of local memory, bytes spilled to it."""

    registers: int
    stack: int
    spilled: int


@dataclass(frozen=True)
class Assembled:
    """A cubin, and its kernels by name."""

    cubin: bytes
    kernels: dict[str, KernelUse]


def find_ptxas() -> Path | None:
    """The path of the assembler, or None."""
    name = knobs.get("ptxas")
    if name is not None:
        path = shutil.which(name)
        if path is None:
            raise PtxasError(
                f"there is no program {name}",
                hint="NOVA_PTXAS and nova.knobs.ptxas name the assembler ptxas",
            )
        return Path(path)
    on_path = shutil.which("ptxas")
    return Path(on_path) if on_path else _find_in_packages()


def _find_in_packages() -> Path | None:
    for package, pattern in _IN_PACKAGES.items():
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for program in sorted(Path(folder).glob(pattern)):
                return program
    return None


def require_ptxas() -> Path:
    """The path of the assembler; PtxasError if there is none."""
    program = find_ptxas()
    if program is None:
        raise PtxasError(
            "cubins are requested, and there is no ptxas here",
            hint=f"pip install {_PACKAGE}, or name it with NOVA_PTXAS; PTX alone needs none",
        )
    return program


def ptxas_version() -> str:
    """The identity of the assembler, for cache keys: its cubins are part of the file."""
    return _version_of(require_ptxas())


def code_key(ptx: bytes, arch: str) -> str:
    """The digest of what the assembler is given: PTX, an architecture, and its own version."""
    return hashlib.sha256(f"{ptxas_version()} {arch}\n".encode() + ptx).hexdigest()


@cache
def _version_of(program: Path) -> str:
    try:
        process = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise PtxasError(f"{program} does not run: {error.strerror}", hint=_IS_IT) from None
    version = re.search(r"V(\d+\.\d+\.\d+)", process.stdout)
    if process.returncode or version is None:
        raise PtxasError(f"{program} does not say which version it is", hint=_IS_IT)
    return version[1]


def assemble(ptx: str, arch: str) -> Assembled:
    """The cubin of PTX for `arch`; refuses spills except in kernels that the knob `spills` names.

    A kernel that spills keeps registers in local memory: this usually means a bad schedule and is
    rarely intended.
    """
    assembled = assemble_any(ptx, arch)
    refuse_spills(assembled.kernels, arch, knobs.get("spills"))
    return assembled


def use_of_kernels(ptx: str, arch: str) -> dict[str, KernelUse]:
    """The resource usage of the kernels of PTX; PtxasError if ptxas refuses it."""
    return assemble_any(ptx, arch).kernels


def assemble_any(ptx: str, arch: str) -> Assembled:
    """The cubin of PTX, which may spill."""
    program = require_ptxas()
    with tempfile.TemporaryDirectory(prefix="nova-ptxas-") as folder:
        (Path(folder) / "kernels.ptx").write_text(ptx)
        # Names without a folder: the output must not depend on the temporary folder.
        words = [str(program), "-v", f"-arch={arch}", "kernels.ptx", "-o", "kernels.cubin"]
        try:
            process = subprocess.run(
                words,
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise PtxasError(f"ptxas took longer than {_SECONDS} s for {arch}") from None
        except OSError as error:
            raise PtxasError(f"{program} does not run: {error.strerror}", hint=_IS_IT) from None
        output = process.stdout + process.stderr
        if process.returncode:
            subject = _kernel_at(ptx, output) or "the code"
            raise PtxasError(f"ptxas does not take {subject} for {arch}:\n{output.strip()}")
        try:
            cubin = (Path(folder) / "kernels.cubin").read_bytes()
        except OSError:
            cubin = b""
        if not cubin:
            raise PtxasError(f"{program} wrote no cubin for {arch}", hint=_IS_IT)
    for line in output.splitlines():
        if "warning" in line:
            log("compile", f"ptxas for {arch}: {line}")
    return Assembled(cubin, read_uses(output))


def _kernel_at(ptx: str, output: str) -> str | None:
    """The kernel that contains the first line of a ptxas error."""
    line = re.search(r"line (\d+)", output)
    if line is None:
        return None
    before = ptx.splitlines()[: int(line[1])]
    names = [entry[1] for text in before if (entry := _ENTRY.search(text))]
    return names[-1] if names else None


def read_uses(output: str) -> dict[str, KernelUse]:
    """Parse the resource usage of each kernel from `ptxas -v`."""
    return {
        match[1]: KernelUse(int(match[5] or 0), int(match[2]), int(match[3]) + int(match[4]))
        for match in _FUNCTION.finditer(output)
    }


def refuse_spills(used: Mapping[str, KernelUse], arch: str, allowed: Collection[str]) -> None:
    """PtxasError for kernels that spill, except those in `allowed`."""
    spills = [
        f"{name} spills {use.spilled} bytes with {use.registers} registers"
        for name, use in used.items()
        if use.spilled and name not in allowed
    ]
    if spills:
        names = ",".join(line.partition(" ")[0] for line in spills)
        raise PtxasError(
            f"registers do not suffice on {arch}: {'; '.join(spills)}",
            hint=f"NOVA_SPILLS={names} allows it",
        )
