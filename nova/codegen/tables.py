"""Reading `main`: the launch table, buffer table and constants of a lowered module.

Comes in: a module at the `loops` stage, where main is a list of calls on arguments, outputs, views
of the workspace and constants. Goes out: `Tables`, which the artifact stores and the runtime runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nova.artifact.format import BufferSpec, KernelSpec, LaunchSpec
from nova.errors import LoweringError
from nova.mlir.bindings import ir
from nova.mlir.buffers import VIEWS, buffer_root, nbytes
from nova.mlir.types import nova_dtype
from nova.mlir.walk import find_function, functions

_ALIGN = 64
# What main may hold: calls, what they are given, and the end.
_HOST_OPS = VIEWS | {
    "arith.constant",
    "func.call",
    "func.return",
    "memref.get_global",
    "memref.view",
}


@dataclass(frozen=True)
class Tables:
    """What the runtime needs besides the machine code."""

    kernels: tuple[KernelSpec, ...]
    launches: tuple[LaunchSpec, ...]
    buffers: tuple[BufferSpec, ...]
    constants: bytes
    workspace_size: int
    work: int


def read_tables(module: ir.Module) -> Tables:
    """The tables of a module at the `loops` stage."""
    return _Reader(module).read()


class _Reader:
    def __init__(self, module: ir.Module):
        self.module = module
        main = find_function(module, "main")
        if main is None:
            raise LoweringError("the module has no function @main")
        self.main = main
        self.buffers: dict[BufferSpec, int] = {}
        self.constants = bytearray()
        self.constant_at: dict[str, int] = {}

    def read(self) -> Tables:
        attributes = self.main.attributes
        outputs = int(attributes["nova.outputs"].value)
        arguments = list(self.main.entry_block.arguments)
        inputs = len(arguments) - outputs - 1
        self.place = {
            a: ("arg", i) if i < inputs else ("output", i - inputs)
            for i, a in enumerate(arguments[:-1])
        }
        self.workspace = arguments[-1]
        kernels = {f.name.value: f for f in functions(self.module) if "nova.kernel" in f.attributes}
        order = {name: i for i, name in enumerate(kernels)}
        launches = []
        for op in self.main.entry_block.operations:
            if op.operation.name not in _HOST_OPS:
                raise LoweringError(
                    f"main holds {op.operation.name}, which is no kernel call",
                    where=str(op.location),
                )
            if op.operation.name == "func.call":
                buffers = list(op.operation.operands)[:-2]
                ids = tuple(self._buffer(b) for b in buffers)
                launches.append(LaunchSpec(order[op.callee.value], ids))
        return Tables(
            tuple(_kernel_spec(f) for f in kernels.values()),
            tuple(launches),
            tuple(self.buffers),
            bytes(self.constants),
            int(attributes["nova.workspace"].value),
            sum(int(f.attributes["nova.work"].value) for f in kernels.values()),
        )

    def _buffer(self, value: Any) -> int:
        root = buffer_root(value)
        size = nbytes(root.type)
        if root in self.place:
            kind, index = self.place[root]
            spec = BufferSpec(kind, index, size)
        else:
            op = root.owner.operation
            if op.name == "memref.view":
                spec = BufferSpec("workspace", _constant_index(op.operands[1]), size)
            elif op.name == "memref.get_global":
                spec = BufferSpec("constant", self._constant(op.attributes["name"].value), size)
            else:
                raise LoweringError(f"main passes the result of {op.name} to a kernel")
        return self.buffers.setdefault(spec, len(self.buffers))

    def _constant(self, name: str) -> int:
        if name not in self.constant_at:
            for op in self.module.body.operations:
                if op.operation.name == "memref.global" and op.sym_name.value == name:
                    data = dense_bytes(op.operation.attributes["initial_value"])
                    self.constants += bytes(-len(self.constants) % _ALIGN)
                    self.constant_at[name] = len(self.constants)
                    self.constants += data or b"\0"  # an empty one has an address as well
        return self.constant_at[name]


def _kernel_spec(function: Any) -> KernelSpec:
    attributes = function.attributes
    moved = sum(
        nbytes(a.type) for a in function.entry_block.arguments if isinstance(a.type, ir.MemRefType)
    )
    return KernelSpec(
        name=function.name.value,
        symbol=function.name.value,
        grid=int(attributes["nova.tiles"].value),
        core=attributes["nova.core"].value,
        flops=int(attributes["nova.work"].value),
        bytes=moved,
        location=_location_text(function.location),
    )


def _location_text(location: Any) -> str:
    text = str(location)
    return text.removeprefix("loc(").removesuffix(")").replace('"', "")


def _constant_index(value: Any) -> int:
    return int(value.owner.operation.attributes["value"].value)


def dense_bytes(attr: Any) -> bytes:
    """The elements of a dense attribute, as they lie in memory."""
    type_ = attr.type
    dtype = nova_dtype(type_.element_type)
    shape = tuple(type_.shape)
    if prod(shape) == 0:
        return b""
    if attr.is_splat:
        return np.full(shape, attr.get_splat_value().value).astype(dtype.numpy).tobytes()
    try:
        return np.array(attr).astype(dtype.numpy, copy=False).reshape(shape).tobytes()
    except (ValueError, TypeError):
        return np.asarray(list(attr)).astype(dtype.numpy).tobytes()
