"""A kernel of the device, analysed once for all strategies.

Input: a kernel over buffers (stage `buffers`) and a device target. Output: its ops with their loop
nests over one grid, and the buffers that its launch uses. The grid of a kernel is the leading
dimensions that its ops share. Values that stay between ops are private to a thread, or in the
shared memory of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

from nova.codegen.common.flat_buffers import flatten, flatten_root
from nova.codegen.common.loop_nest import LoopNest, make_loop_nest, merge_grid, merge_inner
from nova.codegen.common.tile_local import is_tile_local_alloca, static_part
from nova.codegen.gpu.block_ops import SharedMemory, element_bytes
from nova.codegen.gpu.persistent.task import TASK_THREADS
from nova.core.targets import Target
from nova.ir.attributes import PROLOGUE, UNWRITTEN
from nova.ir.bindings import ir, memref
from nova.ir.buffers import VIEWS, buffer_root
from nova.ir.clone import clone_into
from nova.ir.kernel import Kernel
from nova.ir.linalg.generic import is_generic_op, shape_of
from nova.ir.symbolic.size_table import decoded, is_number, typical
from nova.ir.walk import every_op

SHARED_LIMIT = 48 << 10
MAX_THREADS = 1024


class DeviceKernel:
    """The ops of a kernel, their loop nests, its grid and its scratch buffers."""

    def __init__(
        self,
        function: Any,
        ops: list[Any],
        target: Target,
        *,
        matmul_precision: str = "highest",
        gpu_gemm: str = "auto",
        gpu_attention: str = "auto",
        is_task: bool = False,
    ):
        self.function = function
        self.target = target
        self.matmul_precision = matmul_precision
        self.gpu_gemm = gpu_gemm
        self.gpu_attention = gpu_attention
        self.has_clusters = target.has_clusters and not is_task
        self.max_threads = TASK_THREADS if is_task else MAX_THREADS
        coded = [op for op in ops if op.name not in VIEWS and not _needs_no_code(op)]
        self.ops = [op for op in coded if not PROLOGUE.has(op)]
        before = [op for op in coded if PROLOGUE.has(op)]
        self.prologue = {
            op: merge_inner(make_loop_nest(op), 0) for op in before if is_generic_op(op)
        }
        """The ops that every block computes before its points of the grid, and their nests."""
        self.updates = [op for op in before if not is_generic_op(op)]
        """Of an attention: the writes of new rows of its keys and values, and scalars for them."""
        grid = decoded(Kernel(function).grid)
        structured = [op for op in self.ops if is_generic_op(op)]
        if any(not is_generic_op(op) and not computes_scalars(op) for op in self.ops):
            grid = ()  # unstructured ops run in one thread
        nests, self.grid = merge_grid([make_loop_nest(op) for op in structured], grid)
        nests = [merge_inner(nest, len(self.grid)) for nest in nests]
        self.scratch = [op.results[0] for op in ops if op.name == "memref.alloca"]
        self.global_nests: dict[Any, LoopNest] = dict(zip(structured, nests, strict=True))
        """Nests whose strides in scratch are those of the whole grid."""
        self.nests = {op: self._localize(nest) for op, nest in self.global_nests.items()}
        """Nests in which the scratch of a point begins at 0."""
        self.num_points = prod(self.grid)
        self.shared = SharedMemory()

    def _localize(self, nest: LoopNest) -> LoopNest:
        """Let the scratch of a point begin at 0: the strides of the grid loops in it are 0."""
        local = [
            i
            for i, value in enumerate(nest.generic.op.operands)
            if isinstance(value.type, ir.MemRefType) and is_tile_local(buffer_root(value))
        ]
        loops = list(nest.loops)
        for i in range(len(self.grid)):
            strides = tuple(0 if k in local else s for k, s in enumerate(loops[i].strides))
            loops[i] = replace(loops[i], strides=strides)
        return replace(nest, loops=tuple(loops))

    # --- analysis ---------------------------------------------------------------------------------

    @property
    def grid_rank(self) -> int:
        return len(self.grid)

    @cached_property
    def inner_size(self) -> int:
        """The maximum of iterations that an op has at one point of the grid, by typical sizes."""
        return max(
            (
                typical(prod(loop.size for loop in n.loops[self.grid_rank :]))
                for n in self.nests.values()
            ),
            default=1,
        )

    @cached_property
    def is_empty(self) -> bool:
        """Whether no op of the kernel has any work."""
        return is_number(self.num_points, 0) or (
            self.is_structured
            and all(is_number(nest.iteration_count, 0) for nest in self.nests.values())
        )

    @cached_property
    def is_structured(self) -> bool:
        """Whether all ops are loop nests."""
        return all(op in self.nests for op in self.ops)

    @cached_property
    def scalar_ops(self) -> list[Any] | None:
        """The ops other than loop nests, if they only compute scalars; None if they do more."""
        unstructured = [op for op in self.ops if op not in self.nests]
        return unstructured if all(map(computes_scalars, unstructured)) else None

    @property
    def loop_nests(self) -> list[LoopNest]:
        return list(self.nests.values())

    def is_unwritten(self, value: Any) -> bool:
        """Whether no launch before this one writes the buffer of an operand (`mark-unwritten`)."""
        numbers = UNWRITTEN.find(self.function) or ()
        arguments = self.function.entry_block.arguments
        return buffer_root(value) in [arguments[i] for i in numbers]

    @cached_property
    def results(self) -> set[Any]:
        """The arguments that are read after the kernel."""
        return set(Kernel(self.function).output_arguments)

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes of scratch per point of the grid."""
        return sum(
            self.scratch_elements(v) * element_bytes(v.type.element_type) for v in self.scratch
        )

    def scratch_elements(self, value: Any) -> int:
        """Elements of a scratch buffer per point of the grid."""
        if is_tile_local(value):
            return static_part(value, self.grid)
        return int(prod(shape_of(value)))  # a buffer of an unstructured op, on the stack

    # --- emission ---------------------------------------------------------------------------------

    def emit_op(
        self,
        op: Any,
        flat: Callable[[Any], Any],
        mapping: dict[Any, Any],
        emit_nest: Callable[[LoopNest, list[Any]], None],
    ) -> None:
        """Emit an op: a loop nest by `emit_nest` on its flat buffers, others as they are.

        `mapping` has the scalars that earlier ops computed.
        """
        with op.location:
            if op in self.nests:
                emit_nest(self.nests[op], [flat(mapping.get(v, v)) for v in op.operands])
            else:
                clone_into(op, mapping)

    def flat_buffers(
        self,
        allocate: Callable[[Any], Any] | None = None,
        private_arguments: Sequence[Any] = (),
    ) -> Callable[[Any], Any]:
        """A function that flattens operands; call it at the top of the launch.

        `allocate` makes the buffers that replace scratch and `private_arguments`. By default each
        thread has a private part of scratch. The values of the prologue are in shared memory.
        """
        allocate = allocate or self.allocate_private
        buffers = {value: allocate(value) for value in (*self.scratch, *private_arguments)}
        for nest in self.prologue.values():
            for root in map(buffer_root, nest.generic.outputs):
                if root not in buffers:
                    count, element = prod(shape_of(root)), root.type.element_type
                    buffers[root] = self.shared.allocate(int(count), element)
        for op in (*self.prologue, *self.ops):
            for value in op.operands:
                if isinstance(value.type, ir.MemRefType) and buffer_root(value) not in buffers:
                    root = buffer_root(value)
                    buffers[root] = flatten(root)
        return lambda value: flatten_root(value, buffers)

    def allocate_private(self, value: Any, points: int = 1) -> Any:
        """The scratch of a thread with this many points.

        Values that stay in registers are never stored there.
        """
        count = self.scratch_elements(value) * (points if is_tile_local(value) else 1)
        buffer_type = ir.MemRefType.get([count], value.type.element_type)
        return memref.AllocaOp(buffer_type, [], []).result

    def allocate_shared(self, value: Any) -> Any:
        """The scratch of a block with one point, in shared memory."""
        return self.shared.allocate(self.scratch_elements(value), value.type.element_type)


def is_tile_local(value: Any) -> bool:
    """Whether a buffer is scratch, of which each point of the grid has a part."""
    return isinstance(value, ir.OpResult) and is_tile_local_alloca(value.owner.operation)


def is_updated(kernel: DeviceKernel, op: Any, number: int) -> bool:
    """Whether an op alone writes an input, at the positions at which it reads it.

    No other tile has these elements, and those of a thread are read before they are written.
    """
    nest, root = kernel.nests[op], buffer_root(kernel.nests[op].generic.inputs[number])
    writers = [
        (writer, operand)
        for writer, written_nest in kernel.nests.items()
        for operand, value in enumerate(written_nest.generic.outputs)
        if buffer_root(value) == root
    ]
    if len(writers) != 1 or writers[0][0] != op:
        return False
    written = nest.generic.num_inputs + writers[0][1]
    accesses = (nest.offsets, *(loop.strides for loop in nest.loops))
    return all(numbers[number] == numbers[written] for numbers in accesses)


def computes_scalars(op: Any) -> bool:
    """Whether an op only computes scalars, from other scalars or from memory."""
    return bool(len(op.results)) and not any(
        inner.name in ("memref.store", "linalg.generic") for inner in every_op(op)
    )


def _needs_no_code(op: Any) -> bool:
    return op.name in ("arith.constant", "memref.alloca")
