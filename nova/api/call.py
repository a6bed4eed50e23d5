"""`nova.call`: a compiled program as a node of a graph.

In: a program (of `nova.compile`, `nova.jit` or `nova.load`) and its arguments. Out: tensors. A
program whose graph is in this process is inlined: its steps become nodes, so that fusion and
gradients cross the border. A loaded file is called: its bytes become a constant of the caller, and
`native/src/exec/callee.c` runs its code (docs/control-flow.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nova.api.compiled import Compiled
from nova.api.jit import JitFunction
from nova.api.jit_arguments import NUMBERS
from nova.api.jit_static import StaticJitFunction
from nova.artifact.format import Artifact, read_artifact
from nova.artifact.tables import ALIGN
from nova.core.dtypes import TensorType, array_dtype
from nova.core.location import user_location
from nova.core.pytree import flatten, unflatten
from nova.core.signature import Argument
from nova.core.sizes import MAX_SIZE, Dim, Size, SizeExpr, bounds, same_shape, substitute
from nova.core.user_facing import user_facing
from nova.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    CallError,
    GradientError,
)
from nova.graph.build import cast
from nova.graph.control.call import call_node, set_callees
from nova.graph.control.regions import as_tensor
from nova.graph.tensor import Tensor
from nova.plan import parse_plan
from nova.plan.inline import inline_plan
from nova.runtime.executor import Executable
from nova.runtime.model import Model
from nova.runtime.weights import read_values

_POINTER = 8


@user_facing
def call(program: Any, *args: Any, inline: bool | None = None) -> Any:
    """The results of a program on tensors, as part of the graph that is built.

    `program` is one of `nova.compile`, `nova.jit` or `nova.load`; `args` are its inputs, or its
    inputs and params. Without params, a program uses the values that it carries. A program compiled
    in this process is inlined; a loaded file is called: the code in the file runs. `inline=True`
    compiles the graph of a file with the caller instead, and `inline=False` calls a compiled
    program as it is. Gradients need the graph, which a file has in its texts.
    """
    if isinstance(program, StaticJitFunction):
        program, args, _ = program._bound(args, {})
    if isinstance(program, JitFunction):
        return _call_jitted(program, args, inline)
    if not isinstance(program, Compiled):
        raise CallError(
            f"call of a {type(program).__name__}, which is not a program",
            where=str(user_location()),
            hint="pass what nova.compile, nova.jit or nova.load returns; call functions directly",
        )
    results = _Call(program, args).build(inline)
    return results[0] if len(results) == 1 else tuple(results)


def _call_jitted(function: JitFunction, args: Sequence[Any], inline: bool | None) -> Any:
    """The result of a jitted function, a pytree: its nodes, or a call of its program."""
    leaves, structure = flatten(tuple(args), sort_keys=True)
    if inline is not False:
        return function(*unflatten(structure, [as_tensor(leaf) for leaf in leaves]))
    examples = [leaf if type(leaf) in NUMBERS else _example(as_tensor(leaf)) for leaf in leaves]
    program, result = function._lowered(unflatten(structure, examples), {})
    return unflatten(result, _Call(program, leaves).build(inline=False))


def _example(tensor: Tensor) -> np.ndarray:
    """An array of the type of a tensor; its values do not matter."""
    if not tensor.type.is_static:
        raise CallError(
            f"call with inline=False of {tensor.type}: code is called with static sizes",
            where=str(user_location()),
            hint="call it without inline=False: its graph is compiled with the caller",
        )
    return np.empty(tensor.shape, tensor.dtype.numpy)


class _Call:
    """One call of a program with a signature."""

    def __init__(self, program: Compiled, args: Sequence[Any]):
        self.program, self.where = program, str(user_location())
        signature = program.signature
        donated = [a.name for a in signature.arguments if a.donated]
        if donated:
            raise CallError(
                f"{program.name} updates {', '.join(donated)} in place, and a call has no effects",
                where=self.where,
                hint="compile a program that returns the new values, without `updates`",
            )
        counts = (len(signature.inputs), len(signature.arguments))
        if len(args) not in counts:
            takes = " or ".join(map(str, sorted(set(counts))))
            raise ArgumentCountError(
                f"call: {program.name} takes {takes} arguments, and {len(args)} are passed",
                where=self.where,
            )
        self.passes_params = len(args) == counts[1]
        declared = signature.arguments[: len(args)]
        self.tensors = [self._argument(d, a) for d, a in zip(declared, args, strict=True)]
        for argument, tensor in zip(declared, self.tensors, strict=True):
            self._check_rank(argument, tensor)
        self.sizes = self._sizes(declared)
        for argument, tensor in zip(declared, self.tensors, strict=True):
            self._check_shape(argument, tensor)

    # --- signature ------------------------------------------------------------------------------

    def _argument(self, declared: Argument, value: Any) -> Tensor:
        tensor = as_tensor(value)
        is_number = type(value) in (bool, int, float) or (isinstance(value, Tensor) and value.weak)
        if is_number and not declared.shape:
            return cast(tensor, declared.type.dtype)
        if tensor.dtype is not declared.type.dtype:
            raise ArgumentDTypeError(
                f"call: {declared.name!r} of {self.program.name} is {declared.type}, and "
                f"{tensor.type} is passed",
                where=self.where,
                hint=f"cast it: x.cast(nova.{declared.dtype})",
            )
        return tensor

    def _sizes(self, declared: Sequence[Argument]) -> dict[str, Size]:
        """The sizes of the program's dims: those of the axes that have a dim as their size."""
        sizes: dict[str, Size] = {}
        for argument, tensor in zip(declared, self.tensors, strict=True):
            for size, actual in zip(argument.shape, tensor.shape, strict=True):
                if isinstance(size, SizeExpr) and size.symbol is not None:
                    sizes.setdefault(size.symbol.name, actual)
        for dim in self.program.signature.dims:
            if dim.name not in sizes:
                raise ArgumentShapeError(
                    f"call: the shapes of the arguments of {self.program.name} do not determine "
                    f"{dim.name}",
                    where=self.where,
                    hint=None if self.passes_params else "pass the params after the inputs",
                )
            self._check_bounds(dim, sizes[dim.name])
        return sizes

    def _check_bounds(self, dim: Dim, actual: Size) -> None:
        """Refuse a size that may be outside of the bounds: the program's graph relies on them."""
        low, high = bounds(actual)
        if dim.min <= low and (high <= dim.max or dim.max == MAX_SIZE):
            return
        is_static = isinstance(actual, int)
        extent = "" if is_static else f", which is {low} to {high}"
        raise ArgumentShapeError(
            f"call: {dim.name} of {self.program.name} is {dim.min} to {dim.max}, and the "
            f"arguments make it {actual}{extent}",
            where=self.where,
            hint=None
            if is_static
            else f"declare the dims of {actual} with bounds that keep it in {dim.min} to {dim.max}",
        )

    def _check_rank(self, declared: Argument, tensor: Tensor) -> None:
        if len(declared.shape) != tensor.ndim:
            raise self._shape_error(declared, tensor, f", with {tensor.ndim} axes")

    def _check_shape(self, declared: Argument, tensor: Tensor) -> None:
        shape = tuple(substitute(size, self.sizes) for size in declared.shape)
        if not same_shape(shape, tensor.shape):
            raise self._shape_error(declared, tensor)

    def _shape_error(
        self, declared: Argument, tensor: Tensor, detail: str = ""
    ) -> ArgumentShapeError:
        return ArgumentShapeError(
            f"call: {declared.name!r} of {self.program.name} is {declared.type}, and "
            f"{tensor.type} is passed{detail}",
            where=self.where,
            hint=f"it was created at {tensor.location}",
        )

    def _params(self) -> list[Tensor]:
        """The params: arguments of the call, or the values that the program carries."""
        if self.passes_params:
            return []
        values = self.program.carried
        if not values.is_complete:
            raise ArgumentCountError(
                f"call: {self.program.name} carries no value for {', '.join(values.missing)}",
                where=self.where,
                hint="pass the params after the inputs, or load it with weights=...",
            )
        return [as_tensor(value) for value in values.get()]

    # --- the graph ------------------------------------------------------------------------------

    def build(self, inline: bool | None) -> list[Tensor]:
        program = self.program
        obstacle = self._obstacle()
        if inline is None:
            inline = not program.is_foreign or (obstacle is not None and program.has_plan)
        if not inline:
            if obstacle is not None:
                raise CallError(
                    f"call: {program.name} {obstacle}", where=self.where, hint=self._hint()
                )
            return self._node()
        if not program.has_plan:
            raise CallError(
                f"call: {program.name} has no graph to inline: it was not compiled from one, or "
                "saved without texts",
                where=self.where,
                hint="call its code: nova.call(program, ...) without inline=True",
            )
        return inline_plan(program.plan, [*self.tensors, *self._params()], self.sizes)

    def _obstacle(self) -> str | None:
        """Why the code of the program cannot be called; None if it can."""
        if self.program.signature.dims:
            names = ", ".join(dim.name for dim in self.program.signature.dims)
            return f"has the symbolic sizes {names}, and code is called with static ones"
        if all(spec.is_device for spec in self.program.artifact.manifest.variants):
            return "has code for devices only"
        if not self.program.signature.outputs:
            return "has no results"
        return None

    def _hint(self) -> str:
        if self.program.has_plan:
            return "inline=True compiles its graph with the caller"
        return "compile it again with static sizes and code for CPUs, or keep its texts"

    def _node(self) -> list[Tensor]:
        artifact = self.program.artifact
        embedded = artifact.manifest.weights.kind == "embedded"
        arguments = [*self.tensors, *([] if embedded else self._params())]
        types = [output.type for output in self.program.signature.outputs]
        return call_node(_file_bytes(artifact), arguments, types, _memory(artifact))


def _file_bytes(artifact: Artifact) -> np.ndarray:
    return np.frombuffer(artifact.data, np.uint8)


def _memory(artifact: Artifact) -> int:
    """Bytes that the runtime needs for a run of any variant for CPUs, and for its arguments."""
    specs = artifact.manifest.variants
    sizes = [0]
    for number, spec in enumerate(specs):
        if not spec.is_device:
            tables = artifact.tables(number)
            operands = sum(len(launch.buffers) for launch in tables.launches)
            parts = (tables.workspace_size, operands * _POINTER, tables.scratch_size)
            sizes.append(sum(map(_aligned, parts)))
    return _aligned(len(artifact.manifest.args) * _POINTER) + max(sizes)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


# --- files in a graph -----------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _opened(data: bytes) -> Artifact:
    return read_artifact(data)


def _run_file(file: np.ndarray, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    artifact = _opened(file.tobytes())
    model = Model(Executable(artifact), "file", values=read_values(artifact, None, None))
    results = model(*arrays)
    return list(results) if isinstance(results, tuple) else [results]


def _build_file(file: np.ndarray, arguments: Sequence[Tensor], where: str) -> list[Tensor]:
    artifact = _opened(file.tobytes())
    text = artifact.stages().get("plan")
    if text is None:
        raise GradientError(
            "the called file has no gradient: it has code and no graph",
            where=where,
            hint="save the program with its texts, or stop the gradient with .detach()",
        )
    specs, weights = artifact.manifest.args, artifact.weights()
    params = [
        Tensor(
            TensorType(spec.shape, array_dtype(spec.dtype)),
            data=np.frombuffer(weights[i], array_dtype(spec.dtype).numpy).reshape(spec.shape),
            fixed=True,
        )
        for i, spec in enumerate(specs[len(arguments) :], len(arguments))
    ]
    return inline_plan(parse_plan(text, "called file"), [*arguments, *params])


set_callees(_run_file, _build_file)
