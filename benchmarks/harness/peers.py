"""How a function is given to each peer, in the peer's own arrays and with its own best call.

Results stay in the peer's arrays: only Nova and numpy are charged for making numpy arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.case import THREADS, Case, read_all

IREE_OPTIONS = [
    f"--iree-llvmcpu-target-cpu={os.environ.get('BENCH_IREE_CPU', 'host')}",
    "--iree-opt-level=O2",
    # The default of 32 KiB is too little for its own schedule of a transformer block.
    "--iree-llvmcpu-stack-allocation-limit=262144",
]


def jax_case(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], *, reused: bool = False
) -> Case:
    """jax.jit on device arrays, waiting for the results; or with the last result donated."""
    import jax

    if reused:
        return _jax_reused(function, arrays)

    compiled = jax.jit(function)

    def call(*args: Any) -> Any:
        return jax.block_until_ready(compiled(*args))

    return Case(call, [jax.device_put(a) for a in arrays])


def _jax_reused(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> Case:
    """One result, written over the one of the call before, which is given back as donated."""
    import jax

    def over(old: Any, *args: Any) -> Any:
        return function(*args)

    compiled = jax.jit(over, donate_argnums=0, keep_unused=True)
    data = [jax.device_put(a) for a in arrays]
    last = jax.block_until_ready(jax.jit(function)(*data))

    def call(*args: Any) -> Any:
        nonlocal last
        last = compiled(last, *args)
        return last.block_until_ready()

    # A copy: the next call writes over the buffer.
    return Case(call, data, read=lambda result: [np.array(result)])


def torch_tensors(arrays: Sequence[np.ndarray], grads: Sequence[int] = ()) -> list[Any]:
    """Tensors of copies of the arrays; those in `grads` get gradients."""
    import torch

    torch.set_num_threads(THREADS)
    return [torch.tensor(a, requires_grad=i in grads) for i, a in enumerate(arrays)]


def torch_case(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], *, compiled: bool = False
) -> Case:
    """A function without gradients, eager or through torch.compile."""
    import torch

    tensors = torch_tensors(arrays)
    if compiled:
        function = torch.compile(function)

    def call(*args: Any) -> Any:
        with torch.inference_mode():
            return function(*args)

    return Case(call, tensors)


def torch_step_case(
    loss: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    grads: Sequence[int],
    *,
    compiled: bool = False,
) -> Case:
    """Loss and the gradients of some arguments; with `compiled` both are compiled."""
    import torch

    tensors = torch_tensors(arrays, grads)
    sources = [tensors[i] for i in grads]
    if compiled:
        loss = torch.compile(loss)

    def call(*args: Any) -> Any:
        value = loss(*args)
        return value, torch.autograd.grad(value, sources)

    return Case(call, tensors)


def iree_case(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> Case:
    """The jax function as StableHLO through IREE's compiler for this CPU, on device arrays."""
    import iree.compiler.tools as compiler
    import iree.runtime as runtime
    import jax

    text = jax.jit(function).lower(*arrays).as_text()
    binary = compiler.compile_str(
        text,
        input_type="stablehlo",
        target_backends=["llvm-cpu"],
        extra_args=IREE_OPTIONS,
    )
    driver = "local-sync" if THREADS == 1 else "local-task"
    config = runtime.Config(driver)
    module = runtime.load_vm_flatbuffer(binary, driver=driver)
    main = module.main
    data = [runtime.asdevicearray(config.device, a) for a in arrays]

    def read(result: Any) -> list[np.ndarray]:
        parts = result if isinstance(result, (tuple, list)) else [result]
        return read_all([part.to_host() for part in parts])

    return Case(main, data, read=read)
