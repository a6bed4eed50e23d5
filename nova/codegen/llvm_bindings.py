"""llvmlite, or the error that says how to install it: the only file that imports it."""

from nova.packages import compiler_missing

try:
    from llvmlite import binding
    from llvmlite.binding import ffi
except (ImportError, OSError) as error:
    raise compiler_missing(error) from error

__all__ = ["binding", "ffi"]
