"""Custom ops with gradients, in files, in training steps, in MLIR, and their refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nova
from nova.errors import (
    ArgumentCountError,
    CheckError,
    GradientError,
    KernelError,
    OptionTypeError,
    UnknownKeywordError,
)
from nova.plan.text import print_plan

RNG = np.random.default_rng(9)
X = RNG.standard_normal((5, 7)).astype("f4")
SCALE = 3.0


@nova.custom_op(body="loops")
def silu(x, out, *, beta=1.0):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * nova.sigmoid(beta * x[i, j])


@nova.custom_op(body="loops")
def silu_gradient(x, g, out, *, beta=1.0):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            s = nova.sigmoid(beta * x[i, j])
            out[i, j] = g[i, j] * s * (1.0 + beta * x[i, j] * (1.0 - s))


silu.defvjp(
    lambda x, beta: (silu(x, beta=beta), x),
    lambda x, g, beta: (silu_gradient(x, g, beta=beta),),
)


def torch_silu(x: torch.Tensor, beta: float) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


@pytest.mark.parametrize("options", [{}, {"target": "cuda:sm_90", "run_mode": "sim"}])
def test_gradient_as_torch(options: dict[str, Any]) -> None:
    x = nova.tensor(X, requires_grad=True, name="x")
    nova.backward((silu(x, beta=1.5) * x).sum())
    assert x.grad is not None
    program = nova.compile([silu(x, beta=1.5), x.grad], inputs=[x], **options)
    value, slope = program.run([X])
    y = torch.tensor(X, requires_grad=True)
    expected = torch_silu(y, 1.5)
    (expected * y).sum().backward()
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope, y.grad, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_batch() -> None:
    per_example = nova.vmap(nova.grad(lambda row: silu(row).sum()))(np.stack([X, 2 * X]))
    y = torch.tensor(np.stack([X, 2 * X]), requires_grad=True)
    torch_silu(y, 1.0).sum().backward()
    np.testing.assert_allclose(per_example.numpy(), y.grad, rtol=1e-4, atol=1e-5)


def test_training_step_as_torch() -> None:
    model = nova.nn.Linear(7, 4)
    other = torch.nn.Linear(7, 4)
    other.weight.data = torch.tensor(model.weight.data.copy())
    other.bias.data = torch.tensor(model.bias.data.copy())
    step = nova.train_step(
        model, lambda m, x: silu(m(x)).square().mean(), nova.optim.SGD(model.parameters(), 0.5)
    )
    optimizer = torch.optim.SGD(other.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch_silu(other(torch.tensor(X)), 1.0).square().mean()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(step(X), loss.item(), rtol=1e-5)
    np.testing.assert_allclose(model.weight.data, other.weight.detach(), rtol=1e-5, atol=1e-6)


def test_changed_source_compiles_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants from outside are part of the text, and the text is part of the key."""

    @nova.custom_op(body="loops")
    def scaled(x, out):
        for i in range(len(x)):
            out[i] = SCALE * x[i]

    x = np.ones(3, "f4")
    first = scaled.source(x)
    np.testing.assert_array_equal(scaled(x).numpy(), [3, 3, 3])
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    np.testing.assert_array_equal(scaled(x).numpy(), [5, 5, 5])
    assert first != scaled.source(x) and "3.0 * x[i]" in first

    a, b = nova.input((3,), name="x"), nova.input((3,), name="x")
    plans = {print_plan(nova.compile(scaled(v), inputs=[v]).plan, locations=False) for v in (a, b)}
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    plans |= {print_plan(nova.compile(scaled(a), inputs=[a]).plan, locations=False)}
    assert len(plans) == 2


MODULE = """
import numpy as np
import nova

@nova.custom_op(body="loops")
def double(x, out):
    for i in range(x.shape[0]):
        out[i] = x[i] * FACTOR

FACTOR = {factor}
x = nova.input((4,), name="x")
program = nova.compile(double(x) + 1.0, inputs=[x])
program.save({path!r})
print(program.run([np.arange(1, 5, dtype="f4")]))
"""

LOADER = """
import sys
import numpy as np
import nova

program = nova.load(sys.argv[1])
print(program.run([np.arange(4, dtype="f4")]))
assert "mlir" not in sys.modules
"""


def test_saved_files_run_without_the_source(tmp_path: Path) -> None:
    """A process with the source writes the file; one without runs it, and compiles its plan."""
    path = tmp_path / "double.nova"
    for factor, expected in ((2.0, "[3. 5. 7. 9.]"), (4.0, "[ 5.  9. 13. 17.]")):
        script = tmp_path / "module.py"
        script.write_text(MODULE.format(factor=factor, path=str(path)))
        written = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True
        )
        assert expected in written.stdout
    script.unlink()
    script = tmp_path / "loader.py"
    script.write_text(LOADER)
    loaded = subprocess.run(
        [sys.executable, str(script), str(path)], capture_output=True, text=True, check=True
    )
    assert "[ 1.  5.  9. 13.]" in loaded.stdout
    x = nova.tensor(np.ones(4, "f4"))
    np.testing.assert_array_equal(nova.call(nova.load(path), x, inline=True).numpy(), [5] * 4)


# --- Nova ops and MLIR ----------------------------------------------------------------------------


def test_body_in_ops() -> None:
    @nova.custom_op(out=lambda x: x, reference=lambda x: np.maximum(x, 0) ** 2)
    def squared_relu(x):
        return nova.relu(x).square()

    squared_relu.check(X, targets=("cpu", "sim"))
    y = torch.tensor(X, requires_grad=True)
    torch.relu(y).square().sum().backward()
    slope = nova.grad(lambda x: squared_relu(x).sum())(X)
    np.testing.assert_allclose(slope.numpy(), y.grad, rtol=1e-6)

    @nova.custom_op(out=lambda x: nova.TensorType((1,), x.dtype))
    def wrong_type(x):
        return x + 1.0

    with pytest.raises(KernelError, match=r"returns \(f32\[5,7\]\), and its type rule says"):
        wrong_type(X)

    @nova.custom_op(reference=lambda x: x + 2)
    def wrong_value(x):
        return x + 1.0

    with pytest.raises(CheckError, match="35 of 35 elements differ"):
        wrong_value.check(X)


LINALG = """
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<{n}x{m}xf32>) -> tensor<{n}x{m}xf32> {{
  %empty = tensor.empty() : tensor<{n}x{m}xf32>
  %0 = linalg.generic {{indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}}
      ins(%x : tensor<{n}x{m}xf32>) outs(%empty : tensor<{n}x{m}xf32>) {{
  ^bb0(%a: f32, %b: f32):
    %s = math.sin %a : f32
    %t = arith.mulf %s, %a : f32
    linalg.yield %t : f32
  }} -> tensor<{n}x{m}xf32>
  return %0 : tensor<{n}x{m}xf32>
}}
"""
STABLEHLO = """
func.func @main(%x: tensor<{n}x{m}xf32>) -> tensor<{n}x{m}xf32> {{
  %0 = stablehlo.sine %x : tensor<{n}x{m}xf32>
  %1 = stablehlo.multiply %0, %x : tensor<{n}x{m}xf32>
  return %1 : tensor<{n}x{m}xf32>
}}
"""


@pytest.mark.parametrize("text", [LINALG, STABLEHLO], ids=["linalg", "stablehlo"])
def test_body_in_mlir(text: str, tmp_path: Path) -> None:
    @nova.custom_op(body="mlir", out=lambda x: x, reference=lambda x: np.sin(x) * x)
    def sine(x):
        return text.format(n=x.shape[0], m=x.shape[1])

    sine.defvjp(lambda x: (sine(x), x), lambda x, g: (g * (nova.cos(x) * x + nova.sin(x)),))
    sine.check(X, targets=("cpu", "sim"))
    sine.check(X[:3, :2])
    slope = nova.jit(nova.grad(lambda x: (sine(x) * 2.0).sum()))(X)
    np.testing.assert_allclose(slope, 2 * (np.cos(X) * X + np.sin(X)), rtol=1e-4, atol=1e-5)
    x = nova.input(X.shape, name="x")
    program = nova.compile(sine(x), inputs=[x])
    program.save(tmp_path / "sine.nova")
    loaded = nova.call(nova.load(tmp_path / "sine.nova"), nova.tensor(X), inline=True)
    np.testing.assert_allclose(loaded.numpy(), np.sin(X) * X, rtol=1e-5, atol=1e-6)
    with pytest.raises(KernelError, match="vmap of a custom op in MLIR"):
        nova.vmap(sine)(np.stack([X, X]))


def test_refused_mlir() -> None:
    def op(text: str) -> Any:
        return nova.custom_op(body="mlir")(lambda x: text)

    with pytest.raises(KernelError, match="expected operation name"):
        op("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { 1 }")(X)
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    with pytest.raises(KernelError, match=r"its MLIR takes \(f32\[2\]\), and the operands are"):
        op(text)(X)
    loop = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %c = stablehlo.constant dense<9.0> : tensor<f32>
      %r = stablehlo.while(%a = %x) : tensor<f32> cond {
        %less = stablehlo.compare LT, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %less : tensor<i1>
      } do {
        %twice = stablehlo.add %a, %a : tensor<f32>
        stablehlo.return %twice : tensor<f32>
      }
      return %r : tensor<f32> }"""
    with pytest.raises(KernelError, match=r"^<lambda>: its MLIR has loops") as caught:
        op(loop)(np.float32(1))
    assert "test_custom_op.py" in str(caught.value)
    with pytest.raises(KernelError, match="returned a int, not MLIR text"):
        op(3)(X)  # type: ignore[arg-type]


# --- refusals -------------------------------------------------------------------------------------


def _while(x, out):
    i = 0
    while i < 3:
        out[i] = x[i]


def _unknown_function(x, out):
    for i in range(len(x)):
        out[i] = print(x[i])


def _not_elementwise(x, out):
    for i in range(len(x)):
        out[i] = np.cumsum(x[i])


def _writes_input(x, out):
    for i in range(len(x)):
        x[i] = 1.0


def _assigns_tensor(x, out):
    out = x
    out[0] = 1.0


def _float_index(x, out):
    for i in range(len(x)):
        out[i] = x[i / 2]


def _wrong_rank(x, out):
    for i in range(len(x)):
        out[i] = x[i, 0]


def _not_assigned(x, out):
    for i in range(len(x)):
        out[i] = nova.missing + x[i]


def _not_independent(x, out):
    total = 0.0
    for i in nova.range(len(x)):
        total += x[i]
        out[i] = total


def _slices(x, out):
    for i in range(len(x)):
        out[i] = x[0:2]


def _constant_index(x, out):
    for i in range(len(x)):
        out[i] = x[9]


def _iterates(x, out):
    for value in x:
        out[0] = value


@pytest.mark.parametrize(
    ("function", "line", "message"),
    [
        (_while, 2, "`while` is not part of a kernel"),
        (_unknown_function, 2, "is not a function of nova, numpy or math"),
        (_not_elementwise, 2, "'cumsum' is not an elementwise function"),
        (_writes_input, 2, "writes to the input 'x'"),
        (_assigns_tensor, 1, "assigns the tensor 'out'"),
        (_float_index, 2, "is a float"),
        (_wrong_rank, 2, "x has 1 axes, and 2 indices here"),
        (_not_assigned, 2, "`nova.missing` is not defined outside"),
        (_not_independent, 2, "not independent: total goes from one iteration to the next"),
        (_slices, 2, "is not part of a kernel"),
        (_constant_index, 2, "and no element 9"),
        (_iterates, 1, "loops over `x`"),
    ],
)
def test_errors_name_the_users_line(function: Any, line: int, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        nova.custom_op(function, body="loops")(np.ones(4, "f4"))
    assert message in str(caught.value)
    assert caught.value.where == f"{__file__}:{function.__code__.co_firstlineno + line}"


def test_refused_calls() -> None:
    @nova.custom_op(body="loops")
    def copy(x, out, *, factor):
        for i in range(len(x)):
            out[i] = factor * x[i]

    x = np.ones(3, "f4")
    with pytest.raises(UnknownKeywordError, match="factr"):
        copy(x, factr=2)
    with pytest.raises(ArgumentCountError, match="needs the constant 'factor'"):
        copy(x)
    with pytest.raises(KernelError, match="is called with 2 tensors"):
        copy(x, x, factor=2)
    with pytest.raises(KernelError, match="a list from outside"):
        copy(x, factor=[2])
    with pytest.raises(GradientError, match="has no gradient") as caught:
        nova.grad(lambda x: copy(x, factor=2).sum())(x)
    assert __file__ in str(caught.value)
    with pytest.raises(OptionTypeError, match="body 'c'"):
        nova.custom_op(body="c")
    with pytest.raises(KernelError, match="has 1 outputs, and its type rule 2 types"):
        nova.custom_op(copy.__wrapped__, body="loops", out=lambda x, factor: (x, x))(x, factor=1)
    with pytest.raises(KernelError, match="type rule of copy returned a int"):
        nova.custom_op(copy.__wrapped__, body="loops", out=lambda x, factor: 3)(x, factor=1)
    with pytest.raises(KernelError, match="defined with def"):
        nova.custom_op(lambda x, out: None, body="loops")(x)


def test_calls_that_do_not_fit_the_functions_of_the_user() -> None:
    x = np.ones(4, "f4")

    @nova.custom_op
    def in_ops(a: Any, b: Any) -> Any:
        return a + b

    @nova.custom_op(body="mlir")
    def in_mlir(a: Any, b: Any) -> str:
        return LINALG

    for failing in (lambda: in_ops(x), lambda: in_mlir(x), lambda: in_mlir.source(x)):
        with pytest.raises(ArgumentCountError, match=r"'b'[^$]*it takes \(a, b\)") as count:
            failing()
        assert "test_custom_op.py" in str(count.value.where)
    with pytest.raises(UnknownKeywordError, match="in_ops: has no keyword 'c'"):
        in_ops(x, x, c=1)
    with pytest.raises(KernelError, match=r"'g' is an output; it is read[^$]*gradient\(x, g\)"):
        silu_gradient(X)
    for wrong in (lambda a: a, lambda a, b, c: a):
        with pytest.raises(
            KernelError, match=r"type rule of in_ops.*[^$]*it takes \(a, b\)"
        ) as rule:
            nova.custom_op(in_ops.__wrapped__, out=wrong)(x, x)
        assert f"test_custom_op.py:{wrong.__code__.co_firstlineno}" in str(rule.value.where)
    with pytest.raises(KernelError, match="the reference of in_ops"):
        nova.custom_op(in_ops.__wrapped__, reference=lambda a: a).check(x, x)
    for keyword in ("out", "reference"):
        with pytest.raises(OptionTypeError, match=f"{keyword} is a int"):
            nova.custom_op(**{keyword: 3})(in_ops.__wrapped__)


@nova.custom_op(out=lambda x, **constants: x)
def halved(x: Any, *, times: int = 1) -> Any:
    return halved(x * 0.5, times=times - 1) if times else x


@nova.custom_op(out=lambda x: x)
def endless(x: Any) -> Any:
    return also_endless(x) + 1


@nova.custom_op(out=lambda x: x)
def also_endless(x: Any) -> Any:
    return endless(x)


def test_a_recursion_ends_by_a_constant() -> None:
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(halved(nova.tensor(x), times=3).numpy(), x / 8)
    with pytest.raises(KernelError, match="calls itself, or another function, without end") as got:
        endless(nova.tensor(x))
    assert "nova.while_loop" in str(got.value.hint)
