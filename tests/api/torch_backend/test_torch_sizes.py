"""Modules of torch with dynamic sizes: one program with symbolic sizes, compared with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import nova
from nova.api.compile import cache_statistics

BATCH, TIME = Dim("batch", max=1024), Dim("time", min=3, max=512)


class Decoder(nn.Module):
    """Embeddings, positions, causal attention, and products of sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.places = nn.Embedding(512, 16)
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = nn.Linear(16, 50)

    def forward(self, ids: Any) -> Any:
        batch, time = ids.shape
        x = self.embed(ids) + self.places(torch.arange(time))
        mask = torch.full((time, time), float("-inf")).triu(1)
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False, attn_mask=mask)[0]
        pairs = torch.cat([x, x[:, 1:]], 1)
        return self.out(x), pairs.reshape(batch * pairs.shape[1], -1).mean(0)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).mean((2, 3))).softmax(-1)


class Sums(nn.Module):
    """Reductions along dynamic axes, sizes as numbers, two arguments of one size."""

    def forward(self, x: Any, y: Any) -> Any:
        z = x @ y.T / x.shape[0]
        return (
            z.var(0, correction=0),
            (z - z.max(1, keepdim=True).values).exp().sum(),
            x.flatten()[1:],
        )


CASES: dict[str, Any] = {
    "decoder": (Decoder(), [(2, 5)], "ids", ({0: BATCH, 1: TIME},)),
    "images": (Images(), [(2, 3, 8, 8)], "f", ({0: BATCH},)),
    "sums": (Sums(), [(4, 3), (5, 3)], "f", ({0: BATCH}, {0: TIME})),
}
SIZES = [(2, 3), (7, 9), (33, 16), (1, 5), (3, 64)]


def tensors(shapes: Any, element: str, batch: int, time: int) -> list[Any]:
    if element == "ids":
        return [torch.randint(0, 50, (batch, time))]
    if len(shapes) == 1:
        return [torch.randn(batch, *shapes[0][1:])]
    return [torch.randn(batch, 3), torch.randn(time, 3)]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "images" else []) for n in CASES]
)
def test_one_program_takes_all_sizes(name: str) -> None:
    torch.manual_seed(1)
    module, shapes, element, dynamic = CASES[name]
    module = module.eval()
    examples = tensors(shapes, element, 4, 6)
    program = nova.from_torch(module, *examples, dynamic=dynamic)
    assert "one program for all sizes" in program.explain()
    assert "batch=1..1024" in program.explain()
    for batch, time in SIZES:
        args = tensors(shapes, element, batch, time)
        with torch.no_grad():
            expected = module(*args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        actual = program(*args)
        actual = actual if isinstance(actual, tuple) else (actual,)
        for mine, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=2e-4, atol=2e-5)
    assert not program._programs


def test_a_saved_module_takes_all_sizes(tmp_path: Path) -> None:
    module = CASES["decoder"][0].eval()
    program = nova.from_torch(module, torch.randint(0, 50, (2, 5)), dynamic=({0: BATCH, 1: TIME},))
    program.save(tmp_path / "decoder.nova")
    loaded = nova.load(tmp_path / "decoder.nova")
    for batch, time in SIZES[:3]:
        ids = torch.randint(0, 50, (batch, time))
        with torch.no_grad():
            logits = module(ids)[0]
        actual = loaded.forward(ids.numpy())[0]
        np.testing.assert_allclose(actual, logits.numpy(), rtol=2e-4, atol=2e-5)


def test_the_graph_of_a_module_takes_symbolic_tensors() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    program = nova.from_torch(module, torch.randn(4, 3), dynamic={"input": {0: Dim("n")}})
    x = nova.input((nova.dim("n", min=2), 3), name="x")
    loss = (program.function(x) * 2).sum()
    compiled = nova.compile(loss, inputs=[x], params=list(program.params.values()))
    for size in (2, 5, 31):
        array = np.ones((size, 3), "f4")
        expected = (module(torch.from_numpy(array)) * 2).sum().item()
        weights = [p.data for p in program.params.values()]
        np.testing.assert_allclose(compiled(array, *weights), expected, rtol=1e-5)


def test_ops_that_need_numbers_are_compiled_for_each_shape() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sort(0).values

    program = nova.from_torch(Sorted(), torch.randn(4, 3), dynamic=({0: BATCH},))
    for size in (2, 5):
        x = torch.randn(size, 3)
        np.testing.assert_array_equal(program(x).numpy(), x.sort(0).values.numpy())
    assert "a program for each shape, since symbolic sizes fail: " in program.explain()
    assert "axis 0" in program.explain()


# --- torch.compile --------------------------------------------------------------------------------


def compiled_programs() -> int:
    return cache_statistics()["compiled"]


@pytest.mark.parametrize("dynamic", [True, pytest.param(None, marks=pytest.mark.slow)])
def test_torch_compile_trains_with_any_batch(dynamic: bool | None) -> None:
    """`dynamic=None`: dynamo makes the batch symbolic when it changes."""
    torch.manual_seed(2)
    torch._dynamo.reset()
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    run = torch.compile(module, backend="nova", dynamic=dynamic, options={"fallback": False})
    before = compiled_programs()
    for batch in (4, 7, 3, 33, 12):
        x = torch.randn(batch, 8, requires_grad=True)
        result, expected = run(x), module(x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        (gradient,) = torch.autograd.grad(result.square().sum(), x)
        (right,) = torch.autograd.grad(expected.square().sum(), x)
        torch.testing.assert_close(gradient, right, rtol=1e-3, atol=1e-5)
    # Forward and backward; before it, those of the first size.
    assert compiled_programs() - before <= (2 if dynamic else 4)


def test_torch_compile_with_views_and_layouts() -> None:
    torch._dynamo.reset()

    def function(x: Any, y: Any) -> Any:
        z = torch.cat([x, y])
        return x.mean(0), (x.T @ x)[:, :2], z.sum(1), z.T, x[1:] * x.shape[0], z.view(-1)[::2]

    run = torch.compile(function, backend="nova", dynamic=True, options={"fallback": False})
    before = compiled_programs()
    with torch.no_grad():
        for rows in (4, 7, 3):
            x, y = torch.randn(rows, 5), torch.randn(2 * rows, 5)
            for actual, expected in zip(run(x, y), function(x, y), strict=True):
                torch.testing.assert_close(actual, expected)
                assert actual.stride() == expected.stride()
        assert compiled_programs() - before == 1
        # Another order of strides is another program, with the same results.
        x, y = torch.randn(5, 6).T, torch.randn(5, 8).T
        for actual, expected in zip(run(x, y), function(x, y), strict=True):
            torch.testing.assert_close(actual, expected)


def test_torch_compile_updates_arguments_of_any_size() -> None:
    torch._dynamo.reset()

    def step(x: Any, total: Any) -> Any:
        total.add_(x.sum(0))
        x.mul_(2)
        return x + 1

    run = torch.compile(step, backend="nova", dynamic=True, options={"fallback": False})
    for rows in (3, 8, 5):
        x = torch.randn(rows, 4)
        mine, theirs = [x.clone(), torch.zeros(4)], [x.clone(), torch.zeros(4)]
        torch.testing.assert_close(run(*mine), step(*theirs))
        torch.testing.assert_close(mine, theirs)


class Positions(nn.Module):
    """Rows of a table up to the length of the argument."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(128, 8))

    def forward(self, x: Any) -> Any:
        return torch.tanh(x + self.table[: x.shape[1]])


def test_a_slice_of_a_table_up_to_a_symbolic_length() -> None:
    module = Positions()
    program = nova.from_torch(module, torch.randn(2, 12, 8), dynamic=({1: Dim("T", max=128)},))
    before = compiled_programs()
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="nova")
    for length in (12, 13, 40, 128):
        x = torch.randn(2, length, 8)
        with torch.no_grad():
            torch.testing.assert_close(torch.as_tensor(program(x)), module(x))
            torch.testing.assert_close(compiled(x), module(x))
    # That of from_torch, one for the first length, and one for all lengths after it.
    assert compiled_programs() - before == 3


@pytest.mark.parametrize("last", [False, True])
def test_a_length_that_only_a_guard_of_torch_bounds(last: bool) -> None:
    """torch knows that the slice is as long as x; both sizes are symbols."""

    def f(x: Any, table: Any) -> Any:
        return x * (table[-x.shape[0] :] if last else table[: x.shape[0]])

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="nova", dynamic=True)
    table = torch.randn(40, 8)
    for length in (16, 24):
        x = torch.randn(length, 8)
        torch.testing.assert_close(compiled(x, table), f(x, table))


def test_an_invalid_symbolic_program_is_compiled_per_shape_with_a_warning(monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        raise nova.errors.MLIRSyntaxError("'nova.slice' op result type is wrong")

    monkeypatch.setattr("nova.api.torch_backend.backend.SymbolicGraph", refuse)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2, backend="nova", dynamic=True)
    x = torch.randn(5, 3)
    with pytest.warns(nova.errors.FallbackWarning, match="per shape: MLIRSyntaxError"):
        torch.testing.assert_close(compiled(x), x * 2)


def test_a_batch_of_no_images() -> None:
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, 2, 1, groups=2), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 3, 2)
    )
    x = torch.randn(0, 2, 8, 9)
    right = module(x)
    assert nova.from_torch(module, x)(x.numpy()).shape == tuple(right.shape)
    torch._dynamo.reset()
    operand = x.clone().requires_grad_(True)
    result = torch.compile(module, backend="nova")(operand)
    assert result.shape == right.shape
    result.sum().backward()
    assert operand.grad is not None and operand.grad.shape == x.shape
    assert all(p.grad is not None and not p.grad.any() for p in module.parameters())
