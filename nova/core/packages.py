"""The packages of the compiler: a runtime-only install does not have them.

Called at their imports, and by code that needs the compiler. Out: `MissingPackageError`, which
names the packages to install, in the versions that Nova requires.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

from nova.errors import MissingPackageError

COMPILER = {"torch_mlir": "torch-mlir", "llvmlite": "llvmlite"}
"""Module -> the name of its package on PyPI."""


def missing_packages() -> list[str]:
    """The PyPI names of the compiler's packages that are not installed."""
    return [package for module, package in COMPILER.items() if not _is_installed(module)]


def compiler_missing(error: Exception) -> MissingPackageError:
    """The error for an import of the compiler's packages that failed with `error`."""
    missing = missing_packages()
    if not missing:  # installed but broken: a system library is missing or wrong
        return MissingPackageError(
            f"compiling needs {' and '.join(COMPILER.values())}, and one cannot be loaded: {error}",
            hint=f"{install_command(list(COMPILER.values()))} puts it right",
        )
    return MissingPackageError(
        f"compiling needs {' and '.join(missing)}, which this install does not have",
        hint=f"{install_command(missing)}; programs in .nova files run without",
    )


def install_command(packages: list[str]) -> str:
    """`pip install ...` with the versions that Nova's metadata requires."""
    from importlib import metadata  # only for an error message

    try:
        required = metadata.requires("nova-compiler") or []
    except metadata.PackageNotFoundError:  # used from a folder, without an install
        required = []
    pinned = {re.split(r"[=<>;\[ ]", line)[0]: line.partition(";")[0].strip() for line in required}
    return f"pip install {' '.join(pinned.get(package, package) for package in packages)}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: set to None in sys.modules
        return False
