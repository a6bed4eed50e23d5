"""NVIDIA's assembler as a judge of PTX: that of the wheel `nvidia-cuda-nvcc`, or of the system."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path


@cache
def find_ptxas() -> Path:
    """The ptxas of the wheel; where that is not installed, the one on PATH."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvcc") or []
    except importlib.metadata.PackageNotFoundError:
        if (private := shutil.which("ptxas")) is None:
            raise
        return Path(private)
    (result,) = [file for file in files if file.name == "ptxas"]
    return Path(str(result.locate()))


def assemble(ptx: str, arch: str) -> str:
    """Assemble a text for `sm_90a` or such; what ptxas says with -v, or an error with its log."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "k.ptx"
        source.write_text(ptx)
        command = [str(find_ptxas()), "-v", f"-arch={arch}", "-O1", "-o", f"{folder}/k.cubin"]
        completed = subprocess.run(
            [*command, str(source)], capture_output=True, text=True, timeout=120
        )
    if completed.returncode:
        raise AssertionError(f"ptxas refuses it:\n{completed.stderr}\n{ptx}")
    return completed.stderr
