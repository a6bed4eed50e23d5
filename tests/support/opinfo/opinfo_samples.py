"""Samples of torch's op database (OpInfo) through Nova's own functions, against torch.

In: the table of `opinfo_table.py`, which has the function of Nova for each name of the database.
Out: an outcome per sample: `pass`, `refused: why` (an error of Nova about the call), `unclean:
error` (any other error) or `wrong: difference`. Used by `tests/benchmarks/test_opinfo_sweep.py` and
`benchmarks/opinfo_sweep.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from opinfo_adapters import SIZES, NotInNova
from opinfo_table import EITHER_SIGN, TORCH, VALUES_ONLY, function_of
from torch.utils._pytree import tree_flatten, tree_unflatten

import nova
from nova import errors
from nova.graph import Tensor
from nova.graph.autodiff import gradients
from nova.graph.interpret import evaluate
from nova.graph.tensor import placeholder

DTYPES = {
    "f32": torch.float32,
    "i64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
TOLERANCE = 1e-4
"""Relative to each element, and a tenth of it to the largest of a result."""
OWN_ERROR = 4.0
"""Results may also differ from torch's in f64 by this many times the error of torch's in f32."""

# An error about the call; errors of passes, of LLVM and of Python are faults.
REFUSALS = (
    errors.ShapeError,
    errors.DTypeError,
    errors.AxisError,
    errors.AttributeValueError,
    errors.UnknownKeywordError,
    errors.OptionTypeError,
    errors.UnknownOpError,
    errors.UnknownNameError,
    errors.GradientError,
    errors.SignatureError,
    errors.ConcreteValueError,
    NotInNova,
)


@dataclass
class Sample:
    """One use of an op: the arguments of torch with their tensors as leaves of a tree."""

    op: Any
    leaves: list[Any]
    tree: Any

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def call(self, function: Any, tensors: Sequence[Any]) -> list[Any]:
        """The results of `function` with `tensors` in place of the sample's own."""
        feed = iter(tensors)
        leaves = [next(feed) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        first, args, keywords = tree_unflatten(leaves, self.tree)
        result = function(first, *args, **keywords)
        return list(result) if isinstance(result, tuple | list) else [result]

    def __str__(self) -> str:
        parts = [
            f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
            if isinstance(x, torch.Tensor)
            else repr(x)
            for x in self.leaves
        ]
        keywords = tree_unflatten(parts, self.tree)[2]
        return f"{self.op.formatted_name}({', '.join(parts)}) {keywords or ''}".rstrip()


@dataclass
class Built:
    """A sample as graph, with what torch computes for its results and gradients."""

    sample: Sample
    inputs: list[Tensor]
    arrays: list[np.ndarray]
    results: list[Tensor]
    expected: list[np.ndarray]
    exact: Callable[[], list[np.ndarray] | None]


def ops(names: Sequence[str] = ()) -> Iterator[Any]:
    """The ops of torch's database that Nova has."""
    # Imported late: the database needs the package expecttest, and takes seconds.
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if function_of(op.name) is not None and (not names or op.name in names):
            yield op


def samples(op: Any, dtype: torch.dtype, most: int) -> list[Sample]:
    """At most `most` samples of an op, evenly spaced over those of torch."""
    if dtype not in op.supported_dtypes("cpu"):
        return []
    grad = dtype in op.supported_backward_dtypes("cpu") and op.supports_autograd
    torch.manual_seed(0)
    drawn = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, -(-len(drawn) // most))
    return [
        Sample(op, *tree_flatten((sample.input, sample.args, sample.kwargs)))
        for sample in drawn[::step]
    ]


def build(sample: Sample) -> Built | None:
    """The graph of a sample; None if torch itself refuses it."""
    tensors = [t.detach().clone().requires_grad_(t.requires_grad) for t in sample.tensors]
    expected = run_torch(sample, tensors)
    if expected is None:
        return None
    count, is_differentiable, references = expected
    function = function_of(sample.op.name, sample.op.variant_test_name)
    arrays = [array_of(t) for t in tensors]
    inputs = [placeholder(a.shape, nova.core.dtypes.dtype(a.dtype)) for a in arrays]
    SIZES[:] = [w.shape for w in references[:count]]
    results = sample.call(function, inputs)
    results = [r if isinstance(r, Tensor) else nova.tensor(r) for r in results]
    if sample.op.name in VALUES_ONLY:
        results = results[:1]
    for i in EITHER_SIGN.get(sample.op.name, ()):
        results[i] = nova.abs(results[i])
    assert len(results) == count, f"{len(results)} results, not {count}"
    shapes = [w.shape for w in references[:count]]
    if len(references) > count and [r.shape for r in results] == shapes:
        loss = _weighted_sum(results, is_differentiable, nova.tensor, nova)
        sources = [x for x, t in zip(inputs, tensors, strict=True) if t.requires_grad]
        results += gradients(loss, sources)
    return Built(
        sample, inputs, arrays, results, references[: len(results)], partial(_exact, sample)
    )


def run_torch(
    sample: Sample, tensors: list[torch.Tensor]
) -> tuple[int, list[bool], list[np.ndarray]] | None:
    """torch's results, which of them have gradients, and the values with those of gradients."""
    try:
        references = [
            torch.as_tensor(r)
            for r in sample.call(TORCH.get(sample.op.name, sample.op.op), tensors)
        ]
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    if sample.op.name in VALUES_ONLY:
        references = references[:1]
    for i in EITHER_SIGN.get(sample.op.name, ()):
        references[i] = references[i].abs()
    count, is_differentiable = len(references), [w.requires_grad for w in references]
    values = [array_of(w) for w in references]
    sources = [t for t in tensors if t.requires_grad]
    if not any(is_differentiable) or not sources:
        return count, is_differentiable, values
    loss = _weighted_sum(references, is_differentiable, torch.tensor, torch)
    try:
        grads = torch.autograd.grad(loss, sources, allow_unused=True)
    except (RuntimeError, NotImplementedError):  # torch has no derivative
        return count, is_differentiable, values
    for source, grad in zip(sources, grads, strict=True):
        values.append(array_of(torch.zeros_like(source) if grad is None else grad))
    return count, is_differentiable, values


def _weighted_sum(results: Sequence[Any], chosen: list[bool], tensor: Any, library: Any) -> Any:
    """A sum of the chosen results with random weights, a real number."""
    rng = np.random.default_rng(7)
    loss = None
    for result in [r for r, c in zip(results, chosen, strict=True) if c]:
        term = result * tensor(rng.uniform(0.5, 1.5, tuple(result.shape)).astype("f4"))
        if library.is_complex(term):
            term = library.real(term) + 0.5 * library.imag(term)
        loss = library.sum(term) if loss is None else loss + library.sum(term)
    return loss


def _exact(sample: Sample) -> list[np.ndarray] | None:
    """What torch computes in f64 from the same operands."""
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    tensors = [
        t.detach().to(wide.get(t.dtype, t.dtype)).requires_grad_(t.requires_grad)
        for t in sample.tensors
    ]
    expected = run_torch(sample, tensors)
    return None if expected is None else expected[2]


def array_of(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.float().numpy().astype(nova.bf16.numpy)
    array = tensor.numpy(force=True)  # a zero tensor has no storage
    return array.copy(order="C").reshape(array.shape)


def outcomes(drawn: Sequence[Sample], *, compiled: bool) -> dict[int, str]:
    """The outcome of each sample that torch runs; compiled, they are one program."""
    built: list[Built] = []
    texts: dict[int, str] = {}
    for sample in drawn:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                item = build(sample)
            except REFUSALS as error:
                texts[id(sample)] = f"refused: {getattr(error, 'what', error)}"
            except AssertionError as error:
                texts[id(sample)] = f"wrong: {error}"
            except Exception as error:  # whatever it is: a call must not get here
                texts[id(sample)] = f"unclean: {type(error).__name__}: {error}"
            else:
                if item is not None:
                    built.append(item)
    for item, text in zip(built, _run(built, compiled), strict=True):
        texts[id(item.sample)] = text
    return {i: texts[id(s)] for i, s in enumerate(drawn) if id(s) in texts}


def _run(built: Sequence[Built], compiled: bool) -> Iterator[str]:
    if not built:
        return
    if not compiled:
        for item in built:
            yield _interpret(item)
        return
    try:
        program = nova.compile(
            [t for b in built for t in b.results], inputs=[t for b in built for t in b.inputs]
        )
        values = program.run([a for b in built for a in b.arrays])
        feed = iter(values if isinstance(values, tuple) else [values])
    except Exception as error:  # whatever it is: a program must not get here
        if len(built) == 1:
            yield f"unclean: {type(error).__name__}: {error}"
            return
        for item in built:
            yield from _run([item], True)
        return
    for item in built:
        yield compare([np.asarray(next(feed)) for _ in item.results], item)


def _interpret(item: Built) -> str:
    try:
        with np.errstate(all="ignore"):
            feed = dict(zip(item.inputs, item.arrays, strict=True))
            values = evaluate(item.results, feed)
    except Exception as error:  # whatever it is: a program must not get here
        return f"unclean: {type(error).__name__}: {error}"
    return compare([np.asarray(v) for v in values], item)


def compare(results: Sequence[np.ndarray], item: Built) -> str:
    """`pass`, or what is wrong with the results of a sample."""
    exact = None
    for i, (result, want) in enumerate(zip(results, item.expected, strict=True)):
        if (result.shape, result.dtype) != (want.shape, want.dtype):
            return (
                f"wrong: result {i} is {result.dtype}{list(result.shape)}, "
                f"not {want.dtype}{list(want.shape)}"
            )
        if _is_close(result, want, 0.0):
            continue
        if want.dtype in (np.float32, np.complex64):
            exact = exact or item.exact()
            if exact is not None and _is_close(
                result, exact[i], OWN_ERROR * _error(want, exact[i])
            ):
                continue
        at = np.unravel_index(
            np.argmax(np.abs(result - want) if want.dtype.kind in "fc" else result != want),
            want.shape,
        )
        return f"wrong: result {i} at {tuple(map(int, at))}: {result[at]} is not {want[at]}"
    return "pass"


def _is_close(result: np.ndarray, want: np.ndarray, slack: float) -> bool:
    if want.dtype.kind not in "fc":
        return np.array_equal(result, want)
    rtol = TOLERANCE if result.dtype in (np.float32, np.complex64) else TOLERANCE / 1e4
    scale = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0)))
    return np.allclose(result, want, rtol=rtol, atol=rtol * scale / 10 + slack, equal_nan=True)


def _error(want: np.ndarray, exact: np.ndarray) -> float:
    """The largest error of torch's own f32."""
    with np.errstate(all="ignore"):
        error = np.abs(want - exact)
    return float(np.max(error[np.isfinite(error)], initial=0.0))
