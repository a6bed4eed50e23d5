"""The entry points of `nova-opt` and `nova-translate`, also of an install without the compiler.

Named by pyproject.toml. The tools load MLIR when they are imported; where that fails, this says
what to install instead of showing a traceback, and `--version` still answers.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from nova.errors import MissingPackageError
from nova.tools.streams import open_closed_streams


def nova_opt() -> int:
    """The command `nova-opt`."""
    return _start("nova-opt", "nova.tools.nova_opt")


def nova_translate() -> int:
    """The command `nova-translate`."""
    return _start("nova-translate", "nova.tools.nova_translate")


def add_version(parser: argparse.ArgumentParser) -> None:
    """The option `--version`, the same for all tools."""
    from nova import __version__

    parser.add_argument("--version", action="version", version=f"{parser.prog} {__version__}")


def _start(tool: str, module: str) -> int:
    open_closed_streams()
    try:
        main = import_module(module).main
    except MissingPackageError as error:
        parser = argparse.ArgumentParser(prog=tool, description=error.what, add_help=False)
        add_version(parser)
        parser.parse_known_args()
        print(f"{tool}: error: {error}", file=sys.stderr)
        return 1
    status: int = main()
    return status
