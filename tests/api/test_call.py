"""`nova.call`: programs inside of programs, inlined or called, against numpy and torch."""

from __future__ import annotations

import re
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import nova
from nova import errors, knobs, nn, optim
from nova.api.compiled import Compiled
from nova.graph.interpret import evaluate
from nova.plan import parse_plan

RNG = np.random.default_rng(0)
W = RNG.normal(size=(8, 8)).astype("f4") / 3
X = RNG.normal(size=(3, 8)).astype("f4")


def compiled_layer() -> Compiled:
    """tanh(x @ w), and its sums over rows."""
    x, w = nova.input((3, 8), name="x"), nova.tensor(W, name="w")
    y = nova.tanh(x @ w)
    return nova.compile([y, y.sum(axis=0)], inputs=[x], params=[w])


@pytest.fixture(scope="module")
def layer() -> Compiled:
    return compiled_layer()


@pytest.fixture(scope="module")
def path(layer: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("call") / "layer.nova"
    layer.save(path, weights="embed")
    return path


@pytest.fixture(scope="module")
def loaded(path: Path) -> Compiled:
    return nova.load(path)


@pytest.fixture(scope="module")
def opaque(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """x + x, from MLIR: a file without a plan."""
    text = """
    func.func @main(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
      %0 = stablehlo.add %x, %x : tensor<3x8xf32>
      return %0 : tensor<3x8xf32>
    }"""
    path = tmp_path_factory.mktemp("opaque") / "double.nova"
    nova.translate(text, targets="cpu").save(path)
    return nova.load(path)


def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.tanh(x @ W)
    return y, y.sum(axis=0)


@pytest.fixture(params=["inlined", "inlined file", "called", "called program"])
def use(request: pytest.FixtureRequest, layer: Compiled, loaded: Compiled) -> Callable:
    program = layer if request.param in ("inlined", "called program") else loaded
    inline = {"inlined file": True, "called program": False}.get(request.param)
    return lambda *args: nova.call(program, *args, inline=inline)


def calls_of(program: Compiled) -> int:
    def count(plan) -> int:
        inner = sum(count(region) for step in plan.steps for region in step.regions)
        return inner + sum(step.op == "call" for step in plan.steps)

    return count(program.plan)


def test_values_in_compile_jit_and_eager(use: Callable):
    expected = reference(2 * X)
    x = nova.input((3, 8), name="x")
    program = nova.compile(list(use(x * 2)), inputs=[x])
    for results in (program(X), nova.jit(lambda x: use(x * 2))(X)):
        for a, b in zip(results, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    eager = use(nova.tensor(X) * 2)
    np.testing.assert_allclose(eager[1].numpy(), expected[1], rtol=1e-5, atol=1e-6)


def test_compiled_programs_are_inlined_and_files_are_called(layer: Compiled, loaded: Compiled):
    x = nova.input((3, 8), name="x")
    lower = nova.jit(lambda x: nova.call(layer, x)[0] + 1).lower(X)
    assert calls_of(lower) == 0
    # One kernel: the product, tanh and the addition after the call are fused.
    assert len(lower.kernels) == 1
    assert calls_of(nova.compile(nova.call(loaded, x)[0], inputs=[x])) == 1
    assert calls_of(nova.compile(nova.call(loaded, x, inline=True)[0], inputs=[x])) == 0
    assert calls_of(nova.compile(nova.call(layer, x, inline=False)[0], inputs=[x])) == 1


def test_jitted_functions_are_inlined():
    inner = nova.jit(lambda x, pair: {"sum": x + pair["a"], "product": x * pair["b"]})
    outer = nova.jit(lambda x: nova.call(inner, x, {"a": x, "b": 3.0}))
    assert np.array_equal(outer(X)["sum"], X + X) and np.array_equal(outer(X)["product"], X * 3)


@pytest.mark.parametrize("inline", [None, True, False])
def test_jitted_functions_keep_the_structure_of_their_results(inline: bool | None):
    w = nova.tensor(W)
    inner = nova.jit(lambda pair, k: {"y": pair["x"] @ w * k, "rest": [pair["x"], (k + 1,)]})
    outer = nova.jit(lambda x: nova.call(inner, {"x": x}, 2, inline=inline))
    results = outer(X)
    assert list(results) == ["y", "rest"] and isinstance(results["rest"], list)
    np.testing.assert_allclose(results["y"], X @ W * 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(results["rest"][0], X)
    assert results["rest"][1][0] == 3
    assert results["y"].dtype == np.float32


@pytest.mark.parametrize("inline", [None, False])
def test_static_arguments_are_bound(inline: bool | None):
    inner = nova.jit(lambda x, mode, k: x * k if mode == "times" else x + k, static_argnums=(1, 2))
    outer = nova.jit(
        lambda x: [nova.call(inner, x, m, 3, inline=inline) for m in ("times", "plus")]
    )
    for actual, expected in zip(outer(X), (X * 3, X + 3), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_code_is_not_called_with_symbolic_sizes():
    y = nova.input((nova.dim("n", min=1, max=64), 4), name="y")
    with pytest.raises(errors.CallError, match="code is called with static sizes"):
        nova.call(nova.jit(lambda x: x + 1), y, inline=False)


def test_gradients_against_torch(use: Callable):
    def loss(x, w):
        y, sums = use(x, w)
        return (y * y).sum() + (sums * 3).sum()

    x, w = (torch.tensor(a, requires_grad=True) for a in (X, W))
    y = torch.tanh(x @ w)
    ((y * y).sum() + (y.sum(0) * 3).sum()).backward()
    for grad, tensor in zip(nova.jit(nova.grad(loss, (0, 1)))(X, W), (x, w), strict=True):
        np.testing.assert_allclose(grad, tensor.grad, rtol=1e-4, atol=1e-5)
    # Of second order, of an input alone.
    second = nova.jit(nova.grad(lambda x: (nova.grad(lambda x: use(x)[0].sum())(x) ** 2).sum()))(X)
    (first,) = torch.autograd.grad(torch.tanh(x @ w).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad((first**2).sum(), x)
    np.testing.assert_allclose(second, expected, rtol=1e-3, atol=1e-4)


def test_an_argument_that_is_passed_twice(tmp_path: Path):
    a, b = nova.input((4,), name="a"), nova.input((4,), name="b")
    nova.compile(a * a * b, inputs=[a, b]).save(tmp_path / "p.nova")
    program = nova.load(tmp_path / "p.nova")
    x = np.arange(4, dtype="f4")
    grad = nova.jit(nova.grad(lambda x: nova.call(program, x, x).sum()))(x)
    np.testing.assert_allclose(grad, 3 * x * x, rtol=1e-6)


def test_inside_of_scans_branches_and_loops(use: Callable):
    def steps(x):
        def body(carry, _):
            y, sums = use(carry)
            return carry + y, sums

        last, rows = nova.scan(body, x, length=3)
        chosen = nova.cond(rows.sum() < 1e9, lambda: use(last)[0], lambda: last)
        looped = nova.while_loop(
            lambda s: (s[1] < 4) & (use(s[0])[0].sum() < 1e9),
            lambda s: (s[0] + use(s[0])[0], s[1] + 1),
            (x, 0),
        )
        return rows, chosen, looped[0]

    x, rows = X, []
    for _ in range(3):
        rows.append(reference(x)[1])
        x = x + reference(x)[0]
    chosen, looped = reference(x)[0], x + reference(x)[0]
    for a, b in zip(nova.jit(steps)(X), (rows, chosen, looped), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-4, atol=1e-5)


def test_the_gradient_of_a_scan_of_calls(use: Callable):
    def loss(x):
        return nova.scan(lambda c, _: (use(c)[0] * 2, None), x, length=3)[0].sum()

    x = torch.tensor(X, requires_grad=True)
    y = x
    for _ in range(3):
        y = torch.tanh(y @ torch.tensor(W)) * 2
    y.sum().backward()
    np.testing.assert_allclose(nova.jit(nova.grad(loss))(X), x.grad, rtol=1e-3, atol=1e-5)


def test_a_training_step_through_a_program(use: Callable):
    """The called program is a fixed layer before the one that is trained."""
    nn.manual_seed(0)
    model = nn.Linear(8, 2)
    start = [np.array(p.data) for p in model.parameters()]
    step = nova.train_step(
        model, lambda m, x: (m(use(x)[0]) ** 2).mean(), optim.SGD(model.parameters(), lr=0.1)
    )
    step(X)
    weight, bias = (torch.tensor(a, requires_grad=True) for a in start)
    features = torch.tensor(reference(X)[0])
    ((features @ weight.reshape(2, 8).T + bias) ** 2).mean().backward()
    np.testing.assert_allclose(
        np.array(model.weight.data), (weight - 0.1 * weight.grad).detach(), rtol=1e-4, atol=1e-6
    )


def test_files_of_files(loaded: Compiled, tmp_path: Path):
    program = loaded
    expected = X
    for depth in range(3):
        x = nova.input((3, 8), name="x")
        y = nova.call(program, x)
        y = (y[0] if isinstance(y, tuple) else y) + 1
        nova.compile(y, inputs=[x]).save(tmp_path / f"{depth}.nova")
        program = nova.load(tmp_path / f"{depth}.nova")
        assert np.array_equal(program(X), nova.load(tmp_path / f"{depth}.nova")(X))
    expected = reference(X)[0] + 3
    np.testing.assert_allclose(program(X), expected, rtol=1e-5, atol=1e-6)


def test_a_c_program_runs_a_file_that_calls_a_file(tmp_path: Path):
    path = tmp_path / "layer.nova"
    examples = Path(__file__).resolve().parents[2] / "examples" / "c"
    runpy.run_path(str(examples / "layer.py"))["main"](str(path))
    layer = nova.load(path)
    inputs = [nova.input(a.shape, name=a.name) for a in layer.signature.arguments]
    outer = tmp_path / "outer.nova"
    nova.compile(nova.call(layer, *inputs) * 2, inputs=inputs).save(outer)
    run = tmp_path / "descriptors"
    subprocess.run(["gcc", str(examples / "descriptors.c"), "-o", str(run)], check=True)
    result = subprocess.run([run, outer], capture_output=True, env={}, check=True)
    assert result.stdout == b"9 0\n21 15\n"


def test_many_tasks_and_large_workspaces(tmp_path: Path):
    """A callee that is not inline: several matmuls on all threads, with memory of its own."""
    a = RNG.normal(size=(256, 256)).astype("f4") / 16
    x = nova.input((256, 256), name="x")
    nova.compile(nova.tanh(nova.tanh(x @ x) @ x) @ x, inputs=[x]).save(tmp_path / "p.nova")
    program = nova.load(tmp_path / "p.nova")
    assert program.workspace_size > 0
    expected = np.tanh(np.tanh(a @ a) @ a) @ a
    run = nova.jit(lambda x: nova.call(program, x) + nova.call(program, x))
    np.testing.assert_allclose(run(a), 2 * expected, rtol=1e-3, atol=1e-4)
    twice = nova.jit(
        lambda x: nova.scan(lambda c, _: (nova.call(program, c), None), x, length=2)[0]
    )
    np.testing.assert_allclose(twice(a), program(program(a)), rtol=1e-5, atol=1e-6)


def test_plan_text_and_interpreter(loaded: Compiled):
    x = nova.tensor(X, name="x")
    y = nova.call(loaded, x)[0] * 2
    plan = nova.jit(lambda x: nova.call(loaded, x)[0] * 2).lower(X).plan
    assert parse_plan(str(plan)) == plan
    [value] = evaluate([y])
    np.testing.assert_allclose(value, reference(X)[0] * 2, rtol=1e-5, atol=1e-6)
    assert np.array_equal(nova.compile_plan(str(plan))(X), value)


def test_programs_with_symbolic_sizes_are_inlined(tmp_path: Path):
    n = nova.dim("n", min=1, max=64)
    x = nova.input((n, 4), name="x")
    nova.compile(x / x.shape[0], inputs=[x]).save(tmp_path / "p.nova")
    program = nova.load(tmp_path / "p.nova")
    a = RNG.normal(size=(6, 4)).astype("f4")
    np.testing.assert_allclose(nova.jit(lambda x: nova.call(program, x))(a), a / 6, rtol=1e-6)
    m = nova.dim("m", min=2, max=32)
    y = nova.input((m, 4), name="y")
    outer = nova.compile(nova.call(program, nova.concat([y, y])), inputs=[y])
    np.testing.assert_allclose(outer(a), np.concatenate([a, a]) / 12, rtol=1e-6)
    with pytest.raises(errors.CallError, match="symbolic sizes n") as raised:
        nova.call(program, nova.tensor(a), inline=False)
    assert "inline=True" in str(raised.value)
    with pytest.raises(errors.ArgumentShapeError, match=r"n of p\.nova is 1 to 64"):
        nova.call(program, nova.tensor(np.zeros((65, 4), "f4")))


def compiled_sum(name: str = "B") -> Compiled:
    """The sum of the first 128 of `name` elements, which are 128 to 200."""
    x = nova.input((nova.dim(name, min=128, max=200),), name="x")
    return nova.compile(x[:128].sum(), inputs=[x])


@pytest.mark.parametrize(
    ("low", "high", "fits"),
    [(1, 4000, False), (128, 201, False), (127, 200, False), (128, 200, True), (130, 140, True)],
)
@pytest.mark.parametrize("name", ["B", "C"])
def test_bounds_of_a_symbolic_caller_are_inside_of_those_of_the_program(
    low: int, high: int, fits: bool, name: str
):
    program = compiled_sum()
    y = nova.input((nova.dim(name, min=low, max=high),), name="y")
    if fits:
        outer = nova.compile(nova.call(program, y), inputs=[y])
        assert outer(np.ones(low, "f4")) == 128
        return
    text = f"B of .* is 128 to 200, and the arguments make it {name}, which is {low} to {high}"
    with pytest.raises(errors.ArgumentShapeError, match=text) as raised:
        nova.call(program, y)
    assert "with bounds that keep it in 128 to 200" in str(raised.value)


def test_bounds_of_expressions():
    n = nova.dim("n", min=64, max=100)
    y = nova.input((n,), name="y")
    outer = nova.compile(nova.call(compiled_sum(), nova.concat([y, y])), inputs=[y])
    assert outer(np.ones(70, "f4")) == 128
    with pytest.raises(errors.ArgumentShapeError, match=r"make it n\*3, which is 192 to 300"):
        nova.call(compiled_sum(), nova.concat([y, y, y]))
    unbounded = nova.input((nova.dim("m"),), name="m")
    program = nova.compile(unbounded.sum(), inputs=[unbounded])
    assert (
        nova.compile(nova.call(program, nova.concat([unbounded] * 3)), inputs=[unbounded])(
            np.ones(5, "f4")
        )
        == 15
    )


@pytest.mark.parametrize("shape", [(), (130, 2)])
def test_the_rank_is_checked_before_the_sizes(shape: tuple[int, ...]):
    with pytest.raises(errors.ArgumentShapeError, match=rf"'x' of .*, with {len(shape)} axes"):
        nova.call(compiled_sum(), np.ones(shape, "f4"))


def test_a_program_with_symbolic_sizes_calls_a_file(loaded: Compiled):
    n = nova.dim("n", min=1, max=64)
    y = nova.input((n, 3, 8), name="y")

    def body(carry, x):
        result = nova.call(loaded, x)[0]
        return carry + result, result

    zeros = nova.tensor(np.zeros((3, 8), "f4"))
    total, rows = nova.scan(body, zeros, y)
    program = nova.compile([total, rows, nova.call(loaded, total)[1]], inputs=[y])
    for count in (1, 5):
        a = RNG.normal(size=(count, 3, 8)).astype("f4")
        expected = np.tanh(a @ W)
        results = (expected.sum(axis=0), expected, reference(expected.sum(axis=0))[1])
        for actual, right in zip(program(a), results, strict=True):
            np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5)


def test_vmap_runs_the_file_for_each_example(use: Callable, opaque: Compiled):
    batch = RNG.normal(size=(4, 3, 8)).astype("f4")
    y, sums = nova.jit(nova.vmap(lambda x, w: use(x, w), in_axes=(0, None)))(batch, W)
    expected = np.tanh(batch @ W)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums, expected.sum(axis=1), rtol=1e-5, atol=1e-5)
    doubled = nova.jit(nova.vmap(lambda x: nova.call(opaque, x)))(batch)
    np.testing.assert_array_equal(doubled, 2 * batch)
    grad = nova.jit(nova.vmap(nova.grad(lambda x: use(x)[0].sum())))(batch)
    np.testing.assert_allclose(grad, (1 - expected**2) @ W.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("check", ["1", "nan"])
def test_checked_runs(use: Callable, check: str):
    with knobs.override(check=check):
        run = nova.jit(lambda x: nova.cond(x.sum() > 1e9, lambda: x, lambda: use(x)[0]) + 1)
        np.testing.assert_allclose(run(X), reference(X)[0] + 1, rtol=1e-5, atol=1e-6)


def test_programs_for_several_targets(loaded: Compiled, tmp_path: Path):
    program = nova.jit(lambda x: nova.call(loaded, x)[0] + 1).lower(X)
    nova.translate(program, targets=["x86_64-v2", "cpu"]).save(tmp_path / "p.nova")
    np.testing.assert_allclose(
        nova.load(tmp_path / "p.nova")(X), reference(X)[0] + 1, rtol=1e-5, atol=1e-6
    )


def test_calls_are_not_exported_to_onnx(loaded: Compiled):
    program = nova.jit(lambda x: nova.call(loaded, x)[0] + 1).lower(X)
    with pytest.raises(errors.UnsupportedOpError, match="call is not exported to ONNX"):
        nova.to_onnx(program)


# --- devices --------------------------------------------------------------------------------------


def test_on_a_device(loaded: Compiled, layer: Compiled):
    options = {"target": "cuda:sm_80", "run_mode": "sim"}
    for program, inline in ((layer, None), (loaded, True)):
        run = nova.jit(lambda x, p=program, i=inline: nova.call(p, x, inline=i)[0] + 1, **options)
        np.testing.assert_allclose(run(X), reference(X)[0] + 1, rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.UnsupportedOpError, match="for a device calls a file") as raised:
        nova.jit(lambda x: nova.call(loaded, x)[0], **options)(X)
    assert "test_call.py" in str(raised.value) and "inline=True" in str(raised.value)

    def on_the_host(x):
        with nova.device("cpu"):
            return nova.call(loaded, x)[0]

    with pytest.raises(errors.UnsupportedOpError, match="pinned to the host"):
        nova.jit(on_the_host, **options)(X)


# --- errors ---------------------------------------------------------------------------------------


def test_signature_errors_name_the_line_and_the_argument(loaded: Compiled):
    cases = [
        ((), errors.ArgumentCountError, "takes 1 or 2 arguments, and 0 are passed"),
        ((X[:2],), errors.ArgumentShapeError, r"'x' of layer.nova is f32\[3,8\], and f32\[2,8\]"),
        ((X.astype("f8"),), errors.ArgumentDTypeError, r"is f32\[3,8\], and f64\[3,8\] is passed"),
        ((X, W[:3]), errors.ArgumentShapeError, r"'w' of layer.nova is f32\[8,8\]"),
    ]
    for args, error, text in cases:
        with pytest.raises(error, match=text) as raised:
            nova.call(loaded, *args)
        assert "test_call.py" in str(raised.value)


def test_programs_that_cannot_be_called():
    with pytest.raises(errors.CallError, match="a function, which is not a program"):
        nova.call(lambda x: x, X)
    x, w = nova.input((3,), name="x"), nova.tensor(np.ones(3, "f4"), name="w")
    step = nova.compile(x.sum(), inputs=[x], params=[w], updates={w: w + x})
    with pytest.raises(errors.CallError, match="updates w in place, and a call has no effects"):
        nova.call(step, np.ones(3, "f4"))


def test_a_file_without_weights_needs_them(tmp_path: Path):
    compiled_layer().save(tmp_path / "bare.nova")
    bare = nova.load(tmp_path / "bare.nova")
    with pytest.raises(errors.ArgumentCountError, match="carries no value for w"):
        nova.call(bare, X)
    np.testing.assert_allclose(
        nova.jit(lambda x, w: nova.call(bare, x, w)[0])(X, W), reference(X)[0], rtol=1e-5, atol=1e-6
    )


def test_a_file_without_a_graph(opaque: Compiled):
    run = nova.jit(lambda x: nova.call(opaque, x) * 3)
    np.testing.assert_array_equal(run(X), X * 6)
    with pytest.raises(errors.CallError, match="has no graph to inline"):
        nova.call(opaque, X, inline=True)
    with pytest.raises(errors.GradientError, match="has code and no graph") as raised:
        nova.jit(nova.grad(lambda x: nova.call(opaque, x).sum()))(X)
    assert "test_call.py" in str(raised.value)
    np.testing.assert_array_equal(
        nova.jit(nova.grad(lambda x: (nova.call(opaque, x).detach() * x).sum()))(X), 2 * X
    )


@pytest.mark.parametrize(
    ("pattern", "new", "text"),
    [
        (r"memory=\d+", "memory=0", "0 bytes are too few for a called file"),
        (r"\(f32\[3,8\], f32\[8\]\) {", "(f32[3,8], f32[9]) {", "another size"),
        (r"f32\[3,8\]", "f32[4,8]", "passes 128 bytes for 'x', which has 96"),
    ],
)
def test_a_call_that_does_not_match_its_file_is_refused(
    loaded: Compiled, pattern: str, new: str, text: str
):
    x = nova.input((3, 8), name="x")
    plan = str(nova.compile(nova.call(loaded, x)[0], inputs=[x]).plan)
    changed = re.sub(pattern, new, plan)
    assert changed != plan
    with pytest.raises(errors.ArtifactError, match=text):
        nova.compile_plan(changed)
