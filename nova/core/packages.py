"""The packages of the compiler: an install that only runs programs does not have them.

Called where one is imported, and by what needs the compiler. Out: `MissingPackageError`, which says
what to install, in the versions that Nova asks for.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

from nova.errors import MissingPackageError

COMPILER = {"torch_mlir": "torch-mlir", "llvmlite": "llvmlite"}
"""Module -> the package that pip knows."""


def missing_packages() -> list[str]:
    """The packages of the compiler that are not installed, by the names that pip knows."""
    return [package for module, package in COMPILER.items() if not _is_installed(module)]


def compiler_missing(error: Exception) -> MissingPackageError:
    """The error for an import of the compiler's packages that failed with `error`."""
    missing = missing_packages()
    if not missing:  # installed, and broken: a library of the system is not there, or a wrong one
        return MissingPackageError(
            f"compiling needs {' and '.join(COMPILER.values())}, and one cannot be loaded: {error}",
            hint=f"{install_command(list(COMPILER.values()))} puts it right",
        )
    return MissingPackageError(
        f"compiling needs {' and '.join(missing)}, which this install does not have",
        hint=f"{install_command(missing)}; programs in .nova files run without",
    )


def install_command(packages: list[str]) -> str:
    """`pip install ...` with the versions that the metadata of Nova asks for."""
    from importlib import metadata  # only on the way to an error

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
