"""Training steps of torch models next to torch eager and inductor.

In: ResNet-18 (batch 16, 224 x 224, train-mode batch norm) and an LSTM (hidden 512, 128 steps, batch
8), in f32, random weights. A step is forward, loss, backward and SGD. `nova` is
`torch.compile(backend="nova")` with torch's optimizer; `nova_step` is `nova.train_step` with Nova's
layers, for the LSTM, which `torch.compile` does not take as one graph. Out: milliseconds of a step
for each, best and median of interleaved rounds, and Nova's as a ratio to the best peer. The first
update of the weights is compared with eager's. `--cpu-time` as in torch_speed.py.

    python benchmarks/torch_training.py --threads 1 [--only lstm] [--rounds 5] [--cpu-time]
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from torch_speed import Run, Sequence, measure, run_table
from torch_zoo.vision import import_torchvision

PEERS = ("nova", "nova_step", "eager", "inductor")
Weights = Callable[[], list[np.ndarray]]
# Updates differ by less from eager's: networks with ReLU are discontinuous in the rounding.
_TOLERANCE = 1e-2
_RATE = 0.1


def _resnet18() -> tuple[Any, Any, Any]:
    x, labels = torch.rand(16, 3, 224, 224), torch.randint(0, 1000, (16,))
    return import_torchvision().models.resnet18(), x, labels


def _lstm() -> tuple[Any, Any, Any]:
    return Sequence(512), torch.rand(8, 128, 512), torch.rand(8, 128, 512)


MODELS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "resnet18_b16": _resnet18,
    "lstm": _lstm,
}


def loss_of(result: Any, target: Any) -> Any:
    """Cross entropy for labels, the mean squared error otherwise."""
    functional = torch.nn.functional
    return (
        functional.mse_loss(result, target)
        if target.is_floating_point()
        else functional.cross_entropy(result, target)
    )


def make_step(peer: str, model: Any, x: Any, target: Any, threads: int) -> tuple[Run, Weights]:
    """A function that runs one training step through a peer, and one that gives the weights."""
    if peer == "nova_step":
        return _nova_step(model, x, target)
    forward = model
    if peer != "eager":
        options = {"threads": threads} if peer == "nova" else None
        torch._dynamo.reset()
        forward = torch.compile(model, backend=peer, options=options, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)

    def step() -> Any:
        optimizer.zero_grad()
        loss_of(forward(x), target).backward()
        optimizer.step()

    return step, lambda: [p.detach().numpy().ravel() for p in model.parameters()]


def _nova_step(model: Any, x: Any, target: Any) -> tuple[Run, Weights]:
    """The same step in Nova's own layers, which have torch's names of weights."""
    import nova

    if not isinstance(model, Sequence):
        raise NotImplementedError("only the LSTM is written in Nova's layers here")
    layer = nova.nn.LSTM(model.lstm.input_size, model.lstm.hidden_size, batch_first=True)
    layer.load_state_dict({name: p.detach().numpy() for name, p in model.lstm.named_parameters()})
    optimizer = nova.optim.SGD(layer.parameters(), lr=_RATE)
    step = nova.train_step(layer, lambda m, a, b: nova.mean((m(a)[0] - b) ** 2), optimizer)
    arrays = x.numpy(), target.numpy()
    names = [name for name, _ in model.lstm.named_parameters()]

    def weights() -> list[np.ndarray]:
        state = layer.state_dict()
        return [np.asarray(state[name]).ravel() for name in names]

    return lambda: step(*arrays), weights


def compare(
    name: str,
    threads: int,
    rounds: int,
    peers: tuple[str, ...],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """The times of one model by peer, and the reasons of peers that are absent."""
    import nova

    torch.manual_seed(0)
    model, x, target = MODELS[name]()
    model.train()
    before = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    runs: dict[str, Run] = {}
    absent: dict[str, str] = {}

    def first_update(peer: str) -> tuple[Run, np.ndarray]:
        step, weights = make_step(peer, copy.deepcopy(model), x, target, threads)
        step()
        return step, np.concatenate(weights()) - before

    with nova.knobs.override(threads=threads):
        _, expected = first_update("eager")
        for peer in peers:
            begin = time.perf_counter()
            try:
                step, update = first_update(peer)
            except Exception as error:  # a peer's failure is a result of its own
                absent[peer] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                continue
            difference = np.linalg.norm(update - expected) / np.linalg.norm(expected)
            seconds = time.perf_counter() - begin
            print(f"# {name} {peer}: ready in {seconds:.0f} s, {difference:.1e}", file=sys.stderr)
            if not difference < _TOLERANCE:
                absent[peer] = f"the update differs from eager's by {difference:.1e}"
                continue
            runs[peer] = step
        times = measure(runs, rounds, clock)
    return {"model": name, "times": times, "absent": absent}


def main() -> None:
    run_table(__doc__, "training step", MODELS, PEERS, 5, compare)


if __name__ == "__main__":
    main()
