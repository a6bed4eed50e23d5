"""The import report of an ONNX model.

In: an `OnnxModel` and sizes of its dynamic axes. Out: an `ImportReport`. The importer walks the
model; a node that it refuses does not stop it: the node's results become placeholders of the types
that ONNX's shape inference finds, and nodes without such types are not checked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from nova.errors import DataDependentShapeError, NovaError, OnnxValueError
from nova.frontends.onnx.element_types import is_constant
from nova.frontends.onnx.host.divide import Division, has_string_labels
from nova.frontends.onnx.host.table import HOST_ROWS, load_host_rows
from nova.frontends.onnx.importer import (
    Importer,
    Scope,
    declared_inputs,
    flat_tensors,
    make_placeholder,
)
from nova.frontends.onnx.package import onnx_package
from nova.frontends.onnx.read import OnnxModel
from nova.frontends.onnx.specialize import Specializer
from nova.frontends.onnx.table import ROWS
from nova.frontends.report.table import (
    CONSTANT,
    EXPANDED,
    FALLBACK,
    SUPPORTED,
    UNCHECKED,
    UNSUPPORTED,
    ImportReport,
    Survey,
    one_line,
)

_DEFAULT_SIZE = 1
_INFERENCE_SECONDS = 120


class _Missing:
    """The result of a node that was refused, and whose type is not known."""

    def __init__(self, node: str):
        self.node = node


class _Surveyor(Importer):
    """An importer that goes on after a node that it refuses."""

    def __init__(self, model: OnnxModel, survey: Survey, division: Division | None):
        super().__init__(model)
        self.survey, self.division = survey, division

    def build_node(self, proto: Any, scope: Scope) -> None:
        if self.depth:  # a body: its errors are those of the node outside
            super().build_node(proto, scope)
            return
        location = proto.name or f"node {self.nodes + 1}"
        name = f"{proto.domain}.{proto.op_type}" if proto.domain else proto.op_type
        if self.division is not None and self.division.is_host_node(proto):
            self.nodes += 1
            outcome, reason = _on_host(proto)
            self.survey.add(name, outcome, location=location, reason=reason)
            self._give_up(proto, scope, f"{proto.op_type} {location}")
            return
        inputs = [scope.values.get(n) for n in proto.input if n]
        missing = next((v for v in inputs if isinstance(v, _Missing)), None)
        if missing is not None:
            self.nodes += 1
            reason = f"its input is a result of {missing.node}, whose type is not known"
            self.survey.add(name, UNCHECKED, location=location, reason=reason)
            self._give_up(proto, scope, missing.node)
            return
        try:
            super().build_node(proto, scope)
        except NovaError as error:
            reason = one_line(error)
            if isinstance(error, DataDependentShapeError) and error.results:
                self.survey.add(name, FALLBACK, location=location, reason=reason)
                self._give_up(proto, scope, f"{proto.op_type} {location}")
                return
            if isinstance(error, OnnxValueError):
                reason += "; the value is an argument: fix it with values="
            self.survey.add(name, UNSUPPORTED, location=location, reason=reason)
            self._give_up(proto, scope, f"{proto.op_type} {location}")
            return
        results = [scope.values[n] for n in proto.output if n in scope.values]
        ops = self.survey.new_ops(flat_tensors(results))
        if results and all(map(is_constant, results)):
            self.survey.add(name, CONSTANT, location=location)
        else:
            outcome = SUPPORTED if self._has_row(proto) else EXPANDED
            self.survey.add(name, outcome, location=location, replaced_by=ops)

    def _has_row(self, proto: Any) -> bool:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        key = (domain, proto.op_type)
        return key in ROWS and key not in self.functions

    def _give_up(self, proto: Any, scope: Scope, node: str) -> None:
        for name in proto.output:
            stand_in = self._stand_in(name)
            scope.values[name] = _Missing(node) if stand_in is None else stand_in

    def _stand_in(self, name: str) -> Any:
        """A placeholder of the inferred type of a value; None if it is not static."""
        tensor = self._inferred.get(name)
        if tensor is None or not tensor.HasField("shape"):
            return None
        dims = list(tensor.shape.dim)
        if not all(d.HasField("dim_value") and d.dim_value >= 0 for d in dims):
            return None
        try:
            return make_placeholder(tensor.elem_type, [d.dim_value for d in dims], name)
        except NovaError:
            return None

    @cached_property
    def _inferred(self) -> Mapping[str, Any]:
        """The tensor types of the values of the graph, by ONNX's shape inference."""
        proto = _infer_shapes(self.model.proto)
        values = [*proto.graph.value_info, *proto.graph.output]
        return {v.name: v.type.tensor_type for v in values if v.type.HasField("tensor_type")}


_INFERENCE = """
import sys, onnx
model = onnx.load_model_from_string(sys.stdin.buffer.read())
model = onnx.shape_inference.infer_shapes(model, data_prop=True)
sys.stdout.buffer.write(model.SerializeToString())
"""


def _infer_shapes(proto: Any) -> Any:
    """The model with the types that ONNX's inference finds; the model itself if that fails.

    In a process of its own, because the C++ library ends the process for some damaged models.
    """
    onnx = onnx_package()
    try:
        run = subprocess.run(
            [sys.executable, "-c", _INFERENCE],
            input=proto.SerializeToString(),
            capture_output=True,
            timeout=_INFERENCE_SECONDS,
            check=True,
        )
        return onnx.load_model_from_string(run.stdout)
    except (subprocess.SubprocessError, OSError, ValueError):  # also for models above 2 GB
        return proto
    except Exception as error:  # protobuf has several error classes, by back end
        if "protobuf" not in type(error).__module__:
            raise
        return proto


def _on_host(proto: Any) -> tuple[str, str]:
    """The outcome of a node of strings or maps, and its reason."""
    load_host_rows()
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    if (domain, proto.op_type) in HOST_ROWS or has_string_labels(proto):
        return FALLBACK, "the host computes strings and maps, between compiled parts of a call"
    return UNSUPPORTED, f"{proto.op_type}: Nova does not compute it for strings"


def report_onnx(
    model: OnnxModel, shapes: Mapping[str, Any] | None, values: Mapping[str, Any] | None
) -> ImportReport:
    """What the importer does with every node of a model."""
    assumed = _assumed_sizes(model, shapes or {})
    specializer = Specializer(model, {**assumed, **(shapes or {})}, values)
    notes = []
    if assumed:
        sizes = ", ".join(f"{name} = {size}" for name, size in assumed.items())
        notes.append(f"axes without a size are taken as {sizes}; shapes= sets them")
    survey = Survey()
    error = None
    try:
        division = Division(model, frozenset()) if specializer.uses_strings() else None
        surveyor = _Surveyor(model, survey, division)
        strings = set(specializer.names) & division.strings if division is not None else set()
        inputs = specializer.placeholders(without=strings)
        survey.new_ops(flat_tensors(list(inputs.values())))
        inputs.update((name, _Missing(f"input {name}")) for name in strings)
        surveyor.build(inputs)
    except NovaError as reason:
        error = one_line(reason)
    return ImportReport(model.name, "onnx", survey.rows(), tuple(notes), error)


def _assumed_sizes(model: OnnxModel, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes for the axes that neither the model nor the user gives a size."""
    assumed: dict[str, Any] = {}
    for info in declared_inputs(model):
        if info.name in shapes or not info.type.HasField("tensor_type"):
            continue
        dims = list(info.type.tensor_type.shape.dim)
        unnamed = any(not d.HasField("dim_value") and not d.dim_param for d in dims)
        if unnamed:
            known = {**shapes, **assumed}
            assumed[info.name] = tuple(
                d.dim_value if d.HasField("dim_value") else known.get(d.dim_param, _DEFAULT_SIZE)
                for d in dims
            )
            continue
        for dim in dims:
            if dim.dim_param and dim.dim_param not in shapes:
                assumed[dim.dim_param] = _DEFAULT_SIZE
    return assumed
