"""Nova: a tensor compiler. Build a graph, compile it through MLIR, run native code.

MLIR and LLVM are loaded when something is compiled, not when Nova is imported.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

from nova.collection import paused_collection

with paused_collection():
    from nova import knobs
    from nova.compiled import Compiled, set_checker
    from nova.compiler import compile, compile_plan
    from nova.dtypes import DType, TensorType, bf16, f16, f32, f64, i8, i32, i64, u8
    from nova.dtypes import bool_ as bool_
    from nova.errors import NovaError
    from nova.graph import (
        FUNCTIONS,
        Tensor,
        backward,
        checkpoint,
        device,
        dump_dot,
        grad,
        no_grad,
        tensor,
        value_and_grad,
    )
    from nova.jit import jit
    from nova.loading import load
    from nova.suggest import unknown_name

globals().update(FUNCTIONS)

# Public names that are loaded when they are first used: module, or module:name in it.
_LAZY = {
    "DeviceArray": "nova.runtime.devices:DeviceArray",
    "NovaStream": "nova.runtime.streams:NovaStream",
    "data": "nova.data",
    "debug": "nova.debug",
    "fit": "nova.fitting:fit",
    "gradcheck": "nova.debug:gradcheck",
    "nn": "nova.nn",
    "optim": "nova.optim",
    "output_pool": "nova.runtime.output_pool",
    "to_device": "nova.runtime.devices:to_device",
    "trace": "nova.runtime.trace.collect:trace",
    "train_step": "nova.training:train_step",
    "translate": "nova.translation:translate",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise unknown_name("module 'nova'", name, __dir__())
    module, _, attribute = _LAZY[name].partition(":")
    value: Any = import_module(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def _check_runs(*given: Any) -> Any:
    return import_module("nova.debug.checked").CheckedProgram(*given)


set_checker(_check_runs)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "Compiled",
    "DType",
    "NovaError",
    "Tensor",
    "TensorType",
    "backward",
    "bf16",
    "bool_",
    "checkpoint",
    "compile",
    "compile_plan",
    "device",
    "dump_dot",
    "f16",
    "f32",
    "f64",
    "grad",
    "i8",
    "i32",
    "i64",
    "jit",
    "knobs",
    "load",
    "no_grad",
    "tensor",
    "u8",
    "value_and_grad",
    *FUNCTIONS,
    *_LAZY,
]
