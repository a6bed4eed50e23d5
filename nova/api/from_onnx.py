"""`nova.from_onnx`: an ONNX model, imported to Nova's graph and compiled when it is called.

In: a path, bytes or a `ModelProto`. Out: an `OnnxProgram`, which is called with the model's inputs.
Axes without a size are symbolic: one program takes all sizes. If an op needs static sizes, or
values of inputs decide shapes, the program is specialized: each new combination is compiled once.
The package `onnx` is optional, imported on the first call.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nova.api.compile import compile
from nova.api.compiled import Compiled
from nova.api.onnx_parts import DividedModel
from nova.core.sizes.binding import bind_sizes
from nova.core.user_facing import user_facing
from nova.errors import DataDependentShapeError, NovaError, SignatureError
from nova.frontends.onnx.element_types import is_constant
from nova.frontends.onnx.importer import OnnxGraph, is_weight
from nova.frontends.onnx.read import OnnxModel, read_model
from nova.frontends.onnx.specialize import Specializer, arrays_of, results_of
from nova.frontends.source import Source
from nova.graph.order import topological
from nova.graph.tensor import Tensor
from nova.ir.context import make_context
from nova.ir.emit import emit_module
from nova.ir.resources import whole_text
from nova.plan import build_plan

# Programs of one model for different shapes; the least recently used one goes first.
_MOST_PROGRAMS = 64


class OnnxProgram:
    """An imported ONNX model: call it with its inputs, by position or by name."""

    def __init__(self, specializer: Specializer, options: Mapping[str, Any], freeze: bool):
        self._specializer, self._options, self._freeze = specializer, dict(options), freeze
        self._programs: OrderedDict[Any, tuple[OnnxGraph, Compiled]] = OrderedDict()
        # By the shapes of arguments: the inputs whose values decide shapes as well.
        self._deciding: dict[Any, tuple[str, ...]] = {}
        # Set once a node turns out to be one that the host computes.
        self._divided: DividedModel | None = None
        self._reason = ""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs that a call takes."""
        fixed = self._specializer.values
        return tuple(name for name in self._specializer.names if name not in fixed)

    @cached_property
    def graph(self) -> OnnxGraph:
        """Nova's graph of the model, for its declared shapes: tensors to inspect, or to change."""
        return self._specializer.graph() if self._symbolic is None else self._symbolic[0]

    @cached_property
    def compiled(self) -> Compiled:
        """The program for the declared shapes; its arguments are the inputs of the model."""
        return self._compile(self.graph) if self._symbolic is None else self._symbolic[1]

    @cached_property
    def _symbolic(self) -> tuple[OnnxGraph, Compiled] | None:
        """The program for all sizes; None if sizes are declared, or an op needs static ones."""
        if not self._specializer.has_free_axes():
            return None
        try:
            graph = self._specializer.symbolic_graph()
            return graph, self._compile(graph)
        except NovaError as error:
            self._reason = str(error)
            return None

    def explain(self) -> str:
        """Which sizes the programs take, why they are static if they are, and parts on the host."""
        if self._divided is not None:
            return f"parts on the host, between programs:\n{self._divided.describe()}"
        if self._symbolic is not None:
            return f"one program for all sizes:\n{self._symbolic[1].signature}"
        if self._reason:
            return f"a program for each shape, since symbolic sizes fail: {self._reason}"
        return "the sizes are static"

    @user_facing
    def specialize(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for arguments of these shapes (and values, where they decide shapes)."""
        return self._program(self._specializer.bind(args, kwargs))[1]

    @user_facing
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run: arrays in, one array out, or a tuple; a sequence of the model is a list."""
        results = self.run(*args, **kwargs)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The outputs of the model as a list."""
        arguments = self._specializer.bind(args, kwargs)
        if self._divided is None and self._specializer.uses_strings():
            self._divide(())
        if self._divided is None:
            try:
                graph, program = self._program(arguments)
            except DataDependentShapeError as error:
                if not error.results:  # in a body
                    raise
                self._divide(error.results)
        if self._divided is not None:
            return self._divided.run({**self._specializer.values, **arguments})
        outcome = program.run(arrays_of(graph, arguments))
        return results_of(graph, outcome if isinstance(outcome, tuple | list) else (outcome,))

    @user_facing
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program for the declared shapes to a `.nova` file, with its weights."""
        self.compiled.save(os.fspath(path), weights=None if self._freeze else "embed")

    def source(self) -> Source:
        """The program in the nova dialect, for `nova.translate` and its targets."""
        plan = build_plan(self.graph.results(), self.graph.placeholders(), ())
        module = emit_module(plan, make_context())
        text = whole_text(module.operation.get_asm(), module.context)
        return Source(self._specializer.model.name, text.encode())

    def _divide(self, results: Sequence[str]) -> None:
        """Leave the node with these results, and those of strings, to the host."""

        def make(part: OnnxModel) -> OnnxProgram:
            specializer = Specializer(part, None, None, not self._freeze)
            return OnnxProgram(specializer, self._options, self._freeze)

        self._divided = DividedModel(self._specializer.model, frozenset(results), make)

    def _program(self, arguments: Mapping[str, Any]) -> tuple[OnnxGraph, Compiled]:
        if self._symbolic is not None and self._takes(self._symbolic[0], arguments):
            return self._symbolic
        shapes = tuple((name, _signature(value)) for name, value in arguments.items())
        key = (shapes, self._deciding_values(shapes, arguments))
        entry = self._programs.get(key)
        if entry is None:
            graph = self._specializer.graph(arguments)
            names = [n for n, v in graph.inputs if n in arguments and is_constant(v)]
            self._deciding[shapes] = tuple(names)
            entry = (graph, self._compile(graph))
            key = (shapes, self._deciding_values(shapes, arguments))
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.popitem(last=False)
            self._programs[key] = entry
        self._programs.move_to_end(key)
        return entry

    def _takes(self, graph: OnnxGraph, arguments: Mapping[str, Any]) -> bool:
        """Whether the sizes of a call are within the bounds of the program for all sizes."""
        values = [(n, v) for n, v in graph.inputs if n in arguments and not is_constant(v)]
        try:
            bind_sizes([(n, v.shape, np.shape(arguments[n])) for n, v in values])
        except SignatureError:
            return False
        return True

    def _deciding_values(self, shapes: Any, arguments: Mapping[str, Any]) -> tuple[bytes, ...]:
        names = self._deciding.get(shapes, ())
        return tuple(np.ascontiguousarray(arguments[name]).tobytes() for name in names)

    def _compile(self, graph: OnnxGraph) -> Compiled:
        results = graph.results()
        params = () if self._freeze else weights_of(results, self._specializer.model)
        return compile(results, inputs=graph.placeholders(), params=params, **self._options)

    def __repr__(self) -> str:
        return f"<OnnxProgram {self._specializer.model.name}({', '.join(self.input_names)})>"


def weights_of(results: Sequence[Tensor], model: OnnxModel) -> list[Tensor]:
    """The float initializers that results are computed from, in the order of the file."""
    order = {tensor.name: i for i, tensor in enumerate(model.proto.graph.initializer)}
    weights = filter(is_weight, topological(results))
    return sorted(weights, key=lambda weight: order.get(str(weight.name), len(order)))


def _signature(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_signature(item) for item in value)
    return None if value is None else (value.shape, str(value.dtype))


@user_facing
def from_onnx(
    model: Any,
    *,
    shapes: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    freeze: bool = True,
    target: str | None = None,
    fast_math: bool | None = None,
    tune: float | None = None,
    run_mode: str = "native",
    launch: str | None = None,
    precision: str | None = None,
    matmul_precision: str | None = None,
    max_workspace: int | str | None = None,
) -> OnnxProgram:
    """Import an ONNX model: a path, bytes or an `onnx.ModelProto`.

    `shapes` has sizes of dynamic axes, by the name of an input (`{"x": (1, 3, 224, 224)}`) or of an
    axis (`{"batch": 8}`); without them the sizes are symbolic, and one program takes all of them,
    unless an op needs static sizes (`OnnxProgram.explain`): then each new shape is compiled.
    `values` fixes inputs, such as the shape of a Reshape. With `freeze` the initializers become
    constants of the program, packed for its kernels; without it they are params, by name. The
    other keywords are those of `nova.compile`. See docs/onnx.md.
    """
    options = {
        "target": target,
        "fast_math": fast_math,
        "tune": tune,
        "run_mode": run_mode,
        "launch": launch,
        "precision": precision,
        "matmul_precision": matmul_precision,
        "max_workspace": max_workspace,
    }
    specializer = Specializer(read_model(model), shapes, values, not freeze)
    return OnnxProgram(specializer, options, freeze)
