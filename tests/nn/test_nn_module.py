"""Modules: parts and their names, modes, freezing, calls with arrays of any library."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import nova
from nova import nn
from nova.errors import (
    ArgumentTypeError,
    AxisError,
    DTypeError,
    GradientError,
    ModuleError,
    ShapeError,
)

X = np.arange(6, dtype="f4").reshape(2, 3)


class Block(nn.Module):
    def __init__(self) -> None:
        self.second = nn.Linear(4, 4)
        self.scale = nn.Parameter(np.ones(4), dtype="f32")
        self.first = nn.Linear(4, 4, bias=False)
        self.note = "not a part"

    def forward(self, x):
        return self.first(self.second(x)) * self.scale


class Net(nn.Module):
    def __init__(self) -> None:
        self.embed = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, index):
        x = self.embed(index)
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x))


BLOCK = ["second.weight", "second.bias", "scale", "first.weight"]


def test_names_are_in_the_order_in_which_parts_were_set():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == ["embed.weight", *(f"blocks.{i}.{n}" for i in range(2) for n in BLOCK)]
    assert [id(p) for _, p in net.named_parameters()] == [id(p) for p in net.parameters()]
    assert list(net.state_dict()) == [*names, "head.weight"], "tied: under every name"
    net.blocks[0].scale = nn.Parameter(np.zeros(4))
    assert [n for n, _ in net.named_parameters()] == names, "a new value keeps its place"
    del net.blocks[0].second.bias
    assert "blocks.0.second.bias" not in dict(net.named_parameters())


def test_modules_and_children():
    net = Net()
    assert [n for n, _ in net.named_modules()][:4] == ["", "embed", "blocks", "blocks.0"]
    assert len(list(net.modules())) == 11 and next(iter(net.modules())) is net
    assert [type(m).__name__ for m in net.children()] == [
        "Embedding",
        "ModuleList",
        "Dropout",
        "Linear",
    ]
    twice = nn.Sequential(net.head, net.head)
    assert len(list(twice.children())) == 1 and len(list(twice.modules())) == 2
    assert list(twice.state_dict()) == ["0.weight", "1.weight"] and len(twice.parameters()) == 1


def test_train_and_eval():
    net = Net()
    assert net.training and net.drop.training
    assert net.eval() is net and not any(m.training for m in net.modules())
    assert net.drop.train() is net.drop and not net.training
    assert net.train() is net and all(m.training for m in net.modules())
    index = np.array([1, 2, 3])
    net.eval()
    np.testing.assert_array_equal(net(index).numpy(), net(index).numpy())


def test_freezing():
    net = Net()
    assert net.blocks[0].freeze() is net.blocks[0]
    frozen = [n for n, p in net.named_parameters() if not p.requires_grad]
    assert frozen == [f"blocks.0.{n}" for n in BLOCK]
    nova.backward(net.eval()(np.array([1, 2])).sum())
    for name, parameter in net.named_parameters():
        assert (parameter.grad is None) == (name in frozen), name
    net.counter = nn.Parameter(np.array(3), requires_grad=False)
    net.unfreeze()
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == ["counter"]


def test_a_parameter_owns_its_array():
    inputs = np.asfortranarray(np.ones((3, 4), "f4"))
    inputs.flags.writeable = False
    p = nn.Parameter(inputs)
    assert isinstance(p, nova.Tensor) and p.is_leaf and p.requires_grad
    assert p.data.flags.c_contiguous and p.data.flags.writeable and p.data.flags.owndata
    p.data[...] = 2
    assert inputs.sum() == 12 and (p + 1).numpy().sum() == 36
    assert nn.Parameter([1.0, 2.0]).dtype is nova.f32
    assert nn.Parameter(torch.ones(2, dtype=torch.bfloat16)).dtype is nova.bf16
    assert nn.Parameter(nova.tensor(inputs)).data is not inputs
    assert "frozen" in repr(nn.Parameter([1.0], requires_grad=False))
    with pytest.raises(GradientError, match="i64 cannot require") as caught:
        nn.Parameter([1, 2])
    assert __file__ in caught.value.where


def test_calls_with_arrays():
    layer = nn.Linear(3, 2)
    expected = X @ layer.weight.data.T + layer.bias.data
    for x in (X, torch.from_numpy(X), nova.tensor(X)):
        out = layer(x)
        assert isinstance(out, nova.Tensor) and out.op is not None
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    attention = nn.MultiheadAttention(4, 2)
    x, mask = np.ones((3, 4), "f4"), np.eye(3, dtype=bool)
    np.testing.assert_array_equal(
        attention(x, mask=mask).numpy(), attention(nova.tensor(x), mask=nova.tensor(mask)).numpy()
    )


def test_compiled_with_its_parameters():
    layer = nn.Linear(3, 2)
    x = nova.tensor(X)
    program = nova.compile(layer(x), inputs=[x], params=layer.parameters())
    layer.weight.data[...] = 0
    result = program.run([X], [p.data for p in layer.parameters()])
    np.testing.assert_array_equal(result, np.broadcast_to(layer.bias.data, (2, 2)))


def test_containers():
    a, b, c = nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)
    for created in (nn.Sequential(a, b, c), nn.ModuleList([a, b, c])):
        assert len(created) == 3 and list(created) == [a, b, c]
        assert created[0] is a and created[-1] is c
        assert list(created[1:]) == [b, c] and type(created[1:]) is type(created)
        created.append(nn.ReLU())
        created[1] = nn.SiLU()
        assert [n for n, _ in created.named_children()] == ["0", "1", "2", "3"]
        assert isinstance(created[1], nn.SiLU)
        with pytest.raises(AxisError, match="module 4 of 4"):
            created[4]
        with pytest.raises(ModuleError, match="is not a module"):
            created.append(nova.tanh)
    assert nn.Sequential()(X).shape == (2, 3)
    with pytest.raises(ModuleError, match="ModuleList has no forward"):
        nn.ModuleList([a])(X)
    assert "(0): Linear(\n    (weight): <Parameter f32[3,3]>" in repr(nn.Sequential(a))


def test_what_would_be_lost_is_refused():
    net = nn.Module()
    net.layers = [nn.Linear(2, 2)]
    with pytest.raises(ModuleError, match=r"Module\.layers is a list"):
        net.parameters()
    net.layers = {"a": nn.Parameter([1.0])}
    with pytest.raises(ModuleError, match=r"Module\.layers is a dict"):
        net.state_dict()
    net.layers = {"a": 1.0}
    assert net.parameters() == []
    net.inner = nn.Sequential(net)
    with pytest.raises(ModuleError, match=r"contains itself, as 'inner\.0'"):
        net.parameters()


def test_a_copy_is_apart_and_tied():
    net = Net()
    second = copy.deepcopy(net)
    assert second.head.weight is second.embed.weight is not net.embed.weight
    net.embed.weight.data[...] = 0
    assert second.embed.weight.data.any()
    index = np.array([1, 2])
    assert second.eval()(index).numpy().any() and not net.eval()(index).numpy().any()


def test_replaced():
    net = Net().eval()
    before = net.parameters()
    half = {p: p.cast(nova.bf16) for p in before}
    with nn.replaced(net, half):
        assert net.head.weight is net.embed.weight is half[before[0]]
        assert net(np.array([1])).dtype is nova.bf16
    assert net(np.array([1])).dtype is nova.f32
    assert net.head.weight is net.embed.weight is before[0]
    with pytest.raises(RuntimeError), nn.replaced(net, half):
        raise RuntimeError
    assert [id(p) for p in net.parameters()] == [id(p) for p in before]


# --- values in the place of parameters ------------------------------------------------------------


@pytest.mark.parametrize("value", [np.ones((2, 3), "f4"), 1.5, [[1.0]]])
def test_a_parameter_is_not_replaced_by_values(value) -> None:
    """As in torch, which raises a TypeError: the module would lose its parameter."""
    layer, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    before = layer.weight
    with pytest.raises(TypeError):
        theirs.weight = value
    with pytest.raises(ModuleError, match=r"'weight' of Linear") as caught:
        layer.weight = value
    assert "test_nn_module.py" in str(caught.value)
    assert "m.weight.data[...] = values" in str(caught.value)
    assert layer.weight is before and len(layer.parameters()) == 2


def test_a_buffer_is_not_replaced_by_values() -> None:
    norm = nn.BatchNorm1d(3)
    with pytest.raises(ModuleError, match=r"m\.running_mean\.assign"):
        norm.running_mean = np.zeros(3, "f4")


def test_a_parameter_is_replaced_by_parameters_tensors_and_none() -> None:
    layer, values = nn.Linear(3, 2), np.ones((2, 3), "f4")
    layer.weight = nn.Parameter(values)
    assert len(layer.parameters()) == 2
    layer.bias = None
    assert len(layer.parameters()) == 1
    layer.weight = nova.tensor(values)
    np.testing.assert_allclose(layer(X).numpy(), X @ values.T)


def test_new_data_has_the_shape_and_the_dtype() -> None:
    weight = nn.Linear(3, 2).weight
    before = weight.data
    for values, error in (
        (np.ones((2, 4), "f4"), ShapeError),
        (np.ones((2, 3), "f8"), DTypeError),
        ([[1.0] * 3] * 2, ArgumentTypeError),
    ):
        with pytest.raises(error, match=r"f32\[2,3\]") as caught:
            weight.data = values
        assert "test_nn_module.py" in str(caught.value)
        assert weight.data is before
    weight.data = values = np.ones((2, 3), "f4")
    assert weight.data is values
    weight.convert(nova.bf16)
    weight.data = weight.data.copy()
    assert copy.deepcopy(weight).dtype is nova.bf16


def test_gradients_and_dtypes_have_the_methods_of_torch():
    ours, theirs = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), torch.nn.Linear(3, 2)
    ours[0].load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    for _ in range(2):  # adds up, in both
        (ours[0](X) ** 2).sum().backward()
        (theirs(torch.tensor(X)) ** 2).sum().backward()
    np.testing.assert_allclose(ours[0].weight.grad.numpy(), theirs.weight.grad, rtol=1e-5)
    ours.zero_grad(set_to_none=False)
    assert not ours[0].weight.grad.numpy().any() and ours[1].weight.grad is None
    ours.zero_grad()
    assert ours[0].weight.grad is None
    assert ours.requires_grad_(False) is ours
    assert not any(p.requires_grad for p in ours.parameters())
    assert all(p.requires_grad for p in ours.requires_grad_().parameters())
    for name, dtype in (("half", "f16"), ("bfloat16", "bf16"), ("double", "f64"), ("float", "f32")):
        assert getattr(ours, name)() is ours
        assert {str(p.dtype) for p in ours.parameters()} == {dtype}
        assert str(ours[1].running_mean.dtype) == dtype
        assert ours[1].num_batches_tracked.dtype is nova.i64
