"""`nova.translate` of programs that are compiled or loaded: their values, names and lines stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.api.compiled import Compiled
from nova.core.targets import parse_target
from nova.errors import (
    ArgumentNameError,
    OptionTypeError,
    PipelineError,
    UnknownKeywordError,
    WeightsError,
)

HOST = parse_target("cpu").arch
X = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3)
Y = np.ones((4, 1), "f4")


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 1))


def compiled(model: nn.Module) -> Compiled:
    x = nova.tensor(X, name="x")
    return nova.compile(model(x), inputs=[x], params=model.parameters())


def test_one_file_for_cpu_and_gpu_with_trained_weights(tmp_path: Path) -> None:
    program = compiled(make_model())
    created = nova.translate(program, targets=[HOST, "cuda:sm_80"])
    expected = program(X)
    np.testing.assert_allclose(created.load().forward(X), expected, rtol=1e-6)
    for mode in ("embed", "external"):
        created.save(tmp_path / f"{mode}.nova", weights=mode)
        for device in ("cpu", "sim"):
            model = nova.load(tmp_path / f"{mode}.nova", device=device)
            np.testing.assert_allclose(model.forward(X), expected, rtol=1e-5)
    # What was loaded with weights inside keeps them there; other values may be given.
    again = nova.translate(nova.load(tmp_path / "embed.nova"), targets="cuda:sm_80")
    again.save(tmp_path / "again.nova")
    np.testing.assert_allclose(
        nova.load(tmp_path / "again.nova", device="sim").forward(X), expected, rtol=1e-5
    )
    created.save(tmp_path / "plain.nova")
    with pytest.raises(WeightsError, match=r"no value for '0\.weight'"):
        nova.load(tmp_path / "plain.nova").forward(X)
    zeros = {name: np.zeros_like(array) for name, array in program.params.items()}
    created.save(tmp_path / "zeros.nova", weights="embed", params=zeros)
    assert not nova.load(tmp_path / "zeros.nova").forward(X).any()


def test_only_a_file_has_weights(tmp_path: Path) -> None:
    created = nova.translate(compiled(make_model()), emit="linalg")
    with pytest.raises(PipelineError, match="no program to keep weights"):
        created.save(tmp_path / "a.mlir", weights="embed")


def test_names_are_those_of_the_state_dict(tmp_path: Path) -> None:
    model = make_model()
    before = compiled(model)
    before.save(tmp_path / "x.nova")
    step = nova.train_step(
        model, lambda m, x, y: nova.mse_loss(m(x), y), optim.SGD(model.parameters(), lr=0.1)
    )
    model[0].parameters()  # a part looked at alone changes nothing
    step(X, Y)
    after = compiled(model)
    assert list(before.params) == list(after.params) == list(model.state_dict())
    assert "model.0.weight" in step.compiled.params
    model.save(tmp_path / "m.safetensors")
    loaded = nova.load(tmp_path / "x.nova", weights=tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.forward(X), after(X))
    for weights in (model.state_dict(), tmp_path / "m.safetensors", step.compiled.params):
        if isinstance(weights, dict):
            weights = {n: a for n, a in weights.items() if n.endswith(("weight", "bias"))}
        second = nova.translate(compiled(make_model()), weights=weights)
        np.testing.assert_array_equal(second.load().forward(X), after(X))


def test_a_given_name_stays() -> None:
    layer = nn.Linear(3, 1)
    layer.weight = nn.Parameter(np.ones((1, 3), "f4"), name="mine")
    assert list(compiled(layer).params) == ["mine", "bias"]
    layer.bias.name = "also"
    assert list(compiled(layer).params) == ["mine", "also"]


def test_tied_parameters_of_a_state_dict() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert "1.weight" in model.state_dict()
    created = nova.translate(compiled(model), weights=model.state_dict())
    np.testing.assert_array_equal(created.load().forward(X), compiled(model)(X))


def test_copies_of_tied_parameters() -> None:
    """As a file of the state dict has them, or torch: arrays of their own, with the same bytes."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    state = model.state_dict()
    want = compiled(model)(X)
    copies = {name: np.array(value) for name, value in state.items()}
    present = {name: torch.tensor(value) for name, value in copies.items()}
    present["1.weight"] = present["0.weight"].detach()
    for weights in (copies, present):
        created = nova.translate(compiled(model), weights=weights)
        np.testing.assert_array_equal(created.load().forward(X), want)
    second = {**copies, "1.weight": copies["1.weight"] + 1}
    with pytest.raises(ArgumentNameError, match=r"no argument '1\.weight'"):
        nova.translate(compiled(model), weights=second)
    identical = {**copies, "2.bias": np.zeros(3, "f4"), "0.bias": np.zeros(3, "f4")}
    with pytest.raises(ArgumentNameError, match=r"no argument '2\.bias'"):
        nova.translate(compiled(model), weights=identical)


@pytest.mark.parametrize(
    "name, value",
    [
        *[("source", value) for value in (3, None, [1])],
        *[("targets", value) for value in (3, None, [3], b"cpu")],
        *[("weights", value) for value in (3, [X], b"x", {3: X})],
        ("entry", 3),
        ("start_from", 3),
        ("emit", ["ll"]),
        ("fast_math", "yes"),
        ("cubin", 3),
        ("recorder", {}),
    ],
    ids=repr,
)
def test_arguments_of_other_types(name: str, value: Any) -> None:
    inputs = {"source": "func.func @main() { return }", name: value}
    with pytest.raises(
        OptionTypeError, match=f"{name} is .*of type {type(value).__name__}"
    ) as caught:
        nova.translate(inputs.pop("source"), **inputs)
    assert caught.value.hint is not None and __file__ in (caught.value.where or "")


def test_keywords_that_translate_does_not_have() -> None:
    with pytest.raises(UnknownKeywordError, match=r"no keyword 'target'.*\n.*\n.*'targets'"):
        nova.translate("func.func @main() { return }", target="cpu")


def test_lines_of_the_program_stay() -> None:
    program = compiled(make_model())
    for single in (program, nova.translate(program).load()):
        assert {kernel.location.split(":")[0] for kernel in single.kernels} == {__file__}


def test_the_text_of_a_translation_is_one_line() -> None:
    created = nova.translate(compiled(make_model()), targets=[HOST, "cuda:sm_80"])
    assert repr(created).startswith(f"<Translation to a file for {HOST}, cuda:sm_80, 4 params, ")
    assert len(repr(created)) < 100
    assert repr(nova.translate("func.func @main() { return }", emit="linalg")).endswith(" bytes>")


def test_a_program_that_was_imported_is_translated_again(tmp_path: Path) -> None:
    text = """
func.func @main(%x: tensor<4xf32> {nova.name = "x"}) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
    nova.translate(text).save(tmp_path / "a.nova")
    loaded = nova.load(tmp_path / "a.nova")
    np.testing.assert_array_equal(
        nova.translate(loaded).load()(X[0:1, [0, 1, 2, 0]][0]), X[0, [0, 1, 2, 0]] * 2
    )
    with pytest.raises(PipelineError, match="no text of that stage"):
        nova.translate(loaded, start_from="nova")
