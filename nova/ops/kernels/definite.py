"""Definite assignment: a variable of a loop kernel is read only after it is assigned.

In: the kernel that a user wrote. Out: KernelError at a read that a branch without an assignment may
reach; compiled code would read 0 there, and Python raise an error. As in Java, an `if` assigns a
variable for certain if both branches do. A loop counts as one that runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from nova.ops.kernels.language import LoopProgram
from nova.ops.kernels.stages import assigned_names

Names = frozenset[str]


def check_assigned(program: LoopProgram) -> None:
    """Refuse reads of variables that only some branches assign."""
    _Assignments(program).block(program.body, frozenset())


class _Assignments:
    def __init__(self, program: LoopProgram):
        self.program = program
        self.variables = assigned_names(program.body)

    def block(self, statements: Sequence[ast.stmt], assigned: Names) -> Names:
        """The names that are assigned after the statements, given those before."""
        for node in statements:
            assigned = self._statement(node, assigned)
        return assigned

    def _statement(self, node: ast.stmt, assigned: Names) -> Names:
        match node:
            case ast.For(target=ast.Name(id=name), iter=iterator, body=body):
                self._check([iterator], assigned)
                return self.block(body, assigned | {name})
            case ast.If(test=test, body=body, orelse=orelse):
                self._check([test], assigned)
                return self.block(body, assigned) & self.block(orelse, assigned)
            case ast.AugAssign(target=ast.Name(id=name) as target, value=value):
                read = ast.copy_location(ast.Name(name, ast.Load()), target)
                self._check([read, value], assigned)
                return assigned
            case ast.AugAssign(target=target, value=value):
                self._check([target, value], assigned)
                return assigned
            case ast.Assign(targets=targets, value=value):
                self._check([value, *targets], assigned)
                return assigned | assigned_names(targets)
        return assigned

    def _check(self, nodes: Iterable[ast.AST], assigned: Names) -> None:
        for node in nodes:
            for read in ast.walk(node):
                match read:
                    case ast.Name(id=name, ctx=ast.Load()) if (
                        name in self.variables and name not in assigned
                    ):
                        self.program.fail(
                            read,
                            f"reads {name!r}, which no statement before assigns in every case",
                            f"assign it before the `if`, or in both branches: {name} = 0.0",
                        )
