"""The machine and the versions that a run was made with, for the head of the report."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "numpy",
    "torch-mlir",
    "llvmlite",
    "numba",
    "jax",
    "torch",
    "iree-base-compiler",
    "iree-base-runtime",
    "onnxruntime",
    "openvino",
)


def describe() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(
        (part.strip() for part in line.split(":", 1)) for line in info.splitlines() if ":" in line
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": fields.get("model name", platform.processor() or platform.machine()),
        "cpu_family": f"{fields.get('cpu family', '?')}/{fields.get('model', '?')}",
        "cores": len(os.sched_getaffinity(0)),
        "vectors": "AVX-512" if "avx512f" in info else "AVX2" if "avx2" in info else "other",
        "load_at_start": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "compiler": _first_line("g++", "--version"),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _first_line(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return "missing"
