"""Training steps on a GPU: parameters, state and one batch stay on the device.

The models, losses and updates are those of the CPU's workloads; what differs is where arrays are,
and that no batch is loaded. The check compares the losses of the first steps.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from gpu.contenders import Contender

STEPS = 3


def training_contenders(name: str) -> list[Callable[[], Contender]]:
    module = import_module(f"workloads.{name}")
    data = module.arrays()
    return [
        lambda: _nova(module, data),
        lambda: _torch(module, data, "eager"),
        lambda: _torch(module, data, "CUDA graph"),
        lambda: _torch(module, data, "torch.compile reduce-overhead"),
        lambda: _jax(module, data),
    ]


def _steps(
    name: str,
    step: Callable[[], Any],
    read: Callable[[Any], float],
    wait: Callable[[], Any] = lambda: None,
) -> Contender:
    """A contender whose result is the losses of its first steps, taken when it is made."""
    losses = np.array([read(step()) for _ in range(STEPS)], np.float32)
    return Contender(name, step, lambda: [losses], wait)


def _nova(module: Any, data: Any) -> Contender:
    import nova

    training = module.nova_training(data, target="cuda")
    batch = [nova.to_device(a) for a in next(training.load())]
    step = training.program
    return _steps("Nova", lambda: step(*batch), lambda loss: float(loss.numpy()))


def _torch(module: Any, data: Any, mode: str) -> Contender:
    import torch

    training = module.torch_training(data)
    params = {
        n: torch.from_numpy(np.array(a)).cuda().requires_grad_()
        for n, a in training.weights.items()
    }
    optimizer = training.make(list(params.values()))
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    batch = [t.cuda() for t in next(training.load())]
    loss_of = training.loss
    if "compile" in mode:
        loss_of = torch.compile(loss_of, mode="default")

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(params, *batch)
        loss.backward()
        optimizer.step()
        return loss

    if mode == "eager":
        return _steps("torch", step, float)
    first = [p.detach().clone() for p in params.values()]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    with torch.no_grad():
        for param, value in zip(params.values(), first, strict=True):
            param.copy_(value)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()

    used = (step, batch, params, optimizer)  # the graph reads and writes their memory

    def replay() -> Any:
        assert used
        graph.replay()
        return loss

    title = "torch in a CUDA graph" if "compile" not in mode else "torch.compile in a CUDA graph"
    return _steps(title, replay, float)


def _jax(module: Any, data: Any) -> Contender:
    import jax

    training = module.jax_training(data)
    batch = [jax.device_put(a) for a in next(training.load())]
    state = [jax.tree.map(jax.device_put, training.first)]

    def step() -> Any:
        state[0], loss = training.compiled(state[0], *batch)
        return loss

    return _steps("jax.jit, donated", step, float, lambda: jax.block_until_ready(state[0]))
