"""Programs that one resident kernel runs: which they are, and what its table of launches is.

`link-persistent-kernel` makes the kernel, `read_device_tables` puts it into the tables, and
`native/src/gpu/persistent.c` fills its tables at run time.
"""

from __future__ import annotations

from typing import Any

from nova.errors import LoweringError
from nova.ir.attributes import CLUSTER, TENSOR_MAPS
from nova.ir.bindings import ir
from nova.ir.control_flow.functions import control_functions
from nova.ir.diagnostics import place_of
from nova.ir.launches import Launch, read_launch
from nova.ir.walk import find_ops, kernels, main_function


def check_persistent(module: ir.Module) -> None:
    """Raise LoweringError for a program at the stage `outlined` that needs launches of its own."""
    main = main_function(module)
    if flows := [*control_functions(module), *find_ops(main, "scf.while")]:
        raise _refusal("a loop or branch", flows[0])
    for kernel in kernels(module):
        if CLUSTER.has(kernel) or TENSOR_MAPS.has(kernel):
            raise _refusal(f"@{kernel.name.value}, a kernel of clusters or tensor maps,", kernel)


def persistent_launches(module: ir.Module) -> list[Launch]:
    """The launches of the kernels that `main` calls, in the order of the kernels' numbers."""
    called = {op.attributes["callee"].value for op in find_ops(main_function(module), "func.call")}
    launches = []
    for kernel in kernels(module):
        for op in find_ops(kernel, "gpu.launch_func") if kernel.name.value in called else ():
            launches.append(read_launch(op, 1))
    return launches


def _refusal(what: str, op: Any) -> LoweringError:
    return LoweringError(
        f"{what} in a program with launch='persistent'",
        where=place_of(op.location),
        hint="compile the program with launch='graph'",
    )
