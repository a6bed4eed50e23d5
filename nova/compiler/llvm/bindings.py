"""Imports llvmlite, or raises an error that says how to install it; no other file imports it."""

from nova.core.packages import compiler_missing

try:
    from llvmlite import binding
    from llvmlite.binding import ffi
    from llvmlite.binding.newpassmanagers import NewPassManager
except (ImportError, OSError) as error:
    raise compiler_missing(error) from error

__all__ = ["NewPassManager", "binding", "ffi"]
