"""Device functions for host code around launches, and functions that take its scalars.

In: host code that `nova.frontends.host_code` has cut out of a function. Out: functions in a
`gpu.module`: one thread for arithmetic, threads over the elements for copies and fills, and copies
of the program's own functions that run under a condition, or over a grid with a runtime size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any

from nova.errors import UnsupportedOpError
from nova.frontends.checks import place
from nova.frontends.host_numbers import Number, buffer_of, is_number, load_number, store_number
from nova.ir.attributes import CONTAINER_MODULE
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.buffers import view_as
from nova.ir.clone import clone_into
from nova.ir.gpu_bindings import gpu
from nova.ir.index import index
from nova.ir.walk import every_op, find_ops

Symbols = tuple[str, str]
MODULE = "host"
THREADS = 256
"""Threads per block of copies and fills."""
BLOCKS = 512
"""Blocks that loop over a grid of any size: enough for all multiprocessors."""
_OWN_BLOCK = ("nvvm.read.ptx.sreg.ctaid", "nvvm.read.ptx.sreg.nctaid", "nvvm.read.ptx.sreg.cluster")


class HostKernels:
    """The device functions of a program; functions for its host code are added."""

    def __init__(self, module: ir.Module, filename: str):
        self.module = module
        self.filename = filename
        self.part: Any = None
        self.made: dict[Any, Symbols] = {}
        self.names: set[str] = set()
        self.functions: dict[Symbols, Any] = {}
        for part in find_ops(module, "gpu.module"):
            for function in find_ops(part, "gpu.func"):
                name = function.attributes["sym_name"].value
                self.names.add(name)
                self.functions[part.attributes["sym_name"].value, name] = function
                _take_numbers_from_memory(function)

    # --- functions for host code ------------------------------------------------------------------

    def arithmetic(
        self, ops: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[tuple[Any, Number]]
    ) -> Symbols:
        """Ops in one thread; `inputs` are external values, `outputs` values and their buffers."""
        types = [buffer_of(v.type) if is_number(v) else v.type for v in inputs]
        types += [number.type for _, number in outputs]

        def body(arguments: Sequence[Any]) -> None:
            mapping: dict[Any, Any] = {}
            for value, argument in zip(inputs, arguments, strict=False):
                mapping[value] = load_number(argument, value.type) if is_number(value) else argument
            for op in ops:
                clone_into(op, mapping)
            for (value, _), argument in zip(outputs, arguments[len(inputs) :], strict=True):
                store_number(mapping.get(value, value), argument)

        return self._same(self._add("numbers", types, body))

    def _same(self, symbols: Symbols) -> Symbols:
        """An existing function with the same code, if any."""
        function = self.functions[symbols]
        blocks = function.regions[0].blocks
        code = "".join(str(op) for op in blocks[0].operations)
        key = (str([a.type for a in blocks[0].arguments]), code)
        if key in self.made:
            function.erase()
            del self.functions[symbols]
            self.names.discard(symbols[1])
        return self.made.setdefault(key, symbols)

    def copy(self, target: Any, source: Any) -> Symbols:
        """`target[i] = source[i]` for all elements; buffers of these types."""

        def element(arguments: Sequence[Any]) -> Callable[[Any], Any]:
            flat = _flat(arguments[1])
            return lambda at: memref.LoadOp(flat, [at]).result

        return self._elementwise("copy", target, source, element)

    def fill(self, target: Any, value: Any) -> Symbols:
        """`target[i] = value` for all elements."""

        def element(arguments: Sequence[Any]) -> Callable[[Any], Any]:
            number = load_number(arguments[1], value)
            return lambda at: number

        return self._elementwise("fill", target, buffer_of(value), element)

    def _elementwise(
        self, name: str, target: Any, other: Any, element: Callable[..., Callable[[Any], Any]]
    ) -> Symbols:
        key = (name, str(target), str(other))
        if key in self.made:
            return self.made[key]

        def body(arguments: Sequence[Any]) -> None:
            flat, value = _flat(arguments[0]), element(arguments)
            block, thread = gpu.block_id(_dimension("x")), gpu.thread_id(_dimension("x"))
            at = arith.addi(arith.muli(block, index(THREADS)), thread)
            size = index(prod(target.shape))
            inside = scf.IfOp(arith.cmpi(arith.CmpIPredicate.slt, at, size))
            with ir.InsertionPoint(inside.then_block):
                memref.StoreOp(value(at), flat, [at])
                scf.YieldOp([])

        self.made[key] = self._add(name, [target, other], body)
        return self.made[key]

    def _add(self, name: str, types: Sequence[Any], body: Callable[..., None]) -> Symbols:
        if self.part is None:
            tops = [op.operation for op in self.module.body.operations]
            known = {op.attributes["sym_name"].value for op in tops if "sym_name" in op.attributes}
            CONTAINER_MODULE.set(self.module.operation)
            with ir.InsertionPoint.at_block_begin(self.module.body):
                self.part = ir.Operation.create(
                    "gpu.module",
                    attributes={"sym_name": ir.StringAttr.get(_free(MODULE, known))},
                    regions=1,
                )
            self.part.regions[0].blocks.append()
        attributes = {"gpu.kernel": ir.UnitAttr.get()}
        with ir.InsertionPoint(self.part.regions[0].blocks[0]):
            function = self._function(name, types, attributes)
        block = function.regions[0].blocks.append(*types, arg_locs=[function.location] * len(types))
        with ir.InsertionPoint(block):
            body(list(block.arguments))
            gpu.ReturnOp([])
        return self._known(self.part, function)

    def _function(self, name: str, types: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        own = {
            **attributes,
            "sym_name": ir.StringAttr.get(_free(name, self.names)),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), [])),
        }
        return ir.Operation.create("gpu.func", attributes=own, regions=1)

    def _known(self, part: Any, function: Any) -> Symbols:
        name = function.attributes["sym_name"].value
        self.names.add(name)
        symbols = (part.attributes["sym_name"].value, name)
        self.functions[symbols] = function
        return symbols

    # --- functions with conditions and grids ------------------------------------------------------

    def variant(self, symbols: Symbols, any_grid: bool, guarded: bool, launch: Any) -> Symbols:
        """A copy of a function that takes its grid as arguments, and runs under a condition.

        After the arguments of the original, it takes the buffers of the three grid sizes and of the
        condition.
        """
        if not any_grid and not guarded:
            return symbols
        key = (symbols, any_grid, guarded)
        if key not in self.made:
            old = self.functions[symbols]
            if any_grid:
                self._check_blocks(old, launch)
            self.made[key] = self._wrap(old, any_grid, guarded)
        return self.made[key]

    def _check_blocks(self, function: Any, launch: Any) -> None:
        for op in every_op(function):
            if op.name.startswith(_OWN_BLOCK):
                raise UnsupportedOpError(
                    f"{op.name} in a kernel whose grid is not a constant",
                    where=place(launch, self.filename),
                    hint="write gpu.block_id and gpu.grid_dim, or a constant grid",
                )

    def _wrap(self, old: Any, any_grid: bool, guarded: bool) -> Symbols:
        given = len(ir.FunctionType(old.attributes["function_type"].value).inputs)
        with ir.InsertionPoint(old), old.location:
            inner = old.clone()
            before = list(inner.regions[0].blocks[0].arguments)
            i64, i1 = ir.IntegerType.get_signless(64), ir.IntegerType.get_signless(1)
            more = [ir.MemRefType.get([], i64)] * 3 * any_grid
            more += [ir.MemRefType.get([], i1)] * guarded
            types = [*(a.type for a in before[:given]), *more]
            kept = {name: old.attributes[name] for name in old.attributes}
            for name in ("arg_attrs", *["known_grid_size"] * any_grid):
                kept.pop(name, None)
            new = self._function(old.attributes["sym_name"].value, types, kept)
        types += [a.type for a in before[given:]]  # shared and per-thread memory
        top = new.regions[0].blocks.append(*types, arg_locs=[old.location] * len(types))
        arguments = list(top.arguments)
        extra = arguments[given : given + len(more)]
        with ir.InsertionPoint(top), old.location:
            body = _execute(extra, any_grid, guarded)
            gpu.ReturnOp([])
        body.take(inner, [*arguments[:given], *arguments[given + len(more) :]])
        inner.erase()
        return self._known(old.parent.operation, new)


@dataclass(frozen=True)
class _Body:
    """The op that gets the body of a function; in a loop over blocks, the block index and count."""

    op: Any
    block: Sequence[Any] = ()
    grid: Sequence[Any] = ()

    def take(self, function: Any, arguments: Sequence[Any]) -> None:
        """Move the blocks of a function here; `arguments` replace its own."""
        blocks = list(function.regions[0].blocks)
        for block in blocks:
            block.append_to(self.op.regions[0])
        for old, new in zip(list(blocks[0].arguments), arguments, strict=True):
            old.replace_all_uses_with(new)
        for _ in arguments:
            blocks[0].erase_argument(0)
        for block in blocks:
            last = block.operations[len(block.operations) - 1].operation
            if last.name == "gpu.return":
                with ir.InsertionPoint(last), last.location:
                    scf.YieldOp([])
                last.erase()
        if self.grid:
            self._name_blocks()

    def _name_blocks(self) -> None:
        for op in find_ops(self.op, "gpu.block_id", "gpu.grid_dim", "gpu.global_id"):
            axis = "xyz".index(str(op.attributes["dimension"]).removesuffix(">")[-1])
            value = (self.grid if op.name == "gpu.grid_dim" else self.block)[axis]
            if op.name == "gpu.global_id":
                dimension = _dimension("xyz"[axis])
                with ir.InsertionPoint(op), op.location:
                    value = arith.muli(value, gpu.block_dim(dimension))
                    value = arith.addi(value, gpu.thread_id(dimension))
            op.results[0].replace_all_uses_with(value)
            op.erase()


def _execute(extra: Sequence[Any], any_grid: bool, guarded: bool) -> _Body:
    """The op that gets the body of a function, under the conditions in the `extra` buffers."""
    if guarded:
        condition = scf.IfOp(memref.LoadOp(extra[-1], []).result)
        with ir.InsertionPoint(condition.then_block):
            body = _execute(extra[:-1], any_grid, guarded=False)
            scf.YieldOp([])
        return body
    if not any_grid:
        return _Body(ir.Operation.create("scf.execute_region", regions=1))
    sizes = [load_number(buffer, ir.IndexType.get()) for buffer in extra]
    total = arith.muli(arith.muli(sizes[0], sizes[1]), sizes[2])
    first, step = gpu.block_id(_dimension("x")), gpu.grid_dim(_dimension("x"))
    loop = scf.ForOp(first, total, step)
    with ir.InsertionPoint(loop.body):
        rest = arith.divsi(loop.induction_variable, sizes[0])
        at = [
            arith.remsi(loop.induction_variable, sizes[0]),
            arith.remsi(rest, sizes[1]),
            arith.divsi(rest, sizes[1]),
        ]
        body = _Body(ir.Operation.create("scf.execute_region", regions=1), at, sizes)
        # The next block of the grid uses the same shared memory.
        gpu.BarrierOp()
        scf.YieldOp([])
    return body


def _take_numbers_from_memory(function: Any) -> None:
    """Change the scalar arguments of a function to buffers."""
    types = list(ir.FunctionType(function.attributes["function_type"].value).inputs)
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)[: len(types)]
    if not any(map(is_number, arguments)):
        return
    with ir.InsertionPoint.at_block_begin(block), function.location:
        for i, argument in enumerate(arguments):
            if not is_number(argument):
                continue
            old = argument.type
            types[i] = buffer_of(old)
            uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
            argument.set_type(types[i])
            value = load_number(argument, old)
            for op, number in uses:
                op.operands[number] = value
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


def _flat(buffer: Any) -> Any:
    kind = buffer.type
    return view_as(buffer, ir.MemRefType.get([prod(kind.shape)], kind.element_type))


def _dimension(axis: str) -> Any:
    return ir.Attribute.parse(f"#gpu<dim {axis}>")


def _free(name: str, taken: set[str]) -> str:
    if name not in taken:
        return name
    return next(f"{name}_{i}" for i in count() if f"{name}_{i}" not in taken)
