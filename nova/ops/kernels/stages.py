"""Loops of a kernel as stages that linalg can express, by loop distribution.

In: a checked kernel with its dtypes, and the output that is asked for. Out: a list of `Stage`s, the
last of which computes the output; or `Ordered`, if iterations depend on each other: the kernel then
runs as it is written, sequentially.

A loop that stores to an output at its own variable, and carries nothing from one iteration to the
next, is a dimension of parallel stages. Code between such loops is distributed (Allen and Kennedy,
"Automatic translation of Fortran programs to vector form", 1987): scalars that a later stage reads
become tensors over the dimensions so far (a scalar expansion), unless they are cheap enough to be
computed again. A loop that only sums, or takes a maximum or minimum, becomes a reduction stage, as
in "Progressive raising in multi-level IR" (Chelini et al., 2021). So the softmax and the matmul
that a user writes as loops reach the same schedules as those of Nova, on every target.

Any other loop stays sequential inside of the stage that contains it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NoReturn

from nova.core.dtypes import DType, bool_, i64
from nova.core.records import record
from nova.core.sizes import Size, known_equal
from nova.ops.kernels.language import (
    LoopProgram,
    accesses,
    indices_of,
    is_claimed_parallel,
)
from nova.ops.kernels.typing import Typing

Dims = tuple[tuple[str, Size], ...]
"""Loop variables with the sizes of their loops."""


@record
class Temporary:
    """Scalars that an earlier stage has computed, over its dimensions."""

    names: tuple[str, ...]
    dims: Dims


Item = ast.stmt | Temporary


@record
class Stage:
    """The values of variables `results` after `items`, at every point of `dims`.

    A reduction combines `value` over the dimensions `reduced`, by the row `combine`.
    """

    dims: Dims
    items: tuple[Item, ...]
    results: tuple[str, ...]
    reduced: Dims = ()
    combine: str = ""
    value: ast.expr | None = None


_ELEMENT = "[]"


def element_name(output: str) -> str:
    """The variable that stands for the element of an output at the loop variables."""
    return output + _ELEMENT


def element_owner(name: str) -> str | None:
    """The output whose element a variable is."""
    return name.removesuffix(_ELEMENT) if name.endswith(_ELEMENT) else None


class Ordered(Exception):
    """The loops do not run in parallel; why, and the loop or access that says so."""

    def __init__(self, reason: str, node: ast.AST):
        super().__init__(reason)
        self.reason, self.node = reason, node


def find_stages(program: LoopProgram, typing: Typing, output: str) -> list[Stage]:
    """The stages of a kernel that compute `output`; Ordered if there are none."""
    distributor = _Distributor(program, typing)
    distributor.level(program.body, (), ())
    stages = distributor.stages
    result = (element_name(output),)
    last = [n for n, s in enumerate(stages) if s.results == result and not s.reduced]
    if len(last) != 1:
        raise Ordered(f"{output} is written in {len(last)} loop nests", program.body[0])
    return _needed(stages[: last[0] + 1])


def check_claims(program: LoopProgram, reason: Ordered) -> None:
    """KernelError if a loop that runs sequentially was claimed to be parallel."""
    for node in ast.walk(ast.Module(list(program.body), [])):
        if isinstance(node, ast.For) and is_claimed_parallel(node):
            program.fail(
                reason.node,
                f"the loop over {ast.unparse(node.target)} is nova.range, and its iterations are "
                f"not independent: {reason.reason}",
                "write range for a loop that runs in order",
            )


class _Distributor:
    def __init__(self, program: LoopProgram, typing: Typing):
        self.program, self.typing = program, typing
        self.outputs = frozenset(program.outputs)
        self.stages: list[Stage] = []
        self.axes: dict[str, tuple[str, ...]] = {}
        """The loop variables that index an output."""
        self.finished: dict[str, Dims] = {}
        """Outputs that a loop nest before this one writes, with the dimensions of its stage."""

    def level(self, statements: Sequence[ast.stmt], dims: Dims, before: tuple[Item, ...]) -> None:
        """Distribute the statements inside of the parallel loops `dims`."""
        items = before
        for number, node in enumerate(statements):
            later = statements[number + 1 :]
            if isinstance(node, ast.For) and self._stores_at(node):
                size = self._parallel_size(node, later)
                items = self._settled(items, len(before), dims, [node, *later])
                assert isinstance(node.target, ast.Name)
                self.level(node.body, (*dims, (node.target.id, size)), items)
                continue
            [scalar] = self._scalars([node], dims)
            items = (*items, *self._earlier(scalar, items))
            reduction = self._reduction(scalar)
            if reduction is None:
                items = (*items, scalar)
                continue
            items = self._settled(items, len(before), dims, [scalar, *later])
            items = self._reduced(items, dims, *reduction)
        self._finish(items, len(before), dims)

    # --- parallel loops -------------------------------------------------------------------------

    def _stores_at(self, loop: ast.For) -> bool:
        """Whether the body stores to an output at the loop's variable."""
        assert isinstance(loop.target, ast.Name)
        return any(
            isinstance(a.ctx, ast.Store) and loop.target.id in _names(indices_of(a.slice))
            for a in accesses(loop, self.outputs)
        )

    def _parallel_size(self, loop: ast.For, later: Sequence[ast.stmt]) -> Size:
        size = self.typing.loop_size(loop)
        if size is None:
            raise Ordered(f"its range is not 0 to a size ({ast.unparse(loop.iter)})", loop)
        assigned = assigned_names(loop.body)
        carried = sorted(assigned & exposed_names(loop.body))
        if carried:
            raise Ordered(f"{carried[0]} goes from one iteration to the next", loop)
        after = sorted(assigned & exposed_names(later))
        if after:
            raise Ordered(f"{after[0]} is read after the loop", loop)
        return size

    def _scalars(self, statements: Sequence[ast.stmt], dims: Dims) -> list[ast.stmt]:
        """The statements with elements of outputs as variables."""
        rewrite = _OutputScalars(self, dims)
        return [rewrite.visit(ast_copy(node)) for node in statements]

    def _earlier(self, node: ast.stmt, items: tuple[Item, ...]) -> list[Temporary]:
        """The elements that a statement reads and that a loop nest before this one has written."""
        loaded = {name for i in items if isinstance(i, Temporary) for name in i.names}
        read = _names([node]) - loaded
        return [
            Temporary((element_name(output),), dims)
            for output, dims in self.finished.items()
            if element_name(output) in read
        ]

    # --- reductions -----------------------------------------------------------------------------

    def _reduction(self, node: ast.stmt) -> tuple[str, Dims, str, ast.expr] | None:
        """(variable, loops, row, value) of a loop that only sums or takes an extreme."""
        dims: Dims = ()
        while isinstance(node, ast.For) and len(node.body) == 1:
            size = self.typing.loop_size(node)
            if size is None or known_equal(size, 0):
                return None
            assert isinstance(node.target, ast.Name)
            dims = (*dims, (node.target.id, size))
            node = node.body[0]
        combination = _combination(node)
        if combination is None or not dims:
            return None
        name, row, value = combination
        dtype = self._dtype_of(name)
        if dtype is bool_ or name in _names([value]):
            return None
        return name, dims, row, value

    def _reduced(
        self, items: tuple[Item, ...], dims: Dims, name: str, loops: Dims, row: str, value: ast.expr
    ) -> tuple[Item, ...]:
        result = f"reduced_{len(self.stages)}"
        self.typing.variables[result] = self._dtype_of(name)
        self.stages.append(Stage(dims, items, (result,), loops, row, value))
        target, operand = ast.Name(name, ast.Store()), ast.Name(result, ast.Load())
        before = ast.Name(name, ast.Load())
        combined = ast.Call(ast.Name(row, ast.Load()), [before, operand], [])
        assign = ast.Assign([target], combined)
        ast.fix_missing_locations(ast.copy_location(assign, value))
        return (*items, Temporary((result,), dims), assign)

    def _dtype_of(self, name: str) -> DType:
        owner = element_owner(name)
        if owner is not None:
            return self.typing.scalar_of(self.typing.types[owner].dtype)
        return self.typing.variables.get(name, i64)

    # --- stages ---------------------------------------------------------------------------------

    def _settled(
        self, items: tuple[Item, ...], level: int, dims: Dims, later: Sequence[ast.stmt]
    ) -> tuple[Item, ...]:
        """The items before a new stage: values of sequential loops are computed once, not again."""
        new = [i for i in items[level:] if isinstance(i, ast.stmt)]
        if not any(isinstance(n, ast.For) for s in new for n in ast.walk(s)):
            return items
        assigned = assigned_names(new) - _loop_variables(new)  # no statement reads those later
        elements = {element_name(output) for output in self.outputs}
        live = tuple(sorted(assigned & (_names(later) | elements)))
        if not live:
            return items[:level]
        self.stages.append(Stage(dims, items, live))
        return (*items[:level], Temporary(live, dims))

    def _finish(self, items: tuple[Item, ...], level: int, dims: Dims) -> None:
        """The stages of the outputs that this level writes."""
        for name in self.program.outputs:
            element = element_name(name)
            written = any(_writes(item, element) for item in items[level:])
            if name in self.finished or not written:
                continue
            order = self.axes[name]
            sizes = dict(dims)
            for axis, variable in enumerate(order):
                size = self.typing.types[name].shape[axis]
                if not known_equal(sizes[variable], size):
                    raise Ordered(
                        f"{variable} has {sizes[variable]} values, and axis {axis} of {name} has "
                        f"{size} elements",
                        self.program.body[0],
                    )
            reordered = tuple((variable, sizes[variable]) for variable in order)
            self.stages.append(Stage(reordered, items, (element,)))
            self.finished[name] = reordered


class _OutputScalars(ast.NodeTransformer):
    """Replaces `out[i, j]` by the variable of the element, inside of the loops over i and j."""

    def __init__(self, owner: _Distributor, dims: Dims):
        self.owner, self.dims = owner, dims

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name not in self.owner.outputs:
            return self.generic_visit(node)
        indices = [i.id if isinstance(i, ast.Name) else "" for i in indices_of(node.slice)]
        if self.owner.typing.types[name].rank == 0:
            indices = []
        order = tuple(indices)
        if sorted(order) != sorted(variable for variable, _ in self.dims):
            self._refuse(node, name)
        if self.owner.axes.setdefault(name, order) != order:
            raise Ordered(f"{name} is indexed in several ways", node)
        if name in self.owner.finished:
            self._check_earlier(node, name)
        return ast.copy_location(ast.Name(element_name(name), node.ctx), node)

    def _check_earlier(self, node: ast.Subscript, name: str) -> None:
        """An element of an output that an earlier loop nest has written."""
        if isinstance(node.ctx, ast.Store):
            raise Ordered(f"{name} is written in 2 loop nests", node)
        sizes = dict(self.dims)
        if not all(known_equal(sizes[v], size) for v, size in self.owner.finished[name]):
            raise Ordered(f"{name} is read and written in loops of different sizes", node)

    def _refuse(self, node: ast.Subscript, name: str) -> NoReturn:
        loops = ", ".join(variable for variable, _ in self.dims) or "none"
        raise Ordered(f"`{ast.unparse(node)}` is not indexed by its loops ({loops})", node)


def _combination(node: ast.stmt) -> tuple[str, str, ast.expr] | None:
    """(variable, row, value) of `v += e`, `v = v + e` and `v = max(v, e)`."""
    match node:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
            return name, "add", value
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.BinOp(left=ast.Name(id=left), op=ast.Add(), right=value),
        ) if left == name:
            return name, "add", value
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.Call(func=ast.Name(id="max" | "min" as row), args=[ast.Name(id=left), value]),
        ) if left == name:
            return name, f"{row}imum", value
    return None


def _needed(stages: Sequence[Stage]) -> list[Stage]:
    """The stages that the last one reads, directly or not."""
    needed: list[Stage] = []
    names: set[tuple[str, Dims]] = set()
    for stage in reversed(stages):
        if not needed or any((r, stage.dims) in names for r in stage.results):
            needed.append(stage)
            for item in stage.items:
                if isinstance(item, Temporary):
                    names |= {(name, item.dims) for name in item.names}
    return needed[::-1]


# --- dataflow -------------------------------------------------------------------------------------


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """All names in trees."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _writes(item: Item, name: str) -> bool:
    return name in (item.names if isinstance(item, Temporary) else assigned_names([item]))


def assigned_names(statements: Iterable[ast.AST]) -> set[str]:
    """The variables that statements assign."""
    return {
        n.id
        for node in statements
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _loop_variables(statements: Iterable[ast.AST]) -> set[str]:
    """The variables of the loops in statements."""
    loops = [n for node in statements for n in ast.walk(node) if isinstance(n, ast.For)]
    return {n.target.id for n in loops if isinstance(n.target, ast.Name)}


def exposed_names(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that may be read before these statements assign them."""
    return _exposed(statements, set())[0]


def _exposed(statements: Sequence[ast.stmt], defined: set[str]) -> tuple[set[str], set[str]]:
    """Names read before they are assigned, and names that are assigned for certain."""
    exposed: set[str] = set()
    for node in statements:
        match node:
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                exposed |= _names([iterator]) - defined
                exposed |= _exposed(body, defined | {name})[0]  # the body may not run at all
            case ast.If(test=test, body=body, orelse=orelse):
                exposed |= _names([test]) - defined
                first, second = _exposed(body, set(defined)), _exposed(orelse, set(defined))
                exposed |= first[0] | second[0]
                defined = defined | (first[1] & second[1])
            case ast.AugAssign(target=target, value=value):
                exposed |= _names([target, value]) - defined
            case ast.Assign(targets=[target], value=value):
                exposed |= _names([value, *_index_parts(target)]) - defined
                defined = defined | assigned_names([target])
    return exposed, defined


def _index_parts(target: ast.expr) -> list[ast.AST]:
    return [target.slice] if isinstance(target, ast.Subscript) else []


def ast_copy(node: ast.stmt) -> ast.stmt:
    """A copy, which rewrites do not share with the cached program."""
    from copy import deepcopy

    return deepcopy(node)
