"""Whole programs with symbolic sizes: one compile for many batches, files, training, errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import nova
from nova import nn, optim
from nova.api.compile import cache_statistics
from nova.errors import ArgumentShapeError, ShapeError, SymbolicSizeError
from nova.graph.interpret import evaluate
from nova.plan import build_plan, parse_plan

RNG = np.random.default_rng(7)
B = nova.dim("B", min=1, max=4096)


def mlp() -> tuple[nova.Tensor, nova.Tensor, list[nova.Tensor]]:
    sizes = (20, 32, 16, 5)
    params = [
        nova.tensor(RNG.standard_normal(shape).astype("f4") / 4, requires_grad=True)
        for n, m in pairwise(sizes)
        for shape in ((n, m), (m,))
    ]
    x = nova.input((B, 20), name="x")
    h = x
    for i in range(0, len(params), 2):
        h = h @ params[i] + params[i + 1]
        h = nova.gelu(h) if i < len(params) - 2 else h
    return x, nova.softmax(h, axis=-1), params


def expected_mlp(array: np.ndarray, params: list[nova.Tensor]) -> np.ndarray:
    h = torch.from_numpy(array)
    for i in range(0, len(params), 2):
        h = h @ torch.from_numpy(params[i].data) + torch.from_numpy(params[i + 1].data)
        h = torch.nn.functional.gelu(h) if i < len(params) - 2 else h
    return torch.softmax(h, -1).numpy()


def test_thirty_batch_sizes_are_one_compile():
    x, y, params = mlp()
    before = cache_statistics()["compiled"]
    program = nova.compile(y, inputs=[x], params=params)
    arrays = [p.data for p in params]
    for n in range(1, 31):
        batch = RNG.standard_normal((n, 20)).astype("f4")
        np.testing.assert_allclose(
            program(batch, *arrays), expected_mlp(batch, params), rtol=2e-4, atol=1e-6
        )
    assert cache_statistics()["compiled"] == before + 1


def test_gradients_of_all_batch_sizes():
    x, y, params = mlp()
    target = nova.input((B,), "i64", name="target")
    loss = nova.nll_loss(nova.log(y), target) + (y * y).mean()
    program = nova.compile(loss, inputs=[x, target], params=params, include_backward=True)
    for n in (1, 2, 17, 64, 67):
        batch = RNG.standard_normal((n, 20)).astype("f4")
        classes = RNG.integers(0, 5, n)
        value, *grads = program(batch, classes, *(p.data for p in params))
        leaves = [torch.from_numpy(p.data).requires_grad_() for p in params]
        h = torch.from_numpy(batch)
        for i in range(0, len(leaves), 2):
            h = h @ leaves[i] + leaves[i + 1]
            h = torch.nn.functional.gelu(h) if i < len(leaves) - 2 else h
        p = torch.softmax(h, -1)
        total = torch.nn.functional.nll_loss(p.log(), torch.from_numpy(classes)) + (p * p).mean()
        total.backward()
        np.testing.assert_allclose(value, total.item(), rtol=1e-5)
        for actual, leaf in zip(grads, leaves, strict=True):
            np.testing.assert_allclose(actual, leaf.grad.numpy(), rtol=2e-3, atol=2e-6)


def test_a_saved_program_runs_with_any_size(tmp_path):
    x, y, params = mlp()
    program = nova.compile(y, inputs=[x], params=params)
    program.save(tmp_path / "mlp.nova", weights="embed")
    loaded = nova.load(tmp_path / "mlp.nova")
    assert str(loaded.signature) == str(program.signature)
    assert loaded.signature.inputs[0].shape == (B, 20)
    assert [d.name for d in loaded.signature.dims] == ["B"]
    assert "dim     B=1..4096" in str(loaded.signature)
    for n in (1, 6, 31):
        batch = RNG.standard_normal((n, 20)).astype("f4")
        np.testing.assert_array_equal(
            loaded.forward(batch), program(batch, *(p.data for p in params))
        )


def attention_block() -> tuple[list[nova.Tensor], nova.Tensor]:
    length = nova.dim("S", min=1, max=512)
    x = nova.input((B, length, 16), name="x")
    q, k, v = (x @ nova.tensor(RNG.standard_normal((16, 16)).astype("f4") / 4) for _ in range(3))
    heads = [t.reshape(B, length, 4, 4).permute(0, 2, 1, 3) for t in (q, k, v)]
    out = nova.scaled_dot_product_attention(*heads, causal=True)
    return [x], nova.layer_norm(out.permute(0, 2, 1, 3).reshape(B, length, 16) + x)


def test_attention_of_any_batch_and_length():
    inputs, out = attention_block()
    program = nova.compile(out, inputs=inputs)
    for n, length in ((1, 1), (2, 7), (3, 64), (1, 65)):
        array = RNG.standard_normal((n, length, 16)).astype("f4")
        [expected] = evaluate([out], {inputs[0]: array})
        np.testing.assert_allclose(program(array), expected, rtol=1e-3, atol=1e-4)


def test_a_ragged_last_batch_trains_without_a_recompile():
    data = RNG.standard_normal((210, 8)).astype("f4")
    classes = RNG.integers(0, 3, 210)
    losses = []
    for dynamic in (False, {"x": {0: "B"}, "y": {0: "B"}}):
        model = nn.Linear(8, 3)
        for i, p in enumerate(model.parameters()):
            p.data[...] = np.random.default_rng(i).standard_normal(p.shape) / 4
        step = nova.train_step(
            model,
            lambda model, x, y: nova.cross_entropy(model(x), y),
            optim.AdamW(model.parameters(), lr=1e-2),
            dynamic=dynamic,
        )
        before = cache_statistics()["compiled"]
        losses.append(
            [float(step(data[i : i + 64], classes[i : i + 64])) for i in range(0, 210, 64)]
        )
        compiled = cache_statistics()["compiled"] - before
    assert compiled == 1
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_with_symbolic_sizes_prints_and_parses():
    length = nova.dim("S", min=4, max=99)
    x = nova.input((B, length, 8), name="x")
    y = x[1:, ::-1, 2:].reshape(-1, 6).mean(axis=0) + nova.zeros((length + 1,)).sum() / (B * length)
    plan = build_plan([y], [x])
    text = str(plan)
    assert "  dim B=1..4096\n  dim S=4..99\n  input x: f32[B,S,8]\n" in text
    parsed = parse_plan(text)
    assert parsed == plan and str(parsed) == text
    assert [d.bounds() for d in parsed.dims] == [(1, 4096), (4, 99)]
    array = RNG.standard_normal((3, 5, 8)).astype("f4")
    [expected] = evaluate([y], {x: array})
    np.testing.assert_allclose(nova.compile_plan(text)(array), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("dim B=2..1", "is not a dim"),
        ("dim B=1..4\n  dim B=1..4", "dim B is declared twice"),
        ("input y: f32[C + 1]", "names 'C', which is not a dim"),
        ("input y: f32[B +]", "is not a size"),
    ],
)
def test_plan_text_with_wrong_sizes(lines, message):
    with pytest.raises(nova.NovaError, match=message):
        parse_plan(f"plan {{\n  {lines}\n  input x: f32[4]\n  return input[0]\n}}")


# --- errors ---------------------------------------------------------------------------------------


def test_a_call_with_sizes_that_disagree():
    x, y = nova.input((B, 3), name="x"), nova.input((B * 2,), name="y")
    program = nova.compile(x.sum() + y.sum(), inputs=[x, y])
    assert program(np.ones((2, 3), "f4"), np.ones(4, "f4")) == 10
    match = r"axis 0 of 'y' is 6, and B\*2 is 4: B is 2, from axis 0 of 'x'"
    for _ in range(2):  # also after a program for B = 2 was made
        with pytest.raises(ArgumentShapeError, match=match):
            program(np.ones((2, 3), "f4"), np.ones(6, "f4"))
    with pytest.raises(ArgumentShapeError, match=r"B is 5000: it must be in 1\.\.4096"):
        program(np.ones((5000, 3), "f4"), np.ones(10000, "f4"))
    with pytest.raises(ArgumentShapeError, match="axis 1 of 'x' is 4, the program takes 3"):
        program(np.ones((7, 4), "f4"), np.ones(14, "f4"))
    with pytest.raises(ArgumentShapeError, match="'x' has 1 axes"):
        program(np.ones(7, "f4"), np.ones(14, "f4"))


def test_a_dim_needs_an_axis_of_an_argument():
    x = nova.input(((B + 1) // 2, 3))
    with pytest.raises(ShapeError, match="no argument has an axis of size B"):
        nova.compile(x.sum(), inputs=[x])


def test_two_dims_of_one_name():
    x, y = nova.input((nova.dim("N", max=4),)), nova.input((nova.dim("N", max=5),))
    with pytest.raises(ShapeError, match="two dims are named 'N'"):
        nova.compile(x.sum() + y.sum(), inputs=[x, y])


def test_checked_runs_take_static_sizes():
    x = nova.input((B, 3))
    with (
        nova.knobs.override(check="1"),
        pytest.raises(SymbolicSizeError, match="static sizes, and this one has the dims B"),
    ):
        nova.compile(x * 2, inputs=[x])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: nova.sort(x, axis=0), "a merge sort runs along axis 0"),
        (lambda x: x.reshape(4, -1), "no size for -1 fits"),
        (lambda x: x + nova.zeros((7, 3)), "axis -2 is B and 7"),
        (lambda x: nova.prod(x, axis=0), None),
        (lambda x: x[5], "whether 5 is in range for axis 0 of size B"),
        (lambda x: [*x], "len\\(\\) of"),
        (lambda x: range(x.shape[0]), "the size B is known at run time"),
        (lambda x: nova.cross_entropy(x.T, nova.zeros((3,), dtype="i64")), "compares classes"),
    ],
)
def test_constructs_that_need_a_number(build, message):
    x = nova.input((B, 3), name="x")
    if message is None:
        build(x)
        return
    with pytest.raises(nova.NovaError, match=message) as caught:
        build(x)
    assert isinstance(caught.value, SymbolicSizeError | ShapeError)


def test_a_minimum_of_sizes_is_refused_when_compiled():
    x = nova.input((B, 3), name="x")
    with pytest.raises(SymbolicSizeError, match=r"does not take the size min\(B, 8\)") as caught:
        nova.compile(x[:8] * 2, inputs=[x])
    assert __file__ in str(caught.value)


def test_inputs_check_their_sizes():
    for shape in ((-1,), (1.5,), ("B",), (True,)):
        with pytest.raises(nova.NovaError, match="is not a size of an input"):
            nova.input(shape)
    assert str(nova.input(B * 2 + 1).type) == "f32[B*2 + 1]"


def test_sizes_are_operands():
    x = nova.input((B, 3), name="x")
    y = x.sum() / x.shape[0] + (x.shape[0] - 1) * x.mean()
    program = nova.compile(y, inputs=[x])
    for n in (1, 5):
        array = RNG.standard_normal((n, 3)).astype("f4")
        expected = array.sum() / n + (n - 1) * array.mean()
        np.testing.assert_allclose(program(array), expected, rtol=1e-4, atol=1e-5)


def test_an_axis_may_be_empty():
    n = nova.dim("N", min=0, max=100)
    x = nova.input((n, 3), name="x")
    outputs = [x * 2, x.sum(axis=0), nova.concat([x, x])]
    program = nova.compile(outputs, inputs=[x])
    for size in (0, 1, 5, 0):
        array = RNG.standard_normal((size, 3)).astype("f4")
        doubled, total, joined = program(array)
        np.testing.assert_array_equal(doubled, array * 2)
        np.testing.assert_allclose(total, array.sum(axis=0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(joined, np.concatenate([array, array]))


# --- sizes in Python code -------------------------------------------------------------------------


@pytest.mark.parametrize("choose", [min, max])
def test_min_and_max_of_sizes_name_both(choose):
    C = nova.dim("C", min=1, max=64)
    with pytest.raises(SymbolicSizeError, match=r"whether (C|B) [<>] (B|C) depends") as caught:
        choose(B, C)
    assert "nova.minimum" in str(caught.value) and __file__ in str(caught.value)
    assert choose(B, 5000) == (B if choose is min else 5000)  # the bounds decide it


def test_the_smaller_of_two_sizes_is_a_number_of_the_run():
    C = nova.dim("C", min=1, max=64)
    x, y = nova.input((B, 3), name="x"), nova.input((C,), name="y")
    program = nova.compile(x * nova.minimum(B, C) + nova.maximum(B, C) + y.sum(), inputs=[x, y])
    for n, m in ((1, 7), (64, 3), (5, 5)):
        array, other = RNG.standard_normal((n, 3)).astype("f4"), np.ones(m, "f4")
        expected = array * min(n, m) + max(n, m) + m
        np.testing.assert_allclose(program(array, other), expected, rtol=1e-5)


def test_parts_of_a_symbolic_axis():
    x = nova.input((B * 3, 4), name="x")
    program = nova.compile([*nova.split(x, 3), *nova.chunk(x, 3)], inputs=[x])
    for n in (1, 7, 64):
        array = RNG.standard_normal((3 * n, 4)).astype("f4")
        for actual, expected in zip(program(array), [*np.split(array, 3)] * 2, strict=True):
            np.testing.assert_array_equal(actual, expected)
    y = nova.input((B, 4), name="y")
    first, others = nova.split(y, [1, B - 1])
    assert (first.shape, others.shape) == ((1, 4), (B - 1, 4))
    for function in (nova.split, nova.chunk):
        with pytest.raises(SymbolicSizeError, match="axis 0 of size B has 3 equal parts") as caught:
            function(y, 3)
        assert "split(x, [B // 3" in str(caught.value) and __file__ in str(caught.value)


@pytest.mark.parametrize("chunk_bytes", [256 << 20, pytest.param(1 << 12, marks=pytest.mark.slow)])
def test_linear_cross_entropy_of_any_number_of_rows(chunk_bytes):
    rows = nova.dim("rows", min=0, max=4096)
    x, w = nova.input((rows, 8), name="x"), nova.input((11, 8), name="w")
    labels = nova.input((rows,), nova.i32, name="labels")
    loss = nova.linear_cross_entropy(x, w, labels, chunk_bytes=chunk_bytes)
    outputs = [loss, *nova.graph.gradients(loss, [x, w])]
    program = nova.compile(outputs, inputs=[x, w, labels])
    for n in (1, 3, 64, 129):
        arrays = [RNG.standard_normal((m, 8)).astype("f4") for m in (n, 11)]
        target = RNG.integers(0, 11, n).astype("i4")
        theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
        expected = torch.nn.functional.cross_entropy(
            theirs[0] @ theirs[1].T, torch.tensor(target).long()
        )
        expected.backward()
        value, *gradients = program(*arrays, target)
        np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
        for actual, tensor in zip(gradients, theirs, strict=True):
            np.testing.assert_allclose(actual, tensor.grad, rtol=1e-4, atol=1e-6)


def test_a_loop_over_a_traced_number_names_fori_loop():
    @nova.jit
    def repeated(x, n):
        for i in range(n):
            x = x + i
        return x

    @nova.jit(dynamic={"x": {0: "rows"}})
    def summed(x):
        return sum(x[i] for i in range(x.shape[0]))

    with pytest.raises(nova.errors.ConcreteValueError, match=r"nova\.fori_loop\(0, n, body"):
        repeated(np.ones(3, "f4"), np.array(3))
    with pytest.raises(SymbolicSizeError, match=r"nova\.fori_loop\(0, rows, body") as caught:
        summed(np.ones(3, "f4"))
    assert __file__ in str(caught.value)


def test_an_axis_that_is_an_expression_tells_its_dim(tmp_path):
    """A dim that no axis is equal to, but that an axis is linear in."""
    x = nova.input((B * 2 + 1, 3), name="x")
    program = nova.compile(x[:B] * 2, inputs=[x])
    program.save(tmp_path / "odd.nova")
    for model in (program, nova.load(tmp_path / "odd.nova")):
        for n in (1, 5, 64):
            array = RNG.standard_normal((2 * n + 1, 3)).astype("f4")
            np.testing.assert_array_equal(model(array), array[:n] * 2)
        with pytest.raises(ArgumentShapeError, match=r"is 4, which is not B\*2 \+ 1 for any B"):
            model(np.ones((4, 3), "f4"))


def test_a_size_below_a_static_one():
    """Rows of a table up to a symbolic length: the rest of the table has the size 256 - n."""
    n = nova.dim("n", min=1, max=256)
    x, table = nova.input((n, 3), name="x"), nova.input((256, 3), name="table")
    loss = (x * table[:n]).sum()
    program = nova.compile([loss, *nova.graph.gradients(loss, [x, table])], inputs=[x, table])
    rows = RNG.standard_normal((256, 3)).astype("f4")
    for size in (1, 17, 256):
        array = RNG.standard_normal((size, 3)).astype("f4")
        value, of_x, of_table = program(array, rows)
        np.testing.assert_allclose(value, (array * rows[:size]).sum(), rtol=1e-4)
        np.testing.assert_array_equal(of_x, rows[:size])
        np.testing.assert_array_equal(of_table, np.pad(array, ((0, 256 - size), (0, 0))))


@pytest.mark.parametrize(("rows", "most"), [(128, 128), (256, 256), (5000, 256), (10000, 8192)])
def test_a_slice_of_a_static_table(rows, most):
    """Nothing but the upper bound of n keeps the slice inside of the table."""
    n = nova.dim("n", min=1, max=most)
    x, table = nova.input((n, 3), name="x"), nova.input((rows, 3), name="table")
    program = nova.compile(x * table[:n], inputs=[x, table])
    values = RNG.standard_normal((rows, 3)).astype("f4")
    for size in (1, 17, most):
        array = RNG.standard_normal((size, 3)).astype("f4")
        np.testing.assert_array_equal(program(array, values), array * values[:size])


def test_arguments_that_are_not_arrays_are_refused_as_by_a_static_program():
    n = nova.dim("n", min=1, max=256)
    inputs = [nova.input((n, 4), name="x"), nova.input((4, 4), name="x")]
    symbolic, static = (nova.compile(nova.exp(x), inputs=[x]) for x in inputs)
    for value in (None, object(), "abc", 1.0, [[1.0], [2.0, 3.0]]):
        messages = []
        for program in (symbolic, static):
            with pytest.raises(nova.errors.ArgumentTypeError) as raised:
                program(value)
            messages.append(raised.value.what)
        assert messages[0] == messages[1]


def test_the_error_about_the_number_of_arguments_does_not_depend_on_the_cache():
    n = nova.dim("n", min=1, max=256)
    x = nova.input((n, 4), name="x")
    program = nova.compile(nova.exp(x), inputs=[x])
    array = np.ones((4, 4), "f4")
    for _ in range(2):
        for call in (
            lambda: program(array, array),
            lambda: program.run([array, array]),
            lambda: program.submit(array, array),
        ):
            with pytest.raises(nova.errors.ArgumentCountError, match=r"takes 1: x: f32\[n,4\]"):
                call()
        program(array)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1)])
def test_attention_of_one_row_reads_its_projections(shape):
    """Static sizes: a view of one row has no loop over rows."""
    x = nova.input((*shape, 32), name="x")
    w = nova.tensor(RNG.standard_normal((32, 32)).astype("f4") / 6)

    def heads(t):
        return t.reshape((*shape, 4, 8)).permute((0, 2, 1, 3))

    q = heads(x @ w)
    loss = nova.scaled_dot_product_attention(q, q, q, causal=True).sum()
    program = nova.compile([loss, *nova.graph.gradients(loss, [x])], inputs=[x], params=[w])
    array = RNG.standard_normal((*shape, 32)).astype("f4")
    value, gradient = program(array, w.data)
    np.testing.assert_allclose(value, (array @ w.data).sum(), rtol=1e-4, atol=1e-4)
    expected = np.broadcast_to(w.data.sum(axis=1), array.shape)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
