"""State: dicts and files in and out of modules, tied weights, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import nova
from nova import nn
from nova.errors import ArtifactError, StateDictError
from nova.frontends.safetensors import read_metadata, read_safetensors


class Net(nn.Module):
    def __init__(self, tie: bool = True, dtype: str = "f32") -> None:
        self.embed = nn.Embedding(5, 3, dtype=dtype)
        self.body = nn.Linear(3, 3, dtype=dtype)
        self.head = nn.Linear(3, 5, bias=False, dtype=dtype)
        if tie:
            self.head.weight = self.embed.weight


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.body = torch.nn.Linear(3, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


NAMES = ["embed.weight", "body.weight", "body.bias", "head.weight"]


def values(net: nn.Module) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in net.state_dict().items()}


def assert_same(actual: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(actual) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
        assert actual[name].dtype == array.dtype


def test_state_dict_is_the_arrays():
    net = Net()
    state = net.state_dict()
    assert list(state) == NAMES
    assert state["head.weight"] is state["embed.weight"] is net.embed.weight.data
    state["body.bias"][...] = 3
    assert (net.body.bias.data == 3).all()


def test_loading_copies_into_the_arrays():
    net, second = Net(), Net()
    positions = [p.data.ctypes.data for p in net.parameters()]
    report = net.load_state_dict(second.state_dict())
    assert report == nn.LoadReport((), ())
    assert [p.data.ctypes.data for p in net.parameters()] == positions
    assert_same(net.state_dict(), second.state_dict())
    assert not np.shares_memory(net.body.bias.data, second.body.bias.data)
    net.load_state_dict(net.state_dict())
    assert_same(net.state_dict(), second.state_dict())


def test_loading_from_torch_and_tensors():
    reference, net = TorchNet(), Net()
    net.load_state_dict(reference.state_dict())
    assert_same(net.state_dict(), {n: t.numpy() for n, t in reference.state_dict().items()})
    half = Net(dtype="bf16")
    half.load_state_dict(reference.bfloat16().state_dict())
    assert half.body.weight.data.tolist() == reference.body.weight.tolist()
    net.load_state_dict({n: nova.tensor(a) for n, a in Net().state_dict().items()})


def test_a_tied_weight_needs_one_of_its_names():
    net, state = Net(), values(Net())
    del state["embed.weight"]
    assert net.load_state_dict(state).missing == ()
    np.testing.assert_array_equal(net.embed.weight.data, state["head.weight"])
    state["embed.weight"] = state["head.weight"] + 1
    with pytest.raises(StateDictError, match=r"head\.weight and embed\.weight are tied"):
        net.load_state_dict(state)


def test_exchanged_weights():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    before = values(net)
    net.load_state_dict({n: net.state_dict()[f"{1 - int(n[0])}{n[1:]}"] for n in before})
    assert_same(net.state_dict(), {n: before[f"{1 - int(n[0])}{n[1:]}"] for n in before})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"body.bias": None}, r"missing: body\.bias"),
        ({"more": np.ones(1)}, "unexpected: more"),
        ({"body.bias": np.ones(4, "f4")}, r"body\.bias has shape \(4,\), the model's is \(3,\)"),
        ({"body.bias": np.ones(3)}, r"body\.bias has type float64, the model's is float32"),
        ({"body.bias": "text"}, r"body\.bias: a str is not an array"),
        ({"body.bias": np.ones(3, "c8")}, r"body\.bias has type complex64"),
    ],
)
def test_what_does_not_fit_changes_nothing(change, message):
    net, state = Net(), {**values(Net()), **change}
    state = {n: a for n, a in state.items() if a is not None}
    before = values(net)
    with pytest.raises(StateDictError, match=message) as caught:
        net.load_state_dict(state)
    assert __file__ in caught.value.where
    assert_same(net.state_dict(), before)


def test_not_strict():
    net = Net()
    report = net.load_state_dict({"body.bias": np.ones(3, "f4"), "more": 1}, strict=False)
    assert report == nn.LoadReport(("embed.weight", "body.weight", "head.weight"), ("more",))
    assert (net.body.bias.data == 1).all()
    with pytest.raises(StateDictError, match="shape"):
        net.load_state_dict({"body.bias": np.ones(4, "f4")}, strict=False)


def test_long_lists_are_cut():
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(20)))
    with pytest.raises(StateDictError, match=r"missing: 0\.weight.* and 30 more"):
        model.load_state_dict({})
    wrong = {n: np.ones(7) for n in model.state_dict()}
    with pytest.raises(StateDictError, match="and 30 more"):
        model.load_state_dict(wrong)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_save_and_load(dtype, tmp_path: Path):
    net, second = Net(dtype=dtype), Net(dtype=dtype)
    net.save(tmp_path / "m.safetensors")
    positions = [p.data.ctypes.data for p in second.parameters()]
    assert second.load(tmp_path / "m.safetensors") == nn.LoadReport((), ())
    assert_same(second.state_dict(), net.state_dict())
    assert [p.data.ctypes.data for p in second.parameters()] == positions
    assert second.head.weight is second.embed.weight


def test_tied_weights_are_stored_once(tmp_path: Path):
    net, path = Net(), tmp_path / "m.safetensors"
    net.save(path)
    assert sorted(read_safetensors(path)) == sorted(NAMES[:3])
    assert read_metadata(path) == {"format": "pt", "head.weight": "embed.weight"}
    loose = Net(tie=False)
    assert loose.load(path) == nn.LoadReport((), ())
    assert loose.head.weight is loose.embed.weight, "tied in the file, tied in the model"
    assert_same(loose.state_dict(), net.state_dict())
    assert len(loose.parameters()) == 3


def test_a_loose_file_in_a_tied_model(tmp_path: Path):
    loose, path = Net(tie=False), tmp_path / "m.safetensors"
    loose.save(path)
    with pytest.raises(StateDictError, match="tied"):
        Net().load(path)
    loose.head.weight.data[...] = loose.embed.weight.data
    loose.save(path)
    net = Net()
    net.load(path)
    assert_same(net.state_dict(), loose.state_dict())


def test_files_of_torch_models(tmp_path: Path):
    reference, path = TorchNet(), tmp_path / "torch.safetensors"
    safetensors.torch.save_model(reference, str(path))
    net = Net(tie=False)
    net.load(path)
    assert net.head.weight is net.embed.weight
    assert_same(net.state_dict(), {n: t.numpy() for n, t in reference.state_dict().items()})
    net.body.bias.data[...] = 7
    net.save(path)
    missing, unexpected = safetensors.torch.load_model(reference, str(path))
    assert not missing and not unexpected
    assert_same({n: t.numpy() for n, t in reference.state_dict().items()}, net.state_dict())


def test_a_file_that_does_not_fit(tmp_path: Path):
    path = tmp_path / "m.safetensors"
    nn.Linear(2, 2).save(path)
    with pytest.raises(StateDictError, match="missing: embed") as caught:
        Net().load(path)
    assert __file__ in caught.value.where
    assert Net().load(path, strict=False).unexpected == ("bias", "weight")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="damaged") as damaged:
        nn.Linear(2, 2).load(path)
    assert damaged.value.where == str(path)
