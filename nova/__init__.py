"""Nova: a tensor compiler. Build a graph, compile it through MLIR, run native code.

MLIR and LLVM are loaded when something is compiled, not when Nova is imported.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

from nova.core.gc_pause import paused_gc

with paused_gc():
    from nova import knobs
    from nova.api.compile import compile, compile_plan
    from nova.api.compiled import Compiled, set_checker
    from nova.api.jit import jit
    from nova.api.load import load
    from nova.core.dtypes import (
        DType,
        TensorType,
        bf16,
        complex64,
        complex128,
        f8e4m3,
        f8e5m2,
        f16,
        f32,
        f64,
        i8,
        i16,
        i32,
        i64,
        u8,
        u16,
        u32,
        u64,
    )
    from nova.core.dtypes import bool_ as bool_
    from nova.core.sizes import dim
    from nova.errors import NovaError
    from nova.graph import (
        FUNCTIONS,
        Tensor,
        backward,
        checkpoint,
        cond,
        device,
        dump_dot,
        fori_loop,
        grad,
        input,
        no_grad,
        scan,
        switch,
        tensor,
        value_and_grad,
        while_loop,
    )
    from nova.graph.other_names import PACKAGE, no_attribute

globals().update(FUNCTIONS)

# Public names that are loaded when they are first used: module, or module:name in it.
_LAZY = {
    "associative_scan": "nova.graph.control.associative:associative_scan",
    "call": "nova.api.call:call",
    "checkpoint_name": "nova.graph.checkpoint:checkpoint_name",
    "checkpoint_policies": "nova.graph.checkpoint.checkpoint_policies",
    "cholesky": "nova.linalg:cholesky",
    "cholesky_inverse": "nova.linalg:cholesky_inverse",
    "cholesky_solve": "nova.linalg:cholesky_solve",
    "ctc_loss": "nova.nn.losses:ctc_loss",
    "custom_op": "nova.api.custom:custom_op",
    "custom_jvp": "nova.graph.custom_gradient:custom_jvp",
    "custom_vjp": "nova.graph.custom_gradient:custom_vjp",
    "data": "nova.data",
    "debug": "nova.debug",
    "det": "nova.linalg:det",
    "DeviceArray": "nova.runtime.devices:DeviceArray",
    "fft": "nova.fft",
    "fit": "nova.train:fit",
    "from_jax": "nova.api.from_jax:from_jax",
    "from_onnx": "nova.api.from_onnx:from_onnx",
    "from_pretrained": "nova.pretrained.from_pretrained:from_pretrained",
    "from_torch": "nova.api.from_torch:from_torch",
    "gcd": "nova.graph.control.integers:gcd",
    "gradcheck": "nova.debug:gradcheck",
    "hessian": "nova.graph.jacobians:hessian",
    "import_report": "nova.api.import_report:import_report",
    "inverse": "nova.linalg.lu:inverse",
    "istft": "nova.fft.frames:istft",
    "jacfwd": "nova.graph.jacobians:jacfwd",
    "jacrev": "nova.graph.jacobians:jacrev",
    "jvp": "nova.graph.jacobians:jvp",
    "lcm": "nova.graph.control.integers:lcm",
    "linalg": "nova.linalg",
    "linear_cross_entropy": "nova.nn.losses:linear_cross_entropy",
    "linearize": "nova.graph.jacobians:linearize",
    "logdet": "nova.linalg:logdet",
    "lu_unpack": "nova.linalg:lu_unpack",
    "matrix_exp": "nova.linalg:matrix_exp",
    "matrix_power": "nova.linalg:matrix_power",
    "nn": "nova.nn",
    "NovaStream": "nova.runtime.streams:NovaStream",
    "optim": "nova.optim",
    "output_pool": "nova.runtime.output_pool",
    "pinverse": "nova.linalg.svd:pinverse",
    "qr": "nova.linalg:qr",
    "range": "nova.api.custom.parallel:range",
    "slogdet": "nova.linalg:slogdet",
    "stft": "nova.fft.frames:stft",
    "to_device": "nova.runtime.devices:to_device",
    "to_onnx": "nova.api.to_onnx:to_onnx",
    "trace": "nova.tracing.collect:trace",
    "train": "nova.train",
    "train_step": "nova.train.step:train_step",
    "translate": "nova.api.translate:translate",
    "vjp": "nova.graph.jacobians:vjp",
    "vmap": "nova.graph.batching:vmap",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise no_attribute("module 'nova'", name, __dir__(), PACKAGE)
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
    "complex64",
    "complex128",
    "cond",
    "device",
    "dim",
    "dump_dot",
    "f16",
    "f8e4m3",
    "f8e5m2",
    "f32",
    "f64",
    "fori_loop",
    "grad",
    "i8",
    "i16",
    "i32",
    "i64",
    "import_report",
    "input",
    "jit",
    "knobs",
    "load",
    "no_grad",
    "scan",
    "switch",
    "tensor",
    "u8",
    "u16",
    "u32",
    "u64",
    "value_and_grad",
    "while_loop",
    *FUNCTIONS,
    *_LAZY,
]
