"""The kernel of a batch of examples: the same loops inside of a loop over the batch.

In: the text of a loop kernel and which inputs have a batch axis. Out: the text of a kernel in which
those inputs, and all outputs, have a leading axis. Called by `nova.vmap`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy

from nova.ops.kernels.language import ORIGINS, indices_of, literal_int, parse_program, shape_owner


def batched_text(text: str, outputs: int, flags: Sequence[bool]) -> str:
    """The text for inputs of which those with a flag have a batch axis."""
    program = parse_program(text, outputs)
    module = ast.parse(text)
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)
    batched = {n for n, f in zip(program.inputs, flags, strict=True) if f} | {*program.outputs}
    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {*program.inputs}
    variable = next(n for n in (f"example{i}" for i in range(len(used) + 1)) if n not in used)
    rewrite = _Batch(batched, variable)
    body = [rewrite.visit(deepcopy(statement)) for statement in function.body]
    size = ast.parse(f"{program.outputs[0]}.shape[0]", mode="eval").body
    loop = ast.For(
        ast.Name(variable, ast.Store()),
        ast.Call(ast.Name("range", ast.Load()), [size], []),
        body,
        [],
    )
    function.body = [loop]
    ast.fix_missing_locations(ast.copy_location(loop, body[0]))
    new = ast.unparse(function)
    if text in ORIGINS:
        file, lines = ORIGINS[text]
        after = [n.lineno for n in ast.walk(ast.parse(new)) if isinstance(n, ast.stmt)]
        before = [n.lineno for n in ast.walk(module) if isinstance(n, ast.stmt)]
        pairs = zip(after, before, strict=True)
        ORIGINS[new] = (file, {a: lines.get(b, b) for a, b in pairs})
    return new


class _Batch(ast.NodeTransformer):
    def __init__(self, batched: set[str], variable: str):
        self.batched, self.variable = batched, variable

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        owner = shape_owner(node.value)
        if owner in self.batched and isinstance(node.targets[0], ast.Tuple):
            count = len(node.targets[0].elts)
            sizes = [f"{owner}.shape[{axis + 1}]" for axis in range(count)]
            value = ast.parse(f"({', '.join(sizes)},)", mode="eval").body
            node.value = ast.copy_location(value, node)
            return node
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        owner = shape_owner(node.value)
        if owner is not None:
            axis = literal_int(node.slice) or 0
            if owner in self.batched and axis >= 0:
                node.slice = ast.copy_location(ast.Constant(axis + 1), node)
            return node
        indices = [self.visit(index) for index in indices_of(node.slice)]
        if isinstance(node.value, ast.Name) and node.value.id in self.batched:
            first = ast.copy_location(ast.Name(self.variable, ast.Load()), node)
            node.slice = ast.Tuple([first, *indices], ast.Load())
        else:
            node.slice = ast.Tuple(indices, ast.Load()) if len(indices) != 1 else indices[0]
        return ast.fix_missing_locations(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A tensor without axes, which has one now."""
        if node.id not in self.batched or isinstance(node.ctx, ast.Store):
            return node
        return ast.parse(f"{node.id}[{self.variable}]", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                axis = 1 if name in self.batched else 0
                return ast.parse(f"{name}.shape[{axis}]", mode="eval").body
        node.args = [self.visit(a) for a in node.args]
        return node
