"""ONNX's own test cases: models with inputs and expected outputs, from the package `onnx`.

`outcome` runs a case by the numpy interpreter or compiled, and says `pass`, `refused: why` or
`wrong: how`. `EXCLUDED` has the cases whose numbers no other implementation can reproduce.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import nova
from nova import errors
from nova.frontends.onnx.read import read_model
from nova.frontends.onnx.specialize import Specializer, arrays_of, results_of
from nova.graph.interpret import evaluate

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
REFUSALS = (errors.UnsupportedOpError, errors.OnnxValueError, errors.DTypeError)
RANDOM = "random numbers of numpy's generator; ONNX leaves the generator open"
EXCLUDED = {
    **{
        f"test_bernoulli{kind}{expanded}": RANDOM
        for kind in ("", "_double", "_seed")
        for expanded in ("", "_expanded")
    },
    **{
        f"test_training_dropout{kind}": RANDOM
        for kind in ("", "_default", "_default_mask", "_mask")
    },
}
# Imaginary parts that are 0: the expected outputs have the rounding errors of numpy's FFT, and the
# results those of f32, where terms are up to 1,000.
TOLERANCES = {
    f"test_dft{kind}{opset}": 1e-6 if kind == "_inverse" else 1e-5
    for kind in ("", "_axis", "_inverse")
    for opset in ("", "_opset19")
}


@dataclass(frozen=True)
class Case:
    """One test case: a folder with a model and data sets."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def proto(self) -> Any:
        return onnx.load(self.folder / "model.onnx", load_external_data=False)

    def ops(self) -> set[tuple[str, str]]:
        """(domain, op) of every node, subgraphs included."""
        return set(_ops(self.proto.graph))

    def tolerance(self) -> tuple[float, float]:
        path = self.folder / "data.json"
        options = json.loads(path.read_text()) if path.exists() else {}
        absolute = TOLERANCES.get(self.name, 1e-7)
        return options.get("rtol", 1e-3), options.get("atol", absolute)

    def run(self, *, compiled: bool) -> None:
        """Run all data sets; AssertionError for a wrong result."""
        specializer = Specializer(read_model(self.folder / "model.onnx"), None, None)
        program = nova.from_onnx(self.folder / "model.onnx")  # for nodes of the host
        for data in sorted(self.folder.glob("test_data_set_*")):
            inputs = [
                _read(data / f"input_{i}.pb", info.type)
                for i, info in enumerate(specializer.inputs)
            ]
            if specializer.uses_strings():
                self._compare_all(program.run(*inputs), data)
                continue
            arguments = specializer.bind(inputs, {})
            try:
                graph = specializer.graph(arguments)
            except errors.DataDependentShapeError:
                self._compare_all(program.run(*inputs), data)
                continue
            placeholders, arrays = graph.placeholders(), arrays_of(graph, arguments)
            if compiled:
                arrays = nova.compile(graph.results(), inputs=placeholders).run(arrays)
                arrays = arrays if isinstance(arrays, tuple) else (arrays,)
            else:
                feed = dict(zip(placeholders, arrays, strict=True))
                arrays = evaluate(graph.results(), feed)
            self._compare_all(results_of(graph, arrays), data)

    def _compare_all(self, results: list[Any], data: Path) -> None:
        """Compare the outputs with those of a data set."""
        outputs = zip(results, self.proto.graph.output, strict=True)
        for i, (result, info) in enumerate(outputs):
            expected = _read(data / f"output_{i}.pb", info.type)
            _compare(result, expected, *self.tolerance())


def _ops(graph: Any) -> Iterator[tuple[str, str]]:
    for node in graph.node:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            yield from _ops(attribute.g)


def _read(path: Path, type_: Any) -> Any:
    sort, data = type_.WhichOneof("value"), path.read_bytes()
    if sort == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if sort == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _compare(result: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list) and len(result) == len(expected)
        for a, b in zip(result, expected, strict=True):
            _compare(a, b, rtol, atol)
        return
    if expected is None:
        assert result is None
        return
    if expected.dtype.kind in "OUST":
        assert result.dtype == object and result.shape == expected.shape
        assert result.tolist() == expected.tolist()
        return
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind not in "fiubc":  # ml_dtypes
        result, expected = result.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


def cases(kind: str) -> list[Case]:
    """The cases of `node`, `simple`, `pytorch-operator` or `pytorch-converted`, by name."""
    folders = sorted(path.parent for path in (DATA / kind).glob("*/model.onnx"))
    return [Case(folder) for folder in folders]


def outcome(case: Case, *, compiled: bool) -> str:
    """`pass`, `refused: why` or `wrong: how`; an unexpected error is an error."""
    if case.name in EXCLUDED:
        return f"refused: {EXCLUDED[case.name]}"
    try:
        case.run(compiled=compiled)
    except REFUSALS as error:
        return f"refused: {error.what}"
    except AssertionError as error:
        return f"wrong: {error}"
    return "pass"
