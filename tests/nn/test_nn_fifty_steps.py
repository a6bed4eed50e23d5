"""Every module trained for 50 steps like torch's from the same weights.

The modules of a group and their inputs, which are parameters too, are one model: layers without
weights train as well. Modules with `training` are in train mode. Random ones are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_nn_modules import MODULES, pair

import nova
from nova import nn, optim

STEPS, RATE = 50, 2e-3
RANDOM = ("Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU")
# Dropout is a default of torch's transformers.
OPTIONS = {
    name: {"dropout": 0.0}
    for name in ("Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer")
}
# Modules that another file compares: their arguments, and the shapes of the inputs.
MORE: dict[str, tuple[tuple[Any, ...], tuple[tuple[int, ...], ...]]] = {
    "RNN": ((5, 6, 2), ((7, 3, 5),)),
    "LSTM": ((5, 6, 2), ((7, 3, 5),)),
    "GRU": ((5, 6, 2), ((7, 3, 5),)),
    "RNNCell": ((5, 6), ((3, 5), (3, 6))),
    "GRUCell": ((5, 6), ((3, 5), (3, 6))),
    "LSTMCell": ((5, 6), ((3, 5),)),
    "Linear": ((5, 6), ((3, 5),)),
    "LayerNorm": ((5,), ((3, 5),)),
    "RMSNorm": ((5,), ((3, 5),)),
}
# Inputs that are no parameters: classes, signs and probabilities.
CLASSES = np.array([0, 2, 1, 2])
LABELS = np.array([[2, 0, -1], [0, -1, 1], [1, -1, 2], [2, 1, -1]])
SIGNS = np.array([1, -1, 1, -1], "f4")
SHARES = np.random.default_rng(1).uniform(0.1, 0.9, (4, 3)).astype("f4")
FIXED: dict[str, tuple[tuple[Any, ...], tuple[tuple[int, ...], ...], tuple[Any, ...]]] = {
    "Embedding": ((5, 4), (), (CLASSES,)),
    "EmbeddingBag": ((5, 4), (), (np.array([[0, 4], [2, 2], [1, 0]]),)),
    "KLDivLoss": ((), ((4, 3),), (SHARES,)),
    "NLLLoss": ((), ((4, 3),), (CLASSES,)),
    "CrossEntropyLoss": ((), ((4, 3),), (CLASSES,)),
    "MultiMarginLoss": ((), ((4, 3),), (CLASSES,)),
    "MultiLabelMarginLoss": ((), ((4, 3),), (LABELS,)),
    "SoftMarginLoss": ((), ((4,),), (SIGNS,)),
    "BCELoss": ((), ((4, 3),), (SHARES,)),
    "MarginRankingLoss": ((0.5,), ((4,), (4,)), (SIGNS,)),
    "CosineEmbeddingLoss": ((), ((4, 3), (4, 3)), (SIGNS,)),
    "GaussianNLLLoss": ((), ((4, 3), (4, 3)), (SHARES,)),
}
NAMES = sorted({*(MODULES.keys() - set(RANDOM)), *MORE, *FIXED})
GROUPS = 8


class Case:
    """A module of each library with the same weights, inputs that train, and other arguments."""

    def __init__(self, name: str, seed: int):
        rng = np.random.default_rng(seed)
        self.name, self.fixed = name, ()
        if name in MODULES and name not in {*OPTIONS, *FIXED}:
            self.nova_module, self.reference = pair(name)
            shapes = MODULES[name][2]
        else:
            args, options = (), {}
            if name in OPTIONS:
                args, options, shapes = MODULES[name]
                options = {**options, **OPTIONS[name]}
            elif name in MORE:
                args, shapes = MORE[name]
            else:
                args, shapes, self.fixed = FIXED[name]
            self.reference = getattr(torch.nn, name)(*args, **options)
            self.nova_module = getattr(nn, name)(*args, **options)
            self.nova_module.load_state_dict(
                {n: t.numpy() for n, t in self.reference.state_dict().items()}
            )
        # Distinct elements: a maximum among equal ones has no derivative.
        self.inputs = [(rng.permutation(int(np.prod(s))).reshape(s) / np.prod(s)) for s in shapes]
        low, high = (0.1, 0.9) if name == "BCELoss" else (-0.9, 1.1)
        self.inputs = [(a * (high - low) + low).astype("f4") for a in self.inputs]

    def loss(self, lib: Any, tensor: Any, module: Any, inputs: list[Any]) -> Any:
        out = module(*inputs, *[tensor(a) for a in self.fixed])
        while isinstance(out, tuple):
            out = out[0]
        weight = np.cos(np.arange(int(np.prod(tuple(out.shape))))).reshape(tuple(out.shape))
        return lib.tanh(out * tensor((0.1 + weight).astype("f4"))).sum()


class Together(nn.Module):
    def __init__(self, cases: list[Case]):
        super().__init__()
        self.layers = nn.ModuleList([c.nova_module for c in cases])
        self.inputs = nn.ParameterList([nn.Parameter(a) for c in cases for a in c.inputs])
        self.cases = cases

    def forward(self) -> Any:
        feed, losses = iter(self.inputs), []
        for case, layer in zip(self.cases, self.layers, strict=True):
            tensors = [next(feed) for _ in case.inputs]
            losses.append(case.loss(nova, nova.tensor, layer, tensors))
        return nova.stack(losses)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", range(GROUPS))
def test_fifty_steps_as_torch(group: int) -> None:
    torch.manual_seed(group)
    cases = [Case(name, i) for i, name in enumerate(NAMES[group::GROUPS])]
    model = Together(cases)

    def loss(m: Any) -> Any:
        losses = m()
        return losses.sum(), losses

    step = nova.train_step(model, loss, optim.SGD(model.parameters(), RATE), has_aux=True)
    inputs = [[torch.tensor(a, requires_grad=True) for a in c.inputs] for c in cases]
    weights = [p for c in cases for p in c.reference.parameters()]
    optimizer = torch.optim.SGD([*weights, *[t for tensors in inputs for t in tensors]], RATE)
    for i in range(STEPS):
        optimizer.zero_grad()
        expected = [
            c.loss(torch, torch.tensor, c.reference, tensors)
            for c, tensors in zip(cases, inputs, strict=True)
        ]
        torch.stack(expected).sum().backward()
        optimizer.step()
        _, losses = step()
        for case, value, target in zip(cases, losses, expected, strict=True):
            target = target.item()
            assert abs(value - target) <= 2e-4 * max(1.0, abs(target)), f"{case.name}, step {i}"
    for case in cases:
        nova_module = case.nova_module.state_dict()
        for name, tensor in case.reference.state_dict().items():
            target = tensor.numpy()
            error = np.abs(nova_module[name] - target).max(initial=0)
            assert error <= 1e-3 * max(1.0, np.abs(target).max(initial=0)), f"{case.name}: {name}"


def test_every_module_has_a_case() -> None:
    """All of nova.nn with torch's names, but random ones, containers and compositions."""
    composed = {"TransformerEncoder", "TransformerDecoder", "MultiheadAttention"}
    compared = {*NAMES, *RANDOM, *composed, "Dropout", "Sequential", "ModuleList", "ModuleDict"}
    compared |= {"Module", "Parameter", "ParameterList", "ParameterDict", "Buffer"}
    compared |= {"CTCLoss", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"}  # in files of their own
    compared |= {"AdaptiveLogSoftmaxWithLoss", "FractionalMaxPool2d", "FractionalMaxPool3d"}
    names = {n for n in nn.__all__ if n[0].isupper() and hasattr(torch.nn, n)}
    names = {n for n in names if not n.startswith("Lazy")}  # they become one of the others
    assert names - compared == set()
